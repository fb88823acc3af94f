# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The order of one dataset's batches and of the samples in them, by epoch.

An epoch's batches are numbered bucket by bucket, buckets by name, and their
order is a permutation of these numbers:

    buckets  0 0 0 1 2 2        3 batches of bucket 0, 1 of 1, 2 of 2
    numbers  0 1 2 3 4 5
    order    4 0 3 2 5 1        of some epoch

A place is the position of a batch in this order, counted through epochs. The
samples of a bucket are permuted in each epoch too, and cut into its batches.
NumPy only.
"""

from collections.abc import Iterator
from collections.abc import Sequence

import numpy as np

from chomp_data.index import hashing
from chomp_data.index import memo
from chomp_data.index import permutation

# Epochs whose order is cached, 1 or 2 bytes per batch.
_CACHED_EPOCHS = 4
# Samples looked up at once.
_BLOCK = 2**20


class BatchOrder:
  """The batches of a dataset in some buckets; each is of one bucket.

  Attributes:
    buckets: Names of the buckets, by number.
    counts: Samples by bucket, int64[num_buckets].
    batch_sizes: Samples of a batch by bucket, int64[num_buckets].
    key: The 64-bit key of the orders.
    num_batches: Batches of an epoch.
    epochs: Epochs that are offered; None has no end.
    batches: Batches of an epoch by bucket, int64[num_buckets].
    used_samples: Samples of an epoch by bucket, int64[num_buckets], without
      those that fill no batch.
  """

  def __init__(
    self,
    buckets: Sequence[str],
    counts: Sequence[int],
    batch_sizes: Sequence[int],
    key: int,
    *,
    keeps_partial: bool,
    epochs: int | None,
  ):
    """Numbers the batches; everything is by bucket.

    Args:
      buckets: Names of the buckets, from which keys are derived.
      counts: Samples of the dataset in each bucket, at least one batch in all.
      batch_sizes: Samples of a global batch.
      key: A 64-bit key.
      keeps_partial: Whether the last batch of a bucket may have fewer samples.
      epochs: Epochs of the dataset; None is without end.
    """
    self.buckets: tuple[str, ...] = tuple(buckets)
    self.counts: np.ndarray = np.asarray(counts, np.int64)
    self.batch_sizes: np.ndarray = np.asarray(batch_sizes, np.int64)
    self.epochs = epochs
    self.key = key
    self._keeps_partial = keeps_partial
    full_batches, remainder = np.divmod(self.counts, self.batch_sizes)
    self.batches: np.ndarray = full_batches + ((remainder > 0) & keeps_partial)
    self.used_samples: np.ndarray = np.minimum(
      self.counts, self.batches * self.batch_sizes
    )
    # The order of the mapping numbers buckets and must not affect the order.
    names = [str(bucket) for bucket in buckets]
    self._by_name = np.asarray(
      sorted(range(len(names)), key=names.__getitem__), np.int32
    )
    self._ends = np.cumsum(self.batches[self._by_name])
    self.num_batches: int = int(self._ends[-1])
    # The number of each bucket's first batch.
    self._first = np.empty_like(self.batches)
    self._first[self._by_name] = self._ends - self.batches[self._by_name]
    self._order_key = hashing.fold_key(key, "list")
    self._sample_keys = [
      hashing.fold_key(key, "samples", name) for name in names
    ]

  def only(self, bucket: int) -> "BatchOrder":
    """Returns the order of the batches of one bucket alone."""
    counts = np.where(np.arange(len(self.counts)) == bucket, self.counts, 0)
    return BatchOrder(
      self.buckets,
      counts.tolist(),
      self.batch_sizes.tolist(),
      self.key,
      keeps_partial=self._keeps_partial,
      epochs=self.epochs,
    )

  def locate(
    self, places: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns which batches are at places.

    Args:
      places: int64[N], from 0.

    Returns:
      Buckets int32[N], epochs int64[N], and numbers of batches int64[N] within
      the epoch of their bucket.
    """
    epoch, place = np.divmod(places, self.num_batches)
    keys = hashing.fold(self._order_key, epoch)
    number = permutation.permute(place, self.num_batches, keys)
    bucket = self._by_name[np.searchsorted(self._ends, number, "right")]
    return bucket, epoch, number - self._first[bucket]

  def samples(
    self, bucket: int, epoch: int, batch: int, rows: np.ndarray
  ) -> np.ndarray:
    """Returns int64[R], the samples at rows of a batch; -1 is padding."""
    places = batch * int(self.batch_sizes[bucket]) + rows
    return self._samples_at(bucket, np.asarray([epoch]), places)

  def sample_blocks(
    self, bucket: np.ndarray, epoch: np.ndarray, batch: np.ndarray
  ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yields the samples of batches, those of one bucket together.

    Args:
      bucket: int32[N], as `locate` returns them.
      epoch: int64[N].
      batch: int64[N].

    Yields:
      A bucket, which of the batches int64[M] these are, and their samples
      int64[M, batch size]; -1 is padding.
    """
    for number in np.unique(bucket).tolist():
      size = int(self.batch_sizes[number])
      step = max(1, _BLOCK // size)
      picks = np.flatnonzero(bucket == number)
      for low in range(0, len(picks), step):
        pick = picks[low : low + step]
        places = batch[pick, None] * size + np.arange(size)
        yield number, pick, self._samples_at(number, epoch[pick, None], places)

  def left_out(self, bucket: int, epochs: np.ndarray) -> Iterator[np.ndarray]:
    """Yields the samples int64[M] of a bucket that epochs leave out.

    Args:
      bucket: Its number.
      epochs: int64[E].
    """
    places = np.arange(int(self.used_samples[bucket]), self.counts[bucket])
    step = max(1, _BLOCK // max(len(places), 1))
    for low in range(0, len(epochs) if len(places) else 0, step):
      yield self._samples_at(
        bucket, epochs[low : low + step, None], places[None]
      ).reshape(-1)

  def _samples_at(
    self, bucket: int, epochs: np.ndarray, places: np.ndarray
  ) -> np.ndarray:
    """Returns samples at places of a bucket's order; -1 beyond its samples."""
    count = int(self.counts[bucket])
    keys = hashing.fold(self._sample_keys[bucket], epochs)
    places, keys = np.broadcast_arrays(places, keys)
    samples = np.full(places.shape, -1, np.int64)
    real = places < count
    # One key, the common case, is passed on as a number.
    is_one_epoch = (epochs == epochs.flat[0]).all()
    key = keys.flat[:1] if is_one_epoch else keys[real]
    samples[real] = permutation.permute(places[real], count, key)
    return samples

  def places_of(
    self, bucket: int, samples: np.ndarray, epochs: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the places of samples in epochs; inverts `locate` and `samples`.

    Args:
      bucket: The number of their bucket.
      samples: int64[N], their numbers in the bucket.
      epochs: int64[N].

    Returns:
      Which samples are in a batch of their epoch, the places of these batches,
      and the rows of the samples there, int64[M] each.
    """
    keys = hashing.fold(self._sample_keys[bucket], epochs)
    place = permutation.inverse(samples, int(self.counts[bucket]), keys)
    batch, row = np.divmod(place, int(self.batch_sizes[bucket]))
    pick = np.flatnonzero(batch < self.batches[bucket])
    number = self._first[bucket] + batch[pick]
    keys = hashing.fold(self._order_key, epochs[pick])
    place = permutation.inverse(number, self.num_batches, keys)
    return pick, epochs[pick] * self.num_batches + place, row[pick]

  def batches_before(self, place: int) -> np.ndarray:
    """Returns int64[num_buckets], the batches before a place."""
    epoch, place = divmod(place, self.num_batches)
    batches = epoch * self.batches
    if place:
      batches += np.bincount(
        self._bucket_order(epoch)[:place], minlength=len(batches)
      )
    return batches

  def samples_before(self, place: int) -> np.ndarray:
    """Returns int64[num_buckets], the samples before a place; no padding."""
    samples = self.batches_before(place) * self.batch_sizes
    padding = self.batches * self.batch_sizes - self.used_samples
    epoch, place = divmod(place, self.num_batches)
    samples -= epoch * padding
    partial = np.flatnonzero(padding)
    if place and len(partial):
      # The last batch of a bucket is the partial one.
      number = self._first[partial] + self.batches[partial] - 1
      key = hashing.fold(self._order_key, np.asarray([epoch]))
      at = permutation.inverse(number, self.num_batches, key)
      samples[partial] -= np.where(at < place, padding[partial], 0)
    return samples

  @memo.remembered(_CACHED_EPOCHS)
  def _bucket_order(self, epoch: int) -> np.ndarray:
    """Returns the bucket of each batch of an epoch, in their order."""
    first_place = epoch * self.num_batches
    bucket, _, _ = self.locate(
      np.arange(first_place, first_place + self.num_batches)
    )
    return bucket.astype(np.min_scalar_type(len(self.counts) - 1))
