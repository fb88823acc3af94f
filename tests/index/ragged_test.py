# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Consecutive lists of different lengths, beside loops over them."""

import itertools

import hypothesis
from hypothesis import strategies
import numpy as np

from chomp_data.index import ragged

lists = strategies.lists(
  strategies.tuples(strategies.integers(-9, 9), strategies.integers(0, 4)),
  max_size=8,
)


@hypothesis.given(lists)
def test_elements_are_numbered_as_loops_number_them(lists):
  first, counts = np.asarray(lists, np.int64).reshape(-1, 2).T
  assert ragged.ranges(first, counts).tolist() == [
    low + i for low, count in lists for i in range(count)
  ]
  of, places = ragged.elements(counts)
  assert list(zip(of.tolist(), places.tolist(), strict=True)) == [
    (number, i) for number, (_, count) in enumerate(lists) for i in range(count)
  ]
  assert ragged.places(counts).tolist() == places.tolist()
  assert {own.dtype for own in (of, places)} == {np.dtype(np.int64)}


@hypothesis.given(
  strategies.lists(
    strategies.tuples(strategies.integers(0, 1), strategies.integers(0, 1)),
    max_size=9,
  )
)
def test_edges_of_runs_are_where_itertools_groups(pairs):
  one, two = np.asarray(pairs, np.int64).reshape(-1, 2).T
  opens, closes = ragged.run_edges(one, two)
  lengths = [len(list(run)) for _, run in itertools.groupby(pairs)]
  wanted_opens = [i == 0 for n in lengths for i in range(n)]
  wanted_closes = [i == n - 1 for n in lengths for i in range(n)]
  assert opens.tolist() == wanted_opens
  assert closes.tolist() == wanted_closes


@hypothesis.given(
  values=strategies.lists(strategies.integers(-3, 3), max_size=9)
)
def test_each_value_comes_once_with_all_of_its_places(values):
  array = np.asarray(values, np.int64)
  places = np.arange(len(values))
  got = {value: places[i].tolist() for value, i in ragged.by_value(array)}
  assert list(got) == sorted(set(values))
  for value, index in got.items():
    assert index == [i for i, own in enumerate(values) if own == value]


@hypothesis.given(
  strategies.sets(strategies.integers(0, 40)),
  strategies.integers(1, 9),
  strategies.integers(1, 5),
)
def test_neighbours_follow_each_other_within_an_object(numbers, size, most):
  lists = ragged.neighbours(sorted(numbers), lambda i: i % size == 0, most)
  assert [*itertools.chain(*lists)] == sorted(numbers)
  for one in lists:
    assert one == list(range(one[0], one[0] + len(one)))
    assert one[0] // size == one[-1] // size
    assert len(one) <= most
  # None could be longer.
  for one, other in itertools.pairwise(lists):
    follows = one[-1] + 1 == other[0]
    assert not follows or not other[0] % size or len(one) == most
