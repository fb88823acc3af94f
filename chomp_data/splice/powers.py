# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Powers of ratios as integers, the same on every machine.

    2 ** 0.5  ->  floor(2**32 * sqrt(2)) = 6074000999, at scale 2**32

Powers are rounded down to multiples of 2**-32: far below any quota. Weights of
documents and of starts are compared exactly as such integers. NumPy only.
"""

import decimal
import fractions

import numpy as np
import numpy.typing as npt

# An exponent p / q with a small q is decided by integers (3 us each); any other
# by decimals of 40 digits (70 us). Of arrays, binary64 decides the values that
# are further from a whole number than its error, at most some 20 units in the
# last place.
_POWER_BITS = 32
_POWER_SCALE = 2**_POWER_BITS
_POWER_DIGITS = 40
_MAX_ROOT = 100
_POWER_ERROR = 2.0**-46


def exact(value: float | int | str) -> fractions.Fraction:
  """Returns the decimal value of a number: 0.1 is 1/10, not its binary64."""
  return fractions.Fraction(str(value))


def scaled_powers(
  numerators: npt.ArrayLike, denominators: npt.ArrayLike, exponent: float
) -> tuple[list[int], int]:
  """Returns powers of ratios as integers over one scale, rounded down.

      [1, 2] / 1, exponent 1/2 -> [2**32, floor(2**32 * sqrt(2))], 2**32

  Args:
    numerators: int64[N], at least 0, or one for all.
    denominators: int64[N], at least 1, or one for all.
    exponent: At least 0, by its decimal value.

  Returns:
    N integers, and the scale: 1 for exponents 0 and 1, where ratios are rounded
    down. The same on every machine.
  """
  over, under = np.broadcast_arrays(numerators, denominators)
  if exponent == 0:
    return [1] * len(over), 1
  if exponent == 1:
    return (over // under).tolist(), 1
  with np.errstate(over="ignore", invalid="ignore"):
    estimate = np.power(over / under, float(exponent)) * _POWER_SCALE
    unsure = ~(np.abs(estimate - np.rint(estimate)) > estimate * _POWER_ERROR)
  powers = [int(value) for value in np.where(unsure, 0, estimate).tolist()]
  for i in np.flatnonzero(unsure).tolist():
    powers[i] = scaled_power(int(over[i]), int(under[i]), exponent)
  return powers, _POWER_SCALE


def scaled_power(numerator: int, denominator: int, exponent: float) -> int:
  """Returns floor((numerator / denominator) ** exponent * 2**32)."""
  exact_exponent = exact(exponent)
  if exact_exponent.denominator <= _MAX_ROOT:
    p, q = exact_exponent.numerator, exact_exponent.denominator
    # The floor of a root of a fraction is that of the fraction's floor.
    scaled = (numerator**p << (_POWER_BITS * q)) // denominator**p
    return _integer_root(scaled, q)
  return _scaled_decimal(numerator, denominator, exponent)


def _scaled_decimal(numerator: int, denominator: int, exponent: float) -> int:
  context = decimal.Context(prec=_POWER_DIGITS, rounding=decimal.ROUND_FLOOR)
  quotient = context.divide(
    decimal.Decimal(numerator), decimal.Decimal(denominator)
  )
  value = context.power(quotient, decimal.Decimal(str(exponent)))
  return int(context.multiply(value, decimal.Decimal(_POWER_SCALE)))


def _integer_root(value: int, q: int) -> int:
  """Returns the largest r with r ** q <= value, by Newton's method."""
  if value < 2:
    return value
  # From above the iteration falls to the root and stops there.
  guess = 1 << -(-value.bit_length() // q)
  while True:
    better = ((q - 1) * guess + value // guess ** (q - 1)) // q
    if better >= guess:
      return guess
    guess = better
