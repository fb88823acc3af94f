# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The Python of docs/start.md trains a flax model on sharded batches."""

import re

import numpy as np
import pytest

from chomp_data.testing import stores as testing_stores
from tests.docs import pages


@pytest.mark.slow
def test_a_flax_model_trains_on_batches_of_the_documented_mesh(
  tmp_path, monkeypatch, capsys
):
  rng = np.random.default_rng(0)
  documents = [rng.integers(3, 40, n) for n in rng.integers(50, 900, 120)]
  testing_stores.make_store(tmp_path / "data/train", documents)
  monkeypatch.chdir(tmp_path)
  names: dict = {}
  for block in pages.blocks("start.md", "python"):
    exec(block.text, names)
  assert names["batch"]["tokens"].sharding == names["sharding"]
  assert names["losses"][-1] < names["losses"][0] - 0.1
  assert "NamedSharding" in capsys.readouterr().out


def test_no_mesh_of_the_documentation_has_axes_of_unsaid_types():
  """In JAX since 0.9 those of `make_mesh` are explicit, and flax fails."""
  files = [
    *pages.ROOT.glob("*.md"),
    *pages.ROOT.glob("docs/*.md"),
    *pages.ROOT.glob("examples/*.py"),
    *pages.ROOT.glob("chomp_data/**/*.py"),
  ]
  assert len(files) > 200
  for path in files:
    for call in re.findall(r"jax\.make_mesh\([^`]*", path.read_text()):
      assert "axis_types" in call, path
