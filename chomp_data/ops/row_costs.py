# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What rows cost a model, from their spans. NumPy only."""

import numpy as np

from chomp_data.ops import spans as spans_lib


def attention(
  spans: spans_lib.Spans, seq_len: int, trailing: np.ndarray
) -> np.ndarray:
  """Returns int64[num_rows], the sum of squared segment lengths of each row.

      segment_ids [1, 1, 1, 2, 2, 0] -> 9 + 4 = 13

  Segments are those of `segment_ids`: all spans of one number, without what is
  gone, with the filler right of a row's last span where that has its number.

  Args:
    spans: The plan.
    seq_len: Positions of a row.
    trailing: bool[N], whether filler right of a span that is its row's last
      keeps the span's segment; see `RowLayout`.
  """
  if not len(spans):
    return np.zeros(spans.num_rows, np.int64)
  row, segment = spans.row, spans.segment
  new_row = row[1:] != row[:-1]
  last = np.append(new_row, True)
  length = np.where(last & trailing, seq_len - spans.column, spans.length)
  if spans.gone is not None:
    length[spans.gone] = 0
  opens = np.append(True, new_row | (segment[1:] != segment[:-1]))
  first = np.flatnonzero(opens)
  lengths = np.add.reduceat(length, first)
  # At most seq_len ** 2 a row: far below 2**53, where float64 is exact.
  sums = np.bincount(row[first], lengths * lengths, spans.num_rows)
  return sums.astype(np.int64)
