# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""First rows of epochs with different numbers of rows, counted on demand."""

from collections.abc import Callable

import numpy as np

from chomp_data import schema
from chomp_data.index import integers
from chomp_data.sources import epochs as epochs_lib


class EpochStarts(epochs_lib.Epochs):
  """Row numbers at which epochs begin."""

  def __init__(
    self, count_rows: Callable[[int], int], max_epochs: int, path: str
  ):
    """Counts the first epoch.

    Args:
      count_rows: Returns the rows of an epoch.
      max_epochs: Most epochs to count; counting one takes time.
      path: Dotted path of the rows' options, for messages.
    """
    self._count_rows = count_rows
    self._max_epochs = max_epochs
    self._path = path
    # Replaced, never modified: other threads may read it.
    self._starts = np.asarray([0, count_rows(0)], np.int64)

  def first_row(self, epoch: np.ndarray) -> np.ndarray:
    """Returns the first row of epochs, int64[N].

    Raises:
      ConfigError: If there are too many epochs to count.
    """
    epoch = integers.array("epoch", epoch)
    last_epoch = int(np.max(epoch, initial=0))
    self._check(last_epoch)
    starts = self._starts
    while len(starts) <= last_epoch:
      starts = self._grown(starts)
    return starts[epoch]

  def locate(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (epoch, row of that epoch), int64[N] each.

    Raises:
      ConfigError: If there are too many epochs to count.
    """
    rows = integers.array("rows", rows)
    last_row = int(np.max(rows, initial=0))
    starts = self._starts
    # Epochs differ by a few rows, so none has twice the rows of the first, and
    # this number of epochs is a lower bound.
    self._check(last_row // max(2 * int(starts[1]), 1))
    while starts[-1] <= last_row:
      starts = self._grown(starts)
    epoch = np.searchsorted(starts, rows, side="right") - 1
    return epoch, rows - starts[epoch]

  def _grown(self, starts: np.ndarray) -> np.ndarray:
    """Returns `starts` and that of one more epoch; safe in several threads."""
    epoch = len(starts) - 1
    self._check(epoch)
    starts = np.append(starts, starts[-1] + self._count_rows(epoch))
    if len(starts) > len(self._starts):
      self._starts = starts
    return starts

  def _check(self, epoch: int) -> None:
    if epoch > self._max_epochs:
      raise schema.ConfigError(
        [
          f"`{self._path}.reshuffle_documents` must be False for more than"
          f" {self._max_epochs} epochs, got epoch {epoch}: the rows of each"
          " epoch are counted before those of the next. Unset it, or shorten"
          " the run."
        ]
      )
