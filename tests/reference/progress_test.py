# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Sums over windows, and losses by document."""

import math

import numpy as np
import pytest

from chomp_data.reference import progress


def _metrics(loss, tokens, **fields):
  return {
    "loss": np.float32(loss),
    "tokens": np.int32(tokens),
    "all_masked": np.int32(tokens == 0),
    **fields,
  }


def test_a_window_weighs_steps_by_their_trained_tokens():
  meter = progress.Meter(positions_per_step=100)
  assert meter.add(0, _metrics(1.0, 30)) is None
  meter.add(1, _metrics(4.0, 10))
  meter.add(2, _metrics(0.0, 0))
  meter.flush()
  window = meter.window(wait_s=0.0)
  assert (window.steps, window.tokens, window.all_masked) == (3, 40, 1)
  assert math.isclose(window.loss, (30 * 1.0 + 10 * 4.0) / 40)
  assert math.isclose(
    window.positions_per_second / window.tokens_per_second, 300 / 40
  )
  assert "1 steps without a trained token" in str(window)


def test_steps_of_other_shapes_count_their_own_positions():
  meter = progress.Meter()
  for step, positions in enumerate((64, 256, 256)):
    meter.add(step, _metrics(1.0, 10), positions)
  meter.flush()
  window = meter.window(wait_s=0.0)
  ratio = window.positions_per_second / window.tokens_per_second
  assert math.isclose(ratio, 576 / 30)


def test_a_step_is_in_flight_until_the_next_is_added():
  meter = progress.Meter(positions_per_step=1)
  first, second = _metrics(1.0, 1), _metrics(2.0, 1)
  assert meter.add(0, first) is None
  assert meter.add(1, second)["loss"] == 1.0
  assert meter.flush()["loss"] == 2.0
  assert meter.flush() is None


def test_windows_start_anew():
  meter = progress.Meter(positions_per_step=1)
  meter.add(0, _metrics(1.0, 5))
  meter.flush()
  meter.window(wait_s=2.0)
  window = meter.window(wait_s=2.0)
  assert window.steps == window.tokens == 0
  assert window.wait_share == 0.0
  assert math.isnan(window.loss)


def test_a_loss_that_is_not_finite_stops_the_run():
  meter = progress.Meter(positions_per_step=1)
  meter.add(7, _metrics(np.nan, 5))
  with pytest.raises(progress.DivergedError, match="got nan at step 7"):
    meter.flush()


def test_losses_are_kept_apart_by_source_and_document():
  losses = progress.DocumentLosses()
  losses.add(
    {
      "source_id": np.asarray([0, 0, 1, -1]),
      "document_id": np.asarray([[7, 8], [7, -1], [7, -1], [-1, -1]]),
      "document_nll": np.asarray([[2.0, 6.0], [4.0, 0], [5.0, 0], [0, 0]]),
      "document_tokens": np.asarray([[1, 3], [2, 0], [5, 0], [0, 0]]),
    }
  )
  losses.add(None)
  losses.add(_metrics(1.0, 1))
  assert losses.take() == {(0, 7): (2.0, 3), (0, 8): (2.0, 3), (1, 7): (1.0, 5)}
  assert losses.take() == {}


def test_time_that_is_left_out_does_not_slow_the_window():
  meter = progress.Meter(positions_per_step=100)
  meter.add(0, _metrics(1.0, 30))
  meter.flush()
  meter.leave_out(-100.0)  # As if it had begun 100 s before.
  assert meter.window(wait_s=0.0).tokens_per_second == pytest.approx(
    0.3, rel=0.01
  )
  meter.leave_out(0.0)
  meter.add(1, _metrics(1.0, 30))
  meter.flush()
  assert meter.window(wait_s=0.0).tokens_per_second > 3
