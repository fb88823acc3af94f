# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Shares of an epoch: exact weights of documents and their integer quotas.

Quotas follow the largest-remainder rule with ties to the lower index. All
arithmetic is on integers or fractions, so the quotas are the same on every
machine. NumPy only.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import decimal
import fractions
import math

import numpy as np
import numpy.typing as npt

# Fractional powers are rounded down to multiples of 2**-32: far below any
# quota. An exponent p / q with a small q is decided by integers (3 us each);
# any other by decimals of 40 digits (70 us). Of arrays, binary64 decides the
# values that are further from a whole number than its error, at most some 20
# units in the last place.
_POWER_BITS = 32
_POWER_SCALE = 2**_POWER_BITS
_POWER_DIGITS = 40
_MAX_ROOT = 100
_POWER_ERROR = 2.0**-46
# Up to this maximum, distinct values are counted in a table, not sorted.
_TABLE = 2**16


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
    about = np.power(over / under, float(exponent)) * _POWER_SCALE
    unsure = ~(np.abs(about - np.rint(about)) > about * _POWER_ERROR)
  powers = [int(value) for value in np.where(unsure, 0, about).tolist()]
  for i in np.flatnonzero(unsure).tolist():
    powers[i] = scaled_power(int(over[i]), int(under[i]), exponent)
  return powers, _POWER_SCALE


def scaled_power(numerator: int, denominator: int, exponent: float) -> int:
  """Returns floor((numerator / denominator) ** exponent * 2**32)."""
  written = exact(exponent)
  if written.denominator <= _MAX_ROOT:
    p, q = written.numerator, written.denominator
    # The floor of a root of a fraction is that of the fraction's floor.
    whole = (numerator**p << (_POWER_BITS * q)) // denominator**p
    return _integer_root(whole, q)
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


def temperature_weights(
  lengths: np.ndarray,
  tau: float,
  multipliers: Mapping[int, fractions.Fraction] | None = None,
) -> tuple[list[int], np.ndarray]:
  """Returns integers proportional to multiplier * length ** tau.

  Documents of equal weight share one integer, so that 10**5 documents need
  no 10**5 Python numbers.

  Args:
    lengths: int64[D], tokens of each document.
    tau: Temperature in [0, 1]; 1 is proportional to length, 0 equal.
    multipliers: Extra weights by index into `lengths`; the others are 1.

  Returns:
    Integers on one common scale, and int64[D], which is each document's.
  """
  unique, member = distinct(lengths)
  # Whole numbers, not fractions: a fraction takes four times the memory.
  values, _ = scaled_powers(unique, 1, tau)
  scale = math.lcm(*(m.denominator for m in (multipliers or {}).values()))
  values = [value * scale for value in values]
  for i, multiplier in (multipliers or {}).items():
    values.append(int(values[member[i]] * multiplier))
    member[i] = len(values) - 1
  return values, member


def largest_remainder(
  weights: Sequence[int], total: int, member: np.ndarray | None = None
) -> np.ndarray:
  """Splits `total` in proportion to the weights, exactly.

      weights [10_000, 5_000, 2_000], total 17 -> [10, 5, 2]

  Args:
    weights: Non-negative integers.
    total: The number to split, at least 0.
    member: int64[D], which weight each receiver has, or None for one receiver
      per weight.

  Returns:
    int64[D] that sums to `total`; ties of remainders go to the lower index.

  Raises:
    ValueError: If every receiver's weight is zero.
  """
  if member is None:
    member = np.arange(len(weights))
  counts = np.bincount(member, minlength=len(weights)).tolist()
  total_weight = sum(w * n for w, n in zip(weights, counts, strict=True))
  if total_weight <= 0:
    raise ValueError(
      "`weights` must hold a positive one, got only zeros. Give at least"
      " one document a positive weight."
    )
  parts = [divmod(weight * total, total_weight) for weight in weights]
  remaining = total - sum(p[0] * n for p, n in zip(parts, counts, strict=True))
  places = {r: i for i, r in enumerate(sorted({p[1] for p in parts})[::-1])}
  rank = np.asarray([places[p[1]] for p in parts], np.int64)
  shares = np.asarray([p[0] for p in parts], np.int64)[member]
  if remaining:
    rank = rank[member]
    before = np.cumsum(np.bincount(rank))
    # All receivers of a rank before `last`, and the first ones of that rank.
    last = int(np.searchsorted(before, remaining))
    shares += rank < last
    over = remaining - (int(before[last - 1]) if last else 0)
    shares[np.flatnonzero(rank == last)[:over]] += 1
  return shares


def distinct(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns `np.unique` with its inverse, without sorting small values.

  Args:
    values: int64[N], at least 0.

  Returns:
    The distinct values, ascending, and int64[N], the index of each value.
  """
  if int(values.max(initial=0)) > max(_TABLE, 2 * len(values)):
    return np.unique(values, return_inverse=True)
  present = np.bincount(values) > 0
  number = np.cumsum(present) - 1
  return np.flatnonzero(present), number[values]
