# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What the rows of a source consume, as prefix sums.

    rows      0  1  2  3      before(0 .. 4)  [0, 5, 5, 5, 9]
    consumes  5  0  0  4      rows_below(5) = 1, rows_below(6) = 4

A unit is a token, a trained token, or 1 for a row. The units before a row are
int64 and exact. A merge asks for them by ranges of consecutive rows, and for
the row at a number of units, and needs nothing else of a source. NumPy only.
"""

import dataclasses
from typing import Protocol

import numpy as np

# Sums stay below it, so that int64 has room for differences.
MOST_UNITS = 2**62


class UnitSequence(Protocol):
  """The units of a source's rows, in the source's own order.

  A sequence without an end must consume units again and again: where all its
  rows from some row on consumed nothing, no number of rows would be enough.
  """

  @property
  def num_rows(self) -> int | None:
    """Rows offered; None repeats for ever."""
    ...

  def before(self, rows: np.ndarray) -> np.ndarray:
    """Returns int64[N], the units of rows 0 .. k - 1 for each k of int64[N].

    Args:
      rows: Each in 0 .. `num_rows`, the end included; often consecutive.
    """
    ...

  def rows_below(self, units: int) -> int:
    """Returns how many rows k below `num_rows` have before(k) < units.

    Args:
      units: At most 2**62.
    """
    ...


@dataclasses.dataclass(frozen=True)
class ConstantUnits:
  """Rows that all consume the same.

  Attributes:
    units: What each row consumes.
    num_rows: Rows offered; None is no end.
  """

  units: int = 1
  num_rows: int | None = None

  def __post_init__(self) -> None:
    """Checks the fields.

    Raises:
      ValueError: If one is negative, or rows without an end consume nothing.
    """
    if self.units < 0:
      raise ValueError(
        f"`units` must be at least 0, got {self.units}. Count what a row"
        " consumes."
      )
    if self.num_rows is not None and self.num_rows < 0:
      raise ValueError(
        f"`num_rows` must be at least 0, got {self.num_rows}. Give None for"
        " rows without an end."
      )
    if self.num_rows is None and self.units == 0:
      raise ValueError(
        "`units` must be at least 1 where rows have no end, got 0. Give"
        " `num_rows`."
      )

  def before(self, rows: np.ndarray) -> np.ndarray:
    """Returns int64[N], the units before rows int64[N]."""
    return rows * self.units

  def rows_below(self, units: int) -> int:
    """Returns how many rows have fewer than `units` before them."""
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

    Raises:
      ValueError: If there is no row, a negative count, or an endless cycle of
        rows that consume nothing.
    """
    units = np.asarray(units, np.int64)
    if units.ndim != 1 or not len(units) or units.min() < 0:
      raise ValueError(
        "`units` must hold one number of at least 0 for each of one or more"
        f" rows, got {units}. Count what each row consumes."
      )
    if cycles is not None and cycles < 1:
      raise ValueError(
        f"`cycles` must be at least 1, got {cycles}. Give None for rows"
        " without an end."
      )
    self._sums = np.concatenate([[0], np.cumsum(units)])
    self._total = int(self._sums[-1])
    if cycles is None and self._total == 0:
      raise ValueError(
        "`units` must hold a positive one where rows have no end, got only"
        " zeros. Give `cycles`."
      )
    self.num_rows: int | None = None if cycles is None else cycles * len(units)

  def before(self, rows: np.ndarray) -> np.ndarray:
    """Returns int64[N], the units before rows int64[N]."""
    cycle, row = np.divmod(rows, len(self._sums) - 1)
    return cycle * self._total + self._sums[row]

  def rows_below(self, units: int) -> int:
    """Returns how many rows have fewer than `units` before them."""
    if units <= 0:
      return 0
    if self._total == 0:
      return self.num_rows or 0
    cycle = (units - 1) // self._total
    left = units - cycle * self._total
    rows = cycle * (len(self._sums) - 1)
    rows += int(np.searchsorted(self._sums[:-1], left))
    return rows if self.num_rows is None else min(rows, self.num_rows)
