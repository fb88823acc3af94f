# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What a JAX process of a test does: reads a run both ways, and compares."""

import contextlib
from typing import Any

import jax
import numpy as np

import chomp_data
from tests.loading import compilations


def shardings(layout: str) -> Any:
  """Returns shardings of four devices by rank, or one for all."""
  devices = np.asarray(jax.devices())

  def named(mesh, *spec):
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))

  if layout == "one":
    return jax.sharding.SingleDeviceSharding(devices[1])
  if layout == "data":
    return named(jax.sharding.Mesh(devices, ("data",)), "data")
  if layout == "mixed":
    mixed = devices[np.asarray([2, 0, 3, 1])]
    return named(jax.sharding.Mesh(mixed, ("data",)), "data")
  if layout == "shared":
    grid = jax.sharding.Mesh(devices.reshape(2, 2), ("data", "model"))
    return named(grid, "data")
  if layout == "sequence":
    grid = jax.sharding.Mesh(devices.reshape(2, 2), ("data", "seq"))
    rows, columns = "data", "seq"
  else:
    grid = jax.sharding.Mesh(devices, ("seq",))
    rows, columns = None, "seq"
  by_row = named(grid, rows)
  return {2: named(grid, rows, columns), 1: by_row, "document_id": by_row}


def compared(data, layouts: list[str], steps: int) -> dict[str, Any]:
  """Returns what differs, and how often programs were compiled, by layout.

  Args:
    data: `config.data`.
    layouts: Some of `shardings`.
    steps: How many are read.
  """
  out = {}
  for layout in layouts:
    wrong = []
    stack = contextlib.ExitStack()
    compiled = stack.enter_context(compilations.of("_widened"))
    host, made = (
      chomp_data.make_iterator({**data, "device_fields": own}, sharding)
      for own in ("never", "always")
      for sharding in [shardings(layout)]
    )
    for step, batch in zip(range(steps), host, strict=False):
      other = next(made)
      if set(batch) != set(other):
        wrong.append([step, sorted(set(batch) ^ set(other))])
        continue
      for name, value in batch.items():
        found = other[name]
        pieces = [
          {s.device: np.asarray(s.data).tobytes() for s in v.addressable_shards}
          for v in (value, found)
        ]
        if (
          pieces[0] != pieces[1]
          or value.dtype != found.dtype
          or value.shape != found.shape
          or value.sharding != found.sharding
          or value.committed != found.committed
        ):
          wrong.append([step, name])
    stack.close()
    out[layout] = {"wrong": wrong, "compiled": len(compiled)}
    host.close()
    made.close()
  return out
