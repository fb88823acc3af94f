# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Masks and positions of segments by example."""

import numpy as np
import pytest

from chomp_data.rows import row_masks


@pytest.mark.parametrize(
  ("function", "wanted"),
  [
    (row_masks.successor_mask, [1, 1, 0, 1, 0, 0, 0, 0]),
    (row_masks.crossing_mask, [0, 0, 1, 0, 0, 0, 0, 0]),
    (row_masks.segment_starts, [1, 0, 0, 1, 0, 1, 0, 1]),
    (row_masks.segment_positions, [0, 1, 2, 0, 1, 0, 1, 0]),
  ],
)
def test_the_example_of_every_function(function, wanted):
  segment_ids = np.asarray([1, 1, 1, 2, 2, 0, 0, 3], np.uint8)
  assert function(segment_ids).tolist() == wanted
  assert function(np.stack([segment_ids] * 2)).tolist() == [wanted] * 2


@pytest.mark.parametrize("shape", [(0, 4), (2, 0)])
def test_no_positions_at_all(shape):
  empty = np.zeros(shape, np.int32)
  for function in (
    row_masks.successor_mask,
    row_masks.crossing_mask,
    row_masks.segment_starts,
    row_masks.segment_positions,
  ):
    assert function(empty).shape == shape


@pytest.mark.parametrize(
  "function",
  [
    row_masks.successor_mask,
    row_masks.crossing_mask,
    row_masks.segment_starts,
    row_masks.segment_positions,
  ],
)
def test_segment_ids_of_floats_are_refused(function):
  with pytest.raises(TypeError, match=r"`segment_ids`.*float64"):
    function(np.zeros((2, 3)))


def test_tokens_of_floats_are_refused():
  tokens = np.zeros((2, 3), np.int32)
  with pytest.raises(TypeError, match=r"`tokens`.*float32"):
    row_masks.eos_targets(tokens.astype(np.float32), 1)
  with pytest.raises(TypeError, match=r"`eos_id`.*float64"):
    row_masks.eos_targets(tokens, np.zeros(2))
  with pytest.raises(TypeError, match=r"`next_token`.*bool"):
    row_masks.eos_targets(tokens, 1, np.zeros(2, np.bool_))


def test_a_row_without_eos_ignores_negative_tokens():
  tokens = np.asarray([[3, -1, -1]])
  assert not row_masks.eos_targets(tokens, np.asarray([-1])).any()
