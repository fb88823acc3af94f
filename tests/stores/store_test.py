# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Stores: what was written is what is read, in every shape."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
import tensorstore as ts

from chomp_data import stores
from chomp_data.stores import span_reads
from chomp_data.testing import stores as testing_stores

COMPRESSIONS = ("none", "zstd")


def documents_of(lengths, vocab_size=256, seed=0):
  rng = np.random.default_rng(seed)
  return [rng.integers(0, vocab_size, n) for n in lengths]


@pytest.fixture(params=COMPRESSIONS)
def compression(request):
  return request.param


@pytest.mark.parametrize("vocab_size", [256, 2**16, 2**16 + 1, 2**31])
def test_documents_round_trip(tmp_path, compression, vocab_size):
  documents = documents_of([3, 0, 40, 1, 0, 17, 0], vocab_size)
  ids = ["a", "", "c/d.txt", "été", "e", "e", "日本"]
  store = testing_stores.make_store(
    tmp_path / "store",
    documents,
    ids=ids,
    vocab_size=vocab_size,
    chunk=4,
    chunks_per_shard=3,
    compression=compression,
  )
  assert store.num_documents == 7
  assert store.num_tokens == 61
  for i, document in enumerate(documents):
    got = stores.read_document(store, i)
    assert got.dtype == np.int32
    assert got.tolist() == document.tolist()
    assert store.document_ids([i])[0] == ids[i]
  assert store.document_ids([6, 0, 0]) == ["日本", "a", "a"]
  assert store.opened.ids.find(["e", "", "x"]) == {
    "e": [4, 5],
    "": [1],
    "x": [],
  }
  starts, lengths = store.bounds(np.asarray([5, 2, 2, 1]))
  assert starts.tolist() == [44, 3, 3, 3]
  assert lengths.tolist() == [17, 40, 40, 0]
  assert starts.dtype == lengths.dtype == np.int64
  stores.verify_store(tmp_path / "store")


@pytest.mark.parametrize("batch", [1, 2, 3, 7, 100])
def test_lengths_are_streamed_in_order(tmp_path, batch):
  lengths = [3, 0, 40, 1, 0, 17, 0]
  store = testing_stores.make_store(
    tmp_path / "store", documents_of(lengths), chunk=2, chunks_per_shard=2
  )
  parts = list(store.iter_lengths(batch))
  assert [first for first, _ in parts] == list(range(0, 7, batch))
  assert np.concatenate([part for _, part in parts]).tolist() == lengths


def test_a_store_of_nothing_opens(tmp_path, compression):
  store = testing_stores.make_store(
    tmp_path / "store", [], compression=compression
  )
  assert (store.num_documents, store.num_tokens) == (0, 0)
  assert list(store.iter_lengths()) == []
  assert store.read_tokens(np.zeros(0, int), np.zeros(0, int)).tolist() == []
  assert store.opened.ids.find(["a"]) == {"a": []}
  stores.verify_store(tmp_path / "store")


@pytest.mark.parametrize(
  ("vocab_size", "dtype"),
  [(65_535, "uint16"), (65_536, "uint16"), (65_537, "uint32")],
)
def test_the_token_dtype_follows_the_vocabulary(tmp_path, vocab_size, dtype):
  last = vocab_size - 1
  store = testing_stores.make_store(
    tmp_path / "store", [[0, last]], vocab_size=vocab_size
  )
  assert store.opened.token_dtype == dtype
  assert store.opened.tokenizer.vocab_size == vocab_size
  assert stores.read_document(store, 0).tolist() == [0, last]
  with pytest.raises(stores.StoreError, match=f"got {vocab_size}"):
    testing_stores.make_store(
      tmp_path / "more", [[0, vocab_size]], vocab_size=vocab_size
    )
  assert not (tmp_path / "more").exists()


def test_bounds_of_many_documents_cross_chunks_and_shards(tmp_path):
  lengths = np.random.default_rng(0).integers(0, 9, 500)
  store = testing_stores.make_store(
    tmp_path / "store", documents_of(lengths), chunk=3, chunks_per_shard=4
  )
  ends = np.concatenate([[0], np.cumsum(lengths)])
  wanted = np.random.default_rng(1).integers(0, 500, 300)
  starts, found = store.bounds(wanted)
  assert starts.tolist() == ends[wanted].tolist()
  assert found.tolist() == lengths[wanted].tolist()


@pytest.mark.parametrize("document", [-1, 3, 2**62])
def test_a_document_that_is_not_there_is_named(tmp_path, document):
  store = testing_stores.make_store(tmp_path / "store", documents_of([4, 5, 6]))
  with pytest.raises(IndexError, match=f"0 .. 2 .*got {document}"):
    store.bounds(np.asarray([0, document]))
  with pytest.raises(IndexError, match=f"got {document}"):
    store.document_ids([document])[0]


@pytest.mark.parametrize("count", [1, 200])
def test_a_span_out_of_bounds_is_refused(tmp_path, compression, count):
  store = testing_stores.make_store(
    tmp_path / "store", documents_of([4, 5, 6]), compression=compression
  )
  # Checked chunks take another way through the reader.
  assert len(stores.read_document(store, 2)) == 6
  for wrong in (
    (-1, 2, 0), (14, 2, 0), (15, 1, 0), (2, 300, 0),
    (0, -1, 0), (0, 2, -1), (0, 2, 3_999),
    (2**63 - 1, 2, 0), (0, 2**63 - 1, 0), (3, 0, 4_001), (16, 0, 0),
  ):  # fmt: skip
    spans = np.asarray([[0, 1, 0]] * (count - 1) + [wrong])
    with pytest.raises(IndexError, match="must be within"):
      store.copy_tokens(
        spans[:, 0], spans[:, 1], np.zeros(4_000, np.int32), spans[:, 2]
      )


@pytest.mark.parametrize(
  "out",
  [
    np.zeros(8, np.int64), np.zeros((2, 4), np.int32),
    np.zeros(16, np.int32)[::2],
  ],
)  # fmt: skip
def test_an_output_of_another_shape_is_refused(tmp_path, out):
  store = testing_stores.make_store(tmp_path / "store", documents_of([9]))
  with pytest.raises(TypeError, match="int32"):
    store.copy_tokens(np.zeros(1, int), np.ones(1, int), out, np.zeros(1, int))


def test_spans_are_cut_exactly_beyond_two_to_the_32(tmp_path):
  chunk = 2**18
  for start in (2**31 - 3, 2**32 - 3, 2**40 - 3):
    index, first, length, position = span_reads.split_spans(
      np.asarray([start]), np.asarray([chunk + 5]), np.asarray([7]), chunk
    )
    assert index.tolist() == [start // chunk + i for i in range(3)]
    assert first.tolist() == [chunk - 3, 0, 0]
    assert length.tolist() == [3, chunk, 2]
    assert position.tolist() == [7, 10, 10 + chunk]


@pytest.mark.parametrize(
  "name", ["tokens", "offsets", "id_bytes", "id_offsets"]
)
def test_any_zarr_reader_reads_the_arrays(tmp_path, compression, name):
  documents = documents_of([3, 0, 40, 1, 0, 17])
  store = testing_stores.make_store(
    tmp_path / "store",
    documents,
    chunk=4,
    chunks_per_shard=3,
    compression=compression,
  )
  array = ts.open(
    {
      "driver": "zarr3",
      "kvstore": {"driver": "file", "path": f"{store.path}/{name}/"},
      "fill_missing_data_reads": False,
    }
  ).result()
  expected = {
    "tokens": np.concatenate(documents),
    "offsets": np.cumsum([0, *map(len, documents)]),
    "id_bytes": np.frombuffer(b"012345", np.uint8),
    "id_offsets": np.arange(7),
  }[name]
  assert array.read().result().tolist() == expected.tolist()


def test_the_hash_is_the_content_not_its_form(tmp_path):
  documents = documents_of([3, 0, 40])
  forms = [
    {},
    {"compression": "zstd"},
    {"chunk": 3, "chunks_per_shard": 2},
  ]
  hashes = {
    testing_stores.make_store(tmp_path / str(i), documents, **form).hash
    for i, form in enumerate(forms)
  }
  assert len(hashes) == 1
  column = stores.Column("uint8", per="document")
  changed = [
    {"ids": ["0", "1", "3"]},
    {"pad_id": 2},
    {"vocab_size": 257},
    {"adds_eos": True},
    {"weights": [1.0, 1.0, 1.0]},
    {"weights": [1.0, 1.0, 2.0]},
    {"levels": (0, 1), "label_levels": [[1] * 3, [], [1] * 40]},
    {"levels": (0, 1), "label_levels": [[0] * 3, [], [1] * 40]},
    {"levels": (0, 1, 2), "label_levels": [[0] * 3, [], [1] * 40]},
    {"levels": (0, 1, 3), "label_levels": [[0] * 3, [], [1] * 40]},
    {"columns": {"a": column}, "column_values": {"a": [2, 3, 4]}},
    {"columns": {"a": column}, "column_values": {"a": [2, 3, 5]}},
    {"columns": {"b": column}, "column_values": {"b": [2, 3, 4]}},
  ]
  for i, form in enumerate(changed):
    path = tmp_path / f"changed{i}"
    hashes.add(testing_stores.make_store(path, documents, **form).hash)
  other = [documents[0], documents[2], documents[1]]
  hashes.add(testing_stores.make_store(tmp_path / "other", other).hash)
  assert len(hashes) == len(changed) + 2


def test_a_pickled_store_is_small_and_opens_at_first_use(tmp_path):
  store = testing_stores.make_store(tmp_path / "store", documents_of([4, 5, 6]))
  expected = stores.read_document(store, 1).tolist()
  data = pickle.dumps(store)
  assert len(data) < 400
  script = (
    "import pickle, sys\n"
    "from chomp_data.stores import base\n"
    "store = pickle.loads(sys.stdin.buffer.read())\n"
    "assert 'opened' not in vars(store)\n"
    "print(store.hash, base.read_document(store, 1).tolist())\n"
    "assert 'tensorstore' not in sys.modules and 'jax' not in sys.modules\n"
  )
  done = subprocess.run(
    [sys.executable, "-c", script], input=data, capture_output=True, check=True
  )
  assert done.stdout.decode().split("\n")[0] == f"{store.hash} {expected}"


@pytest.mark.parametrize("path", ["http://host/store", "hdfs://host/store"])
def test_a_url_of_another_scheme_is_refused_clearly(path):
  with pytest.raises(stores.StoreError, match=f"CONTAINER/PATH, got '{path}'"):
    stores.open_store(path)
  with pytest.raises(stores.StoreError, match="object stores"):
    testing_stores.make_store(path, [[1]])
