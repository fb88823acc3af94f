# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Real JAX processes on loopback: one stream of global batches for all."""

import hashlib
import pathlib

import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data.audit import verifying
from chomp_data.loading import saved_states
from chomp_data.loading import state as state_lib
from tests.loading import processes


def run(data, layout, num_processes, **extra):
  """Reads in the processes; returns {step: pieces of all of them}."""
  arguments = {"data": data, "layout": layout, **extra}
  found = processes.call(
    "tests.loading.distributed_worker:read", [arguments] * num_processes
  )
  steps: dict[int, list] = {}
  for own in found:
    for step, pieces in own.items():
      steps.setdefault(int(step), []).extend(pieces)
  return steps


def check(data, steps, first, last, device_rows=None, order=None):
  """Every piece equals the host batch's, in an order; every row is held."""
  pipe = pipeline.build(data)
  assert sorted(steps) == list(range(first, last))
  for step, pieces in steps.items():
    batch = {
      name: np.pad(value, [(0, more), *[(0, 0)] * (value.ndim - 1)])
      for name, own in pipe.batch(step).items()
      for value in [own if order is None else own[order(step)]]
      for more in [(device_rows or len(value)) - len(value)]
    }
    held = {name: np.zeros(value.shape, bool) for name, value in batch.items()}
    for name, bounds, found in pieces:
      index = tuple(slice(low, high) for low, high in bounds)
      value = np.asarray(batch[name])[index]
      if value.dtype == np.int64:
        value = value.astype(np.int32)
      data_bytes = np.ascontiguousarray(value).tobytes()
      assert hashlib.sha256(data_bytes).hexdigest() == found, (step, name)
      held[name][index] = True
    assert all(h.all() for h in held.values()), step


@pytest.mark.parametrize(
  ("layout", "num_processes"),
  [
    pytest.param("contiguous", 4, marks=pytest.mark.slow),
    ("shared", 2),
  ],
)
def test_global_batches_are_the_same_for_any_processes(
  data, layout, num_processes
):
  """Other layouts, of all kinds of runs: tests/catalogue."""
  check(data, run({**data, "epochs": 1}, layout, num_processes), 0, 8)


def certified(data, directory, step):
  """The certificate of a checkpoint is the plan's, in one segment."""
  path = pathlib.Path(directory) / str(step) / "input" / "input.json"
  (found,) = state_lib.decode(path.read_bytes())["certificate"]
  tokens = data.get("certificate") == "tokens"
  sums = verifying.sums(pipeline.build(data), range(step), tokens)
  assert (found["first"], found["last"], found["rows"]) == (0, step, sums.rows)
  assert int(found["plan"], 16) == sums.plan
  if tokens:
    assert int(found["tokens"], 16) == sums.tokens
  assert "part" not in found
  states = saved_states.every(directory)
  verified = verifying.verified(pipeline.build(data), states)
  assert verified.agrees
  assert not verified.unknown


@pytest.mark.parametrize(
  ("layout", "change"),
  [
    ("sequence", {"certificate": "tokens"}),
    pytest.param("interleaved", {"worker_count": 2}, marks=pytest.mark.slow),
  ],
)
def test_processes_save_one_certificate(data, tmp_path, layout, change):
  data = {**data, **change}
  own = {"directory": str(tmp_path / "checkpoints")}
  run(data, layout, 2, stop_at=5, **own)
  certified(data, **own, step=5)
  run(data, layout, 2, stop_at=8, restore=True, **own)
  certified(data, **own, step=8)


def check_sizes(data, tmp_path, sizes, steps):
  """Each number of processes goes on from the checkpoint of the one before."""
  first = 0
  for number, count in enumerate(sizes):
    last = None if number == len(sizes) - 1 else first + steps
    found = run(
      {**data, "worker_count": number % 2},
      "interleaved" if number % 2 else "contiguous",
      count,
      directory=str(tmp_path / "checkpoints"),
      restore=number > 0,
      stop_at=last,
    )
    check(data, found, first, last or pipeline.build(data).num_steps)
    first = last


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(1, 2, 4, 1), (4, 8, 2)], ids=str)
def test_a_checkpoint_restores_on_other_processes_and_workers(
  data, tmp_path, sizes
):
  # Each process has two devices.
  check_sizes({**data, "global_batch_size": 16}, tmp_path, sizes, 3)


@pytest.mark.slow
def test_sizes_that_are_past_need_not_divide(data):
  data = {n: own for n, own in data.items() if n != "global_batch_size"}
  ((rows, seeking, making),) = processes.call(
    "tests.loading.distributed_worker:resized",
    [{"data": data, "before": 3, "after": 4}],
  )
  assert rows == 4
  assert "`sharding` must divide batches of all steps" in seeking
  assert "got a step of 3 rows" in seeking
  assert "`config.data.batch_size_schedule` must give batches" in making


def refused(data, mesh, sharding):
  """Returns the error of a run over 8 devices, as its class and text."""
  arguments = {"data": data, "mesh": mesh, "sharding": sharding}
  (told,) = processes.call(
    "tests.loading.distributed_worker:refusal", [arguments], num_devices=8
  )
  assert told.startswith("ConfigError: "), told
  return told


def test_a_batch_that_does_not_divide_is_one_clear_error(data):
  told = refused(data, {"data": 3}, "own('data')")
  assert told.startswith("ConfigError: `config.data.global_batch_size`")
  assert "(8, 32)" in told
  assert "multiple" in told


@pytest.mark.parametrize(
  ("num_rows", "worker_count"),
  [(3, 0), pytest.param(2, 1, marks=pytest.mark.slow)],
)
def test_rows_beyond_those_of_the_run_are_zeros_on_devices(
  data, num_rows, worker_count
):
  """Of four rows the second process holds the last two."""
  data = {
    **data,
    "global_batch_size": num_rows,
    "batch_format": "maxtext",
    "worker_count": worker_count,
    "epochs": 1,
  }
  steps = run(data, "contiguous", 2, device_rows=4)
  check(data, steps, 0, pipeline.build(data).num_steps, device_rows=4)
