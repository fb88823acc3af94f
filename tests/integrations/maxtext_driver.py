# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""MaxText's own main, in a process of a test: it prints the rows it is given.

    python maxtext_driver.py name=value ...

COORDINATOR, PROCESSES and PROCESS in the environment say which of several
processes this is.
"""

import hashlib
import json
import os
import runpy

import jax
import numpy as np

from chomp_data.integrations import maxtext


def held_rows(batch) -> dict[int, str]:
  """Returns a hash of all fields of each row that this process holds."""
  found = {}
  for name in sorted(batch):
    for shard in batch[name].addressable_shards:
      first = shard.index[0].start or 0
      for i, row in enumerate(np.asarray(shard.data)):
        found.setdefault(first + i, {})[name] = row.tobytes()
  return {
    row: hashlib.sha256(b"".join(own.values())).hexdigest()[:16]
    for row, own in found.items()
  }


def printing(given):
  """Returns `MaxTextIterator.__next__`, telling what it gives."""

  def batch_of(self):
    step = self.batches.step
    batch = given(self)
    # One write: other threads log meanwhile.
    line = json.dumps({"step": step, "rows": held_rows(batch)})
    os.write(1, f"\nBATCH {line}\n".encode())
    return batch

  return batch_of


if __name__ == "__main__":
  if "COORDINATOR" in os.environ:
    jax.distributed.initialize(
      os.environ["COORDINATOR"],
      int(os.environ["PROCESSES"]),
      int(os.environ["PROCESS"]),
    )
  maxtext.MaxTextIterator.__next__ = printing(maxtext.MaxTextIterator.__next__)
  runpy.run_module("maxtext.trainers.pre_train.train", run_name="__main__")
