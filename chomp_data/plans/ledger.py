# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Counts of what planned steps deliver, and running totals of a reader.

Counts are one vector: samples by source and bucket, then tokens and trained
tokens by source, then, with tombstones, the removed ones of both.
"""

from collections.abc import Iterator
from collections.abc import Mapping
import threading
from typing import NamedTuple

import numpy as np

from chomp_data import stores
from chomp_data.plans import plan as plan_lib
from chomp_data.rows import spans as spans_lib
from chomp_data.rows import tombstones
from chomp_data.sources import row_labels
from chomp_data.threads import background

UNITS = ("tokens", "loss_tokens")

# Steps before the last one whose counts are cached: more than are read ahead.
CACHED_STEPS = 1_024
# Rows that are planned together.
_ROWS = 4_096


class Delivered(NamedTuple):
  """The counts of a range of steps.

  Attributes:
    samples: int64[num_sources, num_buckets], without padding.
    units: int64[num_sources, 2], delivered tokens and trained tokens.
    removed: int64[num_sources, 2], tokens and trained tokens that tombstones
      remove.
  """

  samples: np.ndarray
  units: np.ndarray
  removed: np.ndarray


class Counter:
  """Counts what planned steps of a run deliver. Any thread may use it."""

  def __init__(self, plan: plan_lib.Plan):
    """Binds a run.

    Args:
      plan: The run.
    """
    self._plan = plan
    self._with_removed = plan.tombstones.first_step is not None
    self._shape = (len(plan.source_names), len(plan.buckets))
    # Stores that do not train on all of their tokens.
    self._labelled: Mapping[int, stores.Store] = {
      number: rows.store
      for number, rows in enumerate(plan.sources.values())
      if not rows.store.labels.trains_on_all
    }

  def sums(self, count: int, planned: plan_lib.Planned) -> np.ndarray:
    """Returns int64[count + 1, N], the counts before each of some steps.

    Args:
      count: How many steps, all of one size.
      planned: All of their rows.
    """
    num_sources, num_buckets = self._shape
    spans, samples = planned.spans, planned.samples
    if samples is not None:
      source = np.where(samples < 0, -1, planned.dataset)
    else:
      assert spans is not None
      source = spans.row_source()
    step = np.repeat(np.arange(count), len(source) // count)
    real = source >= 0
    rows = np.zeros((count, num_sources, num_buckets), np.int64)
    rows[:, :, planned.bucket] = np.bincount(
      (step * num_sources + source)[real], minlength=count * num_sources
    ).reshape(count, num_sources)
    num_units = 4 if self._with_removed else 2
    units = np.zeros((num_units, count, num_sources), np.int64)
    if spans is not None:
      self._sum(spans.live(), step, units[:2])
      if spans.masked is not None:
        self._sum(tombstones.whole(spans), step, units[2:])
        units[2:] -= units[:2]
    columns = np.concatenate([rows.reshape(count, -1), *units], axis=1)
    sums_before = np.zeros((count + 1, columns.shape[1]), np.int64)
    np.cumsum(columns, axis=0, out=sums_before[1:])
    return sums_before

  def _sum(
    self, spans: spans_lib.Spans, step: np.ndarray, unit_sums: np.ndarray
  ) -> None:
    """Sums tokens and trained tokens into int64[2, steps, sources].

    Args:
      spans: The plan.
      step: int64[num_rows], which step each row is of.
      unit_sums: The array that sums are written to.
    """
    trained = spans.targets()
    for number, store in self._labelled.items():
      pick = np.flatnonzero(spans.source == number)
      source_spans = spans.take(pick, spans.row[pick], spans.num_rows)
      trained[pick] = row_labels.trained_targets(source_spans, store)
    key = step[spans.row] * unit_sums.shape[2] + spans.source
    for step_sums, units in zip(
      unit_sums, (spans.tokens(), trained), strict=True
    ):
      # Sums of steps stay far below 2**53, where float64 is exact.
      step_sums[:] = np.bincount(key, units, step_sums.size).reshape(
        step_sums.shape
      )

  def between(self, first: int, last: int) -> Delivered:
    """Plans steps first to last - 1, and returns what they deliver."""
    width = self._shape[0] * self._shape[1]
    width += self._shape[0] * (4 if self._with_removed else 2)
    total = np.zeros(width, np.int64)
    for steps in groups(self._plan, first, last):
      background.check()
      planned = self._plan.planned(steps.start, len(steps))
      total += self.sums(len(steps), planned)[-1]
    return self.split(total)

  def split(self, counts: np.ndarray) -> Delivered:
    """Returns the parts of a vector of counts."""
    num_sources, num_buckets = self._shape
    size = num_sources * num_buckets
    units = counts[size:].reshape(-1, 2, num_sources)
    removed = units[1] if self._with_removed else 0 * units[0]
    return Delivered(counts[:size].reshape(self._shape), units[0].T, removed.T)


def groups(
  plan: plan_lib.Plan, first: int, last: int, rows: int = _ROWS
) -> Iterator[range]:
  """Yields ranges of steps first to last - 1 that are planned together.

  Args:
    plan: The run.
    first: The first step.
    last: The step after the last one.
    rows: The most rows of a group of several steps.
  """
  while first < last:
    size = plan.buckets[plan.at(first)[1]].batch_size
    end = min(plan.group(first, max(1, rows // size))[1], last)
    yield range(first, end)
    first = end


class Ledger:
  """Running totals at the steps of a reader. Threads may share it."""

  def __init__(self, plan: plan_lib.Plan):
    """Stores the arguments; counts nothing.

    Args:
      plan: The run.
    """
    self._steps = plan.steps
    self._counter = Counter(plan)
    self._lock = threading.Lock()
    # Running totals int64[N] before consecutive steps, ascending. Only
    # differences between them have a meaning.
    self._before: dict[int, np.ndarray] = {}
    self._end: int | None = None

  def add(self, steps: range, planned: plan_lib.Planned) -> None:
    """Counts steps that follow each other.

    Args:
      steps: Of one size, with no skip between them.
      planned: All of their rows.
    """
    sums = self._counter.sums(len(steps), planned)
    with self._lock:
      if self._end != steps.start or self._is_skip_before(steps.start):
        # The reader has moved to another step.
        self._before.clear()
      else:
        sums += self._before[steps.start]
      self._before.update(
        zip(range(steps.start, steps.stop + 1), sums, strict=True)
      )
      self._end = steps.stop
      for step in list(self._before):
        if step >= steps.start - CACHED_STEPS:
          break
        del self._before[step]

  def between(self, first: int, last: int) -> Delivered | None:
    """Returns what steps first to last - 1 deliver, or None if not counted."""
    with self._lock:
      low, high = self._before.get(first), self._before.get(last)
    if low is None or high is None:
      return None
    return self._counter.split(high - low)

  @property
  def end(self) -> int | None:
    """The step after the last one counted."""
    return self._end

  def covers(self, step: int) -> bool:
    """Returns whether the counts before a step are known."""
    return step in self._before

  def _is_skip_before(self, step: int) -> bool:
    """Returns whether the data step before a step is skipped."""
    before = self._steps.data_step(step) - 1
    return before >= 0 and self._steps.run_step(before) is None
