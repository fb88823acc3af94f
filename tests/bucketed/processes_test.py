"""Buckets over real JAX processes: in step, the same batches for all."""

import json
import os
import subprocess
import sys

import pytest

from chomp_data import pipeline
from tests.loading import sharding_test

STEPS = 12


@pytest.mark.parametrize(
  ("layout", "num_processes"),
  [("contiguous", 1), ("interleaved", 2), ("contiguous", 4)],
)
def test_global_batches_are_the_same_and_in_step_for_any_processes(
  text, tmp_path, layout, num_processes
):
  data = {**text, "buckets": {**text["buckets"], "tokens_per_batch": 512}}
  steps = sharding_test.run(
    data,
    layout,
    num_processes,
    tmp_path,
    stop_at=STEPS,
    directory=str(tmp_path / "checkpoints"),
  )
  # Every field of every step, with its shape, is the host batch's.
  sharding_test.check(data, steps, 0, STEPS)


def test_arrays_of_every_size_are_in_step_over_two_processes(
  pictures, tmp_path
):
  steps = sharding_test.run(pictures, "interleaved", 2, tmp_path)
  sharding_test.check(pictures, steps, 0, pipeline.build(pictures).num_steps)


def test_a_checkpoint_restores_on_other_processes_and_workers(text, tmp_path):
  data = {**text, "buckets": {**text["buckets"], "tokens_per_batch": 512}}
  directory = str(tmp_path / "checkpoints")
  extra = {"directory": directory, "stop_at": 5}
  first = sharding_test.run(data, "contiguous", 2, tmp_path, **extra)
  sharding_test.check(data, first, 0, 5)
  rest = sharding_test.run(
    {**data, "worker_count": 1},
    "contiguous",
    1,
    tmp_path,
    directory=directory,
    restore=True,
  )
  sharding_test.check(data, rest, 5, pipeline.build(data).num_steps)


def test_buckets_that_do_not_divide_are_one_clear_error(text):
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
    [sys.executable, "-c", program, json.dumps(text)],
    env={
      **os.environ,
      "JAX_PLATFORMS": "cpu",
      "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    },
    check=True,
    capture_output=True,
    text=True,
  )
  # Of 32, 16, 8 and 4 rows only the last do not divide by 8.
  assert ran.stdout.startswith("ConfigError: `config.data.buckets.tokens_per")
  assert "4 rows of bucket 64" in ran.stdout
  assert "'data': 8" in ran.stdout
  assert ran.stdout.count("rows of bucket") == 1
