# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers of documents, looked up by slot: in memory or in a file.

Of millions of selected documents nothing is held: their numbers, lengths and
sums of quotas are read where a row needs them. NumPy only.
"""

from typing import Protocol

import numpy as np

# Values of which one sum is held; the others are added up where they are read.
_EVERY = 32


class Column(Protocol):
  """One number of each document; what an array of an index is."""

  def __len__(self) -> int:
    """Returns how many there are."""
    ...

  def read(self) -> np.ndarray:
    """Returns all of them, in the type that they are kept in."""
    ...

  def take(self, positions: np.ndarray) -> np.ndarray:
    """Returns int64[N], those at positions, int64[N]."""
    ...

  def search(self, values: np.ndarray) -> np.ndarray:
    """Returns int64[N], how many of ascending ones are at most each value."""
    ...


class Held:
  """A column in memory."""

  def __init__(self, values: np.ndarray):
    """Binds int64[D]."""
    self._values = values

  def __len__(self) -> int:
    return len(self._values)

  def read(self) -> np.ndarray:
    """Returns all of them; see `Column`."""
    return self._values

  def take(self, positions: np.ndarray) -> np.ndarray:
    """Returns those at positions; see `Column`."""
    return self._values[positions]

  def search(self, values: np.ndarray) -> np.ndarray:
    """Returns how many are at most each value; see `Column`."""
    return np.searchsorted(self._values, values, side="right")


class Running:
  """The sums of a column before each of its values, and of all of them."""

  def __init__(self, values: Column):
    """Sums the values, int64[n] and at least 0; holds a few of the sums."""
    self._values = values
    whole = values.read()
    sums = np.add.reduceat(whole, np.arange(0, len(whole), _EVERY))
    # One more where what is summed ends with a part.
    self._before = np.zeros(len(whole) // _EVERY + 1, np.int64)
    np.cumsum(sums[: len(self._before) - 1], out=self._before[1:])

  def __len__(self) -> int:
    return len(self._values) + 1

  def read(self) -> np.ndarray:
    """Returns all of them; see `Column`."""
    out = np.zeros(len(self), np.int64)
    np.cumsum(self._values.read(), out=out[1:])
    return out

  def take(self, positions: np.ndarray) -> np.ndarray:
    """Returns those at positions; see `Column`."""
    part, inside = np.divmod(positions, _EVERY)
    parts, which = np.unique(part, return_inverse=True)
    return self._part_sums(parts)[which, inside]

  def search(self, values: np.ndarray) -> np.ndarray:
    """Returns how many are at most each value; see `Column`."""
    part = np.searchsorted(self._before, values, side="right") - 1
    parts, which = np.unique(part, return_inverse=True)
    below = self._part_sums(parts)[which] <= values[:, None]
    return part * _EVERY + np.count_nonzero(below, axis=1)

  def _part_sums(self, parts: np.ndarray) -> np.ndarray:
    """Returns int64[N, _EVERY], sums; beyond the last one a number above all.

    Args:
      parts: int64[N].
    """
    index = parts[:, None] * _EVERY + np.arange(_EVERY)
    count = len(self._values)
    sums = np.zeros(index.shape, np.int64)
    added = self._values.take(np.minimum(index[:, :-1], count - 1).reshape(-1))
    np.cumsum(added.reshape(len(parts), _EVERY - 1), axis=1, out=sums[:, 1:])
    sums += self._before[parts][:, None]
    sums[index > count] = np.iinfo(np.int64).max
    return sums
