# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What rows of splices consume, from the quotas of documents."""

import numpy as np

from chomp_data.sources import row_sums
from chomp_data.splice import schedule as schedule_lib

# Rows between the edges at which a sum is known, and most edges.
_EDGE_ROWS = 4_096
_MOST_EDGES = 2**20
# Rows whose tokens are counted at once.
_TOTAL_ROWS = 65_536


class SpliceSums(row_sums.Sums):
  """What copies consume, from the quotas of documents."""

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
    self._labelled = labelled
    self._schedule = schedule
    self._ramp = ramp
    self._all_pairs = all_pairs

  def epochs_repeat(self, unit: str) -> bool:
    """Returns whether epochs consume the same; see `Sums`.

    Jitter moves copies and never shortens them. Axes in another order each
    epoch may leave other pairs out, which matters where copies of one
    document differ.
    """
    pairs = self._schedule.pairs_at(self._ramp)
    alike = pairs.copy_len() is not None and not self._differ(unit)
    return alike or self._all_pairs

  def uniform(self, epoch: int, unit: str) -> row_sums.Uniform | None:
    """Returns the copy that all rows hold, if they do; see `Sums`."""
    copied = self._schedule.pairs_at(epoch).copy_len()
    if copied is None or self._differ(unit):
      return None
    known = copied[self._schedule.quotas(epoch) > 0]
    if known.min() != known.max():
      return None
    return row_sums.Uniform(int(known[0]) - (unit == "loss_tokens"))

  def edges(self, epoch: int, unit: str) -> row_sums.Edges | None:
    """Returns sums that follow from the quotas; see `Sums`."""
    copied = self._schedule.pairs_at(epoch).copy_len()
    if copied is None or self._differ(unit):
      return None
    each = copied - (unit == "loss_tokens")
    return _edges(self._schedule.quotas(epoch), each)

  def at(
    self, epoch: int, unit: str, positions: np.ndarray
  ) -> np.ndarray | None:
    """Returns the tokens that rows copy, of one span each; see `Sums`."""
    mode = self._schedule.pairs_at(epoch).space.content_start_mode
    if mode == "cyclic_roll" or self._differ(unit):
      return None
    # Documents of ascending rows are found in a quarter of the time.
    order = np.argsort(positions)
    index = positions[order]
    copied = self._schedule.splices(np.full(len(index), epoch), index).length
    units = np.empty(len(index), np.int64)
    units[order] = copied - (unit == "loss_tokens")
    return units

  def epoch_total(self, epoch: int, unit: str) -> int | None:
    """Returns what an epoch's rows copy, in any order; see `Sums`."""
    total, rows = 0, self._schedule.epochs.size(epoch)
    for first in range(0, rows, _TOTAL_ROWS):
      positions = np.arange(first, min(first + _TOTAL_ROWS, rows))
      units = self.at(epoch, unit, positions)
      if units is None:
        return None
      total += int(units.sum())
    return total

  def _differ(self, unit: str) -> bool:
    """Returns whether copies of as many tokens may consume other units."""
    return self._labelled and unit == "loss_tokens"


def _edges(rows: np.ndarray, each: np.ndarray) -> row_sums.Edges | None:
  """Returns sums over documents' rows, one document after the other.

  Args:
    rows: int64[D], rows of each document.
    each: int64[D], what each row of a document adds.

  Returns:
    Positions no more than some thousand rows apart; None where they would be
    too many.
  """
  blocks = -(-rows // _EDGE_ROWS)
  count = int(blocks.sum())
  if count > _MOST_EDGES:
    return None
  sizes = np.full(count, _EDGE_ROWS, np.int64)
  own = np.flatnonzero(rows)
  # The last block of a document is what is left of its rows.
  sizes[np.cumsum(blocks[own]) - 1] -= blocks[own] * _EDGE_ROWS - rows[own]
  edges = np.zeros((2, count + 1), np.int64)
  np.cumsum(sizes, out=edges[0, 1:])
  np.cumsum(sizes * np.repeat(each, blocks), out=edges[1, 1:])
  return row_sums.Edges(edges[0], edges[1])
