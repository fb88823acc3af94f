# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of a document in an order, where they are too many to be listed."""

import numpy as np
import pytest

import chomp_data
from chomp_data.phased import source_trail

BLOCK = {"io_block_size": 5, "window_blocks": 3}


@pytest.mark.parametrize("max_listed", [2**20, 10])
@pytest.mark.parametrize(
  ("kind", "options"),
  [
    ("none", {}),
    ("full", {}),
    ("era", {"era_length": 7}),
    ("block", BLOCK),
    ("block", {**BLOCK, "lanes": 2}),
  ],
)
def test_rows_of_a_document_are_those_of_all_plans(
  make_store, monkeypatch, kind, options, max_listed
):
  monkeypatch.setattr(source_trail, "MAX_LISTED", max_listed)
  store = make_store([np.arange(n) % 50 for n in (300, 7, 40)])
  rows = chomp_data.SpliceSource(
    store,
    chomp_data.MultiSpliceOptions(
      num_docs=3, content_length=6, balance_mode="enumerate"
    ),
    seq_len=16,
  )
  shuffle = chomp_data.ShuffleOptions(kind=kind, **options)
  source = chomp_data.ShuffledSource(rows, shuffle, 3, batch_size=4)
  size = len(rows)
  documents = source.plan(np.arange(2 * size + 50)).document
  for document in (0, 2):
    trail = source_trail.SourceTrail(source, document)
    row_numbers = np.flatnonzero(documents == document)
    first_rows = []
    for part in trail.next_rows(size // 3):
      first_rows += part.tolist()
      if len(first_rows) > 30:
        break
    expected = row_numbers[row_numbers >= size // 3]
    assert first_rows[:30] == expected[:30].tolist()
