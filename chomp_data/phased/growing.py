# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A source of several stores, the later of which join at an epoch.

    stores a, b; b joined at epoch 2
    epoch   0    1    2      3
    rows    a    a    a+b    a+b

From an epoch on a source is what it would have been from the start with the
stores that it then has, at that epoch: the same keys, the same windows. So
nothing before the epoch moves, whatever the kind of rows and the shuffle.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from chomp_data import schema
from chomp_data import stores
from chomp_data.order import shuffle_options
from chomp_data.order import shuffled
from chomp_data.rows import row_layout
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import row_source
from chomp_data.sources import row_sums

# Options that count the rows of a source from its start.
_BY_ROW = ("curriculum_every", "content_length_schedule")


class GrowingSource(row_source.RowSource):
  """Rows in their order, of more stores from some epochs on."""

  def __init__(
    self,
    phases: Sequence[shuffled.ShuffledSource],
    epochs: Sequence[int],
    path: str,
  ):
    """Binds phases.

    Args:
      phases: The source over the first stores, over those and the next, ...
      epochs: The first epoch of each, rising from 0.
      path: Dotted path of the source, for messages.

    Raises:
      ConfigError: If rows count from the start of the source.
    """
    own = phases[-1]
    counted = [n for n in _BY_ROW if getattr(own.rows.options, n, None)]
    if counted:
      raise schema.ConfigError(
        [
          f"`{path}.joined` must be 0 for every store with"
          f" `rows.{counted[0]}`, which counts rows from the start, got"
          f" {tuple(epochs)}. Begin a new run with all stores."
        ]
      )
    self.phases: tuple[shuffled.ShuffledSource, ...] = tuple(phases)
    self.name: str = own.name
    self.store: stores.Store = own.store
    self.layout: row_layout.RowLayout = own.layout
    self.options: Any = own.rows.options
    self.documents_follow: bool = own.documents_follow
    self.document_slots: int = max(phase.document_slots for phase in phases)
    self._epochs = np.asarray(epochs, np.int64)
    # Of each phase its first row, and which row of its own that is.
    own_first = [
      phase.first_row_of(epoch)
      for phase, epoch in zip(phases, epochs, strict=True)
    ]
    rows = [
      phases[i].first_row_of(int(epochs[i + 1])) - own_first[i]
      for i in range(len(phases) - 1)
    ]
    self._first = np.concatenate([[0], np.cumsum(rows)]).astype(np.int64)
    self._shift = np.asarray(own_first, np.int64) - self._first

  def __len__(self) -> int:
    return len(self.phases[0])

  @property
  def rows(self) -> row_source.RowSource:
    """The rows of all stores, as they are made."""
    return self.phases[-1].rows

  @property
  def windows(self) -> shuffle_options.Windows | None:
    """The windows of the first phase: what joins narrows no other source's."""
    return self.phases[0].windows

  def keep_windows(self, cache_bytes: int) -> None:
    """Keeps as many windows in memory as bytes allow; see `ShuffledSource`."""
    for phase in self.phases:
      phase.keep_windows(cache_bytes)

  def first_row(self, epoch: np.ndarray) -> np.ndarray:
    """Returns the number of each epoch's first row; see `RowSource`."""
    number = np.searchsorted(self._epochs, epoch, "right") - 1
    out = np.empty(len(epoch), np.int64)
    for i in np.unique(number).tolist():
      own = number == i
      out[own] = self.phases[i].first_row(epoch[own]) - self._shift[i]
    return out

  def locate(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (epoch, row of that epoch) of rows; see `RowSource`."""
    number = self._phase_of(rows)
    epoch, index = np.empty_like(rows), np.empty_like(rows)
    for i in np.unique(number).tolist():
      own = number == i
      epoch[own], index[own] = self.phases[i].locate(rows[own] + self._shift[i])
    return epoch, index

  def starts(self) -> list[tuple[int, shuffled.ShuffledSource]]:
    """Returns (first epoch, the source from there on), epochs rising."""
    return list(zip(self._epochs.tolist(), self.phases, strict=True))

  @property
  def lanes(self) -> int:
    """Lanes of the order; 1 is none."""
    return self.phases[0].lanes

  def lane_of(self, rows: np.ndarray) -> np.ndarray:
    """Returns the lanes of rows; see `ShuffledSource`."""
    return self.phases[0].lane_of(rows + self._shift[self._phase_of(rows)])

  def plan(self, rows: np.ndarray) -> spans_lib.Spans:
    """Plans rows; see `RowSource.plan`."""
    rows = row_source.checked_rows(rows)
    number = self._phase_of(rows)
    plans, picks = [], []
    for i in np.unique(number).tolist() or [0]:
      pick = np.flatnonzero(number == i)
      plans.append(self.phases[i].plan(rows[pick] + self._shift[i]))
      picks.append(pick)
    return plans[0] if len(plans) == 1 else spans_lib.merged(plans, picks)

  def read_group(self, row: int) -> tuple[int, int]:
    """Returns rows that are best read together; see `RowSource`."""
    number = int(self._phase_of(np.asarray([row], np.int64))[0])
    shift = int(self._shift[number])
    low, high = self.phases[number].read_group(row + shift)
    low = max(low - shift, int(self._first[number]))
    high -= shift
    if number + 1 < len(self.phases):
      high = min(high, int(self._first[number + 1]))
    return low, high

  def validation(self) -> row_source.RowSource | None:
    """Returns that of all stores; see `RowSource`."""
    return self.phases[-1].validation()

  @property
  def sums(self) -> row_sums.Sums:
    """What rows consume, by the phase of their epoch; see `RowSource`."""
    return _PhaseSums(self.phases, self._epochs)

  @property
  def fingerprint(self) -> dict[str, Any]:
    """The first phase, and what is other in those that joined."""
    first, *others = (phase.fingerprint for phase in self.phases)
    joined = {
      str(epoch): {k: v for k, v in own.items() if first.get(k) != v}
      for epoch, own in zip(self._epochs[1:].tolist(), others, strict=True)
    }
    return {**first, "joined": joined}

  def describe(self) -> str:
    """Returns the summary of the phases."""
    lines = [self.phases[0].describe()]
    for epoch, phase in zip(self._epochs[1:], self.phases[1:], strict=True):
      store = phase.store
      lines.append(
        f"  from epoch {epoch}: {phase.epoch_rows(int(epoch))} rows of"
        f" {store.num_documents} documents, {store.num_tokens} tokens"
      )
    return "\n".join(lines)

  def _phase_of(self, rows: np.ndarray) -> np.ndarray:
    return np.searchsorted(self._first, rows, "right") - 1


class _PhaseSums(row_sums.Sums):
  """What the phases know, each of its own epochs."""

  def __init__(
    self, phases: Sequence[shuffled.ShuffledSource], epochs: np.ndarray
  ):
    self._sums = [phase.sums for phase in phases]
    self._epochs = epochs

  def _at(self, epoch: int) -> row_sums.Sums:
    return self._sums[int(np.searchsorted(self._epochs, epoch, "right")) - 1]

  def uniform(self, epoch: int, unit: str) -> row_sums.Uniform | None:
    """Returns what rows consume; see `Sums`."""
    return self._at(epoch).uniform(epoch, unit)

  def epoch_total(self, epoch: int, unit: str) -> int | None:
    """Returns what an epoch consumes; see `Sums`."""
    return self._at(epoch).epoch_total(epoch, unit)

  def edges(self, epoch: int, unit: str) -> row_sums.Edges | None:
    """Returns where units are known; see `Sums`."""
    return self._at(epoch).edges(epoch, unit)
