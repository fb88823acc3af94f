# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Placing spans: fields of rows with any number of spans and gaps."""

from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data.rows import row_layout
from chomp_data.rows import spans as spans_lib


def plan(rows):
  """Builds spans from [[(column, length, segment), ...], ...]."""
  flat = [
    (r, column, length, segment)
    for r, row in enumerate(rows)
    for column, length, segment in row
  ]
  row, column, length, segment = (
    np.asarray([f[i] for f in flat], np.int64) for i in range(4)
  )
  return spans_lib.Spans(
    num_rows=len(rows),
    row=row,
    source=np.zeros(len(flat), np.int32),
    document=np.arange(len(flat)) + 100,
    start=row * 0,
    offset=row * 0,
    length=length,
    column=column,
    segment=segment.astype(np.int32),
  )


@st.composite
def rows_of_spans(draw):
  seq_len = draw(st.integers(2, 12))
  rows = []
  for _ in range(draw(st.integers(1, 4))):
    row, column, segment = [], draw(st.integers(0, 3)), 1
    while column < seq_len and draw(st.booleans()):
      length = draw(st.integers(1, seq_len - column))
      row.append((column, length, segment))
      column += length + draw(st.integers(0, 2))
      segment += draw(st.integers(0, 1))
    rows.append(row)
  return seq_len, rows


@pytest.mark.parametrize(
  ("column", "tokens"),
  [(0, [7] * 5), (1, [3, 7, 7, 7, 7]), (3, [7, 7, 3, 7, 7])],
)
def test_token_before_document_stands_left_of_a_shifted_document(
  column, tokens
):
  layout = row_layout.RowLayout(5, 7, True, 3)
  grid = row_layout.token_grid(plan([[(column, 2, 1)]]), layout)
  assert grid.tolist() == [tokens]


def test_positions_begin_anew_in_every_row():
  layout = row_layout.RowLayout(5, 9, False, None, "segment")
  fields = row_layout.span_fields(plan([[(0, 2, 1)], [(2, 3, 1)]]), layout)
  assert fields["segment_ids"].tolist() == [[1, 1, 0, 0, 0], [0, 0, 1, 1, 1]]
  assert fields["positions"].tolist() == [[0, 1, 2, 3, 4], [0, 1, 0, 1, 2]]


def test_copies_that_follow_each_other_are_joined():
  start, length, position = row_layout.joined_copies(
    np.asarray([5, 8, 20, 24, 30]),
    np.asarray([3, 2, 4, 1, 2]),
    np.asarray([0, 3, 5, 10, 11]),
  )
  # The fourth follows in the store but not in the row; the fifth the reverse.
  assert start.tolist() == [5, 20, 24, 30]
  assert length.tolist() == [5, 4, 1, 2]
  assert position.tolist() == [0, 5, 10, 11]
  empty = np.empty(0, np.int64)
  assert [len(x) for x in row_layout.joined_copies(empty, empty, empty)] == [
    0
  ] * 3
