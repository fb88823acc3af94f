# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Where a document comes in a source's order, and how often it has come.

Rows that hold it are asked of the source (`row_tracing`) and turned into
positions by the inverse of the order: nothing before them is planned. Where an
epoch has very many of them, positions are looked through instead, only as far
as they are asked for.
"""

import bisect
from collections.abc import Iterator
import itertools

import numpy as np

from chomp_data.index import memo
from chomp_data.order import shuffled
from chomp_data.phased import phased_source
from chomp_data.sources import row_tracing

# Rows of an epoch whose positions are listed: 8 bytes and 0.1 us each.
_LISTED = 2**20
_EPOCHS_KEPT = 4
# An inverse costs about as much as looking through so many positions.
_INVERSE = 4
# A document may miss some epochs, in a tail that is dropped; but not so many.
_PATIENCE = 64
# Positions looked through at once.
_BLOCK = 2**16
# Rows returned at once: few at first, since few may be wanted.
_FIRST, _MOST = 16, 4_096

Ordered = phased_source.Ordered


class SourceTrail:
  """Rows of a source, in its order, that hold some of a document."""

  def __init__(self, source: Ordered, document: int):
    """Looks for nothing yet.

    Args:
      source: In its order.
      document: Its number in the store of all of them.
    """
    self._source = source
    self._document = document
    # From an epoch on: None while its store has not joined.
    self._phases = [
      (epoch, own if document < own.store.num_documents else None)
      for epoch, own in source.phases
    ]
    self._lists = memo.Memo(_EPOCHS_KEPT)

  def cost(self, row: int) -> float:
    """Returns about how many seconds it takes to count the spans below a row.

    Args:
      row: Of the source, counted through epochs.
    """
    phase = self._phases[-1][1]
    epochs = row // max(len(self._source), 1) + 1
    return 0.0 if phase is None else phase.rows.tracing.cost(epochs)

  def below(self, row: int) -> int:
    """Returns the spans of the document in the rows before one.

    Args:
      row: Of the source, counted through epochs.
    """
    if row <= 0:
      return 0
    epoch, index = self._located(row)
    total = 0
    ends = [own for own, _ in self._phases[1:]]
    for (first, phase), last in zip(self._phases, [*ends, epoch], strict=True):
      last = min(last, epoch)
      if phase is not None and first < last:
        tracing = phase.rows.tracing
        total += tracing.before(self._document, last)
        total -= tracing.before(self._document, first)
    return total + self._in_epoch(epoch, index)

  def ahead(self, row: int) -> Iterator[np.ndarray]:
    """Yields rows that hold some of the document, from one on, ascending.

    Args:
      row: The first that is looked at.

    Yields:
      int64[N] each; for ever where the source never ends.
    """
    epoch, index = self._located(row)
    empty = 0
    for number in itertools.count(epoch):
      if self._is_over(number, empty):
        return
      size = self._source.epochs.size(number)
      first = self._source.epochs.start(number)
      low = index if number == epoch else 0
      empty += 1
      for positions in self._positions(number, low, size):
        if len(positions):
          empty = 0
        yield from _parts(first + positions)

  def _is_over(self, epoch: int, empty: int) -> bool:
    """Returns whether no epoch from one on holds any of the document.

    Args:
      epoch: The epoch.
      empty: How many before it held none.
    """
    begins, phase = self._phases[-1]
    if phase is None:
      return True
    if epoch < max(begins, phase.epochs.ramp):
      return False
    tracing = phase.rows.tracing
    if tracing.never(self._document):
      return True
    if not tracing.repeats:
      return empty > _PATIENCE
    return not self._lists.get(
      "whole", lambda: tracing.count(self._document, epoch)
    )

  def back(self, row: int) -> Iterator[np.ndarray]:
    """Yields rows that hold some of the document, before one, descending.

    Args:
      row: The row after the last that is looked at.
    """
    if row <= 0:
      return
    epoch, index = self._located(row)
    for number in range(epoch, -1, -1):
      first = self._source.epochs.start(number)
      high = index if number == epoch else self._source.epochs.size(number)
      for positions in self._positions(number, 0, high, backwards=True):
        yield from _parts(first + positions)

  def _located(self, row: int) -> tuple[int, int]:
    epoch, index = self._source.epochs.locate(np.asarray([row], np.int64))
    return int(epoch[0]), int(index[0])

  def _phase(self, epoch: int) -> shuffled.ShuffledSource | None:
    at = bisect.bisect_right([first for first, _ in self._phases], epoch) - 1
    return self._phases[at][1]

  def _rows_of(self, phase: shuffled.ShuffledSource, epoch: int) -> np.ndarray:
    return self._lists.get(
      ("rows", epoch),
      lambda: phase.rows.tracing.rows_of(self._document, epoch),
    )

  def _listed(self, phase: shuffled.ShuffledSource, epoch: int) -> np.ndarray:
    """Returns int64[N], all positions of an epoch, ascending."""

    def listed() -> np.ndarray:
      rows = _each(self._rows_of(phase, epoch))
      if not phase.rows.tracing.exact:
        rows = self._holding(phase, epoch, rows)
      return np.sort(phase.positions(rows, epoch))

    return self._lists.get(("positions", epoch), listed)

  def _holding(
    self, phase: shuffled.ShuffledSource, epoch: int, rows: np.ndarray
  ) -> np.ndarray:
    """Returns those of an epoch's rows int64[N] that hold the document."""
    kept = [np.empty(0, np.int64)]
    start = phase.rows.epochs.start(epoch)
    for low in range(0, len(rows), _BLOCK):
      own = rows[low : low + _BLOCK]
      spans = phase.rows.plan(start + own)
      kept.append(own[np.unique(spans.row[spans.document == self._document])])
    return np.concatenate(kept)

  def _positions(
    self, epoch: int, low: int, high: int, backwards: bool = False
  ) -> Iterator[np.ndarray]:
    """Yields positions low .. high - 1 that hold some, in parts."""
    phase = self._phase(epoch)
    if phase is None:
      return
    found = self._rows_of(phase, epoch)
    if row_tracing.num_rows(found) <= _LISTED:
      listed = self._listed(phase, epoch)
      first, last = np.searchsorted(listed, (low, high))
      own = listed[first:last]
      yield own[::-1] if backwards else own
      return
    near = phase.near(found, epoch)
    for first, last in (near[::-1] if backwards else near).tolist():
      first, last = max(first, low), min(last, high)
      begins = range(first, last, _BLOCK)
      for begin in reversed(begins) if backwards else begins:
        own = self._looked_through(
          phase, epoch, found, begin, min(begin + _BLOCK, last)
        )
        yield own[::-1] if backwards else own

  def _looked_through(
    self,
    phase: shuffled.ShuffledSource,
    epoch: int,
    found: np.ndarray,
    first: int,
    last: int,
  ) -> np.ndarray:
    """Returns positions of first .. last - 1 that hold some, ascending."""
    start = phase.rows.epochs.start(epoch)
    own_start = phase.epochs.start(epoch)
    positions = np.arange(first, last)
    rows = phase.order(own_start + positions) - start
    at = np.searchsorted(found[:, 0], rows, side="right") - 1
    inside = (at >= 0) & (rows < found[np.maximum(at, 0), 1])
    positions, rows = positions[inside], rows[inside]
    if phase.rows.tracing.exact:
      return positions
    return positions[np.isin(rows, self._holding(phase, epoch, rows))]

  def _in_epoch(self, epoch: int, index: int) -> int:
    """Returns the spans of an epoch at positions below one."""
    phase = self._phase(epoch)
    if phase is None or not index:
      return 0
    tracing, found = phase.rows.tracing, self._rows_of(phase, epoch)
    total = row_tracing.num_rows(found)
    if total <= _LISTED or not tracing.exact:
      return sum(
        self._spans_at(phase, epoch, own)
        for own in self._positions(epoch, 0, index)
      )
    count = 0
    for first, last in phase.near(found, epoch).tolist():
      if last <= index:
        count += _within(found, first, last)
      elif first < index:
        if _INVERSE * total < index - first:
          return self._inverted(phase, epoch, found, index)
        for begin in range(first, index, _BLOCK):
          end = min(begin + _BLOCK, index)
          count += len(self._looked_through(phase, epoch, found, begin, end))
    return count

  def _spans_at(
    self, phase: shuffled.ShuffledSource, epoch: int, positions: np.ndarray
  ) -> int:
    tracing = phase.rows.tracing
    if tracing.exact:
      return len(positions)
    rows = phase.order(phase.epochs.start(epoch) + positions)
    return tracing.spans_in(self._document, rows)

  def _inverted(
    self,
    phase: shuffled.ShuffledSource,
    epoch: int,
    found: np.ndarray,
    index: int,
  ) -> int:
    count = 0
    for first, last in found.tolist():
      for low in range(first, last, _BLOCK):
        rows = np.arange(low, min(low + _BLOCK, last))
        count += int(np.sum(phase.positions(rows, epoch) < index))
    return count


def _parts(rows: np.ndarray) -> Iterator[np.ndarray]:
  """Yields rows in parts, short ones first."""
  low, size = 0, _FIRST
  while low < len(rows):
    yield rows[low : low + size]
    low, size = low + size, min(2 * size, _MOST)


def _each(found: np.ndarray) -> np.ndarray:
  """Returns the rows of ranges int64[N, 2]."""
  parts = [np.arange(first, last) for first, last in found.tolist()]
  return np.concatenate([np.empty(0, np.int64), *parts])


def _within(found: np.ndarray, first: int, last: int) -> int:
  """Returns how many rows of ranges lie in first .. last - 1."""
  low = np.clip(found[:, 0], first, last)
  high = np.clip(found[:, 1], first, last)
  return int((high - low).sum())
