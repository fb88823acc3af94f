# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The types of the public API are complete, as pyright judges them."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

import chomp_data

ROOT = pathlib.Path(__file__).parents[1]

# These speak of types of absl, Rich, etils, Flax, or derive from classes of
# Grain, Orbax and Flax, of which pyright knows none here.
OF_OTHER_LIBRARIES = (
  "chomp_data.cli.",
  "chomp_data.commands.",
  "chomp_data.loading.checkpoint.InputHandler",
  "chomp_data.loading.checkpoint_sums.SumsHandler",
  "chomp_data.loading.step_records.",
  "chomp_data.loading.workers.Worker",
  "chomp_data.reference.",
  "chomp_data.transforms.formats.",
  "chomp_data.transforms.masks.",
  "chomp_data.transforms.sequence_layout.ReorderColumns",
)


@pytest.mark.slow
def test_every_public_name_has_a_type():
  pytest.importorskip("pyright")
  done = subprocess.run(
    [
      *(sys.executable, "-m", "pyright", "--pythonpath", sys.executable),
      *("--verifytypes", "chomp_data", "--ignoreexternal", "--outputjson"),
    ],
    env=os.environ | {"PYTHONPATH": str(ROOT)},
    capture_output=True,
    text=True,
    check=False,
  )
  found = json.loads(done.stdout)["typeCompleteness"]
  assert found["packageRootDirectory"] == str(ROOT / "chomp_data")
  symbols = {own["name"]: own for own in found["symbols"]}
  public = {*chomp_data.__all__} - {"__version__"}
  assert {f"chomp_data.{name}" for name in public} <= {*symbols}
  incomplete = {
    name: [each["message"] for each in own["diagnostics"]]
    for name, own in symbols.items()
    if own["isTypeAmbiguous"]
    or not (own["isTypeKnown"] or name.startswith(OF_OTHER_LIBRARIES))
  }
  assert not incomplete
