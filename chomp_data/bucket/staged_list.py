# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A dataset's batches where the shares of its buckets change: a curriculum.

Each bucket has a list of batches, epoch after epoch, and the next batch of the
dataset is of the bucket that has consumed the least per weight:

    weights   8: 1, 16: 1       from place 4 on  16: 1, 32: 2
    list      8 16 8 16         32 16 32 32 16 32 ...

The share of a bucket whose epochs are complete goes to the others of its stage,
so the share of the dataset stays the same. Stages are given in places of the
list; the schedule maps steps of the run to places. NumPy only.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import fractions

import numpy as np

from chomp_data.bucket import batch_list
from chomp_data.bucket import batch_order
from chomp_data.index import bracketed
from chomp_data.index import hashing
from chomp_data.index import memo
from chomp_data.mix import interleave

# (from_place, weights by number of the bucket).
Stage = tuple[int, Mapping[int, fractions.Fraction | int]]

# Places summed in one table.
_BLOCK = interleave.BLOCK
_CACHED_BLOCKS = 16

# A list without an end is searched up to here, about 10**15 units.
_MOST_SEARCHED = 2**50


class StagedList:
  """A dataset's batches in stages: a merge of the lists of its buckets.

  Has the methods of `BatchList`; places are those of the merge.
  """

  def __init__(self, whole: batch_list.BatchList, stages: Sequence[Stage]):
    """Merges the buckets' lists.

    Args:
      whole: The list of all batches, without stages.
      stages: (from_place, weights of buckets), ascending from place 0.

    Raises:
      ValueError: If a stage weighs no bucket.
    """
    filled = np.flatnonzero(whole.order.counts)
    self._lists = {number: whole.only(number) for number in filled.tolist()}
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
    self._numbers = filled.astype(np.int32)
    self.num_rows: int | None = self._merge.num_positions

  def locate(
    self, places: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns buckets, epochs and batch numbers at places, as `BatchList`."""
    lane, row = self._merge.locate(places)
    epoch, batch = np.empty_like(row), np.empty_like(row)
    for i, batches in enumerate(self._lists.values()):
      pick = np.flatnonzero(lane == i)
      if pick.size:
        _, epoch[pick], batch[pick] = batches.locate(row[pick])
    return self._numbers[lane], epoch, batch

  def parts_at(self, place: int) -> list[tuple[batch_order.BatchOrder, int]]:
    """Returns the orders that the list is merged from, and the place in each.

    Args:
      place: A place of the list.
    """
    rows = self._merge.rows_at(place).tolist()
    orders = [batches.order for batches in self._lists.values()]
    return list(zip(orders, rows, strict=True))

  def part_of(self, bucket: int) -> batch_order.BatchOrder:
    """Returns the order that holds the batches of a bucket."""
    return self._lists[bucket].order

  def places_at(self, bucket: int, places: np.ndarray) -> np.ndarray:
    """Returns the places here of places in the order of a bucket.

    Args:
      bucket: The number of a bucket.
      places: int64[N], places of `part_of`, ascending.

    Returns:
      int64[M], ascending; M < N if the list ends before some of them.
    """
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
    after = len(weighed) - weighed[::-1].index(True)
    return self._stages[after][0]

  def before(self, rows: np.ndarray) -> np.ndarray:
    """Returns int64[N], the units of the batches before places int64[N]."""
    block, places_in_block = np.divmod(rows, _BLOCK)
    units = np.empty(len(rows), np.int64)
    for number in np.unique(block).tolist():
      members = block == number
      units[members] = self._block_sums(number)[places_in_block[members]]
    return units

  def rows_below(self, units: int, near: bool = False) -> int:
    """Returns how many places have fewer than `units` before them.

    Beyond `_MOST_SEARCHED` units, which no run consumes, an estimate.
    """
    del near
    if units <= 0:
      return 0
    if self.num_rows is None and units > _MOST_SEARCHED:
      return self.rows_below(_MOST_SEARCHED) * units // _MOST_SEARCHED
    # The last block with fewer units before its first place.
    low, _ = bracketed.search(
      lambda block: (self._units_at(block * _BLOCK), block),
      lambda point: point[0] < units,
      lambda point: units - 1 - point[0],
      (0, 0),
      last=None if self.num_rows is None else self.num_rows // _BLOCK,
    )
    first = low[1] * _BLOCK
    return first + int(np.searchsorted(self._block_sums(low[1])[:-1], units))

  def _units_at(self, place: int) -> int:
    """Returns the units before a place."""
    return int(self._merge.consumed(place)[1].sum())

  @memo.remembered(_CACHED_BLOCKS)
  def _block_sums(self, block: int) -> np.ndarray:
    """Returns int64[n + 1], the units before the places of a block."""
    first, last = block * _BLOCK, (block + 1) * _BLOCK
    if self.num_rows is not None:
      last = min(last, self.num_rows)
    units = np.zeros(last - first + 1, np.int64)
    units[0] = self._units_at(first)
    lane, row = self._merge.locate(np.arange(first, last))
    for i, batches in enumerate(self._lists.values()):
      pick = np.flatnonzero(lane == i)
      if pick.size:
        # A bucket's rows follow each other.
        ends = np.append(row[pick], row[pick[-1]] + 1)
        units[pick + 1] = np.diff(batches.before(ends))
    return np.cumsum(units)
