# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of batches go to the parts that they want, as far as there is room."""

import hypothesis
from hypothesis import strategies as st
import numpy as np

from chomp_data.mix import placing
from tests import laws


@st.composite
def batches(draw):
  """Returns the sizes of batches, what their rows want, and the parts."""
  sizes = draw(st.lists(st.integers(0, 20), min_size=1, max_size=4))
  parts = draw(st.integers(1, 6))
  count = sum(sizes)
  wanted = draw(
    st.lists(st.integers(-1, parts - 1), min_size=count, max_size=count)
  )
  return np.asarray(sizes), np.asarray(wanted, np.int64), parts


@hypothesis.given(batches())
@laws.examples(100)
def test_each_batch_is_filled_and_parts_hold_who_wants_them(drawn):
  sizes, wanted, parts = drawn
  batch = np.repeat(np.arange(len(sizes)), sizes)
  slot = placing.slots(batch, sizes, wanted, parts)
  for number, size in enumerate(sizes.tolist()):
    own, want = slot[batch == number], wanted[batch == number]
    assert sorted(own.tolist()) == list(range(size))
    part = own * parts // max(size, 1)
    for i in range(parts):
      room = int((np.arange(size) * parts // max(size, 1) == i).sum())
      held = int(((part == i) & (want == i)).sum())
      assert held == min(room, int((want == i).sum()))
  alone = placing.slots(batch, sizes, np.full(len(batch), -1), parts)
  begin = np.cumsum(sizes) - sizes
  assert alone.tolist() == (np.arange(len(batch)) - begin[batch]).tolist()


def test_who_comes_too_late_fills_what_is_left():
  wanted = np.asarray([1, 0, 1, 1, -1, 0, 1])
  found = placing.slots(np.zeros(7, np.int64), np.asarray([7]), wanted, 2)
  assert found.tolist() == [4, 0, 5, 6, 2, 1, 3]


def test_who_is_late_finds_no_room():
  wanted, late = np.zeros(4, np.int64), np.asarray([1, 0, 1, 0])
  batch, sizes = np.zeros(4, np.int64), np.asarray([4])
  found = placing.slots(batch, sizes, wanted, 2, late)
  assert found.tolist() == [2, 0, 3, 1]
