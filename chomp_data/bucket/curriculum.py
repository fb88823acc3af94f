# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Where each stage of a curriculum over buckets begins in each dataset.

Stages are given in steps of the run, lists in places of one dataset. The place
of each dataset at a step follows from the stages before it:

    step 0     a 16: 1, 32: 1             b 16: 1
    step 100   61 batches of a are read   39 of b
    so         a takes 32 from place 61   b takes 32 from place 39

NumPy only.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import fractions

import numpy as np

from chomp_data.bucket import batch_list
from chomp_data.bucket import batch_order
from chomp_data.bucket import staged_list
from chomp_data.mix import interleave

# (from_step, weights by name of the bucket).
Stage = tuple[int, Mapping[str, fractions.Fraction | int]]

List = batch_list.BatchList | staged_list.StagedList


def in_stages(
  whole_lists: Mapping[str, batch_list.BatchList],
  stages: Sequence[interleave.Stage],
  bucket_stages: Sequence[Stage],
  merged: Callable[[Mapping[str, List]], interleave.Interleave],
) -> interleave.Interleave:
  """Merges datasets whose buckets have weights by stage.

  Where a stage begins in each dataset follows from the stages before it, so
  they are computed one after the other.

  Args:
    whole_lists: By dataset, all its batches in no stages.
    stages: Weights of datasets.
    bucket_stages: Weights of buckets.
    merged: Merges the lists of the datasets by `stages`.

  Raises:
    ValueError: If a dataset has a weight where none of its buckets has one, or
      would miss samples of a later stage.
  """
  list_stages: dict[str, list[staged_list.Stage]] = {}
  begins = dict.fromkeys(whole_lists, 0)
  # Lists that were exhausted when the stage before ended.
  exhausted: dict[str, List | None] = dict.fromkeys(whole_lists)
  steps = [step for step, _ in bucket_stages]
  merge = None
  for index, (step, weights) in enumerate(bucket_stages):
    until = steps[index + 1] if index + 1 < len(steps) else None
    for name, all_batches in whole_lists.items():
      filled = _filled(all_batches)
      bucket_weights = {
        number: weights[bucket]
        for number, bucket in filled.items()
        if bucket in weights
      }
      if bucket_weights:
        so_far = list_stages.setdefault(name, [])
        if so_far and so_far[-1][0] == begins[name]:
          so_far.pop()
        so_far.append((begins[name], bucket_weights))
      elif exhausted[name] is None and _is_weighed(name, stages, step, until):
        raise ValueError(
          f"`bucket_stages[{index}]` from step {step} on must weigh a bucket"
          f" that dataset {name!r} has, got {', '.join(map(str, weights))}; it"
          f" has {', '.join(map(str, filled.values()))}."
          " Weigh one of them, or leave the dataset out of the mix meanwhile."
        )
    lists = {
      name: staged_list.StagedList(all_batches, list_stages[name])
      if name in list_stages
      else all_batches
      for name, all_batches in whole_lists.items()
    }
    merge = merged(lists)
    end = merge.num_positions
    if index:
      # An exhausted dataset has samples again in this stage. If the merge with
      # these gives it a turn before, its share was missed there.
      rows = merge.consumed(step if end is None else min(step, end))[0]
      for name, row in zip(whole_lists, rows.tolist(), strict=True):
        batches = exhausted[name]
        if batches is not None and row > begins[name]:
          order = whole_lists[name].order
          _check_later(name, order, batches, bucket_stages, index - 1)
    if until is None:
      break
    rows = merge.consumed(until if end is None else min(until, end))[0]
    is_last = end is not None and end < until
    for (name, batches), row in zip(lists.items(), rows.tolist(), strict=True):
      begins[name] = row
      exhausted[name] = batches if row and row == batches.num_rows else None
      if is_last and exhausted[name] is not None:
        order = whole_lists[name].order
        _check_later(name, order, batches, bucket_stages, index)
    if is_last:
      break
  assert merge is not None
  return merge


def _filled(batches: batch_list.BatchList) -> dict[int, str]:
  """Returns the buckets that have samples of a dataset, by number."""
  numbers = np.flatnonzero(batches.order.counts).tolist()
  return {number: batches.order.buckets[number] for number in numbers}


def _is_weighed(
  name: str, stages: Sequence[interleave.Stage], first: int, last: int | None
) -> bool:
  """Returns whether a dataset has a weight at some step first .. last - 1."""
  for index, stage in enumerate(stages):
    until = None
    if index + 1 < len(stages):
      until = stages[index + 1].from_position
    ends = until is not None and until <= first
    begins = last is None or stage.from_position < last
    if name in stage.weights and begins and not ends:
      return True
  return False


def _check_later(
  name: str,
  full_order: batch_order.BatchOrder,
  batches: List,
  bucket_stages: Sequence[Stage],
  index: int,
) -> None:
  """Raises ValueError if later stages have samples of an exhausted dataset.

  Args:
    name: The dataset.
    full_order: The order of all its batches, without stages.
    batches: Its list of batches, which has ended.
    bucket_stages: All stages.
    index: The stage in which it ended.
  """
  later = {
    bucket for _, stage in bucket_stages[index + 1 :] for bucket in stage
  }
  left = (full_order.epochs or 1) * full_order.batches
  for order, row in batches.parts_at(batches.num_rows or 0):
    left -= order.batches_before(row)
  unspent = [
    bucket
    for bucket, count in zip(full_order.buckets, left.tolist(), strict=True)
    if count > 0 and bucket in later
  ]
  if unspent:
    raise ValueError(
      f"`bucket_stages[{index}]` must leave dataset {name!r} samples beyond"
      f" step {bucket_stages[index + 1][0]}, got {full_order.epochs} epochs"
      " of its buckets, which are spent before, while"
      f" {', '.join(map(str, unspent))} are still to come. Begin the next stage"
      " earlier, weigh another bucket,"
      " or give more epochs."
    )
