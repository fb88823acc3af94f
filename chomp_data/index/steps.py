# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Maps between run steps, data steps and rows.

A run has one order of rows. A *data step* is a batch of that order, the unit of
stages, batch sizes, tombstones and keys. A *run step* is the unit of trainers
and states. Run steps do not count skipped data steps:

    sizes ((0, 2), (3, 4)), skip ((1, 2),)
    data step   0     1     2     3        4
    rows        0 1   2 3   4 5   6 .. 9   10 .. 13
    run step    0     -     1     2        3

NumPy only.
"""

import bisect
from collections.abc import Sequence
import itertools

import numpy as np

# (from data step, rows of a step), ascending from 0.
Sizes = Sequence[tuple[int, int]]


class Steps:
  """The data step of each run step, and the rows of each data step.

  Attributes:
    sizes: (from data step, rows of a step), without entries of no change.
    skip: (first, last + 1) of data steps that are skipped, ascending and not
      adjacent.
  """

  def __init__(
    self, sizes: Sizes = ((0, 1),), skip: Sequence[tuple[int, int]] = ()
  ):
    """Counts the rows and run steps before each change.

    Args:
      sizes: (from data step, rows of a step), ascending from 0.
      skip: (first, last + 1) of data steps, ascending and disjoint.
    """
    self.sizes: tuple[tuple[int, int], ...] = tuple(
      (at, size)
      for i, (at, size) in enumerate(sizes)
      if not i or size != sizes[i - 1][1]
    )
    self.skip: tuple[tuple[int, int], ...] = join_adjacent(skip)
    self._from = [at for at, _ in self.sizes]
    self._size = [size for _, size in self.sizes]
    rows = [
      (after - at) * size
      for (at, size), after in zip(self.sizes, self._from[1:], strict=False)
    ]
    self._row = [0, *itertools.accumulate(rows)]
    # After each skip, run step `_run[k]` reads data step `_data[k]`.
    skipped_counts = [end - first for first, end in self.skip]
    before = [0, *itertools.accumulate(skipped_counts)]
    self._data = [0, *(end for _, end in self.skip)]
    self._run = [at - n for at, n in zip(self._data, before, strict=True)]

  @property
  def last_size(self) -> int:
    """Rows of a step after the last change."""
    return self._size[-1]

  @property
  def distinct_sizes(self) -> tuple[int, ...]:
    """The distinct rows of a step, in order of their first step."""
    return tuple(dict.fromkeys(self._size))

  def data_step(self, run_step: int) -> int:
    """Returns which data step a run step reads."""
    k = bisect.bisect_right(self._run, run_step) - 1
    return self._data[k] + run_step - self._run[k]

  def before(self, data_step: int) -> int:
    """Returns how many run steps read an earlier data step than this one."""
    k = bisect.bisect_right(self._data, data_step) - 1
    run = self._run[k] + data_step - self._data[k]
    # Skipped data steps map to the run step after the skip.
    return min([run, *self._run[k + 1 : k + 2]])

  def run_step(self, data_step: int) -> int | None:
    """Returns which run step reads a data step; None where it is skipped."""
    run = self.before(data_step)
    return run if self.data_step(run) == data_step else None

  def first_row(self, data_step: int) -> int:
    """Returns a data step's first row; rows of skipped steps count."""
    k = bisect.bisect_right(self._from, data_step) - 1
    return self._row[k] + (data_step - self._from[k]) * self._size[k]

  def size(self, data_step: int) -> int:
    """Returns the rows of a data step."""
    return self._size[bisect.bisect_right(self._from, data_step) - 1]

  def step_of_row(self, row: int) -> int:
    """Returns the data step of a row."""
    k = bisect.bisect_right(self._row, row) - 1
    return self._from[k] + (row - self._row[k]) // self._size[k]

  def first_step_at(self, row: int) -> int:
    """Returns the first data step that begins at or after a row."""
    step = self.step_of_row(row)
    return step + (self.first_row(step) < row)

  def skipped(self, run_step: int) -> list[tuple[int, int]]:
    """Returns the skips before a run step, as (first, last + 1)."""
    return self.skips_within(0, self.data_step(run_step))

  def skips_within(self, first: int, last: int) -> list[tuple[int, int]]:
    """Returns the skips of which all is in data steps first to last - 1.

    A skip that begins at `last` is not among them, one that ends there is.
    """
    return [skip for skip in self.skip if first <= skip[0] and skip[1] <= last]

  def stretches(self, first: int, last: int) -> list[tuple[int, int]]:
    """Returns the data steps that run steps first to last - 1 read.

    Returns:
      (first, last + 1) of consecutive data steps, none of them empty.
    """
    begin, stop = self.data_step(first), self.data_step(last)
    skips = self.skips_within(begin, stop)
    begins = [begin, *(end for _, end in skips)]
    stops = [*(skip_first for skip_first, _ in skips), stop]
    return [
      (low, high) for low, high in zip(begins, stops, strict=True) if low < high
    ]

  def alike(self, run_step: int) -> tuple[int, int | None]:
    """Returns the range of run steps around one with its size and without skip.

    Returns:
      (the first, the one after the last; None if there is no end).
    """
    k = bisect.bisect_right(self._run, run_step) - 1
    j = bisect.bisect_right(self._from, self.data_step(run_step)) - 1
    first = max(self._run[k], self.before(self._from[j]))
    ends = [
      *self._run[k + 1 : k + 2],
      *(self.before(at) for at in self._from[j + 1 : j + 2]),
    ]
    return first, min(ends, default=None)

  def data_steps(self, run_steps: np.ndarray) -> np.ndarray:
    """Returns `data_step` of each, int64[N]."""
    k = np.searchsorted(self._run, run_steps, side="right") - 1
    shift = np.subtract(self._data, self._run)
    return run_steps + shift[k]

  def first_rows(self, data_steps: np.ndarray) -> np.ndarray:
    """Returns `first_row` of each, int64[N]."""
    k = np.searchsorted(self._from, data_steps, side="right") - 1
    begin, size, row = map(np.asarray, (self._from, self._size, self._row))
    return row[k] + (data_steps - begin[k]) * size[k]

  def sizes_of(self, data_steps: np.ndarray) -> np.ndarray:
    """Returns `size` of each, int64[N]."""
    k = np.searchsorted(self._from, data_steps, side="right") - 1
    return np.asarray(self._size)[k]

  def steps_of_rows(self, rows: np.ndarray) -> np.ndarray:
    """Returns `step_of_row` of each, int64[N]."""
    k = np.searchsorted(self._row, rows, side="right") - 1
    begin, size, row = map(np.asarray, (self._from, self._size, self._row))
    return begin[k] + (rows - row[k]) // size[k]


def join_adjacent(
  ranges: Sequence[tuple[int, int]],
) -> tuple[tuple[int, int], ...]:
  """Joins ranges (first, last + 1) that follow each other."""
  out: list[tuple[int, int]] = []
  for first, end in ranges:
    if out and out[-1][1] == first:
      first = out.pop()[0]
    out.append((first, end))
  return tuple(out)
