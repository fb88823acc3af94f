# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Every config trains with tools/train.py, in small, and leaves its record."""

import importlib
import json
import re

import pytest

from tests import in_process

_BUCKETS = "length_buckets.py:runlocal"


def _sources(name):
  module = importlib.import_module(f"configs.{name.split('.')[0]}")
  return module.get_config().data.sources


def _train(name, store, workdir, steps):
  """Returns the log and the record of a run up to a step."""
  done = in_process.run_tool(
    "train",
    f"--config=configs/{name}",
    f"--workdir={workdir}",
    *(f"--config.data.sources.{own}.store={store}" for own in _sources(name)),
    f"--config.train.num_steps={steps}",
    check=True,
  )
  record = json.loads((workdir / "metrics.json").read_text())
  assert record["step"] == steps
  return done.stderr, record


def _check_forecast(name, store, record):
  """simulate says of the steps what the trainer logged of them."""
  done = in_process.run_tool(
    "simulate",
    f"--config=configs/{name}",
    *(f"--config.data.sources.{own}.store={store}" for own in _sources(name)),
    f"--steps={record['step']}",
    "--format=json",
    check=True,
  )
  found = json.loads(done.stdout)
  assert found["steps"] == record["step"]
  for own, logged in record["by_source"].items():
    for field in ("rows", "tokens", "loss_tokens", "epochs"):
      assert found["sources"][own][field] == logged[field], (own, field)


def _check(name, log, report, record, steps):
  """Log, report and record say what was read in the last steps."""
  sources = _sources(name)
  assert "reads of stdlib: examples=" in report
  assert set(record["by_source"]) == set(sources)
  whole = sum(own["share"] for own in record["by_source"].values())
  assert whole == pytest.approx(1)
  if len(sources) > 1:
    for own in sources:
      assert re.search(rf"  {own} +[\d,]+ +[\d.]+% +[\d.]+% ", log)
  if name == _BUCKETS:
    assert re.search(r"bucket 64: \d+ batches \(.*%\), loss .*, passes", log)
    assert sum(o["batches"] for o in record["by_bucket"].values()) == steps


@pytest.mark.slow
@pytest.mark.parametrize(
  "name",
  [
    _BUCKETS,
    "pretrain_mix.py:runlocal",
    "packed.py:runlocal",
    "splice_in_mix.py:runlocal",
    "block_shuffle.py:era,runlocal",
    "block_shuffle.py:block_k8,runlocal",
  ],
)
def test_a_config_resumes_and_says_what_it_read(name, stdlib_store, tmp_path):
  log, record = _train(name, stdlib_store, tmp_path, 4)
  if name == _BUCKETS:
    # The second stage of the curriculum begins at step 3.
    assert "stage from step 3: 32 0.2, 64 0.3, 128 0.5" in log
  else:
    _check(name, log, (tmp_path / "report.txt").read_text(), record, 4)
  log, record = _train(name, stdlib_store, tmp_path, 6)
  assert "resumed at step 4\n" in log
  _check(name, log, (tmp_path / "report.txt").read_text(), record, 2)
  _check_forecast(name, stdlib_store, record)
