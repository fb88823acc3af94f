# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Loader workers and readers that die, and JAX processes that disagree."""

from collections.abc import Iterator
import contextlib
import functools
import itertools
import json
import math
import multiprocessing
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
from typing import Any
from unittest import mock

import jax
import numpy as np

from chomp_data import errors
from chomp_data import iterators
from chomp_data import pipeline
from chomp_data.loading import agreement
from chomp_data.loading import certificate
from chomp_data.loading import reader
from chomp_data.testing import batch_hashes
from chomp_data.testing import stores as testing_stores
from tests.faults import harness
from tests.loading import processes

_ROOT = pathlib.Path(__file__).parents[2]

# Set in processes that a case starts: they switch guards off themselves.
_OFF = "CHOMP_DATA_FAULTS_OFF"

_SAVE_EVERY = 3


def _data(store: pathlib.Path, **changes: Any) -> dict[str, Any]:
  return {
    "seq_len": 64,
    "global_batch_size": 4,
    "seed": 3,
    "sources": {
      "text": {
        "store": str(store),
        "rows": {"kind": "bin"},
        "shuffle": {"kind": "full"},
      }
    },
    **changes,
  }


def _store(path: pathlib.Path, documents: int = 200) -> pathlib.Path:
  """Writes a compressed store: workers read those."""
  rng = np.random.default_rng(0)
  testing_stores.make_store(
    path,
    [rng.integers(3, 60, n) for n in rng.integers(5, 90, documents)],
    compression="zstd",
  )
  return path


# --- workers ---------------------------------------------------------------


@contextlib.contextmanager
def _without_watch() -> Iterator[None]:
  get = reader.Reader.get

  def waits(self, step, timeout_s, check=None):
    del timeout_s
    return get(self, step, math.inf, check)

  with (
    mock.patch.object(reader, "DEAD_WORKER_GRACE_S", math.inf),
    mock.patch.object(reader.Reader, "get", waits),
  ):
    yield


def worker_deaths(
  rng: random.Random, directory: pathlib.Path
) -> Iterator[harness.Case]:
  """Yields cases in which a loader worker is killed or stopped."""
  signals = (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGSTOP)
  data = _data(_store(directory / "store"), worker_count=2, timeout_s=4.0)
  pipe = pipeline.build(data)

  def case(number: signal.Signals) -> str:
    before = multiprocessing.active_children()
    with iterators.make_iterator(pipe) as iterator:
      for step in range(rng.randrange(1, 6)):
        if not _same(next(iterator), pipe.batch(step)):
          return f"{harness.SILENT}: before {number.name}"
      worker = rng.choice(
        [own for own in multiprocessing.active_children() if own not in before]
      )
      os.kill(worker.pid, number)
      try:
        while True:
          step = iterator.step
          if not _same(next(iterator), pipe.batch(step)):
            return f"{harness.SILENT}: {number.name}"
      except errors.InputError:
        pass
      except Exception as error:
        return f"{harness.UNCLEAR}: {number.name}: {error!r}"
      try:
        next(iterator)
      except errors.InputError:
        return harness.REFUSED
      return f"{harness.SILENT}: a batch after {number.name}"

  while True:
    yield functools.partial(case, rng.choice(signals))


def _same(batch: Any, expected: Any) -> bool:
  return batch_hashes.batch_sha256(batch) == batch_hashes.batch_sha256(expected)


# --- a reading process -----------------------------------------------------


@contextlib.contextmanager
def _off_in_children() -> Iterator[None]:
  with mock.patch.dict(os.environ, {_OFF: "1"}):
    yield


def _ahead() -> contextlib.AbstractContextManager[Any]:
  """The state counts what was read ahead, as that of a naive reader does."""
  now = certificate.Certificate.now

  def wrong(self, digest):
    step, _ = now(self, digest)
    return step + 7, []

  return mock.patch.object(certificate.Certificate, "now", wrong)


def read(directory: pathlib.Path) -> None:
  """Reads until it is killed; goes on where its newest state is."""
  job = json.loads((directory / "job.json").read_text())
  state = directory / "state"
  with contextlib.ExitStack() as stack:
    if os.environ.get(_OFF):
      stack.enter_context(_ahead())
    iterator = stack.enter_context(iterators.make_iterator(job))
    if state.exists():
      iterator.set_state(state.read_bytes())
    file = stack.enter_context(open(directory / "hashes", "a"))
    while True:
      batch = next(iterator)
      line = [iterator.step - 1, batch_hashes.batch_sha256(batch)]
      file.write(json.dumps(line) + "\n")
      file.flush()
      if iterator.step % _SAVE_EVERY == 0:
        # What was trained on before a checkpoint is in it, and no more.
        file.write(json.dumps(["saved", iterator.step]) + "\n")
        file.flush()
        part = directory / "part"
        part.write_bytes(iterator.get_state())
        part.replace(state)
      time.sleep(0.005)


def kills(
  rng: random.Random, directory: pathlib.Path
) -> Iterator[harness.Case]:
  """Yields cases in which a reading process is killed and started again."""
  store = _store(directory / "store")

  def case(number: int) -> str:
    own = directory / f"run-{number}"
    own.mkdir()
    data = _data(store, worker_count=rng.choice((0, 0, 2)))
    (own / "job.json").write_text(json.dumps(data))
    pipe = pipeline.build({**data, "worker_count": 0})
    steps, found = 0, []
    for _ in range(3):
      child = subprocess.Popen(
        [sys.executable, "-m", "tests.faults", "--read", str(own)],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        stderr=subprocess.DEVNULL,
      )
      try:
        wanted = steps + rng.randrange(4, 30)
        while len(found := _handed_out(own)) < wanted:
          if child.poll() is not None:
            return f"{harness.UNCLEAR}: it ended with {child.returncode}"
          time.sleep(0.01)
        workers = _children(child.pid)
      finally:
        child.kill()
        child.wait()
      since = time.monotonic()
      while any(pathlib.Path(f"/proc/{own}").exists() for own in workers):
        if time.monotonic() - since > 5:
          return f"{harness.HANG}: workers without their parent"
        time.sleep(0.05)
      found = _handed_out(own)
      steps = len(found)
      if [step for step, _ in found] != list(range(steps)):
        return f"{harness.SILENT}: steps {[step for step, _ in found]}"
    for step, sha256 in found:
      if sha256 != batch_hashes.batch_sha256(pipe.batch(step)):
        return f"{harness.SILENT}: step {step}"
    return harness.UNHARMED

  for number in itertools.count():
    yield functools.partial(case, number)


def _handed_out(directory: pathlib.Path) -> list[tuple[int, str]]:
  """Returns the run's steps: what a restart takes back is not of them."""
  path = directory / "hashes"
  out: list[tuple[int, str]] = []
  if not path.exists():
    return out
  saved = [0, 0]
  for line in path.read_text().splitlines(keepends=True):
    if not line.endswith("\n"):
      break
    step, value = json.loads(line)
    if step == "saved":
      saved.append(value)
      continue
    # Its newest state is there, or the kill came before: it goes on there.
    if step < len(out) and step in saved[-2:]:
      del out[step:]
    out.append((step, value))
  return out


def _children(pid: int) -> list[int]:
  files = pathlib.Path(f"/proc/{pid}/task").glob("*/children")
  return [int(own) for file in files for own in file.read_text().split()]


# --- processes that disagree -----------------------------------------------


def compare(index: int, data: dict[str, Any], guarded: bool) -> tuple[str, str]:
  """Reads two batches in one of several JAX processes."""
  del index
  with contextlib.ExitStack() as stack:
    if not guarded:
      stack.enter_context(
        mock.patch.object(agreement, "disagreements", return_value=[])
      )
    mesh = jax.sharding.Mesh(np.asarray(jax.devices()), ("data",))
    spec = jax.sharding.PartitionSpec("data")
    try:
      iterator = iterators.make_iterator(
        data,
        jax.sharding.NamedSharding(mesh, spec),
      )
    except errors.ConfigError as error:
      return "refused", str(error)
    except Exception as error:
      return "error", repr(error)
    with iterator:
      next(iterator)
    return "read", ""


def disagreements(
  rng: random.Random, directory: pathlib.Path
) -> Iterator[harness.Case]:
  """Yields cases in which one of two processes has another input."""
  store = _store(directory / "store")
  other = _store(directory / "other", 150)
  changes: list[dict[str, Any]] = [
    {"seed": 4},
    {"sources": _data(other)["sources"]},
    {"seq_len": 32},
    {"global_batch_size": 8},
    {"epochs": 2},
  ]
  guarded = not os.environ.get(_OFF)

  def case(change: dict[str, Any], which: int) -> str:
    own = [_data(store), _data(store)]
    own[which] = {**own[which], **change}
    pair = processes.ProcessSet(2, 1)
    try:
      found = pair.call(
        f"{__name__}:compare",
        [
          {"index": i, "data": data, "guarded": guarded}
          for i, data in enumerate(own)
        ],
        200,
      )
    finally:
      pair.close()
    names = {name for name, _ in found}
    field = next(iter(change))
    if names == {"refused"} and all(field in text for _, text in found):
      return harness.REFUSED
    if "read" in names:
      return f"{harness.SILENT}: {field}"
    return f"{harness.UNCLEAR}: {found}"

  while True:
    yield functools.partial(case, rng.choice(changes), rng.randrange(2))


FAULTS = (
  harness.Fault(
    "workers",
    "a loader worker gets KILL, TERM, SEGV or STOP: an error, and it stays",
    worker_deaths,
    harness.Guard("watch", _without_watch),
    few=3,
    many=80,
    case_s=40,
  ),
  harness.Fault(
    "kills",
    "a reading process is killed three times: its steps are those of one run",
    kills,
    harness.Guard("handed-out", _off_in_children),
    few=2,
    many=100,
    case_s=240,
  ),
  harness.Fault(
    "disagreement",
    "one of two JAX processes has another input: an error on both names it",
    disagreements,
    harness.Guard("agreement", _off_in_children),
    few=2,
    many=20,
    case_s=240,
  ),
)
