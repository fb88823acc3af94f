# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What the runs of the catalogue cost, as counts that any machine gives alike.

    python -m tests.catalogue.costs [NAME ...]

writes `costs.json` anew, of these runs or of all, with the versions of
constraints.txt. A count that grew is a regression unless CHANGELOG.md says what
it buys. Compiled loops are off: when they are loaded, time decides.
"""

import gc
import json
import os
import pathlib
import pickle
import sys
import tempfile
import threading
import tracemalloc
from typing import Any

import pytest

import chomp_data
from chomp_data import pipeline
from chomp_data.kernels import compiled
from chomp_data.loading import state
from chomp_data.mix import interleave
from tests.catalogue import runs
from tests.golden import corpora

PATH = pathlib.Path(__file__).parent / "costs.json"
_STEPS, _WARM, _FAR = 40, 16, 3_000
_BLOCK = 4_096
# (share, number) that a count may be above what it was. Of others, none.
_ALLOWED = {
  "bytes of a state": (0.03, 32),
  "bytes of a pickled reader": (0.03, 64),
  "bytes held": (0.15, 32_768),
  # It depends on the tests before.
  "most bytes held": (0.05, 262_144),
}


def counted(name: str, root: pathlib.Path) -> dict[str, int]:
  """Returns the counts of a run whose side indexes are there."""
  data = runs.data_of(name, root)
  with compiled.allowed(False), pytest.MonkeyPatch.context() as patch:
    # As users have it; tests/conftest.py has another.
    patch.setattr(interleave, "BLOCK", _BLOCK)
    pipe = chomp_data.build(data)
    pipeline.batch_source(pipe)[0]
    pipe.accounts.record(_far(pipe))
    _wait_for_packing()
    gc.collect()
    return {**_costs(data, str(root)), **_memory(data)}


def grown(found: dict[str, int], before: dict[str, int]) -> list[str]:
  """Returns which counts are above what they were."""
  assert found.keys() == before.keys()
  lines = []
  for name, was in before.items():
    share, number = _ALLOWED.get(name, (0, 0))
    if found[name] > was + max(int(was * share), number):
      lines.append(f"{name}: {found[name]:,} (was {was:,})")
  return lines


def _far(pipe: chomp_data.Pipeline) -> int:
  return _FAR if pipe.num_steps is None else min(_FAR, pipe.num_steps)


def _costs(data: dict[str, Any], root: str) -> dict[str, int]:
  descriptors, maps = _descriptors(), _maps()
  pipe = chomp_data.build(data)
  source = pipeline.batch_source(pipe)
  for step in range(runs.last_of(pipe, _STEPS)):
    source[step]
  found = {}
  for name, reads in source.reads.by_source().items():
    found[f"{name}: chunks"] = reads.chunks_fetched
    found[f"{name}: reads"] = reads.coalesced_ranges
  _wait_for_packing()
  found["descriptors"] = _descriptors() - descriptors
  found["maps"] = _maps() - maps
  record = pipe.accounts.record(_far(pipe))
  for what, value in (
    ("bytes of a state", state.encode(_FAR, pipe.fingerprint, {}, record)),
    ("bytes of a pickled reader", pickle.dumps(source.for_workers(2))),
  ):
    found[what] = len(value) - value.count(root.encode()) * len(root)
  return found


def _memory(data: dict[str, Any]) -> dict[str, int]:
  pipe = chomp_data.build(data)
  source = pipeline.batch_source(pipe)
  tracemalloc.start()
  try:
    before = tracemalloc.get_traced_memory()[0]
    for step in range(runs.last_of(pipe, _WARM)):
      source[step]
    gc.collect()
    held, most = tracemalloc.get_traced_memory()
    return {"bytes held": held - before, "most bytes held": most - before}
  finally:
    tracemalloc.stop()


def _wait_for_packing() -> None:
  """Waits for threads that have files open for a while."""
  for thread in threading.enumerate():
    if thread.name == "background packer":
      thread.join()


def _descriptors() -> int:
  return len(os.listdir("/proc/self/fd"))


def _maps() -> int:
  lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
  return sum("/" in line for line in lines)


def main() -> None:
  """Writes the file."""
  with tempfile.TemporaryDirectory() as directory:
    root = pathlib.Path(directory)
    corpora.write_all(root)
    names = sys.argv[1:] or runs.NAMES
    counts = {name: counted(name, root) for name in names}
  if sys.argv[1:]:
    counts = {**json.loads(PATH.read_text()), **counts}
  PATH.write_text(json.dumps(counts, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
  main()
