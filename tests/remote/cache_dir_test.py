# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Chunks of buckets on a local disk: bounded, checked, for many processes."""

import contextlib
import multiprocessing
import pathlib
import time

import numpy as np
import pytest

from chomp_data import errors
from chomp_data import pipeline
from chomp_data import stores
from chomp_data.storage import disk_cache
from tests.remote import store_kinds

CHUNK = store_kinds.CHUNK
TOKENS = store_kinds.TOKENS
OURS = store_kinds.KINDS["zstd"]


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
  with store_kinds.small_pages():
    yield


@pytest.fixture(params=store_kinds.KINDS)
def kind(request):
  return store_kinds.KINDS[request.param]


@pytest.fixture
def url(kind, gs_bucket, local_stores):
  return store_kinds.upload(
    local_stores / kind.name, f"{gs_bucket.root}/{kind.name}"
  )


@pytest.fixture
def our_url(gs_bucket, local_stores):
  return store_kinds.upload(local_stores / "zstd", f"{gs_bucket.root}/zstd")


def opened(kind, url, directory, most_bytes=2**30):
  store = kind.open(url)
  store.set_cache(directory=str(directory), most_bytes=most_bytes)
  _ = store.num_tokens
  return store


def kept(directory):
  return sorted(pathlib.Path(directory).glob("*/*"))


def size(directory):
  total = 0
  for own in pathlib.Path(directory).glob("*/*"):
    with contextlib.suppress(FileNotFoundError):  # Evicted by another process.
      total += own.stat().st_size
  return total


def test_what_was_read_once_is_not_asked_for_again(
  gs_bucket, kind, url, tmp_path
):
  cache = tmp_path / "cache"
  store = opened(kind, url, cache)
  assert store.read_tokens(*store_kinds.EVERYTHING).tolist() == TOKENS.tolist()
  assert len(kept(cache)) == store_kinds.NUM_CHUNKS
  store = opened(kind, url, cache)
  gs_bucket.clear()
  assert store.read_tokens(*store_kinds.EVERYTHING).tolist() == TOKENS.tolist()
  assert not gs_bucket.reads(kind.tokens)
  assert store.counters.requests == 0


def test_what_was_damaged_is_fetched_again(gs_bucket, kind, url, tmp_path):
  cache = tmp_path / "cache"
  opened(kind, url, cache).read_tokens(*store_kinds.EVERYTHING)
  flipped, cut, empty, swapped, other = kept(cache)[10:15]
  data = flipped.read_bytes()
  flipped.write_bytes(data[:5] + bytes([data[5] ^ 1]) + data[6:])
  cut.write_bytes(cut.read_bytes()[:-9])
  empty.write_bytes(b"")
  # Whole, with the right crc32c behind it, and another chunk's.
  swapped.write_bytes(other.read_bytes())
  for requested in (True, False):
    store = opened(kind, url, cache)
    gs_bucket.clear()
    assert (
      store.read_tokens(*store_kinds.EVERYTHING).tolist() == TOKENS.tolist()
    )
    # Levanter's objects have indexes, which are requested too.
    assert requested <= len(gs_bucket.reads(kind.tokens)) <= 8 * requested


def test_it_holds_no_more_than_its_bound(kind, url, tmp_path):
  cache = tmp_path / "cache"
  most = 20 * (kind.width * CHUNK + 4)
  for _ in range(2):
    store = opened(kind, url, cache, most)
    for chunk in np.random.default_rng(0).permutation(59):
      store.read_tokens(np.asarray([chunk * CHUNK]), np.asarray([CHUNK]))
      assert size(cache) <= most
  assert len(kept(cache)) > 8


def test_what_was_used_longest_ago_goes_first(tmp_path):
  cache = disk_cache.DiskCache(tmp_path, 100)
  for i in range(8):
    cache.put("store", f"tokens.{i}", bytes([i]) * 10)
  assert cache.get("store", "tokens.0") == bytes(10)
  for i in range(8, 12):
    cache.put("store", f"tokens.{i}", bytes([i]) * 10)
  assert cache.get("store", "tokens.0") == bytes(10)
  assert cache.get("store", "tokens.1") is None
  assert size(tmp_path) <= 100


def fill(directory, seed):
  cache = disk_cache.DiskCache(directory, 20_000)
  rng = np.random.default_rng(seed)
  for _ in range(400):
    number = int(rng.integers(60))
    cache.put("store", f"tokens.{number}", bytes([number]) * 1_000)
    found = cache.get("store", f"tokens.{rng.integers(60)}")
    assert found is None or (len(found) == 1_000 and len(set(found)) == 1)
    assert size(directory) <= 20_000


@pytest.mark.slow
def test_processes_share_it(tmp_path):
  context = multiprocessing.get_context("spawn")
  processes = [
    context.Process(target=fill, args=(str(tmp_path), seed))
    for seed in range(3)
  ]
  for process in processes:
    process.start()
  for process in processes:
    process.join()
  assert [process.exitcode for process in processes] == [0, 0, 0]
  assert not list(tmp_path.glob("*/.new-*"))


def test_what_a_killed_process_left_is_removed(tmp_path):
  (tmp_path / "store").mkdir()
  (tmp_path / "store" / ".new-abc").write_bytes(bytes(50))
  cache = disk_cache.DiskCache(tmp_path, 100)
  for i in range(9):
    cache.put("store", f"tokens.{i}", bytes(10))
  assert size(tmp_path) <= 100
  assert not list(tmp_path.glob("*/.new-*"))


def test_a_disk_that_is_full_costs_the_cache_only(
  our_url, tmp_path, monkeypatch
):
  def refuse(path, data):
    raise OSError(28, "No space left on device")

  monkeypatch.setattr(pathlib.Path, "write_bytes", refuse)
  found = opened(OURS, our_url, tmp_path / "cache").read_tokens(
    *store_kinds.EVERYTHING
  )
  assert found.tolist() == TOKENS.tolist()


def test_a_directory_that_cannot_be_written_is_refused(our_url, tmp_path):
  (tmp_path / "file").write_text("")
  with pytest.raises(errors.StoreError, match="`cache_dir` must be a dir"):
    opened(OURS, our_url, tmp_path / "file" / "cache")


def test_a_local_store_needs_none(local_stores, tmp_path):
  with pytest.raises(errors.StoreError, match="must be None for a store on a"):
    stores.open_store(local_stores / "zstd").set_cache(
      directory=str(tmp_path), most_bytes=2**20
    )


def test_a_run_names_it_and_is_the_same_run(gs_bucket, our_url, tmp_path):
  source = {"store": our_url, "rows": {"kind": "sequential"}}
  data = {"seq_len": 16, "global_batch_size": 4, "sources": {"text": source}}
  plain = pipeline.build(data)
  source |= {"cache_dir": str(tmp_path / "cache"), "cache_dir_bytes": 2**20}
  cached = pipeline.build(data)
  assert cached.fingerprint == plain.fingerprint
  wanted = [plain.canonical(step)["tokens"] for step in range(9)]
  for _ in range(2):
    batches = pipeline.batch_source(pipeline.build(data))
    gs_bucket.clear()
    for step, tokens in enumerate(wanted):
      np.testing.assert_array_equal(batches[step]["tokens"], tokens)
    # Chunks of later steps may still be on their way to the disk.
    before = None
    while before != (before := kept(tmp_path / "cache")):
      time.sleep(0.5)
  assert not gs_bucket.reads("/tokens/c/")
  assert kept(tmp_path / "cache")


def test_a_directory_needs_a_bound(our_url, tmp_path):
  store = stores.open_store(our_url)
  with pytest.raises(ValueError, match="`most_bytes` must be set where"):
    store.set_cache(directory=str(tmp_path))
  with pytest.raises(ValueError, match="got 5 and None"):
    store.set_cache(most_bytes=5)
