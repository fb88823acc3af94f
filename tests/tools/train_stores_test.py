# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""tools/train.py goes on with a store that was appended to a stopped run."""

import json

import numpy as np
import pytest

from chomp_data.testing import stores as testing_stores
from tests import in_process


def train(workdir, store, steps, hashes, *flags):
  done = in_process.run_tool(
    "train",
    "--config=configs/packed.py:runlocal",
    f"--workdir={workdir}",
    f"--config.data.sources.stdlib.store={store}",
    f"--config.train.num_steps={steps}",
    f"--batch_hashes={hashes}",
    *flags,
    check=True,
  )
  lines = [json.loads(line) for line in hashes.read_text().splitlines()]
  return done.stderr, {line["step"]: line["sha256"] for line in lines}


@pytest.mark.slow
def test_a_store_is_appended_to_a_run(tmp_path):
  rng = np.random.default_rng(0)
  for name in "ab":
    # About 5 steps an epoch.
    documents = [rng.integers(2, 250, n) for n in rng.integers(1, 60, 80)]
    testing_stores.make_store(tmp_path / name, documents)
  a, both = tmp_path / "a", (str(tmp_path / "a"), str(tmp_path / "b"))
  _, alone = train(tmp_path / "alone", a, 4, tmp_path / "alone.jsonl")
  grown = tmp_path / "grown.jsonl"
  train(tmp_path / "grown", a, 3, grown)
  log, _ = train(tmp_path / "grown", both, 4, grown)
  assert "config.data.sources.stdlib.joined = (0, 1)" in log
  log, found = train(tmp_path / "grown", both, 14, grown)
  assert "resumed at step 4" in log
  assert {step: found[step] for step in range(4)} == alone
  # What the log says is the whole run, from its start.
  _, told = train(
    tmp_path / "told", both, 14, tmp_path / "told.jsonl",
    "--config.data.sources.stdlib.joined=(0, 1)",
  )  # fmt: skip
  assert found == told
