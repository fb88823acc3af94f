# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Edge weights: the quantile of seed 000 against an exact slow loop."""

from fractions import Fraction
import itertools

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data.splice import edge_weights
from chomp_data.splice import powers


def slow_start(k, quota, span, content_length, stride, alpha):
  """The definition: first j with CDF_j > (k + 1/2) / quota."""
  starts = range(0, span + 1, stride)
  distances = [min(t + 1, span - t + 1, content_length) for t in starts]
  weights = [
    Fraction(content_length, own)
    if alpha == 1
    else Fraction(powers.scaled_power(content_length, own, alpha), 2**32)
    for own in distances
  ]
  target = Fraction(2 * k + 1, 2 * quota) * sum(weights)
  total = Fraction(0)
  for j, weight in enumerate(weights):
    total += weight
    if total > target:
      return j
  raise AssertionError


@hypothesis.given(
  content_length=st.integers(2, 9),
  stride=st.integers(1, 4),
  span=st.integers(0, 40),
  quota=st.integers(1, 60),
  alpha=st.sampled_from([1.0, 0.8, 0.5, 2.0, 0.123, 3.3, 8.0]),
)
def test_weighted_starts_equal_the_definition(
  content_length, stride, span, quota, alpha
):
  weights = edge_weights.EdgeWeights(content_length, stride, alpha)
  k = np.arange(quota)
  got = weights.select(k, np.full(quota, quota), np.full(quota, span))
  assert got.tolist() == [
    slow_start(i, quota, span, content_length, stride, alpha)
    for i in range(quota)
  ]


@pytest.mark.parametrize("alpha", [1.0, 0.8])
@pytest.mark.parametrize("span", [199, 73, 72])
def test_ties_of_long_ramps_are_decided_as_they_are_defined(alpha, span):
  # An odd quota's middle sample is at half of the whole: a tie if starts are
  # even in number.
  weights = edge_weights.EdgeWeights(90, 1, alpha)
  for quota in (1, 3, 7):
    got = weights.select(
      np.arange(quota), np.full(quota, quota), np.full(quota, span)
    )
    assert got.tolist() == [
      slow_start(i, quota, span, 90, 1, alpha) for i in range(quota)
    ]


def test_uniform_starts_equal_the_definition():
  for quota, num_starts in itertools.product(range(1, 13), range(1, 13)):
    k = np.arange(quota)
    got = edge_weights.uniform_start(
      k, np.full(quota, quota), np.full(quota, num_starts)
    )
    assert got.tolist() == [
      slow_start(i, quota, num_starts - 1, 2, 1, 0.0) for i in range(quota)
    ], (quota, num_starts)


def test_alpha_moves_starts_to_the_edges_and_covers_them_all_evenly():
  quota, span = 1000, 999
  weights = edge_weights.EdgeWeights(64, 1, 0.8)
  k = np.arange(quota)
  got = weights.select(k, np.full(quota, quota), np.full(quota, span))
  near = np.minimum(got, span - got) < 64
  assert near.mean() > 2 * 2 * 64 / (span + 1)
  # Symmetric edges, so sample k mirrors sample quota - 1 - k within one.
  assert np.abs(got + got[::-1] - span).max() <= 1


def test_rows_of_different_documents_select_in_one_call():
  weights = edge_weights.EdgeWeights(5, 2, 1.0)
  k = np.array([0, 3, 2, 7])
  quota = np.array([1, 5, 3, 9])
  span = np.array([0, 9, 30, 17])
  assert weights.select(k, quota, span).tolist() == [
    slow_start(*values, 5, 2, 1.0)
    for values in zip(k.tolist(), quota.tolist(), span.tolist(), strict=True)
  ]


@pytest.mark.parametrize("alpha", [1.0, 3.3, 8.0])
def test_steep_weights_of_long_copies_are_quick_and_ascend(alpha):
  weights = edge_weights.EdgeWeights(4_096, 1, alpha)
  k = np.arange(0, 10**9, 10**6)
  got = weights.select(k, np.full(1000, 10**9), np.full(1000, 10**8))
  assert (np.diff(got) >= 0).all()
  assert 0 <= got[0] <= got[-1] <= 10**8


@hypothesis.given(
  quota=st.integers(1, 2**40),
  num_starts=st.integers(1, 2**45),
  data=st.data(),
)
def test_uniform_starts_of_huge_counts_do_not_wrap(quota, num_starts, data):
  k = data.draw(st.integers(0, quota - 1))
  got = edge_weights.uniform_start(
    np.array([k]), np.array([quota]), np.array([num_starts])
  )
  assert int(got[0]) == (2 * k + 1) * num_starts // (2 * quota)
