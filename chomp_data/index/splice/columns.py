"""Numbers of documents, looked up by slot: in memory, or in a file.

Of millions of selected documents nothing is held: their numbers, lengths and
sums of quotas are read where a row needs them. NumPy only.
"""

from typing import Protocol

import numpy as np


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
