# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Block shuffle where blocks have unequal numbers of rows.

The blocks of a packed source are packing windows, which differ in rows, and may
differ by epoch too. Places are found by bisection among the permuted blocks.
No block is a tail. With equal blocks the order is that of `orders.BlockOrder`,
which needs no memory per block. NumPy only.
"""

from collections.abc import Callable
import dataclasses

import numpy as np

from chomp_data.index import memo
from chomp_data.order import orders

_CACHED_LAYOUTS = 4


@dataclasses.dataclass(frozen=True)
class _Layout:
  """The permuted blocks of one epoch.

  Attributes:
    order: int64[nb], the block at each rank of the permuted blocks.
    bounds: int64[nb + 1], the first row of each block, and all rows.
    places: int64[nb + 1], the first place of each permuted block.
    edges: int64[nw + 1], the first place of each window, and all rows.
  """

  order: np.ndarray
  bounds: np.ndarray
  places: np.ndarray
  edges: np.ndarray


@dataclasses.dataclass(frozen=True)
class UnequalBlockOrder(orders.BlockShuffle):
  """Blocks permuted, then the rows of each window of permuted blocks.

  Attributes:
    boundaries: Returns the first row of each block of an epoch, and the rows
      of that epoch, int64[nb + 1], from 0, non-decreasing. Called repeatedly,
      so it must be cheap or cache its results.
    window_blocks: Blocks of a window, whose rows are shuffled.
    key: The key of the order, made by `orders.order_key`.
    perm_type: 'feistel', or 'linear', which is weak.
  """

  boundaries: Callable[[int], np.ndarray] = dataclasses.field(repr=False)
  window_blocks: int
  key: int
  perm_type: str = "feistel"

  def edges(self, epoch: int, size: int) -> np.ndarray:
    """Returns the first row of each block, and all rows, int64[nb + 1]."""
    del size
    return np.asarray(self.boundaries(epoch), np.int64)

  def rows(self, place: np.ndarray, epoch: int, size: int) -> np.ndarray:
    """Returns the rows at places in permuted blocks; inverts `places`."""
    layout = self._layout(epoch, size)
    rank = np.searchsorted(layout.places, place, side="right") - 1
    return layout.bounds[layout.order[rank]] + (place - layout.places[rank])

  def places(self, rows: np.ndarray, epoch: int, size: int) -> np.ndarray:
    """Returns the places of rows in an epoch's permuted blocks, int64[N]."""
    layout = self._layout(epoch, size)
    block = np.searchsorted(layout.bounds, rows, side="right") - 1
    rank = np.empty_like(layout.order)
    rank[layout.order] = np.arange(len(rank))
    return layout.places[rank[block]] + (rows - layout.bounds[block])

  def _windows(
    self, index: np.ndarray, epoch: int, size: int
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    edges = self._layout(epoch, size).edges
    window = np.searchsorted(edges, index, side="right") - 1
    return edges[window], edges[window + 1], self._window_keys(window, epoch)

  @memo.remembered(_CACHED_LAYOUTS)
  def _layout(self, epoch: int, size: int) -> _Layout:
    """Returns the permuted blocks of an epoch."""
    bounds = self.edges(epoch, size)
    order, ranks = self.permuted_blocks(epoch, size)
    places = np.append(0, np.cumsum(np.diff(bounds)[order]))
    return _Layout(order, bounds, places, places[ranks])
