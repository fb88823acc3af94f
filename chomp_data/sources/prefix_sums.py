# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Prefix sums of the units that rows consume, by random access.

Each epoch has sums at the edges of blocks. The source knows them, or they are
computed every 4,096 rows as far as they are needed. A few blocks at a time have
sums at every row. NumPy only.
"""

from collections.abc import Callable
from collections.abc import Mapping
import functools
from typing import Protocol

import numpy as np

from chomp_data.index import memo
from chomp_data.index import ragged
from chomp_data.sources import epochs as epochs_lib
from chomp_data.sources import mix_units
from chomp_data.sources import row_source
from chomp_data.threads import background

# Blocks of an epoch with sums at every row, and epochs with sums.
_BLOCKS_CACHED = 16
_EPOCHS_CACHED = 3
# A pass over this many rows takes about a second, and is reported.
LONG_PASS = 1_000_000
_PASS_RATE = 1.5e6  # rows planned per second, a low estimate


class UnitSource(Protocol):
  """The part of a `RowSource` that sums of units need."""

  @property
  def epochs(self) -> epochs_lib.Epochs: ...

  @property
  def repeating_units(self) -> Mapping[str, int]: ...

  def block_units(
    self, epoch: int, unit: str, rows: int | None
  ) -> mix_units.BlockUnits | None: ...

  def units(
    self, epoch: int, positions: np.ndarray, unit: str
  ) -> np.ndarray: ...


def epoch_units(source: UnitSource, epoch: int, unit: str) -> int | None:
  """Returns the units of an epoch, or None if its rows must be planned.

  Args:
    source: The rows.
    epoch: The epoch, from 0.
    unit: What is summed, such as "tokens".
  """
  # The blocks that rows of the epoch are summed in, where there are any: blocks
  # of another size would take another pass over a store.
  blocks = source.block_units(epoch, unit, mix_units.BLOCK_ROWS)
  if blocks is None:
    blocks = source.block_units(epoch, unit, None)
  return None if blocks is None else int(blocks.units.sum())


class _EpochSums:
  """Units before the rows of one epoch; positions count from its first row.

  The sums at edges are exact. A block between two edges has equal rows, or is
  summed row by row when it is needed. Rows after the last edge are not summed
  yet.
  """

  def __init__(
    self,
    size: int,
    units_of: Callable[[int, int], np.ndarray],
    blocks: mix_units.BlockUnits | None,
  ):
    """Sums the blocks that the source knows.

    Args:
      size: Rows of the epoch.
      units_of: Returns the units of positions first to last - 1.
      blocks: Units of blocks, where they are known.
    """
    self._size = size
    self._units_of = units_of
    # Units of a row of each block and of the end, where the rows of a block are
    # equal.
    self._per_row: np.ndarray | None = None
    if blocks is not None and blocks.equal:
      self._per_row = np.append(blocks.per_row, 0)
    # Positions of edges and the units before them.
    self._edges = np.zeros((2, 1), np.int64)
    if blocks is not None:
      self._edges = np.stack([blocks.starts, np.zeros_like(blocks.starts)])
      np.cumsum(blocks.units, out=self._edges[1, 1:])

  def before(self, positions: np.ndarray) -> np.ndarray:
    """Returns the units before positions, int64[N]."""
    edges, sums = self._edges
    block = edges.searchsorted(positions, side="right") - 1
    inside = positions - edges[block]
    if self._per_row is not None:
      return sums[block] + inside * self._per_row[block]
    within = np.flatnonzero(inside)
    by_block = list(ragged.by_value(block[within]))
    # Backwards, because cutting a block renumbers those after it.
    is_cut = [
      self._cut(number, int(positions[within[picks]].max()))
      for number, picks in by_block[::-1]
    ]
    if any(is_cut):
      return self.before(positions)
    totals = sums[block]
    for number, picks in by_block:
      first_row, end_row = edges[number : number + 2].tolist()
      rows = within[picks]
      totals[rows] += self._table(first_row, end_row)[inside[rows]]
    return totals

  def rows_below(self, units: int, near: bool = False) -> int:
    """Returns how many positions have fewer units before them.

    Args:
      units: Any number.
      near: Whether an estimate suffices, which needs no sums of single rows.
    """
    edges, sums = self._edges
    number = int(sums.searchsorted(units)) - 1
    if number < 0:
      return 0
    first_row, units_before = self._edges[:, number].tolist()
    if first_row == self._size:
      return first_row
    if self._per_row is not None:
      return first_row + -(
        -(units - units_before) // int(self._per_row[number])
      )
    if near and number + 1 < len(edges):
      end_row, units_at_end = self._edges[:, number + 1].tolist()
      return first_row + (end_row - first_row) * (units - units_before) // (
        units_at_end - units_before
      )
    if self._cut(number, self._size, units):
      return self.rows_below(units)
    table = self._table(first_row, int(edges[number + 1]))
    return first_row + int(table.searchsorted(units - units_before))

  def _cut(self, number: int, position: int, units: int | None = None) -> bool:
    """Cuts a long or unsummed block into short ones, from its start.

    Args:
      number: The block's number.
      position: The position that the new edges must reach.
      units: Stop earlier, once this many units are before the last new edge.

    Returns:
      Whether there are more edges than before.
    """
    edges = self._edges
    edge, total = edges[:, number].tolist()
    is_summed = number + 1 < edges.shape[1]
    end = int(edges[0, number + 1]) if is_summed else self._size
    if is_summed and end - edge <= mix_units.BLOCK_ROWS:
      return False
    added: list[tuple[int, int]] = []
    while edge < min(position, end) and (units is None or total < units):
      background.check()
      next_edge = min(edge + mix_units.BLOCK_ROWS, end)
      total += int(self._table(edge, next_edge)[-1])
      added.append((next_edge, total))
      edge = next_edge
    if is_summed and edge == end:
      added.pop()
    # One assignment, because other threads may read it.
    self._edges = np.concatenate(
      [
        edges[:, : number + 1],
        np.asarray(added, np.int64).reshape(-1, 2).T,
        edges[:, number + 1 :],
      ],
      axis=1,
    )
    return True

  @memo.remembered(_BLOCKS_CACHED)
  def _table(self, first_row: int, end_row: int) -> np.ndarray:
    """Returns the units of a block before each of its rows, and of all."""
    sums = np.zeros(end_row - first_row + 1, np.int64)
    np.cumsum(self._units_of(first_row, end_row), out=sums[1:])
    return sums


class PrefixSums:
  """The units of rows through all epochs, as prefix sums.

  Attributes:
    unit: What is summed.
    num_rows: Rows offered, or None for no end.
  """

  def __init__(
    self,
    source: UnitSource,
    unit: str,
    num_rows: int | None,
    per_row: int | None = None,
  ):
    """Stores the arguments; sums nothing.

    Args:
      source: The rows, in their order.
      unit: What is summed, as the source names it.
      num_rows: Rows offered, or None for no end.
      per_row: Units of every row if they are known without the source, or None.
    """
    self._source = source
    self.unit = unit
    self.num_rows = num_rows
    self._per_row = per_row
    # Units before the first epochs.
    self._starts: tuple[int, ...] = (0,)

  def before(self, rows: np.ndarray) -> np.ndarray:
    """Returns the units before rows, int64[N].

    Args:
      rows: int64[N], at least 0.
    """
    rows = np.asarray(rows, np.int64)
    if not len(rows):
      return rows.copy()
    if self._equal_rows is not None and rows.min() >= self._equal_rows[0]:
      # A merge needs the sums of hundreds of short epochs at once.
      first_row, units, per_row = self._equal_rows
      return units + (rows - first_row) * per_row
    epoch, index = self._source.epochs.locate(rows)
    totals = np.empty(len(rows), np.int64)
    for number, picks in ragged.by_value(epoch):
      positions = index[picks]
      totals[picks] = self._units_before_epoch(number)
      # The first row of an epoch needs no sums of that epoch.
      if positions.any():
        totals[picks] += self._epoch(number).before(positions)
    return totals

  def rows_below(self, units: int, near: bool = False) -> int:
    """Returns how many rows have fewer units before them.

    Args:
      units: At most 2**62.
      near: Whether an estimate suffices, which needs no sums of single rows.
    """
    limit = self.num_rows
    if units <= 0:
      return 0
    if self._equal_rows is not None and units > self._equal_rows[1]:
      first_row, units_before, per_row = self._equal_rows
      rows = first_row + -(-(units - units_before) // per_row)
    else:
      epoch = self._epoch_of(units)
      remaining_units = units - self._units_before_epoch(epoch)
      rows = self._source.epochs.start(epoch)
      rows += self._epoch(epoch).rows_below(remaining_units, near)
    return rows if limit is None else min(rows, limit)

  def _epoch_of(self, units: int) -> int:
    """Returns the last epoch offered with fewer units before it."""
    repeated = self._repeated_epoch
    last_epoch = None
    if self.num_rows is not None:
      final = np.asarray([max(self.num_rows - 1, 0)])
      last_epoch = int(self._source.epochs.locate(final)[0][0])
    epoch = 0
    while epoch not in (last_epoch, repeated):
      if self._units_before_epoch(epoch + 1) >= units:
        return epoch
      epoch += 1
    if epoch == repeated:
      units_before, following = map(
        self._units_before_epoch, (epoch, epoch + 1)
      )
      epoch += (units - 1 - units_before) // max(following - units_before, 1)
    return epoch if last_epoch is None else min(epoch, last_epoch)

  def _units_before_epoch(self, epoch: int) -> int:
    """Returns the units of all earlier epochs."""
    repeated = self._repeated_epoch
    last_summed = epoch if repeated is None else min(epoch, repeated + 1)
    starts = self._starts
    while len(starts) <= last_summed:
      number = len(starts) - 1
      units = epoch_units(self._source, number, self.unit)
      if units is None:
        size = self._source.epochs.size(number)
        units = int(self._epoch(number).before(np.asarray([size]))[0])
      starts = (*starts, starts[-1] + units)
    # One assignment, because other threads may read it.
    self._starts = starts
    per_epoch = (
      starts[last_summed] - starts[last_summed - 1]
      if epoch > last_summed
      else 0
    )
    return starts[last_summed] + (epoch - last_summed) * per_epoch

  @property
  def _repeated_epoch(self) -> int | None:
    """The first epoch from which on all consume the same units, or None."""
    return self._source.repeating_units.get(self.unit)

  @functools.cached_property
  def _equal_rows(self) -> tuple[int, int, int] | None:
    """(row, units before it, units of each row from there on), or None."""
    if self._per_row is not None:
      return 0, 0, self._per_row
    epoch = self._repeated_epoch
    if epoch is None:
      return None
    blocks = self._source.block_units(epoch, self.unit, 0)
    if blocks is None or not blocks.equal or len(blocks.units) != 1:
      return None
    units = self._units_before_epoch(epoch)
    return self._source.epochs.start(epoch), units, int(blocks.per_row[0])

  @memo.remembered(_EPOCHS_CACHED)
  def _epoch(self, epoch: int) -> _EpochSums:
    source, unit = self._source, self.unit
    return _EpochSums(
      source.epochs.size(epoch),
      lambda first_row, end_row: source.units(
        epoch, np.arange(first_row, end_row), unit
      ),
      source.block_units(epoch, unit, mix_units.BLOCK_ROWS),
    )


def are_known(source: row_source.RowSource, unit: str) -> bool:
  """Returns whether sums of a source need no planning of whole epochs.

  Args:
    source: The rows.
    unit: One of `mix_units.UNITS` for rows.
  """
  return (
    mix_units.UNITS[unit].per_row is not None
    or source.block_units(0, unit, mix_units.BLOCK_ROWS) is not None
  )


class SourceUnits(PrefixSums):
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
      units = mix_units.planned_units(spans, "tokens")
      longest = max(longest, int(units.max()))
    return rows * longest
