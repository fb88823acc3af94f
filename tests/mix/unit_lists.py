# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Sequences of units for merges in tests and benchmarks: equal, or listed."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class ConstantUnits:
  """Rows that all consume the same.

  Attributes:
    units: What each row consumes.
    num_rows: Rows offered; None is no end.
  """

  units: int = 1
  num_rows: int | None = None

  def before(self, rows: np.ndarray) -> np.ndarray:
    """Returns int64[N], the units before rows int64[N]."""
    return rows * self.units

  def rows_below(self, units: int, near: bool = False) -> int:
    """Returns how many rows have fewer than `units` before them."""
    del near
    if units <= 0:
      return 0
    if self.units == 0:
      return self.num_rows or 0
    rows = -(-units // self.units)
    return rows if self.num_rows is None else min(rows, self.num_rows)


class ArrayUnits:
  """Rows whose units are listed, in the same order in every cycle."""

  def __init__(self, units: np.ndarray, cycles: int | None = 1):
    """Sums up the units.

    Args:
      units: int64[M] of the rows of a cycle, none negative, at least one row.
      cycles: How often the rows are offered; None is without end.

    """
    units = np.asarray(units, np.int64)
    self._sums = np.concatenate([[0], np.cumsum(units)])
    self._total = int(self._sums[-1])
    self.num_rows: int | None = None if cycles is None else cycles * len(units)

  def before(self, rows: np.ndarray) -> np.ndarray:
    """Returns int64[N], the units before rows int64[N]."""
    cycle, row = np.divmod(rows, len(self._sums) - 1)
    return cycle * self._total + self._sums[row]

  def rows_below(self, units: int, near: bool = False) -> int:
    """Returns how many rows have fewer than `units` before them."""
    del near
    if units <= 0:
      return 0
    if self._total == 0:
      return self.num_rows or 0
    cycle = (units - 1) // self._total
    left = units - cycle * self._total
    rows = cycle * (len(self._sums) - 1)
    rows += int(np.searchsorted(self._sums[:-1], left))
    return rows if self.num_rows is None else min(rows, self.num_rows)
