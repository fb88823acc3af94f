# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Where the elements of an array lie in memory, as loops take it."""

import dataclasses
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Chunks:
  """An array in chunks of one size, of which those that may be read lie there.

  Attributes:
    address: int64[C], where each chunk lies; 0 is not to be read.
    itemsize: Bytes of an element, which is not negative: 1, 2 or 4.
    chunk: Elements of a chunk.
    size: Elements of the array.
    lock: Held while chunks are read, so that none goes; reentrant.
    where: Where `address` lies.
  """

  address: np.ndarray
  itemsize: int
  chunk: int
  size: int
  lock: Any
  where: int = dataclasses.field(init=False)

  def __post_init__(self) -> None:
    where = self.address.__array_interface__["data"][0]
    object.__setattr__(self, "where", where)
