# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Stores of each kind in buckets: read as they are locally, by few requests."""

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
from chomp_data.stores import verify
from chomp_data.testing import stores as testing_stores
from tests.golden import archive
from tests.remote import store_kinds

CHUNK = store_kinds.CHUNK
DOCUMENTS = store_kinds.DOCUMENTS
TOKENS = store_kinds.TOKENS
NUM_TOKENS = store_kinds.NUM_TOKENS


@pytest.fixture(autouse=True)
def small_pages():
  with store_kinds.small_pages():
    yield


@pytest.fixture(params=store_kinds.KINDS)
def kind(request):
  return store_kinds.KINDS[request.param]


@pytest.fixture(params=[own.name for own in store_kinds.OURS])
def ours(request):
  return store_kinds.KINDS[request.param]


@pytest.fixture
def url(bucket, kind, local_stores):
  """A store's URL; nothing was asked of it yet."""
  return uploaded(bucket, kind, local_stores)


@pytest.fixture
def our_url(bucket, ours, local_stores):
  return uploaded(bucket, ours, local_stores)


def uploaded(bucket, kind, local_stores):
  url = store_kinds.upload(
    local_stores / kind.name, f"{bucket.root}/{kind.name}"
  )
  bucket.clear()
  return url


def test_opening_reads_one_small_object(bucket, our_url):
  store = stores.open_store(our_url)
  assert store.num_documents == len(DOCUMENTS)
  assert store.num_tokens == NUM_TOKENS
  assert [own.name.rpartition("/")[2] for own in bucket.requests] == [
    "manifest.json"
  ]


def test_it_is_the_store_that_it_is_locally(kind, url, local_stores):
  store, local = kind.open(url), kind.open(local_stores / kind.name)
  assert store.hash == local.hash
  assert store.num_tokens == NUM_TOKENS
  assert store.opened.token_dtype == local.opened.token_dtype
  assert store.opened.chunk_tokens == local.opened.chunk_tokens == CHUNK
  assert store.document_ids([41, 3, 0]) == local.document_ids([41, 3, 0])
  lengths = [len(document) for document in DOCUMENTS]
  assert [n for _, part in store.iter_lengths() for n in part] == lengths
  for again in (store, local, pickle.loads(pickle.dumps(store))):
    for document, tokens in enumerate(DOCUMENTS):
      assert stores.read_document(again, document).tolist() == tokens.tolist()


def test_random_spans_are_those_of_the_tokens(kind, url):
  rng = np.random.default_rng(1)
  store = kind.open(url, 5 * kind.width * CHUNK)
  for i in range(8):
    starts = rng.integers(0, NUM_TOKENS - 3 * CHUNK, 30)
    starts[0] = store_kinds.SIZES[0] - CHUNK  # Into Levanter's next shard.
    lengths = rng.integers(0, 3 * CHUNK, 30)
    if i % 3 == 0:
      store.prefetch(starts, lengths)
    wanted = [TOKENS[s : s + n] for s, n in zip(starts, lengths, strict=True)]
    found = store.read_tokens(starts, lengths)
    assert found.tolist() == np.concatenate(wanted).tolist()


def test_neighbours_are_one_request(bucket, kind, url):
  store = kind.open(url)
  _ = store.num_tokens
  bucket.clear()
  store.read_tokens(*store_kinds.EVERYTHING)
  assert len(bucket.reads(kind.tokens)) == kind.requests
  assert store.counters.requests == kind.requests
  assert store.counters.chunks_fetched == store_kinds.NUM_CHUNKS
  assert store.counters.bytes_transferred > 0


def test_what_was_prefetched_is_not_asked_for_again(bucket, kind, url):
  store = kind.open(url)
  _ = store.num_tokens
  bucket.clear()
  starts = np.asarray([3, 40, 50]) * CHUNK
  lengths = np.full(3, CHUNK)
  assert store.prefetch(starts, lengths)
  store.read_tokens(starts, lengths)
  count = len(bucket.reads(kind.tokens))
  assert count >= 3
  store.read_tokens(starts, lengths)
  assert len(bucket.reads(kind.tokens)) == count
  assert store.counters.chunks_fetched == 3


def test_a_prefetch_waits_for_room_and_is_asked_for_in_turn(kind, url):
  store = kind.open(url, 4 * kind.width * CHUNK)
  groups = [np.arange(i, i + 3) * 2 * CHUNK for i in (0, 9, 17, 24)]
  lengths = np.full(3, CHUNK)
  room = [store.prefetch(starts, lengths) for starts in groups]
  assert room == [True, False, False, False]
  for starts in groups:
    store.read_tokens(starts, lengths)
    assert len(store.opened.tokens.cache.held) <= 4
  assert store.counters.chunks_fetched == 12


@pytest.mark.parametrize("status", [404, 403])
def test_a_chunk_that_cannot_be_read_is_an_error_with_its_url(
  bucket, kind, url, status
):
  store = kind.open(url)
  _ = store.num_tokens
  bucket.fault = lambda request: status if kind.tokens in request.name else None
  with pytest.raises(errors.StoreError, match=f"{bucket.root}/.*{kind.tokens}"):
    store.read_tokens(np.asarray([40 * CHUNK]), np.asarray([CHUNK]))


def test_a_server_that_comes_back_costs_tries_only(bucket, kind, url):
  store = kind.open(url)
  _ = store.num_tokens
  asked = collections.Counter()

  def twice(request):
    asked[request.name] += kind.tokens in request.name
    return 503 if 0 < asked[request.name] < 3 else None

  bucket.fault = twice
  assert store.read_tokens(*store_kinds.EVERYTHING).tolist() == TOKENS.tolist()
  objects = np.count_nonzero([*asked.values()])
  assert store.counters.retries == 2 * objects > 0


def test_a_server_that_stays_away_is_an_error_with_the_url(bucket, kind, url):
  store = kind.open(url)
  _ = store.num_tokens
  bucket.fault = lambda request: 503 if kind.tokens in request.name else None
  with pytest.raises(errors.StoreError, match=f"{bucket.root}/.*{kind.tokens}"):
    store.read_tokens(np.asarray([0]), np.asarray([CHUNK]))


def test_an_altered_chunk_is_refused(bucket, our_url):
  place = opening.open_storage(our_url)
  shard = place.get("tokens/c/1")
  place.put("tokens/c/1", shard[:40] + bytes([shard[40] ^ 1]) + shard[41:])
  store = stores.open_store(our_url)
  with pytest.raises(
    errors.StoreError, match=f"{our_url}/tokens/c/1: chunk 16"
  ):
    store.read_tokens(np.asarray([16 * CHUNK]), np.asarray([CHUNK]))


def test_another_manifest_in_between_is_refused(our_url, tmp_path):
  store = stores.open_store(our_url)
  pickled = pickle.dumps(store)
  testing_stores.make_store(tmp_path / "other", [[1, 2], [3]], chunk=CHUNK)
  store_kinds.upload(tmp_path / "other", our_url)
  with pytest.raises(errors.StoreError, match="must be the store of hash"):
    _ = pickle.loads(pickled).num_tokens


def test_a_url_without_a_store_says_so(bucket):
  with pytest.raises(errors.StoreError, match=r"must hold manifest\.json"):
    stores.open_store(f"{bucket.root}/nothing")


def test_a_store_of_schema_1_is_read(bucket, tmp_path):
  archive.unpack(tmp_path)
  found = sorted(own.parent for own in tmp_path.rglob("manifest.json"))[:3]
  for path in found:
    url = store_kinds.upload(path, f"{bucket.root}/{path.name}")
    store = stores.open_store(url)
    assert store.hash == stores.open_store(path).hash
    everything = np.asarray([0]), np.asarray([store.num_tokens])
    assert (
      store.read_tokens(*everything).tolist()
      == stores.open_store(path).read_tokens(*everything).tolist()
    )
  assert found


def test_verifying_reads_every_byte(our_url):
  manifest = verify.verify_store(our_url)
  assert manifest.num_tokens == NUM_TOKENS
  shard = opening.open_storage(our_url).get("id_bytes/c/0")
  opening.open_storage(our_url).put(
    "id_bytes/c/0", shard[:-30] + b"!" + shard[-29:]
  )
  with pytest.raises(errors.StoreError, match=f"{our_url}/id_bytes"):
    verify.verify_store(our_url)


def test_a_process_ends_at_once_while_its_server_fails(s3_bucket, tmp_path):
  testing_stores.make_store(
    tmp_path / "store",
    DOCUMENTS,
    vocab_size=store_kinds.VOCAB,
    chunk=CHUNK,
    chunks_per_shard=1,
  )
  url = store_kinds.upload(tmp_path / "store", f"{s3_bucket.root}/store")
  code = (
    "import sys\n"
    "import numpy as np\n"
    "from chomp_data import stores\n"
    "store = stores.open_store(sys.argv[1])\n"
    "store.prefetch(np.arange(50) * 128, np.full(50, 128))\n"
    "sys.stdin.readline()\n"
    "print('end', flush=True)\n"
  )
  s3_bucket.fault = lambda request: 503 if "tokens/c" in request.name else None
  process = subprocess.Popen(
    [sys.executable, "-c", code, url],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    env={**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[2])},
  )
  until = time.monotonic() + 30.0
  names = set()
  while len(s3_bucket.reads("tokens/c")) == len(names):  # None tried again.
    names = {request.name for request in s3_bucket.reads("tokens/c")}
    assert time.monotonic() < until
    time.sleep(0.01)
  process.stdin.write(b"\n")
  process.stdin.flush()
  assert process.stdout.readline() == b"end\n"
  began = time.monotonic()
  process.communicate()
  assert process.returncode == 0
  assert time.monotonic() - began < 10.0


@pytest.mark.slow
def test_threads_that_read_at_once_read_right_while_the_room_changes(
  s3_bucket, local_stores
):
  url = store_kinds.upload(local_stores / "zstd", f"{s3_bucket.root}/store")
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
