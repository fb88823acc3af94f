# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Quotas: largest remainder, exact powers, machine-independent ties."""

import decimal
from fractions import Fraction

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data.splice import quotas


def test_seed_000_shares_59_29_12_percent_at_tau_1():
  lengths = np.array([10_000, 5_000, 2_000])
  weights, member = quotas.temperature_weights(lengths, 1.0)
  shares = quotas.largest_remainder(weights, 17_000, member)
  assert shares.tolist() == [10_000, 5_000, 2_000]
  assert np.round(shares / shares.sum(), 2).tolist() == [0.59, 0.29, 0.12]


def test_tau_0_is_equal_shares_with_ties_to_the_lower_index():
  weights, member = quotas.temperature_weights(np.array([9, 5, 7]), 0.0)
  shares = quotas.largest_remainder(weights, 11, member)
  assert shares.tolist() == [4, 4, 3]


@hypothesis.given(
  weights=st.lists(st.integers(0, 10**12), min_size=1, max_size=20),
  total=st.integers(0, 10**9),
)
def test_quotas_sum_to_the_total_and_are_within_one_of_their_share(
  weights, total
):
  hypothesis.assume(sum(weights))
  shares = quotas.largest_remainder(weights, total)
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


@hypothesis.given(
  base=st.fractions(0, 10**7), exponent=st.sampled_from([0.5, 0.7, 0.8, 0.33])
)
def test_rational_powers_are_the_exact_floor(base, exponent):
  got = quotas.scaled_power(base.numerator, base.denominator, exponent)
  p = Fraction(str(exponent))
  for root, holds in ((got, True), (got + 1, False)):
    below = Fraction(root, 2**32) ** p.denominator <= base**p.numerator
    assert below is holds


def test_both_ways_to_evaluate_a_power_agree():
  for n in (1, 2, 3, 10, 999, 4096, 123_456_789):
    exact = quotas.scaled_power(n, 1, 0.7)
    by_decimal = quotas._scaled_decimal(n, 1, 0.7)
    assert abs(exact - by_decimal) <= (1 if decimal.Decimal(n) else 0)


@pytest.mark.parametrize(
  "exponent", [0.8, 0.5, 0.123, 0.7, 1 / 3, 2.0, 3.3, 8.0, 100.0]
)
def test_many_powers_are_those_of_each_alone(exponent):
  # Ratios near and at powers of their own: binary64 alone cannot tell them.
  over = np.concatenate(
    [np.full(700, 2048), np.arange(700) ** 2, np.arange(1, 700) ** 5 - 1]
  )
  under = np.concatenate(
    [np.arange(1, 701), np.full(700, 1), np.full(699, 3**5)]
  )
  got, scale = quotas.scaled_powers(over, under, exponent)
  assert scale == 2**32
  assert got == [
    quotas.scaled_power(a, b, exponent)
    for a, b in zip(over.tolist(), under.tolist(), strict=True)
  ]


def test_document_weights_multiply_the_temperature():
  weights, member = quotas.temperature_weights(
    np.array([10, 10, 10]), 0.7, {1: Fraction(1, 2), 2: Fraction(2)}
  )
  assert quotas.largest_remainder(weights, 7, member).tolist() == [2, 1, 4]


@hypothesis.given(
  lengths=st.lists(st.integers(1, 6), min_size=1, max_size=12),
  total=st.integers(0, 1000),
)
def test_sharing_weights_changes_no_quota(lengths, total):
  weights, member = quotas.temperature_weights(np.asarray(lengths), 0.7)
  together = quotas.largest_remainder(weights, total, member)
  alone = quotas.largest_remainder([weights[m] for m in member], total)
  assert together.tolist() == alone.tolist()


def test_all_zero_weights_are_refused():
  with pytest.raises(ValueError, match="positive"):
    quotas.largest_remainder([0, 0], 4)
