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
import itertools

import numpy as np

from chomp_data.index import hashing
from chomp_data.index import permutation
from chomp_data.order import window_tables

PERM_TYPES = tuple(permutation.PERMUTATIONS)

# A call that covers more windows reads some of them completely and does not
# return to them, so tables would not help.
_MAX_WINDOWS = 2

# Positions evaluated together: temporaries fit in the second-level cache.
_CHUNK = 2**15

_Numbers = np.ndarray | int


def order_key(seed: int, name: str = "", own_seed: int | None = None) -> int:
  """Returns the key of a source's order.

  Args:
    seed: The run's seed.
    name: The source's name: sources of one run have different orders.
    own_seed: A seed for the order of this source, in place of the run's.

  Returns:
    The key, 0 .. 2**64 - 1.
  """
  if own_seed is None:
    return hashing.fold_key(seed, name, "shuffle")
  return hashing.fold_key("own", own_seed, name, "shuffle")


def check_positive(name: str, value: int, fix: str) -> None:
  """Raises ValueError unless an argument is an integer of at least 1."""
  if (
    isinstance(value, bool)
    or not isinstance(value, int | np.integer)
    or value < 1
  ):
    raise ValueError(
      f"`{name}` must be an integer of at least 1, got {value!r}. {fix}"
    )


class Order(abc.ABC):
  """Maps positions of an epoch to rows of that epoch."""

  _tables: window_tables.WindowTables

  def permute(
    self, index: np.ndarray, epoch: _Numbers, size: _Numbers
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
    epoch, size = np.asarray(epoch, np.int64), np.asarray(size, np.int64)
    rows = np.empty_like(index)
    for low in range(0, len(index), _CHUNK):
      chunk = slice(low, low + _CHUNK)
      rows[chunk] = self._in_windows(
        index[chunk],
        epoch[chunk] if epoch.ndim else epoch,
        size[chunk] if size.ndim else size,
      )
    return rows

  @abc.abstractmethod
  def window_bounds(
    self, index: np.ndarray, epoch: _Numbers, size: _Numbers
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the shuffle windows of positions.

    The positions first .. last - 1 of an epoch have the rows of the same
    blocks. If they are read together, each of these blocks is read once.

    Args:
      index: int64[N], positions, 0 <= index < size.
      epoch: Their epochs, int or int64[N].
      size: Rows of those epochs, int or int64[N].

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

  @abc.abstractmethod
  def _evaluate(self, index, epoch, size, first, last) -> np.ndarray:
    """Returns rows at positions, int64[N], of windows [first, last).

    `epoch` and `size` are arrays of no dimension or [N]; `first` and `last`
    are [N], or [1] if all positions are in one window.
    """

  def _in_windows(self, index, epoch, size) -> np.ndarray:
    """Returns rows at positions, int64[N], from tables if windows are few."""
    first, last = self.window_bounds(index, epoch, size)
    change = first[1:] != first[:-1]
    if epoch.ndim:
      change |= epoch[1:] != epoch[:-1]
    runs = [0, *(np.flatnonzero(change) + 1).tolist(), len(index)]
    if len(runs) > _MAX_WINDOWS + 1:
      return self._evaluate(index, epoch, size, first, last)
    rows = np.empty_like(index)
    for low, high in itertools.pairwise(runs):
      rows[low:high] = self._in_window(
        index[low:high],
        epoch[low] if epoch.ndim else epoch,
        size[low] if size.ndim else size,
        first[low : low + 1],
        last[low : low + 1],
      )
    return rows

  def _in_window(self, index, epoch, size, first, last) -> np.ndarray:
    """Returns rows at positions, int64[N], of one window, from its table."""
    low, high = int(first[0]), int(last[0])
    table = self._tables.table(
      (int(epoch), int(size), low),
      high - low,
      len(index),
      lambda: self._evaluate(np.arange(low, high), epoch, size, first, last),
    )
    if table is None:
      return self._evaluate(index, epoch, size, first, last)
    return table[index - low]


@dataclasses.dataclass(frozen=True)
class NoneOrder(Order):
  """Rows in stored order; every position is a separate window."""

  def permute(
    self, index: np.ndarray, epoch: _Numbers, size: _Numbers
  ) -> np.ndarray:
    """Returns the positions themselves."""
    return np.array(index, np.int64)

  def window_bounds(
    self, index: np.ndarray, epoch: _Numbers, size: _Numbers
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns [index, index + 1): each row is a window."""
    index = np.asarray(index, np.int64)
    return index, index + 1

  def positions(self, rows: np.ndarray, epoch: int, size: int) -> np.ndarray:
    """Returns the rows themselves."""
    return np.array(rows, np.int64)

  def _evaluate(self, index, epoch, size, first, last) -> np.ndarray:
    return index


class KeyedOrder(Order):
  """An order that permutes something under a key."""

  key: int
  perm_type: str

  def __post_init__(self) -> None:
    if not 0 <= self.key < 2**64:
      raise ValueError(
        f"`key` must be in 0 .. 2**64 - 1, got {self.key}. Make it with"
        " `order_key`."
      )
    if self.perm_type not in PERM_TYPES:
      raise ValueError(
        f"`perm_type` must be one of {', '.join(PERM_TYPES)}, got"
        f" {self.perm_type!r}. Use 'feistel'."
      )
    # Not a field, so that tables do not affect equality.
    object.__setattr__(self, "_tables", window_tables.WindowTables())

  def _permuted(self, index, size, key) -> np.ndarray:
    return permutation.PERMUTATIONS[self.perm_type](index, size, key)

  def _unpermuted(self, index, size, key) -> np.ndarray:
    return permutation.INVERSES[self.perm_type](index, size, key)

  def epoch_key(self, part: str, epoch: _Numbers) -> np.ndarray:
    """Returns the keys of epochs for one named use, uint64[...]."""
    return hashing.fold(hashing.fold_key(self.key, part), np.asarray(epoch))


@dataclasses.dataclass(frozen=True)
class FullOrder(KeyedOrder):
  """All rows permuted, differently in every epoch.

  Attributes:
    key: The key of the order, made by `order_key`.
    perm_type: 'feistel', or 'linear', which is weak.
  """

  key: int
  perm_type: str = "feistel"

  def window_bounds(
    self, index: np.ndarray, epoch: _Numbers, size: _Numbers
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the whole epoch."""
    index = np.asarray(index, np.int64)
    return np.zeros_like(index), np.broadcast_to(
      np.asarray(size, np.int64), index.shape
    )

  def positions(self, rows: np.ndarray, epoch: int, size: int) -> np.ndarray:
    """Returns the positions of rows of an epoch."""
    key = hashing.fold(self.key, np.asarray(epoch))
    return self._unpermuted(rows, size, key)

  def _evaluate(self, index, epoch, size, first, last) -> np.ndarray:
    return self._permuted(index, size, hashing.fold(self.key, epoch))


@dataclasses.dataclass(frozen=True)
class EraOrder(KeyedOrder):
  """Consecutive eras, each permuted; the last may be short.

  Attributes:
    era_length: Rows of an era.
    key: The key of the order, made by `order_key`.
    perm_type: 'feistel', or 'linear', which is weak.
  """

  era_length: int
  key: int
  perm_type: str = "feistel"

  def __post_init__(self) -> None:
    super().__post_init__()
    check_positive("era_length", self.era_length, "Give the rows of an era.")

  def window_bounds(
    self, index: np.ndarray, epoch: _Numbers, size: _Numbers
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the eras of positions."""
    first = np.asarray(index, np.int64) // self.era_length * self.era_length
    return first, np.minimum(first + self.era_length, size)

  def positions(self, rows: np.ndarray, epoch: int, size: int) -> np.ndarray:
    """Returns the positions of rows of an epoch."""
    first, last = self.window_bounds(rows, epoch, size)
    key = self._era_key(first, epoch)
    return first + self._unpermuted(rows - first, last - first, key)

  def _evaluate(self, index, epoch, size, first, last) -> np.ndarray:
    key = self._era_key(first, epoch)
    return first + self._permuted(index - first, last - first, key)

  def _era_key(self, first, epoch) -> np.ndarray:
    era = first // self.era_length
    return hashing.fold(self.epoch_key("era", epoch), era)


@dataclasses.dataclass(frozen=True)
class BlockOrder(KeyedOrder):
  """Blocks permuted, then the rows of each window of permuted blocks.

  The rows after the last full block are the tail: last in every epoch, and
  permuted separately. The last window may have fewer blocks.

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

  def __post_init__(self) -> None:
    super().__post_init__()
    check_positive(
      "io_block_size", self.io_block_size, "Give the rows read together."
    )
    check_positive(
      "window_blocks", self.window_blocks, "Give the blocks mixed together."
    )

  def window_bounds(
    self, index: np.ndarray, epoch: _Numbers, size: _Numbers
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the windows of positions."""
    index, size = np.asarray(index, np.int64), np.asarray(size, np.int64)
    window = self._window_rows
    full = size // self.io_block_size * self.io_block_size
    first = index // window * window
    last = np.minimum(first + window, full)
    in_tail = index >= full
    return np.where(in_tail, full, first), np.where(in_tail, size, last)

  def rows(
    self, place: np.ndarray, epoch: np.ndarray, size: np.ndarray
  ) -> np.ndarray:
    """Returns the rows at places in permuted blocks; inverts `places`.

    Args:
      place: int64[N]; those after the last block are the tail.
      epoch: Of no dimension or [N].
      size: The rows of the epoch, of no dimension or [N].
    """
    blocks = size // self.io_block_size
    rows = np.array(place)
    in_blocks = np.flatnonzero(place < blocks * self.io_block_size)
    if len(in_blocks):
      rows[in_blocks] = self._rows(
        place[in_blocks],
        epoch[in_blocks] if epoch.ndim else epoch,
        blocks[in_blocks] if blocks.ndim else blocks,
      )
    return rows

  def places(self, rows: np.ndarray, epoch: int, size: int) -> np.ndarray:
    """Returns the places of rows in an epoch's permuted blocks, int64[N]."""
    block, offset = np.divmod(rows, self.io_block_size)
    blocks = size // self.io_block_size
    in_blocks = np.flatnonzero(block < blocks)
    key = self.epoch_key("blocks", epoch)
    block[in_blocks] = self._unpermuted(block[in_blocks], blocks, key)
    return block * self.io_block_size + offset

  def positions(self, rows: np.ndarray, epoch: int, size: int) -> np.ndarray:
    """Returns the positions of rows of an epoch."""
    place = self.places(np.asarray(rows, np.int64), epoch, size)
    first, last = self.window_bounds(place, epoch, size)
    _, key = self._window_keys(first, epoch, np.asarray(size))
    return first + self._unpermuted(place - first, last - first, key)

  def _window_keys(self, first, epoch, size) -> tuple[np.ndarray, np.ndarray]:
    """Returns which windows are the tail, and the keys of all windows."""
    in_tail = first >= size // self.io_block_size * self.io_block_size
    window = first // self._window_rows
    return in_tail, np.where(
      in_tail,
      self.epoch_key("tail", epoch),
      hashing.fold(self.epoch_key("window", epoch), window),
    )

  def _evaluate(self, index, epoch, size, first, last) -> np.ndarray:
    blocks = size // self.io_block_size
    in_tail, key = self._window_keys(first, epoch, size)
    place = first + self._permuted(index - first, last - first, key)
    if not in_tail.any():
      return self._rows(place, epoch, blocks)
    if not in_tail.all():
      inside = np.flatnonzero(~in_tail)
      place[inside] = self._rows(
        place[inside],
        epoch[inside] if epoch.ndim else epoch,
        blocks[inside] if blocks.ndim else blocks,
      )
    return place

  @property
  def _window_rows(self) -> int:
    # Wide windows must not overflow int64.
    return min(self.io_block_size * self.window_blocks, 2**62)

  def _rows(self, place, epoch, blocks) -> np.ndarray:
    """Returns the rows at places in the permuted blocks."""
    number = place // self.io_block_size
    offset = place - number * self.io_block_size
    low, high = int(number.min()), int(number.max()) + 1
    if epoch.ndim and (epoch == epoch[0]).all():
      epoch, blocks = epoch[0], blocks[0] if blocks.ndim else blocks
    if epoch.ndim or 2 * (high - low) > len(number):
      block = self._permuted(number, blocks, self.epoch_key("blocks", epoch))
    else:
      # Many rows share few blocks: each block is looked up once.
      key = self.epoch_key("blocks", epoch)
      block = self._permuted(np.arange(low, high), blocks, key)[number - low]
    return block * self.io_block_size + offset
