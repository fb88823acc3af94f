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
  assert log.add(second, 1)["loss"] == 1.0
  assert log.flush()["loss"] == 2.0
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


def test_losses_are_kept_apart_by_source_and_document(pipe):
  log = window_log.WindowLog(pipe)
  fields = {
    "source_id": np.asarray([0, 0, 1, -1]),
    "row_nll": np.asarray([8.0, 4.0, 5.0, 0.0]),
    "row_tokens": np.asarray([4, 2, 5, 0]),
    "document_id": np.asarray([[7, 8], [7, -1], [7, -1], [-1, -1]]),
    "document_nll": np.asarray([[2.0, 6.0], [4.0, 0], [5.0, 0], [0, 0]]),
    "document_tokens": np.asarray([[1, 3], [2, 0], [5, 0], [0, 0]]),
  }
  log.add(_metrics(17 / 11, 11, **fields), 100)
  log.add(_metrics(1.0, 1), 100)
  log.flush()
  assert log.take_documents() == {
    (0, 7): (2.0, 3),
    (0, 8): (2.0, 3),
    (1, 7): (1.0, 5),
  }
  assert log.take_documents() == {}


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
