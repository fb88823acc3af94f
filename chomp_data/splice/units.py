# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What rows of splices consume, from the quotas of documents."""

from collections.abc import Collection

import numpy as np

from chomp_data.sources import row_units
from chomp_data.splice import schedule as schedule_lib

# Blocks of documents' rows whose units are in memory.
_MOST_BLOCKS = 2**20


class CopiedUnits:
  """What copies consume, from the quotas of documents.

  Its methods are those of `RowSource`, with None where the schedule cannot
  tell.
  """

  def __init__(
    self,
    schedule: schedule_lib.SpliceSchedule,
    ramp: int,
    all_pairs: bool,
    labelled: bool,
  ):
    """Binds a schedule.

    Args:
      schedule: Of the rows.
      ramp: Epochs before the first one that reads all documents.
      all_pairs: Whether epochs hold the same pairs.
      labelled: Whether copies of one document may differ in what is trained
        on.
    """
    self._units = ("tokens",) if labelled else ("tokens", "loss_tokens")
    self._schedule = schedule
    self._ramp = ramp
    self._all_pairs = all_pairs

  @property
  def repeating_units(self) -> Collection[str]:
    """Units of which every epoch after the ramp consumes the same.

    Jitter moves copies and never shortens them. Axes in another order each
    epoch may leave other pairs out, which matters where copies of one
    document differ.
    """
    if self._all_pairs:
      return "tokens", "loss_tokens"
    pairs = self._schedule.pairs_at(self._ramp)
    return () if pairs.copy_len() is None else self._units

  def uniform(self, epoch: int, unit: str) -> row_units.Uniform | None:
    """Returns the copy that all rows hold, if they do."""
    copied = self._schedule.pairs_at(epoch).copy_len()
    if copied is None or unit not in self._units:
      return None
    lengths = copied[self._schedule.quotas(epoch) > 0]
    if lengths.min() != lengths.max():
      return None
    return row_units.Uniform(int(lengths[0]) - (unit == "loss_tokens"))

  def block_units(
    self, epoch: int, unit: str, rows: int | None
  ) -> row_units.BlockUnits | None:
    """Returns what documents' rows consume, cut into blocks of so many rows."""
    copied = self._schedule.pairs_at(epoch).copy_len()
    if copied is None or unit not in self._units:
      return None
    each = copied - (unit == "loss_tokens")
    return _blocks(self._schedule.quotas(epoch), each, rows)

  def units(
    self, epoch: int, positions: np.ndarray, unit: str
  ) -> np.ndarray | None:
    """Returns the units of rows of one span each, int64[N]."""
    mode = self._schedule.pairs_at(epoch).space.content_start_mode
    if mode == "cyclic_roll" or unit not in self._units:
      return None
    # Documents of ascending rows are found in a quarter of the time.
    order = np.argsort(positions)
    index = positions[order]
    copied = self._schedule.splices(np.full(len(index), epoch), index).length
    units = np.empty(len(index), np.int64)
    units[order] = copied - (unit == "loss_tokens")
    return units


def _blocks(
  quotas: np.ndarray, each: np.ndarray, rows: int | None
) -> row_units.BlockUnits | None:
  """Returns what documents' rows consume, one document after the other.

  Args:
    quotas: int64[D], rows of each document.
    each: int64[D], what each row of a document consumes.
    rows: Rows of a block at most; None is no limit.

  Returns:
    Blocks of the rows of one document; None where they would be too many.
  """
  rows = rows or int(quotas.max())
  blocks = -(-quotas // rows)
  count = int(blocks.sum())
  if count > _MOST_BLOCKS:
    return None
  sizes = np.full(count, rows, np.int64)
  present = np.flatnonzero(quotas)
  # The last block of a document is what is left of its rows.
  last = np.cumsum(blocks[present]) - 1
  sizes[last] -= blocks[present] * rows - quotas[present]
  starts = np.zeros(count + 1, np.int64)
  np.cumsum(sizes, out=starts[1:])
  return row_units.BlockUnits(starts, sizes * np.repeat(each, blocks))
