# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The attention cost of rows, from their spans. NumPy only."""

import numpy as np

from chomp_data.index import ragged
from chomp_data.rows import spans as spans_lib


def attention(
  spans: spans_lib.Spans, seq_len: int, trailing: np.ndarray
) -> np.ndarray:
  """Returns int64[num_rows], the sum of squared segment lengths of each row.

      segment_ids [1, 1, 1, 2, 2, 0] -> 9 + 4 = 13

  A segment has all positions of one segment id: spans that are not masked, and
  the trailing padding of the row where it is part of the last segment.

  Args:
    spans: The plan.
    seq_len: Positions of a row.
    trailing: bool[N], for the last span of each row, whether the padding right
      of it has its segment id.
  """
  if not len(spans):
    return np.zeros(spans.num_rows, np.int64)
  _, is_last = ragged.run_edges(spans.row)
  length = np.where(is_last & trailing, seq_len - spans.column, spans.length)
  if spans.masked is not None:
    length[spans.masked] = 0
  segment_begin = np.flatnonzero(ragged.run_edges(spans.row, spans.segment)[0])
  lengths = np.add.reduceat(length, segment_begin)
  # At most seq_len ** 2 a row: far below 2**53, where float64 is exact.
  sums = np.bincount(
    spans.row[segment_begin], lengths * lengths, spans.num_rows
  )
  return sums.astype(np.int64)
