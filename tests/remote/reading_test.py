# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Stores in buckets: opened by one small object, read as they are locally."""

import collections
import os
import pathlib
import pickle
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from chomp_data import errors
from chomp_data import stores
from chomp_data.storage import opening
from chomp_data.storage import requests
from chomp_data.stores import verify
from chomp_data.testing import stores as testing_stores
from tests.golden import archive

CHUNK = 64
NUM_TOKENS = 100 * CHUNK - 7
TOKENS = np.random.default_rng(0).integers(0, 256, NUM_TOKENS)
DOCUMENTS = np.split(TOKENS, [10, 10, 500, 4_000])


@pytest.fixture(scope="module")
def local(tmp_path_factory):
  """The same tokens as they are and compressed, in directories."""
  parent = tmp_path_factory.mktemp("stores")
  for compression in ("none", "zstd"):
    testing_stores.make_store(
      parent / compression,
      DOCUMENTS,
      compression=compression,
      chunk=CHUNK,
      chunks_per_shard=16,
    )
  return parent


def upload(local: pathlib.Path, url: str) -> str:
  place = opening.open_storage(url)
  for file in sorted(local.rglob("*")):
    if file.is_file():
      place.put(file.relative_to(local).as_posix(), file.read_bytes())
  return url


@pytest.fixture(params=["none", "zstd"])
def url(request, bucket, local):
  """A store's URL; nothing was asked of it yet."""
  found = upload(local / request.param, f"{bucket.root}/{request.param}")
  bucket.clear()
  return found


@pytest.fixture
def quick(monkeypatch):
  monkeypatch.setattr(requests, "RETRY_DELAYS_S", (0.01, 0.01, 0.01))


def test_opening_reads_one_small_object(bucket, url):
  store = stores.open_store(url)
  assert store.num_documents == len(DOCUMENTS)
  assert store.num_tokens == NUM_TOKENS
  assert [own.name.rpartition("/")[2] for own in bucket.requests] == [
    "manifest.json"
  ]


def test_it_is_the_store_that_it_is_locally(url, local):
  store = stores.open_store(url)
  other = stores.open_store(local / url.rpartition("/")[2])
  assert store.hash == other.hash
  assert store.document_ids([3, 0]) == other.document_ids([3, 0])
  assert list(map(list, (own for _, own in store.iter_lengths()))) == list(
    map(list, (own for _, own in other.iter_lengths()))
  )
  for document, tokens in enumerate(DOCUMENTS):
    assert stores.read_document(store, document).tolist() == tokens.tolist()
  assert stores.read_document(
    pickle.loads(pickle.dumps(store)), 3
  ).tolist() == (DOCUMENTS[3].tolist())


def test_random_spans_are_those_of_the_tokens(url):
  rng = np.random.default_rng(1)
  store = stores.open_store(url, cache_bytes=5 * 2 * CHUNK)
  for i in range(8):
    starts = rng.integers(0, NUM_TOKENS - 3 * CHUNK, 30)
    lengths = rng.integers(0, 3 * CHUNK, 30)
    if i % 3 == 0:
      store.prefetch(starts, lengths)
    wanted = [TOKENS[s : s + n] for s, n in zip(starts, lengths, strict=True)]
    found = store.read_tokens(starts, lengths)
    assert found.tolist() == np.concatenate(wanted).tolist()


def test_neighbours_are_one_request(bucket, url):
  store = stores.open_store(url)
  bucket.clear()
  store.read_tokens(np.asarray([0]), np.asarray([NUM_TOKENS]))
  shards = -(-100 // 16)
  assert len(bucket.reads("/tokens/c/")) == shards
  assert store.counters.requests == shards
  assert store.counters.chunks_fetched == 100
  assert store.counters.bytes_transferred > 0


def test_what_was_prefetched_is_not_asked_for_again(bucket, url):
  store = stores.open_store(url)
  starts = np.asarray([3, 40, 70]) * CHUNK
  lengths = np.full(3, CHUNK)
  assert store.prefetch(starts, lengths)
  store.read_tokens(starts, lengths)
  count = len(bucket.reads("/tokens/c/"))
  assert count == 3
  store.read_tokens(starts, lengths)
  assert len(bucket.reads("/tokens/c/")) == count


def test_a_prefetch_waits_for_room_and_is_asked_for_in_turn(bucket, url):
  store = stores.open_store(url, cache_bytes=4 * 2 * CHUNK)
  groups = [np.arange(i, i + 3) * 2 * CHUNK for i in (0, 10, 20, 30)]
  lengths = np.full(3, CHUNK)
  room = [store.prefetch(starts, lengths) for starts in groups]
  assert room == [True, False, False, False]
  for starts in groups:
    store.read_tokens(starts, lengths)
    assert len(store.opened.tokens.cache.held) <= 4
  assert store.counters.chunks_fetched == 12
  assert len(bucket.reads("/tokens/c/")) == 12


@pytest.mark.parametrize("status", [404, 403])
def test_a_chunk_that_cannot_be_read_is_an_error_with_its_url(
  bucket, url, status
):
  store = stores.open_store(url)
  bucket.fault = lambda request: (
    status if "tokens/c/2" in request.name else None
  )
  store.read_tokens(np.asarray([0]), np.asarray([CHUNK]))
  with pytest.raises(errors.StoreError, match=f"{url}/tokens/c/2"):
    store.read_tokens(np.asarray([40 * CHUNK]), np.asarray([CHUNK]))


def test_a_server_that_comes_back_costs_tries_only(bucket, url, quick):
  store = stores.open_store(url)
  asked = collections.Counter()

  def twice(request):
    asked[request.name] += 1
    return 503 if asked[request.name] < 3 else None

  bucket.fault = twice
  found = store.read_tokens(np.asarray([0]), np.asarray([NUM_TOKENS]))
  assert found.tolist() == TOKENS.tolist()
  assert store.counters.retries > 0


def test_a_server_that_stays_away_is_an_error_with_the_url(bucket, url, quick):
  store = stores.open_store(url)
  bucket.fault = lambda request: 503
  with pytest.raises(errors.StoreError, match=f"{url}/"):
    store.read_tokens(np.asarray([0]), np.asarray([CHUNK]))


def test_an_altered_chunk_is_refused(bucket, url):
  shard = opening.open_storage(url).get("tokens/c/1")
  flipped = bytes([shard[40] ^ 1])
  opening.open_storage(url).put("tokens/c/1", shard[:40] + flipped + shard[41:])
  store = stores.open_store(url)
  with pytest.raises(errors.StoreError, match=f"{url}/tokens/c/1: chunk 16"):
    store.read_tokens(np.asarray([16 * CHUNK]), np.asarray([CHUNK]))


def test_another_manifest_in_between_is_refused(url, tmp_path):
  store = stores.open_store(url)
  pickled = pickle.dumps(store)
  testing_stores.make_store(tmp_path / "other", DOCUMENTS[:2], chunk=CHUNK)
  upload(tmp_path / "other", url)
  with pytest.raises(errors.StoreError, match="must be the store of hash"):
    _ = pickle.loads(pickled).num_tokens


def test_a_url_without_a_store_says_so(bucket):
  with pytest.raises(errors.StoreError, match=r"must hold manifest\.json"):
    stores.open_store(f"{bucket.root}/nothing")


def test_a_store_of_schema_1_is_read(bucket, tmp_path):
  archive.unpack(tmp_path)
  found = sorted(own.parent for own in tmp_path.rglob("manifest.json"))[:3]
  for path in found:
    url = upload(path, f"{bucket.root}/{path.name}")
    store = stores.open_store(url)
    assert store.hash == stores.open_store(path).hash
    everything = np.asarray([0]), np.asarray([store.num_tokens])
    assert (
      store.read_tokens(*everything).tolist()
      == stores.open_store(path).read_tokens(*everything).tolist()
    )
  assert found


def test_verifying_reads_every_byte(bucket, url):
  manifest = verify.verify_store(url)
  assert manifest.num_tokens == NUM_TOKENS
  shard = opening.open_storage(url).get("id_bytes/c/0")
  opening.open_storage(url).put(
    "id_bytes/c/0", shard[:-30] + b"!" + shard[-29:]
  )
  with pytest.raises(errors.StoreError, match=f"{url}/id_bytes"):
    verify.verify_store(url)


def test_a_process_ends_at_once_while_its_server_fails(s3_bucket, tmp_path):
  testing_stores.make_store(
    tmp_path / "store", DOCUMENTS, chunk=CHUNK, chunks_per_shard=1
  )
  url = upload(tmp_path / "store", f"{s3_bucket.root}/store")
  code = (
    "import sys, time\n"
    "import numpy as np\n"
    "from chomp_data import stores\n"
    "store = stores.open_store(sys.argv[1])\n"
    "store.prefetch(np.arange(90) * 64, np.full(90, 64))\n"
    "time.sleep(1.0)\n"
    "print('end', flush=True)\n"
  )
  s3_bucket.fault = lambda request: 503 if "tokens/c" in request.name else None
  process = subprocess.Popen(
    [sys.executable, "-c", code, url],
    stdout=subprocess.PIPE,
    env={**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[2])},
  )
  assert process.stdout.readline() == b"end\n"
  began = time.monotonic()
  process.communicate()
  assert process.returncode == 0
  assert time.monotonic() - began < 10.0


@pytest.mark.slow
def test_threads_that_read_at_once_read_right_while_the_room_changes(
  s3_bucket, local
):
  url = upload(local / "zstd", f"{s3_bucket.root}/store")
  store = stores.open_store(url, cache_bytes=3 * 2 * CHUNK)
  failures = []

  def read(seed):
    rng = np.random.default_rng(seed)
    for i in range(25):
      starts = rng.integers(0, NUM_TOKENS - 3 * CHUNK, 20)
      lengths = rng.integers(0, 3 * CHUNK, 20)
      if i % 3 == seed:
        store.prefetch(starts, lengths)
      if i % 5 == 4:
        store.set_cache(int(rng.integers(1, 9)) * 2 * CHUNK)
      wanted = [TOKENS[s : s + n] for s, n in zip(starts, lengths, strict=True)]
      found = store.read_tokens(starts, lengths)
      if found.tolist() != np.concatenate(wanted).tolist():
        failures.append((seed, i))

  threads = [threading.Thread(target=read, args=(i,)) for i in range(3)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join(60.0)
  assert not any(thread.is_alive() for thread in threads)
  assert not failures
