# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What the rows of a source consume, as prefix sums in their order.

A mix asks how many tokens (or trained tokens, or rows) the rows before row k
of a source consume, in the order in which they come.
"""

import numpy as np

from chomp_data.sources import mix_units
from chomp_data.sources import prefix_sums
from chomp_data.sources import row_source
from chomp_data.sources import row_units

# A pass over this many rows takes about a second, and is reported.
LONG_PASS = 1_000_000
_PASS_RATE = 1.5e6  # rows planned per second, a low estimate


def are_known(source: row_source.RowSource, unit: str) -> bool:
  """Returns whether sums of a source need no planning of whole epochs.

  Args:
    source: The rows.
    unit: One of `mix_units.UNITS` for rows.
  """
  return (
    mix_units.UNITS[unit].per_row is not None
    or source.block_units(0, unit, row_units.BLOCK_ROWS) is not None
  )


class SourceUnits(prefix_sums.PrefixSums):
  """The units of a source's rows in its order, through all epochs."""

  def __init__(
    self, source: row_source.RowSource, unit: str, max_epochs: int | None
  ):
    """Stores the arguments; sums nothing.

    Args:
      source: The rows, in their order.
      unit: One of `mix_units.UNITS` for rows.
      max_epochs: Epochs offered, or None for no end.
    """
    if unit not in mix_units.of_kind("rows"):
      raise ValueError(
        f"`unit` must be one of {', '.join(mix_units.of_kind('rows'))}, got"
        f" {unit!r}. Choose one."
      )
    num_rows = source.epochs.total(max_epochs)
    super().__init__(source, unit, num_rows, mix_units.UNITS[unit].per_row)
    self._rows = source

  def planned(self) -> str | None:
    """Describes the rows that must be planned for sums, or returns None."""
    if are_known(self._rows, self.unit):
      return None
    size = self._epoch_rows()
    return (
      f"summing {self.unit} over rows that vary, in this order, plans all"
      f" {size} rows of each epoch once, as far as the run gets (about"
      f" {size / _PASS_RATE:.1g} s); sequential and bin rows with shuffle.kind"
      " 'none' or 'block' need no such pass"
    )

  def is_long(self, rows: int | None = None) -> bool:
    """Returns whether summing rows takes longer than about a second.

    Args:
      rows: Their number; None is an epoch.
    """
    rows = self._epoch_rows() if rows is None else rows
    return rows > LONG_PASS and not are_known(self._rows, self.unit)

  def _epoch_rows(self) -> int:
    return self._rows.epochs.size(self._rows.epochs.ramp)

  def most_tokens(self, rows: int, token_offset: int) -> int:
    """Returns the most tokens that a number of rows in any order can hold.

    Args:
      rows: At most `num_rows`.
      token_offset: A count of tokens to compare with. If it is clearly too
        large, or the sum of this order, no row is planned.
    """
    most = rows * self._rows.seq_len
    if token_offset > most or self.unit != "tokens":
      return most
    if token_offset == int(self.before(np.asarray([rows]))[0]):
      return most
    # The offset is of another run's order. Rows of a ramp may be longer.
    end_row = self._rows.epochs.start(self._rows.epochs.ramp + 1)
    if end_row > LONG_PASS:
      return most
    longest = 0
    for spans in row_source.planned_blocks(self._rows, 0, end_row):
      units = row_units.planned_units(spans, "tokens")
      longest = max(longest, int(units.max()))
    return rows * longest
