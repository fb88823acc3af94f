"""Tokens and trained tokens that a run has taken of each source.

What a source knows of its rows is asked, what it does not know is summed from
plans, from what a checkpoint says or what was asked last.
"""

import abc
from collections.abc import Callable
from collections.abc import Mapping
import functools

import numpy as np

from chomp_data import stores
from chomp_data.ops import spans as spans_lib
from chomp_data.sources import row_labels
from chomp_data.sources import row_source
from chomp_data.sources import source_units

UNITS = ("tokens", "loss_tokens")

# Rows, and steps, planned at once.
_BLOCK = 4_096
_STEPS = 256
_SUMS_KEPT = 8

# Steps that are planned one by one; further ones are summed by epochs.
_NEAR = 4_096

# By source, then by unit; None is not known.
Sums = Mapping[str, Mapping[str, int | None]]


class TokenSums(abc.ABC):
  """Sums by source before a step. For one thread."""

  @abc.abstractmethod
  def before(self, step: int, name: str, samples: int, unit: str) -> int | None:
    """Returns a sum, or None where a state does not tell it.

    Args:
      step: The step.
      name: The source.
      samples: What it has given before the step.
      unit: Of `UNITS`.
    """

  @abc.abstractmethod
  def known(self, name: str) -> bool:
    """Returns whether tokens need no planning of whole epochs."""

  @abc.abstractmethod
  def go_on(self, step: int, samples: Mapping[str, int], told: Sums) -> None:
    """Takes a checkpoint's word for sums at a step.

    Args:
      step: The step.
      samples: What each source has given before it.
      told: The sums of sources.
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

  def before(self, step: int, name: str, samples: int, unit: str) -> int | None:
    """Returns a sum; see `TokenSums`."""
    del step
    return self._sums(name, unit).before(samples)

  def known(self, name: str) -> bool:
    """Returns whether tokens are known; see `TokenSums`."""
    return self._sums(name, "tokens").known

  def go_on(self, step: int, samples: Mapping[str, int], told: Sums) -> None:
    """Takes a checkpoint's word for sums; see `TokenSums`."""
    del step
    for name, sums in told.items():
      for unit in UNITS:
        self._sums(name, unit).restart(samples[name], sums[unit])

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

  @functools.cached_property
  def known(self) -> bool:
    """Whether sums need no planning of whole epochs."""
    return self._source.sums.known(self._unit)

  @functools.cached_property
  def _prefix(self) -> source_units.SourceUnits:
    return source_units.SourceUnits(self._source, self._unit, None)

  def restart(self, rows: int, total: int | None) -> None:
    """Takes a checkpoint's word for a sum; None is not told."""
    self._told = [(rows, total)]

  def before(self, rows: int) -> int | None:
    """Returns the units before a row, None where they are not told."""
    if self.known:
      return self._by_prefix(rows)
    # Before what a checkpoint told, only a sum from the start on will do.
    earlier = [own for own in self._told if own[0] <= rows]
    done, total = earlier[-1] if earlier else (0, 0)
    if total is None:
      return None
    source = self._source
    epoch = source.epoch_rows(source.ramp_epochs)
    if rows - done > epoch and source.sums.epochs_repeat(self._unit):
      total = self._by_prefix(rows)
    else:
      total += self._planned(done, rows)
    if rows > self._told[-1][0]:
      self._told.append((rows, total))
      del self._told[:-_SUMS_KEPT]
    return total

  def _by_prefix(self, rows: int) -> int:
    return int(self._prefix.before(np.asarray([rows]))[0])

  def _planned(self, first: int, last: int) -> int:
    total = 0
    for low in range(first, last, _BLOCK):
      spans = self._source.plan(np.arange(low, min(low + _BLOCK, last)))
      units = source_units.row_units(spans, self._unit, self._source.store)
      total += int(units.sum())
    return total


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
      consumed: Returns int64[num_sources], tokens before a step, where they
        follow from it.
    """
    self._numbers = {name: i for i, name in enumerate(by_name)}
    self._labelled = {
      i: own for i, own in enumerate(by_name.values()) if not own.trains_on_all
    }
    self._plan = plan
    self._by_epoch = by_epoch
    self._consumed = consumed
    # Step, tokens and trained tokens by source before it: the latest.
    self._sums = (0, np.zeros((len(UNITS), len(by_name)), np.int64))

  def before(self, step: int, name: str, samples: int, unit: str) -> int:
    """Returns a sum; see `TokenSums`."""
    number = self._numbers[name]
    planned = unit == "loss_tokens" and number in self._labelled
    if self._consumed is not None and not planned:
      # Each row is one span, whose last token has no next one.
      lost = samples if unit == "loss_tokens" else 0
      return int(self._consumed(step)[number]) - lost
    return int(self._planned(step)[UNITS.index(unit), number])

  def known(self, name: str) -> bool:
    """Returns whether tokens are known; see `TokenSums`."""
    del name
    return self._consumed is not None

  def go_on(self, step: int, samples: Mapping[str, int], told: Sums) -> None:
    """Takes a checkpoint's word for sums; see `TokenSums`."""
    del samples
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
      spans = self._plan(first, min(_STEPS, step - first))
      own = spans.length, self._trained(spans)
      # Sums of a block stay far below 2**53, where float64 is exact.
      sums = sums + [np.bincount(spans.source, v, count) for v in own]
      sums = sums.astype(np.int64)
    self._sums = (step, sums)
    return sums

  def _trained(self, spans: spans_lib.Spans) -> np.ndarray:
    """Returns int64[N], the trained tokens of spans."""
    trained = spans.length - 1
    for number, store in self._labelled.items():
      pick = np.flatnonzero(spans.source == number)
      own = spans.take(pick, spans.row[pick], spans.num_rows)
      trained[pick] = sample_units(own, "loss_tokens", store)
    return trained


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
