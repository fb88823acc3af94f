# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Columns of numbers: running sums are those of NumPy, and few are held."""

import hypothesis
from hypothesis import strategies as st
import numpy as np

from chomp_data.index import columns
from tests import laws


@laws.examples(100)
@hypothesis.given(
  values=st.lists(st.integers(0, 3), min_size=1, max_size=150),
  data=st.data(),
)
def test_running_sums_are_found_and_looked_up_as_numpy_does(values, data):
  sums = np.concatenate([[0], np.cumsum(values)])
  running = columns.PrefixSumColumn(
    columns.ArrayColumn(np.asarray(values, np.int64))
  )
  assert len(running) == len(sums)
  assert running.read().tolist() == sums.tolist()
  at = data.draw(st.lists(st.integers(0, len(values))))
  assert running.take(np.asarray(at, np.int64)).tolist() == sums[at].tolist()
  asked = data.draw(st.lists(st.integers(0, int(sums[-1]) + 2)))
  found = running.search(np.asarray(asked, np.int64))
  assert found.tolist() == np.searchsorted(sums, asked, "right").tolist()


def test_a_search_reads_only_what_lies_around_what_it_finds():
  taken = []

  class Counted(columns.ArrayColumn):
    def take(self, positions):
      taken.append(len(positions))
      return super().take(positions)

  running = columns.PrefixSumColumn(Counted(np.ones(10**6, np.int64)))
  assert running.search(np.asarray([123_456, 123_457])).tolist() == [
    123_457,
    123_458,
  ]
  assert sum(taken) < 100
  held = [v.nbytes for v in vars(running).values() if hasattr(v, "nbytes")]
  assert sum(held) <= 8 * 10**6 // 32 + 8


@hypothesis.given(
  st.lists(st.integers(0, 9), min_size=1, max_size=20).map(sorted),
  st.lists(st.integers(-1, 10), max_size=9),
  st.data(),
)
def test_bisection_looks_as_a_loop_does(numbers, values, data):
  array, asked = np.asarray(numbers), []
  low, high = [], []
  for _ in values:
    low.append(data.draw(st.integers(0, len(numbers) - 1)))
    high.append(data.draw(st.integers(low[-1] + 1, len(numbers))))

  def gather(positions):
    asked.append(len(positions))
    return array[positions]

  result = columns.last_at_most(
    gather,
    np.asarray(values, np.int64),
    np.asarray(low, np.int64),
    np.asarray(high, np.int64),
  )
  wanted = [
    max([a, *(i for i in range(a + 1, b) if numbers[i] <= value)])
    for value, a, b in zip(values, low, high, strict=True)
  ]
  assert result.tolist() == wanted
  assert len(asked) <= 5
