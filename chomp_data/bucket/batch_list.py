# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What the batches of a dataset consume, in their order: a row of a merge each.

A batch consumes its samples, padding apart, times the units of its bucket, or
the sum of the units of each sample. NumPy only.
"""

from collections.abc import Callable
from collections.abc import Collection

import numpy as np

from chomp_data.bucket import batch_order
from chomp_data.sources import epochs as epochs_lib
from chomp_data.sources import prefix_sums
from chomp_data.sources import row_units

# (bucket, samples int64[N] of it) -> units of each sample, int64[N].
SampleUnits = Callable[[int, np.ndarray], np.ndarray]

_UNIT = "units"
# Samples looked up at once.
_BLOCK = 2**20


class BatchUnits:
  """The units of batches, in the form of the rows of a source.

  Short epochs are summed several at a time: an epoch here is a group of them.

  Attributes:
    epochs: The groups of epochs.
    repeating_units: The unit, where all groups consume the same.
  """

  def __init__(
    self, order: batch_order.BatchOrder, units: np.ndarray | SampleUnits
  ):
    """Binds an order; arguments are those of `BatchList`."""
    self._order = order
    self._units = units
    self._group = max(1, row_units.BLOCK_ROWS // order.num_batches)
    self.epochs: epochs_lib.Epochs = epochs_lib.EqualEpochs(
      self._group * order.num_batches
    )
    # Units of all samples of a bucket.
    self._bucket_totals: dict[int, int] = {}
    # Units of every batch, where they are equal.
    self._each: int | None = None
    repeats = True
    if callable(units):
      used = order.batches > 0
      repeats = bool((order.used_samples == order.counts)[used].all())
    else:
      of_batches = (order.batch_sizes * units)[order.batches > 0]
      padded = order.used_samples < order.batches * order.batch_sizes
      if not padded.any() and len(np.unique(of_batches)) == 1:
        self._each = int(of_batches[0])
    self.repeating_units: Collection[str] = (_UNIT,) if repeats else ()

  def uniform(self, epoch: int, unit: str) -> row_units.Uniform | None:
    """Returns what every batch consumes; None where batches differ."""
    del epoch, unit
    return None if self._each is None else row_units.Uniform(self._each)

  def block_units(
    self, epoch: int, unit: str, rows: int | None
  ) -> row_units.BlockUnits:
    """Returns what all batches of a group consume, as one block."""
    del unit, rows
    order = self._order
    numbers = epoch * self._group + np.arange(self._group)
    total = 0
    for bucket in np.flatnonzero(order.batches).tolist():
      total += self._group * self._bucket_total(bucket)
      if callable(self._units):
        for samples in order.left_out(bucket, numbers):
          total -= int(self._units(bucket, samples).sum())
    return row_units.BlockUnits(
      np.asarray([0, self.epochs.size(epoch)]), np.asarray([total])
    )

  def _bucket_total(self, bucket: int) -> int:
    """Returns the units of a bucket's samples, summed once."""
    if not callable(self._units):
      return int(self._order.used_samples[bucket] * self._units[bucket])
    if bucket not in self._bucket_totals:
      count = int(self._order.counts[bucket])
      self._bucket_totals[bucket] = sum(
        int(self._units(bucket, np.arange(low, min(low + _BLOCK, count))).sum())
        for low in range(0, count, _BLOCK)
      )
    return self._bucket_totals[bucket]

  def units(self, epoch: int, positions: np.ndarray, unit: str) -> np.ndarray:
    """Returns what batches of a group consume, int64[N].

    Args:
      epoch: The group of epochs.
      positions: int64[N], places from the first of the group on.
      unit: The unit.
    """
    del unit
    order = self._order
    places = self.epochs.start(epoch) + positions
    bucket, of_epoch, batch = order.locate(places)
    if not callable(self._units):
      size = order.batch_sizes[bucket]
      samples = np.minimum(order.counts[bucket] - batch * size, size)
      return samples * self._units[bucket]
    units = np.empty(len(places), np.int64)
    for number, pick, samples in order.sample_blocks(bucket, of_epoch, batch):
      real = samples >= 0
      of_samples = np.zeros(samples.shape, np.int64)
      of_samples[real] = self._units(number, samples[real])
      units[pick] = of_samples.sum(axis=1)
    return units


class BatchList(prefix_sums.PrefixSums):
  """The batches of a dataset, epoch after epoch, with prefix sums.

  Places are rows of a merge.

  Attributes:
    order: The order of the batches.
  """

  def __init__(
    self, order: batch_order.BatchOrder, units: np.ndarray | SampleUnits
  ):
    """Binds an order; sums nothing yet.

    Args:
      order: The order of the batches.
      units: Units of a sample by bucket int64[num_buckets], or units of single
        samples, at least 1 each.
    """
    num_rows = None
    if order.epochs is not None:
      num_rows = order.epochs * order.num_batches
    super().__init__(BatchUnits(order, units), _UNIT, num_rows)
    self.order = order
    self._units = units

  def only(self, bucket: int) -> "BatchList":
    """Returns the list of the batches of one bucket alone."""
    return BatchList(self.order.only(bucket), self._units)

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
    return self.order.locate(places)

  def parts_at(self, place: int) -> list[tuple[batch_order.BatchOrder, int]]:
    """Returns the orders that the list is merged from, and the place in each.

    Args:
      place: A place of the list.
    """
    return [(self.order, place)]

  def part_of(self, bucket: int) -> batch_order.BatchOrder:
    """Returns the order that holds the batches of a bucket."""
    del bucket
    return self.order

  def places_at(self, bucket: int, places: np.ndarray) -> np.ndarray:
    """Returns the places here of places in the order of a bucket.

    Args:
      bucket: The number of a bucket.
      places: int64[N], places of `part_of`, ascending.

    Returns:
      int64[M], ascending; M < N if the list ends before some of them.
    """
    del bucket
    return places if self.num_rows is None else places[places < self.num_rows]

  def passed_at(self, epochs: int) -> int:
    """Returns the place at which `epochs` epochs are complete."""
    return epochs * self.order.num_batches
