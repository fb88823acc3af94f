# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What a JAX process of a test does: reads, and reports the rows it holds."""

import hashlib
import itertools
import json
import math
import pathlib

import grain
import jax
import numpy as np
import orbax.checkpoint as ocp

import chomp_data
from chomp_data import iterators
from chomp_data.loading import batches
from chomp_data.loading import checkpoint
from chomp_data.loading import workers
from tests.catalogue import runs
from tests.golden import measuring

# Where they cannot help, too.
workers.may_help = lambda *_: True


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
  if layout in ("columns", "sequence"):
    # Columns over all devices, where all processes hold all rows; or rows over
    # processes, and columns over a process's devices. By rank.
    grid = (1, -1) if layout == "columns" else (num_processes, 2)
    mesh = jax.sharding.Mesh(devices.reshape(grid), ("data", "seq"))
    by_row = jax.sharding.NamedSharding(mesh, spec)
    by_column = jax.sharding.NamedSharding(
      mesh, jax.sharding.PartitionSpec("data", "seq")
    )
    return {
      **dict.fromkeys((2, 3), by_column),
      # One number a document or a pair, not a token.
      **dict.fromkeys((1, "document_id", "margin", "pair_mask"), by_row),
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


def read(
  data,
  layout: str,
  directory: str | None = None,
  restore: bool = False,
  stop_at: int | None = None,
  device_rows: int | None = None,
) -> dict[int, list]:
  """Returns what this process holds of each step that is left.

  Args:
    data: `config.data`.
    layout: One of `make_sharding`.
    directory: Where an Orbax checkpoint of the input is or will be.
    restore: Whether to begin at the newest one.
    stop_at: The step to stop at, and to save.
    device_rows: Rows of a batch on devices, where they are more than the run's.
  """
  steps = {}
  sharding = make_sharding(layout, jax.process_count())
  with iterators.padded_iterator(data, sharding, device_rows=device_rows) as it:
    manager = None
    if directory is not None:
      manager = ocp.CheckpointManager(directory)
    if restore:
      manager.restore(
        manager.latest_step(),
        args=ocp.args.Composite(input=checkpoint.InputRestore(it)),
      )
    while it.step != stop_at:
      step = it.step
      try:
        batch = next(it)
      except StopIteration:
        break
      steps[step] = held_pieces(batch)
    if stop_at is not None:
      manager.save(
        it.step, args=ocp.args.Composite(input=checkpoint.InputSave(it))
      )
      manager.wait_until_finished()
    if manager is not None:
      manager.close()
  return steps


def read_each(
  names: list[str], root: str, layout: str, count: int
) -> list[dict[int, list]]:
  """Returns what this process holds of the first steps of several runs.

  Args:
    names: Of the catalogue of runs.
    root: The directory of their corpora.
    layout: One of `make_sharding`.
    count: How many steps.
  """
  found = []
  for name in names:
    sharding = make_sharding(layout, jax.process_count())
    data = runs.data_of(name, pathlib.Path(root))
    with chomp_data.make_iterator(data, sharding) as it:
      batches = itertools.islice(it, count)
      found.append({i: held_pieces(batch) for i, batch in enumerate(batches)})
  return found


def digests(names: list[str], root: str) -> dict[str, list[str]]:
  """Returns hashes of single batches of several runs.

  Args:
    names: Of the catalogue of runs.
    root: The directory of their corpora.
  """
  hashes = {}
  for name in names:
    pipe = chomp_data.build(runs.data_of(name, pathlib.Path(root)))
    steps = runs.steps_of(pipe)
    hashes[name] = [measuring.digest(pipe.batch(step)) for step in steps]
  return hashes


class _AsItIs(grain.transforms.Map):
  """Stands for a transform that nothing is known of."""

  def map(self, element):
    return element


def reads(data) -> list[int]:
  """Returns the copies from stores of a run over columns of all processes.

  Without more transforms, and with one of the job.

  Args:
    data: `config.data`.
  """
  sharding = make_sharding("columns", jax.process_count())
  found = []
  for operations in ([], [_AsItIs()]):
    with iterators.make_iterator(data, sharding, operations=operations) as it:
      for _ in it:
        pass
      found.append(sum(own.logical_reads for own in it.reads.values()))
  return found


def refusal(data, mesh: dict[str, int], sharding: str) -> str | None:
  """Returns the error of a run over some of the devices.

  Args:
    data: `config.data`.
    mesh: Devices by axis.
    sharding: An expression of `own(*spec)`, a NamedSharding.
  """
  sizes = tuple(mesh.values())
  devices = np.asarray(jax.devices()[: math.prod(sizes)]).reshape(sizes)
  grid = jax.sharding.Mesh(devices, tuple(mesh))

  def own(*spec):
    return jax.sharding.NamedSharding(grid, jax.sharding.PartitionSpec(*spec))

  try:
    chomp_data.make_iterator(data, eval(sharding, {"own": own}))
  except ValueError as error:
    return f"{type(error).__name__}: {error}"
  return None


def resized(data, before: int, after: int) -> list[str | int]:
  """Resumes on two devices with another batch size than on one.

  Args:
    data: `config.data`, without a batch size.
    before: Rows of its first two steps, read on one device.
    after: Rows of the others.

  Returns:
    The rows of the next batch, and errors of what two devices cannot read.
  """
  with iterators.make_iterator({**data, "global_batch_size": before}) as it:
    for _ in range(2):
      next(it)
    state = it.get_state()
  sharding = make_sharding("contiguous", 1)
  found, errors = [], []
  data = {**data, "global_batch_size": after}
  with iterators.make_iterator(data, sharding) as it:
    it.set_state(state, ("global_batch_size",))
    found.append(next(it)["tokens"].shape[0])
    it.seek(0)
    try:
      next(it)
    except ValueError as error:
      errors.append(str(error))
  data |= {
    "global_batch_size": None,
    "batch_size_schedule": ((0, before), (2, after)),
  }
  try:
    iterators.make_iterator(data, sharding)
  except ValueError as error:
    errors.append(str(error))
  return [*found, *errors]


def resized_survivors(data, layout: str, alive, state: str, count: int) -> dict:
  """Returns what this process holds after a restore where parts are gone.

  Args:
    data: `config.data`, whose batches have another size than the state's.
    layout: One of `make_sharding`.
    alive: The parts that are alive.
    state: What is restored.
    count: How many steps are read.
  """
  sharding = make_sharding(layout, jax.process_count())
  with iterators.make_iterator(data, sharding) as it:
    it.reassign(alive)
    it.set_state(state.encode(), allow_changes=["global_batch_size"])
    found = {"steps": {}, "kept": True}
    for batch in itertools.islice(it, count):
      found["steps"][it.step - 1] = held_pieces(batch)
  return found


def survive(data, layout: str, turns) -> list[dict]:
  """Returns what this process holds while parts of the mesh come and go.

  Args:
    data: `config.data`.
    layout: One of `make_sharding`.
    turns: For each the parts that are alive, how many steps are read, and
      where it seeks to first, if it does.

  Returns:
    Of each turn the pieces by step, the rows that are read here, and whether
    stores are those of the begin.
  """
  out = []
  sharding = make_sharding(layout, jax.process_count())
  sources = []

  begin = batches.BatchSource.__init__

  def remembered(self, *arguments, **named):
    begin(self, *arguments, **named)
    sources.append(self)

  batches.BatchSource.__init__ = remembered
  with iterators.make_iterator(data, sharding) as it:
    opened = sources[-1].sources
    step = 0
    for alive, count, *at in turns:
      step = at[0] if at else step
      own = [
        part
        for part in alive
        if jax.devices()[part].process_index == jax.process_index()
      ]
      found = {"steps": {}, "rows": 0, "kept": True}
      if own:
        it.reassign(alive)
        if it.step != step:
          it.seek(step)  # This one was gone meanwhile.
        for _ in range(count):
          batch = next(it)
          found["steps"][it.step - 1] = held_pieces(batch)
        rows = sources[-1].local.rows
        found["rows"] = {name: len(numbers) for name, numbers in rows.items()}
        found["kept"] = sources[-1].sources is opened
        found["certificate"] = json.loads(it.get_state())["certificate"]
      step += count
      out.append(found)
  batches.BatchSource.__init__ = begin
  return out
