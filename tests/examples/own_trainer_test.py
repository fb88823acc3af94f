"""The example for strangers runs as it says, on one device and on eight."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize("num_devices", [1, 8])
def test_the_example_trains(stdlib_store, num_devices):
  ran = subprocess.run(
    [
      sys.executable,
      str(ROOT / "examples" / "own_trainer.py"),
      f"--config={ROOT}/configs/splice_multi.py:runlocal",
      f"--config.data.sources.stdlib.store={stdlib_store}",
    ],
    env={
      **os.environ,
      "JAX_PLATFORMS": "cpu",
      "XLA_FLAGS": (f"--xla_force_host_platform_device_count={num_devices}"),
    },
    check=True,
    capture_output=True,
    text=True,
  )
  losses = [float(x) for x in re.findall(r"loss ([\d.]+)", ran.stdout)]
  assert len(losses) == 20
  assert losses[-1] < losses[0] - 1
