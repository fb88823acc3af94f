# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Sends the fields of text to devices in narrow types, and widens them there.

    int32 [B, S] -> uint16, modulo 2**16: of ids, segments and positions, and of
                    small negative numbers that mark what is no target
    bool [B, S]  -> uint8, 8 positions each
    others travel as they are

Which fields are narrowed follows from the run, not from values. What devices do
is elementwise: nothing goes from one device or process to another, so it can be
launched beside the programs of a trainer, which other processes launch in
another order.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import re
from typing import Any

from absl import logging
import grain
import jax
import jax.numpy as jnp
import numpy as np

from chomp_data.loading import operations as operations_lib
from chomp_data.loading import placement as placement_lib
from chomp_data.plans import plan as plan_lib

# The numbers that 16 bits hold; what is above _HIGHEST is negative.
_LOWEST, _HIGHEST = -(2**8), 2**16 - 2**8 - 1
# Fields of numbers of columns or segments, whatever the format calls them.
_PLACES = re.compile("segment|position")


def narrowed(
  placement: placement_lib.Placement,
  plan: plan_lib.Plan,
  asked: str,
  sharding: placement_lib.ShardingTree,
  config_operations: Sequence[grain.transforms.Map] = (),
  operations: Sequence[grain.transforms.Map] = (),
) -> "placement_lib.Placement | NarrowPlacement":
  """Returns a placement, in narrow types where that is asked.

  Args:
    placement: The placement of batches as they are.
    plan: The run.
    asked: Its `device_fields`.
    sharding: As in `placement.field_sharding`.
    config_operations: The transforms that the config asks for.
    operations: A user's transforms, whose values may be any.
  """
  if asked == "never" or (asked == "auto" and not on_accelerators(sharding)):
    return placement
  reasons = [
    f"{operations_lib.fingerprint_of(operation)}, which is not made for devices"
    for operation in config_operations
    if not getattr(operation, "on_devices", False)
  ]
  if operations:
    names = ", ".join(map(operations_lib.fingerprint_of, operations))
    reasons.append(f"transforms of batches on the host ({names})")
  if not plan.sources:
    reasons.append("buckets, which hold arrays")
  if reasons:
    warn_once(asked, reasons[-1])
    return placement
  if plan.columns is not None:
    _log_columns(plan.columns.names)
  return NarrowPlacement(placement, Narrow.of(plan))


@functools.cache
def _log_columns(names: Sequence[str]) -> None:
  """Logs once which fields travel as they are."""
  logging.info(
    "config.data.device_fields: columns of stores are sent in full: %s.",
    ", ".join(names),
  )


@functools.cache
def warn_once(asked: str, reason: str) -> None:
  """Warns once for each reason."""
  logging.warning(
    "config.data.device_fields=%r: batches are sent in full, because of %s.",
    asked,
    reason,
  )


def on_accelerators(sharding: placement_lib.ShardingTree) -> bool:
  return all(
    device.platform != "cpu"
    for each in placement_lib.shardings_of(sharding)
    for device in each.device_set
  )


@dataclasses.dataclass(frozen=True)
class Narrow:
  """How the fields of a run are narrowed.

  Attributes:
    tokens: Whether token ids fit in 16 bits.
    columns: Whether numbers of columns do.
    in_full: Fields that are columns of stores, of any values.
  """

  tokens: bool
  columns: bool
  in_full: frozenset[str] = frozenset()

  @classmethod
  def of(cls, plan: plan_lib.Plan) -> "Narrow":
    """Returns that of a run of text."""
    sources = plan.sources.values()
    ids = [i or 0 for s in sources for i in s.layout.special_ids]
    ids += [s.store.opened.tokenizer.vocab_size - 1 for s in sources]
    longest = max(bucket.shape[0] for bucket in plan.buckets)
    in_full = () if plan.columns is None else plan.columns.names
    return cls(
      _LOWEST <= min(ids) <= max(ids) <= _HIGHEST,
      longest <= _HIGHEST,
      frozenset(in_full),
    )

  def narrow(
    self, batch: Mapping[str, np.ndarray], widths: Mapping[str, int]
  ) -> dict[str, np.ndarray]:
    """Returns a batch as it travels.

    Args:
      batch: Fields [R, ...] as the host makes them.
      widths: Columns of a device's part, of fields [R, S].

    Raises:
      ValueError: If a field holds other numbers than the run's.
    """
    out = dict(batch)
    for name, value in batch.items():
      if value.ndim != 2 or name in self.in_full:
        continue
      if value.dtype == np.bool_ and widths[name] % 8 == 0:
        out[name] = np.packbits(value, axis=1, bitorder="little")
      elif value.dtype == np.int32 and self._fits(name):
        low, high = value.min(), value.max()
        if low < _LOWEST or high > _HIGHEST:
          raise ValueError(
            f"field {name!r} must hold {_LOWEST} .. {_HIGHEST} for"
            f" `device_fields`, got {low} .. {high}. Set"
            " config.data.device_fields to 'never'."
          )
        out[name] = value.astype(np.uint16)
    return out

  def _fits(self, name: str) -> bool:
    return self.columns if _PLACES.search(name) else self.tokens


def widen(batch: Mapping[str, Any], xp: Any) -> dict[str, Any]:
  """Returns the fields of narrow ones.

  Args:
    batch: Of `Narrow.narrow`, or those of its fields that are narrow.
    xp: NumPy or jax.numpy.
  """
  out = dict(batch)
  for name, value in batch.items():
    if value.dtype == np.uint16:
      number = value.astype(xp.int32)
      out[name] = xp.where(number > _HIGHEST, number - 2**16, number)
    elif value.dtype == np.uint8:
      places = xp.arange(8, dtype=xp.uint8).reshape(1, 1, 8)
      bits = value.reshape(*value.shape, 1) >> xp.broadcast_to(
        places, (*value.shape, 8)
      )
      out[name] = (bits & 1).astype(xp.bool_).reshape(len(value), -1)
  return out


class NarrowPlacement:
  """Puts batches of any bucket on devices in narrow types, and widens them."""

  def __init__(self, placement: placement_lib.Placement, narrow: Narrow):
    """Binds a placement; the first batch of each shape compiles."""

    def _widened(batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
      return widen(batch, jnp)

    self._placement = placement
    self._narrow = narrow
    self._programs: dict[tuple[str, ...], Any] = {}
    self._function = _widened
    # On devices of several processes each process widens its own parts.
    self._widen_part = jax.jit(_widened)

  def put(
    self, bucket: str, batch: Mapping[str, np.ndarray]
  ) -> dict[str, jax.Array]:
    """Puts a process-local batch on devices; see `Placement.put`."""
    fields = self._placement.put(bucket, self.narrowed(batch))
    narrow = {
      name: value
      for name, value in fields.items()
      if value.ndim == 2
      and value.dtype in (np.uint16, np.uint8)
      and name not in self._narrow.in_full
    }
    return fields | self._wide(narrow)

  def narrowed(self, batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns a process-local batch as it travels."""
    widths = {
      name: self._of(name).shard_shape((1 << 30, value.shape[1]))[1]
      for name, value in batch.items()
      if value.ndim == 2
    }
    return self._narrow.narrow(batch, widths)

  def _of(self, name: str) -> jax.sharding.Sharding:
    return self._placement.sharding_of(name, 2)

  def _wide(self, narrow: dict[str, jax.Array]) -> dict[str, jax.Array]:
    if all(value.is_fully_addressable for value in narrow.values()):
      names = tuple(sorted(narrow))
      if names not in self._programs:
        shardings = {name: self._of(name) for name in names}
        self._programs[names] = jax.jit(self._function, out_shardings=shardings)
      return self._programs[names](narrow)
    parts: dict[Any, dict[str, jax.Array]] = {}
    for name, value in narrow.items():
      for shard in value.addressable_shards:
        parts.setdefault(shard.device, {})[name] = shard.data
    wide = [self._widen_part(part) for part in parts.values()]
    return {
      name: jax.make_array_from_single_device_arrays(
        (len(value), value.shape[1] * (8 if value.dtype == np.uint8 else 1)),
        self._of(name),
        [part[name] for part in wide if name in part],
      )
      for name, value in narrow.items()
    }

  def __repr__(self) -> str:
    return f"{self._placement}, widened there"
