# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Shares of documents in the rows of a pass: by group, then within groups.

Both divisions are exact and by largest remainder (`quotas.py`), for passes of
any number of rows over any of the documents. NumPy only.
"""

from collections.abc import Mapping
import fractions
import math

import numpy as np

from chomp_data.splice import quotas

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
    self._values, self._member = quotas.temperature_weights(
      lengths, tau, weights
    )
    positive = np.asarray([value > 0 for value in self._values], np.bool_)
    self._positive = positive[self._member]
    self._groups = groups
    num_groups = 1 if groups is None else int(groups.max(initial=0)) + 1
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
    served = usable & self._positive[: len(usable)]
    if self._groups is not None:
      weighs = np.asarray([weight > 0 for weight in self._group_weights])
      served &= weighs[self._groups[: len(usable)]]
    return served

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
    out = np.zeros(len(usable), np.int64)
    if self._groups is None:
      out[served] = self._in_group(np.flatnonzero(served), total)
      return out
    groups = self._groups[: len(usable)]
    present = np.unique(groups[served]).tolist()
    totals = quotas.largest_remainder(
      [self._group_weights[group] for group in present], total
    )
    for group, rows in zip(present, totals.tolist(), strict=True):
      members = np.flatnonzero(served & (groups == group))
      out[members] = self._in_group(members, rows)
    return out

  def _in_group(self, documents: np.ndarray, total: int) -> np.ndarray:
    member = self._member[documents]
    present, member = quotas.distinct(member)
    values = [self._values[i] for i in present.tolist()]
    return quotas.largest_remainder(values, total, member)
