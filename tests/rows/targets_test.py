# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Targets are the tokens later in the same run of a document's real tokens."""

import functools
import json

import numpy as np
import pytest

import chomp_data
from chomp_data.rows import spans as spans_lib
from chomp_data.rows import targets
from chomp_data.testing import stores as testing_stores
from tests.sources import labelled
from tests.sources import small_configs

SEQ_LEN, DEPTH, PAD = 16, 4, 0
LENGTHS = (5, 40, 1, 17, 3, 2, 31, 0, 9, 16, 25, 4)
REMOVED = (
  {"document": 1, "start": 18, "length": 2},
  {"document": 6, "start": 15, "length": 3},
  {"document": 8},
)
ROWS = {
  "sequential": {"kind": "sequential", "add_bos": True, "add_eos": True},
  "sequential_bare": {"kind": "sequential"},
  "ffd": {"kind": "bin", "packing_buffer_docs": 7, "add_eos": True},
  "truncate": {"kind": "bin", "long_documents": "truncate", "add_eos": True},
  "splice": {"kind": "multi_splice", "num_docs": 5, "content_length": 9},
  "roll": {
    "kind": "multi_splice",
    "num_docs": 5,
    "content_length": 15,
    "content_start_mode": "cyclic_roll",
  },
  "windows": {"kind": "windows", "num_docs": 5},
}


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
  """Stores with and without weights, by name."""
  root, out = tmp_path_factory.mktemp("targets"), {}
  for name, table in (("chats", labelled.LEVELS), ("text", None)):
    make_store = functools.partial(testing_stores.make_store, root / name)
    out[name] = labelled.make(
      make_store, LENGTHS, table=table, weights=table is not None, bos_id=2
    )
  return out


def config(corpora, rows, names=("chats",), **changes):
  stores = {name: corpora[name].path for name in names}
  return small_configs.of_rows(stores, rows, **changes)


def in_lengths(corpora, **rows):
  """Returns a run in buckets of lengths."""
  data = config(corpora, [rows], ("chats", "text"))
  return small_configs.in_buckets(data, **rows)


def removed_from(path, sources):
  """Writes tombstones; returns the path and the removed tokens."""
  lines, removed = [], set()
  for source in sources:
    for entry in REMOVED:
      lines.append(json.dumps({"source": source, **entry}))
      length = LENGTHS[entry["document"]]
      first = entry.get("start", 0)
      for token in range(first, first + entry.get("length", length)):
        removed.add((source, entry["document"], token))
  path.write_text("\n".join(lines) + "\n")
  return str(path), removed


def test_no_target_crosses_a_segment_at_any_depth(corpora):
  data = config(corpora, [ROWS["ffd"]], num_targets=targets.MAX_TARGETS)
  pipe = chomp_data.build({**data, "document_id": True})
  for step in range(pipe.num_steps):
    batch = pipe.batch(step)
    segments = batch["segment_ids"]
    for d in range(1, SEQ_LEN):
      same = (segments[:, :-d] == segments[:, d:]) & (segments[:, d:] > 0)
      mask = batch[targets.names(d)[1]][:, :-d]
      assert not (mask & ~same).any()
      tokens = batch["tokens"][:, d:]
      real = batch[targets.names(d)[0]][:, :-d]
      np.testing.assert_array_equal(real[mask], tokens[mask])


def test_eos_is_no_target_where_it_is_not_trained_on(corpora):
  data = config(corpora, [ROWS["ffd"]], num_targets=2)
  pipe = chomp_data.build(data)
  without = chomp_data.build({**data, "train_on_eos": False})
  eos = pipe.sources["chats"].layout.eos_id
  cut = 0
  for step in range(pipe.num_steps):
    batch, masked = pipe.batch(step), without.batch(step)
    for names in (targets.names(1), targets.names(2)):
      is_eos = batch[names[0]] == eos
      np.testing.assert_array_equal(masked[names[1]], batch[names[1]] & ~is_eos)
      np.testing.assert_array_equal(masked[names[2]], batch[names[2]] * ~is_eos)
      cut += int((batch[names[1]] & is_eos).sum())
  assert cut


def test_targets_in_the_formats_of_trainers(corpora):
  data = config(corpora, [ROWS["sequential"]], num_targets=2)
  canonical = chomp_data.build(data).batch(1)
  masks = canonical["target_mask"], canonical["target_mask_2"]
  batch = chomp_data.build({**data, "batch_format": "maxtext"}).batch(1)
  for end, mask in zip(("", "_2"), masks, strict=True):
    np.testing.assert_array_equal(
      batch[f"targets{end}"], canonical[f"targets{end}"]
    )
    np.testing.assert_array_equal(
      batch[f"targets_segmentation{end}"], canonical["segment_ids"] * mask
    )
  batch = chomp_data.build({**data, "batch_format": "axlearn"}).batch(1)
  for end, mask in zip(("", "_2"), masks, strict=True):
    np.testing.assert_array_equal(
      batch[f"target_labels{end}"],
      np.where(mask, canonical[f"targets{end}"], -1),
    )
    np.testing.assert_array_equal(
      batch[f"live_targets{end}"], canonical[f"target_weight{end}"]
    )
    assert f"targets{end}" not in batch
  for name in ("chomp", "levanter"):
    batch = chomp_data.build({**data, "batch_format": name}).batch(1)
    np.testing.assert_array_equal(batch["targets_2"], canonical["targets_2"])


def test_num_targets_is_in_a_fingerprint_where_it_is_set(corpora):
  data = config(corpora, [ROWS["ffd"]])
  unset = chomp_data.build({**data, "num_targets": 0}).fingerprint
  assert unset == chomp_data.build(data).fingerprint
  two = chomp_data.build({**data, "num_targets": 2}).fingerprint
  assert two == {**unset, "num_targets": 2}


@pytest.mark.parametrize("value", [-1, targets.MAX_TARGETS + 1, 1.5, "2"])
def test_a_wrong_num_targets_is_refused(corpora, value):
  with pytest.raises(chomp_data.ConfigError, match="num_targets") as error:
    chomp_data.build(config(corpora, [ROWS["ffd"]], num_targets=value))
  assert repr(value) in str(error.value)


def test_targets_beside_labels_across_documents_are_refused(corpora):
  data = config(corpora, [ROWS["ffd"]], num_targets=3)
  with pytest.raises(
    chomp_data.ConfigError, match="mask_boundary_loss=False, got 3"
  ):
    chomp_data.build({**data, "mask_boundary_loss": False})


def test_a_source_that_knows_the_next_token_alone_gives_it(corpora):
  spans = chomp_data.build(config(corpora, [ROWS["ffd"]])).plan(0)
  layout = (
    chomp_data.build(config(corpora, [ROWS["ffd"]])).sources["chats"].layout
  )
  bare = spans_lib.Spans(
    **{**{f: getattr(spans, f) for f in spans.__dict__}, "remaining": None}
  )
  longer, _ = targets.extended(bare, layout, 4)
  followed = (bare.following > 0) & (bare.ends() == SEQ_LEN)
  np.testing.assert_array_equal(longer.length - bare.length, followed)
