# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Shares of documents in the rows of an epoch: by group, then within groups.

    lengths  10_000  5_000  2_000    17 rows, tau 1
    quotas       10      5      2

Both divisions follow the largest-remainder rule with ties to the lower index,
for epochs of any number of rows over any first documents. All arithmetic is on
integers or fractions, so the quotas are the same on every machine. NumPy only.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import fractions
import math

import numpy as np

from chomp_data.splice import powers

_MAX_LENGTH = 2**62


class Shares:
  """Exact weights of documents and of groups of documents."""

  def __init__(
    self,
    lengths: np.ndarray,
    strides: np.ndarray,
    tau: float,
    weights: Mapping[int, fractions.Fraction] | None = None,
    groups: np.ndarray | None = None,
    group_weights: Mapping[int, fractions.Fraction] | None = None,
  ):
    """Computes the weights, (length / stride) ** tau times a factor.

    Args:
      lengths: int64[D], tokens of each document.
      strides: int64[D], tokens between its starts.
      tau: Temperature in [0, 1]; 0 is equal shares.
      weights: Factors by index into `lengths`; the others are 1.
      groups: int64[D], each document's group, from 0; None is one group.
      group_weights: Weights by group; the others are 1.

    Raises:
      ValueError: If lengths over strides have no common scale inside int64.
    """
    common = math.lcm(*np.unique(strides).tolist())
    if common * int(lengths.max(initial=0)) >= _MAX_LENGTH:
      raise ValueError(
        "must have content_strides whose common multiple fits beside lengths"
        f" in 62 bits, got a multiple of {common}. Give documents strides that"
        " divide each other."
      )
    if common > 1:
      lengths = lengths * (common // strides)
    self._values, self._member = temperature_weights(lengths, tau, weights)
    positive = np.asarray([value > 0 for value in self._values], np.bool_)
    self._positive = positive[self._member]
    if groups is None:
      groups = np.zeros(len(lengths), np.int8)
    self._groups = groups
    num_groups = int(groups.max(initial=0)) + 1
    factors = [
      (group_weights or {}).get(group, fractions.Fraction(1))
      for group in range(num_groups)
    ]
    scale = math.lcm(*(factor.denominator for factor in factors))
    self._group_weights = [int(factor * scale) for factor in factors]

  def served(self, usable: np.ndarray) -> np.ndarray:
    """Returns which of the first M documents get rows, bool[M].

    Args:
      usable: bool[M], which of the first M documents can be copied.
    """
    positive = np.asarray([weight > 0 for weight in self._group_weights])
    count = len(usable)
    return usable & self._positive[:count] & positive[self._groups[:count]]

  def quotas(self, usable: np.ndarray, total: int) -> np.ndarray:
    """Splits rows over the first M documents.

    A group has a share if one of its documents is served.

    Args:
      usable: bool[M], which of the first M documents can be copied.
      total: Rows, at least 0.

    Returns:
      int64[M] that sums to `total`.

    Raises:
      ValueError: If no document is served.
    """
    served = self.served(usable)
    quotas = np.zeros(len(usable), np.int64)
    groups = self._groups[: len(usable)]
    present = np.flatnonzero(np.bincount(groups[served])).tolist()
    totals = largest_remainder(
      [self._group_weights[group] for group in present], total
    )
    for group, rows in zip(present, totals.tolist(), strict=True):
      documents = np.flatnonzero(served & (groups == group))
      numbers, member = np.unique(self._member[documents], return_inverse=True)
      weights = [self._values[i] for i in numbers.tolist()]
      quotas[documents] = largest_remainder(weights, rows, member)
    return quotas


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
  unique, member = np.unique(lengths, return_inverse=True)
  # Whole numbers, not fractions: a fraction takes four times the memory.
  values, _ = powers.scaled_powers(unique, 1, tau)
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
    # All receivers of ranks before `last_rank`, and the first ones of that.
    last_rank = int(np.searchsorted(before, remaining))
    shares += rank < last_rank
    over = remaining - (int(before[last_rank - 1]) if last_rank else 0)
    shares[np.flatnonzero(rank == last_rank)[:over]] += 1
  return shares
