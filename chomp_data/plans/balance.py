# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Balance: which row of a batch on devices is which row of the plan.

A placement after the plan. What a step holds, and so states, fingerprints,
accounts and traces, are of rows as they were planned; the number of shards
decides only where in the global batch each of them stands.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

import numpy as np

from chomp_data import schema
from chomp_data.index import balance
from chomp_data.plans import plan as plan_lib
from chomp_data.rows import buckets as buckets_lib
from chomp_data.rows import row_costs

# Of the batches of each bucket, by its name.
Shards = Mapping[str, int]


def is_asked(options: Any) -> bool:
  """Returns whether options of a run ask for rows dealt by their cost."""
  return getattr(options, "balance", None) is not None


def dealt_shards(
  options: Any,
  buckets: Sequence[buckets_lib.Bucket],
  shards: Shards | None = None,
) -> Shards | None:
  """Returns over how many shards rows are dealt, by bucket.

  Args:
    options: Of the run.
    buckets: The run's.
    shards: Those of an iterator; None is `balance_shards`.

  Returns:
    None where rows stand as they are planned.

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
  """Returns over how many shards the rows of a step are dealt; 1 is not."""
  if shards is None:
    return 1
  bucket = plan.buckets[plan.at(step)[1]]
  own = shards.get(bucket.name, 1)
  return own if balance.helps(bucket.batch_size, own) else 1


def order(
  plan: plan_lib.Plan, planned: plan_lib.Planned, shards: int
) -> np.ndarray:
  """Returns the row of its step that stands at each place of global batches.

  Args:
    plan: The run.
    planned: All rows of steps of one size; text.
    shards: Over how many shards they are dealt.

  Returns:
    int64[steps, batch size].
  """
  bucket, spans = plan.buckets[planned.bucket], planned.spans
  assert spans is not None
  trailing = np.asarray(
    [own.layout.trailing_filler_in_segment for own in plan.sources.values()]
  )
  costs = row_costs.attention(spans, bucket.shape[0], trailing[spans.source])
  return balance.deal(costs.reshape(-1, bucket.batch_size), shards)


def planned(
  plan: plan_lib.Plan,
  steps: range,
  places: plan_lib.Rows | None,
  shards: Shards | None,
) -> plan_lib.Planned:
  """Returns what reading some rows of global batches needs.

  Args:
    plan: The run.
    steps: Which `Plan.group` puts together.
    places: Where these rows stand in global batches; None is all.
    shards: By bucket, over how many shards rows are dealt; None: they stand as
      they are planned.
  """
  count = shards_of(plan, steps[0], shards)
  if count == 1:
    first, step = steps[0], steps.step
    return plan.planned(first, len(steps), places, step)
  whole = plan.planned(steps[0], len(steps), None, steps.step)
  found = order(plan, whole, count)
  size = found.shape[1]
  if places is not None:
    found = found[:, places[plan.buckets[whole.bucket].name]]
  rows = found.reshape(-1)
  found = (found + np.arange(len(found))[:, None] * size).reshape(-1)
  spans, samples = whole.spans, whole.samples
  assert spans is not None
  return dataclasses.replace(
    whole,
    spans=spans.of_rows(found),
    samples=None if samples is None else samples[found],
    rows=rows,
  )
