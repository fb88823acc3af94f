"""Every config trains with tools/train.py, in small, and leaves its record."""

import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
  "name",
  [
    "packed.py:runlocal",
    "block_shuffle.py:full,runlocal",
    "block_shuffle.py:era,runlocal",
    "block_shuffle.py:block_k8,runlocal",
    "block_shuffle.py:block_k32,runlocal",
  ],
)
def test_a_config_trains_resumes_and_says_what_it_read(
  name, stdlib_store, tmp_path
):
  def train(steps):
    done = subprocess.run(
      [
        sys.executable,
        "tools/train.py",
        f"--config=configs/{name}",
        f"--workdir={tmp_path}",
        f"--config.data.sources.stdlib.store={stdlib_store}",
        f"--config.train.num_steps={steps}",
      ],
      cwd=ROOT,
      capture_output=True,
      text=True,
      timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr

  assert "reads of stdlib: examples=" in train(4)
  log = train(6)
  assert "resum" in log
  record = json.loads((tmp_path / "metrics.json").read_text())
  assert record["step"] == 6
