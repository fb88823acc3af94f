# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Names in buckets lead to nothing outside: not on a disk, nor to an object."""

import hashlib
import json
import os
import shutil

import numpy as np
import pytest

from chomp_data import errors
from chomp_data.reference import mirror
from chomp_data.storage import checksums
from chomp_data.storage import opening
from chomp_data.stores import side_index
from tests.stores import forged_files_test as local

DATA = b"of an attacker"


@pytest.fixture
def outside(tmp_path, monkeypatch):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache" / "of" / "it"))
  path = tmp_path / "outside"
  path.mkdir()
  (path / "canary").write_text("alive")
  return path


def complete(name, crc32c=None, attempt="a"):
  crc32c = [checksums.crc32c(DATA)] if crc32c is None else crc32c
  return json.dumps({"attempt": attempt, "files": {name: crc32c}}).encode()


def test_a_checkpoint_in_a_bucket_writes_to_its_directory_only(
  s3_bucket, tmp_path, outside
):
  place = opening.open_storage(f"{s3_bucket.root}/checkpoints")
  kept = mirror.Mirror(place.path, None)
  before = local.state_of(outside)
  names = [own.replace("/{outside}", str(outside)) for own in local.NAMES]
  for depth in range(1, 6):
    names.append(f"{'../' * depth}outside/canary")
  for i, name in enumerate(names):
    if "\0" not in name and name.isascii():
      # As an HTTP client resolves it.
      place.put(os.path.normpath(f"{i}/a/x/{name}").lstrip("/."), DATA)
    place.put(f"{i}/complete.json", complete(name))
    with pytest.raises(mirror.DamagedError, match=rf"checkpoints/{i} must"):
      kept.fetch(i, tmp_path / "run" / "checkpoints" / str(i))
    assert local.state_of(outside) == before, name
    assert set(os.listdir(tmp_path)) <= {"outside", "run", "cache"}, name
    found = [own for own in (tmp_path / "run").rglob("*") if own.is_file()]
    assert not found, name


@pytest.mark.parametrize(
  "record",
  [
    b"", b"[]", b"5", b"{}", b"[" * 10**5,
    complete("x", attempt="../a"), complete("x", attempt=5),
    complete("x", attempt=".."), complete("x", crc32c=5),
    complete("x", crc32c=["a"]), complete("x", crc32c=[None]),
    json.dumps({"attempt": "a", "files": ["x"]}).encode(),
    json.dumps({"attempt": "a", "files": {"x": [], "x/y": []}}).encode(),
  ],
)  # fmt: skip
def test_a_record_of_another_form_is_a_damaged_checkpoint(
  s3_bucket, tmp_path, record
):
  place = opening.open_storage(f"{s3_bucket.root}/checkpoints")
  place.put("7/complete.json", record)
  place.put("7/a/x", DATA)
  with pytest.raises(mirror.DamagedError, match=r"checkpoints/7 must"):
    mirror.Mirror(place.path, None).fetch(7, tmp_path / "7")


def test_a_name_that_a_client_resolves_is_no_name_of_an_object(bucket):
  place = opening.open_storage(f"{bucket.root}/inner")
  opening.open_storage(bucket.root).put("victim", b"alive")
  place.put("victim", b"alive")
  for name in ("../victim", "a/../victim", "./victim", "..", "a/.."):
    for call in (
      place.get,
      place.head,
      lambda own: place.put(own, b"dead"),
      lambda own: place.put(own, b"dead", create=True),
      lambda own: place.delete([own]),
    ):
      with pytest.raises(errors.StoreError, match=r"without parts '\.'"):
        call(name)
  assert place.get("victim") == b"alive"
  assert opening.open_storage(bucket.root).get("victim") == b"alive"


@pytest.mark.parametrize(
  "name",
  [
    *local.NAMES[:3],
    *(pytest.param(name, marks=pytest.mark.slow) for name in local.NAMES[3:]),
    "b/c",
  ],
)
def test_an_index_in_a_bucket_writes_to_its_directory_only(
  s3_bucket, tmp_path, outside, name
):
  name = name.replace("/{outside}", str(outside))
  url = f"{s3_bucket.root}/store"
  built = []

  def build():
    built.append(1)
    return [{"a": np.arange(5)}]

  def load():
    arrays = side_index.load_or_build(url, "it", {}, build)
    return arrays["a"].read().tolist()

  assert load() == [0, 1, 2, 3, 4]
  cache = tmp_path / "cache" / "of" / "it"
  (directory,) = (cache / "chomp_data" / "index").glob("it-*")
  header = json.loads((directory / "header.json").read_bytes())
  shutil.rmtree(cache)
  del header["sha256"]
  header["arrays"] = {name: header["arrays"]["a"]}
  text = json.dumps(header, sort_keys=True, separators=(",", ":"))
  header["sha256"] = hashlib.sha256(text.encode()).hexdigest()
  place = opening.open_storage(f"{url}.index/{directory.name}")
  place.put("header.json", json.dumps(header).encode())
  before = local.state_of(outside)
  assert load() == [0, 1, 2, 3, 4]
  # An index without names that lead elsewhere is taken.
  assert len(built) == (1 if name == "a" else 2)
  assert local.state_of(outside) == before
  assert set(os.listdir(tmp_path)) == {"outside", "cache"}
  left = {own.name for own in cache.rglob("*") if own.is_file()}
  assert left <= {"header.json", "a.bin", f"{directory.name}.lock"}
