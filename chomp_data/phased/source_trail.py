# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""In which rows of a source, in its order, documents are, and how often.

The rows that hold a document (`RowSource.rows_of`) are mapped to positions by
the inverse of the order, so that no row before them is planned. If an epoch has
very many such rows, positions are searched in order instead, only as far as
they are needed. Epochs that repeat the same spans are counted once.
"""

import bisect
from collections.abc import Iterator
import itertools

import numpy as np

from chomp_data.index import intervals
from chomp_data.index import memo
from chomp_data.order import shuffled
from chomp_data.phased import phased_source
from chomp_data.sources import row_source

# Rows of an epoch whose positions are listed: 8 bytes and 0.1 us each.
_MAX_LISTED = 2**20
_CACHED_EPOCHS = 4
# To invert the order of a row costs as much as to search so many positions.
_INVERSE_COST = 4
# A document may be missing from some epochs, in a tail that is dropped, but
# not from so many in a row.
_MAX_EMPTY_EPOCHS = 64
# Rows that are planned, and positions that are searched, at once.
_BLOCK = 2**16
# Rows yielded at once: few at first, since few may be wanted.
_FIRST_ROWS, _MAX_ROWS = 16, 4_096
# Seconds to find a document in an epoch with another order of documents, and
# documents that are ordered per second.
_EPOCH_S, _DOCUMENTS_PER_S = 1e-3, 2e8

Ordered = phased_source.Ordered


class SourceTrail:
  """Rows of a source, in its order, that hold a span of one document."""

  def __init__(self, source: Ordered, document: int):
    """Binds a document; computes nothing yet.

    Args:
      source: The source in its order.
      document: The number of the document in the store of all its stores.
    """
    self._source = source
    self._document = document
    # None while the document's store has not joined.
    self._phases = [
      (epoch, phase if document < phase.store.num_documents else None)
      for epoch, phase in source.phases
    ]
    self._epochs = memo.Memo(_CACHED_EPOCHS)

  def cost(self, row: int) -> float:
    """Returns about how many seconds `count_before` takes.

    Args:
      row: The row, numbered through epochs.
    """
    phase = self._phases[-1][1]
    if phase is None or phase.rows.spans_repeat:
      return 0.0
    epochs = row // max(len(self._source), 1) + 1
    documents = phase.store.num_documents
    return epochs * (_EPOCH_S + documents / _DOCUMENTS_PER_S)

  def count_before(self, row: int) -> int:
    """Returns the number of spans of the document in the rows before one.

    Args:
      row: The row, numbered through epochs.
    """
    if row <= 0:
      return 0
    epoch, index = _located(self._source, row)
    ends = [*(first for first, _ in self._phases[1:]), epoch]
    total = self._count_in_epoch(epoch, index)
    for (first, phase), last in zip(self._phases, ends, strict=True):
      last = min(last, epoch)
      if phase is None or first >= last:
        continue
      if phase.rows.spans_repeat and last > phase.epochs.ramp:
        # Each of these epochs has as many spans as the first of them.
        first_repeated = max(first, phase.epochs.ramp)
        total += (last - first_repeated) * self._count_epoch(
          phase, first_repeated
        )
        last = first_repeated
      total += sum(
        self._count_epoch(phase, number) for number in range(first, last)
      )
    return total

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
    first, phase = self._phases[-1]
    if phase is None:
      return True
    if epoch < max(first, phase.epochs.ramp):
      return False
    if phase.rows.spans_repeat and empty_epochs:
      return not len(self._rows_of(phase, epoch)[0])
    return empty_epochs > _MAX_EMPTY_EPOCHS

  def _phase(self, epoch: int) -> shuffled.ShuffledSource | None:
    firsts = [first for first, _ in self._phases]
    return self._phases[bisect.bisect_right(firsts, epoch) - 1][1]

  def _rows_of(
    self, phase: shuffled.ShuffledSource, epoch: int
  ) -> intervals.Intervals:
    """Returns `RowSource.rows_of`, remembered for a few epochs."""
    return self._epochs.get(
      ("rows", epoch), lambda: phase.rows.rows_of(self._document, epoch)
    )

  def _listed(self, phase: shuffled.ShuffledSource, epoch: int) -> np.ndarray:
    """Returns int64[N], all positions of an epoch, ascending."""

    def positions() -> np.ndarray:
      rows = np.concatenate(
        [
          np.empty(0, np.int64),
          *itertools.starmap(
            np.arange, zip(*self._rows_of(phase, epoch), strict=True)
          ),
        ]
      )
      return np.sort(phase.positions(rows, epoch))

    return self._epochs.get(("positions", epoch), positions)

  def _positions(
    self, epoch: int, low: int, high: int, backwards: bool = False
  ) -> Iterator[np.ndarray]:
    """Yields the positions low to high - 1 that hold the document, in parts."""
    phase = self._phase(epoch)
    if phase is None:
      return
    rows = self._rows_of(phase, epoch)
    if _size(rows) <= _MAX_LISTED:
      listed = self._listed(phase, epoch)
      first, last = np.searchsorted(listed, (low, high))
      positions = listed[first:last]
      yield positions[::-1] if backwards else positions
      return
    near = phase.near(rows, epoch)
    for first, last in (near[::-1] if backwards else near).tolist():
      last = min(last, high)
      begins = range(max(first, low), last, _BLOCK)
      for block_start in reversed(begins) if backwards else begins:
        block_end = min(block_start + _BLOCK, last)
        positions = self._search_positions(phase, epoch, block_start, block_end)
        yield positions[::-1] if backwards else positions

  def _search_positions(
    self, phase: shuffled.ShuffledSource, epoch: int, first: int, last: int
  ) -> np.ndarray:
    """Returns positions first to last - 1 that hold the document, ascending."""
    range_starts, range_ends = self._rows_of(phase, epoch)
    positions = np.arange(first, last)
    start = phase.epochs.start(epoch)
    rows = phase.order(start + positions) - start
    range_index = np.searchsorted(range_starts, rows, side="right") - 1
    return positions[
      (range_index >= 0) & (rows < range_ends[np.maximum(range_index, 0)])
    ]

  def _count_epoch(self, phase: shuffled.ShuffledSource, epoch: int) -> int:
    """Returns the number of spans in an epoch."""
    rows = self._rows_of(phase, epoch)
    if phase.rows.one_span:
      return _size(rows)
    start = phase.rows.epochs.start(epoch)
    return sum(
      self._spans_in(phase.rows, np.arange(low, min(low + _BLOCK, last)))
      for first, last in zip(*(np.add(rows, start)).tolist(), strict=True)
      for low in range(first, last, _BLOCK)
    )

  def _count_in_epoch(self, epoch: int, index: int) -> int:
    """Returns the number of spans of an epoch at positions below one."""
    phase = self._phase(epoch)
    if phase is None or not index:
      return 0
    rows = self._rows_of(phase, epoch)
    if phase.rows.one_span and _size(rows) > _MAX_LISTED:
      return self._count_many(phase, epoch, index)
    total = 0
    for positions in self._positions(epoch, 0, index):
      if phase.rows.one_span:
        total += len(positions)
      else:
        total += self._spans_in(phase, phase.epochs.start(epoch) + positions)
    return total

  def _count_many(
    self, phase: shuffled.ShuffledSource, epoch: int, index: int
  ) -> int:
    """Returns the number of rows of an epoch at positions below one."""
    range_starts, range_ends = self._rows_of(phase, epoch)
    total = 0
    for first, last in phase.near((range_starts, range_ends), epoch).tolist():
      if last <= index:
        edges = np.clip((range_starts, range_ends), first, last)
        total += int((edges[1] - edges[0]).sum())
      elif first >= index:
        break
      elif _INVERSE_COST * _size((range_starts, range_ends)) < index - first:
        return sum(
          int(
            np.sum(
              phase.positions(np.arange(at, min(at + _BLOCK, stop)), epoch)
              < index
            )
          )
          for start, stop in zip(
            range_starts.tolist(), range_ends.tolist(), strict=True
          )
          for at in range(start, stop, _BLOCK)
        )
      else:
        total += sum(
          len(self._search_positions(phase, epoch, at, min(at + _BLOCK, index)))
          for at in range(first, index, _BLOCK)
        )
    return total

  def _spans_in(self, rows: row_source.RowSource, numbers: np.ndarray) -> int:
    """Returns the number of spans in rows int64[N], numbered through epochs."""
    return int(np.sum(rows.plan(numbers).document == self._document))


def exposures(source: Ordered, first: int, last: int) -> np.ndarray:
  """Returns the number of spans of each document in rows first to last - 1.

  Args:
    source: The source in its order.
    first: The first row, numbered through epochs.
    last: The row after the last one.

  Returns:
    int64[num_documents], by number in the store of all its stores.
  """
  exposure_counts = np.zeros(source.store.num_documents, np.int64)
  while first < last:
    epoch, index = _located(source, first)
    end = source.epochs.start(epoch + 1)
    if index or end > last:
      exposure_counts += _spans_of(
        source, first, min(end, last), len(exposure_counts)
      )
      first = end
      continue
    # Rows of a whole epoch are planned in no order: those that are packed or
    # read together are planned together.
    starts, count = source.phases, 1
    later_starts = [
      first_epoch for first_epoch, _ in starts if first_epoch > epoch
    ]
    phase = starts[len(starts) - len(later_starts) - 1][1]
    if phase.rows.spans_repeat and epoch >= phase.epochs.ramp:
      count = min([_located(source, last)[0], *later_starts]) - epoch
    start = phase.rows.epochs.start(epoch)
    stop = start + phase.rows.epochs.size(epoch)
    exposure_counts += count * _spans_of(
      phase.rows, start, stop, len(exposure_counts)
    )
    first = source.epochs.start(epoch + count)
  return exposure_counts


def _spans_of(
  rows: row_source.RowSource, first: int, last: int, num_documents: int
) -> np.ndarray:
  """Returns int64[num_documents], the spans of each in rows."""
  span_counts = np.zeros(num_documents, np.int64)
  for spans in row_source.planned_blocks(rows, first, last):
    np.add.at(span_counts, spans.document, 1)
  return span_counts


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
