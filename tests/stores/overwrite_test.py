# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A store that is written anew under its reader is told; bytes never mix."""

import os
import pathlib
import shutil

import numpy as np
import pytest

from chomp_data import iterators
from chomp_data import stores
from chomp_data.storage import publish
from chomp_data.testing import stores as testing_stores

FIXTURES = pathlib.Path(__file__).parent / "fixtures"
RECORDS = {
  "array_record": stores.ArrayRecordOptions(
    token_dtype="uint16", vocab_size=256
  )
}
MEGATRON = {"megatron": stores.MegatronOptions(vocab_size=100_000)}
LEVANTER = {"levanter": stores.LevanterOptions(vocab_size=100_000)}


def documents(value):
  return [np.full(100 + i % 7, value) for i in range(200)]


def replaced(new, path):
  """As prepare --overwrite, in one step."""
  publish.publish(new, path)


def removed_first(new, path):
  shutil.rmtree(path)
  new.rename(path)


def rewritten(new, path):
  """As rsync --inplace: files keep their inodes."""
  for file in sorted(own for own in new.rglob("*") if own.is_file()):
    with open(path / file.relative_to(new), "r+b") as out:
      out.write(file.read_bytes())
      out.truncate()


def read_on(store, found):
  for low in range(0, store.num_tokens - 500, 500):
    found |= set(store.read_tokens([low], [500]).tolist())


def values_until_told(store, path):
  """Reads on; returns what was read before the error that names the store."""
  found = set()
  with pytest.raises(stores.StoreError) as caught:
    read_on(store, found)
  assert str(path) in str(caught.value)
  return found, str(caught.value)


@pytest.mark.parametrize("write", [replaced, removed_first, rewritten])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_store_that_is_prepared_again_is_told(tmp_path, write, compression):
  path = tmp_path / "store"
  options = {"chunk": 256, "compression": compression}
  testing_stores.make_store(path, documents(5), **options)
  store = stores.open_store(path, cache_bytes=1 << 12)
  # What was touched before is mapped, or in the cache.
  assert set(store.read_tokens([0], [2_000]).tolist()) == {5}
  testing_stores.make_store(tmp_path / "new", documents(6), **options)
  write(tmp_path / "new", path)
  for _ in range(2):
    found, told = values_until_told(store, path)
    assert found == set()
    assert f"{path}/manifest.json must stay as it is while it is read" in told


def test_the_same_store_written_again_is_no_other(tmp_path):
  path = tmp_path / "store"
  testing_stores.make_store(path, documents(5))
  store = stores.open_store(path)
  testing_stores.make_store(tmp_path / "new", documents(5))
  replaced(tmp_path / "new", path)
  os.utime(path / "manifest.json", (1, 1))
  assert set(store.read_tokens([0], [store.num_tokens]).tolist()) == {5}
  # Nor is one that is moved away, with what was read of it.
  path.rename(tmp_path / "moved")
  assert set(store.read_tokens([0], [200]).tolist()) == {5}


@pytest.mark.parametrize("write", [removed_first, rewritten])
def test_records_that_are_written_again_never_mix(tmp_path, write):
  path = tmp_path / "records"
  testing_stores.make_array_records(path, documents(5))
  store = stores.open_store(path, **RECORDS)
  store.read_tokens([0], [2_000])
  testing_stores.make_array_records(tmp_path / "new", documents(6))
  write(tmp_path / "new", path)
  found, told = values_until_told(store, path)
  assert found <= {5}
  assert "must be" in told


@pytest.mark.parametrize("write", [removed_first, rewritten])
@pytest.mark.parametrize(
  ("of", "name", "tokens", "options"),
  [
    ("megatron", "int32_document", "int32_document.bin", MEGATRON),
    ("levanter/cache", "", "input_ids/data/c/0", LEVANTER),
  ],
)
@pytest.mark.parametrize("same", [False, True])
def test_other_content_without_checksums_is_told(
  tmp_path, write, of, name, tokens, options, same
):
  path = pathlib.Path(shutil.copytree(FIXTURES / of, tmp_path / "data"))
  for file in path.rglob("*"):
    os.utime(file, (1, 1))
  store = stores.open_store(path / name if name else path, **options)
  store.read_tokens([0], [20])
  wanted = store.read_tokens([0], [20]).tolist()
  shutil.copytree(FIXTURES / of, tmp_path / "new")
  if not same:
    data = bytearray((tmp_path / "new" / tokens).read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "new" / tokens).write_bytes(data)
  write(tmp_path / "new", path)
  if same:
    assert store.read_tokens([0], [20]).tolist() == wanted
    return
  with pytest.raises(stores.StoreError, match=f"{path}.* was written anew"):
    store.read_tokens([0], [20])


def train_on(it, found):
  for _ in range(200):
    found |= set(np.asarray(next(it)["tokens"]).ravel().tolist())


@pytest.mark.parametrize("several", [False, True])
def test_a_run_is_told_by_the_batch_that_would_be_another(tmp_path, several):
  paths = tuple(str(tmp_path / name) for name in "ab")
  for path in paths:
    testing_stores.make_store(path, documents(5), chunk=256)
  store = paths if several else paths[0]
  rows = {"kind": "sequential"}
  data = {
    "seq_len": 64,
    "global_batch_size": 4,
    "prefetch": 1,
    "sources": {"text": {"store": store, "rows": rows}},
  }
  found = set()
  with iterators.make_iterator(data) as it:
    next(it)
    testing_stores.make_store(tmp_path / "new", documents(6), chunk=256)
    replaced(tmp_path / "new", pathlib.Path(paths[several]))
    with pytest.raises(stores.StoreError, match=r"manifest\.json must stay"):
      train_on(it, found)
  assert found <= {5}
