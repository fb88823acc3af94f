# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""First rows of epochs that differ in rows, counted as far as is asked."""

from collections.abc import Callable

import numpy as np

from chomp_data import schema
from chomp_data.index import integers
from chomp_data.sources import epochs as epochs_lib


class EpochStarts(epochs_lib.Epochs):
  """Row numbers at which epochs begin."""

  def __init__(self, rows_of: Callable[[int], int], most: int, path: str):
    """Counts the first epoch.

    Args:
      rows_of: Returns the rows of an epoch.
      most: Epochs that may be counted: each costs time.
      path: Dotted path of the rows' options, for messages.
    """
    self._rows_of = rows_of
    self._most = most
    self._path = path
    # Replaced whole, never altered: other threads may look at it.
    self._known = np.asarray([0, rows_of(0)], np.int64)

  @property
  def first_epoch_rows(self) -> int:
    """Rows of the first epoch."""
    return int(self._known[1])

  def first_row(self, epoch: np.ndarray) -> np.ndarray:
    """Returns the first row of epochs, int64[N].

    Raises:
      ConfigError: If there are too many epochs to count.
    """
    epoch = integers.array("epoch", epoch)
    last = int(np.max(epoch, initial=0))
    self._check(last)
    known = self._known
    while len(known) <= last:
      known = self._grown(known)
    return known[epoch]

  def locate(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (epoch, row of that epoch), int64[N] each; raises likewise."""
    rows = integers.array("rows", rows)
    last = int(np.max(rows, initial=0))
    known = self._known
    # Epochs differ by a few rows: this many are needed at least.
    self._check(last // max(2 * int(known[1]), 1))
    while known[-1] <= last:
      known = self._grown(known)
    epoch = np.searchsorted(known, rows, side="right") - 1
    return epoch, rows - known[epoch]

  def _grown(self, known: np.ndarray) -> np.ndarray:
    """Returns what is known and an epoch more; two threads may ask at once."""
    epoch = len(known) - 1
    self._check(epoch)
    known = np.append(known, known[-1] + self._rows_of(epoch))
    if len(known) > len(self._known):
      self._known = known
    return known

  def _check(self, epoch: int) -> None:
    if epoch > self._most:
      raise schema.ConfigError(
        [
          f"`{self._path}.reshuffle_documents` must be False for more than"
          f" {self._most} epochs, got epoch {epoch}: every epoch's packing is"
          " counted before the next one. Unset it, or shorten the run."
        ]
      )
