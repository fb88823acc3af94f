"""Shares of an epoch: exact weights of documents and their integer quotas.

Quotas follow the largest-remainder rule with ties to the lower index (seed
000, "Deterministic quotas"). All arithmetic is on integers or fractions, so
the quotas are the same on every machine. NumPy only.
"""

from collections.abc import Sequence
import decimal
import fractions
import math

import numpy as np

# Fractional powers are rounded down to multiples of 2**-32: far below any
# quota. An exponent p / q with a small q is decided by integers (3 us each);
# any other by decimals of 40 digits (70 us).
_POWER_BITS = 32
_POWER_SCALE = 2**_POWER_BITS
_POWER_DIGITS = 40
_MAX_ROOT = 100


def exact(value: float | int | str) -> fractions.Fraction:
  """Returns the number as it was written: 0.1 is 1/10, not its binary64."""
  return fractions.Fraction(str(value))


def power(base: fractions.Fraction, exponent: float) -> fractions.Fraction:
  """Returns base ** exponent: exact for 0 and 1, else a multiple of 2**-32.

  Args:
    base: At least 0.
    exponent: At least 0, taken as it is written in decimal.

  Returns:
    The power, identical on every machine.
  """
  if exponent == 0:
    return fractions.Fraction(1)
  if exponent == 1:
    return base
  written = exact(exponent)
  if written.denominator <= _MAX_ROOT:
    scaled = _scaled_root(base, written.numerator, written.denominator)
  else:
    scaled = _scaled_decimal(base, exponent)
  return fractions.Fraction(scaled, _POWER_SCALE)


def _scaled_root(base: fractions.Fraction, p: int, q: int) -> int:
  """Returns floor(base ** (p / q) * 2**32), exactly."""
  # r is the floor iff r**q <= base**p * 2**(32 q) < (r + 1)**q.
  high = base.numerator**p << (_POWER_BITS * q)
  low = base.denominator**p
  root = int(math.ldexp((base.numerator / base.denominator) ** (p / q), 32))
  while root**q * low > high:
    root -= 1
  while (root + 1) ** q * low <= high:
    root += 1
  return root


def _scaled_decimal(base: fractions.Fraction, exponent: float) -> int:
  context = decimal.Context(prec=_POWER_DIGITS, rounding=decimal.ROUND_FLOOR)
  quotient = context.divide(
    decimal.Decimal(base.numerator), decimal.Decimal(base.denominator)
  )
  value = context.power(quotient, decimal.Decimal(str(exponent)))
  return int(context.multiply(value, decimal.Decimal(_POWER_SCALE)))


def temperature_weights(
  lengths: np.ndarray,
  tau: float,
  multipliers: Sequence[fractions.Fraction] | None = None,
) -> list[int]:
  """Returns integers proportional to multiplier * length ** tau.

  Args:
    lengths: int64[D], tokens of each document.
    tau: Temperature in [0, 1]; 1 is proportional to length, 0 equal.
    multipliers: An extra weight of each document, or None for 1.

  Returns:
    D integers on one common scale.
  """
  unique, where = np.unique(lengths, return_inverse=True)
  powers = [power(fractions.Fraction(int(n)), tau) for n in unique]
  values = [powers[i] for i in where.tolist()]
  if multipliers is not None:
    values = [v * m for v, m in zip(values, multipliers, strict=True)]
  scale = math.lcm(*{v.denominator for v in values})
  return [v.numerator * (scale // v.denominator) for v in values]


def largest_remainder(weights: Sequence[int], total: int) -> np.ndarray:
  """Splits `total` in proportion to the weights, exactly.

      weights [10_000, 5_000, 2_000], total 17 -> [10, 5, 2]

  Args:
    weights: Non-negative integers, not all zero.
    total: What to split, at least 0.

  Returns:
    int64[len(weights)] that sums to `total`; ties of remainders go to the
    lower index.

  Raises:
    ValueError: If every weight is zero.
  """
  whole = sum(weights)
  if whole <= 0:
    raise ValueError(
      "`weights` must hold a positive one, got only zeros. Give at least"
      " one document a positive weight."
    )
  quotas, remainders = [], []
  for weight in weights:
    quota, remainder = divmod(weight * total, whole)
    quotas.append(quota)
    remainders.append(remainder)
  left = total - sum(quotas)
  order = sorted(range(len(weights)), key=lambda i: (-remainders[i], i))
  for i in order[:left]:
    quotas[i] += 1
  return np.asarray(quotas, np.int64)
