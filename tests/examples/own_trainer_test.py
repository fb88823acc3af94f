# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The example for strangers runs as it says, on one device and on eight."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from tests import in_process

ROOT = pathlib.Path(__file__).parents[2]


def check(printed, first=0, end=20):
  steps = re.findall(r"step (\d+): loss ([\d.]+)", printed)
  assert [int(step) for step, _ in steps] == [*range(first, end)]
  return [float(loss) for _, loss in steps]


def command(store, workdir, steps=20):
  return [
    "examples/own_trainer.py",
    "--config=configs/splice_multi.py:runlocal",
    f"--config.data.sources.stdlib.store={store}",
    f"--workdir={workdir}",
    f"--steps={steps}",
  ]


def run(*arguments):
  return in_process.run_tool(*command(*arguments), check=True).stdout


def test_the_example_trains_and_resumes(stdlib_store, tmp_path):
  losses = check(run(stdlib_store, tmp_path / "whole", 60), end=60)
  assert losses[19] < losses[0] - 1
  first = check(run(stdlib_store, tmp_path / "parts", 55), end=55)
  rest = check(run(stdlib_store, tmp_path / "parts", 60), first=55, end=60)
  assert first + rest == losses


@pytest.mark.slow
def test_the_example_trains_and_resumes_on_eight_devices(
  stdlib_store, tmp_path
):
  def printed(steps):
    return subprocess.run(
      [sys.executable, *command(stdlib_store, tmp_path, steps)],
      cwd=ROOT,
      env={
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
      },
      check=True,
      capture_output=True,
      text=True,
    ).stdout

  losses = check(printed(15), end=15)
  losses += check(printed(20), first=15)
  assert losses[-1] < losses[0] - 1
