# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Levanter's caches: pinned to caches that Levanter's own writer wrote."""

import json
import os
import pathlib
import shutil

import numpy as np
import pytest
import tensorstore as ts

from chomp_data import stores
from chomp_data.stores.tokenized import levanter_store
from tests.stores import copies_test
from tests.stores import megatron_test

FIXTURES = pathlib.Path(__file__).parent / "fixtures" / "levanter"
VOCAB = 100_000
documents = megatron_test.documents
DOCUMENTS = documents(VOCAB)
held = copies_test.held


@pytest.fixture(params=["cache", "sharded"])
def cache(tmp_path, request):
  """A copy of a fixture: an index is put beside it."""
  return pathlib.Path(
    shutil.copytree(FIXTURES / request.param, tmp_path / request.param)
  )


def opened(path, vocab_size=VOCAB, cache_bytes=2**28, **options):
  return stores.open_store(
    path,
    cache_bytes=cache_bytes,
    levanter=levanter_store.LevanterOptions(vocab_size=vocab_size, **options),
  )


@pytest.mark.parametrize("cache_bytes", [0, 2**28])
def test_what_levanter_wrote_is_what_is_read(cache, cache_bytes):
  store = opened(cache, cache_bytes=cache_bytes)
  assert held(store) == [d.tolist() for d in DOCUMENTS]
  assert store.read_tokens([2, 0], [300, 7]).tolist() == [
    *np.concatenate(DOCUMENTS)[2:302].tolist(),
    *np.concatenate(DOCUMENTS)[:7].tolist(),
  ]
  assert store.opened.token_dtype == np.int32
  assert store.opened.chunk_tokens == 256 * 1024
  assert store.document_ids([5]) == [f"{cache.name}:5"]


def test_both_layouts_of_the_same_documents_have_one_identity(tmp_path):
  hashes = set()
  for name in ("cache", "sharded"):
    path = shutil.copytree(FIXTURES / name, tmp_path / name)
    hashes.add(opened(path).hash)
  assert len(hashes) == 1


def write_array(path, values, metadata):
  """Writes the first values of an array of given Zarr metadata."""
  spec = {
    "driver": "zarr3",
    "kvstore": {"driver": "file", "path": f"{path}/"},
    "metadata": metadata,
  }
  array = ts.open(spec, create=True).result()
  array[: len(values)].write(values).result()


def write_cache(path, index):
  """Writes a cache of 500 tokens; returns them.

  Args:
    path: Its directory.
    index: Where the index of an object's chunks is: 'end', 'start', or 'none',
      of objects that are one chunk.
  """
  tokens = np.random.default_rng(0).integers(0, VOCAB, 500).astype(np.int32)
  tokens[64:128] = 0  # Left out by TensorStore, where there is an index.
  arrays = {"data": tokens, "offsets": np.asarray([2, 70, 500], np.int64)}
  for name, values in arrays.items():
    inner = [{"name": "bytes"}, {"name": "zstd", "configuration": {"level": 1}}]
    sharding = {"chunk_shape": [64], "codecs": inner, "index_location": index}
    sharded = {"name": "sharding_indexed", "configuration": sharding}
    metadata = {
      "shape": [2**20],
      "data_type": values.dtype.name,
      "chunk_grid": {
        "name": "regular",
        "configuration": {"chunk_shape": [256]},
      },
      "codecs": inner if index == "none" else [sharded],
    }
    write_array(path / "input_ids" / name, values, metadata)
  ledger = {"total_num_rows": 2, "is_finished": True}
  (path / "shard_ledger.json").write_text(json.dumps(ledger))
  return tokens


@pytest.mark.parametrize("index", ["end", "start", "none"])
def test_arrays_are_read_however_their_chunks_are_indexed(tmp_path, index):
  tokens = write_cache(tmp_path / "train", index)
  store = opened(tmp_path / "train")
  assert store.read_tokens([0], [500]).tolist() == tokens.tolist()
  assert held(store) == [tokens[:70].tolist(), tokens[70:].tolist()]
  store = opened(tmp_path / "train")
  os.truncate(tmp_path / "train" / "input_ids" / "data" / "c" / "1", 0)
  with pytest.raises(stores.StoreError, match="data/c/1"):
    store.read_tokens([300], [5])


def test_a_chunk_is_fetched_once_where_it_is_kept(cache):
  store = opened(cache)
  before = store.counters.snapshot()
  _ = held(store), held(store)
  assert (store.counters - before).chunks_fetched <= 2


def test_files_that_are_missing_are_no_zeros(cache):
  for file in sorted(cache.rglob("*/c/0")):
    before = file.read_bytes()
    file.unlink()
    with pytest.raises(stores.StoreError, match=r"must (exist|hold|have)"):
      opened(cache)
    file.write_bytes(before)


@pytest.mark.parametrize("warm", [False, True])
def test_what_is_no_file_is_named_and_not_waited_for(cache, warm):
  if warm:
    opened(cache)
  ledger = cache / "shard_ledger.json"
  fields = sorted(path for path in cache.rglob("input_ids/**/*"))
  for file in [ledger, *(path for path in fields if path.is_file())]:
    for make in (
      os.mkfifo,
      pathlib.Path.mkdir,
      lambda path: path.symlink_to(path.name),
      lambda path: path.symlink_to("/dev/zero"),
    ):
      kept = file.with_name("kept")
      file.rename(cache.parent / kept.name)
      make(file)
      with pytest.raises(stores.StoreError, match=str(cache)):
        held(opened(cache))
      file.rmdir() if file.is_dir() else file.unlink()
      (cache.parent / kept.name).rename(file)


def test_damage_is_an_error_or_another_identity(cache):
  expected = opened(cache).hash
  for file in sorted(cache.rglob("*/c/0")):
    before = file.read_bytes()
    for at in range(0, len(before), 997):
      changed = bytearray(before)
      changed[at] ^= 4
      file.write_bytes(changed)
      os.utime(file, ns=(at + 1, at + 1))
      try:
        store = opened(cache)
        same = held(store) == [d.tolist() for d in DOCUMENTS]
        assert same == (store.hash == expected)
      except stores.StoreError:
        pass
    file.write_bytes(before)


def test_ids_beyond_the_vocabulary_are_an_error(cache):
  with pytest.raises(stores.StoreError, match="999, got"):
    opened(cache, 1_000)


def test_a_cache_that_is_not_finished_is_refused(cache):
  file = cache / "shard_ledger.json"
  ledger = json.loads(file.read_text())
  file.write_text(json.dumps({**ledger, "is_finished": False}))
  with pytest.raises(stores.StoreError, match="finished cache"):
    opened(cache)
  file.write_text(json.dumps({**ledger, "total_num_rows": 7}))
  with pytest.raises(stores.StoreError, match="must hold the 7 documents"):
    opened(cache)
  file.write_text("[]")
  with pytest.raises(stores.StoreError, match="ledger of a Levanter cache"):
    opened(cache)


def test_another_field_is_named_where_there_is_none(cache):
  with pytest.raises(stores.StoreError, match="Set `field`"):
    opened(cache, field="tokens")


def test_a_path_without_its_section_says_how_it_is_read(cache):
  with pytest.raises(stores.StoreError, match="`levanter` beside the path"):
    stores.open_store(cache)
