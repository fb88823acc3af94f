# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Phases: rows cut into passes, against a slow walk over rows."""

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data.splice import phases as phases_lib


def test_the_example_of_the_module():
  phases = phases_lib.Phases(np.asarray([0, 25, 32]), np.asarray([10, 4, 6]))
  numbers = np.arange(8)
  assert phases.sizes(numbers).tolist() == [10, 10, 5, 4, 3, 6, 6, 6]
  assert phases.first_row(numbers).tolist() == [0, 10, 20, 25, 29, 32, 38, 44]
  assert phases.phase_of(numbers).tolist() == [0, 0, 0, 1, 1, 2, 2, 2]
  assert phases.ramp == 5
  assert phases.last_pass_rows == 6
  assert [a.tolist() for a in phases.locate(np.asarray([24, 25, 31, 50]))] == [
    [2, 3, 4, 8], [4, 0, 2, 0],
  ]  # fmt: skip


def test_the_example_of_cut():
  first_row, documents, length = phases_lib.cut(4, 2, 10, (0, 15))
  assert first_row.tolist() == [0, 10, 15, 20]
  assert documents.tolist() == [2, 3, 3, 4]
  assert length.tolist() == [0, 0, 1, 1]


@hypothesis.given(
  gaps=st.lists(st.integers(1, 30), max_size=6),
  sizes=st.lists(st.integers(1, 12), min_size=7, max_size=7),
)
def test_passes_are_those_of_a_walk_over_rows(gaps, sizes):
  first_row = np.cumsum([0, *gaps])
  pass_rows = np.asarray(sizes[: len(first_row)])
  phases = phases_lib.Phases(first_row, pass_rows)
  number, index, walked = -1, 0, []
  for row in range(int(first_row[-1]) + 40):
    phase = int(np.sum(first_row <= row)) - 1
    index += 1
    if row in first_row or index == pass_rows[phase]:
      number, index = number + 1, 0
    walked.append((number, index))
  got = phases.locate(np.arange(len(walked)))
  assert list(zip(*(a.tolist() for a in got), strict=True)) == walked
  rows = phases.first_row(got[0]) + got[1]
  assert rows.tolist() == list(range(len(walked)))


def test_far_rows_have_their_passes():
  phases = phases_lib.Phases(np.asarray([0, 7]), np.asarray([3, 10**6]))
  number, index = phases.locate(np.asarray([7 + 10**18 + 5]))
  assert (number.tolist(), index.tolist()) == ([3 + 10**12], [5])
  assert phases.first_row(number).tolist() == [7 + 10**18]


@hypothesis.given(
  count=st.integers(1, 12),
  start=st.integers(1, 12),
  every=st.none() | st.integers(1, 9),
  later=st.sets(st.integers(1, 60), max_size=4),
)
def test_every_row_reads_the_documents_and_length_of_its_phase(
  count, start, every, later
):
  start = min(start, count)
  rows = (0, *sorted(later))
  first_row, documents, length = phases_lib.cut(count, start, every, rows)
  assert (np.diff(first_row) > 0).all()
  for row in range(130):
    phase = int(np.sum(first_row <= row)) - 1
    wanted = count if every is None else min(count, start + row // every)
    assert documents[phase] == wanted
    assert length[phase] == sum(first <= row for first in rows) - 1


def test_a_ramp_beyond_all_row_numbers_is_refused():
  with pytest.raises(ValueError, match=r"got row 72057594037927936\. Lower"):
    phases_lib.cut(257, 1, 2**48, (0,))
