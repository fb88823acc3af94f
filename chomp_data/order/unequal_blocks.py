# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Block shuffle where blocks have unequal numbers of rows.

The blocks of a packed source are packing windows, which differ in rows, and may
differ by epoch too. Places are found by bisection among the permuted blocks.
With equal blocks the order is that of `orders.BlockOrder`, which needs no
memory per block. NumPy only.
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
    ranks: int64[nw + 1], the first rank of each window, and all blocks.
    tail: The number of the tail's window, or -1.
  """

  order: np.ndarray
  bounds: np.ndarray
  places: np.ndarray
  ranks: np.ndarray
  tail: int

  @property
  def edges(self) -> np.ndarray:
    """int64[nw + 1], the first place of each window."""
    return self.places[self.ranks]


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
    last_is_tail: Whether the last block is the tail, last in every epoch and
      permuted separately. Otherwise it is a block like the others.
  """

  boundaries: Callable[[int], np.ndarray] = dataclasses.field(repr=False)
  window_blocks: int
  key: int
  perm_type: str = "feistel"
  last_is_tail: bool = False
  _layouts: memo.Memo = dataclasses.field(
    default_factory=lambda: memo.Memo(_CACHED_LAYOUTS),
    init=False,
    repr=False,
    compare=False,
  )

  def sums(
    self, epoch: int, values: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns prefix sums over windows of values of blocks.

    Args:
      epoch: The epoch.
      values: int64[nb], one per block, in the order of `boundaries`.

    Returns:
      (positions, sums of the blocks before them), int64[nw + 1] each, for the
      first position of each window and the end of the epoch.
    """
    layout = self._layout(epoch, int(self.boundaries(epoch)[-1]))
    before = np.zeros(len(layout.order) + 1, np.int64)
    np.cumsum(np.asarray(values)[layout.order], out=before[1:])
    return layout.edges, before[layout.ranks]

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
    layout = self._layout(epoch, size)
    edges = layout.edges
    window = np.searchsorted(edges, index, side="right") - 1
    keys = self._window_keys(window, window == layout.tail, epoch)
    return edges[window], edges[window + 1], keys

  def _layout(self, epoch: int, size: int) -> _Layout:
    """Returns the permuted blocks of an epoch.

    Raises:
      ValueError: If `size` is not the last boundary of the epoch, or the
        boundaries are not in order.
    """
    layout = self._layouts.get(epoch, lambda: self._make_layout(epoch))
    if size != layout.bounds[-1]:
      raise ValueError(
        f"`size` must be the rows of epoch {epoch}, {layout.bounds[-1]}, got"
        f" {size}. Take it from the same boundaries."
      )
    return layout

  def _make_layout(self, epoch: int) -> _Layout:
    bounds = np.asarray(self.boundaries(epoch), np.int64)
    lengths = np.diff(bounds)
    if not len(lengths) or bounds[0] or (lengths < 0).any():
      raise ValueError(
        "`boundaries` must return int64[nb + 1] that begins at 0 and never"
        f" falls, got {bounds} for epoch {epoch}. Give the prefix sums of the"
        " rows of its blocks."
      )
    # Blocks that are permuted; the tail is not.
    count = len(lengths) - self.last_is_tail
    key = self.epoch_key("blocks", epoch)
    order = np.arange(len(lengths))
    order[:count] = self.permuted(order[:count], max(count, 1), key)
    first_ranks = np.arange(0, count, self.window_blocks)
    ends = [count, count + 1] if self.last_is_tail else [count]
    return _Layout(
      order=order,
      bounds=bounds,
      places=np.concatenate([[0], np.cumsum(lengths[order])]),
      ranks=np.concatenate([first_ranks, ends]),
      tail=len(first_ranks) if self.last_is_tail else -1,
    )
