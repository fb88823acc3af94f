# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Masks and positions of segments, against loops and by example."""

import hypothesis
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
import numpy as np
import pytest

from chomp_data.rows import row_masks

SHAPES = st.one_of(
  st.tuples(st.integers(1, 9)),
  st.tuples(st.integers(1, 4), st.integers(1, 9)),
  st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 5)),
)
SEGMENTS = st_numpy.arrays(
  st.sampled_from([np.int32, np.int64, np.uint8]),
  SHAPES,
  elements=st.integers(0, 3),
)


def by_row(segment_ids, function):
  rows = segment_ids.reshape(-1, segment_ids.shape[-1]).tolist()
  return np.asarray([function(row) for row in rows]).reshape(segment_ids.shape)


def loop_successor(row):
  pairs = zip(row, [*row[1:], None], strict=True)
  return [a == b and a != 0 for a, b in pairs]


def loop_crossing(row):
  pairs = zip(row, [*row[1:], 0], strict=True)
  return [a != b and a != 0 and b != 0 for a, b in pairs]


def loop_starts(row):
  return [i == 0 or row[i] != row[i - 1] for i in range(len(row))]


def loop_positions(row):
  out = []
  for starts in loop_starts(row):
    out.append(0 if starts else out[-1] + 1)
  return out


@pytest.mark.parametrize(
  ("function", "loop", "dtype"),
  [
    (row_masks.successor_mask, loop_successor, np.bool_),
    (row_masks.crossing_mask, loop_crossing, np.bool_),
    (row_masks.segment_starts, loop_starts, np.bool_),
    (row_masks.segment_positions, loop_positions, np.int32),
  ],
)
@hypothesis.given(segment_ids=SEGMENTS)
def test_segments_of_any_shape_equal_a_loop_over_rows(
  function, loop, dtype, segment_ids
):
  segment_ids.flags.writeable = False
  actual = function(segment_ids)
  np.testing.assert_array_equal(actual, by_row(segment_ids, loop))
  assert actual.dtype == dtype
  assert actual.flags.writeable


@hypothesis.given(
  tokens=st_numpy.arrays(
    np.int32,
    st.tuples(st.integers(1, 4), st.integers(1, 8)),
    elements=st.integers(0, 3),
  ),
  lookahead=st.booleans(),
  data=st.data(),
)
def test_eos_targets_equal_a_loop(tokens, lookahead, data):
  one_a_row = st_numpy.arrays(
    np.int32, len(tokens), elements=st.integers(-1, 3)
  )
  eos_ids = data.draw(one_a_row)
  following = np.abs(data.draw(one_a_row))
  wanted = []
  for row, eos_id, after in zip(tokens, eos_ids, following, strict=True):
    targets = [*row[1:], after if lookahead else None]
    wanted.append([eos_id != -1 and target == eos_id for target in targets])
  actual = row_masks.eos_targets(
    tokens, eos_ids, following if lookahead else None
  )
  np.testing.assert_array_equal(actual, wanted)


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
