# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Shares: quotas by group and document, of any first documents."""

from fractions import Fraction

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data.splice import shares as shares_lib


def shares(
  lengths, tau=1.0, strides=(), weights=None, groups=None, group_weights=None
):
  overrides = {i: (stride, 0.0) for i, stride in enumerate(strides)}
  named = shares_lib.DocumentShares(
    weights or {}, overrides, groups, (), group_weights or {}
  )
  return shares_lib.Shares(np.asarray(lengths), 1, tau, named)


def usable(count, out=()):
  return np.asarray([i not in out for i in range(count)])


@pytest.mark.parametrize("tau", [0.0, 0.7, 1.0])
def test_strides_divide_lengths_exactly(tau):
  lengths, strides = [600, 600, 600], [1, 2, 6]
  got = shares(lengths, tau, strides).quotas(usable(3), 10_000)
  same = shares([600, 300, 100], tau).quotas(usable(3), 10_000)
  # Powers of other numbers are rounded elsewhere, far below one row.
  assert np.abs(got - same).max() <= (tau == 0.7)


def test_strides_without_a_common_scale_are_refused():
  with pytest.raises(ValueError, match=r"common.*of 3234846615\."):
    shares([10**12] * 9, 1.0, [3, 5, 7, 11, 13, 17, 19, 23, 29 * 5])


def test_seed_000_shares_59_29_12_percent_at_tau_1():
  lengths = np.array([10_000, 5_000, 2_000])
  weights, member = shares_lib.temperature_weights(lengths, 1.0)
  shares = shares_lib.largest_remainder(weights, 17_000, member)
  assert shares.tolist() == [10_000, 5_000, 2_000]
  assert np.round(shares / shares.sum(), 2).tolist() == [0.59, 0.29, 0.12]


@hypothesis.given(
  weights=st.lists(st.integers(0, 10**12), min_size=1, max_size=20),
  total=st.integers(0, 10**9),
)
def test_quotas_sum_to_the_total_and_are_within_one_of_their_share(
  weights, total
):
  hypothesis.assume(sum(weights))
  shares = shares_lib.largest_remainder(weights, total)
  assert int(shares.sum()) == total
  for share, weight in zip(shares.tolist(), weights, strict=True):
    exact = Fraction(weight * total, sum(weights))
    assert abs(share - exact) < 1
  rest = [
    Fraction(w * total, sum(weights)) - int(s)
    for w, s in zip(weights, shares, strict=True)
  ]
  # Whoever was rounded down had no larger remainder than one rounded up.
  up = [r + 1 for r in rest if r < 0]
  down = [r for r in rest if r >= 0]
  assert not up or not down or max(down) <= min(up)


def test_document_weights_multiply_the_temperature():
  weights, member = shares_lib.temperature_weights(
    np.array([10, 10, 10]), 0.7, {1: Fraction(1, 2), 2: Fraction(2)}
  )
  assert shares_lib.largest_remainder(weights, 7, member).tolist() == [2, 1, 4]


@hypothesis.given(
  lengths=st.lists(st.integers(1, 6), min_size=1, max_size=12),
  total=st.integers(0, 1000),
)
def test_sharing_weights_changes_no_quota(lengths, total):
  weights, member = shares_lib.temperature_weights(np.asarray(lengths), 0.7)
  together = shares_lib.largest_remainder(weights, total, member)
  alone = shares_lib.largest_remainder([weights[m] for m in member], total)
  assert together.tolist() == alone.tolist()
