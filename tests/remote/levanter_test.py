# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Levanter's caches in buckets: read in place, as they are locally."""

import json
import pickle

import numpy as np
import pytest
import tensorstore as ts

from chomp_data import errors
from chomp_data import pipeline
from chomp_data.storage import opening
from chomp_data.storage import requests
from tests.remote import reading_test
from tests.stores import levanter_test

VOCAB = levanter_test.VOCAB
SEQ_LEN = 16
CHUNK = 8 * SEQ_LEN
BATCH = 8
# Of two shards: one of whole objects, and one that ends within a chunk.
SIZES = (32 * CHUNK, 27 * CHUNK + 45)
NUM_CHUNKS = 32 + 28


def write_array(path, values, chunk):
  """Writes an array as the pinned ones are, of smaller chunks."""
  pinned = levanter_test.FIXTURES / "cache/input_ids/data/zarr.json"
  metadata = json.loads(pinned.read_text())
  metadata["data_type"] = values.dtype.name
  metadata["chunk_grid"]["configuration"]["chunk_shape"] = [8 * chunk]
  metadata["codecs"][0]["configuration"]["chunk_shape"] = [chunk]
  inner = metadata["codecs"][0]["configuration"]["codecs"]
  inner[1]["configuration"]["typesize"] = values.itemsize
  spec = {
    "driver": "zarr3",
    "kvstore": {"driver": "file", "path": f"{path}/"},
    "metadata": metadata,
  }
  array = ts.open(spec, create=True).result()
  array[: len(values)].write(values).result()


@pytest.fixture(scope="module")
def local(tmp_path_factory):
  path = tmp_path_factory.mktemp("levanter") / "train"
  rng = np.random.default_rng(0)
  for i, size in enumerate(SIZES):
    tokens = rng.integers(1, VOCAB, size).astype(np.int32)
    tokens[5 * CHUNK : 6 * CHUNK] = 0  # Left out by TensorStore.
    ends = np.sort(rng.choice(size, 20, replace=False))
    offsets = np.asarray([21, *ends, size], np.int64)
    field = path / f"part-{i}" / "input_ids"
    write_array(field / "data", tokens, CHUNK)
    write_array(field / "offsets", offsets, 8)
  ledger = {
    "total_num_rows": 42,
    "shard_rows": {"part-0": 21, "part-1": 21},
    "is_finished": True,
    "finished_shards": ["part-0", "part-1"],
    "layout": "sharded",
  }
  (path / "shard_ledger.json").write_text(json.dumps(ledger))
  assert levanter_test.opened(path).num_tokens == sum(SIZES)
  return path


@pytest.fixture(autouse=True)
def caches(monkeypatch, tmp_path):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def url(bucket, local):
  found = reading_test.upload(local, f"{bucket.root}/train")
  bucket.clear()
  return found


@pytest.mark.parametrize("name", ["cache", "sharded"])
def test_what_levanter_wrote_is_what_is_read(bucket, name):
  local = levanter_test.FIXTURES / name
  store = levanter_test.opened(
    reading_test.upload(local, f"{bucket.root}/{name}")
  )
  assert levanter_test.held(store) == [
    own.tolist() for own in levanter_test.documents()
  ]
  assert store.opened.chunk_tokens == 256 * 1024
  assert store.opened.token_dtype == np.int32


def test_it_is_the_cache_that_it_is_locally(s3_bucket, local):
  url = reading_test.upload(local, f"{s3_bucket.root}/train")
  store, other = levanter_test.opened(url), levanter_test.opened(local)
  assert store.hash == other.hash
  assert store.opened.chunk_tokens == other.opened.chunk_tokens == CHUNK
  assert store.document_ids([41]) == other.document_ids([41])
  assert levanter_test.held(store) == levanter_test.held(other)
  pickled = pickle.loads(pickle.dumps(store))
  assert levanter_test.held(pickled) == levanter_test.held(other)


@pytest.mark.slow
def test_random_spans_are_those_of_the_files(s3_bucket, local):
  url = reading_test.upload(local, f"{s3_bucket.root}/train")
  store = levanter_test.opened(url, cache_bytes=5 * 4 * CHUNK)
  tokens = levanter_test.opened(local).read_tokens([0], [sum(SIZES)])
  rng = np.random.default_rng(1)
  for i in range(12):
    starts = rng.integers(0, len(tokens) - 3 * CHUNK, 20)
    starts[0] = SIZES[0] - CHUNK  # Into the next shard.
    lengths = rng.integers(0, 3 * CHUNK, 20)
    if i % 3 == 0:
      store.prefetch(starts, lengths)
    wanted = [tokens[s : s + n] for s, n in zip(starts, lengths, strict=True)]
    found = store.read_tokens(starts, lengths)
    assert found.tolist() == np.concatenate(wanted).tolist()


def config(path):
  return {
    "seq_len": SEQ_LEN,
    "global_batch_size": BATCH,
    "seed": 1,
    "epochs": 1,
    "sources": {
      "web": {
        "store": str(path),
        "levanter": {"vocab_size": VOCAB, "pad_id": 0},
        "rows": {"kind": "sequential"},
        "shuffle": {"kind": "block", "window_blocks": 4},
      }
    },
  }


@pytest.mark.parametrize("first_step", [0, 7])
def test_batches_are_those_of_the_files_and_chunks_are_fetched_once(
  s3_bucket, local, first_step
):
  url = reading_test.upload(local, f"{s3_bucket.root}/train")
  pipe, expected = pipeline.build(config(url)), pipeline.build(config(local))
  assert pipe.fingerprint == expected.fingerprint
  source = pipeline.batch_source(pipe)
  for step in range(first_step, pipe.num_steps):
    wanted = expected.canonical(step)
    for name, value in source[step].items():
      np.testing.assert_array_equal(value, wanted[name])
  reads = source.reads.by_source()["web"]
  assert reads.requests > 0
  needed = NUM_CHUNKS * (pipe.num_steps - first_step) / pipe.num_steps
  # What is left of the window that was resumed in is needed whole.
  assert reads.chunks_fetched <= 1.05 * needed + 4 * (first_step > 0)


def test_it_opens_by_no_reads_of_tokens_once_it_was_indexed(
  s3_bucket, local, tmp_path
):
  url = reading_test.upload(local, f"{s3_bucket.root}/train")
  levanter_test.opened(url)
  s3_bucket.clear()
  store = levanter_test.opened(url)
  assert not s3_bucket.reads("/c/")
  store.set_cache(directory=str(tmp_path / "chunks"), most_bytes=2**20)
  everything = np.asarray([0]), np.asarray([store.num_tokens])
  wanted = store.read_tokens(*everything).tolist()
  again = levanter_test.opened(url)
  again.set_cache(directory=str(tmp_path / "chunks"), most_bytes=2**20)
  damaged = sorted((tmp_path / "chunks").glob("*/*.7"))[0]
  damaged.write_bytes(damaged.read_bytes()[:-1] + b"!")
  s3_bucket.clear()
  assert again.read_tokens(*everything).tolist() == wanted
  # The index of a shard of which a chunk was damaged, and the chunk.
  assert again.counters.bytes_transferred < 40 * CHUNK


def test_what_is_wrong_is_named(bucket, url, monkeypatch):
  monkeypatch.setattr(requests, "RETRY_DELAYS_S", (0.01, 0.01, 0.01))
  store = levanter_test.opened(url, cache_bytes=0)
  pickled = pickle.dumps(store)
  bucket.fault = lambda request: 403 if "data/c/1" in request.name else None
  with pytest.raises(errors.StoreError, match="part-0/input_ids/data/c/1"):
    store.read_tokens([10 * CHUNK], [5])
  bucket.fault = lambda request: 503 if request.number < 2 else None
  bucket.requests.clear()
  store.read_tokens([20 * CHUNK], [5])
  assert store.counters.retries >= 2
  with pytest.raises(errors.StoreError, match=r"must be in 0 \.\. 999, got"):
    levanter_test.opened(url, 1_000)
  with pytest.raises(errors.StoreError, match="Set `field`"):
    levanter_test.opened(url, field="tokens")
  place = opening.open_storage(url)
  shard = place.get("part-1/input_ids/data/c/2")
  place.put("part-1/input_ids/data/c/2", shard[:40] + b"!" + shard[41:])
  with pytest.raises(errors.StoreError, match="must be the object of version"):
    store.read_tokens([(32 + 20) * CHUNK], [5])
  with pytest.raises(errors.StoreError, match="that this run began with"):
    _ = pickle.loads(pickled).num_tokens
  place.delete(["part-0/input_ids/data/c/3"])
  with pytest.raises(
    errors.StoreError, match=r"data/zarr\.json must have objec"
  ):
    levanter_test.opened(url)
  place.delete(["shard_ledger.json"])
  with pytest.raises(errors.StoreError, match="must be the ledger of a Levant"):
    levanter_test.opened(url)
