# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What a source's rows consume, as exact prefix sums by random access.

A mix asks how many tokens (or trained positions, or rows) a source's rows
before row k consume, in the order in which they come. Sums are kept at edges
some thousand rows apart; between two edges rows are planned on demand, so
memory does not grow with rows. Where the edges' sums are known from sums of
documents, or rows are all alike, nothing is passed over; otherwise an epoch is
planned once, which is said.
"""

from collections.abc import Callable
import functools
from typing import Any

import numpy as np

from chomp_data import stores
from chomp_data.index import memo
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import mix_units
from chomp_data.sources import row_source
from chomp_data.sources import row_sums
from chomp_data.sources import unit_sums as units_lib
from chomp_data.stores import background

# Rows between edges where nothing else says where they lie.
_EDGE_ROWS = 4_096
_GROWN_ROWS = 16 * _EDGE_ROWS
_TABLES_KEPT = 16
# Rows of an epoch whose units may all be in memory: 16 MiB.
_TABLE_ROWS = 2**22
_EPOCHS_KEPT = 3
# From here on a pass takes a second or so, and is said.
_LONG_PASS = 1_000_000
_PASS_RATE = 1.5e6  # rows planned a second, on the slow side


class Alike:
  """An epoch whose rows all consume the same, but for a few."""

  def __init__(self, size: int, uniform: row_sums.Uniform):
    """Binds what rows consume.

    Args:
      size: Rows of the epoch.
      uniform: What they consume.
    """
    self._size = size
    self._each = uniform.each
    self._exceptions = uniform.exceptions

  def before(self, index: np.ndarray) -> np.ndarray:
    """Returns the units before positions, int64[N]."""
    sums = index * self._each
    for position, units in self._exceptions.items():
      sums -= np.where(index > position, self._each - units, 0)
    return sums

  def below(self, units: int) -> int:
    """Returns how many positions have less before them."""
    # Exceptions consume less: their lack moves the answer right.
    rows = -(-units // self._each)
    while rows < self._size and self.before(np.asarray([rows]))[0] < units:
      rows += 1
    return min(rows, self._size)

  near = below


class Summed:
  """An epoch with sums at edges, and the rows between them on demand."""

  def __init__(
    self,
    size: int,
    units_of: Callable[[int, int], np.ndarray],
    edges: row_sums.Edges | None,
  ):
    """Keeps the edges that are known.

    Args:
      size: Rows of the epoch.
      units_of: Returns the units of positions first .. last - 1.
      edges: Where units are known; None: they are made as far as they are
        asked for.
    """
    zero = np.zeros(1, np.int64)
    edges = edges or row_sums.Edges(zero, zero)
    self._positions, self._sums = edges.positions, edges.before
    self._size = size
    self._units_of = units_of
    self._inner = memo.Memo(_TABLES_KEPT)
    self._tables = memo.Memo(_TABLES_KEPT)

  def before(self, index: np.ndarray) -> np.ndarray:
    """Returns the units before positions, int64[N]."""
    most = int(index.max())
    while self._positions[-1] < most:
      self._grow(most - int(self._positions[-1]))
    table = self._table_of(int(index.min()), most)
    if table is not None:
      return table[0][index - table[1]]
    if most - index[0] + 1 == len(index) and (np.diff(index) == 1).all():
      # Mostly they follow each other.
      return self._following(int(index[0]), most + 1)
    block = np.searchsorted(self._positions, index, side="right") - 1
    out = self._sums[block]
    inside = np.flatnonzero(self._positions[block] != index)
    for number in np.unique(block[inside]).tolist():
      here = inside[block[inside] == number]
      edges, sums = self._edges_in(number, int(index[here].max()))
      part = np.searchsorted(edges, index[here], side="right") - 1
      for low in np.unique(part).tolist():
        pick = here[part == low]
        table = self._table(edges, sums, low)
        out[pick] = table[index[pick] - int(edges[low])]
    return out

  def _following(self, first: int, last: int) -> np.ndarray:
    """Returns the units before positions first .. last - 1."""
    out = np.empty(last - first, np.int64)
    own = first
    while own < last:
      block = int(self._positions.searchsorted(own, side="right")) - 1
      if block == len(self._positions) - 1:
        out[own - first] = self._sums[block]
        break
      inside = min(last, int(self._positions[block + 1]))
      edges, sums = self._edges_in(block, inside - 1)
      part = int(edges.searchsorted(own, side="right")) - 1
      table, origin = self._table(edges, sums, part), int(edges[part])
      end = min(inside, origin + len(table) - 1)
      out[own - first : end - first] = table[own - origin : end - origin]
      own = end
    return out

  def _table_of(self, low: int, high: int) -> tuple[np.ndarray, int] | None:
    """Returns the table of positions and its first, where one holds them."""
    block = int(self._positions.searchsorted(low, side="right")) - 1
    if low == high or block == len(self._positions) - 1:
      return None
    if high > self._positions[block + 1]:
      return None
    edges, sums = self._edges_in(block, high - 1)
    part = int(edges.searchsorted(low, side="right")) - 1
    if high > edges[part + 1]:
      return None
    return self._table(edges, sums, part), int(edges[part])

  def near(self, units: int) -> int:
    """Returns about what `below` does; no row is looked at."""
    edge = int(self._sums.searchsorted(units))
    if not 0 < edge < len(self._sums):
      return self.below(units)
    (first, last), (low, high) = (
      own[edge - 1 : edge + 1].tolist() for own in (self._positions, self._sums)
    )
    return first + (last - first) * (units - low) // (high - low)

  def below(self, units: int) -> int:
    """Returns how many positions have less before them."""
    while self._sums[-1] < units and self._positions[-1] < self._size:
      self._grow(_GROWN_ROWS)
    # The last edge with less before it: the answer is right of it.
    block = int(np.searchsorted(self._sums, units, side="left")) - 1
    if block < 0:
      return 0
    if block == len(self._positions) - 1:
      return int(self._positions[-1])
    edges, sums = self._edges_in(block, None, units)
    low = int(np.searchsorted(sums, units, side="left")) - 1
    if low == len(edges) - 1:
      return int(edges[-1])
    table = self._table(edges, sums, low)
    return int(edges[low]) + int(np.searchsorted(table[:-1], units))

  def _edges_in(
    self, block: int, index: int | None, units: int = 0
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns (positions, sums) in a block, some thousand rows apart.

    Args:
      block: Its number.
      index: A position in it that they reach beyond.
      units: A sum that they reach, where no position is given.
    """
    first, last = self._positions[block : block + 2].tolist()
    if last - first <= _EDGE_ROWS:
      return (
        self._positions[block : block + 2],
        self._sums[block : block + 2],
      )
    known = self._inner.get(block)
    if known is None:
      known = self._positions[block : block + 1], self._sums[block : block + 1]
    edges, sums = known
    while edges[-1] < last and (
      sums[-1] < units if index is None else edges[-1] <= index
    ):
      end = min(int(edges[-1]) + _EDGE_ROWS, last)
      edges = np.append(edges, end)
      table = self._table(edges, sums, len(sums) - 1)
      sums = np.append(sums, table[-1])
    if len(edges) > len(known[0]):
      self._inner.put(block, (edges, sums))
    return edges, sums

  def _table(self, edges: np.ndarray, sums: np.ndarray, low: int) -> np.ndarray:
    """Returns int64[n + 1], the sums at positions from an edge to the next."""
    first, last = edges[low : low + 2].tolist()

    def table():
      own = np.empty(last - first + 1, np.int64)
      own[0] = 0
      np.cumsum(self._units_of(first, last), out=own[1:])
      return own + sums[low]

    return self._tables.get(first, table)

  def _grow(self, rows: int) -> None:
    first = int(self._positions[-1])
    last = min(self._size, first + -(-rows // _EDGE_ROWS) * _EDGE_ROWS)
    positions, sums = summed(first, last, int(self._sums[-1]), self._units_of)
    self._positions = np.concatenate([self._positions, positions[1:]])
    self._sums = np.concatenate([self._sums, sums[1:]])


def summed(
  first: int, last: int, base: int, units_of: Callable[[int, int], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
  """Returns (positions, sums) of a range by planning all of it.

  Args:
    first: The first position.
    last: The position after the last.
    base: Units before the first.
    units_of: As in `Summed`.
  """
  positions = np.append(np.arange(first, last, _EDGE_ROWS), last)
  sums = np.empty(len(positions), np.int64)
  sums[0] = base
  for i in range(len(positions) - 1):
    background.check()
    units = units_of(int(positions[i]), int(positions[i + 1]))
    sums[i + 1] = sums[i] + int(units.sum())
  return positions, sums


class SourceUnits(units_lib.UnitSequence):
  """The units of a source's rows in its order, through all epochs.

  Attributes:
    unit: What is summed.
  """

  def __init__(
    self, source: row_source.RowSource, unit: str, max_epochs: int | None
  ):
    """Sums nothing yet.

    Args:
      source: The rows, in their order.
      unit: One of `mix_units.UNITS` for rows.
      max_epochs: Epochs offered, or None for ever.
    """
    if unit not in mix_units.of_kind("rows"):
      raise ValueError(
        f"`unit` must be one of {', '.join(mix_units.of_kind('rows'))}, got"
        f" {unit!r}. Choose one."
      )
    self._source = source
    known = mix_units.UNITS[unit].known_to_sources
    self._known = source.sums if known else row_sums.Sums()
    self.unit = unit
    self._max_epochs = max_epochs
    self._forget()

  def __getstate__(self) -> dict[str, Any]:
    state = dict(self.__dict__)
    del state["_epochs"], state["_starts"]
    return state

  def __setstate__(self, state: dict[str, Any]) -> None:
    self.__dict__.update(state)
    self._forget()

  def cost(self) -> str | None:
    """Returns what this unit costs in this order, or None if not long."""
    return None if self._epoch_rows() < _LONG_PASS else self.planned()

  def is_long(self, rows: int) -> bool:
    """Returns whether summing so many rows takes longer than a second or so."""
    return rows > _LONG_PASS and self.planned() is not None

  def planned(self) -> str | None:
    """Returns what must be planned for sums, in words, or None."""
    if self.unit == "rows" or self._known.known(self.unit):
      return None
    size = self._epoch_rows()
    return (
      f"summing {self.unit} over rows that vary, in this order, plans all"
      f" {size} rows of each epoch once, as far as the run gets (about"
      f" {size / _PASS_RATE:.1g} s); sequential and bin rows with shuffle.kind"
      " 'none' or 'block' need no such pass"
    )

  def _epoch_rows(self) -> int:
    ramp = self._source.epochs.ramp
    return self._first_row(ramp + 1) - self._first_row(ramp)

  @property
  def num_rows(self) -> int | None:
    """Rows offered, or None for ever."""
    return self._source.epochs.total(self._max_epochs)

  def most_tokens(self, rows: int, told: int) -> int:
    """Returns what so many rows can hold, of any order, at most.

    Args:
      rows: At most `num_rows`.
      told: A count of tokens; whether it is possible decides how much is
        looked at.
    """
    most = rows * self._source.seq_len
    if told > most or self.unit != "tokens":
      return most
    if told == int(self.before(np.asarray([rows]))[0]):
      return most
    # Of another run's order, or of none. Rows of a ramp may be longer.
    last = self._first_row(self._source.epochs.ramp + 1)
    if last > _LONG_PASS:
      return most
    longest = 0
    for first in range(0, last, _GROWN_ROWS):
      own = np.arange(first, min(first + _GROWN_ROWS, last))
      spans = self._source.plan(own)
      longest = max(longest, int(row_units(spans, "tokens").max()))
    return rows * longest

  def before(self, rows: np.ndarray) -> np.ndarray:
    """Returns int64[N], the units of rows 0 .. k - 1; see `UnitSequence`."""
    rows = np.asarray(rows, np.int64)
    if self.unit == "rows" or not len(rows):
      return rows.copy()
    epoch, index = self._source.epochs.locate(rows)
    number = int(epoch[0])
    if number == epoch[-1] and (epoch == number).all():
      # The common case: `unique` costs more than all of this.
      base = self._units_before_epoch(number)
      if not index.any():
        return np.full(len(rows), base, np.int64)
      return base + self._epoch(number).before(index)
    first = int(epoch.min())
    if self._each is not None and first >= self._source.epochs.ramp:
      # Of short epochs a merge looks through hundreds.
      rows = rows - self._first_row(first)
      return self._units_before_epoch(first) + rows * self._each
    out = np.empty(len(rows), np.int64)
    for number in np.unique(epoch).tolist():
      own = np.flatnonzero(epoch == number)
      out[own] = self._units_before_epoch(number)
      # The first position of an epoch needs no sums of that epoch.
      own = own[index[own] > 0]
      if own.size:
        out[own] += self._epoch(number).before(index[own])
    return out

  def rows_below(self, units: int) -> int:
    """Returns how many rows have less before them; see `UnitSequence`."""
    return self._rows(units, lambda epoch, left: epoch.below(left))

  def rows_near(self, units: int) -> int:
    """Returns about what `rows_below` does; see `least_consumed.Source`."""
    return self._rows(units, lambda epoch, left: epoch.near(left))

  def _rows(
    self, units: int, within: Callable[[Alike | Summed, int], int]
  ) -> int:
    limit = self.num_rows
    if units <= 0:
      return 0
    if self.unit == "rows":
      found = units
    else:
      epoch = self._epoch_of(units)
      left = units - self._units_before_epoch(epoch)
      found = self._first_row(epoch) + within(self._epoch(epoch), left)
    return found if limit is None else min(found, limit)

  def _epoch_of(self, units: int) -> int:
    """Returns the last epoch offered with fewer units before it."""
    alike = self._alike_from()
    last = None
    if self._max_epochs is not None:
      last = self._source.epochs.ramp + self._max_epochs - 1
    epoch = 0
    while epoch not in (last, alike):
      if self._units_before_epoch(epoch + 1) >= units:
        return epoch
      epoch += 1
    if epoch == alike:
      first, following = map(self._units_before_epoch, (epoch, epoch + 1))
      epoch += (units - 1 - first) // max(following - first, 1)
    return epoch if last is None else min(epoch, last)

  def _total(self, epoch: int) -> int:
    size = self._first_row(epoch + 1) - self._first_row(epoch)
    return int(self._epoch(epoch).before(np.asarray([size]))[0])

  def _units_before_epoch(self, epoch: int) -> int:
    alike = self._alike_from()
    last = epoch if alike is None else min(epoch, alike + 1)
    while len(self._starts) <= last:
      self._starts.append(self._starts[-1] + self._total(len(self._starts) - 1))
    each = self._starts[last] - self._starts[last - 1] if epoch > last else 0
    return self._starts[last] + (epoch - last) * each

  def _alike_from(self) -> int | None:
    """Returns the first epoch from which on all consume the same, if any."""
    if not self._known.epochs_repeat(self.unit):
      return None
    return self._source.epochs.ramp

  @functools.cached_property
  def _each(self) -> int | None:
    """What each row after the ramp consumes, if that is one number."""
    alike = self._alike_from()
    if alike is None:
      return None
    uniform = self._known.uniform(alike, self.unit)
    return None if uniform is None or uniform.exceptions else uniform.each

  def _first_row(self, epoch: int) -> int:
    return int(self._source.epochs.first_row(np.asarray([epoch]))[0])

  def _epoch(self, epoch: int) -> Alike | Summed:
    return self._epochs.get(epoch, lambda: self._make(epoch))

  def _make(self, epoch: int) -> Alike | Summed:
    start = self._first_row(epoch)
    size = self._first_row(epoch + 1) - start
    uniform = self._known.uniform(epoch, self.unit)
    if uniform is not None:
      return Alike(size, uniform)

    edges = self._known.edges(epoch, self.unit)
    if edges is None and size <= _TABLE_ROWS:
      table = self._known.of_rows(epoch, self.unit)
      if table is not None:
        return Summed(size, lambda first, last: table[first:last], None)

    def units_of(first: int, last: int) -> np.ndarray:
      known = self._known.at(epoch, self.unit, np.arange(first, last))
      if known is not None:
        return known
      rows = np.arange(start + first, start + last)
      return row_units(self._source.plan(rows), self.unit, self._source.store)

    return Summed(size, units_of, edges)

  def _forget(self) -> None:
    self._epochs = memo.Memo(_EPOCHS_KEPT)
    self._starts = [0]


def row_units(
  spans: spans_lib.Spans, unit: str, store: stores.Store | None = None
) -> np.ndarray:
  """Returns what each planned row consumes, int64[num_rows].

  Args:
    spans: The plan, of one source.
    unit: One of `mix_units.UNITS` for rows.
    store: The source's, where it may have labels.
  """
  own = mix_units.UNITS[unit]
  if own.of_labelled_rows and store is not None and not store.trains_on_all:
    return own.of_labelled_rows(spans, store)
  assert own.of_rows is not None
  return own.of_rows(spans)
