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
import math
from typing import Any
from typing import Protocol

from absl import logging
import grain
import jax
import numpy as np

from chomp_data import schema
from chomp_data.plans import answers
from chomp_data.plans import plan as plan_lib
from chomp_data.rows import buckets as buckets_lib
from chomp_data.transforms import applying

# A sharding for every field; or one by rank, or one by field name.
ShardingTree = (
  jax.sharding.Sharding
  | Mapping[int, jax.sharding.Sharding]
  | Mapping[str, jax.sharding.Sharding]
)

# Rows of a batch on devices, of each bucket by its name or of all.
DeviceRows = int | Mapping[str, int] | None

# Of a batch, the name and shape of each field, rows left out.
Shapes = tuple[tuple[str, tuple[int, ...]], ...]


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


class Run(Protocol):
  """What placing batches on devices needs of a `Pipeline`."""

  run_options: Any
  buckets: tuple[buckets_lib.Bucket, ...]
  run_plan: plan_lib.Plan
  operations: list[grain.transforms.Map]


def examples(pipe: Run, bucket: int) -> dict[str, dict[str, np.ndarray]]:
  """Returns one sample of each source that may have its own fields.

  Args:
    pipe: The run.
    bucket: The number of a bucket.

  Returns:
    Fields [1, ...] by source, in the batch format; none if a bucket is empty.
  """
  return {
    name: applying.applied(pipe.run_plan.read(planned), pipe.operations)
    for name, planned in answers.of(pipe.run_plan).examples(bucket)
  }


def process_batches(
  pipe: Run,
  sharding: ShardingTree,
  transforms: Sequence[grain.transforms.Map] = (),
  device_rows: DeviceRows = None,
  needed: Collection[str] | None = None,
) -> dict[str, np.ndarray]:
  """Returns the rows of each bucket's batches that this process holds.

  Args:
    pipe: The run.
    sharding: As in `field_sharding`.
    transforms: More transforms over batches, after the pipeline's.
    device_rows: Rows of a batch on devices, at least the run's, of each bucket
      by its name or of all; None is those.
    needed: Buckets that must divide; others that do not are left out. None is
      all.

  Returns:
    By bucket, int64[R], ascending.

  Raises:
    ConfigError: If fields do not divide over the sharding, or it lacks one, or
      datasets give different fields; every such bucket is named.
    StoreError: If the first sample of a bucket does not fit its size.
  """
  rows, problems, shown = {}, [], []
  for number, bucket in enumerate(pipe.buckets):
    example = _example(pipe, number, transforms, problems)
    count = on_devices(device_rows, bucket)
    shapes = {
      name: (count, *np.shape(value)[1:]) for name, value in example.items()
    }
    found = _uneven(pipe, bucket, shapes, sharding)
    if found:
      if needed is None or bucket.name in needed:
        problems += found
      continue
    rows[bucket.name] = _held_rows(shapes, sharding)
    here = len(rows[bucket.name])
    shown.append(f"{bucket} ({here} rows here)")
  if problems:
    # What is wrong in every bucket alike is told once.
    raise schema.ConfigError(list(dict.fromkeys(problems)))
  if len(rows) > 1:
    logging.info("static shapes that will come: %s", "; ".join(shown))
  return rows


def process_columns(
  pipe: Run,
  sharding: ShardingTree,
  device_rows: DeviceRows = None,
  needed: Collection[str] | None = None,
) -> dict[str, tuple[int, int]]:
  """Returns the columns of text whose tokens this process needs.

  They are those that its devices hold, and the next one: it is the target of
  the last.

  Args:
    pipe: As in `process_batches`, over whose sharding its batches divide.
    sharding: As in `field_sharding`.
    device_rows: As in `process_batches`.
    needed: The buckets that are meant; None is all.

  Returns:
    (first, last + 1) by bucket, of those that it does not need all of.
  """
  found: dict[str, tuple[int, int]] = {}
  every = sharding.values() if isinstance(sharding, Mapping) else [sharding]
  if not any(_cuts_columns(own) for own in every):
    return found
  for number, bucket in enumerate(pipe.buckets):
    if needed is not None and bucket.name not in needed:
      continue
    held = np.zeros(bucket.shape[0], np.bool_)
    for name, value in _example(pipe, number, (), []).items():
      shape = (on_devices(device_rows, bucket), *np.shape(value)[1:])
      if shape[1:] == bucket.shape:
        own = field_sharding(sharding, name, len(shape))
        for index in own.addressable_devices_indices_map(shape).values():
          held[index[1] if index else slice(None)] = True
    columns = np.flatnonzero(held)
    if len(columns):
      first, last = int(columns[0]), min(int(columns[-1]) + 2, len(held))
      if (first, last) != (0, len(held)):
        found[bucket.name] = first, last
  return found


def processes_of(sharding: ShardingTree) -> list[int]:
  """Returns the processes whose devices hold batches, ascending."""
  own = sharding.values() if isinstance(sharding, Mapping) else [sharding]
  return sorted({d.process_index for each in own for d in each.device_set})


def counted_rows(
  pipe: Run,
  sharding: ShardingTree,
  rows: Mapping[str, np.ndarray],
  transforms: Sequence[grain.transforms.Map] = (),
  device_rows: DeviceRows = None,
) -> dict[str, np.ndarray]:
  """Returns which of a process's rows no process before it holds.

  Args:
    pipe: As in `process_batches`, over whose sharding its batches divide.
    sharding: As in `field_sharding`.
    rows: By bucket, int64[R], rows of the run that this process holds.
    transforms: As in `process_batches`.
    device_rows: As in `process_batches`.

  Returns:
    By bucket, bool[R]: over all processes each row is one's.
  """
  own, counted = jax.process_index(), {}
  for number, bucket in enumerate(pipe.buckets):
    if bucket.name not in rows:
      continue
    count = on_devices(device_rows, bucket)
    first = np.full(count, own)
    seen: set[tuple[int, int, int]] = set()
    for name, value in _example(pipe, number, transforms, []).items():
      shape = (count, *np.shape(value)[1:])
      of_field = field_sharding(sharding, name, len(shape))
      for device, index in of_field.devices_indices_map(shape).items():
        low, high, _ = (index[0] if index else slice(None)).indices(count)
        key = low, high, device.process_index
        if key not in seen:
          seen.add(key)
          part = first[low:high]
          np.minimum(part, device.process_index, out=part)
    counted[bucket.name] = first[rows[bucket.name]] == own
  return counted


def _cuts_columns(sharding: jax.sharding.Sharding) -> bool:
  """Returns whether a process may hold a part of the second axis only."""
  return (
    isinstance(sharding, jax.sharding.NamedSharding)
    and not sharding.is_fully_addressable
    and len(sharding.spec) > 1
    and sharding.spec[1] is not None
  )


def num_shards(
  pipe: Run,
  sharding: ShardingTree,
  transforms: Sequence[grain.transforms.Map] = (),
  device_rows: DeviceRows = None,
  needed: Collection[str] | None = None,
) -> dict[str, int]:
  """Returns into how many shards the rows of each bucket's batches are cut.

  Where fields are cut differently, it is the most that one is cut into. Rows
  beyond the run's are left out.

  Args:
    pipe: As in `process_batches`, over whose sharding its batches divide.
    sharding: As in `field_sharding`.
    transforms: As in `process_batches`.
    device_rows: As in `process_batches`.
    needed: The buckets that are meant; None is all.

  Raises:
    ConfigError: If a shard holds rows of the run and others.
  """
  found, problems = {}, []
  for number, bucket in enumerate(pipe.buckets):
    if needed is not None and bucket.name not in needed:
      continue
    count = on_devices(device_rows, bucket)
    rows = count
    for name, value in _example(pipe, number, transforms, []).items():
      shape = (count, *np.shape(value)[1:])
      own = field_sharding(sharding, name, len(shape))
      rows = min(rows, own.shard_shape(shape)[0])
    found[bucket.name] = bucket.batch_size // rows
    if bucket.batch_size % rows:
      problems.append(
        "`config.data.balance` must be None where a shard holds rows of the run"
        f" and filler, got {bucket.batch_size} rows of {bucket} on devices that"
        f" hold {rows} each. Use a multiple of {rows} rows, or unset it."
      )
  if problems:
    raise schema.ConfigError(problems)
  return found


def _uneven(
  pipe: Run,
  bucket: buckets_lib.Bucket,
  shapes: Mapping[str, tuple[int, ...]],
  sharding: ShardingTree,
) -> list[str]:
  """Returns why fields of a bucket do not divide over their shardings.

  Args:
    pipe: The run.
    bucket: The bucket.
    shapes: Global shape of each field.
    sharding: As in `field_sharding`.

  Returns:
    One sentence for each cause; many fields may share it.
  """
  problems: dict[Any, str] = {}
  of = f"bucket {bucket.name}" if len(pipe.buckets) > 1 else None
  for name, shape in shapes.items():
    try:
      own = field_sharding(sharding, name, len(shape))
    except schema.ConfigError as error:
      problems.update(dict.fromkeys(error.problems, error.problems[0]))
      continue
    try:
      own.shard_shape(shape)
    except (ValueError, IndexError) as error:
      wrong = _uneven_axes(own, shape)
      for axis, count in wrong:
        if axis:
          problems.setdefault(
            (axis, count, shape[axis]),
            f"axis {axis} of `{name}` must divide over the sharding, got"
            f" {shape[axis]} of bucket {bucket.name} over {count} devices of"
            f" {_named(own)}. Use sizes that are multiples of {count}, or leave"
            " that axis whole.",
          )
        else:
          problems.setdefault(
            axis,
            f"`{_rows_field(pipe, bucket)}` must give batches that divide over"
            f" the sharding, got {shape[0]} rows of {of or shape} over"
            f" {count} devices of {_named(own)}. Use a multiple of {count}, or"
            " a smaller mesh.",
          )
      if not wrong:
        reason = f" ({error})" * isinstance(error, ValueError)
        problems.setdefault(
          name,
          f"`sharding` must fit field {name!r} of {len(shape)} axes, got"
          f" {_named(own)}{reason}. Correct it.",
        )
  return list(problems.values())


def _uneven_axes(
  sharding: jax.sharding.Sharding, shape: Sequence[int]
) -> list[tuple[int, int]]:
  """Returns axes that do not divide, and the devices that each is cut for."""
  if not isinstance(sharding, jax.sharding.NamedSharding):
    return []
  sizes, found = dict(sharding.mesh.shape), []
  for axis, (side, names) in enumerate(zip(shape, sharding.spec, strict=False)):
    names = (names,) if isinstance(names, str) else names
    if isinstance(names, tuple):
      count = math.prod(sizes[name] for name in names)
      if side % count:
        found.append((axis, count))
  return found


def _rows_field(pipe: Run, bucket: buckets_lib.Bucket) -> str:
  """Returns the field of the config that says how many rows a bucket has."""
  if getattr(pipe.run_options.data, "batch_size_schedule", None) is not None:
    return "config.data.batch_size_schedule"
  if bucket.batch_size == getattr(
    pipe.run_options.data, "global_batch_size", None
  ):
    return "config.data.global_batch_size"
  if len(bucket.shape) == 1:
    return "config.data.buckets.tokens_per_batch"
  return "config.data.buckets.batch_sizes"


def _example(
  pipe: Run,
  bucket: int,
  transforms: Sequence[grain.transforms.Map],
  problems: list[str],
) -> dict[str, Any]:
  """Returns a batch of one row of a bucket; all sources have its fields."""
  found: dict[str, tuple[tuple[int, ...], np.dtype]] = {}
  first, shown = "", {}
  for name, example in examples(pipe, bucket).items():
    example = applying.applied(example, transforms)
    own = {
      field: (np.shape(value)[1:], np.asarray(value).dtype)
      for field, value in example.items()
    }
    if not found:
      found, first, shown = own, name, example
    elif own != found:
      differ = sorted(
        field for field in own | found if own.get(field) != found.get(field)
      )[0]
      problems.append(
        f"bucket {pipe.buckets[bucket].name} must have the same fields in every"
        f" dataset, got `{differ}` {_told(found.get(differ))} in {first!r} and"
        f" {_told(own.get(differ))} in {name!r}. Prepare them alike, or give"
        " `config.data.buckets.fields` a shape and a dtype."
      )
  return shown


def _told(field: tuple[tuple[int, ...], np.dtype] | None) -> str:
  return "absent" if field is None else f"{field[1]}{list(field[0])}"


def _named(sharding: Any) -> str:
  if isinstance(sharding, jax.sharding.NamedSharding):
    return f"{sharding.spec} of mesh {dict(sharding.mesh.shape)}"
  return str(sharding)


def _held_rows(
  shapes: Mapping[str, tuple[int, ...]], sharding: ShardingTree
) -> np.ndarray:
  """Returns int64[R], the ascending rows that this process's devices hold.

  Args:
    shapes: Global shape of each field; the first axis is the batch.
    sharding: As in `field_sharding`, over which the shapes divide.
  """
  held = None
  for name, shape in shapes.items():
    own = field_sharding(sharding, name, len(shape))
    if held is None:
      held = np.zeros(shape[0], np.bool_)
    for index in own.addressable_devices_indices_map(shape).values():
      held[index[0] if index else slice(None)] = True
  return np.flatnonzero(held) if held is not None else np.empty(0, np.int64)


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
  every = sharding.values() if isinstance(sharding, Mapping) else [sharding]
  axes = {
    (name if isinstance(name, str) else name[0], own.mesh)
    for own in every
    if isinstance(own, jax.sharding.NamedSharding)
    for name in own.spec[:1]
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
  left = jax.sharding.Mesh(devices, mesh.axis_names, mesh.axis_types)

  def over(own: Any) -> Any:
    return jax.sharding.NamedSharding(
      left, own.spec, memory_kind=own.memory_kind
    )

  if isinstance(sharding, Mapping):
    return {key: over(own) for key, own in sharding.items()}  # pyright: ignore
  return over(sharding)


def even_rows(
  buckets: Sequence[buckets_lib.Bucket],
  sharding: ShardingTree,
  device_rows: DeviceRows = None,
) -> DeviceRows:
  """Returns rows on devices that divide over a sharding, padding included.

  Batches of one shape but for their rows get as many: how many a process has
  of the run may not tell them apart.

  Args:
    buckets: The buckets.
    sharding: As in `field_sharding`.
    device_rows: The least.
  """
  every = sharding.values() if isinstance(sharding, Mapping) else [sharding]
  parts = 1
  for own in every:
    if isinstance(own, jax.sharding.NamedSharding) and len(own.spec):
      names = own.spec[0]
      names = (names,) if isinstance(names, str) else names or ()
      parts = math.lcm(parts, math.prod(own.mesh.shape[n] for n in names))
  rows = {own.name: on_devices(device_rows, own) for own in buckets}
  if not any(count % parts for count in rows.values()):
    return device_rows
  most: dict[tuple[int, ...], int] = {}
  for own in buckets:
    even = -(-rows[own.name] // parts) * parts
    most[own.shape] = max(even, most.get(own.shape, 0))
  return {own.name: most[own.shape] for own in buckets}


class _BucketPlacer:
  """Puts process-local batches of one bucket on devices as global arrays."""

  def __init__(
    self,
    sharding: ShardingTree,
    rows: np.ndarray,
    num_rows: int,
    padding: Mapping[str, np.ndarray] | None = None,
  ):
    """Remembers where rows are.

    Args:
      sharding: As in `field_sharding`.
      rows: int64[R], ascending rows of the global batch in local batches.
      num_rows: Rows of the global batch.
      padding: Fields [1, ...] of rows beyond the run's; None is 0.
    """
    self._padding = padding or {}
    self._sharding = sharding
    self._rows = rows
    self._num_rows = num_rows
    self._shardings: dict[tuple[str, int], jax.sharding.Sharding] = {}

  def __call__(self, batch: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
    """Places a batch.

    Args:
      batch: Fields [R, ...], without rows at the end that are padding. Not to
        be written to afterwards: JAX may alias.

    Returns:
      Fields [num_rows, ...] with their shardings. 64-bit integers become 32
      bits unless JAX has 64-bit types enabled.
    """
    fields = {
      name: _of_rows(
        _device_dtype(value), len(self._rows), self._padding.get(name)
      )
      for name, value in batch.items()
    }
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


class Placer:
  """Puts process-local batches of any bucket on devices as global arrays."""

  def __init__(
    self,
    sharding: ShardingTree,
    rows: Mapping[str, np.ndarray],
    buckets: Sequence[buckets_lib.Bucket],
    device_rows: DeviceRows = None,
    padding: Mapping[str, Mapping[str, np.ndarray]] | None = None,
  ):
    """Remembers where rows are, by their number.

    Args:
      sharding: As in `field_sharding`.
      rows: By bucket, int64[R], rows of its global batch in local batches.
      buckets: The buckets.
      device_rows: As in `process_batches`; rows beyond the run's are 0.
      padding: What they are instead, fields [1, ...] by bucket; then buckets of
        as many rows here are told by their fields' shapes.

    Raises:
      ConfigError: If as many rows here are of different global batches.
    """
    self._placers: dict[tuple[int, Shapes | None], _BucketPlacer] = {}
    self._by_shape: bool = padding is not None
    own = sharding.values() if isinstance(sharding, Mapping) else [sharding]
    kinds = sorted({type(each).__name__ for each in own})
    shapes = "; ".join(map(str, buckets))
    self._text = f"{shapes}, on devices by {' and '.join(kinds)}"
    known: dict[tuple[int, Shapes | None], buckets_lib.Bucket] = {}
    for bucket in buckets:
      if bucket.name not in rows:
        continue
      own = rows[bucket.name]
      count = len(of_run(own, bucket))
      example = (padding or {}).get(bucket.name)
      key = count, None if example is None else _shapes(example)
      other = known.setdefault(key, bucket)
      # With as many rows on devices, how many are of the run does not matter.
      num_rows = on_devices(device_rows, bucket)
      alike = num_rows == on_devices(device_rows, other)
      if not alike or not np.array_equal(rows[other.name], own):
        raise schema.ConfigError(
          [
            "`sharding` must give a process more rows of larger batches, got"
            f" {count} rows of both {other} and {bucket}. Shard the batch"
            " axis evenly."
          ]
        )
      self._placers[key] = _BucketPlacer(sharding, own, num_rows, example)

  def __call__(self, batch: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
    """Places a batch.

    Args:
      batch: Fields [R, ...] of a bucket. Not to be written to afterwards: JAX
        may alias.

    Returns:
      Fields [num_rows, ...] with their shardings. 64-bit integers become 32
      bits unless JAX has 64-bit types enabled.
    """
    count = len(next(iter(batch.values())))
    shapes = _shapes(batch) if self._by_shape else None
    return self._placers[count, shapes](batch)

  def __repr__(self) -> str:
    return self._text


def of_run(rows: np.ndarray, bucket: buckets_lib.Bucket) -> np.ndarray:
  """Returns rows without those that are on devices only."""
  return rows[rows < bucket.batch_size]


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


def _shapes(batch: Mapping[str, np.ndarray]) -> Shapes:
  """Returns the shapes of a row's fields."""
  return tuple(sorted((name, own.shape[1:]) for name, own in batch.items()))


def _device_dtype(value: np.ndarray) -> np.ndarray:
  if value.dtype == np.int64 and not jax.config.jax_enable_x64:  # pyright: ignore
    return value.astype(np.int32)
  return value
