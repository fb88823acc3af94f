# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Grain samplers of the orders in `order/orders.py`, for stock pipelines.

    loader = grain.DataLoader(
        data_source=source,
        sampler=samplers.BlockShuffleSampler(len(source), io_block_size=128),
        shard_options=grain.sharding.NoSharding(),
    )

Sampler index i is position i % num_records of epoch i // num_records. The
order is that of a row source of the same name, seed and options, and it does
not depend on shards or workers: the DataLoader deals indices out to them.
"""

import sys

import grain
import numpy as np

from chomp_data import schema
from chomp_data.index import hashing
from chomp_data.index import integers
from chomp_data.index import memo
from chomp_data.order import orders

# Keys looked up at once: NumPy's cost by call is then shared by all of them.
_KEYS = 4_096

# Grain's reading threads may ask on both sides of a seam by turns.
_MAX_RUNS = 2


_COUNT = schema.integer(1)
_PASSES = schema.optional(schema.integer(1))
_SEED = schema.optional(schema.integer(0, 2**63 - 1))
# What all samplers that shuffle have.
_SHARED = {
  "num_records": _COUNT,
  "perm_type": schema.choice(orders.PERM_TYPES),
  "seed": schema.integer(0, 2**63 - 1),
  "name": schema.text(empty=True),
  "rng_seed": _SEED,
  "own_seed": _SEED,
}


class OrderSampler:
  """Hands out record keys in an order, for a number of epochs."""

  def __init__(
    self,
    num_records: int,
    order: orders.Order,
    *,
    num_epochs: int | None,
    rng_seed: int | None = None,
    **described: object,
  ):
    """Binds an order to a number of records.

    Args:
      num_records: Records of the data source.
      order: Which record stands at each position of an epoch.
      num_epochs: Passes over the records, or None for ever.
      rng_seed: Seeds each record's generator for random transforms, or None
        where there are none: making one costs more than finding a key.
      **described: The other arguments, for `repr`, which Grain compares when
        it restores a state.
    """
    self._num_records = num_records
    self._order = order
    self._length = sys.maxsize
    if num_epochs is not None:
      self._length = self._num_records * num_epochs
    self._rng_seed = rng_seed
    arguments = {
      "num_records": num_records,
      **described,
      "num_epochs": num_epochs,
      "rng_seed": rng_seed,
    }
    text = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    self._repr = f"{type(self).__name__}({text})"
    self._runs = memo.Memo(_MAX_RUNS)

  def __len__(self) -> int:
    return self._length

  def __getitem__(self, index: int) -> grain.RecordMetadata:
    """Returns the metadata of an index.

    Raises:
      IndexError: If the index is not of these epochs.
      TypeError: If it is no whole number, or a slice.
    """
    index = integers.whole("index", index, "Iterate over the indices.")
    if not 0 <= index < self._length:
      raise IndexError(
        f"index must be in 0 .. {self._length - 1}, got {index}."
      )
    number, place = divmod(index, _KEYS)
    keys = self._runs.get(number)
    if keys is None:
      keys = self._keys(number)
      self._runs.put(number, keys)
    rng = None
    if self._rng_seed is not None:
      rng = np.random.Generator(
        np.random.Philox(key=hashing.fold_key(self._rng_seed, "record", index))
      )
    return grain.RecordMetadata(index=index, record_key=keys[place], rng=rng)

  def __repr__(self) -> str:
    return self._repr

  def _keys(self, number: int) -> list[int]:
    """Returns the record keys of one run of indices."""
    first = number * _KEYS
    index = np.arange(first, min(first + _KEYS, self._length))
    epoch, position = np.divmod(index, self._num_records)
    if epoch[0] == epoch[-1]:
      epoch = epoch[0]
    return self._order.permute(position, epoch, self._num_records).tolist()


class NoShuffleSampler(OrderSampler):
  """Records in their own order."""

  @schema.arguments(num_records=_COUNT, num_epochs=_PASSES, rng_seed=_SEED)
  def __init__(
    self,
    num_records: int,
    *,
    num_epochs: int | None = 1,
    rng_seed: int | None = None,
  ):
    """See `OrderSampler`."""
    super().__init__(
      num_records, orders.NoneOrder(), num_epochs=num_epochs, rng_seed=rng_seed
    )


class FullShuffleSampler(OrderSampler):
  """Every epoch its own permutation of all records."""

  @schema.arguments(num_epochs=_PASSES, **_SHARED)
  def __init__(
    self,
    num_records: int,
    *,
    perm_type: str = "feistel",
    num_epochs: int | None = 1,
    seed: int = 0,
    name: str = "",
    rng_seed: int | None = None,
    own_seed: int | None = None,
  ):
    """Permutes records.

    Args:
      num_records: Records of the data source.
      perm_type: 'feistel', or 'linear', which is weak.
      num_epochs: Passes over the records, or None for ever.
      seed: The run's seed.
      name: The source's name; sources of one run have different orders.
      rng_seed: See `OrderSampler`.
      own_seed: Seed of this order alone, in place of the run's: what a config
        calls `sources.<name>.shuffle.seed`.
    """
    super().__init__(
      num_records,
      orders.FullOrder(orders.order_key(seed, name, own_seed), perm_type),
      perm_type=perm_type,
      num_epochs=num_epochs,
      seed=seed,
      name=name,
      own_seed=own_seed,
      rng_seed=rng_seed,
    )


class EraShuffleSampler(OrderSampler):
  """Consecutive eras of records, each permuted in itself."""

  @schema.arguments(era_length=_COUNT, num_epochs=_PASSES, **_SHARED)
  def __init__(
    self,
    num_records: int,
    era_length: int,
    *,
    perm_type: str = "feistel",
    num_epochs: int | None = 1,
    seed: int = 0,
    name: str = "",
    rng_seed: int | None = None,
    own_seed: int | None = None,
  ):
    """Permutes eras.

    Args:
      num_records: Records of the data source.
      era_length: Records of an era.
      perm_type: 'feistel', or 'linear', which is weak.
      num_epochs: Passes over the records, or None for ever.
      seed: The run's seed.
      name: The source's name; sources of one run have different orders.
      rng_seed: See `OrderSampler`.
      own_seed: Seed of this order alone, in place of the run's: what a config
        calls `sources.<name>.shuffle.seed`.
    """
    super().__init__(
      num_records,
      orders.EraOrder(
        era_length, orders.order_key(seed, name, own_seed), perm_type
      ),
      era_length=era_length,
      perm_type=perm_type,
      num_epochs=num_epochs,
      seed=seed,
      name=name,
      own_seed=own_seed,
      rng_seed=rng_seed,
    )


class BlockShuffleSampler(OrderSampler):
  """Blocks of records permuted, then the records of windows of blocks.

  Nearly as random as a full shuffle, but reads are local. The number of epochs
  must be finite. Blocks of all records are permuted; a short block at the end
  stays last, because permuted blocks must have one size.
  """

  @schema.arguments(
    io_block_size=_COUNT, window_blocks=_COUNT, num_epochs=_PASSES, **_SHARED
  )
  def __init__(
    self,
    num_records: int,
    io_block_size: int,
    window_blocks: int = 8,
    *,
    perm_type: str = "feistel",
    num_epochs: int = 1,
    seed: int = 0,
    name: str = "",
    rng_seed: int | None = None,
    own_seed: int | None = None,
  ):
    """Permutes blocks and the records of their windows.

    Args:
      num_records: Records of the data source.
      io_block_size: Records of a block, which are read together.
      window_blocks: Blocks of a window, whose records are mixed.
      perm_type: 'feistel', or 'linear', which is weak.
      num_epochs: Passes over the records.
      seed: The run's seed.
      name: The source's name; sources of one run have different orders.
      rng_seed: See `OrderSampler`.
      own_seed: Seed of this order alone, in place of the run's: what a config
        calls `sources.<name>.shuffle.seed`.

    Raises:
      ValueError: If an argument is out of range, or an endless order asked.
    """
    if num_epochs is None:
      raise ValueError(
        "`num_epochs` must be an integer of at least 1, got None: a block"
        " shuffle is finite only, because it lays out whole epochs, the tail"
        " last. Give the passes of the run (a large number costs nothing), or"
        " use EraShuffleSampler."
      )
    key = orders.order_key(seed, name, own_seed)
    super().__init__(
      num_records,
      orders.BlockOrder(io_block_size, window_blocks, key, perm_type),
      io_block_size=io_block_size,
      window_blocks=window_blocks,
      perm_type=perm_type,
      num_epochs=num_epochs,
      seed=seed,
      name=name,
      own_seed=own_seed,
      rng_seed=rng_seed,
    )
