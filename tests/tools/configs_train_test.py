"""Every config trains with tools/train.py, in small, and leaves its record."""

import importlib
import json
import pathlib
import re
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
    "pretrain_mix.py:runlocal",
    "splice_in_mix.py:runlocal",
    "length_buckets.py:runlocal",
  ],
)
def test_a_config_trains_resumes_and_says_what_it_read(
  name, stdlib_store, tmp_path
):
  module = importlib.import_module(f"configs.{name.split('.')[0]}")
  sources = module.get_config().data.sources
  stores = [
    f"--config.data.sources.{source}.store={stdlib_store}" for source in sources
  ]

  def train(steps):
    done = subprocess.run(
      [
        sys.executable,
        "tools/train.py",
        f"--config=configs/{name}",
        f"--workdir={tmp_path}",
        *stores,
        f"--config.train.num_steps={steps}",
      ],
      cwd=ROOT,
      capture_output=True,
      text=True,
      timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr

  first = train(4)
  assert "reads of stdlib: examples=" in first
  log = train(6)
  assert "resum" in log
  record = json.loads((tmp_path / "metrics.json").read_text())
  assert record["step"] == 6
  assert set(record["by_source"]) == set(sources)
  whole = sum(own["share"] for own in record["by_source"].values())
  assert whole == pytest.approx(1)
  if len(sources) > 1:
    for own in sources:
      assert re.search(
        rf"source {own}: rows .*, tokens .*, epochs .*, loss .*, share .*% of"
        r" .*% intended, since the start .*% of .*% intended",
        log,
      )
  if "length_buckets" in name:
    # The second stage of the curriculum begins at step 3.
    assert "stage from step 3: 32 0.2, 64 0.3, 128 0.5" in first
    assert re.search(r"bucket 64: \d+ batches \(.*%\), loss .*, passes", log)
    assert sum(own["batches"] for own in record["by_bucket"].values()) == 2
