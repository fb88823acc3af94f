# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""In which rows of a source, in its order, a document is.

The rows that hold a document (`RowSource.rows_of`) are mapped to positions by
the inverse of the order, so that no row before them is planned. If an epoch has
very many such rows, positions are searched in order instead, only as far as
they are needed.
"""

from collections.abc import Iterator
import itertools

import numpy as np

from chomp_data.index import intervals
from chomp_data.index import memo
from chomp_data.index import ragged
from chomp_data.phased import phased_source

# Rows of an epoch whose positions are listed: 8 bytes and 0.1 us each.
MAX_LISTED = 2**20
_CACHED_EPOCHS = 4
# A document may be missing from some epochs, in a tail that is dropped, but
# not from so many in a row.
_MAX_EMPTY_EPOCHS = 64
# Rows that are planned, and positions that are searched, at once.
_BLOCK = 2**16
# Rows yielded at once: few at first, because a caller may need only few.
_FIRST_ROWS, _MAX_ROWS = 16, 4_096

Ordered = phased_source.Ordered


class SourceTrail:
  """Rows of a source, in its order, that hold a span of one document."""

  def __init__(self, source: Ordered, document: int):
    """Binds a document; computes nothing.

    Args:
      source: The source in its order.
      document: The number of the document in the store of all its stores.
    """
    self._source = source
    self._document = document

  def next_rows(self, row: int) -> Iterator[np.ndarray]:
    """Yields the rows that hold the document, from one on, ascending.

    Args:
      row: The first row, numbered through epochs.

    Yields:
      int64[N] each; without end where the source has none.
    """
    epoch, index = _located(self._source, row)
    empty_epochs = 0
    for number in itertools.count(epoch):
      if self._is_over(number, empty_epochs):
        return
      first = self._source.epochs.start(number)
      low = index if number == epoch else 0
      empty_epochs += 1
      high = self._source.epochs.size(number)
      for positions in self._positions(number, low, high):
        if len(positions):
          empty_epochs = 0
        yield from _parts(first + positions)

  def previous_rows(self, row: int) -> Iterator[np.ndarray]:
    """Yields the rows before one that hold the document, descending.

    Args:
      row: The row after the first that is yielded, numbered through epochs.
    """
    if row <= 0:
      return
    epoch, index = _located(self._source, row)
    for number in range(epoch, -1, -1):
      first = self._source.epochs.start(number)
      high = index if number == epoch else self._source.epochs.size(number)
      for positions in self._positions(number, 0, high, backwards=True):
        yield from _parts(first + positions)

  def _is_over(self, epoch: int, empty_epochs: int) -> bool:
    """Returns whether no epoch from one on holds the document.

    Args:
      epoch: The epoch.
      empty_epochs: How many epochs right before it do not hold it.
    """
    first, phase = self._source.phases[-1]
    if epoch < max(first, phase.epochs.ramp):
      return False
    if "spans" in phase.rows.repeating_units and empty_epochs:
      return not len(self._rows_of(epoch)[0])
    return empty_epochs > _MAX_EMPTY_EPOCHS

  @memo.remembered(_CACHED_EPOCHS)
  def _rows_of(self, epoch: int) -> intervals.Intervals:
    """Returns `RowSource.rows_of`; none before the document's store joins."""
    phase = phased_source.phase_at(self._source, epoch)
    if self._document >= phase.store.num_documents:
      return np.empty(0, np.int64), np.empty(0, np.int64)
    return phase.rows.rows_of(self._document, epoch)

  @memo.remembered(_CACHED_EPOCHS)
  def _listed(self, epoch: int) -> np.ndarray:
    """Returns int64[N], all positions of an epoch, ascending."""
    first, last = self._rows_of(epoch)
    rows = ragged.ranges(first, last - first)
    phase = phased_source.phase_at(self._source, epoch)
    return np.sort(phase.positions(rows, epoch))

  def _positions(
    self, epoch: int, low: int, high: int, backwards: bool = False
  ) -> Iterator[np.ndarray]:
    """Yields the positions low to high - 1 that hold the document, in parts."""
    rows = self._rows_of(epoch)
    if _size(rows) <= MAX_LISTED:
      listed = self._listed(epoch)
      first, last = np.searchsorted(listed, (low, high))
      positions = listed[first:last]
      yield positions[::-1] if backwards else positions
      return
    near = phased_source.phase_at(self._source, epoch).near(rows, epoch)
    for first, last in (near[::-1] if backwards else near).tolist():
      last = min(last, high)
      begins = range(max(first, low), last, _BLOCK)
      for block_start in reversed(begins) if backwards else begins:
        block_end = min(block_start + _BLOCK, last)
        positions = self._search_positions(epoch, block_start, block_end)
        yield positions[::-1] if backwards else positions

  def _search_positions(self, epoch: int, first: int, last: int) -> np.ndarray:
    """Returns positions first to last - 1 that hold the document, ascending."""
    phase = phased_source.phase_at(self._source, epoch)
    range_starts, range_ends = self._rows_of(epoch)
    positions = np.arange(first, last)
    start = phase.epochs.start(epoch)
    rows = phase.order(start + positions) - start
    range_index = np.searchsorted(range_starts, rows, side="right") - 1
    return positions[
      (range_index >= 0) & (rows < range_ends[np.maximum(range_index, 0)])
    ]


def _located(source: Ordered, row: int) -> tuple[int, int]:
  """Returns the epoch of a row, and its position in the epoch."""
  epoch, index = source.epochs.locate(np.asarray([row], np.int64))
  return int(epoch[0]), int(index[0])


def _size(rows: intervals.Intervals) -> int:
  return int((rows[1] - rows[0]).sum())


def _parts(rows: np.ndarray) -> Iterator[np.ndarray]:
  """Yields rows in parts, short ones first."""
  low, size = 0, _FIRST_ROWS
  while low < len(rows):
    yield rows[low : low + size]
    low, size = low + size, min(2 * size, _MAX_ROWS)
