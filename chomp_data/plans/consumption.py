# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How many samples of each source a run has consumed before a step.

A sample of a step that is skipped is consumed, but not delivered. Padding
counts as no sample.
"""

from collections.abc import Callable
import dataclasses

import numpy as np

from chomp_data.plans import plan as plan_lib


@dataclasses.dataclass(frozen=True)
class Position:
  """How far a source is before a step.

  Attributes:
    consumed: Its samples in the data steps before the step. In a run that
      resumed from the offsets of another, those offsets are included.
    skipped: Ranges (first, last + 1) of them that no step delivered, ascending.
  """

  consumed: int
  skipped: tuple[tuple[int, int], ...] = ()

  @property
  def delivered(self) -> int:
    """Samples that were in batches."""
    return self.consumed - sum(last - first for first, last in self.skipped)


@dataclasses.dataclass(frozen=True)
class Consumed:
  """What a run has consumed of a source before a step.

  Attributes:
    rows: Rows, or samples, including those before the start of the run.
    units: What these rows consumed, in the unit that is balanced.
    epochs: Passes over the source, the current one as a fraction.
  """

  rows: int
  units: int
  epochs: float


def consumed(plan: plan_lib.Plan, step: int) -> plan_lib.Counts:
  """Returns the samples of all data steps before a step, skipped ones too.

  Args:
    plan: The run.
    step: At most the number of steps of the run.

  Raises:
    IndexError: If the step is beyond the run.
  """
  plan_lib.check_boundary(plan, step)
  return plan.counts(plan.steps.data_step(step))


def delivered(plan: plan_lib.Plan, step: int) -> np.ndarray:
  """Returns the samples that were in batches, int64[num_sources, num_buckets].

  Args:
    plan: The run.
    step: At most the number of steps of the run.

  Raises:
    IndexError: If the step is beyond the run.
  """
  plan_lib.check_boundary(plan, step)

  def counts(data_step: int) -> np.ndarray:
    by_source = plan.counts(data_step).values()
    return np.asarray([[*by_bucket.values()] for by_bucket in by_source])

  return minus_skipped(plan, step, counts)


def minus_skipped(
  plan: plan_lib.Plan, step: int, count: Callable[[int], np.ndarray]
) -> np.ndarray:
  """Returns what the steps before one hold, without that of skipped ones.

  Args:
    plan: The run.
    step: The step.
    count: Returns counts before a data step.
  """
  total = count(plan.steps.data_step(step))
  for first, last in plan.steps.skipped(step):
    total = total - (count(last) - count(first))
  return total


def positions(plan: plan_lib.Plan, step: int) -> dict[str, Position]:
  """Returns where each source is before a step.

  Args:
    plan: The run.
    step: At most the number of steps of the run.

  Raises:
    IndexError: If the step is beyond the run.
  """
  counts = by_source(consumed(plan, step))
  skipped: dict[str, list[tuple[int, int]]] = {name: [] for name in counts}
  for first, last in plan.steps.skipped(step):
    low, high = by_source(plan.counts(first)), by_source(plan.counts(last))
    for name, ranges in skipped.items():
      if low[name] < high[name]:
        ranges.append((low[name], high[name]))
  return {
    name: Position(count, tuple(skipped[name]))
    for name, count in counts.items()
  }


def is_removed_before(plan: plan_lib.Plan, step: int) -> bool:
  """Returns whether tombstones may remove tokens of steps before one."""
  first = plan.tombstones.first_step
  return first is not None and plan.steps.before(first) < step


def by_source(counts: plan_lib.Counts) -> dict[str, int]:
  """Returns the samples of each source, in all buckets together."""
  return {name: sum(by_bucket.values()) for name, by_bucket in counts.items()}


def buckets_from(plan: plan_lib.Plan, step: int) -> list[str] | None:
  """Returns the buckets of batches from a step on; None is all.

  Args:
    plan: The run.
    step: The step.
  """
  if plan.by_bucket:
    return None
  first = plan.steps.data_step(step)
  later = [size for at, size in plan.steps.sizes if at > first]
  sizes = {plan.steps.size(first), *later}
  return [bucket.name for bucket in plan.buckets if bucket.batch_size in sizes]
