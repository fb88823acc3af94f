# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""docs/chats.md: its Python runs, its worked row is what is read."""

import pathlib
import re

import jax.numpy as jnp
import numpy as np
import pytest

import chomp_data
from chomp_data.testing import stores as testing_stores

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "chats.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture
def store(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  like = testing_stores.make_store(tmp_path / "like", [[3]], bos_id=2)
  names = {"tokenizer_info": like.opened.tokenizer}
  exec(next(own for own in BLOCKS if "write_store" in own), names)
  return names["store"]


def test_the_worked_row_is_what_a_source_reads(store):
  options = chomp_data.SequentialOptions(add_bos=True, add_eos=True)
  source = chomp_data.SequentialSource(store, options, seq_len=11)
  row = source[0]
  told = dict(re.findall(r"^(tokens|loss_\w+) ((?: +\d+)+)$", PAGE, re.M))
  assert sorted(told) == ["loss_mask", "loss_weight", "tokens"]
  for name, values in told.items():
    assert row[name].tolist() == [int(own) for own in values.split()]


def test_the_loss_of_the_page_weighs(store):
  names = {"jnp": jnp, "nll": np.asarray([[1.0, 3.0]])}
  block = next(own for own in BLOCKS if "batch.get" in own)
  mask = np.asarray([[True, True]])
  exec(block, names | {"batch": {"loss_mask": mask}})
  for batch, expected in (
    ({"loss_mask": mask}, 2.0),
    ({"loss_mask": mask, "loss_weight": np.asarray([[3.0, 1.0]])}, 1.5),
  ):
    own = {**names, "batch": batch}
    exec(block, own)
    assert float(own["loss"]) == expected
