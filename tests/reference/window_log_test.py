# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Sums over windows, and losses by document."""

import math

import numpy as np
import pytest

from chomp_data import errors
from chomp_data import pipeline
from chomp_data.reference import window_log
from chomp_data.testing import stores as testing_stores


def _metrics(loss, tokens, **fields):
  return {
    "loss": np.float32(loss),
    "tokens": np.int32(tokens),
    "all_masked": np.int32(tokens == 0),
    "token_nll": np.zeros((4, 16), np.float32),
    "token_mask": np.zeros((4, 16), bool),
    **fields,
  }


@pytest.fixture(scope="module")
def pipe(tmp_path_factory):
  root = tmp_path_factory.mktemp("progress")
  testing_stores.make_store(root / "a", [np.full(4_000, 5)])
  return pipeline.build(
    {
      "seq_len": 16,
      "global_batch_size": 4,
      "sources": {
        "a": {"store": str(root / "a"), "rows": {"kind": "sequential"}}
      },
    }
  )


def test_a_window_weighs_steps_by_their_trained_tokens(pipe):
  log = window_log.WindowLog(pipe)
  assert log.add(_metrics(1.0, 30), 100) is None
  log.add(_metrics(4.0, 10), 300)
  log.add(_metrics(0.0, 0), 100)
  log.flush()
  window = log.take(3, 0.0)
  assert (window.steps, window.tokens, window.all_masked) == (3, 40, 1)
  assert math.isclose(window.loss, (30 * 1.0 + 10 * 4.0) / 40)
  assert math.isclose(
    window.positions_per_second / window.tokens_per_second, 500 / 40
  )
  assert "1 steps without a trained token" in str(window)


def test_a_step_is_in_flight_until_the_next_is_added(pipe):
  log = window_log.WindowLog(pipe)
  first, second = _metrics(1.0, 1), _metrics(2.0, 1)
  assert log.add(first, 1) is None
  assert log.add(second, 1) is not None
  assert (log.steps, log.loss) == (1, 1.0)
  assert log.flush() is not None
  assert (log.steps, log.loss) == (2, 1.5)
  assert log.flush() is None


def test_windows_start_anew(pipe):
  log = window_log.WindowLog(pipe)
  log.add(_metrics(1.0, 5), 100)
  log.flush()
  log.take(3, 2.0)
  window = log.take(3, 2.0)
  assert window.steps == window.tokens == 0
  assert window.wait_share == 0.0
  assert math.isnan(window.loss)


def test_a_loss_that_is_not_finite_stops_the_run(pipe):
  log = window_log.WindowLog(pipe, 7)
  log.add(_metrics(np.nan, 5), 1)
  with pytest.raises(errors.DivergedError, match="got nan at step 7"):
    log.flush()


@pytest.mark.parametrize("weighted", [False, True])
def test_losses_are_summed_by_source_and_document(tmp_path, weighted):
  """Each token's loss is a number of its own; sums are made token by token."""
  rng = np.random.default_rng(0)
  for name in "ab":
    documents = [rng.integers(3, 60, n) for n in (5, 30, 1, 8, 11, 7, 20)]
    testing_stores.make_store(tmp_path / name, documents, vocab_size=64)
  pipe = pipeline.build(
    {
      "seq_len": 16,
      "global_batch_size": 3,
      "document_id": True,
      "sources": {
        name: {
          "store": str(tmp_path / name),
          "rows": {"kind": "bin", "add_bos": True, "bos_token_id": 1},
          "shuffle": {"kind": "full"},
        }
        for name in "ab"
      },
    }
  )
  log = window_log.WindowLog(pipe)
  by_source, by_document = {}, {}
  for step in range(8):
    batch = pipe.canonical(step)
    mask = batch["loss_mask"]
    weight = rng.random(mask.shape) * mask if weighted else mask.astype(float)
    nll = rng.random(mask.shape) * weight
    for row, column in zip(*np.nonzero(mask), strict=True):
      source = int(batch["source_id"][row])
      slot = batch["segment_ids"][row, column] - 1
      document = source, int(batch["document_id"][row, slot])
      values = np.asarray([nll[row, column], weight[row, column], 1])
      for sums, key in ((by_source, source), (by_document, document)):
        sums[key] = sums.get(key, 0) + values
    fields = {"token_nll": nll, "token_mask": mask}
    if weighted:
      fields |= {"token_weight": weight, "weight": weight.sum()}
    log.add(_metrics(1.0, mask.sum(), **fields), mask.size)
  log.flush()
  losses = log.take_documents()
  assert list(losses) == sorted(by_document)
  for key, (nll, weight, tokens) in by_document.items():
    assert losses[key] == (pytest.approx(nll / weight), tokens)
  sources = log.take(8).sources
  for i, name in enumerate("ab"):
    nll, weight, _ = by_source[i]
    assert sources[name]["loss"] == pytest.approx(nll / weight)
  assert log.take_documents() == {}
  assert all(math.isnan(one["loss"]) for one in log.take(8).sources.values())


def test_time_that_is_left_out_does_not_slow_the_window(pipe):
  log = window_log.WindowLog(pipe)
  log.add(_metrics(1.0, 30), 100)
  log.flush()
  log.leave_out(-100.0)  # As if it had begun 100 s before.
  assert log.take(3, 0.0).tokens_per_second == pytest.approx(0.3, rel=0.01)
  log.leave_out(0.0)
  log.add(_metrics(1.0, 30), 100)
  log.flush()
  assert log.take(3, 0.0).tokens_per_second > 3
