# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Sets as intervals, beside Python's sets."""

import hypothesis
from hypothesis import strategies
import numpy as np

from chomp_data.index import intervals
from tests import laws

pairs = strategies.lists(
  strategies.tuples(strategies.integers(0, 20), strategies.integers(0, 6)).map(
    lambda own: (own[0], sum(own))
  ),
  max_size=6,
)


def arrays(found):
  found = np.asarray(found, np.int64).reshape(-1, 2)
  return found[:, 0], found[:, 1]


def numbers(begin, end):
  return {i for own in zip(begin, end, strict=True) for i in range(*own)}


def assert_canonical(begin, end):
  assert (begin < end).all()
  assert (begin[1:] > end[:-1]).all()


@laws.examples(100)
@hypothesis.given(pairs, pairs)
def test_unions_and_differences_are_those_of_sets(one, other):
  whole = intervals.merged(*arrays(one))
  assert_canonical(*whole)
  assert numbers(*whole) == numbers(*arrays(one))
  gone = intervals.merged(*arrays(other))
  left = intervals.difference(whole, gone)
  assert_canonical(*left)
  assert numbers(*left) == numbers(*whole) - numbers(*gone)
