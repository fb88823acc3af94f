# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Block shuffle where blocks have unequal numbers of rows.

The blocks of a packed source are packing windows, which differ in rows, and may
differ by epoch too. Positions are found by bisection among the permuted blocks.
With equal blocks the order is that of `orders.BlockOrder`. NumPy only.
"""

from collections.abc import Callable
import dataclasses

import numpy as np

from chomp_data.index import hashing
from chomp_data.index import memo
from chomp_data.order import orders

_CACHED_LAYOUTS = 4

_Numbers = np.ndarray | int


@dataclasses.dataclass(frozen=True)
class _Layout:
  """The permuted blocks of one epoch.

  Attributes:
    order: int64[nb], the blocks in the epoch's order.
    rows: int64[nb], the first row of each block.
    places: int64[nb + 1], the first position of each block.
    edges: int64[nw + 1], the first position of each window.
    tail: The number of the tail's window, or -1.
  """

  order: np.ndarray
  rows: np.ndarray
  places: np.ndarray
  edges: np.ndarray
  tail: int


@dataclasses.dataclass(frozen=True)
class UnequalBlockOrder(orders.KeyedOrder):
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

  def __post_init__(self) -> None:
    super().__post_init__()
    orders.check_positive(
      "window_blocks", self.window_blocks, "Give the blocks mixed together."
    )

  def window_bounds(
    self, index: np.ndarray, epoch: _Numbers, size: _Numbers
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the windows of positions.

    Raises:
      ValueError: If `size` is not the last boundary of its epoch, or the
        boundaries are not in order.
    """
    index = np.asarray(index, np.int64)
    first, last = np.empty_like(index), np.empty_like(index)
    for pick, layout in self._by_epoch(epoch, size):
      edges = layout.edges
      window = np.searchsorted(edges, index[pick], side="right") - 1
      first[pick], last[pick] = edges[window], edges[window + 1]
    return first, last

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
    inside = np.zeros(len(layout.order) + 1, np.int64)
    np.cumsum(np.asarray(values)[layout.order], out=inside[1:])
    count = len(layout.order) - self.last_is_tail
    edges = np.append(np.arange(0, count, self.window_blocks), count)
    if self.last_is_tail:
      edges = np.append(edges, count + 1)
    return layout.edges, inside[edges]

  def rows(
    self, place: np.ndarray, epoch: np.ndarray, size: np.ndarray
  ) -> np.ndarray:
    """Returns the rows at places in permuted blocks; inverts `places`.

    Args:
      place: int64[N].
      epoch: Of no dimension or [N].
      size: The rows of the epoch, of no dimension or [N].
    """
    rows = np.empty_like(place)
    for pick, layout in self._by_epoch(epoch, size):
      places = place[pick]
      block = np.searchsorted(layout.places, places, side="right") - 1
      rows[pick] = layout.rows[block] + (places - layout.places[block])
    return rows

  def places(self, rows: np.ndarray, epoch: int, size: int) -> np.ndarray:
    """Returns the places of rows in an epoch's permuted blocks, int64[N]."""
    layout = self._layout(epoch, size)
    bounds = np.asarray(self.boundaries(epoch), np.int64)
    block = np.searchsorted(bounds, rows, side="right") - 1
    number = np.empty_like(layout.order)
    number[layout.order] = np.arange(len(layout.order))
    return layout.places[number[block]] + (rows - bounds[block])

  def positions(self, rows: np.ndarray, epoch: int, size: int) -> np.ndarray:
    """Returns the positions of rows of an epoch."""
    place = self.places(np.asarray(rows, np.int64), epoch, size)
    first, last = self.window_bounds(place, epoch, size)
    key = self._window_keys(first, np.asarray(epoch), self._layout(epoch, size))
    return first + self._unpermuted(place - first, last - first, key)

  def _window_keys(self, first, epoch, layout: _Layout) -> np.ndarray:
    window = np.searchsorted(layout.edges, first, side="right") - 1
    return np.where(
      window == layout.tail,
      self.epoch_key("tail", epoch),
      hashing.fold(self.epoch_key("window", epoch), window),
    )

  def _evaluate(self, index, epoch, size, first, last) -> np.ndarray:
    rows = np.empty_like(index)
    for pick, layout in self._by_epoch(epoch, size):
      one = len(first) == 1
      rows[pick] = self._in_epoch(
        index[pick],
        epoch[pick][:1] if epoch.ndim else epoch,
        first if one else first[pick],
        last if one else last[pick],
        layout,
      )
    return rows

  def _in_epoch(self, index, epoch, first, last, layout) -> np.ndarray:
    window = np.searchsorted(layout.edges, first, side="right") - 1
    key = self._window_keys(first, epoch, layout)
    place = first + self._permuted(index - first, last - first, key)
    # Bisects only the blocks of these windows, in a third of the time.
    low = min(int(window.min()) * self.window_blocks, len(layout.rows) - 1)
    high = int(window.max() + 1) * self.window_blocks + 1
    block = low - 1
    block += np.searchsorted(layout.places[low:high], place, side="right")
    return layout.rows[block] + (place - layout.places[block])

  def _by_epoch(self, epoch, size):
    """Returns, for each epoch, its elements and its layout."""
    epoch, size = np.asarray(epoch), np.asarray(size)
    if not epoch.ndim or (epoch == epoch[0]).all():
      one = int(epoch.flat[0]), int(size.flat[0])
      return [(slice(None), self._layout(*one))]
    numbers, first = np.unique(epoch, return_index=True)
    sizes = np.broadcast_to(size, epoch.shape)[first]
    return [
      (np.flatnonzero(epoch == number), self._layout(int(number), int(rows)))
      for number, rows in zip(numbers, sizes, strict=True)
    ]

  def _layout(self, epoch: int, size: int) -> _Layout:
    layout = self._layouts.get(epoch)
    if layout is None:
      layout = self._make_layout(epoch)
      self._layouts.put(epoch, layout)
    if size != layout.places[-1]:
      raise ValueError(
        f"`size` must be the rows of epoch {epoch}, {layout.places[-1]}, got"
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
    count = len(lengths) - self.last_is_tail
    order = self._permuted(
      np.arange(count), max(count, 1), self.epoch_key("blocks", epoch)
    )
    if self.last_is_tail:
      order = np.append(order, count)
    places = np.concatenate([[0], np.cumsum(lengths[order])])
    firsts = np.arange(0, count, self.window_blocks)
    windows = len(firsts)
    edges = places[np.concatenate([firsts, [count]])]
    if self.last_is_tail:
      edges = np.append(edges, places[-1])
    return _Layout(
      order=order,
      rows=bounds[order],
      places=places,
      edges=edges,
      tail=windows if self.last_is_tail else -1,
    )
