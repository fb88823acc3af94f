# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What a store keeps of each document besides its id."""

import itertools
import pathlib

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data import stores
from chomp_data.stores.zarr import manifest as manifest_lib
from tests import laws

TOKENIZER = stores.TokenizerInfo(kind="custom", sha256="0" * 64, vocab_size=9)
META = ["law", "", "日本", "law", "1.5"]


@pytest.fixture
def write(tmp_path):
  number = itertools.count()

  def call(meta, compression="none", **changes):
    count = 5 if meta is None else len(meta)
    return stores.write_store(
      tmp_path / f"store{next(number)}",
      [np.arange(i % 4) for i in range(count)],
      tokenizer_info=TOKENIZER,
      meta=meta,
      compression=compression,
      chunk=4,
      chunks_per_shard=2,
      **changes,
    )

  return call


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_meta_comes_back_in_any_order(write, compression):
  store = write(META, compression)
  assert store.opened.meta is not None
  assert stores.document_meta(store, np.arange(5)) == META
  assert stores.document_meta(store, [2, 0, 2]) == ["日本", "law", "日本"]
  assert stores.document_meta(store, []) == []
  assert store.document_ids([4, 1]) == ["4", "1"]
  stores.verify_store(store.path)
  with pytest.raises(IndexError, match="got 5"):
    stores.document_meta(store, [5])


@laws.examples(
  15,
  suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.given(
  meta=st.lists(st.text(st.characters(exclude_categories=("Cs",))), min_size=1)
)
def test_any_strings_come_back(write, meta):
  assert stores.document_meta(write(meta), np.arange(len(meta))) == meta


def test_a_store_without_meta_is_as_it_was(write):
  """The hash of these documents before anything could be kept of them."""
  store = write(None)
  assert store.opened.meta is None
  assert set(store.manifest.arrays) == set(manifest_lib.ARRAYS)
  assert sorted(p.name for p in pathlib.Path(store.path).iterdir()) == [
    "id_bytes", "id_offsets", "manifest.json", "offsets", "tables", "tokens",
  ]  # fmt: skip
  assert store.hash == (
    "e337a692964a39f80daaf4cd4ae5d30a74013a5a6e59baa279b531253263e722"
  )
  with pytest.raises(stores.StoreError, match="--meta_key"):
    stores.document_meta(store, [0])
  assert len({store.hash, write(META).hash, write(META[::-1]).hash}) == 3


@pytest.mark.parametrize(
  ("meta", "match"),
  [
    (META[:4], r"`meta` must be as many as the documents, got 4\."),
    ([*META, "x"], r"`meta` must be as many.*got more than 5"),
    ([*META[:4], 3], r"document meta must be a string.*got 3"),
    ([*META[:4], "\ud800"], r"document meta must be a string of valid"),
  ],
)
def test_meta_that_does_not_fit_is_refused(tmp_path, meta, match):
  with pytest.raises(stores.StoreError, match=match):
    stores.write_store(
      tmp_path / "store",
      [[1]] * 5,
      tokenizer_info=TOKENIZER,
      meta=meta,
    )
  assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("has_meta", [False, True])
def test_a_writer_wants_meta_exactly_where_it_was_said(tmp_path, has_meta):
  with (
    stores.StoreWriter(
      tmp_path / "staging", TOKENIZER, has_meta=has_meta
    ) as writer,
    pytest.raises(stores.StoreError, match="`meta` must be"),
  ):
    writer.append(
      np.asarray([1]), np.asarray([1]), ["a"], None if has_meta else ["b"]
    )
