# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""MaxText's own main, in a process of a test: it prints the rows it is given.

    python maxtext_driver.py name=value ...

COORDINATOR, PROCESSES and PROCESS in the environment say which of several
processes this is; LOADED is a directory for the batches that MaxText's loader
passes to its training step.
"""

import hashlib
import itertools
import json
import os
import runpy

import jax
import numpy as np
import orbax.checkpoint as ocp

from chomp_data.integrations import maxtext


def held_rows(batch) -> dict[int, str]:
  """Returns a hash of all fields of each row that this process holds."""
  rows = {}
  for name in sorted(batch):
    parts = {}
    for shard in batch[name].addressable_shards:
      first, column = (index.start or 0 for index in shard.index)
      for i, part in enumerate(np.asarray(shard.data)):
        parts.setdefault(first + i, {})[column] = part.tobytes()
    for row, by_column in parts.items():
      rows.setdefault(row, []).extend(by_column[c] for c in sorted(by_column))
  return {
    row: hashlib.sha256(b"".join(values)).hexdigest()[:16]
    for row, values in rows.items()
  }


def printing(next_batch):
  """Returns `MaxTextIterator.__next__`, printing what it returns."""

  def batch_of(self):
    step = self.batches.step
    batch = next_batch(self)
    # One write: other threads log meanwhile.
    line = json.dumps({"step": step, "rows": held_rows(batch)})
    os.write(1, f"\nBATCH {line}\n".encode())
    return batch

  return batch_of


def saving(load_next_batch, directory):
  """Returns `DataLoader.load_next_batch`, saving what it returns."""
  counter = itertools.count()

  def batch_of(self, *args, **options):
    batch = load_next_batch(self, *args, **options)
    fields = {name: np.asarray(value) for name, value in batch.items()}
    np.savez(os.path.join(directory, f"{next(counter)}.npz"), **fields)
    return batch

  return batch_of


if __name__ == "__main__":
  if "COORDINATOR" in os.environ:
    jax.distributed.initialize(
      os.environ["COORDINATOR"],
      int(os.environ["PROCESSES"]),
      int(os.environ["PROCESS"]),
    )
    # As MaxText does on GPUs for emergency checkpoints.
    ocp.multihost.initialize_runtime_to_distributed_ids()
    ocp.multihost.initialize_distributed_to_device_ids()
  maxtext.MaxTextIterator.__next__ = printing(maxtext.MaxTextIterator.__next__)
  if "LOADED" in os.environ:
    from maxtext.common import data_loader

    data_loader.DataLoader.load_next_batch = saving(
      data_loader.DataLoader.load_next_batch, os.environ["LOADED"]
    )
  runpy.run_module("maxtext.trainers.pre_train.train", run_name="__main__")
