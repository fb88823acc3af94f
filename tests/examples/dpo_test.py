# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""DPO on packed pairs: what the reference gave is what batches hold."""

import re

from flax import nnx
import numpy as np
import pytest

import chomp_data
from chomp_data import stores
from configs import preference_pairs
from tests import in_process

example = in_process.imported("examples.dpo")


def prepared(root, count):
  """Prepares the first of the toy pairs."""
  records, store = root / "pairs.jsonl", root / "pairs"
  in_process.run_tool("examples/dpo.py", f"--write_pairs={records}", check=True)
  lines = records.read_text().splitlines(keepends=True)
  records.write_text("".join(lines[:count]))
  done = in_process.run_tool(
    "prepare",
    f"--input={records}",
    "--prompt_key=prompt",
    "--chosen_key=chosen",
    "--rejected_key=rejected",
    "--tokenizer=byte",
    f"--output={store}",
    check=True,
  )
  assert f"{2 * count:,} ({count:,} preference pairs)" in done.stdout
  return store


def data_of(path):
  data = preference_pairs.get_config("runlocal").data
  data.sources.pairs.store = str(path)
  return data


def test_the_column_is_what_the_reference_gives_each_answer(tmp_path):
  pairs = prepared(tmp_path, 200)
  data = data_of(pairs)
  pipe = chomp_data.build(data)
  model = example.Model(
    pipe.vocab_size, pipe.seq_len, nnx.Rngs(0), width=8, layers=1
  )
  store = stores.open_store(pairs)
  values = example.reference_of(data, model)
  assert (values < 0).all()
  copy = example.write_with_reference(store, values, tmp_path / "copy")
  assert copy.opened.pairs
  data.sources.pairs.store = copy.path
  data.columns = ("reference",)
  with_column = chomp_data.build(data)
  for step in (0, 3):
    batch, plain = with_column.batch(step), pipe.batch(step)
    np.testing.assert_array_equal(batch["tokens"], plain["tokens"])
    np.testing.assert_array_equal(batch["loss_mask"], plain["loss_mask"])
    mask = batch["pair_mask"]
    wanted = example.log_probs_of(model, batch)
    np.testing.assert_allclose(
      batch["reference"].reshape(*mask.shape, 2)[mask],
      np.asarray(wanted)[mask],
      rtol=1e-4,
    )


@pytest.mark.slow
def test_the_example_learns_what_is_preferred(tmp_path):
  pairs = prepared(tmp_path, 2_000)
  done = in_process.run_tool(
    "examples/dpo.py",
    "--config=configs/preference_pairs.py",
    f"--config.data.sources.pairs.store={pairs}",
    f"--config.dpo.reference_store={tmp_path / 'reference'}",
    "--config.dpo.reference_steps=60",
    "--config.train.num_steps=60",
    check=True,
  )
  losses = [
    float(x) for x in re.findall(r"step \d+: loss ([\d.]+)", done.stdout)
  ]
  assert losses[0] == pytest.approx(0.693, abs=2e-3)
  assert losses[-1] < 0.4
  preferred, of = re.findall(r"(\d+) of (\d+) chosen", done.stdout)[-1]
  assert int(preferred) > 0.9 * int(of)
