# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The experiments behind three pages run, at a few steps each."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
  ("name", "flags", "titles"),
  [
    (
      "learning",
      ("--steps=10", "--scales=1"),
      ("eight documents, 10 steps", "more documents, 10 steps each"),
    ),
    (
      "shuffle_ablation",
      (
        "--seeds=1", "--source_bytes=150000", "--read_steps=4",
        "--arms=full,block 8",
      ),
      ("parameters, ",),
    ),
    (
      "splice_invariance",
      ("--steps=10", "--seeds=1"),
      ("position invariance",),
    ),
    ("simulated_epochs", (), ("passes",)),
  ],
)  # fmt: skip
def test_an_experiment_makes_its_tables(name, flags, titles, tmp_path):
  output = tmp_path / "tables.md"
  found = subprocess.run(
    [
      sys.executable,
      str(ROOT / "examples" / "experiments" / f"{name}.py"),
      f"--output={output}",
      *flags,
    ],
    cwd=ROOT,
    env={**os.environ, "JAX_PLATFORMS": "cpu"},
    capture_output=True,
    text=True,
  )
  assert found.returncode == 0, found.stdout + found.stderr
  text = output.read_text()
  assert all(title in text for title in titles)
