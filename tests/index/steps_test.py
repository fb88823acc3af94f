# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Steps against a loop over them."""

import itertools

import hypothesis
from hypothesis import strategies as st
import numpy as np

from chomp_data.index import steps as steps_lib
from tests import laws

FAR = 60


@st.composite
def maps(draw):
  """Sizes, skips, and (data step, first row, size) of each run step."""
  changes = draw(st.lists(st.integers(1, 30), unique=True, max_size=3))
  sizes = [(at, draw(st.integers(1, 5))) for at in [0, *sorted(changes)]]
  edges = draw(st.lists(st.integers(0, 40), unique=True, max_size=6))
  edges = sorted(edges)[: len(edges) // 2 * 2]
  skip = list(zip(edges[::2], edges[1::2], strict=True))
  return sizes, skip


def slowly(sizes, skip):
  """Returns (first row, size, skipped) of each data step, by a loop."""
  out, row = [], 0
  for step in range(FAR):
    size = [own for at, own in sizes if at <= step][-1]
    gone = any(first <= step < end for first, end in skip)
    out.append((row, size, gone))
    row += size
  return out


def alike(wanted, step, following):
  """Whether one data step follows another and is as large."""
  return following - step == 1 and wanted[step][1] == wanted[following][1]


@laws.examples(60)
@hypothesis.given(maps())
def test_steps_are_what_a_loop_finds(given):
  sizes, skip = given
  steps, wanted = steps_lib.Steps(sizes, skip), slowly(sizes, skip)
  run = [i for i, own in enumerate(wanted) if not own[2]]
  for step, (row, size, gone) in enumerate(wanted):
    assert (steps.first_row(step), steps.size(step)) == (row, size)
    assert steps.before(step) == sum(not own[2] for own in wanted[:step])
    assert steps.run_step(step) == (None if gone else run.index(step))
    for own in range(row, row + size):
      assert steps.step_of_row(own) == step
      assert steps.first_step_at(own) == step + (own > row)
  for step, data in enumerate(run):
    assert steps.data_step(step) == data
    first, last = steps.alike(step)
    # The longest stretch around it without a change or a gap.
    low = high = step
    while low and alike(wanted, run[low - 1], run[low]):
      low -= 1
    while high + 1 < len(run) and alike(wanted, run[high], run[high + 1]):
      high += 1
    assert first == low
    assert last == high + 1 or (high + 1 == len(run) and last is None)
    assert sum(b - a for a, b in steps.skipped(step)) == sum(
      own[2] for own in wanted[:data]
    )
    for begin in range(0, step + 1, 3):
      ranges = steps.stretches(begin, step)
      assert [at for low, high in ranges for at in range(low, high)] == run[
        begin:step
      ]
      assert all(a[1] < b[0] for a, b in itertools.pairwise(ranges))
  every, rows = np.arange(FAR), np.arange(wanted[-1][0])
  assert steps.first_rows(every).tolist() == [own[0] for own in wanted]
  assert steps.sizes_of(every).tolist() == [own[1] for own in wanted]
  assert steps.data_steps(np.arange(len(run))).tolist() == run
  of_rows = steps.steps_of_rows(rows).tolist()
  assert of_rows == [steps.step_of_row(row) for row in rows.tolist()]


def test_what_changes_nothing_is_no_entry():
  steps = steps_lib.Steps(((0, 4), (5, 4), (9, 2)), ((1, 3), (3, 4), (7, 9)))
  assert steps.sizes == ((0, 4), (9, 2))
  assert steps.skip == ((1, 4), (7, 9))
  assert steps.distinct_sizes == (4, 2)
  assert steps.last_size == 2
