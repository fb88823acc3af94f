# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows in phases, and phases in passes over the documents that they read.

    phase     0                  1         2, the last
    rows      0 .. 24            25 .. 31  32 ..
    passes    10 rows, 10, 5     4, 3      6, 6, 6, ...

A phase has as many whole passes as fit, then one shorter pass for its remaining
rows. The last phase has no end. Passes are numbered across all phases.
"""

from collections.abc import Sequence

import numpy as np

from chomp_data.index import integers
from chomp_data.sources import epochs as epochs_lib

# Row numbers must fit in int64.
_MAX_ROW = 2**56


class Phases(epochs_lib.Epochs):
  """Maps rows to passes, and passes to phases, by binary search."""

  def __init__(self, first_row: np.ndarray, pass_rows: np.ndarray):
    """Counts the passes of each phase.

    Args:
      first_row: int64[P], first row of each phase, ascending from 0.
      pass_rows: int64[P], rows of a whole pass of each, at least 1.
    """
    self._first_row = first_row
    self._pass_rows = pass_rows
    rows = np.diff(first_row)
    self._first_pass = np.zeros(len(first_row), np.int64)
    np.cumsum(-(-rows // pass_rows[:-1]), out=self._first_pass[1:])
    self.ramp: int = int(self._first_pass[-1])

  @property
  def first_rows(self) -> np.ndarray:
    """The first row of each phase, int64[P]."""
    return self._first_row

  @property
  def last_pass_rows(self) -> int:
    """Rows of a pass of the last phase."""
    return int(self._pass_rows[-1])

  def first_row(self, epoch: np.ndarray) -> np.ndarray:
    """Returns the first row of passes, int64[N]."""
    number = integers.array("epoch", epoch)
    if len(self._first_row) == 1:
      return number * self._pass_rows[0]
    phase = self.phase_of(number)
    inside = (number - self._first_pass[phase]) * self._pass_rows[phase]
    return self._first_row[phase] + inside

  def locate(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (pass, row of that pass) of rows, int64[N] each."""
    rows = integers.array("rows", rows)
    if len(self._first_row) == 1:
      number, index = np.divmod(rows, self._pass_rows[0])
      return number, index
    phase = np.searchsorted(self._first_row, rows, side="right") - 1
    number, index = np.divmod(
      rows - self._first_row[phase], self._pass_rows[phase]
    )
    return number + self._first_pass[phase], index

  def phase_of(self, number: np.ndarray) -> np.ndarray:
    """Returns the phase of passes, int64[N]."""
    return np.searchsorted(self._first_pass, number, side="right") - 1

  def sizes(self, number: np.ndarray) -> np.ndarray:
    """Returns the rows of passes, int64[N]."""
    return self.first_row(number + 1) - self.first_row(number)


def cut(
  num_documents: int,
  start: int,
  every: int | None,
  length_rows: Sequence[int],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns the phases of a curriculum and a schedule of lengths.

      4 documents, start 2, every 10, length_rows (0, 15)
      first_row      0  10  15  20
      num_documents  2   3   3   4
      length         0   0   1   1

  Args:
    num_documents: Documents of the source.
    start: Documents read from row 0 on, 1 .. N.
    every: Rows per added document, or None to read all from the start.
    length_rows: First row of each entry of the schedule, ascending from 0.

  Returns:
    The first row of each phase, how many of the first documents it reads
    and its entry of the schedule, int64[P] each.

  Raises:
    ValueError: If the last phase begins beyond the largest row number.
  """
  added = 0 if every is None else num_documents - start
  last = max(added * (every or 0), length_rows[-1])
  if last >= _MAX_ROW:
    raise ValueError(
      f"must reach all documents and lengths before row {_MAX_ROW}, got row"
      f" {last}. Lower curriculum_every, or the rows of"
      " content_length_schedule."
    )
  schedule = np.asarray(length_rows, np.int64)
  steps = np.arange(added + 1, dtype=np.int64) * (every or 0)
  first_row = np.union1d(steps, schedule)
  documents = np.full(len(first_row), num_documents, np.int64)
  if every is not None:
    documents = np.minimum(num_documents, start + first_row // every)
  length = np.searchsorted(schedule, first_row, side="right") - 1
  return first_row, documents, length
