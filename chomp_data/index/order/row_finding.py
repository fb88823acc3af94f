"""Where a row stands in an order: the inverse of `orders`, a row at a time.

For the few rows of an epoch that are unlike the others, as a short last row.
NumPy only.
"""

import numpy as np

from chomp_data.index import hashing
from chomp_data.index import permutation
from chomp_data.index.order import lanes
from chomp_data.index.order import orders


def find(order: orders.Order, row: int, epoch: int, size: int) -> int:
  """Returns the position at which a row of an epoch stands.

  Args:
    order: Of any kind but unequal blocks.
    row: 0 .. size - 1.
    epoch: The epoch.
    size: Its rows.

  Raises:
    TypeError: If the order is of another kind.
  """
  if isinstance(order, orders.NoneOrder):
    return row
  if isinstance(order, orders.FullOrder):
    key = int(hashing.fold(order.key, np.asarray(epoch))[0])
    return _inverse(order, row, size, key)
  if isinstance(order, orders.EraOrder):
    return _within(order, row, row, epoch, size)
  if isinstance(order, lanes.LaneOrder):
    return order.find(row, epoch, size)
  if isinstance(order, orders.BlockOrder):
    block, blocks = row // order.io_block_size, size // order.io_block_size
    if block < blocks:
      key = int(order.epoch_key("blocks", epoch)[0])
      block = _inverse(order, block, blocks, key)
    return _within(order, row, block * order.io_block_size, epoch, size)
  raise TypeError(f"`order` must have blocks of one size, got {order!r}.")


def _inverse(order: orders.KeyedOrder, row: int, size: int, key: int) -> int:
  inverse = permutation.INVERSES[order.perm_type]
  return int(inverse(np.asarray([row]), size, key)[0])


def _within(
  order: orders.Order, row: int, near: int, epoch: int, size: int
) -> int:
  """Returns a row's position in the window that a position lies in."""
  first, last = order.window_bounds(np.asarray([near]), epoch, size)
  positions = np.arange(int(first[0]), int(last[0]))
  found = np.flatnonzero(order.permute(positions, epoch, size) == row)
  return int(positions[found[0]])
