"""Real JAX processes on loopback: one stream of global batches for all."""

import hashlib
import json
import os
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest

from chomp_data import pipeline

WORKER = pathlib.Path(__file__).with_name("distributed_worker.py")


def run(data, layout, num_processes, tmp_path, **extra):
  """Runs the processes; returns {step: pieces of all of them}."""
  with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]
  environment = {
    **os.environ,
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
  }
  processes, outs = [], []
  for i in range(num_processes):
    outs.append(tmp_path / f"{layout}-{num_processes}-{i}.json")
    args = {
      "process_id": i,
      "num_processes": num_processes,
      "port": port,
      "data": data,
      "layout": layout,
      "out": str(outs[-1]),
      **extra,
    }
    processes.append(
      subprocess.Popen(
        [sys.executable, str(WORKER), json.dumps(args)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
      )
    )
  logs = [p.communicate(timeout=240)[0] for p in processes]
  assert [p.returncode for p in processes] == [0] * num_processes, logs
  steps: dict[int, list] = {}
  for out in outs:
    for step, pieces in json.loads(out.read_text()).items():
      steps.setdefault(int(step), []).extend(pieces)
  return steps


def check(data, steps, first, last):
  """Every piece equals the host batch's, and every row is held."""
  pipe = pipeline.build(data)
  assert sorted(steps) == list(range(first, last))
  for step, pieces in steps.items():
    batch = pipe.batch(step)
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
    ("contiguous", 1),
    ("contiguous", 2),
    ("contiguous", 4),
    ("interleaved", 2),
    ("shared", 2),
    ("sequence", 2),
  ],
)
def test_global_batches_are_the_same_for_any_processes(
  data, tmp_path, layout, num_processes
):
  workers = 1 if num_processes == 2 and layout == "contiguous" else 0
  steps = run(
    {**data, "worker_count": workers}, layout, num_processes, tmp_path
  )
  check(data, steps, 0, 26)


def test_a_checkpoint_restores_on_other_processes_and_workers(data, tmp_path):
  directory = str(tmp_path / "checkpoints")
  first = run(data, "contiguous", 2, tmp_path, directory=directory, stop_at=7)
  check(data, first, 0, 7)
  then = run(
    {**data, "worker_count": 1},
    "contiguous",
    1,
    tmp_path,
    directory=directory,
    restore=True,
    stop_at=11,
  )
  check(data, then, 7, 11)
  rest = run(
    data,
    "interleaved",
    4,
    tmp_path,
    directory=directory,
    restore=True,
  )
  check(data, rest, 11, 26)


def test_a_batch_that_does_not_divide_is_one_clear_error(data):
  program = """
import json, sys
import jax, numpy as np
import chomp_data
mesh = jax.sharding.Mesh(np.asarray(jax.devices()), ("data",))
sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
try:
  chomp_data.make_iterator(json.loads(sys.argv[1]), sharding)
except ValueError as error:
  print(f"{type(error).__name__}: {error}")
"""
  ran = subprocess.run(
    [sys.executable, "-c", program, json.dumps(data)],
    env={
      **os.environ,
      "JAX_PLATFORMS": "cpu",
      "XLA_FLAGS": "--xla_force_host_platform_device_count=3",
    },
    check=True,
    capture_output=True,
    text=True,
  )
  assert ran.stdout.startswith("ConfigError: `config.data.global_batch_size`")
  assert "(8, 32)" in ran.stdout
  assert "multiple" in ran.stdout
