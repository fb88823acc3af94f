# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What the batches of a dataset consume, in their order: the rows of a merge.

A batch consumes its samples without padding, times the units of its bucket, or
the sum of the units of each sample. NumPy only.
"""

from collections.abc import Callable
from collections.abc import Mapping

import numpy as np

from chomp_data.bucket import batch_order
from chomp_data.index import memo
from chomp_data.sources import epochs as epochs_lib
from chomp_data.sources import mix_units
from chomp_data.sources import prefix_sums

# (bucket, samples int64[N] of it) -> units of each sample, int64[N].
SampleUnits = Callable[[int, np.ndarray], np.ndarray]

_UNIT = "units"
# Samples looked up at once.
_BLOCK = 2**20
# Buckets whose units are cached.
_MOST_BUCKETS = 1_024


class BatchList(prefix_sums.PrefixSums):
  """The batches of a dataset, epoch after epoch, with prefix sums.

  Places are rows of a merge. The list has the form of a source of rows for its
  sums; short epochs are summed several at a time.

  Attributes:
    order: The order of the batches.
    epochs: Groups of epochs of the order.
    repeating_units: 0 of the unit, where all groups consume the same.
  """

  def __init__(
    self, order: batch_order.BatchOrder, units: np.ndarray | SampleUnits
  ):
    """Binds an order; sums nothing.

    Args:
      order: The order of the batches.
      units: Units of a sample by bucket int64[num_buckets], or units of single
        samples, at least 1 each.
    """
    self.order = order
    self._units = units
    self._group = max(1, mix_units.BLOCK_ROWS // order.num_batches)
    self.epochs: epochs_lib.Epochs = epochs_lib.EqualEpochs(
      self._group * order.num_batches
    )
    has_batches, per_batch, repeats = order.batches > 0, None, True
    if callable(units):
      repeats = bool((order.used_samples == order.counts)[has_batches].all())
    elif (order.used_samples == order.batches * order.batch_sizes).all():
      of_batches = np.unique((order.batch_sizes * units)[has_batches])
      per_batch = int(of_batches[0]) if len(of_batches) == 1 else None
    self.repeating_units: Mapping[str, int] = {_UNIT: 0} if repeats else {}
    num_rows = None
    if order.epochs is not None:
      num_rows = order.epochs * order.num_batches
    super().__init__(self, _UNIT, num_rows, per_batch)

  def block_units(
    self, epoch: int, unit: str, rows: int | None
  ) -> mix_units.BlockUnits | None:
    """Returns what all batches of a group consume, as one block."""
    del unit
    if rows == 0:
      return None
    order = self.order
    numbers = epoch * self._group + np.arange(self._group)
    total = 0
    for bucket in np.flatnonzero(order.batches).tolist():
      total += self._group * self._bucket_total(bucket)
      if callable(self._units):
        for samples in order.left_out(bucket, numbers):
          total -= int(self._units(bucket, samples).sum())
    return mix_units.BlockUnits(
      np.asarray([0, self.epochs.size(epoch)]), np.asarray([total])
    )

  @memo.remembered(_MOST_BUCKETS)
  def _bucket_total(self, bucket: int) -> int:
    """Returns the units of a bucket's samples, summed once."""
    if not callable(self._units):
      return int(self.order.used_samples[bucket] * self._units[bucket])
    count = int(self.order.counts[bucket])
    return sum(
      int(self._units(bucket, np.arange(low, min(low + _BLOCK, count))).sum())
      for low in range(0, count, _BLOCK)
    )

  def units(self, epoch: int, positions: np.ndarray, unit: str) -> np.ndarray:
    """Returns what batches of a group consume, int64[N]."""
    del unit
    order = self.order
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

  def only(self, bucket: int) -> "BatchList":
    """Returns the list of the batches of one bucket alone."""
    return BatchList(self.order.only(bucket), self._units)

  def locate(
    self, places: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns which batches are at places, as `BatchOrder.locate`."""
    return self.order.locate(places)

  def parts_at(self, place: int) -> list[tuple[batch_order.BatchOrder, int]]:
    """Returns the orders that the list is merged from, and the place in each.

    Args:
      place: A place of the list.
    """
    return [(self.order, place)]

  def places_at(self, bucket: int, places: np.ndarray) -> np.ndarray:
    """Returns the places here of places in the order of a bucket.

    Args:
      bucket: The number of a bucket.
      places: int64[N], places in that of `parts_at` which has it, ascending.

    Returns:
      int64[M], ascending; M < N if the list ends before some of them.
    """
    del bucket
    return places if self.num_rows is None else places[places < self.num_rows]

  def passed_at(self, epochs: int) -> int:
    """Returns the place at which `epochs` epochs are complete."""
    return epochs * self.order.num_batches
