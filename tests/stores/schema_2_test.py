# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Schema 2 of stores: a small manifest, tables of chunks, labels, weights."""

import hashlib

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data import stores
from chomp_data.stores.zarr import chunk_tables
from chomp_data.stores.zarr import tree_hash
from chomp_data.testing import stores as testing_stores
from tests import laws

INFO = stores.TokenizerInfo("custom", "0" * 64, 10)


def write(path, documents, **changes):
  changes = {
    "tokenizer_info": INFO,
    "chunk": 4,
    "chunks_per_shard": 2,
  } | changes
  return stores.write_store(path, documents, **changes)


def values_of(store, name):
  array = store.arrays.array(name)
  return array.read(0, array.entry.layout.size)


@laws.examples(50)
@hypothesis.given(
  sizes=st.lists(st.integers(0, 25), max_size=6), block=st.integers(1, 12)
)
def test_a_tree_hash_is_of_blocks_and_not_of_parts(sizes, block):
  values = np.arange(sum(sizes), dtype="<i8")
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(tree_hash, "BLOCK", block)
    tree = tree_hash.TreeHash()
    for part in np.split(values, np.cumsum(sizes)):
      tree.update(part.data)
    digests = [
      hashlib.sha256(values[i * block : (i + 1) * block].tobytes()).digest()
      for i in range(tree_hash.num_blocks(len(values)))
    ]
    joined = tree_hash.joined(digests)
  assert tree.hexdigest() == joined
  if len(values) <= block:
    assert joined == hashlib.sha256(values.tobytes()).hexdigest()
  else:
    assert joined == hashlib.sha256(b"".join(digests)).hexdigest()


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_store_of_many_chunks_has_a_small_manifest(tmp_path, compression):
  tokens = np.arange(chunk_tables.CHUNKS + 9_000) % 7
  store = write(
    tmp_path / "store",
    [tokens],
    chunk=1,
    chunks_per_shard=2**12,
    compression=compression,
  )
  assert (tmp_path / "store" / "manifest.json").stat().st_size < 4_000
  tables = tmp_path / "store" / "tables"
  content = {file: file.read_bytes() for file in tables.iterdir()}
  # Opening reads no table, and reading only the section that it needs.
  for file, data in content.items():
    file.write_bytes(bytes(len(data)))
  fresh = stores.open_store(tmp_path / "store")
  assert fresh.hash == store.hash
  for file, data in content.items():
    if file.name != "tokens.0":
      file.write_bytes(data)
  last = len(tokens) - 5
  got = fresh.read_tokens(np.asarray([last]), np.asarray([5]))
  assert got.tolist() == tokens[last:].tolist()
  with pytest.raises(stores.StoreError, match=r"tables/tokens\.0 must have"):
    stores.open_store(tmp_path / "store").read_tokens(
      np.zeros(1, int), np.asarray([3])
    )
  (tables / "tokens.0").write_bytes(content[tables / "tokens.0"])
  first = fresh.read_tokens(np.zeros(1, int), np.asarray([3]))
  assert first.tolist() == [0, 1, 2]


@st.composite
def labelled(draw):
  lengths = draw(st.lists(st.integers(0, 12), max_size=6))
  levels = draw(st.sampled_from([(0.0, 1.0), (0.0, 1.0, 0.25, 3.0)]))
  one = st.integers(0, len(levels) - 1)
  return levels, [draw(st.lists(one, min_size=n, max_size=n)) for n in lengths]


@laws.examples(
  25, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
@hypothesis.given(
  case=labelled(), compression=st.sampled_from(["none", "zstd"])
)
def test_labels_are_stored_as_runs(tmp_path_factory, case, compression):
  levels, labels = case
  store = write(
    tmp_path_factory.mktemp("labels") / "store",
    [np.arange(len(own)) % 10 for own in labels],
    levels=levels,
    label_levels=labels,
    compression=compression,
  )
  assert store.manifest.levels == levels
  flat = np.asarray([level for own in labels for level in own], np.int64)
  starts = values_of(store, "label_starts")
  runs = values_of(store, "label_levels")
  assert (
    np.repeat(runs, np.diff([*starts, len(flat)])).tolist() == flat.tolist()
  )
  assert (np.diff(runs.astype(int)) != 0).all(), "runs must differ"
  trained = np.cumsum([0, *(np.asarray(levels)[flat] > 0)])
  sums = values_of(store, "label_sums")
  assert sums.tolist() == trained[[*starts, len(flat)]].tolist()
  stores.verify_store(store.path)


@pytest.mark.parametrize(
  ("changes", "match"),
  [
    ({"levels": (1.0, 0.0)}, r"`levels` must be 0\.0, 1\.0 and other"),
    ({"levels": (0.0, 1.0, 1.0)}, "each once"),
    ({"levels": (0.0, 1.0, float("nan"))}, "weights of 0 or"),
    ({"levels": (0.0, 1.0)}, r"`label_levels` must be uint8\[2\].*got none"),
    ({"label_levels": [[0, 1]]}, "without `levels`"),
    (
      {"levels": (0.0, 1.0), "label_levels": [[0]]},
      r"must be uint8\[2\], a level for each token, got uint8\[1\]",
    ),
    (
      {"levels": (0.0, 1.0), "label_levels": [[0, 2]]},
      "must be below 2.*got 2",
    ),
    ({"weights": [float("inf")]}, "finite and 0 or more"),
    ({"weights": [-1]}, "finite and 0 or more"),
    ({"weights": []}, "`weights` must be as many"),
    ({"weights": [1, 2]}, "got more than 1"),
  ],
)
def test_labels_that_do_not_fit_are_refused(tmp_path, changes, match):
  with pytest.raises(stores.StoreError, match=match):
    write(tmp_path / "store", [[1, 2]], **changes)
  assert not (tmp_path / "store").exists()


def test_a_kept_tree_hash_of_several_blocks(tmp_path, monkeypatch):
  """Also what other chunks give; kept, so that it stays."""
  monkeypatch.setattr(tree_hash, "BLOCK", 16)
  documents = [np.arange(100) % 10, np.arange(7)]
  hashes = {
    testing_stores.make_store(
      tmp_path / str(chunk), documents, vocab_size=10, chunk=chunk
    ).hash
    for chunk in (3, 16, 64)
  }
  assert len(hashes) == 1
  for chunk in (3, 16, 64):
    stores.verify_store(tmp_path / str(chunk))
