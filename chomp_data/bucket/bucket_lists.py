# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The batches of one dataset in their order, epoch after epoch.

An epoch's batches are numbered bucket by bucket, buckets by name, and the list
is a permutation of these numbers:

    buckets  0 0 0 1 2 2        3 batches of bucket 0, 1 of 1, 2 of 2
    numbers  0 1 2 3 4 5
    list     4 0 3 2 5 1        of some epoch

A batch consumes its real samples times the units of its bucket, or the sum of
the units of each sample. Prefix sums are cached for recently used epochs, 8
bytes per batch; earlier epochs count by their totals, which are equal unless
units differ by sample and some samples are left out. NumPy only.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence

import numpy as np

from chomp_data.bucket import bucket_checks
from chomp_data.index import hashing
from chomp_data.index import memo
from chomp_data.index import permutation

Bucket = bucket_checks.Bucket

# (bucket, samples int64[N] of it) -> units of each sample, int64[N].
SampleUnits = Callable[[int, np.ndarray], np.ndarray]

# The cached tables of a dataset hold about so many batches, at 10 bytes each,
# and at least four epochs of any length: a merge reads two.
_CACHED_BATCHES = 2**20
_CACHED_EPOCHS = 4

# Batches summed in one table; at least one epoch.
_GROUP_BATCHES = 4_096

# Samples looked up at once.
_BLOCK = 2**20


class Totals:
  """Units of samples, and their sum over all samples of a bucket.

  Attributes:
    of: (bucket, samples int64[N]) -> int64[N].
  """

  def __init__(self, of: SampleUnits):
    """Binds the units of samples."""
    self.of = of
    self._whole: dict[int, int] = {}

  def whole(self, bucket: int, count: int) -> int:
    """Returns the units of all samples of a bucket, summed once.

    Args:
      bucket: Its number.
      count: Its samples.
    """
    if bucket not in self._whole:
      self._whole[bucket] = sum(
        int(self.of(bucket, np.arange(low, min(low + _BLOCK, count))).sum())
        for low in range(0, count, _BLOCK)
      )
    return self._whole[bucket]


class BatchList:
  """A dataset's batches, as rows of a merge (`units.UnitSequence`)."""

  def __init__(
    self,
    buckets: Sequence[Bucket],
    counts: Sequence[int],
    batch_sizes: Sequence[int],
    units: Sequence[int],
    key: int,
    *,
    keeps_partial: bool,
    epochs: int | None,
    sample_units: SampleUnits | None = None,
  ):
    """Numbers the batches; everything is by bucket.

    Args:
      buckets: Names of the buckets, from which keys are derived.
      counts: Samples of the dataset in each bucket, at least one batch in all.
      batch_sizes: Samples of a global batch.
      units: Units of one sample.
      key: A 64-bit key.
      keeps_partial: Whether the last batch of a bucket may have fewer samples.
      epochs: Epochs of the list; None is without end.
      sample_units: Units of single samples, in place of `units`; at least 1
        each.
    """
    self._counts = np.asarray(counts, np.int64)
    self._sizes = np.asarray(batch_sizes, np.int64)
    self._units = np.asarray(units, np.int64)
    full_batches, rest = np.divmod(self._counts, self._sizes)
    partial = (rest > 0) & keeps_partial
    self._batches = full_batches + partial
    # The order of the mapping numbers buckets and must not affect the list.
    names = [str(bucket) for bucket in buckets]
    self._by_name = np.asarray(
      sorted(range(len(names)), key=names.__getitem__), np.int32
    )
    self._ends = np.cumsum(self._batches[self._by_name])
    self.num_batches: int = int(self._ends[-1])
    first = np.empty_like(self._batches)
    first[self._by_name] = self._ends - self._batches[self._by_name]
    self._first = first
    self.num_rows: int | None = (
      None if epochs is None else epochs * self.num_batches
    )
    # Buckets whose last batch is partial, its number and its missing samples.
    self._partial = np.flatnonzero(partial)
    self._partial_batch = (first + full_batches)[partial]
    self._lack = (self._sizes - rest)[partial]
    real = self._batches * self._sizes
    real[self._partial] -= self._lack
    self._sample_units = sample_units
    self._totals = None if sample_units is None else Totals(sample_units)
    # Short epochs are summed several at a time.
    self._group = max(1, _GROUP_BATCHES // max(self.num_batches, 1))
    # Units of a group where all groups are equal, and the units before each.
    self._total: int | None = None
    self._starts = [0]
    self._each: int | None = None
    if sample_units is None:
      self._total = self._group * int((real * self._units).sum())
      used = (self._sizes * self._units)[self._batches > 0]
      if not len(self._partial) and len(np.unique(used)) == 1:
        self._each = int(used[0])
    self._equal_epochs = sample_units is None or bool(
      (real == self._counts).all()
    )
    self._list_key = hashing.fold_key(key, "list")
    self._group_keys = [
      hashing.fold_key(key, "samples", name) for name in names
    ]
    max_weight = max(_CACHED_BATCHES, _CACHED_EPOCHS * self.num_batches)
    self._bucket_tables = memo.Memo(max_weight)
    self._sum_tables = memo.Memo(max_weight)

  @property
  def batches_by_bucket(self) -> np.ndarray:
    """Batches of an epoch, int64[num_buckets]."""
    return self._batches.copy()

  def locate(
    self, places: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the batches at places of the endless list.

    Args:
      places: int64[N], from 0.

    Returns:
      Buckets int32[N], epochs int64[N], and numbers of batches int64[N] within
      the epoch of their bucket.
    """
    epoch, place = np.divmod(places, self.num_batches)
    number = self._numbers(place, epoch)
    bucket = self._by_name[np.searchsorted(self._ends, number, "right")]
    return bucket, epoch, number - self._first[bucket]

  def samples(
    self, bucket: int, epoch: int, batch: int, rows: np.ndarray
  ) -> np.ndarray:
    """Returns int64[R], the samples at rows of a batch; -1 is padding."""
    count = int(self._counts[bucket])
    place = batch * int(self._sizes[bucket]) + rows
    real = place < count
    samples = np.full(len(rows), -1, np.int64)
    samples[real] = self._permuted(bucket, epoch, place[real])
    return samples

  def given(self, first: int, last: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yields (bucket, samples int64[M]) of the batches at places, in no order.

    Args:
      first: The first place.
      last: The place after the last.
    """
    while first < last:
      epoch, low = divmod(first, self.num_batches)
      high = min(self.num_batches, low + last - first)
      batches = np.arange(self.num_batches)
      if high - low < self.num_batches:
        batches = self._numbers(np.arange(low, high), np.asarray([epoch]))
      for bucket in np.flatnonzero(self._batches).tolist():
        batch = batches - self._first[bucket]
        batch = batch[(batch >= 0) & (batch < self._batches[bucket])]
        size, count = int(self._sizes[bucket]), int(self._counts[bucket])
        step = max(1, _BLOCK // size)
        for begin in range(0, len(batch), step):
          place = batch[begin : begin + step, None] * size + np.arange(size)
          place = place.reshape(-1)
          yield bucket, self._permuted(bucket, epoch, place[place < count])
      first += high - low

  def units_before(self, place: int, totals: Totals) -> int:
    """Returns the units of the samples before a place.

    Args:
      place: The place.
      totals: The units to sum.
    """
    epochs, rest = divmod(place, self.num_batches)
    units = self._epochs_units(np.arange(epochs), totals)
    for bucket, samples in self.given(place - rest, place):
      units += int(totals.of(bucket, samples).sum())
    return units

  def _epochs_units(self, epochs: np.ndarray, totals: Totals) -> int:
    """Returns the units of whole epochs, without samples that are left out."""
    units = 0
    for bucket in np.flatnonzero(self._batches).tolist():
      count, used = int(self._counts[bucket]), self._used_samples(bucket)
      units += len(epochs) * totals.whole(bucket, count)
      if used == count:
        continue
      step = max(1, _BLOCK // (count - used))
      for low in range(0, len(epochs), step):
        samples = self._in_epochs(bucket, epochs[low : low + step], used, count)
        units -= int(totals.of(bucket, samples).sum())
    return units

  def _in_epochs(
    self, bucket: int, epochs: np.ndarray, first: int, last: int
  ) -> np.ndarray:
    """Returns int64[E * (last - first)], samples at places of many epochs."""
    keys = hashing.fold(self._group_keys[bucket], epochs)
    return permutation.permute(
      np.tile(np.arange(first, last), len(epochs)),
      int(self._counts[bucket]),
      np.repeat(keys, last - first),
    )

  def _permuted(
    self, bucket: int, epoch: int, places: np.ndarray
  ) -> np.ndarray:
    """Returns int64[N], the samples at places int64[N] of a group's order."""
    key = hashing.fold(self._group_keys[bucket], np.asarray([epoch]))
    return permutation.permute(places, int(self._counts[bucket]), key)

  def of_bucket(self, bucket: int) -> "BatchList":
    """Returns the list whose epochs contain a bucket's samples."""
    del bucket
    return self

  def row_at(self, bucket: int, place: int) -> int:
    """Returns the first place of `of_bucket` at or after a place."""
    del bucket
    return place

  def places_at(self, bucket: int, rows: np.ndarray) -> np.ndarray:
    """Returns the places here of places of `of_bucket`; inverts `row_at`.

    Args:
      bucket: The number of a bucket.
      rows: int64[N], places of `of_bucket`, ascending.

    Returns:
      int64[M], ascending; M < N where the list ends before some of them.
    """
    del bucket
    return rows if self.num_rows is None else rows[rows < self.num_rows]

  def places_of(
    self, bucket: int, samples: np.ndarray, epochs: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the places of samples in epochs; inverts `locate` and `samples`.

    Args:
      bucket: The number of their bucket.
      samples: int64[N], their numbers in the bucket.
      epochs: int64[N].

    Returns:
      Places of the endless list and rows of the batches there, int64[M] each;
      M < N where epochs leave samples out.
    """
    keys = hashing.fold(self._group_keys[bucket], epochs)
    place = permutation.inverse(samples, int(self._counts[bucket]), keys)
    batch, row = np.divmod(place, int(self._sizes[bucket]))
    pick = np.flatnonzero(batch < self._batches[bucket])
    epochs, batch, row = epochs[pick], batch[pick], row[pick]
    keys = hashing.fold(self._list_key, epochs)
    number = permutation.inverse(
      self._first[bucket] + batch, self.num_batches, keys
    )
    return epochs * self.num_batches + number, row

  def count_below(self, bucket: int, samples: np.ndarray, place: int) -> int:
    """Returns how often samples occur before a place of the list.

    Args:
      bucket: The number of their bucket.
      samples: int64[N], their numbers in the bucket.
      place: The place.
    """
    epoch = place // self.num_batches
    total, first = 0, 0
    if self._used_samples(bucket) == self._counts[bucket]:
      # No epoch leaves any out.
      total, first = epoch * len(samples), epoch
    step = max(1, _BLOCK // max(len(samples), 1))
    for low in range(first, epoch + 1, step):
      epochs = np.arange(low, min(low + step, epoch + 1))
      places, _ = self.places_of(
        bucket,
        np.tile(samples, len(epochs)),
        np.repeat(epochs, len(samples)),
      )
      total += int(np.sum(places < place))
    return total

  def counts(self, bucket: int, first: int, last: int) -> np.ndarray:
    """Returns how often each sample of a bucket occurs in a range of places.

    Args:
      bucket: Its number.
      first: The first place.
      last: The place after the last.

    Returns:
      int64[samples of the bucket].
    """
    samples = np.arange(int(self._counts[bucket]))
    out = np.zeros(len(samples), np.int64)
    epoch, end = first // self.num_batches, -(-last // self.num_batches)
    while epoch < end:
      whole = last // self.num_batches - epoch
      begins = epoch * self.num_batches >= first
      if begins and whole > 0 and self._used_samples(bucket) == len(samples):
        # No epoch leaves any out.
        out += whole
        epoch += whole
        continue
      places, numbers = self._sample_places(bucket, samples, epoch)
      out[numbers[(places >= first) & (places < last)]] += 1
      epoch += 1
    return out

  def _sample_places(
    self, bucket: int, samples: np.ndarray, epoch: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns places in an epoch, and the sample at each."""
    keys = hashing.fold(self._group_keys[bucket], np.asarray([epoch]))
    place = permutation.inverse(samples, len(samples), keys)
    batch = place // int(self._sizes[bucket])
    pick = np.flatnonzero(batch < self._batches[bucket])
    key = hashing.fold(self._list_key, np.asarray([epoch]))
    number = permutation.inverse(
      self._first[bucket] + batch[pick], self.num_batches, key
    )
    return epoch * self.num_batches + number, samples[pick]

  def before(self, rows: np.ndarray) -> np.ndarray:
    """Returns int64[N], the units of the batches before places int64[N]."""
    if self._each is not None:
      return rows * self._each
    group, place = np.divmod(rows, self._group * self.num_batches)
    units = np.empty(len(rows), np.int64)
    for each in np.unique(group).tolist():
      members = np.flatnonzero(group == each)
      units[members] = self._before_group(each)
      # The place after the last one of a group needs no table.
      members = members[place[members] > 0]
      if len(members):
        units[members] += self._sums(each)[place[members]]
    return units

  def rows_below(self, units: int) -> int:
    """Returns how many places have fewer than `units` before them."""
    if units <= 0:
      return 0
    if self._each is not None:
      rows = -(-units // self._each)
    else:
      group = self._group_of(units)
      rows = group * self._group * self.num_batches
      if self.num_rows is None or rows < self.num_rows:
        left = units - self._before_group(group)
        rows += int(np.searchsorted(self._sums(group)[:-1], left, "left"))
    return rows if self.num_rows is None else min(rows, self.num_rows)

  def _group_of(self, units: int) -> int:
    """Returns the last group with fewer than `units` (at least 1) before it."""
    if self._equal_epochs:
      return (units - 1) // self._group_units(0)
    last = None
    if self.num_rows is not None:
      last = self.num_rows // (self._group * self.num_batches)
    group = 0
    while group != last and self._before_group(group + 1) < units:
      group += 1
    return group

  def _before_group(self, group: int) -> int:
    if self._equal_epochs:
      return group * self._group_units(0) if group else 0
    while len(self._starts) <= group:
      number = len(self._starts) - 1
      self._starts.append(self._starts[-1] + self._group_units(number))
    return self._starts[group]

  def _group_units(self, group: int) -> int:
    """Returns the units of all batches of a group of epochs."""
    if self._total is not None:
      return self._total
    assert self._totals is not None
    epochs = group * self._group + np.arange(self._group)
    units = self._epochs_units(epochs, self._totals)
    if self._equal_epochs:
      self._total = units
    return units

  def batches_before(self, place: int) -> np.ndarray:
    """Returns int64[num_buckets], the batches before a place of the list."""
    epoch, place = divmod(place, self.num_batches)
    batches = epoch * self._batches
    if place:
      batches += np.bincount(
        self._bucket_order(epoch)[:place], minlength=len(batches)
      )
    return batches

  def samples_before(self, place: int) -> np.ndarray:
    """Returns int64[num_buckets], the real samples before a place."""
    samples = self.batches_before(place) * self._sizes
    epoch, place = divmod(place, self.num_batches)
    samples[self._partial] -= epoch * self._lack
    if place and len(self._partial):
      key = hashing.fold(self._list_key, np.asarray([epoch]))
      at = permutation.inverse(self._partial_batch, self.num_batches, key)
      samples[self._partial] -= np.where(at < place, self._lack, 0)
    return samples

  def passed_at(self, epochs: int) -> int:
    """Returns the place at which `epochs` epochs are complete."""
    return epochs * self.num_batches

  def _numbers(self, place: np.ndarray, epoch: np.ndarray) -> np.ndarray:
    """Returns int64[N], the batches at places of epochs, by number."""
    keys = hashing.fold(self._list_key, epoch)
    return permutation.permute(place, self.num_batches, keys)

  def _bucket_order(self, epoch: int) -> np.ndarray:
    """Returns the bucket of each batch in an epoch's list."""
    order = self._bucket_tables.get(epoch)
    if order is None:
      number = self._numbers(np.arange(self.num_batches), np.asarray([epoch]))
      dtype = np.min_scalar_type(len(self._ends) - 1)
      buckets = self._by_name.astype(dtype)
      order = np.repeat(buckets, self._batches[self._by_name])[number]
      self._bucket_tables.put(epoch, order, self.num_batches)
    return order

  def _sums(self, group: int) -> np.ndarray:
    """Returns int64[n + 1], the units before places of a group of epochs."""
    sums = self._sum_tables.get(group)
    if sums is None:
      epochs = group * self._group + np.arange(self._group)
      used = self._used_by_number(epochs)
      place = np.tile(np.arange(self.num_batches), len(epochs))
      number = self._numbers(place, np.repeat(epochs, self.num_batches))
      first = np.repeat(np.arange(len(epochs)), self.num_batches)
      in_order = used[first, number]
      sums = np.concatenate([[0], np.cumsum(in_order)])
      self._sum_tables.put(group, sums, len(sums))
    return sums

  def _used_by_number(self, epochs: np.ndarray) -> np.ndarray:
    """Returns int64[E, num_batches], the units of batches by their numbers."""
    used = np.empty((len(epochs), self.num_batches), np.int64)
    for bucket in np.flatnonzero(self._batches).tolist():
      first = int(self._first[bucket])
      last = first + int(self._batches[bucket])
      if self._sample_units is None:
        used[:, first:last] = self._sizes[bucket] * self._units[bucket]
      elif len(epochs) == 1:
        used[0, first:last] = self._used_in_epoch(bucket, int(epochs[0]))
      else:
        used[:, first:last] = self._used_in_epochs(bucket, epochs)
    if self._sample_units is None and len(self._partial):
      lack = self._lack * self._units[self._partial]
      used[:, self._partial_batch] -= lack
    return used

  def _used_in_epoch(self, bucket: int, epoch: int) -> np.ndarray:
    """Returns int64[M], the units of a bucket's batches, sample by sample."""
    assert self._sample_units is not None
    size = int(self._sizes[bucket])
    used = self._used_samples(bucket)
    batch_units = []
    step = max(1, _BLOCK // size) * size
    for low in range(0, used, step):
      places = np.arange(low, min(low + step, used))
      units = self._sample_units(bucket, self._permuted(bucket, epoch, places))
      batch_units.append(np.add.reduceat(units, np.arange(0, len(units), size)))
    return np.concatenate(batch_units)

  def _used_in_epochs(self, bucket: int, epochs: np.ndarray) -> np.ndarray:
    """Returns int64[E, M], units of a bucket's batches in several epochs."""
    assert self._sample_units is not None
    size, used = int(self._sizes[bucket]), self._used_samples(bucket)
    samples = self._in_epochs(bucket, epochs, 0, used)
    units = self._sample_units(bucket, samples).reshape(len(epochs), used)
    return np.add.reduceat(units, np.arange(0, used, size), axis=1)

  def _used_samples(self, bucket: int) -> int:
    """Returns how many samples of a bucket an epoch uses."""
    whole = int(self._batches[bucket] * self._sizes[bucket])
    return min(int(self._counts[bucket]), whole)
