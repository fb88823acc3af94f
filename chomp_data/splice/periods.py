# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows in periods, and periods in epochs over the documents that they read.

A curriculum and a schedule of content lengths change what rows read. Rows
between two changes form a period.

    period    0                  1         2, the last
    rows      0 .. 24            25 .. 31  32 ..
    epochs    10 rows, 10, 5     4, 3      6, 6, 6, ...

A period has as many whole epochs as fit, then one shorter epoch for its
remaining rows. The last period has no end. Epochs are numbered across all
periods.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from chomp_data.index import integers
from chomp_data.sources import epochs as epochs_lib

# Row numbers must fit in int64.
_MAX_ROW = 2**56


class Periods(NamedTuple):
  """What the rows of each period read.

  Attributes:
    first_row: int64[P], the first row of each, ascending from 0.
    num_documents: int64[P], how many of the first documents it reads.
    length_index: int64[P], its entry of the schedule of content lengths.
  """

  first_row: np.ndarray
  num_documents: np.ndarray
  length_index: np.ndarray


def make_periods(
  num_documents: int,
  start: int,
  every: int | None,
  length_rows: Sequence[int],
) -> Periods:
  """Returns the periods of a curriculum and a schedule of lengths.

      4 documents, start 2, every 10, length_rows (0, 15)
      first_row      0  10  15  20
      num_documents  2   3   3   4
      length_index   0   0   1   1

  Args:
    num_documents: Documents of the source.
    start: Documents read from row 0 on, at least 1.
    every: Rows per added document, or None to read all from the start.
    length_rows: First row of each entry of the schedule, ascending from 0.

  Raises:
    ValueError: If there are fewer documents than `start`, or the last period
      begins beyond the largest row number.
  """
  if every is None:
    start, every = num_documents, 0
  if start > num_documents:
    raise ValueError(
      "must have curriculum_start at most the number of selected documents,"
      f" got {start} > {num_documents}. Lower it."
    )
  added = num_documents - start
  last_row = max(added * every, length_rows[-1])
  if last_row >= _MAX_ROW:
    raise ValueError(
      f"must reach all documents and lengths before row {_MAX_ROW}, got row"
      f" {last_row}. Lower curriculum_every, or the rows of"
      " content_length_schedule."
    )
  schedule = np.asarray(length_rows, np.int64)
  additions = np.arange(added + 1, dtype=np.int64) * every
  first_row = np.union1d(additions, schedule)
  num_added = np.searchsorted(additions, first_row, side="right") - 1
  length_index = np.searchsorted(schedule, first_row, side="right") - 1
  return Periods(first_row, start + num_added, length_index)


class PeriodEpochs(epochs_lib.Epochs):
  """Maps rows to epochs, and epochs to periods, by binary search.

  Attributes:
    first_rows: int64[P], the first row of each period.
    epoch_rows: int64[P], rows of a whole epoch of each period.
    ramp: Epochs before the last period.
  """

  def __init__(self, first_rows: np.ndarray, epoch_rows: np.ndarray):
    """Counts the epochs of each period.

    Args:
      first_rows: int64[P], first row of each period, ascending from 0.
      epoch_rows: int64[P], rows of a whole epoch of each, at least 1.
    """
    self.first_rows = first_rows
    self.epoch_rows = epoch_rows
    self._first_epoch = np.zeros(len(first_rows), np.int64)
    num_epochs = -(-np.diff(first_rows) // epoch_rows[:-1])
    np.cumsum(num_epochs, out=self._first_epoch[1:])
    self.ramp: int = int(self._first_epoch[-1])

  def first_row(self, epoch: np.ndarray) -> np.ndarray:
    """Returns the number of each epoch's first row, int64[N]."""
    epoch = integers.array("epoch", epoch)
    period = self.period_of(epoch)
    inside = (epoch - self._first_epoch[period]) * self.epoch_rows[period]
    return self.first_rows[period] + inside

  def locate(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (epoch, row of that epoch) of rows, int64[N] each."""
    rows = integers.array("rows", rows)
    period = np.searchsorted(self.first_rows, rows, side="right") - 1
    epoch, index = np.divmod(
      rows - self.first_rows[period], self.epoch_rows[period]
    )
    return epoch + self._first_epoch[period], index

  def period_of(self, epoch: np.ndarray) -> np.ndarray:
    """Returns the period of epochs, int64[N]."""
    return np.searchsorted(self._first_epoch, epoch, side="right") - 1
