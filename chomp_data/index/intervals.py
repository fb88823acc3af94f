# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Sets of integers as ascending, disjoint, non-empty intervals [begin, end).

NumPy only.
"""

import numpy as np

Intervals = tuple[np.ndarray, np.ndarray]


def merged(begin: np.ndarray, end: np.ndarray) -> Intervals:
  """Returns the union of intervals in any order, and joins adjacent ones.

      [3, 5) [8, 9) [5, 6) [9, 9)  ->  [3, 6) [8, 9)

  Args:
    begin: int64[N].
    end: int64[N], at least `begin`.
  """
  some = np.flatnonzero(end > begin)
  begin, end = begin[some], end[some]
  order = np.argsort(begin, kind="stable")
  begin, end = begin[order], np.maximum.accumulate(end[order])
  opens = np.ones(len(begin), np.bool_)
  np.greater(begin[1:], end[:-1], out=opens[1:])
  first = np.flatnonzero(opens)
  last = np.append(first[1:], len(begin))[: len(first)] - 1
  return begin[first], end[last]


def merged_spans(spans: np.ndarray) -> np.ndarray:
  """Returns the union of spans of documents, and joins adjacent ones.

  Args:
    spans: int64[N, 3] of document, start and length; a document of length 0
      is kept.

  Returns:
    int64[M, 3], ascending.
  """
  order = np.lexsort((spans[:, 1], spans[:, 0]))
  document, start, length = spans[order].T
  if not len(document):
    return spans
  # A running maximum of ends must not cross documents, so shift each document
  # past the ends of those before it.
  shift = document * (int((start + length).max()) + 2)
  reach = np.maximum.accumulate(start + length + shift)
  opens = np.ones(len(document), np.bool_)
  opens[1:] = (start + shift)[1:] > reach[:-1]
  first = np.flatnonzero(opens)
  end = (reach - shift)[np.append(first[1:], len(document)) - 1]
  return np.stack([document[first], start[first], end - start[first]], axis=1)


def difference(whole: Intervals, removed: Intervals) -> Intervals:
  """Returns the set difference of two sets of intervals.

      [0, 10) less [2, 4) [8, 12)  ->  [0, 2) [4, 8)

  Args:
    whole: Intervals.
    removed: Intervals, which may extend beyond `whole`.
  """
  edges = np.concatenate([*whole, *removed])
  # 1 inside `whole` only, below 1 inside `removed`.
  count, other = len(whole[0]), len(removed[0])
  step = np.repeat([1, -1, -2, 2], [count, count, other, other])
  order = np.argsort(edges, kind="stable")
  edges, inside = edges[order], np.cumsum(step[order])
  begins = np.flatnonzero(inside == 1)
  return merged(edges[begins], edges[begins + 1])
