# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Balance: places the rows of a batch so that shards have equal attention cost.

Rows are placed after they were planned. Which rows a step holds does not depend
on it, nor do states, fingerprints, accounts and traces; the number of shards
decides only at which place of the global batch each row is.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

import numpy as np

from chomp_data import schema
from chomp_data.plans import dealing
from chomp_data.plans import plan as plan_lib
from chomp_data.rows import buckets as buckets_lib
from chomp_data.rows import row_costs

# The number of shards of a batch, by bucket name.
Shards = Mapping[str, int]


def is_asked(options: Any) -> bool:
  """Returns whether the options of a run balance rows by cost."""
  return getattr(options, "balance", None) is not None


def dealt_shards(
  options: Any,
  buckets: Sequence[buckets_lib.Bucket],
  shards: Shards | None = None,
) -> Shards | None:
  """Returns over how many shards rows are balanced, by bucket.

  Args:
    options: The options of the run.
    buckets: The buckets of the run.
    shards: The shards of an iterator; None takes `balance_shards`.

  Returns:
    The number of shards, or None if rows keep their planned order.

  Raises:
    ConfigError: If `balance_shards` does not divide the rows of a step.
  """
  if not is_asked(options):
    return None
  count = options.balance_shards
  if shards or count is None:
    return shards or None
  problems = [
    f"`config.data.balance_shards` must divide the rows of every step, got"
    f" {count} for {bucket.batch_size} rows of {bucket}. Use a divisor, or"
    " unset it for the shards that there are."
    for bucket in buckets
    if bucket.batch_size % count
  ]
  if problems:
    raise schema.ConfigError(problems)
  return {bucket.name: count for bucket in buckets}


def shards_of(plan: plan_lib.Plan, step: int, shards: Shards | None) -> int:
  """Returns over how many shards a step is balanced; 1 keeps its row order."""
  if shards is None:
    return 1
  bucket = plan.buckets[plan.at(step)[1]]
  count = shards.get(bucket.name, 1)
  return count if dealing.helps(bucket.batch_size, count) else 1


def order(
  plan: plan_lib.Plan, planned: plan_lib.Planned, shards: int
) -> np.ndarray:
  """Returns which planned row is at each place of global batches.

  Args:
    plan: The run.
    planned: All rows of steps of one size, of text.
    shards: Over how many shards they are balanced.

  Returns:
    int64[steps, batch size], row numbers in the step.
  """
  bucket, spans = plan.buckets[planned.bucket], planned.spans
  assert spans is not None
  trailing = np.asarray(
    [
      source.layout.trailing_filler_in_segment
      for source in plan.sources.values()
    ]
  )
  costs = row_costs.attention(spans, bucket.shape[0], trailing[spans.source])
  return dealing.deal(costs.reshape(-1, bucket.batch_size), shards)


def planned(
  plan: plan_lib.Plan,
  steps: range,
  places: plan_lib.Rows | None,
  shards: Shards | None,
) -> plan_lib.Planned:
  """Returns what reading some rows of global batches needs.

  Args:
    plan: The run.
    steps: Steps of one group of `Plan.group`.
    places: The places of the rows in global batches, by bucket; None is all.
    shards: Over how many shards rows are balanced, by bucket; None keeps their
      planned order.
  """
  count = shards_of(plan, steps[0], shards)
  if count == 1:
    first, step = steps[0], steps.step
    return plan.planned(first, len(steps), places, step)
  global_plan = plan.planned(steps[0], len(steps), None, steps.step)
  row_of_place = order(plan, global_plan, count)
  size = row_of_place.shape[1]
  if places is not None:
    row_of_place = row_of_place[
      :, places[plan.buckets[global_plan.bucket].name]
    ]
  rows_of_steps = row_of_place.reshape(-1)
  row_of_place = (
    row_of_place + np.arange(len(row_of_place))[:, None] * size
  ).reshape(-1)
  spans, samples = global_plan.spans, global_plan.samples
  assert spans is not None
  return dataclasses.replace(
    global_plan,
    spans=spans.of_rows(row_of_place),
    samples=None if samples is None else samples[row_of_place],
    rows=rows_of_steps,
  )
