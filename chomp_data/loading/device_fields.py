# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Makes the fields of text on devices, from rows in the transfer format.

    host     uint16[R, words]: tokens, a few bits a position, numbers
    devices  one put, one program: the canonical fields, then the batch format

There is one program a batch shape. In it each device makes the fields of its
own rows and columns, and nothing goes from one to another: so it can be
launched beside the programs of a trainer, which other processes launch in
another order.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import functools
from typing import Any

from absl import logging
import grain
import jax
import jax.numpy as jnp
import numpy as np

from chomp_data.loading import operations as operations_lib
from chomp_data.loading import placement
from chomp_data.plans import plan as plan_lib
from chomp_data.rows import transfer_format
from chomp_data.transforms import applying

# The only field of a batch in the transfer format.
FIELD = "wire"

_AXIS = "device"


class _Unsuited(Exception):
  """Why fields are made on the host."""


def placer(
  plan: plan_lib.Plan,
  asked: str,
  sharding: placement.ShardingTree,
  held: Mapping[str, np.ndarray],
  config_operations: Sequence[grain.transforms.Map] = (),
  operations: Sequence[grain.transforms.Map] = (),
  device_rows: int | None = None,
) -> "Placer | None":
  """Returns what makes fields on devices, or None where the host makes them.

  Args:
    plan: The run.
    asked: Its `device_fields`.
    sharding: As in `placement.field_sharding`.
    held: `placement.Placement.rows`.
    config_operations: The transforms that the config asks for.
    operations: A user's transforms, which need batches on the host.
    device_rows: As in `placement.Placement`.
  """
  if asked == "never" or (asked == "auto" and not on_accelerators(sharding)):
    return None
  try:
    if operations:
      names = ", ".join(map(operations_lib.named, operations))
      raise _Unsuited(f"transforms of batches on the host ({names})")
    for operation in config_operations:
      if not getattr(operation, "on_devices", False):
        name = operations_lib.named(operation)
        raise _Unsuited(f"{name}, which is not made for devices")
    return Placer(plan, sharding, held, config_operations, device_rows)
  except _Unsuited as reason:
    warn_once(asked, str(reason))
    return None


@functools.cache
def warn_once(asked: str, reason: str) -> None:
  """Warns once for each reason."""
  logging.warning(
    "config.data.device_fields=%r: fields are made on the host, because of %s.",
    asked,
    reason,
  )


def on_accelerators(sharding: placement.ShardingTree) -> bool:
  shardings = sharding.values() if isinstance(sharding, Mapping) else [sharding]
  devices = {device for each in shardings for device in each.device_set}
  return all(device.platform != "cpu" for device in devices)


class Placer:
  """Puts rows of any bucket on devices, and makes global batches of them."""

  def __init__(
    self,
    plan: plan_lib.Plan,
    sharding: placement.ShardingTree,
    held: Mapping[str, np.ndarray],
    operations: Sequence[grain.transforms.Map],
    device_rows: int | None,
  ):
    """Prepares a program for each static shape; see `placer`."""
    self._text = f"{'; '.join(map(str, plan.buckets))}, made on devices"
    self._programs: dict[tuple[int, ...], _Program] = {}
    for number, bucket in enumerate(plan.buckets):
      if bucket.name not in held:
        continue
      transfer = plan.transfer(number)
      row_format = None if transfer is None else transfer.row_format
      if row_format is None:
        raise _Unsuited(f"bucket {bucket.name}, which holds arrays")
      rows = held[bucket.name]
      shape = (len(placement.of_run(rows, bucket)), row_format.words)
      self._programs[shape] = _Program(
        row_format,
        operations,
        sharding,
        rows,
        num_rows=device_rows or bucket.batch_size,
        padded=bool(device_rows and device_rows > bucket.batch_size),
      )

  def __call__(self, batch: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
    """Places a batch.

    Args:
      batch: `FIELD` alone, uint16[R, words]. Not to be written to afterwards:
        JAX may alias.

    Returns:
      Its fields [num_rows, ...] with their shardings, as `placement.Placer`
      returns those that the host made.
    """
    rows = batch[FIELD]
    return self._programs[rows.shape](rows)

  def put(self, batch: Mapping[str, np.ndarray]) -> jax.Array:
    """Puts a batch in the transfer format on devices; for benchmarks."""
    rows = batch[FIELD]
    return self._programs[rows.shape].put(rows)

  def __repr__(self) -> str:
    return self._text


@dataclasses.dataclass(frozen=True)
class _Part:
  """What a device of this process makes.

  Attributes:
    rows: (first, last + 1) of the global batch.
    columns: (first, last + 1) of each field of rank 2, by name.
  """

  rows: tuple[int, int]
  columns: Mapping[str, tuple[int, int]]


class _Program:
  """Makes the fields of batches of one shape."""

  def __init__(
    self,
    row_format: transfer_format.TransferFormat,
    operations: Sequence[grain.transforms.Map],
    sharding: placement.ShardingTree,
    held: np.ndarray,
    *,
    num_rows: int,
    padded: bool,
  ):
    """Binds a batch shape; the first batch compiles.

    Args:
      row_format: The transfer format of the rows.
      operations: The run's own transforms.
      sharding: As in `placement.field_sharding`.
      held: int64[R], ascending rows of the global batch in local batches.
      num_rows: Rows of the global batch.
      padded: Whether some of them are not of the run, and of 0.
    """
    self._format = row_format
    self._operations = operations
    self._padded = padded
    self._held = len(held)
    # One integer type for ids of documents, whatever a device's thread has.
    x64 = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    self._space = transfer_format.Namespace(
      jnp,
      lambda values: jax.lax.cummax(values, axis=values.ndim - 1),
      lambda values, start, width: jax.lax.dynamic_slice_in_dim(
        values, start, width, axis=1
      ),
      jnp.int64 if x64 else jnp.int32,
    )
    rows = jax.ShapeDtypeStruct((num_rows, row_format.words), np.uint16)
    with _settings():
      self._shapes = jax.eval_shape(self._whole, rows)
    self._shardings = {
      name: placement.field_sharding(sharding, name, field.ndim)
      for name, field in self._shapes.items()
    }
    parts = self._parts()
    self._devices = list(parts)
    self._find_windows(list(parts.values()))
    first = [np.searchsorted(held, part.rows[0]) for part in parts.values()]
    count = {part.rows[1] - part.rows[0] for part in parts.values()}.pop()
    self._pieces = [slice(int(low), int(low) + count) for low in first]
    # Whether the local batch is already what its devices take, in order.
    self._as_is = self._width == row_format.seq_len and np.array_equal(
      first, np.arange(len(parts)) * count
    )
    self._run = self._jitted(list(parts.values()))

  def _parts(self) -> dict[Any, _Part]:
    """Returns what each device of this process makes.

    Raises:
      _Unsuited: If its fields do not go together.
    """
    rows: dict[Any, set[tuple[int, int]]] = {}
    columns: dict[Any, dict[str, tuple[int, int]]] = {}
    for name, sharding in self._shardings.items():
      shape = self._shapes[name].shape
      places = sharding.addressable_devices_indices_map(shape)
      for device, index in places.items():
        if sharding.memory_kind not in (
          None,
          device.default_memory().kind,
        ):
          raise _Unsuited(f"the memory of `{name}`, {sharding.memory_kind}")
        ranges = [
          each.indices(size)[:2]
          for each, size in zip(index or (), shape, strict=False)
        ]
        rows.setdefault(device, set()).add(
          ranges[0] if ranges else (0, shape[0])
        )
        columns.setdefault(device, {})
        if len(shape) > 1:
          columns[device][name] = (
            ranges[1] if len(ranges) > 1 else (0, shape[1])
          )
    wanted = {name for name, field in self._shapes.items() if field.ndim > 1}
    for device, ranges in rows.items():
      if len(ranges) > 1 or set(columns[device]) != wanted:
        raise _Unsuited(f"{device}, which holds other rows of each field")
    if not rows:
      raise _Unsuited("a sharding without devices of this process")
    return {
      device: _Part(row_ranges.pop(), columns[device])
      for device, row_ranges in rows.items()
    }

  def _find_windows(self, parts: Sequence[_Part]) -> None:
    """Decides which columns of tokens go to each device, and what is cut."""
    seq_len = self._format.seq_len
    spans = []
    for part in parts:
      held = [columns for n, columns in part.columns.items() if _by_column(n)]
      spans.append((min(low for low, _ in held), max(high for _, high in held)))
    widest = max(high - low for low, high in spans)
    # A label needs the token after it, and weights may stand one later.
    self._width = seq_len if widest == seq_len else min(widest + 2, seq_len)
    last = seq_len - self._width
    self._starts = [min(max(low - 1, 0), last) for low, _ in spans]
    # Of each field that a device does not hold whole, how many columns.
    self._cut = {
      name: {high - low for low, high in (p.columns[name] for p in parts)}.pop()
      for name in parts[0].columns
      if any(
        part.columns[name]
        != ((0, self._width) if _by_column(name) else (0, self._columns(name)))
        for part in parts
      )
    }
    places = [
      [
        start,
        *(
          part.columns[name][0] - start * _by_column(name) for name in self._cut
        ),
      ]
      for start, part in zip(self._starts, parts, strict=True)
    ]
    self._places = np.asarray(places, np.int32)

  def _columns(self, name: str) -> int:
    return self._shapes[name].shape[1]

  def _whole(self, rows: Any, start: Any = 0) -> dict[str, Any]:
    """Returns the fields of rows, or of a window of their columns."""
    batch = transfer_format.decode(self._format, rows, self._space, start)
    batch = applying.applied(batch, self._operations)
    if not self._padded:
      return batch
    keep = transfer_format.of_run(self._format, rows, jnp)
    return {
      name: jnp.where(
        keep.reshape(-1, *[1] * (value.ndim - 1)), value, 0
      ).astype(value.dtype)
      for name, value in batch.items()
    }

  def _fields(self, rows: Any, places: Any = None) -> dict[str, Any]:
    """Returns what one device makes."""
    if places is None:
      return self._whole(rows)
    start, *firsts = places[0]
    batch = self._whole(
      rows, 0 if self._width == self._format.seq_len else start
    )
    for (name, count), first in zip(self._cut.items(), firsts, strict=True):
      batch[name] = self._space.columns(batch[name], first, count)
    return batch

  def _jitted(self, parts: Sequence[_Part]) -> Any:
    """Returns the program; decides whether its results are global arrays."""
    self._places_on = None
    everywhere = all(
      each.is_fully_addressable for each in self._shardings.values()
    )
    if len(parts) == 1:
      self._direct = everywhere
      self._in = jax.sharding.SingleDeviceSharding(self._devices[0])
      out = self._shardings if everywhere else self._in
      function = self._fields
    else:
      mesh = jax.sharding.Mesh(np.asarray(self._devices), (_AXIS,))
      spec = jax.sharding.PartitionSpec(_AXIS)
      self._in = jax.sharding.NamedSharding(mesh, spec)
      # Each device has rows of its own, in their order, and whole columns.
      size = parts[0].rows[1]
      in_order = not self._cut and [part.rows[0] for part in parts] == [
        i * size for i in range(len(parts))
      ]
      self._direct = everywhere and in_order
      out = self._shardings if self._direct else self._in
      function = jax.shard_map(
        self._fields, mesh=mesh, in_specs=spec, out_specs=spec
      )
    if self._cut:
      self._places_on = jax.device_put(self._places, self._in)
    return jax.jit(function, out_shardings=out)

  def __call__(self, rows: np.ndarray) -> dict[str, jax.Array]:
    """Returns the fields of a local batch as global arrays."""
    arrays: Any = self._stacked(rows)
    places = [] if self._places_on is None else [self._places_on]
    if len(self._devices) > 1:
      arrays = jax.device_put(arrays, self._in)
    # To one device the call itself puts it, in a third of the time.
    with _settings():
      made = self._run(arrays, *places)
    if self._direct:
      return made
    return {
      name: jax.make_array_from_single_device_arrays(
        self._shapes[name].shape,
        self._shardings[name],
        [shard.data for shard in value.addressable_shards],
      )
      for name, value in made.items()
    }

  def put(self, rows: np.ndarray) -> jax.Array:
    """Puts a local batch in the transfer format on devices."""
    return jax.device_put(self._stacked(rows), self._in)

  def _stacked(self, rows: np.ndarray) -> np.ndarray:
    """Returns what devices take, one after the other."""
    if len(rows) < self._held:
      more = np.zeros((self._held - len(rows), rows.shape[1]), rows.dtype)
      rows = np.concatenate([rows, more])
    if self._as_is:
      return rows
    pieces = [rows[piece] for piece in self._pieces]
    if self._width < self._format.seq_len:
      pieces = [
        transfer_format.window(self._format, piece, start, self._width)
        for piece, start in zip(pieces, self._starts, strict=True)
      ]
    return np.concatenate(pieces)


def _by_column(name: str) -> bool:
  """Returns whether the second axis of a field is that of tokens."""
  return name != "document_id"


@contextlib.contextmanager
def _settings():
  """Makes fields alike whatever JAX is told to refuse elsewhere."""
  with (
    jax.transfer_guard_host_to_device("allow"),
    jax.numpy_dtype_promotion("standard"),
    jax.numpy_rank_promotion("allow"),
  ):
    yield
