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
import dataclasses
import fractions

import numpy as np

from chomp_data.bucket import bucket_lists
from chomp_data.bucket import bucket_stages as bucket_stages_lib
from chomp_data.mix import interleave

# (from_step, weights).
Stage = tuple[int, Mapping[bucket_lists.Bucket, fractions.Fraction | int]]

List = bucket_lists.BatchList | bucket_stages_lib.StagedList


@dataclasses.dataclass(frozen=True)
class ListMaker:
  """The arguments of one dataset's `BatchList`, and the lists made of them."""

  buckets: tuple[bucket_lists.Bucket, ...]
  counts: list[int]
  batch_sizes: list[int]
  units: list[int]
  key: int
  keeps_partial: bool
  epochs: int | None
  sample_units: bucket_lists.SampleUnits | None

  @property
  def filled(self) -> list[int]:
    """The numbers of the buckets in which the dataset has samples."""
    return [number for number, count in enumerate(self.counts) if count]

  def whole(self, bucket: int | None = None) -> bucket_lists.BatchList:
    """Returns the list of all batches, or of those of one bucket."""
    counts = [
      count if bucket in (None, number) else 0
      for number, count in enumerate(self.counts)
    ]
    return bucket_lists.BatchList(
      self.buckets,
      counts,
      self.batch_sizes,
      self.units,
      self.key,
      keeps_partial=self.keeps_partial,
      epochs=self.epochs,
      sample_units=self.sample_units,
    )

  def staged(
    self, stages: Sequence[tuple[int, Mapping[int, object]]]
  ) -> bucket_stages_lib.StagedList:
    """Returns the list of all batches, merged from its buckets in stages."""
    return bucket_stages_lib.StagedList(
      {number: self.whole(number) for number in self.filled},
      self.buckets,
      stages,
      self.key,
    )


def in_stages(
  makers: Mapping[str, ListMaker],
  stages: Sequence[interleave.Stage],
  bucket_stages: Sequence[Stage],
  merged: Callable[[Mapping[str, List]], interleave.Interleave],
) -> interleave.Interleave:
  """Merges datasets whose buckets have weights by stage.

  Where a stage begins in each dataset follows from the stages before it, so
  they are computed one after the other.
  """
  places: dict[str, list[tuple[int, Mapping[int, object]]]] = {}
  begins = dict.fromkeys(makers, 0)
  # Lists that were exhausted when the stage before ended.
  spent: dict[str, List | None] = dict.fromkeys(makers)
  steps = [step for step, _ in bucket_stages]
  merge = None
  for index, (step, weights) in enumerate(bucket_stages):
    until = steps[index + 1] if index + 1 < len(steps) else None
    for name, maker in makers.items():
      bucket_weights = {
        number: weights[maker.buckets[number]]
        for number in maker.filled
        if maker.buckets[number] in weights
      }
      if bucket_weights:
        list_stages = places.setdefault(name, [])
        if list_stages and list_stages[-1][0] == begins[name]:
          list_stages.pop()
        list_stages.append((begins[name], bucket_weights))
      elif spent[name] is None and _is_weighed(name, stages, step, until):
        raise ValueError(
          f"`bucket_stages[{index}]` from step {step} on must weigh a bucket"
          f" that dataset {name!r} has, got {', '.join(map(str, weights))}; it"
          f" has {', '.join(str(maker.buckets[n]) for n in maker.filled)}."
          " Weigh one of them, or leave the dataset out of the mix meanwhile."
        )
    lists = {
      name: maker.staged(places[name]) if name in places else maker.whole()
      for name, maker in makers.items()
    }
    merge = merged(lists)
    if index:
      _check_waited(makers, spent, merge, bucket_stages, index, begins)
    end = merge.num_positions
    if until is None:
      break
    rows = merge.consumed(until if end is None else min(until, end))[0]
    for (name, batches), row in zip(lists.items(), rows.tolist(), strict=True):
      begins[name] = row
      spent[name] = batches if row and row == batches.num_rows else None
      if spent[name] is not None and end is not None and end < until:
        _check_rest(name, makers[name], batches, bucket_stages, index)
    if end is not None and end < until:
      break
  assert merge is not None
  return merge


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


def _check_waited(
  makers: Mapping[str, ListMaker],
  spent: Mapping[str, List | None],
  merge: interleave.Interleave,
  bucket_stages: Sequence[Stage],
  index: int,
  begins: Mapping[str, int],
) -> None:
  """Raises ValueError if an exhausted dataset was due before its new samples.

  The dataset has samples again in stage `index`. If the merge with these
  samples gives it a turn before that stage, its share was missed there.
  """
  step = bucket_stages[index][0]
  end = merge.num_positions
  rows = merge.consumed(step if end is None else min(step, end))[0].tolist()
  for (name, batch_list), row in zip(spent.items(), rows, strict=True):
    if batch_list is not None and row > begins[name]:
      _check_rest(name, makers[name], batch_list, bucket_stages, index - 1)


def _check_rest(
  name: str,
  maker: ListMaker,
  batch_list: List,
  bucket_stages: Sequence[Stage],
  index: int,
) -> None:
  """Raises ValueError if later stages have samples of an exhausted dataset."""
  later = {
    bucket for _, stage in bucket_stages[index + 1 :] for bucket in stage
  }
  remaining = (maker.epochs or 1) * batch_list.batches_by_bucket
  remaining -= batch_list.batches_before(batch_list.num_rows or 0)
  unspent = [
    maker.buckets[number]
    for number in np.flatnonzero(remaining > 0).tolist()
    if maker.buckets[number] in later
  ]
  if unspent:
    raise ValueError(
      f"`bucket_stages[{index}]` must leave dataset {name!r} samples beyond"
      f" step {bucket_stages[index + 1][0]}, got {maker.epochs} epochs of its"
      f" buckets, which are spent before, while {', '.join(map(str, unspent))}"
      " are still to come. Begin the next stage earlier, weigh another bucket,"
      " or give more epochs."
    )
