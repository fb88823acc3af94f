# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The quality of orders: ours pass at a small size, and bad ones do not."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
TOOL = ROOT / "benchmarks" / "shuffle_quality.py"
pytestmark = pytest.mark.slow

# Metrics against their definitions, in a process of its own: absl's flags are
# global, and other tools define the same names.
AGAINST_DEFINITIONS = """
import json
import numpy as np
import shuffle_quality as quality
rng = np.random.default_rng(0)
rows = np.stack([rng.permutation(300) for _ in range(3)])
slow = [
  np.mean([a[i] > a[j] for i in range(300) for j in range(i + 1, 300)])
  for a in rows
]
rho = [np.corrcoef(a, np.arange(300))[0, 1] for a in rows]
windows = np.asarray([[[0, 2], [1, 3]], [[0, 1], [2, 3]], [[0, 2], [1, 3]]])
print(json.dumps([
  [quality.inversions(rows).tolist(), slow],
  [quality.rank_correlation(rows).tolist(), rho],
  [quality.meetings(windows).tolist(), [1, 2, 0, 0, 2, 1]],
  [[quality.window_sets(windows)], [4]],
]))
"""


def run(*arguments):
  return subprocess.run(
    [sys.executable, *arguments],
    cwd=ROOT,
    env={**os.environ, "PYTHONPATH": str(TOOL.parent)},
    capture_output=True,
    text=True,
  )


def test_our_orders_are_within_noise_of_the_ideal(tmp_path):
  table, picture = tmp_path / "table.md", tmp_path / "plot.png"
  found = run(str(TOOL), "--small", f"--output={table}", f"--plot={picture}")
  assert found.returncode == 0, found.stdout + found.stderr
  lines = table.read_text().splitlines()
  # A title, a head, six metrics of four orders, and two of blocks.
  assert len(lines) == 2 + 2 + 4 * 6 + 2
  assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_weak_permutation_fails():
  found = run(str(TOOL), "--small", "--perm_type=linear")
  assert found.returncode == 1, found.stderr
  assert "largest |z|: inf" in found.stdout


def test_metrics_equal_their_definitions():
  found = run("-c", AGAINST_DEFINITIONS)
  assert found.returncode == 0, found.stderr
  for fast, slow in json.loads(found.stdout):
    assert fast == pytest.approx(slow)
