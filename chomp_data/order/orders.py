# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Orders of a source's rows: the row at each position of an epoch.

    none    0 1 2 3 | 4 5 6 7 | 8 9      blocks of 4, tail of 2
    era     2 0 3 1 | 5 4 7 6 | 9 8      each era of 4 permuted
    block   6 1 7 3 0 5 4 2   | 9 8      blocks permuted, then the rows of each
                                         window of 2 blocks; the tail last
    full    4 9 0 6 3 1 8 2 7 5          the whole epoch permuted

An order is a pure function of its options, its key and (epoch, position): a
bijection of 0 .. size - 1 in every epoch, evaluated at any position without
those before it. Keys fold in the epoch and the window, so no two windows share
an order. Positions and rows are int64. NumPy only.
"""

import abc
import dataclasses

import numpy as np

from chomp_data.index import hashing
from chomp_data.index import permutation

PERM_TYPES = tuple(permutation.PERMUTATIONS)


def order_key(
  seed: int,
  name: str = "",
  order_seed: int | None = None,
  part: str = "shuffle",
) -> int:
  """Returns the key of a source's order.

  Args:
    seed: The run's seed.
    name: The source's name: sources of one run have different orders.
    order_seed: A seed for the order of this source, in place of the run's.
    part: What is ordered.

  Returns:
    The key, 0 .. 2**64 - 1.
  """
  if order_seed is None:
    return hashing.fold_key(seed, name, part)
  return hashing.fold_key("own", order_seed, name, part)


class Order(abc.ABC):
  """Maps positions of an epoch to rows of that epoch."""

  def permute(
    self,
    index: np.ndarray,
    epoch: np.ndarray | int,
    size: np.ndarray | int,
  ) -> np.ndarray:
    """Returns the rows at positions of epochs.

    Args:
      index: int64[N], positions, 0 <= index < size, in any order.
      epoch: Their epochs, int or int64[N], from 0.
      size: Rows of those epochs, int or int64[N].

    Returns:
      int64[N], for each epoch a bijection of 0 .. size - 1.
    """
    index = np.asarray(index, np.int64)
    if isinstance(epoch, int) and isinstance(size, int):
      return self._permute(index, epoch, size)
    epochs = np.broadcast_to(epoch, index.shape)
    sizes = np.broadcast_to(size, index.shape)
    rows = np.empty_like(index)
    for number in np.unique(epochs).tolist():
      pick = np.flatnonzero(epochs == number)
      rows[pick] = self._permute(index[pick], number, int(sizes[pick[0]]))
    return rows

  @abc.abstractmethod
  def window_bounds(
    self, index: np.ndarray, epoch: int, size: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the shuffle windows of positions.

    The positions first .. last - 1 of an epoch have the rows of the same
    blocks. If they are read together, each of these blocks is read once.

    Args:
      index: int64[N], positions, 0 <= index < size.
      epoch: Their epoch.
      size: Its rows.

    Returns:
      first and last, int64[N] each.
    """

  @abc.abstractmethod
  def positions(self, rows: np.ndarray, epoch: int, size: int) -> np.ndarray:
    """Returns the positions of rows of an epoch; inverts `permute`.

    Args:
      rows: int64[N], 0 <= row < size, in any order.
      epoch: The epoch.
      size: Its rows.

    Returns:
      int64[N].
    """

  def block_rows(self, rows: int) -> int:
    """Returns how many of about `rows` rows stay together; 0 if none do."""
    del rows
    return 0

  @abc.abstractmethod
  def _permute(self, index: np.ndarray, epoch: int, size: int) -> np.ndarray:
    """Returns the rows at positions int64[N] of one epoch, int64[N]."""


@dataclasses.dataclass(frozen=True)
class NoneOrder(Order):
  """Rows in stored order; every position is a separate window."""

  def window_bounds(
    self, index: np.ndarray, epoch: int, size: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns [index, index + 1): each row is a window."""
    index = np.asarray(index, np.int64)
    return index, index + 1

  def positions(self, rows: np.ndarray, epoch: int, size: int) -> np.ndarray:
    """Returns the rows themselves."""
    return np.array(rows, np.int64)

  def _permute(self, index: np.ndarray, epoch: int, size: int) -> np.ndarray:
    return index


class WindowOrder(Order):
  """An order that permutes the positions within each window, by a key.

  That gives a *place*, and each place holds a row: the one of the same number,
  unless a subclass overrides `rows` and `places`.
  """

  key: int
  perm_type: str

  def epoch_key(self, part: str, epoch: int) -> np.ndarray:
    """Returns the key of an epoch for one named use, uint64[1]."""
    return hashing.fold(hashing.fold_key(self.key, part), np.asarray(epoch))

  def permuted(
    self, index: np.ndarray, size: np.ndarray | int, key: np.ndarray
  ) -> np.ndarray:
    """Returns the permutation of each key at indices below `size`."""
    return permutation.PERMUTATIONS[self.perm_type](index, size, key)

  def unpermuted(
    self, index: np.ndarray, size: np.ndarray | int, key: np.ndarray
  ) -> np.ndarray:
    """Returns the indices that `permuted` maps to `index`."""
    return permutation.INVERSES[self.perm_type](index, size, key)

  @abc.abstractmethod
  def _windows(
    self, index: np.ndarray, epoch: int, size: int
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns (begin, end, key) of the windows of positions int64[N].

    Arrays of [N], or of [1] where all positions are in one window; `end` is the
    position after the last.
    """

  def rows(self, place: np.ndarray, epoch: int, size: int) -> np.ndarray:
    """Returns the rows at places of an epoch, int64[N]; inverts `places`."""
    return place

  def places(self, rows: np.ndarray, epoch: int, size: int) -> np.ndarray:
    """Returns the places of rows of an epoch, int64[N]; inverts `rows`."""
    return rows

  def window_bounds(
    self, index: np.ndarray, epoch: int, size: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the shuffle windows of positions, first and last int64[N]."""
    index = np.asarray(index, np.int64)
    begin, end, _ = self._windows(index, epoch, size)
    begin = np.broadcast_to(begin, index.shape)
    return begin, np.broadcast_to(end, index.shape)

  def positions(self, rows: np.ndarray, epoch: int, size: int) -> np.ndarray:
    """Returns the positions of rows of an epoch; inverts `permute`."""
    place = self.places(np.asarray(rows, np.int64), epoch, size)
    begin, end, key = self._windows(place, epoch, size)
    return begin + self.unpermuted(place - begin, end - begin, key)

  def _permute(self, index: np.ndarray, epoch: int, size: int) -> np.ndarray:
    begin, end, key = self._windows(index, epoch, size)
    place = begin + self.permuted(index - begin, end - begin, key)
    return self.rows(place, epoch, size)


@dataclasses.dataclass(frozen=True)
class FullOrder(WindowOrder):
  """All rows permuted, differently in every epoch.

  Attributes:
    key: The key of the order, made by `order_key`.
    perm_type: 'feistel', or 'linear', which is weak.
  """

  key: int
  perm_type: str = "feistel"

  def _windows(
    self, index: np.ndarray, epoch: int, size: int
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    key = hashing.fold(self.key, np.asarray(epoch))
    return np.asarray([0]), np.asarray([size]), key


@dataclasses.dataclass(frozen=True)
class EraOrder(WindowOrder):
  """Consecutive eras, each permuted; the last may be short.

  Attributes:
    era_length: Rows of an era.
    key: The key of the order, made by `order_key`.
    perm_type: 'feistel', or 'linear', which is weak.
  """

  era_length: int
  key: int
  perm_type: str = "feistel"

  def block_rows(self, rows: int) -> int:
    """Returns the rows of whole eras."""
    return self.era_length * (max(1, rows // self.era_length) if rows else 0)

  def _windows(
    self, index: np.ndarray, epoch: int, size: int
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    era = index // self.era_length
    begin = era * self.era_length
    key = hashing.fold(self.epoch_key("era", epoch), era)
    return begin, np.minimum(begin + self.era_length, size), key


class BlockShuffle(WindowOrder):
  """Permutes blocks, then the rows of each window of permuted blocks.

  The last window may have fewer blocks. A tail, a short block at the end, is
  last in every epoch and permuted separately.
  """

  window_blocks: int

  @abc.abstractmethod
  def edges(self, epoch: int, size: int) -> np.ndarray:
    """Returns the first row of each block, and all rows, int64[nb + 1]."""

  def has_tail(self, size: int) -> bool:
    """Returns whether the last block is the tail."""
    del size
    return False

  def permuted_blocks(
    self, epoch: int, size: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the blocks of an epoch in their permuted order.

    Returns:
      int64[nb], the block at each rank, and int64[nw + 1], the first rank of
      each window, and all blocks. The tail is a window.
    """
    num_blocks = len(self.edges(epoch, size)) - 1
    # Blocks that are permuted; the tail is not.
    count = num_blocks - self.has_tail(size)
    order = np.arange(num_blocks)
    key = self.epoch_key("blocks", epoch)
    order[:count] = self.permuted(order[:count], max(count, 1), key)
    ranks = np.arange(0, count, self.window_blocks)
    return order, np.append(ranks, np.arange(count, num_blocks + 1))

  def window_sums(
    self, values: np.ndarray, epoch: int, size: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns sums over windows of values of blocks.

    Args:
      values: int64[nb], one per block, in the order of `edges`.
      epoch: The epoch.
      size: Its rows.

    Returns:
      int64[nw + 1], the first position of each window, and all rows; and
      int64[nw], the sums.
    """
    order, ranks = self.permuted_blocks(epoch, size)
    lengths = np.diff(self.edges(epoch, size))[order]
    positions = np.append(0, np.cumsum(lengths))[ranks]
    return positions, np.add.reduceat(values[order], ranks[:-1])

  def block_rows(self, rows: int) -> int:
    """Returns `rows`: blocks of the source stay together."""
    return rows

  def _window_keys(self, window: np.ndarray, epoch: int) -> np.ndarray:
    """Returns the keys of windows, uint64[N]."""
    return hashing.fold(self.epoch_key("window", epoch), window)


@dataclasses.dataclass(frozen=True)
class BlockOrder(BlockShuffle):
  """A block shuffle whose blocks have equal numbers of rows.

  The rows after the last full block are the tail.

  Attributes:
    io_block_size: Rows of a block, which are read together.
    window_blocks: Blocks of a window, whose rows are shuffled.
    key: The key of the order, made by `order_key`.
    perm_type: 'feistel', or 'linear', which is weak.
  """

  io_block_size: int
  window_blocks: int
  key: int
  perm_type: str = "feistel"

  def edges(self, epoch: int, size: int) -> np.ndarray:
    """Returns the first row of each block, and all rows, int64[nb + 1]."""
    del epoch
    return np.append(np.arange(0, size, self.io_block_size), size)

  def has_tail(self, size: int) -> bool:
    """Returns whether rows are left after the last full block."""
    return size % self.io_block_size > 0

  def block_rows(self, rows: int) -> int:
    """Returns the rows of a block."""
    return self.io_block_size if rows else 0

  def rows(self, place: np.ndarray, epoch: int, size: int) -> np.ndarray:
    """Returns the rows at places in permuted blocks; inverts `places`."""
    return self._with_blocks(self.permuted, place, epoch, size)

  def places(self, rows: np.ndarray, epoch: int, size: int) -> np.ndarray:
    """Returns the places of rows in an epoch's permuted blocks, int64[N]."""
    return self._with_blocks(self.unpermuted, rows, epoch, size)

  def _with_blocks(self, permuted, rows, epoch, size) -> np.ndarray:
    """Applies a permutation of blocks to rows int64[N]; the tail stays."""
    block, offset = np.divmod(rows, self.io_block_size)
    num_blocks = size // self.io_block_size
    if num_blocks:
      key = self.epoch_key("blocks", epoch)
      moved = permuted(np.minimum(block, num_blocks - 1), num_blocks, key)
      block = np.where(block < num_blocks, moved, block)
    return block * self.io_block_size + offset

  def _windows(
    self, index: np.ndarray, epoch: int, size: int
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    # Wide windows must not overflow int64.
    window_rows = min(self.io_block_size * self.window_blocks, 2**62)
    tail = size // self.io_block_size * self.io_block_size
    in_tail = index >= tail
    window = index // window_rows
    begin = window * window_rows
    return (
      np.where(in_tail, tail, begin),
      np.where(in_tail, size, np.minimum(begin + window_rows, tail)),
      np.where(
        in_tail, self.epoch_key("tail", epoch), self._window_keys(window, epoch)
      ),
    )
