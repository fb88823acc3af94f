# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs from buckets: the batches of a local store, and what they cost.

Chunks are counted where they are asked for: at the object store.
"""

import collections
import pathlib
import shutil

import numpy as np
import pytest

import chomp_data
from chomp_data import iterators
from chomp_data import pipeline
from chomp_data import stores
from chomp_data.loading import feed
from chomp_data.pack import bins
from chomp_data.pack import packing
from chomp_data.stores import labels as labels_lib
from chomp_data.stores.zarr import chunked_array
from chomp_data.testing import batch_hashes
from chomp_data.testing import stores as testing_stores
from tests.remote import store_kinds

SEQ_LEN = 32
CHUNK = 16 * SEQ_LEN
NUM_CHUNKS = 240
BATCH = 16


@pytest.fixture(scope="module")
def local(tmp_path_factory):
  """Long documents, and none of the chunks of a shard are neighbours."""
  rng = np.random.default_rng(0)
  path = tmp_path_factory.mktemp("loading") / "store"
  tokens = rng.integers(3, 250, NUM_CHUNKS * CHUNK)
  testing_stores.make_store(
    path,
    np.array_split(tokens, 50),
    compression="zstd",
    chunk=CHUNK,
    chunks_per_shard=16,
  )
  return path


@pytest.fixture
def url(bucket, local):
  found = store_kinds.upload(local, f"{bucket.root}/store")
  bucket.clear()
  return found


def config(store, rows=None, **shuffle):
  return {
    "seq_len": SEQ_LEN,
    "global_batch_size": BATCH,
    "seed": 1,
    "epochs": 1,
    "sources": {
      "text": {
        "store": str(store),
        "rows": rows or {"kind": "sequential"},
        "shuffle": {"kind": "block", "window_blocks": 4, **shuffle},
      }
    },
  }


ROWS = {
  "sequential": {"kind": "sequential"},
  "packed": {"kind": "bin", "packing_buffer_docs": 3},
}


@pytest.mark.parametrize("kind", ROWS)
def test_batches_are_those_of_the_local_store(
  url, local, kind, tmp_path, monkeypatch
):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
  found = pipeline.build(config(url, ROWS[kind]))
  expected = pipeline.build(config(local, ROWS[kind]))
  assert found.fingerprint == expected.fingerprint
  source = pipeline.batch_source(found)
  for step in range(expected.num_steps):
    wanted = expected.canonical(step)
    for name, value in source[step].items():
      np.testing.assert_array_equal(value, wanted[name])


@pytest.mark.parametrize(
  "worker_count", [0, pytest.param(2, marks=pytest.mark.slow)]
)
def test_an_iterator_reads_a_bucket(url, local, worker_count):
  hashes = {}
  for store in (url, local):
    data = {**config(store), "worker_count": worker_count}
    with iterators.make_iterator(data) as batches:
      hashes[store] = [
        batch_hashes.batch_sha256(next(batches)) for _ in range(9)
      ]
      reads = batches.reads["text"]
      assert (reads.requests > 0) == (store == url)
  assert hashes[url] == hashes[local]


def chunks_asked(bucket, first_step, **options):
  """Reads an epoch from a step on; returns chunks, and steps that were read."""
  pipe = pipeline.build(config(options.pop("url"), **options))
  source = pipeline.batch_source(pipe)
  bucket.clear()
  for step in range(first_step, pipe.num_steps):
    source[step]
  reads = source.reads.by_source()["text"]
  assert len(bucket.reads("/tokens/c/")) <= reads.requests
  return reads.chunks_fetched, pipe.num_steps - first_step


@pytest.mark.parametrize("first_step", [0, 1, 7, 101])
def test_an_epoch_fetches_its_chunks_once_resumed_anywhere(
  gs_bucket, local, first_step
):
  url = store_kinds.upload(local, f"{gs_bucket.root}/store")
  chunks, steps = chunks_asked(gs_bucket, first_step, url=url)
  needed = NUM_CHUNKS * steps / (NUM_CHUNKS * 16 // BATCH)
  # What is left of the window that was resumed in is needed whole.
  assert chunks <= 1.05 * needed + 4


@pytest.mark.parametrize("kept", [1, 2, 8])
def test_what_is_ahead_stays_within_the_cache(gs_bucket, local, kept):
  url = store_kinds.upload(local, f"{gs_bucket.root}/store")
  pipe = pipeline.build(config(url, cache_windows=kept))
  source = pipeline.batch_source(pipe)
  tokens = source.sources["text"].store.opened.tokens
  most = 0
  for step in range(pipe.num_steps):
    source[step]
    most = max(most, tokens.cache.held_bytes)
  assert most == kept * 4 * 2 * CHUNK
  assert source.reads.by_source()["text"].chunks_fetched == NUM_CHUNKS


@pytest.mark.slow
def test_a_worker_plans_its_own_steps_only(gs_bucket, local):
  url = store_kinds.upload(local, f"{gs_bucket.root}/store")
  pipe = pipeline.build(config(url, window_blocks=1))
  planned = 0
  for worker in range(4):
    source = pipeline.batch_source(pipe).for_workers(4)
    for step in range(worker, pipe.num_steps, 4):
      batch = source[step]
      np.testing.assert_array_equal(
        batch["tokens"], pipe.canonical(step)["tokens"]
      )
    planned += source.reads.by_source()["text"].planned_examples
  assert planned == pipe.num_steps * BATCH


@pytest.mark.slow
def test_batches_wait_for_slow_answers_once_only(gs_bucket, local):
  url = store_kinds.upload(local, f"{gs_bucket.root}/store")
  pipe = pipeline.build(config(url, cache_windows=8))
  gs_bucket.clear()
  gs_bucket.delay_s = lambda request: 0.05
  source = pipeline.batch_source(pipe)
  loader = iter(feed.data_loader(source))
  next(loader)
  assert len(list(loader)) == pipe.num_steps - 1
  assert source.reads.by_source()["text"].requests <= NUM_CHUNKS + 20


def test_side_indexes_are_kept_beside_the_store(
  bucket, url, tmp_path, monkeypatch
):
  data = config(url, ROWS["packed"])
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "one"))
  wanted = pipeline.build(data).canonical(3)
  kept = [own for own in bucket.requests if ".index/" in own.name]
  assert {own.method for own in kept} & {"PUT", "POST"}
  bucket.clear()
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "two"))
  found = pipeline.build(data).canonical(3)
  for name, value in found.items():
    np.testing.assert_array_equal(value, wanted[name])
  asked = [own.method for own in bucket.requests if ".index/" in own.name]
  assert asked
  assert set(asked) == {"GET"}
  bucket.clear()
  pipeline.build(data).canonical(3)
  assert not [own for own in bucket.requests if ".index/" in own.name]


def test_a_host_packs_no_windows_of_others_to_know_what_rows_hold(
  url, tmp_path, monkeypatch
):
  monkeypatch.setattr(bins, "INDEXED_DOCUMENTS", 10)

  def source():
    return chomp_data.BinSource(
      stores.open_store(url),
      chomp_data.BinOptions(
        packing_algorithm="exact", packing_buffer_docs=3, add_eos=False
      ),
      seq_len=SEQ_LEN,
    )

  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "one"))
  first = source()
  rows = np.arange(len(first))
  expected = first.units(0, rows, "tokens")
  first.prepare(None)
  first.plan(rows[:4])
  first.background.wait()
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "two"))
  other = source()
  monkeypatch.setattr(packing, "exact_bins", None)
  np.testing.assert_array_equal(other.units(0, rows, "tokens"), expected)
  with pytest.raises(TypeError):
    other.plan(rows[:1])


def test_side_indexes_stay_here_where_one_may_not_write(
  bucket, url, tmp_path, monkeypatch
):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
  monkeypatch.chdir(tmp_path)
  bucket.fault = lambda request: (
    403 if request.method in ("PUT", "POST") else None
  )
  pipeline.build(config(url, ROWS["packed"])).canonical(3)
  assert list(pathlib.Path(tmp_path).rglob("header.json"))
  assert not list(pathlib.Path.cwd().glob("*:"))


@pytest.mark.slow
def test_labels_and_weights_are_asked_for_ahead_as_tokens_are(
  gs_bucket, tmp_path, monkeypatch
):
  # Of as many runs as would not be kept in memory.
  monkeypatch.setattr(labels_lib, "CACHED_RUNS", 8)
  rng = np.random.default_rng(0)
  documents = [rng.integers(3, 250, 400) for _ in range(40)]
  testing_stores.make_store(
    tmp_path / "store",
    documents,
    chunk=128,
    chunks_per_shard=4,
    levels=(0.0, 1.0),
    label_levels=[rng.integers(0, 2, 400) for _ in documents],
    weights=rng.random(len(documents)).tolist(),
  )
  shutil.copytree(tmp_path / "store", tmp_path / "other")
  late = collections.Counter()
  read = chunked_array.ChunkedArray.chunks

  def counted(array, chunks):
    name = array.directory.rpartition("/")[2]
    late[name] += len(set(chunks.tolist()) - set(array.cache.held))
    return read(array, chunks)

  monkeypatch.setattr(chunked_array.ChunkedArray, "chunks", counted)
  for names in (("store",), ("store", "other")):
    data = config("")
    for name in names:
      store_kinds.upload(tmp_path / name, f"{gs_bucket.root}/{name}")
    both = [
      [f"{root}/{name}" for name in names]
      for root in (gs_bucket.root, tmp_path)
    ]
    pipes = []
    for paths in both:
      data["sources"]["text"]["store"] = tuple(paths)
      pipes.append(pipeline.build(data))
    pipe, expected = pipes
    source = pipeline.batch_source(pipe)
    source[0]  # It reads some of all starts, once.
    late.clear()
    for step in range(1, pipe.num_steps):
      wanted = expected.canonical(step)
      for name, value in source[step].items():
        np.testing.assert_array_equal(value, wanted[name])
    for name in ("label_starts", "label_levels", "document_weights"):
      assert late[name] == 0, late
