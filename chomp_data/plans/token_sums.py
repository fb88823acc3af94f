# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Tokens and trained tokens that a run has taken of each source.

What a source knows of its rows is asked, what it does not know is summed from
plans, from what a checkpoint says or what was asked last.
"""

import abc
from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import functools

import numpy as np

from chomp_data import stores
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import prefix_sums
from chomp_data.sources import row_labels
from chomp_data.sources import row_source
from chomp_data.sources import row_units
from chomp_data.sources import source_units
from chomp_data.stores import background
from chomp_data.stores import side_index

UNITS = ("tokens", "loss_tokens")

# Rows, and steps, planned at once.
_BLOCK = 4_096
_STEPS = 256
# From so many on, planning takes a second or so, and is shown.
_MANY_ROWS = 1_000_000
# Beyond this it takes minutes, and no state waits for it.
_MOST_ROWS = 2**26
_SUMS_KEPT = 8

# Steps that are planned one by one; further ones are summed by epochs.
_NEAR = 4_096

# By source, then by unit; None is not known.
Sums = Mapping[str, Mapping[str, int | None]]


@dataclasses.dataclass(frozen=True)
class Place:
  """Where a source is before a step.

  Attributes:
    samples: Those that were taken before it.
    skipped: Which of them no step handed out, as (first, last + 1), rising.
  """

  samples: int
  skipped: tuple[tuple[int, int], ...] = ()

  @property
  def given(self) -> int:
    """Samples that were handed out."""
    return self.samples - sum(last - first for first, last in self.skipped)


class TokenSums(abc.ABC):
  """Sums of what was handed out by source before a step. For one thread."""

  @abc.abstractmethod
  def before(self, step: int, name: str, place: Place, unit: str) -> int | None:
    """Returns a sum, or None where a state does not tell it.

    Args:
      step: The step.
      name: The source.
      place: Where it is before the step.
      unit: Of `UNITS`.
    """

  def is_long(self, name: str, place: Place, unit: str) -> bool:
    """Returns whether `before` passes over so many rows that it takes minutes.

    Args:
      name: The source.
      place: Where it is.
      unit: Of `UNITS`.
    """
    del name, place, unit
    return False

  def skipped(self, name: str, place: Place) -> int | None:
    """Returns the tokens of all rows that were skipped, None if not known.

    Args:
      name: The source.
      place: Where it is.
    """
    del name, place
    return None

  def gone(self, step: int) -> dict[str, dict[str, int]]:
    """Returns what of sums by source and unit is gone; none where nothing is.

    Args:
      step: The step.
    """
    del step
    return {}

  @abc.abstractmethod
  def known(self, name: str) -> bool:
    """Returns whether tokens need no planning of whole epochs."""

  @abc.abstractmethod
  def go_on(
    self,
    step: int,
    places: Mapping[str, Place],
    told: Sums,
    gone: Mapping[str, Mapping[str, int]],
  ) -> None:
    """Takes a checkpoint's word for sums at a step.

    Args:
      step: The step.
      places: Where each source is before it.
      told: The sums of sources.
      gone: What `gone` returned there.
    """


class RowSums(TokenSums):
  """Sums over the rows of sources in their orders."""

  def __init__(self, sources: Mapping[str, row_source.RowSource]):
    """Sums nothing yet.

    Args:
      sources: In their orders, by name.
    """
    self._sources = sources
    # As they are asked for: what is not asked for costs nothing.
    self._by_unit: dict[tuple[str, str], _SourceSums] = {}

  def before(self, step: int, name: str, place: Place, unit: str) -> int | None:
    """Returns a sum; see `TokenSums`."""
    del step
    return self._sums(name, unit).before(place)

  def is_long(self, name: str, place: Place, unit: str) -> bool:
    """Returns whether a sum takes minutes; see `TokenSums`."""
    return self._sums(name, unit).is_long(place)

  def skipped(self, name: str, place: Place) -> int:
    """Returns the tokens of all rows that were skipped; see `TokenSums`."""
    return self._sums(name, "tokens").skipped(place)

  def known(self, name: str) -> bool:
    """Returns whether tokens are known; see `TokenSums`."""
    return self._sums(name, "tokens").known

  def go_on(
    self,
    step: int,
    places: Mapping[str, Place],
    told: Sums,
    gone: Mapping[str, Mapping[str, int]],
  ) -> None:
    """Takes a checkpoint's word for sums; see `TokenSums`."""
    del step, gone
    for name, sums in told.items():
      for unit in UNITS:
        self._sums(name, unit).restart(places[name].samples, sums[unit])

  def _sums(self, name: str, unit: str) -> "_SourceSums":
    found = self._by_unit.get((name, unit))
    if found is None:
      found = self._by_unit[name, unit] = _SourceSums(self._sources[name], unit)
    return found


class _SourceSums:
  """What the rows of one source consume before a row.

  Where what is known lies more than an epoch back and epochs consume the
  same, one epoch is planned instead of all between.
  """

  def __init__(self, source: row_source.RowSource, unit: str):
    self._source = source
    self._unit = unit
    # Sums before some rows, ascending: the latest few.
    self._told: list[tuple[int, int | None]] = [(0, 0)]
    # Sums of skipped rows.
    self._skipped: dict[tuple[int, int], int] = {}

  @functools.cached_property
  def known(self) -> bool:
    """Whether sums need no planning of whole epochs."""
    return source_units.are_known(self._source, self._unit)

  @functools.cached_property
  def _prefix(self) -> source_units.SourceUnits:
    return source_units.SourceUnits(self._source, self._unit, None)

  def restart(self, rows: int, total: int | None) -> None:
    """Takes a checkpoint's word for a sum; None is not told."""
    self._told = [(rows, total)]

  def before(self, place: Place) -> int | None:
    """Returns the units handed out before a place, None if not told."""
    rows = place.samples
    if not rows:
      # What is known of a source may take a pass over all of it.
      return 0
    if self.known:
      return self._by_prefix(place)
    done, total = self._last_told(rows)
    if total is None:
      return None
    source = self._source
    far = rows - done > source.epochs.size(source.epochs.ramp)
    if far and self._repeats and self._each_epoch is None:
      total = self._by_prefix(place)
    else:
      for first, last in place.skipped:
        if last > done:
          total += self._between(done, first)
          done = last
      total += self._between(done, rows)
    if rows > self._told[-1][0]:
      self._told.append((rows, total))
      del self._told[:-_SUMS_KEPT]
    return total

  def is_long(self, place: Place) -> bool:
    """Returns whether `before` takes minutes."""
    rows = place.samples
    done, total = self._last_told(rows)
    if rows - done <= _MOST_ROWS or total is None or self.known:
      return False
    source = self._source
    # Of epochs that consume the same one is passed over, and one in part.
    alike = source.epochs.start(source.epochs.ramp + 2)
    return not self._repeats or alike > _MOST_ROWS

  def _last_told(self, rows: int) -> tuple[int, int | None]:
    """Returns the last sum known before a row, and of which row it is."""
    # Before what a checkpoint told, only a sum from the start on will do.
    earlier = [own for own in self._told if own[0] <= rows]
    return earlier[-1] if earlier else (0, 0)

  def skipped(self, place: Place) -> int:
    """Returns the units of all rows that were skipped before a place."""
    total = 0
    for rows in place.skipped:
      if rows not in self._skipped:
        self._skipped[rows] = (
          self._rows_before(rows[1]) - self._rows_before(rows[0])
          if self.known
          else self._planned(*rows)
        )
      total += self._skipped[rows]
    return total

  def _by_prefix(self, place: Place) -> int:
    return self._rows_before(place.samples) - sum(
      self._rows_before(last) - self._rows_before(first)
      for first, last in place.skipped
    )

  def _rows_before(self, rows: int) -> int:
    return int(self._prefix.before(np.asarray([rows]))[0])

  @functools.cached_property
  def _repeats(self) -> bool:
    return self._unit in self._source.repeating_units

  @functools.cached_property
  def _each_epoch(self) -> int | None:
    """What epochs after the ramp consume, where they repeat."""
    source = self._source
    return prefix_sums.epoch_units(source, source.epochs.ramp, self._unit)

  def _between(self, first: int, last: int) -> int:
    """Returns the units of rows, of whole epochs from their totals."""
    source, total = self._source, 0
    located = source.epochs.locate(np.asarray([first], np.int64))
    epoch, index = (int(own[0]) for own in located)
    while first < last:
      end, count = source.epochs.start(epoch + 1), 1
      whole = None
      if not index and end <= last:
        if not self._repeats or epoch < source.epochs.ramp:
          whole = prefix_sums.epoch_units(source, epoch, self._unit)
        else:
          whole = self._each_epoch
          count = int(source.epochs.locate(np.asarray([last]))[0][0]) - epoch
          end = source.epochs.start(epoch + count)
        if whole is None:
          return total + self._planned(first, last)
      end = min(end, last)
      total += self._planned(first, end) if whole is None else count * whole
      first, epoch, index = end, epoch + count, 0
    return total

  def _planned(self, first: int, last: int) -> int:
    """Returns the units of rows, a block at a time."""
    total = 0
    what = f"{self._source.name}: {self._unit} of rows"
    with side_index.progress(
      last - first, what, "rows", last - first >= _MANY_ROWS
    ) as bar:
      while first < last:
        units = self._next_units(first, last)
        total += int(units.sum())
        bar.update(len(units))
        first += len(units)
    return total

  def _next_units(self, first: int, last: int) -> np.ndarray:
    """Returns the units of the first rows of a range, of one epoch."""
    source = self._source
    located = source.epochs.locate(np.asarray([first], np.int64))
    epoch, index = (int(number[0]) for number in located)
    count = min(source.epochs.start(epoch + 1), last, first + _BLOCK) - first
    if last - first > _BLOCK:
      return source.units(epoch, np.arange(index, index + count), self._unit)
    # A few rows are planned: sums of others are not made for them.
    spans = source.plan(np.arange(first, first + count))
    return row_units.planned_units(spans, self._unit, source.store)


class StepSums(TokenSums):
  """Sums over the steps of a run whose rows are one span each."""

  def __init__(
    self,
    by_name: Mapping[str, stores.Store],
    plan: Callable[[int, int], spans_lib.Spans],
    by_epoch: Callable[[int, int, str], int],
    consumed: Callable[[int], np.ndarray] | None,
  ):
    """Sums nothing yet.

    Args:
      by_name: The store of each source, in the order of their numbers.
      plan: Returns the spans of (first step, number of steps).
      by_epoch: Returns the sum of (step, source, unit), from whole epochs and
        the one under way.
      consumed: Returns int64[num_sources], tokens handed out before a step,
        where they follow from it.
    """
    self._numbers = {name: i for i, name in enumerate(by_name)}
    self._labelled = labelled(by_name)
    self._plan = plan
    self._by_epoch = by_epoch
    self._consumed = consumed
    # Step, tokens and trained tokens by source before it: the latest.
    self._sums = (0, np.zeros((len(UNITS), len(by_name)), np.int64))

  def before(self, step: int, name: str, place: Place, unit: str) -> int:
    """Returns a sum; see `TokenSums`."""
    number = self._numbers[name]
    planned = unit == "loss_tokens" and number in self._labelled
    if self._consumed is not None and not planned:
      # Each row is one span, whose last token has no next one.
      lost = place.given if unit == "loss_tokens" else 0
      return int(self._consumed(step)[number]) - lost
    return int(self._planned(step)[UNITS.index(unit), number])

  def known(self, name: str) -> bool:
    """Returns whether tokens are known; see `TokenSums`."""
    del name
    return self._consumed is not None

  def go_on(
    self,
    step: int,
    places: Mapping[str, Place],
    told: Sums,
    gone: Mapping[str, Mapping[str, int]],
  ) -> None:
    """Takes a checkpoint's word for sums; see `TokenSums`."""
    del places, gone
    found = [
      [told.get(name, {}).get(unit) for name in self._numbers] for unit in UNITS
    ]
    if not any(own is None for sums in found for own in sums):
      self._sums = (step, np.asarray(found, np.int64))

  def _planned(self, step: int) -> np.ndarray:
    """Returns int64[2, num_sources], by unit and source before a step."""
    done, sums = self._sums
    if done > step:
      done, sums = 0, np.zeros_like(sums)
    count = sums.shape[1]
    if step - done > _NEAR:
      found = [
        [self._by_epoch(step, i, unit) for i in range(count)] for unit in UNITS
      ]
      done, sums = step, np.asarray(found, np.int64)
    for first in range(done, step, _STEPS):
      background.check()
      spans = self._plan(first, min(_STEPS, step - first))
      sums = sums + _units(spans, count, self._labelled)
    self._sums = (step, sums)
    return sums


def sample_units(
  spans: spans_lib.Spans, unit: str, store: stores.Store
) -> np.ndarray:
  """Returns int64[N], what rows of one span each consume.

  Args:
    spans: The plan, of one source.
    unit: Of `UNITS`.
    store: The source's.
  """
  if unit == "tokens":
    return spans.length
  if store.trains_on_all:
    return spans.length - 1
  return row_labels.trained_targets(spans, store)


class LiveSums(TokenSums):
  """Sums less what is gone, which is counted in plans of steps."""

  def __init__(
    self,
    whole: TokenSums,
    by_name: Mapping[str, stores.Store],
    first_step: int,
    live_spans: Callable[[int, int], spans_lib.Spans],
    whole_spans: Callable[[int, int], spans_lib.Spans],
  ):
    """Counts nothing yet.

    Args:
      whole: As if nothing were gone.
      by_name: The store of each source, in the order of their numbers.
      first_step: Nothing is gone in steps before it.
      live_spans: Returns the spans of (first step, number of steps).
      whole_spans: The same as if nothing were gone.
    """
    self._whole = whole
    self._names = list(by_name)
    self._labelled = labelled(by_name)
    self._first = first_step
    self._live_spans, self._whole_spans = live_spans, whole_spans
    # Step, and what is gone by unit and source before it: the latest.
    self._gone = (first_step, self._nothing())

  def before(self, step: int, name: str, place: Place, unit: str) -> int | None:
    """Returns a sum; see `TokenSums`."""
    total = self._whole.before(step, name, place, unit)
    if total is None:
      return None
    gone = self._gone_before(step)[UNITS.index(unit)]
    return total - int(gone[self._names.index(name)])

  def is_long(self, name: str, place: Place, unit: str) -> bool:
    """Returns whether a sum takes minutes; see `TokenSums`."""
    return self._whole.is_long(name, place, unit)

  def skipped(self, name: str, place: Place) -> int | None:
    """Returns tokens of all rows that were skipped; see `TokenSums`."""
    return self._whole.skipped(name, place)

  def gone(self, step: int) -> dict[str, dict[str, int]]:
    """Returns what of sums is gone; see `TokenSums`."""
    if step <= self._first:
      return {}
    found = self._gone_before(step).T.tolist()
    return {
      name: dict(zip(UNITS, own, strict=True))
      for name, own in zip(self._names, found, strict=True)
    }

  def known(self, name: str) -> bool:
    """Returns whether tokens are known; see `TokenSums`."""
    return self._whole.known(name)

  def go_on(
    self,
    step: int,
    places: Mapping[str, Place],
    told: Sums,
    gone: Mapping[str, Mapping[str, int]],
  ) -> None:
    """Takes a checkpoint's word for sums; see `TokenSums`."""
    sums = self._nothing()
    for name, own in gone.items():
      sums[:, self._names.index(name)] = [own[unit] for unit in UNITS]
    self._gone = (max(step, self._first), sums)
    whole: dict[str, dict[str, int | None]] = {}
    for name, own in told.items():
      whole[name] = {}
      for unit, lost in zip(
        UNITS, sums[:, self._names.index(name)].tolist(), strict=True
      ):
        value = own[unit]
        whole[name][unit] = None if value is None else value + lost
    self._whole.go_on(step, places, whole, {})

  def _nothing(self) -> np.ndarray:
    return np.zeros((len(UNITS), len(self._names)), np.int64)

  def _gone_before(self, step: int) -> np.ndarray:
    """Returns int64[2, num_sources], what is gone by unit before a step."""
    done, sums = self._gone
    if step <= self._first:
      return self._nothing()
    if done > step:
      done, sums = self._first, self._nothing()
    for first in range(done, step, _STEPS):
      background.check()
      count = min(_STEPS, step - first)
      live = self._live_spans(first, count)
      if live.gone is not None:
        whole = self._whole_spans(first, count)
        sums = sums + (
          _units(whole, len(self._names), self._labelled)
          - _units(live.live(), len(self._names), self._labelled)
        )
    self._gone = (step, sums)
    return sums


def labelled(by_name: Mapping[str, stores.Store]) -> dict[int, stores.Store]:
  """Returns stores that do not train on all of their tokens, by number."""
  return {
    i: own for i, own in enumerate(by_name.values()) if not own.trains_on_all
  }


def span_units(
  spans: spans_lib.Spans, by_number: Mapping[int, stores.Store]
) -> tuple[np.ndarray, np.ndarray]:
  """Returns int64[N], the tokens of each span and its trained tokens.

  Args:
    spans: The plan.
    by_number: Of `labelled`.
  """
  trained = spans.length - 1
  for number, store in by_number.items():
    pick = np.flatnonzero(spans.source == number)
    own = spans.take(pick, spans.row[pick], spans.num_rows)
    trained[pick] = row_labels.trained_targets(own, store)
  return spans.length, trained


def _units(
  spans: spans_lib.Spans, count: int, by_number: Mapping[int, stores.Store]
) -> np.ndarray:
  """Returns int64[2, count], tokens and trained tokens of spans by source."""
  # Sums of a block stay far below 2**53, where float64 is exact.
  found = [
    np.bincount(spans.source, own, count)
    for own in span_units(spans, by_number)
  ]
  return np.stack(found).astype(np.int64)
