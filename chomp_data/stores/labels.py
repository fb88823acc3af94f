# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Which tokens of a store are trained on: runs of levels, sums before each.

    tokens         a  b  c  d  e  f     label_starts  [0, 2, 5]
    level          0  0  1  1  1  0     label_levels  [0, 1, 0]
    trained before 0  0  0  1  2  3  3  label_sums    [0, 0, 3, 3]

A level is a number of the table `levels`, of weights: level 0 weighs 0 and is
not trained on, level 1 weighs 1, others what the store says. Positions are
those of the store's tokens.
"""

from typing import Any
from typing import Protocol

import numpy as np

from chomp_data import errors
from chomp_data.index import ragged
from chomp_data.stores import span_reads

# Of a store that has no table.
LEVELS: np.ndarray = np.asarray([0.0, 1.0], np.float32)
LEVELS.flags.writeable = False

# Up to so many runs are kept in memory, in 17 bytes each; of more as many
# starts, evenly spaced.
_HELD = 1 << 20
# Of even more none: picking them reads all starts once, 1 GiB of so many.
_MOST = 1 << 27


def weight(value: float) -> float:
  """Returns a weight as stores keep it: of float32, never -0.0, perhaps inf."""
  try:
    with np.errstate(over="ignore"):
      return float(np.float32(value)) + 0.0
  except OverflowError:  # Of an integer.
    return float("inf")


class Values(Protocol):
  """An array on disk or in memory."""

  def gather(self, positions: np.ndarray, /) -> np.ndarray:
    """Returns fresh values at positions int64[N], all in range."""
    ...

  def prefetch(self, starts: np.ndarray, lengths: np.ndarray, /) -> Any:
    """Asks for what will be gathered of ranges, int64[N] each."""
    ...


class Held:
  """An array in memory, as `Values`."""

  def __init__(self, values: np.ndarray):
    """Binds the array; it is not copied."""
    self._values = values

  def gather(self, positions: np.ndarray) -> np.ndarray:
    """Returns values at positions; see `Values`."""
    return self._values[positions]

  def prefetch(self, starts: np.ndarray, lengths: np.ndarray) -> None:
    """Does nothing: they are there."""


class LabelRuns:
  """The runs of a store; several threads may ask."""

  def __init__(
    self,
    *,
    starts: Values,
    levels: Values,
    sums: Values,
    num_runs: int,
    num_tokens: int,
    weights: np.ndarray,
    path: str,
  ):
    """Reads the runs where they are few, else some of them.

    Args:
      starts: int64[R], where runs begin, rising from 0.
      levels: uint8[R], their levels.
      sums: int64[R + 1], trained tokens before each, and all of them.
      num_runs: R, 0 only where there is no token.
      num_tokens: Tokens of the store.
      weights: float32[L], of the levels.
      path: The store, for messages.
    """
    self._num_runs, self._num_tokens = num_runs, num_tokens
    self._trained = weights > 0
    self._path = path
    self._stride = max(1, -(-num_runs // (_HELD if num_runs <= _MOST else 1)))
    every = np.arange(0, num_runs, self._stride)
    self._fence = starts.gather(every)
    span_reads.check_rising(
      np.diff(self._fence, prepend=0), f"{path}/label_starts"
    )
    if self._stride == 1:
      starts, levels = Held(self._fence), Held(levels.gather(every))
      sums = Held(sums.gather(np.arange(num_runs + 1)))
    self._starts, self._levels, self._sums = starts, levels, sums

  def within(
    self, starts: np.ndarray, lengths: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns the runs within spans; see `Store.label_runs`."""
    span_reads.check_spans(starts, lengths, self._num_tokens)
    some = np.flatnonzero(lengths)
    first = self._find(starts[some])
    last = self._find(starts[some] + lengths[some] - 1)
    count = last - first + 1
    ends = np.cumsum(count)
    span = np.repeat(some, count)
    opens = ends - count
    run = ragged.ranges(first, count)
    begin = self._starts.gather(run) - starts[span]
    begin[opens] = 0
    stop = np.empty_like(begin)
    stop[:-1] = begin[1:]
    stop[ends - 1] = lengths[some]
    span_reads.check_rising(stop - begin, f"{self._path}/label_starts")
    return span, begin, stop, self._levels_of(run)

  def prefetch(self, starts: np.ndarray, lengths: np.ndarray) -> None:
    """Asks for the runs of spans, and of the token after each."""
    if self._stride == 1 or len(self._fence) == 1:
      return  # They are in memory, or nobody knows where they are.
    full = np.flatnonzero(lengths)
    first = np.searchsorted(self._fence, starts[full], "right") - 1
    after = np.minimum(starts[full] + lengths[full], self._num_tokens - 1)
    last = np.searchsorted(self._fence, after, "right")
    low = first * self._stride
    high = np.minimum(last * self._stride, self._num_runs)
    self._starts.prefetch(low, high - low)
    self._levels.prefetch(low, high - low)

  def before(self, positions: np.ndarray) -> np.ndarray:
    """Returns the trained tokens below positions; see `Store`."""
    span_reads.check_spans(positions, positions * 0, self._num_tokens)
    if not self._num_runs:
      return np.zeros(len(positions), np.int64)
    run = self._find(positions)
    trained = self._trained[self._levels_of(run)]
    inside = positions - self._starts.gather(run)
    return self._sums.gather(run) + trained * inside

  def _levels_of(self, run: np.ndarray) -> np.ndarray:
    level = self._levels.gather(run)
    if len(level) and int(level.max()) >= len(self._trained):
      raise errors.StoreError(
        f"{self._path}/label_levels must be below {len(self._trained)}, the"
        f" levels of the manifest, got {int(level.max())}. Restore the store"
        " from a copy, or prepare it again."
      )
    return level

  def _find(self, positions: np.ndarray) -> np.ndarray:
    """Returns the run that each position is in, int64[N]."""
    low = np.searchsorted(self._fence, positions, side="right") - 1
    if self._stride == 1:
      return low
    low *= self._stride
    high = np.minimum(low + self._stride, self._num_runs)
    while True:
      open_ = np.flatnonzero(high - low > 1)
      if not open_.size:
        return low
      middle = (low[open_] + high[open_]) // 2
      right = self._starts.gather(middle) <= positions[open_]
      low[open_[right]] = middle[right]
      high[open_[~right]] = middle[~right]
