"""The example for strangers runs as it says, on one device and on eight."""

import os
import pathlib
import re
import subprocess
import sys

from tests import in_process

ROOT = pathlib.Path(__file__).parents[2]


def check(printed):
  losses = [float(x) for x in re.findall(r"loss ([\d.]+)", printed)]
  assert len(losses) == 20
  assert losses[-1] < losses[0] - 1


def command(store):
  return [
    "examples/own_trainer.py",
    "--config=configs/splice_multi.py:runlocal",
    f"--config.data.sources.stdlib.store={store}",
  ]


def test_the_example_trains(stdlib_store):
  check(in_process.run_tool(*command(stdlib_store), check=True).stdout)


def test_the_example_trains_on_eight_devices(stdlib_store):
  ran = subprocess.run(
    [sys.executable, *command(stdlib_store)],
    cwd=ROOT,
    env={
      **os.environ,
      "JAX_PLATFORMS": "cpu",
      "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    },
    check=True,
    capture_output=True,
    text=True,
  )
  check(ran.stdout)
