# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Cached tables of the windows of an order that are read often.

A table is worth building only if its window is read again: evaluating a
permutation at single indices costs about 60 us per call and 15 ns per index, a
table 15 ns per row of its window. So a window's rows are evaluated call by call
until these calls have cost as much as the table would. Tables never change a
value and may be dropped at any time. NumPy only.
"""

from collections.abc import Callable
from collections.abc import Hashable

import numpy as np

from chomp_data.index import memo

# The cost of a call, in evaluated indices.
_CALL_ROWS = 4_096

# The rows of all tables of one order, 4 MiB as int32: eight windows of 128 Ki
# rows, and a few milliseconds to fill.
_MOST_ROWS = 2**20

# The smallest weight of a table: a short one still needs an array and an entry.
_LEAST_WEIGHT = 4_096

_MOST_COSTS = 64


class WindowTables:
  """The rows of a few windows, built for windows that are read often."""

  def __init__(self, most_rows: int = _MOST_ROWS):
    """Makes an empty cache of tables with up to `most_rows` rows together."""
    self._most_rows = most_rows
    self._tables = memo.Memo(most_rows)
    self._costs = memo.Memo(_MOST_COSTS)

  @property
  def rows(self) -> int:
    """Rows of all tables; a short table counts as 4,096."""
    return self._tables.weight

  def table(
    self,
    key: Hashable,
    length: int,
    num_positions: int,
    build: Callable[[], np.ndarray],
  ) -> np.ndarray | None:
    """Returns a window's rows, or None if a table is not worth building.

    Args:
      key: The key of the window; equal keys have equal rows.
      length: Rows of the window.
      num_positions: How many of them the caller needs now.
      build: Returns all rows, int64[length].

    Returns:
      int32[length] if the rows fit, else int64[length]; or None.
    """
    rows = self._tables.get(key)
    if rows is not None or length > self._most_rows:
      return rows
    cost = (self._costs.get(key) or 0) + num_positions + _CALL_ROWS
    if cost < length:
      self._costs.put(key, cost)
      return None
    rows = build()
    if rows.max(initial=0) < 2**31:
      rows = rows.astype(np.int32)
    self._tables.put(key, rows, max(length, _LEAST_WEIGHT))
    return rows
