# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What the batches of a dataset consume, in their order: a row of a merge each.

A batch consumes its samples, padding apart, times the units of its bucket, or
the sum of the units of each sample. Prefix sums are cached for recently used
epochs, 8 bytes a batch; earlier epochs count by their totals, which are equal
unless units differ by sample and some samples are left out. NumPy only.
"""

from collections.abc import Callable

import numpy as np

from chomp_data.bucket import batch_order
from chomp_data.index import memo

# (bucket, samples int64[N] of it) -> units of each sample, int64[N].
SampleUnits = Callable[[int, np.ndarray], np.ndarray]

# The cached tables of a list hold about so many batches, and at least four
# epochs of any length: a merge reads two.
_CACHED_BATCHES = 2**20
_CACHED_EPOCHS = 4
# Batches summed in one table; at least one epoch.
_TABLE_BATCHES = 4_096
# Samples looked up at once.
_BLOCK = 2**20


class BatchList:
  """The batches of a dataset, epoch after epoch, with prefix sums.

  Places are rows of a merge, with the methods of `UnitSequence`.

  Attributes:
    order: The order of the batches.
    num_rows: Places of the list; None has no end.
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
    self.order = order
    self._units = units
    self.num_rows: int | None = (
      None if order.epochs is None else order.epochs * order.num_batches
    )
    # Short epochs are summed several at a time.
    self._group_epochs = max(1, _TABLE_BATCHES // order.num_batches)
    self._group_places = self._group_epochs * order.num_batches
    # Units of a group where all groups are equal, and the units before each.
    self._group_total: int | None = None
    self._before_groups = [0]
    # Units of all samples of a bucket.
    self._bucket_totals: dict[int, int] = {}
    # Units of every batch, where they are equal.
    self._each: int | None = None
    self._equal_groups = True
    if callable(units):
      used, counts = order.used_samples, order.counts
      self._equal_groups = bool(((used == counts) | (used == 0)).all())
    else:
      used = (order.batch_sizes * units)[order.batches > 0]
      padded = order.used_samples < order.batches * order.batch_sizes
      if not padded.any() and len(np.unique(used)) == 1:
        self._each = int(used[0])
    most = max(_CACHED_BATCHES, _CACHED_EPOCHS * order.num_batches)
    self._tables = memo.Memo(most)

  def only(self, bucket: int) -> "BatchList":
    """Returns the list of the batches of one bucket alone."""
    return BatchList(self.order.only(bucket), self._units)

  def locate(
    self, places: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns buckets, epochs and batch numbers at places; see `BatchOrder`."""
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
      int64[M], ascending; M < N where the list ends before some of them.
    """
    del bucket
    return places if self.num_rows is None else places[places < self.num_rows]

  def passed_at(self, epochs: int) -> int:
    """Returns the place at which `epochs` epochs are complete."""
    return epochs * self.order.num_batches

  def before(self, rows: np.ndarray) -> np.ndarray:
    """Returns int64[N], the units of the batches before places int64[N]."""
    if self._each is not None:
      return rows * self._each
    group, inside = np.divmod(rows, self._group_places)
    units = np.empty(len(rows), np.int64)
    for number in np.unique(group).tolist():
      pick = np.flatnonzero(group == number)
      units[pick] = self._before_group(number)
      # The place after the last one of a group needs no table.
      pick = pick[inside[pick] > 0]
      if len(pick):
        units[pick] += self._table(number)[inside[pick]]
    return units

  def rows_below(self, units: int, near: bool = False) -> int:
    """Returns how many places have fewer than `units` before them."""
    del near
    if units <= 0:
      return 0
    if self._each is not None:
      places = -(-units // self._each)
    else:
      group = self._group_of(units)
      places = group * self._group_places
      if self.num_rows is None or places < self.num_rows:
        left = units - self._before_group(group)
        places += int(np.searchsorted(self._table(group)[:-1], left))
    return places if self.num_rows is None else min(places, self.num_rows)

  def _group_of(self, units: int) -> int:
    """Returns the last group with fewer than `units` (at least 1) before it."""
    if self._equal_groups:
      return (units - 1) // self._total_of(0)
    last = None
    if self.num_rows is not None:
      last = self.num_rows // self._group_places
    group = 0
    while group != last and self._before_group(group + 1) < units:
      group += 1
    return group

  def _before_group(self, group: int) -> int:
    """Returns the units of the groups before one."""
    if self._equal_groups:
      return group * self._total_of(0) if group else 0
    while len(self._before_groups) <= group:
      number = len(self._before_groups) - 1
      self._before_groups.append(
        self._before_groups[-1] + self._total_of(number)
      )
    return self._before_groups[group]

  def _total_of(self, group: int) -> int:
    """Returns the units of all batches of a group of epochs."""
    if self._group_total is not None:
      return self._group_total
    order = self.order
    epochs = group * self._group_epochs + np.arange(self._group_epochs)
    total = 0
    for bucket in np.flatnonzero(order.batches).tolist():
      total += len(epochs) * self._bucket_total(bucket)
      if callable(self._units):
        for samples in order.left_out(bucket, epochs):
          total -= int(self._units(bucket, samples).sum())
    if self._equal_groups:
      self._group_total = total
    return total

  def _bucket_total(self, bucket: int) -> int:
    """Returns the units of a bucket's samples, summed once."""
    if not callable(self._units):
      return int(self.order.used_samples[bucket] * self._units[bucket])
    if bucket not in self._bucket_totals:
      count = int(self.order.counts[bucket])
      self._bucket_totals[bucket] = sum(
        int(self._units(bucket, np.arange(low, min(low + _BLOCK, count))).sum())
        for low in range(0, count, _BLOCK)
      )
    return self._bucket_totals[bucket]

  def _table(self, group: int) -> np.ndarray:
    """Returns int64[n + 1], the units before places of a group of epochs."""
    sums = self._tables.get(group)
    if sums is None:
      first = group * self._group_places
      units = self._units_at(np.arange(first, first + self._group_places))
      sums = np.concatenate([[0], np.cumsum(units)])
      self._tables.put(group, sums, len(sums))
    return sums

  def _units_at(self, places: np.ndarray) -> np.ndarray:
    """Returns int64[N], what the batches at places consume."""
    bucket, epoch, batch = self.order.locate(places)
    if not callable(self._units):
      size = self.order.batch_sizes[bucket]
      samples = np.minimum(self.order.counts[bucket] - batch * size, size)
      return samples * self._units[bucket]
    units = np.empty(len(places), np.int64)
    for number, pick, samples in self.order.sample_blocks(bucket, epoch, batch):
      real = samples >= 0
      of_samples = np.zeros(samples.shape, np.int64)
      of_samples[real] = self._units(number, samples[real])
      units[pick] = of_samples.sum(axis=1)
    return units
