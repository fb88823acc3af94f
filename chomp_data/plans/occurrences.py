# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How often a run reads each of some documents, and when first and last.

Only rows that hold one of the documents are planned. Epochs that hold the same
spans, in other rows, are counted together where a range of steps holds all of
them; where it holds a part of one, places of the rows of this epoch are
computed.
"""

from collections.abc import Iterator
import dataclasses
import itertools
from typing import Protocol

import numpy as np

from chomp_data import stores
from chomp_data.index import memo
from chomp_data.index import ragged
from chomp_data.pack import packed_source
from chomp_data.phased import phased_source
from chomp_data.plans import batches_plan
from chomp_data.plans import plan as plan_lib
from chomp_data.plans import rows_plan
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import row_labels

# The end of a part that is the whole document, also of one without tokens.
WHOLE = 2**62
# Rows planned at once, and the most rows of an epoch that stay planned.
_BLOCK, _CACHED_ROWS = 2**16, 2**20
_REPEATING = ("spans", "loss_tokens")

# Rows of an epoch, int64[R], and their spans.
_Rows = tuple[np.ndarray, spans_lib.Spans]


@dataclasses.dataclass(frozen=True)
class Parts:
  """Documents of one source, or parts of them.

  Attributes:
    document: int64[N], ascending.
    begin: int64[N], the first token.
    end: int64[N], the token after the last; `WHOLE` for the whole document.
  """

  document: np.ndarray
  begin: np.ndarray
  end: np.ndarray


@dataclasses.dataclass(frozen=True)
class Counts:
  """What ranges of steps hold of parts of documents.

  Attributes:
    exposures: int64[R, N], spans that hold a token of a part, or samples.
    trained: int64[R, N], tokens of a part that are trained on.
    first: int64[N], the first step that holds a token of a part; -1 if none.
    last: int64[N], the last such step; -1 if none.
  """

  exposures: np.ndarray
  trained: np.ndarray
  first: np.ndarray
  last: np.ndarray


class _Order(Protocol):
  """Places of a run, in epochs, of rows that may hold the documents."""

  def place(self, data_step: int) -> int:
    """Returns the first place of a data step."""
    ...

  def epoch(self, place: int) -> int:
    """Returns the epoch of a place."""
    ...

  def start(self, epoch: int) -> int:
    """Returns the first place of an epoch."""
    ...

  def alike(self, epoch: int) -> int:
    """Returns the next epoch whose spans may not be those of this one."""
    ...

  def rows(self, epoch: int) -> Iterator[_Rows]:
    """Yields the rows of an epoch that hold a document."""
    ...

  def places(self, rows: np.ndarray, epoch: int) -> np.ndarray:
    """Returns the places of rows, int64[R]; -1 where the epoch has none."""
    ...

  def data_steps(self, places: np.ndarray) -> np.ndarray:
    """Returns the data steps of places int64[N], ascending."""
    ...


class _SourceOrder:
  """The rows of a source, in its order."""

  def __init__(self, plan: rows_plan.RowsPlan, source: str, parts: Parts):
    self._plan = plan
    self._name = source
    self._number = plan.source_names.index(source)
    self._source = plan.ordered[source]
    self._documents = np.unique(parts.document)
    self._are_whole = bool((parts.end == WHOLE).all())
    self._planned = memo.Memo(_CACHED_ROWS)

  def place(self, data_step: int) -> int:
    return self._plan.rows_before(data_step)[self._name]

  def epoch(self, place: int) -> int:
    return int(self._source.epochs.locate(np.asarray([place]))[0][0])

  def start(self, epoch: int) -> int:
    return self._source.epochs.start(epoch)

  def alike(self, epoch: int) -> int:
    rows = phased_source.phase_at(self._source, epoch).rows
    units = rows.repeating_units
    # Others than packers may have as many spans, but of other tokens.
    alike = self._are_whole or isinstance(rows, packed_source.PackedSource)
    if not alike or any(epoch < units.get(u, WHOLE) for u in _REPEATING):
      return epoch + 1
    later = [first for first, _ in self._source.phases if first > epoch]
    return min(later, default=WHOLE)

  def rows(self, epoch: int) -> Iterator[_Rows]:
    planned = self._planned.get(epoch)
    if planned is not None:
      yield from planned
      return
    source = phased_source.phase_at(self._source, epoch).rows
    present = self._documents < source.store.num_documents
    documents = self._documents[present]
    first, end = source.rows_holding(documents, epoch)
    numbers = ragged.ranges(first, end - first)
    planned = []
    for low in range(0, len(numbers), _BLOCK):
      rows = numbers[low : low + _BLOCK]
      spans = source.plan(source.epochs.start(epoch) + rows)
      pick = np.flatnonzero(np.isin(spans.document, documents))
      spans = spans.take(pick, spans.row[pick], spans.num_rows)
      source_number = np.full(len(spans), self._number, np.int32)
      block = rows, dataclasses.replace(spans, source=source_number)
      yield block
      if len(numbers) <= _CACHED_ROWS:
        planned.append(block)
    if len(numbers) <= _CACHED_ROWS:
      self._planned.put(epoch, planned, len(numbers) + 1)

  def places(self, rows: np.ndarray, epoch: int) -> np.ndarray:
    phase = phased_source.phase_at(self._source, epoch)
    return self.start(epoch) + phase.positions(rows, epoch)

  def data_steps(self, places: np.ndarray) -> np.ndarray:
    if self._plan.merge is not None:
      places = self._plan.merge.rows_of(self._name, places)
    return self._plan.steps.steps_of_rows(places)


class _BucketOrder:
  """The batches of a dataset in the order that has those of one bucket."""

  def __init__(
    self,
    plan: batches_plan.BatchesPlan,
    dataset: int,
    bucket: int,
    samples: np.ndarray,
  ):
    self._plan = plan
    self._dataset = dataset
    self._bucket = bucket
    self._samples = samples
    self._order, _ = plan.schedule.part_at(dataset, bucket, 0)

  def place(self, data_step: int) -> int:
    step = self._plan.within(data_step)
    return self._plan.schedule.part_at(self._dataset, self._bucket, step)[1]

  def epoch(self, place: int) -> int:
    return place // self._order.num_batches

  def start(self, epoch: int) -> int:
    return epoch * self._order.num_batches

  def alike(self, epoch: int) -> int:
    used, counts = self._order.used_samples, self._order.counts
    return WHOLE if used[self._bucket] == counts[self._bucket] else epoch + 1

  def rows(self, epoch: int) -> Iterator[_Rows]:
    for low in range(0, len(self._samples), _BLOCK):
      samples = self._samples[low : low + _BLOCK]
      samples = samples[self.places(samples, epoch) >= 0]
      planned = self._plan.planned_samples(self._dataset, self._bucket, samples)
      if planned.spans is not None:
        yield samples, planned.spans
        continue
      dataset = self._plan.datasets[self._plan.source_names[self._dataset]]
      numbers = dataset.numbers_of(self._bucket, samples)
      row = np.arange(len(samples))
      yield samples, spans_lib.of_samples(numbers, self._dataset, row, len(row))

  def places(self, rows: np.ndarray, epoch: int) -> np.ndarray:
    places = np.full(len(rows), -1, np.int64)
    epochs = np.full(len(rows), epoch, np.int64)
    pick, placed, _ = self._order.places_of(self._bucket, rows, epochs)
    places[pick] = placed
    return places

  def data_steps(self, places: np.ndarray) -> np.ndarray:
    return self._plan.schedule.steps_of(self._dataset, self._bucket, places)


def _orders(plan: plan_lib.Plan, source: str, parts: Parts) -> Iterator[_Order]:
  """Yields the orders that the places of a source's documents are in."""
  if isinstance(plan, rows_plan.RowsPlan):
    yield _SourceOrder(plan, source, parts)
    return
  assert isinstance(plan, batches_plan.BatchesPlan)
  number = plan.source_names.index(source)
  documents = np.unique(parts.document).tolist()
  by_document = map(plan.datasets[source].samples_of, documents)
  for bucket, samples in enumerate(zip(*by_document, strict=True)):
    if any(map(len, samples)):
      yield _BucketOrder(plan, number, bucket, np.concatenate(samples))


def count(
  plan: plan_lib.Plan, source: str, parts: Parts, edges: list[int]
) -> Counts:
  """Counts what ranges of steps hold of documents; reads no token.

  Tokens that are removed at a step, and steps that are skipped, do not count.

  Args:
    plan: The run.
    source: The name of the source.
    parts: The documents, or parts of them.
    edges: Steps that rise, the first of each range and the end of the last.
  """
  size = len(edges) - 1, len(parts.document)
  exposures, trained = np.zeros((2, *size), np.int64)
  first_step, last_step = np.full(size[1], WHOLE), np.full(size[1], -1)
  store = plan.sources[source].store if source in plan.sources else None
  for order in _orders(plan, source, parts):
    first, last = np.full(size[1], WHOLE), np.full(size[1], -1)
    # Where whole epochs are counted together: the first and the last of them,
    # and which of these groups hold a part first and last.
    groups: list[tuple[int, int, int]] = []
    first_group, last_group = first.copy(), last.copy()
    alike: dict[int, int] = {}

    def held(epoch: int, data_step: int, order: _Order = order):
      """Yields (part, trained tokens, row of the epoch) of an epoch's spans."""
      for rows, spans in order.rows(epoch):
        removed_from = np.full(spans.num_rows, data_step)
        spans = plan.tombstones.mask(spans, removed_from).live()
        part, row, tokens = _held(parts, spans, store)
        yield part, tokens, rows[row]

    for number, steps in enumerate(itertools.pairwise(edges)):
      for data_step, end_step in _stretches(plan, *steps):
        low, high = order.place(data_step), order.place(end_step)
        for epoch, end in _epochs(order, low, high):
          if order.start(epoch) >= low and order.start(end) <= high:
            like = alike.setdefault(order.alike(epoch), epoch)
            for part, tokens, _ in held(like, data_step):
              np.add.at(exposures[number], part, end - epoch)
              np.add.at(trained[number], part, (end - epoch) * tokens)
              np.minimum.at(first_group, part, len(groups))
              np.maximum.at(last_group, part, len(groups))
            groups.append((epoch, end - 1, data_step))
            continue
          for part, tokens, rows in held(epoch, data_step):
            places = order.places(rows, epoch)
            pick = np.flatnonzero((places >= low) & (places < high))
            np.add.at(exposures[number], part[pick], 1)
            np.add.at(trained[number], part[pick], tokens[pick])
            np.minimum.at(first, part[pick], places[pick])
            np.maximum.at(last, part[pick], places[pick])
    for group in np.unique(first_group[last_group >= 0]).tolist():
      epoch, _, data_step = groups[group]
      for part, _, rows in held(epoch, data_step):
        np.minimum.at(first, part, order.places(rows, epoch))
    for group in np.unique(last_group[last_group >= 0]).tolist():
      _, epoch, data_step = groups[group]
      for part, _, rows in held(epoch, data_step):
        np.maximum.at(last, part, order.places(rows, epoch))
    is_read = np.flatnonzero(last >= 0)
    if len(is_read):
      places, which = np.unique(
        np.concatenate([first[is_read], last[is_read]]), return_inverse=True
      )
      run_steps = map(plan.steps.before, order.data_steps(places).tolist())
      begin, end = np.split(np.asarray([*run_steps])[which], 2)
      first_step[is_read] = np.minimum(first_step[is_read], begin)
      last_step[is_read] = np.maximum(last_step[is_read], end)
  first_step[last_step < 0] = -1
  return Counts(exposures, trained, first_step, last_step)


def _stretches(
  plan: plan_lib.Plan, first: int, last: int
) -> Iterator[tuple[int, int]]:
  """Yields the data steps of some run steps, as ranges (first, last + 1).

  Within each range the same tokens are removed.
  """
  for low, high in plan.steps.stretches(first, last):
    changes = [at for at in plan.tombstones.steps if low < at < high]
    yield from itertools.pairwise([low, *changes, high])


def _epochs(order: _Order, low: int, high: int) -> Iterator[tuple[int, int]]:
  """Yields the epochs of places low to high - 1, as ranges (first, last + 1).

  Epochs of one range hold the same spans, and only places of the range.
  """
  if low >= high:
    return
  epoch, last = order.epoch(low), order.epoch(high - 1)
  while epoch <= last:
    end = epoch + 1
    if order.start(epoch) >= low:
      whole = last + (order.start(last + 1) <= high)
      end = max(end, min(order.alike(epoch), whole))
    yield epoch, end
    epoch = end


def _held(
  parts: Parts, spans: spans_lib.Spans, store: stores.Store | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns which spans hold tokens of which parts, int64[M] each.

  Returns:
    The part, the row, and the tokens of the part in the span that are trained
    on.
  """
  first = np.searchsorted(parts.document, spans.document)
  end = np.searchsorted(parts.document, spans.document, side="right")
  span, nth = ragged.elements(end - first)
  part, trained = first[span] + nth, _trained(spans, store)[span]
  cut = np.flatnonzero(parts.end[part] != WHOLE)
  if len(cut):
    begin, end = parts.begin[part[cut]], parts.end[part[cut]]
    assert store is not None
    # An added EOS is of the part that has the last token of the document.
    has_eos = end >= store.bounds(spans.document[span[cut]])[1]
    held = _within(spans, span[cut], begin, end, has_eos)
    trained[cut] = 0
    trained[cut[held.row]] = _trained(held, store)
    joined = spans.joined()
    if joined is not None:
      # Its first token follows one of another span of its rearranged piece.
      is_first = begin <= spans.start[span[cut]]
      trained[cut] += joined[span[cut]] & is_first
    is_held = np.ones(len(part), np.bool_)
    last = (spans.start + spans.stored()[0])[span[cut]]
    is_held[cut] = np.maximum(spans.start[span[cut]], begin) < np.minimum(
      last, end
    )
    if joined is not None and spans.added_after is not None:
      # The EOS of a rearranged piece follows the middle, which may be outside
      # of the part.
      only_eos = (
        has_eos & (joined & (spans.added_after == spans_lib.EOS))[span[cut]]
      )
      only_eos &= ~is_held[cut]
      is_held[cut] |= only_eos
      trained[cut] = np.where(only_eos, 1, trained[cut])
    part, span, trained = part[is_held], span[is_held], trained[is_held]
  return part, spans.row[span], trained


def _within(
  spans: spans_lib.Spans,
  pick: np.ndarray,
  begin: np.ndarray,
  end: np.ndarray,
  has_eos: np.ndarray,
) -> spans_lib.Spans:
  """Returns the tokens begin to end - 1 of spans, with the token before them.

  That token is the first of its span, which is not trained on.

  Args:
    spans: A plan.
    pick: int64[M], the spans.
    begin: int64[M], the first token in the document.
    end: int64[M], the token after the last.
    has_eos: bool[M], whether an added EOS is one of the tokens.

  Returns:
    Spans whose row is their place in `pick`; those without tokens are left out.
  """
  spans = spans.take(pick, np.arange(len(pick)), len(pick))
  first, last = spans.start, spans.start + spans.stored()[0]
  low, high = np.maximum(first, begin - 1), np.minimum(last, end)
  before, after = spans.added_before, spans.added_after
  length = high - low
  if before is not None:
    before = before * (begin <= first)
    length = length + (before > 0)
  if after is not None:
    after = after * has_eos
    length = length + (after > 0)
  spans = dataclasses.replace(
    spans,
    start=low,
    offset=spans.offset + low - first,
    length=length,
    added_before=before,
    added_after=after,
    following=None,
    remaining=None,
  )
  nonempty = np.flatnonzero(high > low)
  return spans.take(nonempty, spans.row[nonempty], len(pick))


def _trained(spans: spans_lib.Spans, store: stores.Store | None) -> np.ndarray:
  """Returns int64[N], the tokens of each span that are trained on."""
  if store is None or store.labels.trains_on_all:
    return spans.targets()
  return row_labels.trained_targets(spans, store)
