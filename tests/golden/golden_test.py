"""Batches, states, stores and side indexes are what they were.

What a case gives is compared with its file under expected/, which
`python -m tests.golden.make` wrote; its docstring says when it may be run.
"""

import json
import os
import pathlib

import numpy as np
import pytest

import chomp_data
from tests.golden import archive
from tests.golden import cases
from tests.golden import corpora
from tests.golden import measuring

CASES = cases.CASES


@pytest.fixture(scope="module")
def root(tmp_path_factory):
  """Every corpus, written anew; a relative path, as `make` has it."""
  with pytest.MonkeyPatch.context() as patch:
    # None of them must outlive a power cut: a tenth of the time.
    patch.setattr(os, "fsync", lambda descriptor: None)
    patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    patch.chdir(tmp_path_factory.mktemp("golden"))
    cases.ROOT.mkdir()
    corpora.write_all(cases.ROOT)
    yield cases.ROOT


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
  """The stores and side indexes that were kept."""
  path = tmp_path_factory.mktemp("kept")
  archive.unpack(path)
  return path


def having(field):
  return [name for name, own in CASES.items() if getattr(own, field)]


def test_every_case_has_a_golden_file():
  found = {path.stem for path in measuring.path_of("").parent.iterdir()}
  assert found == set(CASES), "python -m tests.golden.make writes new ones"


@pytest.mark.parametrize("name", CASES)
def test_batches_and_fingerprint_are_what_they_were(name, root):
  old, case = measuring.golden(name), CASES[name]
  new = measuring.batches(case.at(root), case.far)
  for part in ("num_steps", "batches", "fingerprint"):
    assert measuring.missing(old[part], new[part]) == []
  assert len(new["batches"]) == len(old["batches"])


@pytest.mark.parametrize("name", CASES)
def test_accounts_are_what_they_were(name, root):
  case = CASES[name]
  new = measuring.accounts(case.at(root), case.far)
  assert measuring.missing(measuring.golden(name)["accounts"], new) == []


@pytest.mark.parametrize("name", having("states"))
def test_an_old_state_is_accepted_and_gives_the_batches_after_it(name, root):
  case = CASES[name]
  old = measuring.golden(name)["states"]
  assert sorted(map(int, old)) == sorted(case.states)
  pipe = chomp_data.build(case.at(root))
  for step, kept in old.items():
    with chomp_data.make_iterator(pipe) as iterator:
      iterator.set_state(kept["state"].encode())
      assert iterator.step == int(step)
      saved = json.loads(kept["state"])
      # The test above compares it, and it is accepted.
      del saved["digest"], saved["fingerprint"]
      assert measuring.missing(saved, json.loads(iterator.get_state())) == []
      assert measuring.following(iterator) == kept["following"]


@pytest.mark.parametrize("name", having("resumed"))
def test_a_run_from_an_old_resume_state_gives_its_batches(name, root):
  case = CASES[name]
  old = measuring.golden(name)["resumed"]
  state = chomp_data.build(case.at(root)).resume_state(case.resumed)
  assert measuring.missing(old["resume_state"], state) == []
  data = measuring.resumed(case.at(root), old["resume_state"])
  new = measuring.batches(data, case.far)
  for part in ("num_steps", "batches", "fingerprint"):
    assert measuring.missing(old[part], new[part]) == []


def test_kept_stores_hold_the_same_documents(unpacked):
  for name in filter(corpora.is_store, archive.names()):
    store = chomp_data.open_store(unpacked / name)
    wanted = corpora.documents(name)
    assert store.num_documents == len(wanted)
    for number, tokens in enumerate(wanted):
      np.testing.assert_array_equal(store.read_document(number), tokens)


def test_kept_side_indexes_are_taken_as_they_are(
  unpacked, tmp_path, monkeypatch
):
  """An index that is built again is another directory, or a younger one."""
  cache = tmp_path / "cache"
  monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
  before = stamps(unpacked)
  for name in ("ffd", "array_record", "samples_array_record", "samples_arrow"):
    assert any(f".index/{name}-" in path for path in before)
  for name in cases.KEPT:
    case, old = CASES[name], measuring.golden(name)
    new = measuring.batches(case.at(unpacked), case.far)
    for part in ("num_steps", "batches", "fingerprint"):
      assert measuring.missing(old[part], new[part]) == []
  assert stamps(unpacked) == before
  assert not cache.exists()


def stamps(path: pathlib.Path):
  out = {}
  for name, file in archive.files(path).items():
    found = file.stat()
    out[name] = found.st_ino, found.st_mtime_ns, file.read_bytes()
  return out


def test_stores_and_indexes_are_written_with_the_same_bytes(
  unpacked, tmp_path, monkeypatch
):
  """Where no library of compression or of another format has a say."""
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  own = tmp_path / "stores"
  own.mkdir()
  archive.write(own)
  old, new = ({
    name: file.read_bytes()
    for name, file in archive.files(path).items()
    if corpora.has_own_bytes(name.split("/")[0].removesuffix(".index"))
  } for path in (unpacked, own))  # fmt: skip
  assert sorted(old) == sorted(new)
  assert [name for name in old if old[name] != new[name]] == []
  for name in filter(corpora.is_store, archive.names()):
    kept = chomp_data.open_store(unpacked / name)
    assert chomp_data.open_store(own / name).hash == kept.hash


def test_only_what_is_new_is_no_difference():
  old = {"a": 1, "b": {"c": [1, {"d": None}]}}
  new = {"a": 1, "b": {"c": [1, {"d": None, "e": 2}]}, "f": 3}
  assert measuring.missing(old, new) == []
  assert measuring.missing(new, old) == [
    "b.c[1].e: was 2, is '(absent)'",
    "f: was 3, is '(absent)'",
  ]
  assert measuring.missing({"a": 1}, {"a": True}) == ["a: was 1, is True"]
  assert measuring.missing({"a": [1]}, {"a": [1, 2]}) != []
