# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How often a run reads each of some documents, or of all, when first and last.

Of an epoch, the rows that hold one of the documents are planned, or those of
the range of steps where these are fewer. Epochs that hold the same spans, in
other rows, are counted together where a range holds all of them.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import itertools
from typing import Any

import numpy as np

from chomp_data import stores
from chomp_data.index import intervals
from chomp_data.index import memo
from chomp_data.index import ragged
from chomp_data.phased import phased_source
from chomp_data.plans import batches_plan
from chomp_data.plans import plan as plan_lib
from chomp_data.plans import rows_plan
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import row_labels
from chomp_data.threads import background

# The end of a part that is the whole document, also of one without tokens.
WHOLE = 2**62
# Rows planned at once, and the most spans of an epoch that stay planned.
BLOCK, _CACHED_SPANS = 2**16, 2**20
# Epochs of which the rows that hold the documents are cached.
_CACHED_ROWS = 2
# Seconds to find documents in an epoch with another order of documents, and
# documents that are ordered per second.
_EPOCH_S, _DOCUMENTS_PER_S = 1e-3, 2e8

# Rows of an epoch, int64[R], and their spans of the documents.
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

  def of(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first part of each document and the one after its last.

    Args:
      documents: int64[M], in any order.
    """
    first_of = self._first_of()
    if first_of is None:
      return (
        np.searchsorted(self.document, documents),
        np.searchsorted(self.document, documents, side="right"),
      )
    last = len(first_of) - 1
    return (
      first_of[np.minimum(documents, last)],
      first_of[np.minimum(documents + 1, last)],
    )

  @memo.remembered(1)
  def _first_of(self) -> np.ndarray | None:
    """The first part of each document, where many have one: no bisection.

    Of 10^6 documents in the order of a packed epoch that takes half the time.
    At most 32 bytes a part.
    """
    num_documents = int(self.document[-1]) + 1 if len(self.document) else 0
    if num_documents > 4 * len(self.document):
      return None
    counts = np.bincount(self.document + 1, minlength=1)
    return np.cumsum(counts, out=counts)


def whole(document: np.ndarray) -> Parts:
  """Returns whole documents, int64[N], ascending."""
  return Parts(document, 0 * document, np.full_like(document, WHOLE))


class _SourceOrder:
  """Places are rows of a source, in its order."""

  counts_any_places = False

  def __init__(self, plan: rows_plan.RowsPlan, source: str, parts: Parts):
    self._plan = plan
    self._name = source
    self._number = plan.source_names.index(source)
    self._source = plan.ordered[source]
    is_first, _ = ragged.run_edges(parts.document)
    self._documents = parts.document[is_first]
    cut = np.flatnonzero(parts.end != WHOLE)
    length = self._source.store.bounds(parts.document[cut])[1]
    are_whole = (parts.begin[cut] == 0) & (parts.end[cut] >= length)
    self._are_whole = bool(are_whole.all())
    # From which data step on parts of these documents are removed.
    self._cut_from = plan.tombstones.first_part(self._number, self._documents)
    self._planned = memo.Memo(_CACHED_SPANS)

  def place(self, data_step: int) -> int:
    """Returns the first place of a data step."""
    return self._plan.rows_before(data_step)[self._name]

  def epoch(self, place: int) -> int:
    """Returns the epoch of a place."""
    return int(self._source.epochs.locate(np.asarray([place]))[0][0])

  def start(self, epoch: int) -> int:
    """Returns the first place of an epoch."""
    return self._source.epochs.start(epoch)

  def alike(self, epoch: int, data_step: int, trained: bool) -> tuple[int, int]:
    """Returns the range of epochs around one that hold the same of documents.

    Args:
      epoch: The epoch.
      data_step: The data step, which may remove tokens of the spans.
      trained: Whether the tokens that are trained on are counted too.
    """
    removed_from = self._plan.tombstones.first_step
    is_intact = removed_from is None or data_step < removed_from
    is_cut = self._cut_from is not None and data_step >= self._cut_from
    # As many spans of a document may be of other tokens of it.
    needed = ["spans" if self._are_whole and not is_cut else "cuts"]
    if trained or not is_intact:
      needed.append("loss_tokens")
    units = phased_source.phase_at(self._source, epoch).repeating_units
    begins = [first for first, _ in self._source.phases]
    begin = max(first for first in begins if first <= epoch)
    begin = max(begin, *(units.get(unit, WHOLE) for unit in needed))
    if begin > epoch:
      return epoch, epoch + 1
    return begin, min((at for at in begins if at > epoch), default=WHOLE)

  def rows(self, epoch: int, low: int, high: int) -> Iterator[_Rows]:
    """Yields rows that hold a document, all at places low to high - 1."""
    if (planned := self._planned.get(epoch)) is not None:
      yield from planned
      return
    phase = phased_source.phase_at(self._source, epoch)
    source, start = phase.rows, phase.epochs.start(epoch)
    documents, (first, end) = self._rows_of(epoch)
    ends = np.cumsum(end - first)
    count = int(ends[-1]) if len(ends) else 0
    in_order = high - low < count
    planned, num_spans = [], 0
    for begin in range(0, high - low if in_order else count, BLOCK):
      background.check()
      if in_order:
        places = np.arange(low + begin, min(low + begin + BLOCK, high))
        rows = phase.order(places - self.start(epoch) + start) - start
      else:
        number = np.arange(begin, min(begin + BLOCK, count))
        at = np.searchsorted(ends, number, side="right")
        rows = end[at] + number - ends[at]
      spans = source.plan(start + rows)
      if len(documents) < source.store.num_documents:
        pick = np.flatnonzero(np.isin(spans.document, documents))
        spans = spans.take(pick, spans.row[pick], spans.num_rows)
      source_number = np.full(len(spans), self._number, np.int32)
      block = rows, dataclasses.replace(spans, source=source_number)
      yield block
      num_spans += len(spans)
      if num_spans <= _CACHED_SPANS:
        planned.append(block)
    if not in_order and num_spans <= _CACHED_SPANS:
      self._planned.put(epoch, planned, num_spans + 1)

  @memo.remembered(_CACHED_ROWS)
  def _rows_of(self, epoch: int) -> tuple[np.ndarray, intervals.Intervals]:
    """Returns the documents that an epoch has, and the rows that hold them."""
    source = phased_source.phase_at(self._source, epoch).rows
    present = np.searchsorted(self._documents, source.store.num_documents)
    documents = self._documents[:present]
    if len(documents) < source.store.num_documents:
      return documents, source.rows_of(documents, epoch)
    size = source.epochs.size(epoch)
    return documents, (np.zeros(1, np.int64), np.asarray([size]))

  def num_rows(self, epoch: int, low: int, high: int) -> int | None:
    """Returns how many rows at places low to high - 1 hold a document.

    None where a row may hold several of its spans.
    """
    rows = phased_source.phase_at(self._source, epoch).rows
    if not rows.one_span_per_document:
      return None
    _, (first, end) = self._rows_of(epoch)
    if (low, high) == (self.start(epoch), self.start(epoch + 1)):
      return int((end - first).sum())
    count = 0
    for begin, stop in zip(first.tolist(), end.tolist(), strict=True):
      for row in range(begin, stop, BLOCK):
        places = self.places(np.arange(row, min(row + BLOCK, stop)), epoch)
        count += int(np.count_nonzero((places >= low) & (places < high)))
    return count

  def cost(self, data_step: int) -> float:
    """Returns about how many seconds counting before a data step takes.

    0 where all epochs are alike.
    """
    phase = self._source.phases[-1][1]
    if "spans" in phase.repeating_units:
      return 0.0
    row = self._plan.steps.first_row(data_step)
    epochs = row // max(len(self._source), 1) + 1
    return epochs * (_EPOCH_S + phase.store.num_documents / _DOCUMENTS_PER_S)

  def places(self, rows: np.ndarray, epoch: int) -> np.ndarray:
    """Returns the places of rows, int64[R]; -1 where the epoch has none."""
    phase = phased_source.phase_at(self._source, epoch)
    return self.start(epoch) + phase.positions(rows, epoch)

  def data_steps(self, places: np.ndarray) -> np.ndarray:
    """Returns the data steps of places int64[N], ascending."""
    if self._plan.merge is not None:
      places = self._plan.merge.rows_of(self._name, places)
    return self._plan.steps.steps_of_rows(places)


class _BucketOrder:
  """Places are batches, in the order that has those of a bucket."""

  # `num_rows` is of places of many epochs as well as of one.
  counts_any_places = True

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
    used, counts = self._order.used_samples, self._order.counts
    self._is_complete = bool(used[bucket] == counts[bucket])

  def place(self, data_step: int) -> int:
    """Returns the first place of a data step."""
    step = self._plan.within(data_step)
    return self._plan.schedule.part_at(self._dataset, self._bucket, step)[1]

  def epoch(self, place: int) -> int:
    """Returns the epoch of a place."""
    return place // self._order.num_batches

  def start(self, epoch: int) -> int:
    """Returns the first place of an epoch."""
    return epoch * self._order.num_batches

  def alike(self, epoch: int, data_step: int, trained: bool) -> tuple[int, int]:
    """Returns the range of epochs around one that hold the same samples."""
    del data_step, trained
    return (0, WHOLE) if self._is_complete else (epoch, epoch + 1)

  def rows(self, epoch: int, low: int, high: int) -> Iterator[_Rows]:
    """Yields rows that hold a document, all at places low to high - 1."""
    for first in range(0, len(self._samples), BLOCK):
      samples = self._samples[first : first + BLOCK]
      places = self.places(samples, epoch)
      samples = samples[(places >= low) & (places < high)]
      planned = self._plan.planned_samples(self._dataset, self._bucket, samples)
      if planned.spans is not None:
        yield samples, planned.spans
        continue
      dataset = self._plan.datasets[self._plan.source_names[self._dataset]]
      numbers = dataset.numbers_of(self._bucket, samples)
      row = np.arange(len(samples))
      yield samples, spans_lib.of_samples(numbers, self._dataset, row, len(row))

  def num_rows(self, epoch: int, low: int, high: int) -> int:
    """Returns how many samples are at places low to high - 1 of any epochs."""
    num_batches, samples = self._order.num_batches, self._samples
    epochs, count = np.arange(epoch, self.epoch(high - 1) + 1), 0
    if self._is_complete:
      # A whole epoch has each sample once.
      begins = epochs * num_batches
      is_whole = (begins >= low) & (begins + num_batches <= high)
      count = len(samples) * int(np.count_nonzero(is_whole))
      epochs = epochs[~is_whole]
    at_once = max(1, BLOCK // len(samples))
    for first in range(0, len(epochs), at_once):
      background.check()
      block = epochs[first : first + at_once]
      _, places, _ = self._order.places_of(
        self._bucket, np.tile(samples, len(block)), block.repeat(len(samples))
      )
      count += int(np.count_nonzero((places >= low) & (places < high)))
    return count

  def cost(self, data_step: int) -> float:
    """Returns 0, because places follow from a few integers per epoch."""
    del data_step
    return 0.0

  def places(self, rows: np.ndarray, epoch: int) -> np.ndarray:
    """Returns the places of rows, int64[R]; -1 where the epoch has none."""
    places = np.full(len(rows), -1, np.int64)
    epochs = np.full(len(rows), epoch, np.int64)
    pick, placed, _ = self._order.places_of(self._bucket, rows, epochs)
    places[pick] = placed
    return places

  def data_steps(self, places: np.ndarray) -> np.ndarray:
    """Returns the data steps of places int64[N], ascending."""
    return self._plan.schedule.steps_of(self._dataset, self._bucket, places)


_Order = _SourceOrder | _BucketOrder


def _orders(plan: plan_lib.Plan, source: str, parts: Parts) -> Iterator[_Order]:
  """Yields the orders that the places of a source's documents are in."""
  if isinstance(plan, rows_plan.RowsPlan):
    yield _SourceOrder(plan, source, parts)
    return
  assert isinstance(plan, batches_plan.BatchesPlan)
  number, dataset = plan.source_names.index(source), plan.datasets[source]
  by_bucket = dataset.samples_of(np.unique(parts.document))
  for bucket, samples in enumerate(by_bucket):
    if len(samples):
      yield _BucketOrder(plan, number, bucket, samples)


@dataclasses.dataclass(frozen=True)
class _Piece:
  """Epochs that hold the same spans, or the places of one, in data steps.

  Attributes:
    epoch: The first epoch.
    end: The epoch after the last.
    alike: The first epoch of the order that holds the same spans.
    low: The first place.
    high: The place after the last.
    is_whole: Whether these are all places of the epochs.
    data_step: The first data step; all of them remove the same tokens.
  """

  epoch: int
  end: int
  alike: int
  low: int
  high: int
  is_whole: bool
  data_step: int


class Occurrences:
  """Which steps of a run hold parts of documents of a source; reads no token.

  Tokens that are removed at a step, and steps that are skipped, do not count.
  """

  def __init__(self, plan: plan_lib.Plan, source: str, parts: Parts):
    """Binds the documents.

    Args:
      plan: The run.
      source: The name of the source.
      parts: The documents, or parts of them.
    """
    self._plan = plan
    self._parts = parts
    self._size = len(parts.document)
    self._store = plan.sources[source].store if source in plan.sources else None
    self._orders = list(_orders(plan, source, parts))
    # Before which data step rows of a single document hold the spans that they
    # plan; 0 for several documents and for parts of them.
    self._as_planned_until = 0
    if self._size == 1 and parts.end[0] == WHOLE:
      number = plan.source_names.index(source)
      touched_from, _ = plan.tombstones.times(number, int(parts.document[0]))
      self._as_planned_until = WHOLE if touched_from is None else touched_from

  def cost(self, step: int) -> float:
    """Returns about how many seconds `exposures` before a step takes.

    That is 0 unless every epoch has another order of documents.

    Args:
      step: At most the number of steps of the run.
    """
    data_step = self._plan.steps.data_step(step)
    return sum(order.cost(data_step) for order in self._orders)

  def exposures(self, first: int, last: int) -> np.ndarray:
    """Counts the spans (or samples) of parts in steps first to last - 1.

    Returns:
      int64[N], the spans that hold a token of each part. Rows of one document
      are not planned where each holds one span of it.
    """
    exposures = np.zeros(self._size, np.int64)
    for order in self._orders:
      for piece in self._pieces(order, first, last, counted=True):
        times = piece.end - piece.epoch
        if piece.data_step < self._as_planned_until:
          num_rows = order.num_rows(*self._planned(order, piece))
          if num_rows is not None:
            exposures += times * num_rows
            continue
        for part, _, _ in self._held(order, piece, piece.epoch):
          np.add.at(exposures, part, times)
    return exposures

  def count(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
    """Counts what steps first to last - 1 hold of the parts.

    Returns:
      int64[N], the spans that hold a token of a part (or samples), and the
      tokens of the part that are trained on.
    """
    exposures, trained = np.zeros((2, self._size), np.int64)
    for order in self._orders:
      for piece in self._pieces(order, first, last, trained=True):
        times = piece.end - piece.epoch
        for part, tokens, _ in self._held(order, piece, piece.epoch):
          np.add.at(exposures, part, times)
          np.add.at(trained, part, times * tokens)
    return exposures, trained

  def first_and_last(
    self, first: int, last: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns which of steps first to last - 1 hold a part first and last.

    Returns:
      int64[N] each, -1 for parts that none of the steps holds.
    """
    begins, ends = np.full(self._size, WHOLE), np.full(self._size, -1)
    for order in self._orders:
      pieces = [*self._pieces(order, first, last)]
      low = self._outermost(order, pieces, np.minimum, WHOLE)
      high = self._outermost(order, pieces[::-1], np.maximum, -1)
      is_read = np.flatnonzero(high >= 0)
      if not len(is_read):
        continue
      places, which = np.unique(
        np.concatenate([low[is_read], high[is_read]]), return_inverse=True
      )
      data_steps = order.data_steps(places).tolist()
      steps = np.asarray([*map(self._plan.steps.before, data_steps)])[which]
      low, high = np.split(steps, 2)
      begins[is_read] = np.minimum(begins[is_read], low)
      ends[is_read] = np.maximum(ends[is_read], high)
    begins[ends < 0] = -1
    return begins, ends

  def _outermost(
    self, order: _Order, pieces: Sequence[_Piece], outer: Any, unset: int
  ) -> np.ndarray:
    """Returns int64[N], the first place of each part in the order of pieces.

    Args:
      order: Where places are.
      pieces: Ascending, or descending.
      outer: `np.minimum` or `np.maximum`.
      unset: The place of parts that no piece holds.
    """
    places = np.full(self._size, unset)
    seen: set[tuple[int, int]] = set()
    for piece in pieces:
      missing = places == unset
      if not missing.any():
        break
      # What an epoch does not hold, another one of the same spans does not.
      spans_key = piece.alike, piece.data_step
      if piece.is_whole and spans_key in seen:
        continue
      if piece.is_whole:
        seen.add(spans_key)
      epoch = piece.epoch if outer is np.minimum else piece.end - 1
      for part, _, at in self._held(order, piece, epoch, with_places=True):
        pick = missing[part]
        outer.at(places, part[pick], at[pick])
    return places

  def _held(
    self, order: _Order, piece: _Piece, epoch: int, with_places: bool = False
  ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yields (part, trained tokens, place) of the spans of an epoch of a piece.

    Without places these are rows of the epoch, in a piece of whole epochs.
    """
    planned, low, high = self._planned(order, piece)
    if piece.is_whole and with_places:
      # Epochs with the same spans may have them in other rows.
      planned = epoch
      low, high = order.start(planned), order.start(planned + 1)
    for rows, spans in order.rows(planned, low, high):
      removed_from = np.full(spans.num_rows, piece.data_step)
      spans = self._plan.tombstones.mask(spans, removed_from).live()
      part, row, trained = _held(self._parts, spans, self._store)
      places = rows[row]
      if with_places or not piece.is_whole:
        places = order.places(rows, epoch)[row]
      if not piece.is_whole:
        pick = np.flatnonzero((places >= low) & (places < high))
        part, trained, places = part[pick], trained[pick], places[pick]
      yield part, trained, places

  def _planned(self, order: _Order, piece: _Piece) -> tuple[int, int, int]:
    """Returns the epoch to plan for a piece, and its range of places."""
    if not piece.is_whole:
      return piece.epoch, piece.low, piece.high
    return piece.alike, order.start(piece.alike), order.start(piece.alike + 1)

  def _pieces(
    self,
    order: _Order,
    first: int,
    last: int,
    trained: bool = False,
    counted: bool = False,
  ) -> Iterator[_Piece]:
    """Yields what steps first to last - 1 hold, ascending.

    Args:
      order: Where places are.
      first: The first step.
      last: The step after the last one.
      trained: Whether the tokens that are trained on are counted too.
      counted: Whether rows are counted only: then a piece may be of the places
        of many epochs.
    """
    for data_step, end_step in _stretches(self._plan, first, last):
      low, high = order.place(data_step), order.place(end_step)
      if low >= high:
        continue
      if (
        counted
        and order.counts_any_places
        and data_step < self._as_planned_until
      ):
        epoch = order.epoch(low)
        yield _Piece(epoch, epoch + 1, epoch, low, high, False, data_step)
        continue
      last_epoch = order.epoch(high - 1)
      whole_end = last_epoch + (order.start(last_epoch + 1) <= high)
      while low < high:
        epoch = order.epoch(low)
        end, alike = epoch + 1, epoch
        is_whole = order.start(epoch) == low and epoch < whole_end
        if is_whole:
          alike, alike_end = order.alike(epoch, data_step, trained)
          end = max(end, min(alike_end, whole_end))
        stop = min(order.start(end), high)
        yield _Piece(epoch, end, alike, low, stop, is_whole, data_step)
        low = stop


def documents_read(
  plan: plan_lib.Plan, source: str, count: int, step: int
) -> np.ndarray:
  """Returns which documents have a token in the steps before one, int64[N].

  Args:
    plan: The run.
    source: The name of the source.
    count: Its documents, or samples.
    step: At most the number of steps of the run.
  """
  parts = whole(np.arange(count))
  if source in plan.sources:
    # Of a document, a row may hold an added token alone.
    end = plan.sources[source].store.bounds(parts.document)[1]
    parts = Parts(
      *(each[end > 0] for each in (parts.document, parts.begin, end))
    )
  first, _ = Occurrences(plan, source, parts).first_and_last(0, step)
  return parts.document[first >= 0]


def _stretches(
  plan: plan_lib.Plan, first: int, last: int
) -> Iterator[tuple[int, int]]:
  """Yields the data steps of some run steps, as ranges (first, last + 1).

  Within each range the same tokens are removed.
  """
  for low, high in plan.steps.stretches(first, last):
    changes = [at for at in plan.tombstones.steps if low < at < high]
    yield from itertools.pairwise([low, *changes, high])


def _held(
  parts: Parts, spans: spans_lib.Spans, store: stores.Store | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns which spans hold tokens of which parts, int64[M] each.

  Returns:
    The part, the row, and the tokens of the part in the span that are trained
    on.
  """
  first, end = parts.of(spans.document)
  span, nth = ragged.elements(end - first)
  trained = np.zeros(len(spans), np.int64)
  if store is not None:
    trained = row_labels.trained_targets(spans, store)
  part, trained = first[span] + nth, trained[span]
  cut = np.flatnonzero(parts.end[part] != WHOLE)
  if len(cut):
    begin, end = parts.begin[part[cut]], parts.end[part[cut]]
    assert store is not None
    # An added EOS is of the part that has the last token of the document.
    has_eos = end >= store.bounds(spans.document[span[cut]])[1]
    held = _within(spans, span[cut], begin, end, has_eos)
    trained[cut] = 0
    trained[cut[held.row]] = row_labels.trained_targets(held, store)
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
