# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Tables of the windows of an order that are asked about often.

A table is worth building only where its window will be asked about again: a
permutation evaluated at single indices costs about 60 us a call and 15 ns an
index, a table 15 ns a row of its window. So a window's rows are evaluated one
call at a time until these calls have cost what the table would. Nothing here
decides a value; all of it may be dropped at any time. NumPy only.
"""

from collections.abc import Callable
from collections.abc import Hashable

import numpy as np

from chomp_data.index import memo

# What a call costs, in evaluated indices.
_CALL_ROWS = 4_096

# The rows of all tables of one order, 4 MiB as int32: eight windows of 128 Ki
# rows, and a few milliseconds to fill.
_MOST_ROWS = 2**20

# A table of few rows still costs its array and its entry.
_LEAST_WEIGHT = 4_096

_MOST_WATCHED = 64


class WindowTables:
  """The rows of a few windows, built where they are asked about often."""

  def __init__(self, most_rows: int = _MOST_ROWS):
    """Keeps tables of up to `most_rows` rows in all."""
    self._most_rows = most_rows
    self._tables = memo.Memo(most_rows)
    self._spent = memo.Memo(_MOST_WATCHED)

  @property
  def rows(self) -> int:
    """Rows of all tables; a short table counts as 4,096."""
    return self._tables.weight

  def table(
    self,
    key: Hashable,
    length: int,
    asked: int,
    build: Callable[[], np.ndarray],
  ) -> np.ndarray | None:
    """Returns a window's rows, or None where one look does not pay a table.

    Args:
      key: What decides the rows.
      length: Rows of the window.
      asked: How many of them are wanted now.
      build: Returns all of them, int64[length].

    Returns:
      int32[length] where rows fit, else int64[length], or None.
    """
    found = self._tables.get(key)
    if found is not None or length > self._most_rows:
      return found
    spent = (self._spent.get(key) or 0) + asked + _CALL_ROWS
    if spent < length:
      self._spent.put(key, spent)
      return None
    rows = build()
    if rows.max(initial=0) < 2**31:
      rows = rows.astype(np.int32)
    self._tables.put(key, rows, max(length, _LEAST_WEIGHT))
    return rows
