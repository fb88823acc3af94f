# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Packed rows computed one position at a time, to compare packers with.

A *cell* is (document, index): a position that holds token `index` of a
document, added BOS and EOS included.
"""

from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np

from chomp_data.rows import row_layout
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import row_source

Cell = tuple[int, int]


def documents_of(lengths: Sequence[int]) -> list[np.ndarray]:
  """Returns documents of some lengths; no two tokens nearby are equal."""
  tokens = 3 + np.arange(sum(lengths)) % 250
  return np.split(tokens, np.cumsum(lengths)[:-1])


def rows_of(source: row_source.RowSource, epoch: int = 0) -> np.ndarray:
  """Returns the numbers of an epoch's rows, int64[N]."""
  first, last = source.epochs.first_row(np.asarray([epoch, epoch + 1])).tolist()
  return np.arange(first, last)


def read(
  source: row_source.RowSource, rows: Sequence[int] | np.ndarray
) -> dict[str, np.ndarray]:
  """Returns all fields of rows, the optional ones too."""
  return source.read(
    source.plan(np.asarray(rows, np.int64)), row_source.OPTIONAL_FIELDS
  )


def check_fields(
  fields: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]
) -> None:
  """Raises AssertionError unless fields are equal, and of the same dtypes."""
  np.testing.assert_equal(sorted(fields), sorted(expected))
  for name, value in expected.items():
    np.testing.assert_equal(fields[name].dtype, value.dtype, name)
    np.testing.assert_array_equal(fields[name], value, name)


def with_added(
  documents: Sequence[Sequence[int]], layout: row_layout.RowLayout
) -> list[list[int]]:
  """Returns the documents with a layout's BOS and EOS; empty ones stay so."""
  before = [] if layout.bos_id is None else [layout.bos_id]
  after = [] if layout.eos_id is None else [layout.eos_id]
  return [
    [*before, *map(int, tokens), *after] if len(tokens) else []
    for tokens in documents
  ]


def cells_of(spans: spans_lib.Spans) -> list[list[Cell]]:
  """Returns the cells of every row of a plan, from its spans alone.

  Raises:
    ValueError: If a row's spans leave gaps, or are not numbered from 1.
  """
  rows: list[list[Cell]] = [[] for _ in range(spans.num_rows)]
  numbers = [0] * spans.num_rows
  for i in range(len(spans)):
    row = int(spans.row[i])
    numbers[row] += 1
    if spans.segment[i] != numbers[row] or spans.column[i] != len(rows[row]):
      raise ValueError(f"span {i} of row {row} must follow the one before it")
    first = int(spans.start[i])
    if spans.added_before is not None and not spans.added_before[i]:
      first += 1
    rows[row] += [
      (int(spans.document[i]), first + k) for k in range(int(spans.length[i]))
    ]
  return rows


def fields_of(
  rows: Sequence[Sequence[Cell]],
  documents: Sequence[Sequence[int]],
  layout: row_layout.RowLayout,
) -> dict[str, np.ndarray]:
  """Returns the fields of packed rows, with `next_token` and its loss.

      cells  [(4, 0), (4, 1), (7, 0)] in a row of 4
      -> segment_ids [1, 1, 2, 0], loss_mask [1, 0, 0, 0]

  Args:
    rows: The cells of each row, from column 0.
    documents: Tokens of each document that are packed, added ones included.
    layout: Row length, filler and positions.
  """
  shape = (len(rows), layout.seq_len)
  tokens = np.full(shape, layout.filler_id, np.int32)
  segment_ids = np.zeros(shape, np.int32)
  positions = np.tile(np.arange(layout.seq_len, dtype=np.int32), (shape[0], 1))
  loss_mask = np.zeros(shape, np.bool_)
  attention_mask = np.zeros(shape, np.bool_)
  next_token = np.full(len(rows), layout.filler_id, np.int32)
  for r, cells in enumerate(rows):
    segment, origin, due = 0, 0, None
    for column, (document, index) in enumerate(cells):
      if (document, index) == due:
        loss_mask[r, column - 1] = True
      else:
        segment, origin = segment + 1, column
      due = (document, index + 1)
      tokens[r, column] = documents[document][index]
      segment_ids[r, column] = segment
      attention_mask[r, column] = True
      if layout.positions == "segment":
        positions[r, column] = column - origin
    if due is not None and len(cells) == layout.seq_len:
      document, index = due
      if index < len(documents[document]):
        next_token[r] = documents[document][index]
        loss_mask[r, -1] = True
  return {
    "tokens": tokens,
    "segment_ids": segment_ids,
    "positions": positions,
    "loss_mask": loss_mask,
    "attention_mask": attention_mask,
    "next_token": next_token,
  }
