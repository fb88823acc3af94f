# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Which rows a process holds, and batches as sharded `jax.Array`s.

Rows follow from the batch's `jax.sharding.Sharding`: processes that hold the
same rows load the same rows, and a process's rows need not be contiguous.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import math
from typing import Any
from typing import NamedTuple

from absl import logging
import jax
import numpy as np

from chomp_data import schema
from chomp_data.plans import plan as plan_lib
from chomp_data.rows import buckets as buckets_lib
from chomp_data.rows import spans as spans_lib

# A sharding for every field; or one by rank, or one by field name.
ShardingTree = (
  jax.sharding.Sharding
  | Mapping[int, jax.sharding.Sharding]
  | Mapping[str, jax.sharding.Sharding]
)

# Rows of a batch on devices, of each bucket by its name or of all.
DeviceRows = int | Mapping[str, int] | None


def on_devices(device_rows: DeviceRows, bucket: buckets_lib.Bucket) -> int:
  """Returns the rows of a bucket's batches on devices."""
  if isinstance(device_rows, Mapping):
    device_rows = device_rows.get(bucket.name)
  return device_rows or bucket.batch_size


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
    of_field: Any = sharding.get(name, sharding.get(ndim))  # pyright: ignore
    if of_field is None:
      raise schema.ConfigError(
        [
          f"`sharding` must hold field {name!r} or rank {ndim}, got"
          f" {sorted(map(str, sharding))}. Add one."
        ]
      )
    return of_field
  if isinstance(sharding, jax.sharding.NamedSharding):
    spec = jax.sharding.PartitionSpec(*sharding.spec[:ndim])
    return jax.sharding.NamedSharding(
      sharding.mesh, spec, memory_kind=sharding.memory_kind
    )
  return sharding


@dataclasses.dataclass(frozen=True)
class BatchSpec:
  """The fields of the batches of one bucket.

  Attributes:
    bucket: The bucket.
    fields: The shape of each field, rows left out; empty if the bucket is.
    rows_option: The option of the config that sets the rows of its batches.
    problems: A sentence for each source that has other fields than the first.
  """

  bucket: buckets_lib.Bucket
  fields: Mapping[str, tuple[int, ...]]
  rows_option: str
  problems: tuple[str, ...] = ()


class _Placed(NamedTuple):
  """Where the batches of one bucket are.

  Attributes:
    bucket: The bucket.
    fields: The global shape of each field on devices, and its sharding.
    num_rows: Rows of a batch on devices.
    rows: int64[R], those that this process holds, ascending.
  """

  bucket: buckets_lib.Bucket
  fields: dict[str, tuple[tuple[int, ...], jax.sharding.Sharding]]
  num_rows: int
  rows: np.ndarray

  @property
  def run_rows(self) -> np.ndarray:
    """int64[R], the rows without those that are on devices only."""
    return self.rows[self.rows < self.bucket.batch_size]


class Placement:
  """Where batches are on devices: this process's rows, and global arrays."""

  def __init__(
    self,
    specs: Sequence[BatchSpec],
    sharding: ShardingTree,
    device_rows: DeviceRows = None,
    needed: Collection[str] | None = None,
    padding: Mapping[str, Mapping[str, np.ndarray]] | None = None,
  ):
    """Looks up the rows of each bucket.

    Args:
      specs: The batches of each bucket.
      sharding: As in `field_sharding`.
      device_rows: Rows of a batch on devices, at least the run's, of each
        bucket by its name or of all; None is the run's.
      needed: Buckets that must divide over the sharding; others that do not are
        left out. None is all.
      padding: The rows beyond the run's, fields [1, ...] by bucket; None or no
        entry is 0.

    Raises:
      ConfigError: If fields do not divide over the sharding, or it lacks one,
        or sources give different fields; every such bucket is named.
    """
    self._sharding = sharding
    self._padding = padding or {}
    self._shardings: dict[tuple[str, int], jax.sharding.Sharding] = {}
    kinds = sorted({type(each).__name__ for each in shardings_of(sharding)})
    shapes = "; ".join(str(spec.bucket) for spec in specs)
    self._text = f"{shapes}, on devices by {' and '.join(kinds)}"
    self._placed: dict[str, _Placed] = {}
    problems = []
    for spec in specs:
      problems += spec.problems
      bucket, count = spec.bucket, on_devices(device_rows, spec.bucket)
      shapes = {name: (count, *shape) for name, shape in spec.fields.items()}
      uneven = _uneven(spec, shapes, sharding, len(specs) > 1)
      if uneven:
        if needed is None or bucket.name in needed:
          problems += uneven
        continue
      fields = {
        name: (shape, self.sharding_of(name, len(shape)))
        for name, shape in shapes.items()
      }
      is_held = np.zeros(count if fields else 0, np.bool_)
      for shape, each in fields.values():
        for index in each.addressable_devices_indices_map(shape).values():
          is_held[index[0] if index else slice(None)] = True
      rows = np.flatnonzero(is_held)
      self._placed[bucket.name] = _Placed(bucket, fields, count, rows)
    if problems:
      # A problem that all buckets have is listed once.
      raise schema.ConfigError(list(dict.fromkeys(problems)))
    if len(self._placed) > 1:
      shown = (
        f"{placed.bucket} ({len(placed.rows)} rows here)"
        for placed in self._placed.values()
      )
      logging.info("static shapes of batches: %s", "; ".join(shown))

  def sharding_of(self, name: str, ndim: int) -> jax.sharding.Sharding:
    """Returns the sharding of one field; see `field_sharding`."""
    if (name, ndim) not in self._shardings:
      of_field = field_sharding(self._sharding, name, ndim)
      self._shardings[name, ndim] = of_field
    return self._shardings[name, ndim]

  def local_rows(self) -> plan_lib.LocalRows:
    """Returns the rows of the run that this process holds.

    Where processes share batches, each row is counted by the lowest of them
    that holds it.
    """
    counted, processes = None, processes_of(self._sharding)
    if len(processes) > 1 and jax.process_index() in processes:
      counted = {
        name: _counted(placed) for name, placed in self._placed.items()
      }
    rows = {name: placed.run_rows for name, placed in self._placed.items()}
    return plan_lib.LocalRows(rows, counted=counted)

  def columns(
    self,
    num_targets: int = 0,
    order: Callable[[int], np.ndarray] = np.arange,
  ) -> dict[str, spans_lib.ColumnRanges]:
    """Returns the columns of text whose tokens this process needs.

    They are those that its devices hold, and their targets: the next column at
    least. With `num_targets`, columns may be after those of the row.

    Args:
      num_targets: `config.data.num_targets`.
      order: Returns the canonical column of each column on devices, int64[S].

    Returns:
      (first, last + 1) of ranges by bucket, of those of which it does not need
      all.
    """
    columns_by_bucket: dict[str, spans_lib.ColumnRanges] = {}
    for bucket, fields, _, _ in self._placed.values():
      # Fields of text may have values of more axes.
      of_columns = [
        field
        for field in fields.values()
        if bucket.shape in (field[0][1:], field[0][1:2])
      ]
      if not any(_cuts_columns(sharding) for _, sharding in of_columns):
        continue
      is_held = np.zeros(bucket.shape[0], np.bool_)
      for shape, sharding in of_columns:
        for index in sharding.addressable_devices_indices_map(shape).values():
          is_held[index[1] if index else slice(None)] = True
      held = order(len(is_held))[is_held]
      is_read = np.zeros(len(is_held) + num_targets, np.bool_)
      for ahead in range(max(num_targets, 1) + 1):
        is_read[np.minimum(held + ahead, len(is_read) - 1)] = True
      if len(held) and not is_read.all():
        edges = np.diff(is_read.astype(np.int8), prepend=0, append=0)
        columns_by_bucket[bucket.name] = (
          np.flatnonzero(edges > 0),
          np.flatnonzero(edges < 0),
        )
    return columns_by_bucket

  def num_shards(self) -> dict[str, int]:
    """Returns into how many shards the rows of each bucket's batches are cut.

    If fields are cut differently, it is the most that one is cut into. Rows
    beyond the run's are left out.

    Raises:
      ConfigError: If a shard holds rows of the run and others.
    """
    counts, problems = {}, []
    for bucket, fields, count, _ in self._placed.values():
      rows = min(
        (each.shard_shape(shape)[0] for shape, each in fields.values()),
        default=count,
      )
      counts[bucket.name] = bucket.batch_size // rows
      if bucket.batch_size % rows:
        problems.append(
          "`config.data.balance` must be None where a shard holds rows of the"
          f" run and padding, got {bucket.batch_size} rows of {bucket} on"
          f" devices that hold {rows} each. Use a multiple of {rows} rows, or"
          " unset it."
        )
    if problems:
      raise schema.ConfigError(problems)
    return counts

  def put(
    self, bucket: str, batch: Mapping[str, np.ndarray]
  ) -> dict[str, jax.Array]:
    """Puts a process-local batch on devices as global arrays.

    Args:
      bucket: The name of its bucket.
      batch: Fields [R, ...], without rows at the end that are padding. Not to
        be written to afterwards: JAX may alias.

    Returns:
      Fields [num_rows, ...] with their shardings. 64-bit integers become 32
      bits unless JAX has 64-bit types enabled.

    Raises:
      ValueError: If the batch has other rows than this process holds.
    """
    placed = self._placed[bucket]
    num_rows, held = placed.num_rows, placed.rows
    local = len(placed.run_rows)
    for name, value in batch.items():
      if (count := len(value)) != local:
        raise ValueError(
          f"transforms of batches must keep the number of rows, got {count} of"
          f" {local} rows of {name!r} in bucket {placed.bucket}. Change what"
          " rows hold only."
        )
    padding = self._padding.get(bucket, {})
    fields = {
      name: _of_rows(_device_dtype(value), len(held), padding.get(name))
      for name, value in batch.items()
    }
    shardings = {
      name: self.sharding_of(name, value.ndim) for name, value in fields.items()
    }
    if all(each.is_fully_addressable for each in shardings.values()):
      return jax.device_put(fields, shardings)

    def piece(value: np.ndarray, index: Any) -> np.ndarray:
      low, high, _ = index[0].indices(num_rows)
      # All rows of low .. high - 1 are local, so they are contiguous here.
      first = int(np.searchsorted(held, low))
      return value[(slice(first, first + high - low), *index[1:])]

    return {
      name: jax.make_array_from_callback(
        (num_rows, *value.shape[1:]),
        shardings[name],
        functools.partial(piece, value),
      )
      for name, value in fields.items()
    }

  def __repr__(self) -> str:
    return self._text


def _counted(placed: _Placed) -> np.ndarray:
  """Returns bool[R], the rows of the run that no lower process holds."""
  _, fields, count, _ = placed
  process = jax.process_index()
  lowest = np.full(count, process)
  parts = {
    (
      *(index[0] if index else slice(None)).indices(count)[:2],
      device.process_index,
    )
    for shape, sharding in fields.values()
    for device, index in sharding.devices_indices_map(shape).items()
  }
  for low, high, other in parts:
    np.minimum(lowest[low:high], other, out=lowest[low:high])
  return lowest[placed.run_rows] == process


def shardings_of(sharding: ShardingTree) -> list[jax.sharding.Sharding]:
  """Returns the shardings of all fields."""
  each = sharding.values() if isinstance(sharding, Mapping) else [sharding]
  return list(each)


def processes_of(sharding: ShardingTree) -> list[int]:
  """Returns the processes whose devices hold batches, ascending."""
  devices = [each.device_set for each in shardings_of(sharding)]
  return sorted({d.process_index for some in devices for d in some})


def _cuts_columns(sharding: jax.sharding.Sharding) -> bool:
  """Returns whether a process may hold a part of the second axis only."""
  return (
    isinstance(sharding, jax.sharding.NamedSharding)
    and not sharding.is_fully_addressable
    and len(sharding.spec) > 1
    and sharding.spec[1] is not None
  )


def _uneven(
  spec: BatchSpec,
  shapes: Mapping[str, tuple[int, ...]],
  sharding: ShardingTree,
  has_buckets: bool,
) -> list[str]:
  """Returns why fields of a bucket do not divide over their shardings.

  Args:
    spec: The batches of the bucket.
    shapes: Global shape of each field.
    sharding: As in `field_sharding`.
    has_buckets: Whether the run has several.

  Returns:
    One sentence for each cause; many fields may share it.
  """
  problems: dict[Any, str] = {}
  bucket = spec.bucket
  for name, shape in shapes.items():
    try:
      of_field = field_sharding(sharding, name, len(shape))
    except schema.ConfigError as error:
      problems.update(dict.fromkeys(error.problems, error.problems[0]))
      continue
    try:
      of_field.shard_shape(shape)
    except (ValueError, IndexError) as error:
      uneven_axes = _uneven_axes(of_field, shape)
      for axis, count in uneven_axes:
        if axis:
          problems.setdefault(
            (axis, count, shape[axis]),
            f"axis {axis} of `{name}` must divide over the sharding, got"
            f" {shape[axis]} of bucket {bucket.name} over {count} devices of"
            f" {_named(of_field)}. Use sizes that are multiples of {count}, or"
            " leave that axis whole.",
          )
        else:
          batch = f"bucket {bucket.name}" if has_buckets else shape
          problems.setdefault(
            axis,
            f"`{spec.rows_option}` must give batches that divide over the"
            f" sharding, got {shape[0]} rows of {batch} over {count} devices of"
            f" {_named(of_field)}. Use a multiple of {count}, or a smaller"
            " mesh.",
          )
      if not uneven_axes:
        reason = f" ({error})" * isinstance(error, ValueError)
        problems.setdefault(
          name,
          f"`sharding` must fit field {name!r} of {len(shape)} axes, got"
          f" {_named(of_field)}{reason}. Correct it.",
        )
  return list(problems.values())


def _uneven_axes(
  sharding: jax.sharding.Sharding, shape: Sequence[int]
) -> list[tuple[int, int]]:
  """Returns axes that do not divide, and the devices that each is cut for."""
  if not isinstance(sharding, jax.sharding.NamedSharding):
    return []
  sizes, uneven_axes = dict(sharding.mesh.shape), []
  for axis, (side, names) in enumerate(zip(shape, sharding.spec, strict=False)):
    names = (names,) if isinstance(names, str) else names
    if isinstance(names, tuple):
      count = math.prod(sizes[name] for name in names)
      if side % count:
        uneven_axes.append((axis, count))
  return uneven_axes


def _named(sharding: Any) -> str:
  if isinstance(sharding, jax.sharding.NamedSharding):
    return f"{sharding.spec} of mesh {dict(sharding.mesh.shape)}"
  return str(sharding)


def surviving(sharding: ShardingTree, alive: Collection[int]) -> ShardingTree:
  """Returns a sharding over the parts of its mesh that are alive.

      mesh (8, 4) of axes ('slice', 'data'), rows over both, alive 0, 2, 3
      -> mesh (3, 4)

  Args:
    sharding: As in `field_sharding`.
    alive: Which indices of the mesh axis that cuts rows first.

  Raises:
    ConfigError: If there are no such parts.
  """
  axes = {
    (name if isinstance(name, str) else name[0], each.mesh)
    for each in shardings_of(sharding)
    if isinstance(each, jax.sharding.NamedSharding)
    for name in each.spec[:1]
    if name
  }
  if len(axes) != 1:
    raise schema.ConfigError(
      [
        "`alive` must be a sharding where batches were not made with a"
        f" NamedSharding that cuts their rows over one mesh, got {alive!r}."
        " Pass the sharding of batches from now on."
      ]
    )
  ((name, mesh),) = axes
  count, parts = mesh.shape[name], sorted(set(alive))
  if not parts or not 0 <= parts[0] <= parts[-1] < count:
    raise schema.ConfigError(
      [
        f"`alive` must hold some of 0 .. {count - 1}, the parts of the mesh"
        f" axis {name!r} that cuts rows, got {list(alive)}. Pass those, or a"
        " sharding."
      ]
    )
  if len(parts) == count:
    return sharding
  devices = np.take(
    np.asarray(mesh.devices), parts, mesh.axis_names.index(name)
  )
  mesh_left = jax.sharding.Mesh(devices, mesh.axis_names, mesh.axis_types)

  def over_mesh_left(one: Any) -> Any:
    return jax.sharding.NamedSharding(
      mesh_left, one.spec, memory_kind=one.memory_kind
    )

  if isinstance(sharding, Mapping):
    return {key: over_mesh_left(one) for key, one in sharding.items()}  # pyright: ignore
  return over_mesh_left(sharding)


def even_rows(
  buckets: Sequence[buckets_lib.Bucket],
  sharding: ShardingTree,
  device_rows: DeviceRows = None,
) -> DeviceRows:
  """Returns rows on devices that divide over a sharding, padding included.

  Batches that differ only in their rows get the same number: a program that is
  compiled for one serves all.

  Args:
    buckets: The buckets.
    sharding: As in `field_sharding`.
    device_rows: The fewest rows.
  """
  parts = 1
  for each in shardings_of(sharding):
    if isinstance(each, jax.sharding.NamedSharding) and len(each.spec):
      names = each.spec[0]
      names = (names,) if isinstance(names, str) else names or ()
      parts = math.lcm(parts, math.prod(each.mesh.shape[n] for n in names))
  rows = {bucket.name: on_devices(device_rows, bucket) for bucket in buckets}
  if not any(count % parts for count in rows.values()):
    return device_rows
  most: dict[tuple[int, ...], int] = {}
  for bucket in buckets:
    even = -(-rows[bucket.name] // parts) * parts
    most[bucket.shape] = max(even, most.get(bucket.shape, 0))
  return {bucket.name: most[bucket.shape] for bucket in buckets}


def _of_rows(
  value: np.ndarray, count: int, padding: np.ndarray | None = None
) -> np.ndarray:
  """Returns an array with rows of padding, or 0, at its end."""
  if len(value) == count:
    return value
  out = np.zeros((count, *value.shape[1:]), value.dtype)
  out[: len(value)] = value
  if padding is not None:
    out[len(value) :] = padding
  return out


def _device_dtype(value: np.ndarray) -> np.ndarray:
  if value.dtype == np.int64 and not jax.config.jax_enable_x64:  # pyright: ignore
    return value.astype(np.int32)
  return value
