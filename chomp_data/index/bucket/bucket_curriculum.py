# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Where each stage of a curriculum over buckets begins in each dataset.

Stages are told by steps of the run, lists by their own places. How far each
dataset is at a step follows from the stages before it:

    step 0     a 16: 1, 32: 1             b 16: 1
    step 100   a has given 61 batches     b has given 39
    so         a takes 32 from place 61   b takes 32 from place 39

NumPy only.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import fractions

import numpy as np

from chomp_data.index.bucket import bucket_lists
from chomp_data.index.bucket import bucket_stages as bucket_stages_lib
from chomp_data.index.mix import interleave

# (from_step, weights).
Stage = tuple[int, Mapping[bucket_lists.Bucket, fractions.Fraction | int]]

List = bucket_lists.BatchList | bucket_stages_lib.StagedList


@dataclasses.dataclass(frozen=True)
class ListMaker:
  """Makes the lists of one dataset; fields are those of `BatchList`."""

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
    """The numbers of the buckets that it has."""
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
    """Returns the list in stages of its buckets."""
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
  """Returns the merge of datasets whose buckets come in stages.

  Where a stage begins in each dataset follows from the stages before it, so
  they are worked out one after the other.
  """
  places: dict[str, list[tuple[int, Mapping[int, object]]]] = {}
  begins = dict.fromkeys(makers, 0)
  # Lists that have nothing left where the stage before ended.
  spent: dict[str, List | None] = dict.fromkeys(makers)
  steps = [step for step, _ in bucket_stages]
  merge = None
  for index, (step, weights) in enumerate(bucket_stages):
    until = steps[index + 1] if index + 1 < len(steps) else None
    for name, maker in makers.items():
      own = {
        number: weights[maker.buckets[number]]
        for number in maker.filled
        if maker.buckets[number] in weights
      }
      if own:
        known = places.setdefault(name, [])
        if known and known[-1][0] == begins[name]:
          known.pop()
        known.append((begins[name], own))
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
    given = merge.consumed(until if end is None else min(until, end))[0]
    for (name, own), row in zip(lists.items(), given.tolist(), strict=True):
      begins[name] = row
      spent[name] = own if row and row == own.num_rows else None
      if spent[name] is not None and end is not None and end < until:
        _check_rest(name, makers[name], own, bucket_stages, index)
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
  """Raises ValueError if a dataset would have gone on before its stage.

  It had run out, and has samples again in the stage that is new: where it gets
  a turn before that stage begins, its share was missed there.
  """
  step = bucket_stages[index][0]
  end = merge.num_positions
  given = merge.consumed(step if end is None else min(step, end))[0].tolist()
  for (name, own), row in zip(spent.items(), given, strict=True):
    if own is not None and row > begins[name]:
      _check_rest(name, makers[name], own, bucket_stages, index - 1)


def _check_rest(
  name: str,
  maker: ListMaker,
  spent: List,
  bucket_stages: Sequence[Stage],
  index: int,
) -> None:
  """Raises ValueError if a dataset has run out, but later stages have more."""
  later = {bucket for _, own in bucket_stages[index + 1 :] for bucket in own}
  whole = (maker.epochs or 1) * spent.batches_by_bucket
  rest = whole - spent.batches_before(spent.num_rows or 0)
  left = [
    maker.buckets[number]
    for number in np.flatnonzero(rest > 0).tolist()
    if maker.buckets[number] in later
  ]
  if left:
    raise ValueError(
      f"`bucket_stages[{index}]` must leave dataset {name!r} samples beyond"
      f" step {bucket_stages[index + 1][0]}, got {maker.epochs} epochs of its"
      f" buckets, which are spent before, while {', '.join(map(str, left))} are"
      " still to come. Begin the next stage earlier, weigh another bucket, or"
      " give more epochs."
    )
