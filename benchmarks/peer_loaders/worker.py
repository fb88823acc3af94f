# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A process that holds one loader and measures it when asked.

    python worker.py MODULE < commands > replies

Commands and replies are JSON lines. It runs in whichever environment has what
MODULE needs: NumPy is all that it imports itself.
"""

from collections.abc import Mapping
import hashlib
import importlib
import importlib.metadata
import json
import os
import pathlib
import pickle
import sys
import time
import traceback
from typing import Any
import warnings

import numpy as np

# This file's own directory is no place to import from, its parent is.
sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from peer_loaders import base  # noqa: E402
from peer_loaders import gather  # noqa: E402

_GATHERED = 0.05  # seconds of raw gathers before each measurement


def cpu_seconds() -> float:
  """Returns the CPU time of this process, its threads and its children."""
  children = os.times()
  ended = children.children_user + children.children_system
  return time.process_time() + ended + _running_children(os.getpid())


def _running_children(pid: int) -> float:
  ticks = os.sysconf("SC_CLK_TCK")
  seconds = 0.0
  for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
    for child in task.read_text().split():
      try:
        stat = pathlib.Path(f"/proc/{child}/stat").read_text()
      except OSError:  # It has just ended.
        continue
      fields = stat.rpartition(")")[2].split()
      seconds += (int(fields[11]) + int(fields[12])) / ticks
      seconds += _running_children(int(child))
  return seconds


def tokens_in(batch: base.Batch) -> int:
  """Returns how many tokens of documents a batch holds."""
  return int(np.count_nonzero(batch["tokens"] != base.PAD))


def digest(batch: base.Batch) -> str:
  """Returns the SHA-256 of all fields."""
  whole = hashlib.sha256()
  for name in sorted(batch):
    value = np.ascontiguousarray(batch[name])
    whole.update(f"{name}:{value.dtype}:{value.shape};".encode())
    whole.update(value.tobytes())
  return whole.hexdigest()


class Worker:
  """Answers commands about the loader of one module."""

  def __init__(self, module: Any):
    """Holds no loader until `open`."""
    self._module = module
    self._loader: Any = None
    self._setting: Any = None
    self._steps = 1
    self._gather: gather.Loader | None = None

  def prepare(self, **setting: Any) -> None:
    """Writes what the loader reads."""
    self._module.prepare(_setting(setting))

  def open(self, **setting: Any) -> dict[str, Any]:
    """Opens a loader; returns what its first batch took, and its fields."""
    taken, batch = self._first(None, setting)
    return {**taken, "fields": fields_of(batch)}

  def resume(self, file: str, **setting: Any) -> dict[str, Any]:
    """Opens a loader at a state; returns what that took, and what came."""
    saved = pathlib.Path(file).read_bytes()
    taken, batch = self._first(saved, setting)
    return {**taken, "digest": digest(batch)}

  def _first(
    self, saved: bytes | None, setting: Mapping[str, Any]
  ) -> tuple[dict[str, float], base.Batch]:
    """Returns milliseconds, and of the CPU, to a first batch; and the batch."""
    self._setting = _setting(setting)
    cpu, began = cpu_seconds(), time.perf_counter()
    self._loader = self._module.Loader(self._setting)
    if saved is not None:
      self._loader.restore(pickle.loads(saved))
    batch = next(self._loader)
    wall = time.perf_counter() - began
    taken = {"ms": wall * 1e3, "cpu_ms": (cpu_seconds() - cpu) * 1e3}
    return taken, batch

  def straight(
    self, step: int, file: str, whole: bool, **setting: Any
  ) -> dict[str, Any]:
    """Goes through an epoch, and saves the state at `step`.

    Args:
      step: Of the state, at least 1.
      file: Where it is saved.
      whole: Whether the epoch is taken to its end.
      **setting: See `base.Setting`.

    Returns:
      As `open`; the digest of the batch after `step` (None where the epoch is
      shorter), and the steps and tokens that were taken.
    """
    taken, batch = self._first(None, setting)
    fields = fields_of(batch)
    steps, tokens = 1, tokens_in(batch)
    after = None
    while whole or steps <= step:
      if steps == step:
        pathlib.Path(file).write_bytes(pickle.dumps(self._loader.state()))
      try:
        batch = next(self._loader)
      except StopIteration:
        break
      if steps == step:
        after = digest(batch)
      steps += 1
      tokens += tokens_in(batch)
    return {
      **taken,
      "fields": fields,
      "digest": after,
      "steps": steps,
      "tokens": tokens,
    }

  def rows(self, steps: int, **setting: Any) -> list[list[str]]:
    """Returns hashes of the rows of the first steps."""
    loader = self._module.Loader(_setting(setting))
    return [
      [
        hashlib.sha256(np.ascontiguousarray(row).tobytes()).hexdigest()
        for row in loader.rows(next(loader))
      ]
      for _ in range(steps)
    ]

  def warm(self, tokens: int, seconds: float, measured: float) -> float:
    """Takes batches until so many tokens, or for so long.

    Args:
      tokens: Of an epoch.
      seconds: At most.
      measured: Seconds that a measurement should take.

    Returns:
      The share of positions that held a token.
    """
    began = time.perf_counter()
    taken = steps = 0
    while taken < tokens and time.perf_counter() - began < seconds:
      taken += tokens_in(next(self._loader))
      steps += 1
    began = time.perf_counter()
    count = 0
    while (passed := time.perf_counter() - began) < measured:
      next(self._loader)
      count += 1
    self._steps = max(1, round(count * measured / passed))
    return taken / (steps * self._positions)

  def measure(self) -> dict[str, float]:
    """Gathers, then takes as many batches as `warm` found.

    Returns:
      Positions a second of the raw gather; positions, seconds and CPU seconds
      of the loader, whose threads may work during the gather, too.
    """
    if self._gather is None:
      setting = base.Setting(
        self._setting.directory, "one source", self._setting.batch_size
      )
      self._gather = gather.Loader(setting)
    began_cpu = cpu_seconds()
    began_thread, began = time.thread_time(), time.perf_counter()
    gathers = 0
    while (gathered := time.perf_counter() - began) < _GATHERED:
      next(self._gather)
      gathers += 1
    gather_cpu = time.thread_time() - began_thread
    began = time.perf_counter()
    for _ in range(self._steps):
      next(self._loader)
    wall = time.perf_counter() - began
    return {
      "gather": gathers * self._positions / gathered,
      "positions": self._steps * self._positions,
      "wall": wall,
      "cpu": cpu_seconds() - began_cpu - gather_cpu,
    }

  @property
  def _positions(self) -> int:
    return self._setting.batch_size * base.SEQ_LEN


def fields_of(batch: base.Batch) -> dict[str, str]:
  """Returns the dtype and the shape of each field."""
  return {
    name: f"{np.asarray(value).dtype}{list(np.shape(value))}"
    for name, value in batch.items()
  }


def _setting(values: Mapping[str, Any]) -> base.Setting:
  return base.Setting(
    **{**values, "directory": pathlib.Path(values["directory"])}
  )


def main() -> None:
  """Answers commands until they end."""
  warnings.simplefilter("ignore")
  # Libraries print: replies have a file of their own.
  replies = os.fdopen(os.dup(1), "w")
  os.dup2(2, 1)
  module = importlib.import_module(f"peer_loaders.{sys.argv[1]}")
  if "torch" in sys.modules:
    # As torch does in its workers: threads cost more than they give here.
    sys.modules["torch"].set_num_threads(1)
  worker = Worker(module)
  description = {
    "version": importlib.metadata.version(module.DISTRIBUTION),
    "kinds": module.KINDS,
  }
  print(json.dumps(description), file=replies, flush=True)
  for line in sys.stdin:
    command, arguments = json.loads(line)
    try:
      reply = {"found": getattr(worker, command)(**arguments)}
    except Exception as error:  # The comparison tells it, and goes on.
      traceback.print_exc()
      reply = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
  main()
