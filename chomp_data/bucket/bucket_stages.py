# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A dataset's batches where the shares of its buckets change: a curriculum.

Each bucket has its own list of batches, epoch after epoch, and the next batch
of the dataset is of the bucket that has consumed the least per weight:

    weights   8: 1, 16: 1       from place 4 on  16: 1, 32: 2
    list      8 16 8 16         32 16 32 32 16 32 ...

The share of a bucket whose epochs are complete goes to the others of its stage,
so the share of the dataset stays the same. Stages are given in places of the
list; the schedule maps steps of the run to places. NumPy only.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np

from chomp_data.bucket import bucket_lists
from chomp_data.index import bracketed
from chomp_data.index import hashing
from chomp_data.index import memo
from chomp_data.mix import interleave

# Places summed in one table.
_BLOCK = interleave.BLOCK
_CACHED_BLOCKS = 16

# A list without an end is searched up to here, about 10**15 units.
_MOST_SEARCHED = 2**50


class StagedList:
  """A dataset's batches in stages, as rows of a merge.

  Has the methods of `BatchList`; places are those of the merged list.
  """

  def __init__(
    self,
    lists: Mapping[int, bucket_lists.BatchList],
    buckets: Sequence[bucket_lists.Bucket],
    stages: Sequence[tuple[int, Mapping[int, object]]],
    key: int,
  ):
    """Merges the buckets' lists.

    Args:
      lists: By number of the bucket, a list of that bucket's batches alone.
      buckets: Names of all buckets, by number, from which keys are derived.
      stages: (from_place, weights by number of the bucket), rising from 0.
      key: A 64-bit key.

    Raises:
      ValueError: If a stage weighs no bucket.
    """
    self._lists = dict(lists)
    names = {number: str(buckets[number]) for number in lists}
    self._merge = interleave.Interleave(
      {names[number]: batches for number, batches in lists.items()},
      [
        interleave.Stage(
          place,
          {names[number]: weight for number, weight in weights.items()},  # pyright: ignore[reportArgumentType]
        )
        for place, weights in stages
      ],
      hashing.fold_key(key, "stages"),
    )
    self._names = names
    self._stages = [(place, set(weights)) for place, weights in stages]
    self._numbers = np.asarray(list(lists), np.int32)
    self.num_rows: int | None = self._merge.num_positions
    self._sums = memo.Memo(_CACHED_BLOCKS)

  @property
  def batches_by_bucket(self) -> np.ndarray:
    """Batches of an epoch of each bucket, int64[num_buckets]."""
    return sum(
      (batches.batches_by_bucket for batches in self._lists.values()),
      np.zeros(1, np.int64),
    )

  def locate(
    self, places: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns buckets, epochs and batch numbers at places, as `BatchList`."""
    lane, row = self._merge.locate(places)
    epoch, batch = np.empty_like(row), np.empty_like(row)
    for i, batch_list in enumerate(self._lists.values()):
      pick = np.flatnonzero(lane == i)
      if pick.size:
        _, epoch[pick], batch[pick] = batch_list.locate(row[pick])
    return self._numbers[lane], epoch, batch

  def samples(
    self, bucket: int, epoch: int, batch: int, rows: np.ndarray
  ) -> np.ndarray:
    """Returns int64[R], the samples at rows of a batch; -1 is padding."""
    return self._lists[bucket].samples(bucket, epoch, batch, rows)

  def of_bucket(self, bucket: int) -> bucket_lists.BatchList:
    """Returns the list that contains a bucket's samples."""
    return self._lists[bucket]

  def row_at(self, bucket: int, place: int) -> int:
    """Returns the first place of `of_bucket` at or after a place."""
    lane = list(self._lists).index(bucket)
    return int(self._merge.rows_at(place)[lane])

  def places_at(self, bucket: int, rows: np.ndarray) -> np.ndarray:
    """Returns the places of places of `of_bucket`; inverts `row_at`."""
    return self._merge.positions_of(self._names[bucket], rows)

  def given(self, first: int, last: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yields (bucket, samples) of places first .. last - 1, in no order."""
    begins, ends = (
      self._merge.consumed(place)[0].tolist() for place in (first, last)
    )
    for number, begin, end in zip(self._lists, begins, ends, strict=True):
      yield from self._lists[number].given(begin, end)

  def units_before(self, place: int, totals: bucket_lists.Totals) -> int:
    """Returns the units of the samples before a place."""
    rows = self._merge.consumed(place)[0].tolist()
    parts = zip(self._lists.values(), rows, strict=True)
    return sum(batches.units_before(row, totals) for batches, row in parts)

  def before(self, rows: np.ndarray) -> np.ndarray:
    """Returns int64[N], the units of the batches before places int64[N]."""
    block, inside = np.divmod(rows, _BLOCK)
    units = np.empty(len(rows), np.int64)
    for number in np.unique(block).tolist():
      members = block == number
      units[members] = self._block_sums(number)[inside[members]]
    return units

  def rows_below(self, units: int) -> int:
    """Returns how many places have fewer than `units` before them.

    Beyond `_MOST_SEARCHED` units, which no run consumes, an estimate.
    """
    if units <= 0:
      return 0
    if self.num_rows is None and units > _MOST_SEARCHED:
      return self.rows_below(_MOST_SEARCHED) * units // _MOST_SEARCHED
    block = self._block_below(units)
    return block * _BLOCK + int(
      np.searchsorted(self._block_sums(block)[:-1], units, "left")
    )

  def batches_before(self, place: int) -> np.ndarray:
    """Returns int64[num_buckets], the batches before a place of the list."""
    rows = self._merge.consumed(place)[0].tolist()
    parts = zip(self._lists.values(), rows, strict=True)
    return np.sum(
      [batches.batches_before(row) for batches, row in parts], axis=0
    )

  def samples_before(self, place: int) -> np.ndarray:
    """Returns int64[num_buckets], the real samples before a place."""
    rows = self._merge.consumed(place)[0].tolist()
    parts = zip(self._lists.values(), rows, strict=True)
    return np.sum(
      [batches.samples_before(row) for batches, row in parts], axis=0
    )

  def passed_at(self, epochs: int) -> int | None:
    """Returns the place at which `epochs` epochs of all buckets are complete.

    A bucket that no later stage weighs counts until it is left out. None if the
    place is never reached.
    """
    places = []
    for number, batches in self._lists.items():
      name, last = self._names[number], epochs * batches.num_batches - 1
      place = self._merge.position_of(name, last)
      if place is None:
        place = self._left_out_at(number)
      if place is not None:
        places.append(place)
    return max(places) + 1 if places else None

  def _left_out_at(self, bucket: int) -> int | None:
    """Returns where a bucket is left out for good; None if it never is."""
    weighed = [bucket in weights for _, weights in self._stages]
    if not any(weighed) or weighed[-1]:
      return None
    after = len(weighed) - weighed[::-1].index(True)
    return self._stages[after][0]

  def _block_sums(self, block: int) -> np.ndarray:
    """Returns int64[n + 1], the units before the places of a block."""
    sums = self._sums.get(block)
    if sums is None:
      first, last = block * _BLOCK, (block + 1) * _BLOCK
      if self.num_rows is not None:
        last = min(last, self.num_rows)
      _, units = self._merge.consumed(first)
      used = np.zeros(last - first + 1, np.int64)
      used[0] = units.sum()
      lane, row = self._merge.locate(np.arange(first, last))
      for i, batch_list in enumerate(self._lists.values()):
        pick = np.flatnonzero(lane == i)
        if pick.size:
          # A bucket's rows follow each other.
          ends = np.append(row[pick], row[pick[-1]] + 1)
          used[pick + 1] = np.diff(batch_list.before(ends))
      sums = np.cumsum(used)
      self._sums.put(block, sums)
    return sums

  def _units_at(self, block: int) -> int:
    """Returns the units before the first place of a block."""
    sums = self._sums.get(block)
    if sums is not None:
      return int(sums[0])
    return int(self._merge.consumed(block * _BLOCK)[1].sum())

  def _block_below(self, units: int) -> int:
    """Returns the last block with fewer than `units` before its first place."""
    last = None
    if self.num_rows is not None:
      last = self.num_rows // _BLOCK
    low, _ = bracketed.search(
      lambda block: (self._units_at(block), block),
      lambda point: point[0] < units,
      lambda point: units - 1 - point[0],
      (0, 0),
      last=last,
    )
    return low[1]
