# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Merges far from their start: exact, and at a cost that does not grow."""

import fractions
import heapq
import math

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data.index import hashing
from chomp_data.mix import least_consumed
from tests import laws
from tests.mix import unit_lists

F = fractions.Fraction


class Counted:
  """Counts what a merge asks of a sequence."""

  def __init__(self, sequence):
    self.sequence = sequence
    self.num_rows = sequence.num_rows
    self.calls = 0

  def before(self, rows):
    self.calls += 1
    return self.sequence.before(rows)

  def rows_below(self, wanted, near=False):
    self.calls += 1
    return self.sequence.rows_below(wanted, near)


def merge_of(sequences, weights, overshoots=None):
  keys = [hashing.fold_key(0, i) for i in range(len(sequences))]
  overshoots = overshoots or [F(0)] * len(sequences)
  parts = math.lcm(*(F(own).denominator for own in overshoots))
  return least_consumed.Merge(
    [
      least_consumed.Source(sequence, key, sequence.num_rows)
      for sequence, key in zip(sequences, keys, strict=True)
    ],
    [F(weight) for weight in weights],
    [0] * len(sequences),
    [int(own * parts) for own in overshoots],
    parts,
  )


def heaped(lengths, weights, overshoots=None):
  """Yields (source, row) by a heap of fractions."""
  overshoots = overshoots or [F(0)] * len(lengths)
  keys = [hashing.fold_key(0, i) for i in range(len(lengths))]

  def tie(source, first):
    return int(hashing.fold(keys[source], np.asarray([first]))[0])

  heap = [
    (overshoots[i] / F(weights[i]), tie(i, 0), i, 0, 0)
    for i in range(len(lengths))
  ]
  heapq.heapify(heap)
  while heap:
    level, own, source, row, first = heap[0]
    yield source, row
    used = lengths[source][row] if row < len(lengths[source]) else 0
    row += 1
    if row == len(lengths[source]):
      heapq.heappop(heap)
      continue
    if used:
      first, level = row, level + F(used) / F(weights[source])
      own = tie(source, first)
    heapq.heapreplace(heap, (level, own, source, row, first))


def pairs_of(merge, rows, count):
  sources, taken, after = merge.advance(np.asarray(rows), count)
  return list(zip(sources.tolist(), taken.tolist(), strict=True)), after


def check_everywhere(lengths, weights, positions, overshoots=None):
  """Compares rows, counts and ranks at some positions with the heap's."""
  sequences = [unit_lists.ArrayUnits(np.asarray(own)) for own in lengths]
  merge = merge_of(sequences, weights, overshoots)
  expected = list(heaped(lengths, weights, overshoots))
  assert merge.num_rows == len(expected)
  sources = np.asarray([source for source, _ in expected])
  for position in positions:
    rows = merge.rows_after(position)
    wanted = np.bincount(sources[:position], minlength=len(lengths))
    assert rows == wanted.tolist()
    taken, after = pairs_of(merge, rows, 50)
    assert taken == expected[position : position + 50]
    assert after.tolist() == merge.rows_after(min(position + 50, len(expected)))
    if position < len(expected):
      assert merge.rank(*expected[position]) == position
  everything, _ = pairs_of(merge, [0] * len(lengths), len(expected) + 10)
  assert everything == expected


def test_the_example_of_the_module():
  merge = merge_of(
    [unit_lists.ConstantUnits(4), unit_lists.ConstantUnits(6)], [1, 2]
  )
  taken, _ = pairs_of(merge, [0, 0], 7)
  levels = [merge.key(*row)[0] for row in taken]
  # Times the common denominator of the weights.
  assert levels == [0, 0, 6, 8, 12, 16, 18]
  assert taken[2:] == [(1, 1), (0, 1), (1, 2), (0, 2), (1, 3)]


@laws.examples(6)
@hypothesis.given(st.integers(0, 2**32 - 1))
def test_rows_far_from_the_start_are_those_of_a_heap(seed):
  rng = np.random.default_rng(seed)
  count = int(rng.integers(2, 6))
  lengths, weights = [], []
  for _ in range(count):
    size = int(rng.integers(1, 6_000))
    kinds = [
      np.ones(size, np.int64),
      rng.integers(0, 3, size),
      rng.lognormal(6, 2, size).astype(np.int64),
      np.arange(size),
      np.where(rng.random(size) < 0.001, 10**9, 0),
    ]
    lengths.append(kinds[rng.integers(len(kinds))].tolist())
    weights.append(F(int(rng.integers(1, 1_000)), int(rng.integers(1, 1_000))))
  total = sum(map(len, lengths))
  check_everywhere(lengths, weights, rng.integers(0, total + 1, 3).tolist())


def test_runs_of_rows_without_units_are_crossed_in_one_step():
  merge = merge_of(
    [
      unit_lists.ArrayUnits(np.asarray([5] + [0] * 10**6 + [5])),
      unit_lists.ArrayUnits(np.asarray([5, 0, 0] * 10)),
      unit_lists.ConstantUnits(5, 40),
    ],
    [1, 1, 1],
  )
  # All three are level at 5, 10, ... units. At 5 a million rows are level.
  rows = merge.rows_after(500_000)
  assert rows[0] > 499_000
  assert sum(rows) == 500_000
  rank = merge.rank(0, 500_000)
  assert merge.rows_after(rank)[0] == 500_000
  assert merge.rows_after(rank + 1)[0] == 500_001
  taken, _ = pairs_of(merge, merge.rows_after(rank), 1)
  assert taken == [(0, 500_000)]


def test_rows_that_all_consume_nothing_come_at_once():
  lengths = [[0] * 7, [3, 0, 0, 2], [0] * 9]
  check_everywhere(lengths, [1, 2, 3], range(20))


def test_the_heaviest_source_may_end_long_before_the_lightest():
  lengths = [[10**6] * 20, [7] * 30, [2**40] * 5]
  weights = [1, F(1, 10**14), F(1, 10**12)]
  check_everywhere(lengths, weights, [0, 1, 21, 30, 54, 55])


@pytest.mark.parametrize(
  "weights",
  [
    [1, 1, 1],
    [F("0.3333333333333333"), F("0.6666666666666666"), 1],
    [F("0.123456789012"), F("0.987654321098"), F(1, 999_999_937)],
    [10**9, 10**9 + 7, 10**9 + 9],
  ],
)
def test_close_and_equal_levels_are_told_apart_exactly(weights):
  lengths = [[2, 0, 4, 2] * 300, [4, 2, 2, 0] * 300, [6, 3, 3] * 300]
  overshoots = [F(0), F(4, 3), F(10**12 + 1, 10**12)]
  for own in (None, overshoots):
    check_everywhere(lengths, weights, [0, 17, 1_000, 3_000], own)


def test_a_key_on_either_side_of_a_level_by_one_part_in_10_to_the_30():
  tiny = F(1, 10**30)
  for overshoot, second in ((5 - tiny, 1), (5 + tiny, 0)):
    merge = merge_of(
      [unit_lists.ConstantUnits(5), unit_lists.ConstantUnits(5)],
      [1, 1],
      [F(0), overshoot],
    )
    taken, _ = pairs_of(merge, [0, 0], 200)
    assert taken[0] == (0, 0)
    assert [source for source, _ in taken[1::2]] == [second] * 100
    assert merge.rank(1, 0) == 1 + (second == 0)


def test_going_on_is_a_search_with_few_calls_at_any_position():
  rng = np.random.default_rng(0)
  lengths = rng.lognormal(6, 1.2, (3, 5_000)).astype(np.int64) + 1
  calls = []
  for position in (10**4, 10**7, 10**10, 10**14):
    sequences = [Counted(unit_lists.ArrayUnits(own, None)) for own in lengths]
    merge = merge_of(sequences, [5, 3, 2])
    assert sum(merge.rows_after(position)) == position
    calls.append(max(sequence.calls for sequence in sequences))
  # A few searches, one probe and one range, for each source.
  assert max(calls) <= 12


@hypothesis.given(
  st.lists(st.lists(st.integers(0, 9), min_size=1), min_size=1, max_size=6),
  st.lists(st.sampled_from([F(1), F(2), F(3, 7), F(10**6)]), min_size=6),
  st.integers(0, 300),
)
def test_rows_after_some_are_those_that_sorting_takes(lengths, weights, count):
  hypothesis.assume(all(any(own) for own in lengths))
  sequences = [unit_lists.ArrayUnits(np.asarray(o), None) for o in lengths]
  merge = merge_of(sequences, weights[: len(lengths)])
  first = np.zeros(len(lengths), np.int64)
  assert merge.rows_after(count) == merge.advance(first, count)[2].tolist()


def test_ranks_that_no_run_could_reach_are_none():
  sequences = [unit_lists.ConstantUnits(1_000), unit_lists.ConstantUnits(1_000)]
  merge = merge_of(sequences, [1, F(1, 10**15)])
  level_first = merge.key(0, 10**15) < merge.key(1, 1)
  assert merge.rank(1, 1) == 10**15 + 1 + level_first
  assert merge.rank(1, 10) is None


def test_numbers_of_a_long_chain_of_merges_have_few_digits_more_each():
  digits, ahead, parts = [], [0] * 3, 1
  rows = [0] * 3
  sources = [
    least_consumed.Source(unit_lists.ConstantUnits(3 + i), i, None)
    for i in range(3)
  ]
  for i in range(400):
    weights = [F(100 + 7 * (i * k) % 83, 100) for k in (1, 2, 5)]
    merge = least_consumed.Merge(sources, weights, rows, ahead, parts)
    rows = merge.rows_after(40)
    by_source, parts = merge.ahead_at(dict(enumerate(rows)))
    ahead = list(by_source.values())
    digits.append(parts.bit_length())
  assert digits[399] < 2.2 * digits[199]
  assert digits[399] < 400 * 9


# What sequences promise.
