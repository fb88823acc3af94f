# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A dataset's batches where the shares of its buckets change: a curriculum.

Each bucket has a list of batches, epoch after epoch, and the next batch of the
dataset is of the bucket that has consumed the least per weight:

    weights   8: 1, 16: 1       from place 4 on  16: 1, 32: 2
    list      8 16 8 16         32 16 32 32 16 32 ...

The share of a bucket whose epochs are complete goes to the others of its stage,
so the share of the dataset stays the same. Stages are given in steps of the
run, lists in places of one dataset; the place of each dataset at a step follows
from the stages before it:

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
from chomp_data.index import hashing
from chomp_data.index import ragged
from chomp_data.mix import bracketed
from chomp_data.mix import interleave
from chomp_data.sources import epochs as epochs_lib
from chomp_data.sources import prefix_sums

# (from_step, weights by name of the bucket).
Stage = tuple[int, Mapping[str, fractions.Fraction | int]]
# (from_place, weights by number of the bucket).
PlaceStage = tuple[int, Mapping[int, fractions.Fraction | int]]

# Places of a block of sums.
_BLOCK = interleave.BLOCK

# A list without an end is searched up to here, about 10**15 units.
_MOST_SEARCHED = 2**50


class StagedList(prefix_sums.PrefixSums):
  """A dataset's batches in stages: a merge of the lists of its buckets.

  It has the methods of `BatchList`; places are those of the merge. Its sums are
  those of equal blocks, before which the merge knows the units.

  Attributes:
    epochs: The blocks.
    repeating_units: None: blocks differ.
  """

  def __init__(self, whole: batch_list.BatchList, stages: Sequence[PlaceStage]):
    """Merges the buckets' lists.

    Args:
      whole: The list of all batches, without stages.
      stages: (from_place, weights of buckets), ascending from place 0.

    Raises:
      ValueError: If a stage weighs no bucket.
    """
    numbers = np.flatnonzero(whole.order.counts)
    self._lists = {number: whole.only(number) for number in numbers.tolist()}
    self._names = {n: str(whole.order.buckets[n]) for n in self._lists}
    self._merge = interleave.Interleave(
      {self._names[n]: batches for n, batches in self._lists.items()},
      [
        interleave.Stage(
          place, {self._names[n]: weight for n, weight in weights.items()}
        )
        for place, weights in stages
      ],
      hashing.fold_key(whole.order.key, "stages"),
    )
    self._stages = [(place, set(weights)) for place, weights in stages]
    self._numbers = numbers.astype(np.int32)
    self.epochs: epochs_lib.Epochs = epochs_lib.EqualEpochs(_BLOCK)
    self.repeating_units: Mapping[str, int] = {}
    super().__init__(self, "units", self._merge.num_positions)

  def locate(
    self, places: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the buckets, epochs and numbers of batches at places."""
    lane, row = self._merge.locate(places)
    epoch, batch = np.empty_like(row), np.empty_like(row)
    for number, pick in ragged.by_value(self._numbers[lane]):
      _, epoch[pick], batch[pick] = self._lists[number].locate(row[pick])
    return self._numbers[lane], epoch, batch

  def parts_at(self, place: int) -> list[tuple[batch_order.BatchOrder, int]]:
    """Returns the orders of the buckets and the place in each."""
    rows = self._merge.rows_at(place).tolist()
    orders = [batches.order for batches in self._lists.values()]
    return list(zip(orders, rows, strict=True))

  def places_at(self, bucket: int, places: np.ndarray) -> np.ndarray:
    """Returns the places here of places in the order of a bucket."""
    return self._merge.positions_of(self._names[bucket], places)

  def passed_at(self, epochs: int) -> int | None:
    """Returns the place at which `epochs` epochs of all buckets are complete.

    A bucket that no later stage weighs counts until it is left out. None if the
    place is never reached.
    """
    places = []
    for number, batches in self._lists.items():
      last = batches.passed_at(epochs) - 1
      place = self._merge.position_of(self._names[number], last)
      if place is None:
        place = self._left_out_at(number)
      if place is not None:
        places.append(place)
    return max(places) + 1 if places else None

  def _left_out_at(self, bucket: int) -> int | None:
    """Returns the place from which no stage weighs a bucket, or None."""
    weighed = [bucket in weights for _, weights in self._stages]
    if not any(weighed) or weighed[-1]:
      return None
    next_stage = len(weighed) - weighed[::-1].index(True)
    return self._stages[next_stage][0]

  def rows_below(self, units: int, near: bool = False) -> int:
    """Returns how many places have fewer than `units` before them.

    Beyond `_MOST_SEARCHED` units, which no run consumes, an estimate.
    """
    if self.num_rows is None and units > _MOST_SEARCHED:
      rows = super().rows_below(_MOST_SEARCHED, near)
      return rows * units // _MOST_SEARCHED
    return super().rows_below(units, near)

  def block_units(self, epoch: int, unit: str, rows: int | None) -> None:
    """Returns None: places within a block are summed one by one."""
    del epoch, unit, rows

  def units(self, epoch: int, positions: np.ndarray, unit: str) -> np.ndarray:
    """Returns what batches of a block consume; 0 beyond the end.

    Args:
      epoch: The block.
      positions: int64[N], consecutive.
      unit: Not used.

    Returns:
      int64[N].
    """
    del unit
    units = np.zeros(len(positions), np.int64)
    places = self.epochs.start(epoch) + positions
    if self.num_rows is not None:
      places = places[places < self.num_rows]
    lane, row = self._merge.locate(places)
    for number, pick in ragged.by_value(self._numbers[lane]):
      # A bucket's rows follow each other.
      ends = np.append(row[pick], row[pick][-1] + 1)
      units[: len(places)][pick] = np.diff(self._lists[number].before(ends))
    return units

  def _units_before_epoch(self, epoch: int) -> int:
    place = epoch * _BLOCK
    if self.num_rows is not None:
      place = min(place, self.num_rows)
    return int(self._merge.consumed(place)[1].sum())

  def _epoch_of(self, units: int) -> int:
    low, _ = bracketed.search(
      lambda block: (self._units_before_epoch(block), block),
      lambda point: point[0] < units,
      lambda point: units - 1 - point[0],
      (0, 0),
      last=None if self.num_rows is None else self.num_rows // _BLOCK,
    )
    return low[1]


List = batch_list.BatchList | StagedList


def in_stages(
  whole_lists: Mapping[str, batch_list.BatchList],
  stages: Sequence[interleave.Stage],
  bucket_stages: Sequence[Stage],
  merged: Callable[[Mapping[str, List]], interleave.Interleave],
) -> tuple[Mapping[str, List], interleave.Interleave]:
  """Returns the lists of datasets whose buckets have weights, and their merge.

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
  list_stages: dict[str, list[PlaceStage]] = {}
  begins = dict.fromkeys(whole_lists, 0)
  # Lists that were exhausted when the stage before ended.
  exhausted: dict[str, List | None] = dict.fromkeys(whole_lists)
  steps = [step for step, _ in bucket_stages]
  lists, merge = dict[str, List](), None
  for index, (step, weights) in enumerate(bucket_stages):
    until = steps[index + 1] if index + 1 < len(steps) else None
    for name, all_batches in whole_lists.items():
      bucket_names = _filled_buckets(all_batches)
      bucket_weights = {
        number: weights[bucket]
        for number, bucket in bucket_names.items()
        if bucket in weights
      }
      if bucket_weights:
        place_stages = list_stages.setdefault(name, [])
        if place_stages and place_stages[-1][0] == begins[name]:
          place_stages.pop()
        place_stages.append((begins[name], bucket_weights))
      elif exhausted[name] is None and _is_weighed(name, stages, step, until):
        raise ValueError(
          f"`bucket_stages[{index}]` from step {step} on must weigh a bucket"
          f" that dataset {name!r} has, got {', '.join(map(str, weights))}; it"
          f" has {', '.join(map(str, bucket_names.values()))}."
          " Weigh one of them, or leave the dataset out of the mix meanwhile."
        )
    lists = {
      name: StagedList(all_batches, list_stages[name])
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
  return lists, merge


def _filled_buckets(batches: batch_list.BatchList) -> dict[int, str]:
  """Returns the buckets that have samples of a dataset, by number."""
  numbers = np.flatnonzero(batches.order.counts).tolist()
  return {number: batches.order.buckets[number] for number in numbers}


def _is_weighed(
  name: str, stages: Sequence[interleave.Stage], first: int, last: int | None
) -> bool:
  """Returns whether a dataset has a weight at some step first .. last - 1."""
  ends = [*(stage.from_position for stage in stages[1:]), None]
  return any(
    name in stage.weights
    and (last is None or stage.from_position < last)
    and (end is None or end > first)
    for stage, end in zip(stages, ends, strict=True)
  )


def _check_later(
  name: str,
  order: batch_order.BatchOrder,
  batches: List,
  bucket_stages: Sequence[Stage],
  index: int,
) -> None:
  """Raises ValueError if stages after that in which a list ended have more."""
  later = {
    bucket for _, stage in bucket_stages[index + 1 :] for bucket in stage
  }
  remaining = (order.epochs or 1) * order.batches
  for part, row in batches.parts_at(batches.num_rows or 0):
    remaining -= part.batches_before(row)
  unread = [
    bucket
    for bucket, count in zip(order.buckets, remaining.tolist(), strict=True)
    if count > 0 and bucket in later
  ]
  if unread:
    raise ValueError(
      f"`bucket_stages[{index}]` must leave dataset {name!r} samples beyond"
      f" step {bucket_stages[index + 1][0]}, got {order.epochs} epochs"
      " of its buckets, which are spent before, while"
      f" {', '.join(map(str, unread))} are still to come. Begin the next stage"
      " earlier, weigh another bucket,"
      " or give more epochs."
    )
