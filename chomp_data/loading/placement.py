"""Which rows a process holds, and batches as sharded `jax.Array`s.

Rows follow from the batch's `jax.sharding.Sharding`: processes that hold the
same rows load the same rows, and a process's rows need not be contiguous.
"""

from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from chomp_data import schema

# A sharding for every field; or one by rank, or one by field name.
ShardingTree = (
  jax.sharding.Sharding
  | Mapping[int, jax.sharding.Sharding]
  | Mapping[str, jax.sharding.Sharding]
)


def field_sharding(
  sharding: ShardingTree, name: str, ndim: int
) -> jax.sharding.Sharding:
  """Returns the sharding of one field.

  Args:
    sharding: One for all (the spec of a `NamedSharding` is cut to the field's
      rank), or a mapping by rank or by field name.
    name: The field.
    ndim: The field's rank.

  Raises:
    ConfigError: If a mapping has no entry for the field.
  """
  if isinstance(sharding, Mapping):
    found: Any = sharding.get(name, sharding.get(ndim))  # pyright: ignore
    if found is None:
      raise schema.ConfigError(
        [
          f"`sharding` must hold field {name!r} or rank {ndim}, got"
          f" {sorted(map(str, sharding))}. Add one."
        ]
      )
    return found
  if isinstance(sharding, jax.sharding.NamedSharding):
    spec = jax.sharding.PartitionSpec(*sharding.spec[:ndim])
    return jax.sharding.NamedSharding(
      sharding.mesh, spec, memory_kind=sharding.memory_kind
    )
  return sharding


def process_rows(
  shapes: Mapping[str, tuple[int, ...]], sharding: ShardingTree
) -> np.ndarray:
  """Returns int64[R], the ascending rows that this process's devices hold.

  Args:
    shapes: Global shape of each field; the first axis is the batch.
    sharding: As in `field_sharding`.

  Raises:
    ConfigError: If a field does not divide over its sharding.
  """
  held = None
  for name, shape in shapes.items():
    own = field_sharding(sharding, name, len(shape))
    try:
      own.shard_shape(shape)
      slices = own.addressable_devices_indices_map(shape).values()
    except ValueError as error:
      raise schema.ConfigError(
        [
          "`config.data.global_batch_size` (or seq_len) must divide over the"
          f" sharding, got {name!r} of shape {shape} over {own}. Use a"
          " multiple of the mesh axes it is sharded over, or a smaller mesh."
        ]
      ) from error
    if held is None:
      held = np.zeros(shape[0], np.bool_)
    for index in slices:
      held[index[0] if index else slice(None)] = True
  return np.flatnonzero(held) if held is not None else np.empty(0, np.int64)


class Placer:
  """Puts process-local batches on devices as global arrays."""

  def __init__(self, sharding: ShardingTree, rows: np.ndarray, num_rows: int):
    """Remembers where rows are.

    Args:
      sharding: As in `field_sharding`.
      rows: int64[R], ascending rows of the global batch in local batches.
      num_rows: Rows of the global batch.
    """
    self._sharding = sharding
    self._rows = rows
    self._num_rows = num_rows
    self._shardings: dict[tuple[str, int], jax.sharding.Sharding] = {}

  def __call__(self, batch: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
    """Places a batch.

    Args:
      batch: Fields [R, ...]. Not to be written to afterwards: JAX may alias.

    Returns:
      Fields [num_rows, ...] with their shardings. 64-bit integers become 32
      bits unless JAX has 64-bit types enabled.
    """
    fields = {name: _device_dtype(value) for name, value in batch.items()}
    shardings = {
      name: self._field(name, value.ndim) for name, value in fields.items()
    }
    if all(s.is_fully_addressable for s in shardings.values()):
      return jax.device_put(fields, shardings)
    return {
      name: jax.make_array_from_callback(
        (self._num_rows, *value.shape[1:]),
        shardings[name],
        self._pieces(value),
      )
      for name, value in fields.items()
    }

  def _field(self, name: str, ndim: int) -> jax.sharding.Sharding:
    key = (name, ndim)
    if key not in self._shardings:
      self._shardings[key] = field_sharding(self._sharding, name, ndim)
    return self._shardings[key]

  def _pieces(self, value: np.ndarray) -> Callable[[Any], np.ndarray]:
    def piece(index):
      low, high, _ = index[0].indices(self._num_rows)
      # All rows of low .. high - 1 are local, so they are contiguous here.
      first = int(np.searchsorted(self._rows, low))
      return value[(slice(first, first + high - low), *index[1:])]

    return piece


def _device_dtype(value: np.ndarray) -> np.ndarray:
  if value.dtype == np.int64 and not jax.config.jax_enable_x64:  # pyright: ignore
    return value.astype(np.int32)
  return value
