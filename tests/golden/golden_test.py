# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Batches, states, stores and side indexes are what they were.

What a case gives is compared with its file under expected/, which
`python -m tests.golden.make` wrote; its docstring says when it may be run.
"""

import functools
import json
import pathlib
import re

import numpy as np
import pytest

import chomp_data
from chomp_data.audit import verifying
from chomp_data.loading import state
from tests.golden import archive
from tests.golden import cases
from tests.golden import corpora
from tests.golden import measuring
from tests.loading import device_fields_test

CASES = cases.CASES
SMALL = [name for name, own in CASES.items() if not own.large]
KEPT_SMALL = [name for name in cases.KEPT if name in SMALL]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
  """Every corpus, written anew; a relative path, as `make` has it."""
  with pytest.MonkeyPatch.context() as patch:
    patch.chdir(tmp_path_factory.mktemp("golden"))
    cases.ROOT.mkdir()
    cache = tmp_path_factory.mktemp("cache")
    corpora.write_for_tests(cases.ROOT, patch, cache)
    yield cases.ROOT


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
  """The stores and side indexes that were kept."""
  path = tmp_path_factory.mktemp("kept")
  archive.unpack(path)
  return path


@pytest.fixture(scope="module")
def unpacked_2(tmp_path_factory):
  """Those of schema 2."""
  path = tmp_path_factory.mktemp("kept_2")
  archive.unpack(path, archive.PATH_2)
  return path


@pytest.fixture(scope="module")
def built(root):
  """Builds a case, once for the tests of this file: a plan has no state."""
  return functools.cache(lambda name: chomp_data.build(CASES[name].at(root)))


def having(field):
  return [name for name, own in CASES.items() if getattr(own, field)]


def test_every_case_has_a_golden_file():
  found = {path.stem for path in measuring.path_of("").parent.iterdir()}
  assert found == set(CASES), "python -m tests.golden.make writes new ones"


@pytest.mark.parametrize("name", SMALL)
def test_batches_and_fingerprint_are_what_they_were(name, built):
  old = measuring.golden(name)
  new = measuring.batches(built(name), CASES[name].far)
  for part in ("num_steps", "batches", "fingerprint"):
    assert measuring.missing(old[part], new[part]) == []
  assert len(new["batches"]) == len(old["batches"])


@pytest.mark.slow
@pytest.mark.parametrize(
  "name", [own for own in SMALL if not own.startswith("sizes")]
)
def test_what_travels_to_devices_is_these_batches(name, root):
  data = CASES[name].at(root)
  if (data.get("buckets") or {}).get("kind") != "resolution":
    device_fields_test.check_on_host(data, 6)


@pytest.mark.parametrize("name", SMALL)
def test_accounts_are_what_they_were(name, built):
  new = measuring.accounts(built(name))
  assert measuring.missing(measuring.golden(name)["accounts"], new) == []


@pytest.mark.parametrize("name", having("states"))
def test_an_old_state_is_accepted_and_gives_the_batches_after_it(name, built):
  old, pipe = measuring.golden(name)["states"], built(name)
  assert sorted(map(int, old)) == sorted(CASES[name].states)
  for step, kept in old.items():
    with chomp_data.make_iterator(pipe) as iterator:
      iterator.set_state(kept["state"].encode())
      assert iterator.step == int(step)
      saved = json.loads(kept["state"])
      # The test above compares it, and it is accepted.
      del saved["digest"], saved["fingerprint"]
      assert measuring.missing(saved, json.loads(iterator.get_state())) == []
      assert measuring.following(iterator) == kept["following"]


@pytest.mark.parametrize("name", having("states"))
def test_what_old_states_certify_is_the_plan_and_goes_on(name, built):
  pipe = built(name)
  old = measuring.golden(name)["states"]
  kept = old[max(old, key=int)]["state"].encode()
  with chomp_data.make_iterator(pipe) as iterator:
    iterator.set_state(kept)
    next(iterator, None)
    states = [state.decode(own) for own in (kept, iterator.get_state())]
  begun = 0 if "certificate" in states[0] else states[0]["step"]
  verified = verifying.verified(
    pipe, states, steps=range(begun, states[1]["step"])
  )
  assert verified.agrees
  assert not verified.unknown


@pytest.mark.parametrize("name", having("resumed"))
def test_a_run_from_an_old_resume_state_gives_its_batches(name, root, built):
  case = CASES[name]
  old = measuring.golden(name)["resumed"]
  state = built(name).accounts.resume_state(case.resumed)
  assert measuring.missing(old["resume_state"], state) == []
  data = measuring.resumed(case.at(root), old["resume_state"])
  new = measuring.batches(chomp_data.build(data), case.far)
  for part in ("num_steps", "batches", "fingerprint"):
    assert measuring.missing(old[part], new[part]) == []


@pytest.mark.parametrize(
  "name", filter(corpora.is_store, archive.corpora_of(cases.KEPT))
)
def test_a_kept_store_holds_the_same_documents(name, unpacked):
  assert_holds_its_documents(unpacked / name)


@pytest.mark.parametrize(
  "name", filter(corpora.is_store, archive.corpora_of(cases.KEPT_2))
)
def test_a_kept_store_of_schema_2_holds_the_same_documents(name, unpacked_2):
  assert_holds_its_documents(unpacked_2 / name)


def assert_holds_its_documents(path):
  name = path.name
  store = chomp_data.open_store(path)
  wanted = corpora.documents(name)
  ends = np.cumsum([len(tokens) for tokens in wanted])
  starts, lengths = store.bounds(np.arange(store.num_documents))
  np.testing.assert_array_equal(starts + lengths, ends)
  tokens = store.read_tokens(np.zeros(1, np.int64), ends[-1:])
  np.testing.assert_array_equal(tokens, np.concatenate(wanted))


def test_kept_side_indexes_are_taken_as_they_are(
  unpacked, tmp_path, monkeypatch
):
  """An index that is built again is another directory, or a younger one."""
  cache = tmp_path / "cache"
  monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
  assert_taken_as_they_are(
    unpacked,
    cases.KEPT,
    {
      *("array_record", "begins", "ffd", "pieces", "samples_array_record"),
      *("samples_arrow", "sums"),
    },
  )
  # Compiled loops may be kept there; no index is.
  kept = list(cache.iterdir()) if cache.exists() else []
  assert [path.name for path in kept if path.name != "chomp_data_kernels"] == []


def test_kept_stores_of_schema_2_and_their_indexes_are_taken_as_they_are(
  unpacked_2, tmp_path, monkeypatch
):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  kinds = {"ffd", "levanter", "megatron"}
  assert_taken_as_they_are(unpacked_2, cases.KEPT_2, kinds)


def documented():
  """The names of side indexes in the table of docs/stores.md."""
  page = pathlib.Path(chomp_data.__file__).parents[1] / "docs" / "stores.md"
  table = page.read_text().split("| name | content | constant")[1]
  rows = re.findall(r"^\| (`[^|]*)\|", table.split("\n\n")[0], re.MULTILINE)
  return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def assert_taken_as_they_are(root, names, kinds):
  before = stamps(root)
  found = {name.split("/")[-2] for name in before if ".index/" in name}
  assert {name.rpartition("-")[0] for name in found} == kinds
  for name in names:
    case, old = CASES[name], measuring.golden(name)
    pipe = chomp_data.build(case.at(root))
    new = measuring.batches(pipe, case.far)
    new["accounts"] = measuring.accounts(pipe)
    for part in ("num_steps", "batches", "fingerprint", "accounts"):
      assert measuring.missing(old[part], new[part]) == []
  # Those that older versions did not keep come beside them.
  after = stamps(root)
  assert {name: after.get(name) for name in before} == before
  new = {name.split("/")[-2].lstrip(".") for name in after.keys() - before}
  assert {name.partition("-")[0] for name in new} | kinds <= documented()
  assert {name.partition("-")[0] for name in new} <= {
    *("exact", "row_sums", "samples_arrow_sizes")
  }


def test_a_kept_state_tells_when_stores_joined(root):
  """A config that does not say it goes on as one that does."""
  data = CASES["joined"].at(root)
  del data["sources"]["text"]["joined"]
  for step, kept in measuring.golden("joined")["states"].items():
    with chomp_data.make_iterator(data) as iterator:
      if int(step) >= 20:
        # Both have joined by then.
        iterator.set_state(kept["state"].encode())
        assert measuring.following(iterator) == kept["following"]


def stamps(path: pathlib.Path):
  out = {}
  for name, file in archive.files(path).items():
    found = file.stat()
    out[name] = found.st_ino, found.st_mtime_ns, file.read_bytes()
  return out


@pytest.mark.parametrize(
  "names",
  [KEPT_SMALL, pytest.param(cases.KEPT, marks=pytest.mark.slow)],
  ids=["small", "all"],
)
def test_stores_and_indexes_are_written_with_the_same_bytes(
  names, unpacked, tmp_path, monkeypatch
):
  """Where no library of compression or of another format has a say."""
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  own = tmp_path / "stores"
  own.mkdir()
  archive.write(own, names)
  written = archive.corpora_of(names)
  old, new = ({
    path: file.read_bytes()
    for path, file in archive.files(root).items()
    for name in [path.split("/")[0].removesuffix(".index")]
    if name in written and corpora.has_own_bytes(name)
    if ".index/" in path or not archive.is_beside(path)
  } for root in (unpacked, own))  # fmt: skip
  # Those that older versions did not keep come beside them.
  later = re.compile(r"\.index/(exact|row_sums)-")
  assert sorted(old) == sorted(
    path for path in new if path in old or not later.search(path)
  )
  assert [path for path in old if old[path] != new[path]] == []
  kept = json.loads(archive.SCHEMA_2.read_text())
  kept = {k: v for k, v in kept.items() if k.split("/")[0] in written}
  assert archive.beside_arrays(own) == kept
  for name in filter(corpora.is_store, written):
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
