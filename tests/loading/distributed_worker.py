"""One JAX process of a distributed test: reads, and reports rows it holds.

Run by `sharding_test.py`, never imported by it. Arguments are one JSON object:
process_id, num_processes, port, data, layout, out, and optionally directory
with save_at or restore (an Orbax checkpoint of the input).
"""

import hashlib
import json
import pathlib
import sys

import jax
import numpy as np
import orbax.checkpoint as ocp

from chomp_data import pipeline
from chomp_data.loading import checkpoint


def make_sharding(layout: str, num_processes: int):
  """Returns a sharding of the rows over all devices, two a process."""
  devices = np.asarray(jax.devices())
  spec = jax.sharding.PartitionSpec("data")
  if layout == "contiguous":
    return jax.sharding.NamedSharding(
      jax.sharding.Mesh(devices, ("data",)), spec
    )
  if layout == "interleaved":
    # Device 0 of every process, then device 1: rows are not contiguous.
    mixed = devices.reshape(num_processes, 2).T.reshape(-1)
    return jax.sharding.NamedSharding(jax.sharding.Mesh(mixed, ("data",)), spec)
  if layout == "shared":
    # Every process holds every row: data over one process's devices only.
    grid = devices.reshape(num_processes, 2).T
    return jax.sharding.NamedSharding(
      jax.sharding.Mesh(grid, ("data", "model")), spec
    )
  if layout == "sequence":
    # Rows over processes, columns over a process's devices; by rank.
    mesh = jax.sharding.Mesh(devices.reshape(num_processes, 2), ("data", "seq"))
    return {
      2: jax.sharding.NamedSharding(
        mesh, jax.sharding.PartitionSpec("data", "seq")
      ),
      1: jax.sharding.NamedSharding(mesh, spec),
      "document_id": jax.sharding.NamedSharding(mesh, spec),
    }
  raise ValueError(layout)


def held_pieces(batch) -> list[list]:
  """Returns [field, row bounds, column bounds, hash] of every local shard."""
  out = []
  for name, value in batch.items():
    for shard in value.addressable_shards:
      bounds = [
        list(s.indices(n)[:2])
        for s, n in zip(shard.index, value.shape, strict=True)
      ]
      data = np.ascontiguousarray(shard.data)
      out.append([name, bounds, hashlib.sha256(data.tobytes()).hexdigest()])
  return out


def main() -> None:
  """Runs one process."""
  args = json.loads(sys.argv[1])
  jax.distributed.initialize(
    f"127.0.0.1:{args['port']}", args["num_processes"], args["process_id"]
  )
  steps = {}
  sharding = make_sharding(args["layout"], args["num_processes"])
  with pipeline.make_iterator(args["data"], sharding) as it:
    manager = None
    if "directory" in args:
      manager = ocp.CheckpointManager(args["directory"])
    if args.get("restore"):
      manager.restore(
        manager.latest_step(),
        args=ocp.args.Composite(input=checkpoint.InputRestore(it)),
      )
    while it.step != args.get("stop_at"):
      step = it.step
      try:
        batch = next(it)
      except StopIteration:
        break
      steps[step] = held_pieces(batch)
    if "stop_at" in args:
      manager.save(
        it.step, args=ocp.args.Composite(input=checkpoint.InputSave(it))
      )
      manager.wait_until_finished()
  pathlib.Path(args["out"]).write_text(json.dumps(steps))


if __name__ == "__main__":
  main()
