# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Periods: rows cut into epochs, against a slow walk over rows."""

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data.splice import periods as periods_lib


def test_the_example_of_the_module():
  epochs = periods_lib.PeriodEpochs(
    np.asarray([0, 25, 32]), np.asarray([10, 4, 6])
  )
  numbers = np.arange(8)
  sizes = [epochs.size(number) for number in numbers]
  assert sizes == [10, 10, 5, 4, 3, 6, 6, 6]
  assert epochs.first_row(numbers).tolist() == [0, 10, 20, 25, 29, 32, 38, 44]
  assert epochs.period_of(numbers).tolist() == [0, 0, 0, 1, 1, 2, 2, 2]
  assert epochs.ramp == 5
  assert [a.tolist() for a in epochs.locate(np.asarray([24, 25, 31, 50]))] == [
    [2, 3, 4, 8], [4, 0, 2, 0],
  ]  # fmt: skip


def test_the_example_of_make_periods():
  first_row, documents, length = periods_lib.make_periods(4, 2, 10, (0, 15))
  assert first_row.tolist() == [0, 10, 15, 20]
  assert documents.tolist() == [2, 3, 3, 4]
  assert length.tolist() == [0, 0, 1, 1]


@hypothesis.given(
  gaps=st.lists(st.integers(1, 30), max_size=6),
  sizes=st.lists(st.integers(1, 12), min_size=7, max_size=7),
)
def test_epochs_are_those_of_a_walk_over_rows(gaps, sizes):
  first_row = np.cumsum([0, *gaps])
  epoch_rows = np.asarray(sizes[: len(first_row)])
  epochs = periods_lib.PeriodEpochs(first_row, epoch_rows)
  number, index, walked = -1, 0, []
  for row in range(int(first_row[-1]) + 40):
    period = int(np.sum(first_row <= row)) - 1
    index += 1
    if row in first_row or index == epoch_rows[period]:
      number, index = number + 1, 0
    walked.append((number, index))
  got = epochs.locate(np.arange(len(walked)))
  assert list(zip(*(a.tolist() for a in got), strict=True)) == walked
  rows = epochs.first_row(got[0]) + got[1]
  assert rows.tolist() == list(range(len(walked)))


def test_far_rows_have_their_passes():
  epochs = periods_lib.PeriodEpochs(np.asarray([0, 7]), np.asarray([3, 10**6]))
  number, index = epochs.locate(np.asarray([7 + 10**18 + 5]))
  assert (number.tolist(), index.tolist()) == ([3 + 10**12], [5])
  assert epochs.first_row(number).tolist() == [7 + 10**18]


@hypothesis.given(
  count=st.integers(1, 12),
  start=st.integers(1, 12),
  every=st.none() | st.integers(1, 9),
  later=st.sets(st.integers(1, 60), max_size=4),
)
def test_every_row_reads_the_documents_and_length_of_its_period(
  count, start, every, later
):
  start = min(start, count)
  rows = (0, *sorted(later))
  first_row, documents, length = periods_lib.make_periods(
    count, start, every, rows
  )
  assert (np.diff(first_row) > 0).all()
  for row in range(130):
    period = int(np.sum(first_row <= row)) - 1
    wanted = count if every is None else min(count, start + row // every)
    assert documents[period] == wanted
    assert length[period] == sum(first <= row for first in rows) - 1


def test_a_ramp_beyond_all_row_numbers_is_refused():
  with pytest.raises(ValueError, match=r"got row 72057594037927936\. Lower"):
    periods_lib.make_periods(257, 1, 2**48, (0,))
