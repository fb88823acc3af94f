# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Powers: exact, and the same on every machine."""

from fractions import Fraction

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data.splice import powers


@hypothesis.given(
  base=st.fractions(0, 10**7), exponent=st.sampled_from([0.5, 0.7, 0.8, 0.33])
)
def test_rational_powers_are_the_exact_floor(base, exponent):
  got = powers.scaled_power(base.numerator, base.denominator, exponent)
  p = Fraction(str(exponent))
  for root, holds in ((got, True), (got + 1, False)):
    below = Fraction(root, 2**32) ** p.denominator <= base**p.numerator
    assert below is holds


@pytest.mark.parametrize("n", [1, 2, 3, 10, 999, 4096, 123_456_789])
@pytest.mark.parametrize("exponent", [0.7, 0.123, 0.707])
def test_powers_with_large_denominators_are_the_exact_floor(n, exponent):
  # Denominators of 1,000 are computed in decimals, 10 in integers.
  p, q = Fraction(str(exponent)).as_integer_ratio()
  power = powers.scaled_power(n, 1, exponent)
  assert power**q <= n**p << 32 * q < (power + 1) ** q


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
  got, scale = powers.scaled_powers(over, under, exponent)
  assert scale == 2**32
  assert got == [
    powers.scaled_power(a, b, exponent)
    for a, b in zip(over.tolist(), under.tolist(), strict=True)
  ]
