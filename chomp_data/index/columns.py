# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Columns: one number per selected document, in memory or in a file.

The numbers, lengths and quota sums of millions of selected documents need not
be in memory: they are read when a row needs them. NumPy only.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np

# Values per prefix sum in memory; sums between them are computed when read.
_EVERY = 32


class Column(Protocol):
  """One number per document; an array of a side index has this interface."""

  def __len__(self) -> int:
    """Returns the number of values."""
    ...

  def read(self) -> np.ndarray:
    """Returns all values, in their stored dtype."""
    ...

  def take(self, positions: np.ndarray) -> np.ndarray:
    """Returns int64[N], the values at positions int64[N]."""
    ...

  def search(self, values: np.ndarray) -> np.ndarray:
    """Returns int64[N], how many of ascending values are at most each value."""
    ...


def last_at_most(
  gather: Callable[[np.ndarray], np.ndarray],
  values: np.ndarray,
  low: np.ndarray,
  high: np.ndarray,
) -> np.ndarray:
  """Returns by bisection the last ascending number that is at most each value.

      numbers [0, 4, 4, 7], values [4, 6, 9] in 0 .. 3 -> [2, 2, 3]

  Args:
    gather: Returns the numbers at positions int64[M].
    values: int64[N].
    low: int64[N], where the search begins; that number is not looked at.
    high: int64[N], the position after the last, above `low`.

  Returns:
    int64[N], positions in low .. high - 1; `low` where no number is.
  """
  low, high = low.copy(), high.copy()
  while len(undecided := np.flatnonzero(high - low > 1)):
    middle = (low[undecided] + high[undecided]) // 2
    is_right = gather(middle) <= values[undecided]
    low[undecided[is_right]] = middle[is_right]
    high[undecided[~is_right]] = middle[~is_right]
  return low


class ArrayColumn:
  """A column in memory; it is also read as the stored arrays of a store are."""

  def __init__(self, values: np.ndarray):
    """Binds the array; it is not copied."""
    self._values = values

  def __len__(self) -> int:
    return len(self._values)

  def read(self, start: int = 0, stop: int | None = None) -> np.ndarray:
    """Returns values start .. stop - 1, all by default."""
    return self._values[start:stop]

  def take(self, positions: np.ndarray) -> np.ndarray:
    """Returns int64[N], the values at positions."""
    return self._values[positions]

  gather = take

  def prefetch(self, starts: np.ndarray, lengths: np.ndarray) -> None:
    """Does nothing: the values are in memory."""

  def search(self, values: np.ndarray) -> np.ndarray:
    """Returns int64[N], how many values are at most each value."""
    return np.searchsorted(self._values, values, side="right")


class PrefixSumColumn:
  """The prefix sums of a column, from 0 to the sum of all values."""

  def __init__(self, values: Column):
    """Sums the values, int64[n] and at least 0; stores every 32nd sum."""
    self._values = values
    whole = values.read()
    sums = np.add.reduceat(whole, np.arange(0, len(whole), _EVERY))
    self._before = np.zeros(len(whole) // _EVERY + 1, np.int64)
    np.cumsum(sums[: len(self._before) - 1], out=self._before[1:])

  def __len__(self) -> int:
    return len(self._values) + 1

  def read(self) -> np.ndarray:
    """Returns all values."""
    out = np.zeros(len(self), np.int64)
    np.cumsum(self._values.read(), out=out[1:])
    return out

  def take(self, positions: np.ndarray) -> np.ndarray:
    """Returns int64[N], the values at positions."""
    part, inside = np.divmod(positions, _EVERY)
    parts, which = np.unique(part, return_inverse=True)
    return self._part_sums(parts)[which, inside]

  def search(self, values: np.ndarray) -> np.ndarray:
    """Returns int64[N], how many values are at most each value."""
    part = np.searchsorted(self._before, values, side="right") - 1
    parts, which = np.unique(part, return_inverse=True)
    below = self._part_sums(parts)[which] <= values[:, None]
    return part * _EVERY + np.count_nonzero(below, axis=1)

  def _part_sums(self, parts: np.ndarray) -> np.ndarray:
    """Returns int64[N, _EVERY], sums of parts; int64's maximum past the end."""
    index = parts[:, None] * _EVERY + np.arange(_EVERY)
    count = len(self._values)
    sums = np.zeros(index.shape, np.int64)
    added = self._values.take(np.minimum(index[:, :-1], count - 1).reshape(-1))
    np.cumsum(added.reshape(len(parts), _EVERY - 1), axis=1, out=sums[:, 1:])
    sums += self._before[parts][:, None]
    sums[index > count] = np.iinfo(np.int64).max
    return sums
