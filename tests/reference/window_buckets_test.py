# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The log by bucket: batches, losses and passes of a window."""

import math

import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data.reference import window_log
from chomp_data.testing import stores as testing_stores

STAGES = [(0, {"8": 1, "16": 1}), (6, {"16": 1, "32": 2})]


@pytest.fixture
def pipe(tmp_path):
  rng = np.random.default_rng(0)
  for name in "ab":
    lengths = rng.integers(1, 60, 80)
    documents = [rng.integers(3, 250, n) for n in lengths]
    testing_stores.make_store(tmp_path / name, documents)
  return pipeline.build(
    {
      "remainder": "pad",
      "buckets": {
        "kind": "length",
        "lengths": (8, 16, 32),
        "tokens_per_batch": 64,
        "stages": STAGES,
      },
      "sources": {name: {"store": str(tmp_path / name)} for name in "ab"},
    }
  )


def test_a_window_counts_batches_losses_and_passes_by_bucket(pipe):
  log = window_log.WindowLog(pipe, 2)
  nll, tokens, count = {}, {}, {}
  for step in range(2, 12):
    bucket = pipe.bucket_of(step)[1]
    mask = pipe.batch(step)["loss_mask"]
    metrics = {
      "token_nll": mask * (1.0 + step),
      "token_mask": mask,
      "loss": 1.0 + step,
      "tokens": mask.sum(),
      "all_masked": 0,
    }
    log.add(metrics, 64)
    nll[bucket] = nll.get(bucket, 0) + mask.sum() * (1.0 + step)
    tokens[bucket] = tokens.get(bucket, 0) + mask.sum()
    count[bucket] = count.get(bucket, 0) + 1
  log.flush()
  window = log.take(12)
  assert window.stages == ("stage from step 6: 16 0.333, 32 0.667",)
  assert window.bucket_lines()[0] == window.stages[0]
  found = window.buckets
  assert {b: own["batches"] for b, own in found.items()} == {
    b: count.get(b, 0) for b in ("8", "16", "32")
  }
  histogram = pipe.accounts.histogram(12)
  for bucket, own in found.items():
    assert own["share"] == own["batches"] / 10
    if bucket in count:
      assert own["loss"] == pytest.approx(nll[bucket] / tokens[bucket])
    for source, passes in own["passes"].items():
      samples = sum(
        (pipe.run_plan.planned(step).samples >= 0).sum()
        for step in range(12)
        if pipe.bucket_of(step) == (source, bucket)
      )
      assert histogram[source].get(bucket, 0) == samples
      assert (passes > 0) == (samples > 0)
  # Another window begins where this one ended.
  window = log.take(13)
  assert window.stages == ()
  later = window.buckets
  assert sum(own["batches"] for own in later.values()) == 1
  assert all(math.isnan(own["loss"]) for own in later.values())


def test_lines_tell_what_did_not_come(pipe):
  log = window_log.WindowLog(pipe)
  log.take(7)
  text = log.take(9).bucket_lines()
  assert text[0].startswith("bucket 8: 0 batches (0.0%), loss -, passes a ")
  assert len(text) == 3
