# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Corpora of other tools in buckets: read in place, by the objects indexed."""

import pickle
import shutil

import numpy as np
import pytest

from chomp_data import errors
from chomp_data import pipeline
from chomp_data import stores
from chomp_data.storage import opening
from chomp_data.stores import adopting
from chomp_data.stores import checksum_sidecar
from tests.remote import store_kinds
from tests.stores import levanter_test
from tests.stores import megatron_test

CHUNK = store_kinds.CHUNK

opened = store_kinds.MEGATRON.open


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  with store_kinds.small_pages():
    yield


@pytest.fixture(params=[own.name for own in store_kinds.FOREIGN])
def kind(request):
  return store_kinds.KINDS[request.param]


@pytest.fixture
def url(bucket, kind, local_stores):
  found = store_kinds.upload(
    local_stores / kind.name, f"{bucket.root}/{kind.name}"
  )
  bucket.clear()
  return found


@pytest.fixture
def megatron(bucket, local_stores):
  found = store_kinds.upload(
    local_stores / "megatron", f"{bucket.root}/megatron"
  )
  bucket.clear()
  return found


@pytest.mark.parametrize(
  ("tool", "name", "vocab_size"),
  [
    (megatron_test, "uint16_sentence", 50_000),
    (megatron_test, "int32_modes", 100_000),
    (megatron_test, "legacy_document", 100_000),
    (levanter_test, "cache", levanter_test.VOCAB),
    (levanter_test, "sharded", levanter_test.VOCAB),
  ],
)
def test_what_its_tool_wrote_is_what_is_read(bucket, tool, name, vocab_size):
  url = store_kinds.upload(tool.FIXTURES / name, f"{bucket.root}/{name}")
  store = tool.opened(url, vocab_size)
  assert tool.held(store) == [
    document.tolist() for document in tool.documents(vocab_size)
  ]


@pytest.mark.parametrize("index", ["end", "none"])
def test_no_object_of_a_cache_is_asked_for_its_size(bucket, tmp_path, index):
  tokens = levanter_test.write_cache(tmp_path / "train", index)
  url = store_kinds.upload(tmp_path / "train", f"{bucket.root}/train")
  bucket.clear()
  store = levanter_test.opened(url)
  assert store.read_tokens([0], [500]).tolist() == tokens.tolist()
  assert not [
    request
    for request in bucket.requests
    if request.method == "HEAD" and "train/" in request.name
  ]


@pytest.mark.parametrize(
  ("rows", "first_step"),
  [
    ({"kind": "sequential"}, 0),
    ({"kind": "sequential"}, 7),
    pytest.param(
      {"kind": "bin", "packing_buffer_docs": 5}, 7, marks=pytest.mark.slow
    ),
  ],
)
def test_batches_are_those_of_the_files_and_chunks_are_fetched_once(
  bucket, kind, url, local_stores, rows, first_step
):
  pipe = pipeline.build(kind.config(url, rows))
  expected = pipeline.build(kind.config(local_stores / kind.name, rows))
  assert pipe.fingerprint == expected.fingerprint
  source = pipeline.batch_source(pipe)
  bucket.clear()
  for step in range(first_step, pipe.num_steps):
    wanted = expected.canonical(step)
    for name, value in source[step].items():
      np.testing.assert_array_equal(value, wanted[name])
  reads = source.reads.by_source()["web"]
  assert 0 < len(bucket.reads(kind.tokens)) <= reads.requests
  if rows["kind"] == "sequential":
    needed = store_kinds.NUM_CHUNKS * (1 - first_step / pipe.num_steps)
    # What is left of the window that was resumed in is needed whole.
    most = 1.05 * needed + 4 * (first_step > 0)
    assert needed - 4 <= reads.chunks_fetched <= most


def test_it_opens_by_few_requests_once_it_was_indexed(
  bucket, kind, url, tmp_path, monkeypatch
):
  wanted = kind.open(url).hash
  # Another machine takes the index from beside the corpus.
  for machine, index_reads in (("cache", False), ("other", True)):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / machine))
    bucket.clear()
    assert kind.open(url).hash == wanted
    assert not bucket.reads(kind.tokens)
    assert bool(bucket.reads(".index/")) == index_reads
    # What was adopted would be beside it.
    of_corpus = [own for own in bucket.requests if ".index/" not in own.name]
    assert len(of_corpus) <= {"megatron": 4, "levanter": 4}[kind.name]
    # The listing of a cache says which versions its thousands of chunks have.
    assert not [own for own in of_corpus if "/c/" in own.name]


def test_an_object_that_is_replaced_in_between_is_refused(bucket, kind, url):
  store = kind.open(url, 4 * kind.width * CHUNK)
  pickled = pickle.dumps(store)
  store.read_tokens(np.asarray([0]), np.asarray([9]))
  name = sorted({own.name for own in bucket.reads(kind.tokens)})[-1]
  place = opening.open_storage(f"{bucket.root.rpartition('/')[0]}")
  data = bytearray(place.get(name))
  data[40] ^= 1
  place.put(name, bytes(data))
  with pytest.raises(errors.StoreError, match=f"{name} must be the object of"):
    store.read_tokens(*store_kinds.EVERYTHING)
  with pytest.raises(errors.StoreError, match="that this run began with"):
    _ = pickle.loads(pickled).num_tokens


def test_objects_of_megatron_that_are_wrong_are_named(
  bucket, megatron, local_stores
):
  assert opened(f"{megatron}.idx").hash == opened(f"{megatron}.bin").hash
  place = opening.open_storage(bucket.root)
  with pytest.raises(errors.StoreError, match=r"ids must be in 0 \.\. 999"):
    opened(megatron, vocab_size=1_000)
  tokens = (local_stores / "megatron.bin").read_bytes()
  place.put("megatron.bin", tokens[:-2])
  with pytest.raises(
    errors.StoreError, match=r"megatron\.bin must be of 7597 uint"
  ):
    opened(megatron)
  place.put("megatron.idx", b"something else that is no index")
  with pytest.raises(
    errors.StoreError, match=r"megatron\.idx must begin with MMID"
  ):
    opened(megatron)
  place.delete(["megatron.idx"])
  with pytest.raises(
    errors.StoreError, match=r"megatron\.idx must be an object of"
  ):
    opened(megatron)
  with pytest.raises(errors.StoreError, match="section"):
    stores.open_store(megatron)


def test_objects_of_levanter_that_are_wrong_are_named(bucket, local_stores):
  open_cache = store_kinds.LEVANTER.open
  url = store_kinds.upload(local_stores / "levanter", f"{bucket.root}/levanter")
  with pytest.raises(errors.StoreError, match=r"must be in 0 \.\. 999, got"):
    open_cache(url, vocab_size=1_000)
  with pytest.raises(errors.StoreError, match="Set `field`"):
    open_cache(url, field="tokens")
  place = opening.open_storage(url)
  place.delete(["part-0/input_ids/data/c/3"])
  with pytest.raises(
    errors.StoreError, match=r"data/zarr\.json must have objec"
  ):
    open_cache(url)
  place.delete(["shard_ledger.json"])
  with pytest.raises(errors.StoreError, match="must be the ledger of a Levant"):
    open_cache(url)


def test_what_was_adopted_is_checked_when_it_is_first_opened(
  bucket, local_stores, tmp_path
):
  for suffix in (".bin", ".idx"):
    shutil.copy(local_stores / f"megatron{suffix}", tmp_path / f"web{suffix}")
  files = adopting.files_at(tmp_path / "web")
  sidecar = checksum_sidecar.adopt(files.home, files.root, files.names)
  url = store_kinds.upload(tmp_path / "web", f"{bucket.root}/web")
  store_kinds.upload(sidecar.directory, f"{url}.adopted")
  assert opened(url).hash == opened(local_stores / "megatron").hash
  data = bytearray((tmp_path / "web.bin").read_bytes())
  data[999] ^= 1
  place = opening.open_storage(bucket.root)
  place.put("web.bin", bytes(data))
  with pytest.raises(
    errors.StoreError, match=r"web\.bin must be as it was ado"
  ):
    opened(url)
  place.put("web.bin", bytes(data[:-2]))
  with pytest.raises(
    errors.StoreError, match="is of 15192 bytes and not 15194"
  ):
    opened(url)


def test_several_are_one_source(megatron, local_stores, tmp_path):
  for suffix in (".bin", ".idx"):
    shutil.copy(local_stores / f"megatron{suffix}", tmp_path / f"web{suffix}")
  both = []
  for first in (megatron, str(local_stores / "megatron")):
    data = store_kinds.MEGATRON.config("")
    data["sources"]["web"]["store"] = (first, str(tmp_path / "web"))
    both.append(pipeline.build(data))
  pipe, expected = both
  assert pipe.fingerprint == expected.fingerprint
  for step in (0, 3, pipe.num_steps - 1):
    for name, value in pipe.batch(step).items():
      np.testing.assert_array_equal(value, expected.batch(step)[name])
