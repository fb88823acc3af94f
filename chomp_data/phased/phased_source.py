# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Sources whose epochs come from others: phases, and what a run left over.

    stores a, b; b joins at epoch 2         a run that starts after another
    epoch   0    1    2      3              epoch   0               1    2
    rows    a    a    a+b    a+b            rows    remainder of a  a    a

Each phase has the rows that its source has in these epochs, with the same keys
and windows. So a phase does not change the rows of the phases before it,
whatever the kind of rows and the shuffle. What another run left of its epoch is
packed like a store of its own, whose documents are pieces of documents; plans
name the documents themselves.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

import numpy as np

from chomp_data import schema
from chomp_data import stores
from chomp_data.index import intervals
from chomp_data.index import ragged
from chomp_data.order import shuffle_options
from chomp_data.order import shuffled
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import epochs as epochs_lib
from chomp_data.sources import row_source
from chomp_data.sources import wrapped_source
from chomp_data.stores import remainder

# Options that count the rows of a source from its start.
_BY_ROW = ("curriculum_every", "content_length_schedule")


class PhaseEpochs(epochs_lib.Epochs):
  """The epochs of several phases, each from its first epoch on."""

  def __init__(self, phases: Sequence[tuple[int, epochs_lib.Epochs]]):
    """Numbers the rows of all phases.

    Args:
      phases: (first epoch, epochs of the source), ascending from epoch 0.
    """
    self._epochs = [epochs for _, epochs in phases]
    self._first_epochs = np.asarray([first for first, _ in phases])
    starts = [epochs.start(first) for first, epochs in phases]
    ends = self._first_epochs[1:].tolist()
    row_counts = [
      epochs.start(end) - start
      for epochs, start, end in zip(self._epochs, starts, ends, strict=False)
    ]
    # The first row of each phase, and the difference to its source's numbers.
    self._first_rows = np.cumsum([0, *row_counts])
    self._shifts = np.asarray(starts) - self._first_rows

  def first_row(self, epoch: np.ndarray) -> np.ndarray:
    """Returns the number of each epoch's first row, int64[N]."""
    first_rows = np.empty(len(epoch), np.int64)
    phases = np.searchsorted(self._first_epochs, epoch, "right") - 1
    for phase, pick in ragged.by_value(phases):
      first = self._epochs[phase].first_row(epoch[pick])
      first_rows[pick] = first - self._shifts[phase]
    return first_rows

  def locate(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (epoch, row of that epoch) of rows, int64[N] each."""
    epoch, index = np.empty_like(rows), np.empty_like(rows)
    for phase, pick, source_rows in self.source_rows(rows):
      epoch[pick], index[pick] = self._epochs[phase].locate(source_rows)
    return epoch, index

  def source_rows(
    self, rows: np.ndarray
  ) -> Iterator[tuple[int, np.ndarray | slice, np.ndarray]]:
    """Yields rows by phase, with the numbers that they have in its source.

    Args:
      rows: int64[N].

    Yields:
      The number of the phase, the indices of its rows in `rows`, and int64[M],
      their numbers in its source.
    """
    phases = np.searchsorted(self._first_rows, rows, "right") - 1
    for phase, pick in ragged.by_value(phases):
      yield phase, pick, rows[pick] + self._shifts[phase]


class PhasedSource(wrapped_source.WrappedSource):
  """Rows in their order, from a different source in each phase.

  Attributes:
    phases: (first epoch, source of the epochs from there on), ascending from
      epoch 0.
    rows: The source of the last phase, unordered.
  """

  def __init__(
    self,
    phases: Mapping[int, shuffled.ShuffledSource],
    *,
    fingerprint: Mapping[str, Any],
    heading: str | None = None,
  ):
    """Binds phases.

    Args:
      phases: Sources by the first epoch of each, one of them from epoch 0.
      fingerprint: What determines the rows, as JSON values.
      heading: First line of the summary.
    """
    self.phases: tuple[tuple[int, shuffled.ShuffledSource], ...] = tuple(
      sorted(phases.items())
    )
    self._sources = [source for _, source in self.phases]
    self._fingerprint = dict(fingerprint)
    self._heading = heading
    super().__init__(self._sources[-1].rows)
    self.document_slots: int = max(
      source.document_slots for source in self._sources
    )
    self._epochs = PhaseEpochs(
      [(epoch, source.epochs) for epoch, source in self.phases]
    )

  def __len__(self) -> int:
    return len(self._sources[0])

  @property
  def windows(self) -> shuffle_options.Windows | None:
    """The windows of the first phase, which share the budget of the run."""
    return self._sources[0].windows

  def keep_windows(self, cache_bytes: int) -> None:
    """Keeps as many windows of each phase in memory as bytes allow."""
    for source in self._sources:
      source.keep_windows(cache_bytes)

  @property
  def epochs(self) -> epochs_lib.Epochs:
    """Those of each phase from its first epoch on."""
    return self._epochs

  @property
  def lanes(self) -> int:
    """Lanes of the order; 1 is none."""
    return self._sources[0].lanes

  def lane_of(self, rows: np.ndarray) -> np.ndarray:
    """Returns the lanes of rows int64[N], numbered through all epochs."""
    lanes = np.empty(len(rows), np.int64)
    for phase, pick, source_rows in self._epochs.source_rows(rows):
      lanes[pick] = self._sources[phase].lane_of(source_rows)
    return lanes

  def plan(self, rows: np.ndarray) -> spans_lib.Spans:
    """Plans rows int64[N], those of each phase together."""
    rows = row_source.checked_rows(rows)
    parts = list(self._epochs.source_rows(rows))
    plans = [self._sources[phase].plan(numbers) for phase, _, numbers in parts]
    if not plans:
      return self._sources[0].plan(rows)
    if len(plans) == 1:
      return plans[0]
    every_row = np.arange(len(rows))
    return spans_lib.merged(plans, [every_row[pick] for _, pick, _ in parts])

  def read_group(self, row: int) -> tuple[int, int]:
    """Returns rows of one epoch that are best read together."""
    epoch = int(self._epochs.locate(np.asarray([row]))[0][0])
    first, last = self._epochs.start(epoch), self._epochs.start(epoch + 1)
    source = self.source_of(epoch)
    shift = source.epochs.start(epoch) - first
    low, high = source.read_group(row + shift)
    return max(low - shift, first), min(high - shift, last)

  @property
  def repeating_units(self) -> Mapping[str, int]:
    """Those of the last phase, from its first epoch on at the earliest."""
    first, last = self.phases[-1]
    units = last.repeating_units
    return {unit: max(first, epoch) for unit, epoch in units.items()}

  def prepare(self, max_epochs: int | None, full_order: bool = False) -> None:
    """Announces a reader of its epochs to each phase."""
    ends = [*(epoch for epoch, _ in self.phases[1:]), max_epochs]
    for source, end in zip(self._sources, ends, strict=True):
      if max_epochs is not None and end is not None:
        end = min(end, max_epochs)
      source.prepare(end, full_order)

  def source_of(self, epoch: int) -> shuffled.ShuffledSource:
    """Returns the phase that gives the rows of an epoch."""
    return phase_at(self, epoch)

  @property
  def fingerprint(self) -> dict[str, Any]:
    """What determines this source's rows, as JSON values."""
    return self._fingerprint

  def describe(self) -> str:
    """Returns the summary of the phases."""
    lines = [] if self._heading is None else [self._heading]
    lines.append(self._sources[0].describe())
    for epoch, source in self.phases[1:]:
      lines.append(
        f"  from epoch {epoch}: {source.epochs.size(epoch)} rows of"
        f" {source.store.num_documents} documents,"
        f" {source.store.num_tokens} tokens"
      )
    return "\n".join(lines)


class RemainderSource(wrapped_source.WrappedSource):
  """Rows of pieces of documents, as rows of these documents.

  Attributes:
    remaining: The pieces, as a store.
  """

  def __init__(self, pieces: row_source.RowSource):
    """Wraps a source.

    Args:
      pieces: Rows over a `RemainderStore`.
    """
    super().__init__(pieces)
    assert isinstance(pieces.store, remainder.RemainderStore)
    self.remaining: remainder.RemainderStore = pieces.store
    self.store: stores.Store = self.remaining.whole
    # Tokens between the pieces are in no row.
    self.documents_follow: bool = False

  def plan(self, rows: np.ndarray) -> spans_lib.Spans:
    """Plans rows int64[N]; spans name whole documents."""
    spans = self.rows.plan(rows)
    document, start = self.remaining.pieces.documents_of(spans.document)
    return dataclasses.replace(
      spans, document=document, start=spans.start + start
    )

  @row_source.checks_documents
  def rows_of(
    self, documents: np.ndarray | int, epoch: int
  ) -> intervals.Intervals:
    """Returns the rows that hold pieces of some documents, as ranges."""
    documents = np.asarray(documents)
    present = documents[documents < self.remaining.whole.num_documents]
    pieces = [np.empty(0, np.int64)]
    pieces += map(self.remaining.pieces.of_document, present.tolist())
    return self.rows.rows_of(np.concatenate(pieces), epoch)

  def documents_used(self) -> np.ndarray:
    """Returns the documents that have pieces, int64[D], ascending."""
    return self.remaining.pieces.documents()


# A source in its order, of one phase or of several.
Ordered = shuffled.ShuffledSource | PhasedSource


def phase_at(source: Ordered, epoch: int) -> shuffled.ShuffledSource:
  """Returns the phase of a source that gives the rows of an epoch."""
  return [phase for first, phase in source.phases if first <= epoch][-1]


def of_joining_stores(
  phases: Mapping[int, shuffled.ShuffledSource], path: str
) -> Ordered:
  """Returns a source of several stores, the later of which join at an epoch.

  Args:
    phases: By epoch, the source over the stores that are present from there
      on, the first from epoch 0.
    path: Dotted path of the source, for messages.

  Raises:
    ConfigError: If rows count from the start of the source.
  """
  (_, first), *others = sorted(phases.items())
  if not others:
    return first
  options = first.rows.options
  counted = [name for name in _BY_ROW if getattr(options, name, None)]
  if counted:
    raise schema.ConfigError(
      [
        f"`{path}.joined` must be 0 for every store with `rows.{counted[0]}`,"
        " which counts rows from the start, got"
        f" {tuple(sorted(phases))}. Begin a new run with all stores."
      ]
    )
  fingerprint = first.fingerprint
  joined = {
    str(epoch): {
      key: value
      for key, value in source.fingerprint.items()
      if fingerprint.get(key) != value
    }
    for epoch, source in others
  }
  return PhasedSource(phases, fingerprint={**fingerprint, "joined": joined})


def continued(
  source: Ordered,
  first_epoch: shuffled.ShuffledSource,
  previous_run: Mapping[str, Any],
) -> PhasedSource:
  """Returns a source whose first epoch is what remains of another run's.

  Args:
    source: The rows of all other epochs.
    first_epoch: Rows of a `RemainderSource`, in their order.
    previous_run: What determines the remaining pieces, as JSON values.
  """
  begins_at = dict(source.phases)
  pieces = first_epoch.rows
  assert isinstance(pieces, RemainderSource)
  return PhasedSource(
    {1: begins_at[0], **begins_at, 0: first_epoch},
    fingerprint={**source.fingerprint, "after": dict(previous_run)},
    heading=(
      f"[{source.name}] continues after row {previous_run['rows']} of an"
      f" earlier run: {pieces.remaining.num_tokens} of"
      f" {source.store.num_tokens} tokens remain of its epoch"
    ),
  )
