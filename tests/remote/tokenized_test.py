# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Corpora of other tools in buckets: read in place, as they are locally."""

import collections
import pathlib
import pickle
import shutil

import numpy as np
import pytest

from chomp_data import errors
from chomp_data import iterators
from chomp_data import pipeline
from chomp_data import stores
from chomp_data.storage import opening
from chomp_data.storage import requests
from chomp_data.stores import adopting
from chomp_data.stores import checksum_sidecar
from chomp_data.stores import span_reads
from chomp_data.stores.tokenized import megatron_store
from tests.stores import megatron_test

VOCAB = 50_000
SEQ_LEN = 16
PAGE = 8 * SEQ_LEN
NUM_PAGES = 60
BATCH = 8
OPTIONS = {"vocab_size": VOCAB, "eos_id": 0, "adds_eos": True}


def write_megatron(path, documents, dtype="<u2"):
  """Writes a corpus as megatron-core does; pinned in stores/megatron_test."""
  code = {"<u2": 8, "<i4": 4}[dtype]
  lengths = np.asarray([len(own) for own in documents], "<i4")
  ends = np.cumsum(lengths.astype("<i8"))
  num = len(documents)
  np.concatenate(documents).astype(dtype).tofile(f"{path}.bin")
  pathlib.Path(f"{path}.idx").write_bytes(
    b"MMIDIDX\0\0"
    + (1).to_bytes(8, "little")
    + bytes([code])
    + num.to_bytes(8, "little")
    + (num + 1).to_bytes(8, "little")
    + lengths.tobytes()
    + ((ends - lengths) * np.dtype(dtype).itemsize).astype("<i8").tobytes()
    + np.arange(num + 1, dtype="<i8").tobytes()
  )


@pytest.fixture(scope="module")
def local(tmp_path_factory):
  parent = tmp_path_factory.mktemp("megatron")
  rng = np.random.default_rng(0)
  tokens = rng.integers(1, VOCAB, NUM_PAGES * PAGE - 5)
  cuts = np.sort(rng.choice(len(tokens), 40, replace=False))
  write_megatron(parent / "web", np.split(tokens, cuts))
  assert megatron_test.opened(parent / "web", VOCAB).num_documents == 41
  return parent / "web"


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  monkeypatch.setattr(span_reads, "DEFAULT_CHUNK_TOKENS", PAGE)


def upload(local, root):
  place = opening.open_storage(root)
  for suffix in (".bin", ".idx"):
    file = pathlib.Path(f"{local}{suffix}")
    place.put(file.name, file.read_bytes())
  return f"{root}/{local.name}"


@pytest.fixture
def url(bucket, local):
  found = upload(local, bucket.root)
  bucket.clear()
  return found


def opened(path, **options):
  return stores.open_store(
    path,
    cache_bytes=options.pop("cache_bytes", 2**20),
    megatron=megatron_store.MegatronOptions(**{**OPTIONS, **options}),
  )


def config(path, rows=None, **shuffle):
  return {
    "seq_len": SEQ_LEN,
    "global_batch_size": BATCH,
    "seed": 1,
    "epochs": 1,
    "sources": {
      "web": {
        "store": str(path),
        "megatron": {**OPTIONS, "pad_id": 0},
        "rows": rows or {"kind": "sequential"},
        "shuffle": {"kind": "block", "window_blocks": 4, **shuffle},
      }
    },
  }


def test_it_is_the_corpus_that_it_is_locally(url, local):
  store, other = opened(url), opened(local)
  assert store.hash == other.hash
  assert store.num_tokens == other.num_tokens
  assert store.opened.token_dtype == other.opened.token_dtype
  assert store.opened.chunk_tokens == other.opened.chunk_tokens
  assert store.document_ids([3, 0]) == other.document_ids([3, 0])
  again = pickle.loads(pickle.dumps(store))
  for document in (0, 17, 40):
    tokens = stores.read_document(other, document).tolist()
    assert stores.read_document(store, document).tolist() == tokens
    assert stores.read_document(again, document).tolist() == tokens
  assert opened(f"{url}.idx").hash == opened(f"{url}.bin").hash == other.hash


@pytest.mark.parametrize(
  "name", ["uint16_sentence", "int32_modes", "legacy_document"]
)
def test_what_megatron_wrote_is_what_is_read(s3_bucket, name):
  url = upload(megatron_test.FIXTURES / name, s3_bucket.root)
  vocab_size = 50_000 if name.startswith("uint16") else 100_000
  store = opened(url, vocab_size=vocab_size)
  assert megatron_test.held(store) == [
    own.tolist() for own in megatron_test.documents(vocab_size)
  ]


def test_random_spans_are_those_of_the_file(url, local):
  tokens = np.fromfile(f"{local}.bin", np.uint16)
  rng = np.random.default_rng(1)
  store = opened(url, cache_bytes=5 * 2 * PAGE)
  for i in range(12):
    starts = rng.integers(0, len(tokens) - 3 * PAGE, 20)
    lengths = rng.integers(0, 3 * PAGE, 20)
    if i % 3 == 0:
      store.prefetch(starts, lengths)
    wanted = [tokens[s : s + n] for s, n in zip(starts, lengths, strict=True)]
    found = store.read_tokens(starts, lengths)
    assert found.tolist() == np.concatenate(wanted).tolist()


def test_it_opens_by_few_requests_once_it_was_indexed(bucket, url):
  opened(url)
  bucket.clear()
  opened(url)
  names = collections.Counter(
    own.name.rpartition("/")[2] for own in bucket.requests
  )
  assert names["web.bin"] == 1
  assert names["web.idx"] == 2
  # What was adopted would be beside it.
  assert len(bucket.requests) <= 4


def test_another_machine_takes_the_index_from_beside_it(
  bucket, url, tmp_path, monkeypatch
):
  wanted = opened(url).hash
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
  bucket.clear()
  assert opened(url).hash == wanted
  assert len(bucket.reads("web.bin")) <= 1  # Its version.
  assert bucket.reads("web.index/")


def test_what_was_adopted_is_checked_when_it_is_first_opened(
  s3_bucket, local, tmp_path
):
  for suffix in (".bin", ".idx"):
    shutil.copy(f"{local}{suffix}", tmp_path)
  path = tmp_path / "web"
  found = adopting.files_at(path)
  kept = checksum_sidecar.adopt(found.home, found.root, found.names)
  url = upload(path, s3_bucket.root)
  for file in kept.directory.iterdir():
    opening.open_storage(f"{url}.adopted").put(file.name, file.read_bytes())
  assert opened(url).hash == opened(local).hash
  data = bytearray(path.with_suffix(".bin").read_bytes())
  data[999] ^= 1
  opening.open_storage(s3_bucket.root).put("web.bin", bytes(data))
  with pytest.raises(
    errors.StoreError, match=r"web\.bin must be as it was ado"
  ):
    opened(url)
  opening.open_storage(s3_bucket.root).put("web.bin", bytes(data[:-2]))
  with pytest.raises(
    errors.StoreError, match="is of 15348 bytes and not 15350"
  ):
    opened(url)


def test_neighbouring_pages_are_one_request(bucket, url):
  store = opened(url)
  bucket.clear()
  store.read_tokens(np.asarray([0]), np.asarray([store.num_tokens]))
  assert len(bucket.reads("web.bin")) == 1
  assert store.counters.requests == 1
  assert store.counters.chunks_fetched == NUM_PAGES


@pytest.mark.parametrize(
  "rows",
  [
    {"kind": "bin", "packing_buffer_docs": 5},
    pytest.param({"kind": "sequential"}, marks=pytest.mark.slow),
  ],
)
def test_batches_are_those_of_the_files_resumed_as_well(url, local, rows):
  found = pipeline.build(config(url, rows))
  expected = pipeline.build(config(local, rows))
  assert found.fingerprint == expected.fingerprint
  source = pipeline.batch_source(found)
  for step in range(expected.num_steps):
    wanted = expected.canonical(step)
    for name, value in source[step].items():
      np.testing.assert_array_equal(value, wanted[name])
  step = expected.num_steps // 2
  with iterators.make_iterator(config(url, rows)) as batches:
    for _ in range(step):
      next(batches)
    state = batches.get_state()
  with iterators.make_iterator(config(url, rows)) as batches:
    batches.set_state(state)
    for name, value in next(batches).items():
      wanted = expected.canonical(step)[name]
      np.testing.assert_array_equal(np.asarray(value), wanted)


@pytest.mark.parametrize("first_step", [0, 7])
def test_an_epoch_fetches_its_pages_once(s3_bucket, local, first_step):
  url = upload(local, s3_bucket.root)
  pipe = pipeline.build(config(url))
  source = pipeline.batch_source(pipe)
  s3_bucket.clear()
  for step in range(first_step, pipe.num_steps):
    source[step]
  reads = source.reads.by_source()["web"]
  assert len(s3_bucket.reads("web.bin")) <= reads.requests
  needed = NUM_PAGES * (pipe.num_steps - first_step) / pipe.num_steps
  assert (
    needed - 4 <= reads.chunks_fetched <= 1.05 * needed + 4 * (first_step > 0)
  )


def test_a_page_that_was_kept_on_disk_is_not_asked_for_again(
  s3_bucket, local, tmp_path
):
  url = upload(local, s3_bucket.root)
  wanted = np.fromfile(f"{local}.bin", np.uint16).tolist()
  everything = np.asarray([0]), np.asarray([len(wanted)])
  for asked in (1, 0):
    store = opened(url)
    store.set_cache(directory=str(tmp_path / "pages"), most_bytes=2**20)
    _ = store.num_tokens
    s3_bucket.clear()
    assert store.read_tokens(*everything).tolist() == wanted
    assert len([r for r in s3_bucket.reads("web.bin") if r.begin]) <= asked
    assert (store.counters.requests > 0) == bool(asked)
  damaged = sorted((tmp_path / "pages").glob("*/web.bin.*"))[7]
  damaged.write_bytes(damaged.read_bytes()[:-1] + b"!")
  assert store.read_tokens(*everything).tolist() == wanted


def test_a_server_that_comes_back_costs_tries_only(
  bucket, url, local, monkeypatch
):
  monkeypatch.setattr(requests, "RETRY_DELAYS_S", (0.01, 0.01, 0.01))
  store = opened(url)
  asked = collections.Counter()

  def twice(request):
    asked[request.name] += 1
    return 503 if asked[request.name] < 3 else None

  bucket.fault = twice
  found = store.read_tokens(np.asarray([0]), np.asarray([store.num_tokens]))
  assert found.tolist() == np.fromfile(f"{local}.bin", np.uint16).tolist()
  assert store.counters.retries == 2
  bucket.fault = lambda request: 503
  with pytest.raises(errors.StoreError, match=r"web\.bin must be readable"):
    opened(url).read_tokens(np.asarray([0]), np.asarray([9]))


@pytest.mark.parametrize("status", [403, 404])
def test_what_cannot_be_read_is_an_error_with_its_url(bucket, url, status):
  store = opened(url)
  bucket.fault = lambda request: status if "web.bin" in request.name else None
  with pytest.raises(errors.StoreError, match=rf"{url}\.bin"):
    store.read_tokens(np.asarray([0]), np.asarray([9]))
  with pytest.raises(errors.StoreError, match=rf"{url}\.bin must be"):
    opened(url)


def test_an_object_that_is_replaced_in_between_is_refused(bucket, url, local):
  store = opened(url, cache_bytes=4 * 2 * PAGE)
  pickled = pickle.dumps(store)
  store.read_tokens(np.asarray([0]), np.asarray([9]))
  tokens = np.fromfile(f"{local}.bin", np.uint16)
  tokens[30 * PAGE] += 1
  opening.open_storage(bucket.root).put("web.bin", tokens.tobytes())
  with pytest.raises(
    errors.StoreError, match=r"web\.bin must be the object of"
  ):
    store.read_tokens(np.asarray([50 * PAGE]), np.asarray([9]))
  with pytest.raises(errors.StoreError, match="that this run began with"):
    _ = pickle.loads(pickled).num_tokens
  assert opened(url).hash != store.hash


def test_objects_that_are_wrong_are_named(s3_bucket, local, tmp_path):
  url = upload(local, s3_bucket.root)
  place = opening.open_storage(s3_bucket.root)
  with pytest.raises(errors.StoreError, match=r"ids must be in 0 \.\. 999"):
    opened(url, vocab_size=1_000)
  place.put("web.bin", pathlib.Path(f"{local}.bin").read_bytes()[:-2])
  with pytest.raises(errors.StoreError, match=r"web\.bin must be of 7675 uint"):
    opened(url)
  place.put("web.idx", b"something else that is no index")
  with pytest.raises(errors.StoreError, match=r"web\.idx must begin with MMID"):
    opened(url)
  place.delete(["web.idx"])
  with pytest.raises(errors.StoreError, match=r"web\.idx must be an object of"):
    opened(url)
  with pytest.raises(errors.StoreError, match="section"):
    stores.open_store(url)


def test_several_are_one_source(s3_bucket, local, tmp_path):
  one = upload(local, s3_bucket.root)
  shutil.copy(f"{local}.bin", tmp_path / "other.bin")
  shutil.copy(f"{local}.idx", tmp_path / "other.idx")
  data = config("")
  data["sources"]["web"]["store"] = (one, str(tmp_path / "other"))
  expected = config("")
  expected["sources"]["web"]["store"] = (str(local), str(tmp_path / "other"))
  found, wanted = pipeline.build(data), pipeline.build(expected)
  assert found.fingerprint == wanted.fingerprint
  for step in (0, 3, found.num_steps - 1):
    for name, value in found.batch(step).items():
      np.testing.assert_array_equal(value, wanted.batch(step)[name])
