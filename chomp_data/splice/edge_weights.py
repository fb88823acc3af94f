# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Evenly spaced starts under a weight that is higher near document edges.

A document has starts every `stride` tokens from 0 to span = L - K. Start t has
the weight (K / min(d, K)) ** alpha, where d = min(t + 1, span - t + 1) is its
distance from the nearer edge.

    K = 3, span = 4, stride 1, alpha 1
    start       0    1    2    3    4
    distance    1    2    3    2    1
    weight      3  3/2    1  3/2    3
    cumulative  3  9/2 11/2    7   10

Sample k of a quota Q is the first start whose cumulative weight exceeds
(k + 1/2) / Q of the whole; alpha 0 is the uniform case. With Q = 2 that is 5/2
and 15/2 of 10: starts 0 and 4.

The comparison is exact. Floats locate the start; near ties, within their
rounding error, fractions decide, so the result does not depend on the machine.
NumPy only.
"""

import fractions
import itertools

import numpy as np

from chomp_data.index import memo
from chomp_data.index import ragged
from chomp_data.splice import powers

# A float sum of n terms is off by at most n times this, relative to the whole.
_EPSILON = 4 * float(np.finfo(np.float64).eps)

# The most fractions that are summed one by one.
_MAX_SUMMED = 32

# From this quota on, (2 k + 1) * quota may overflow int64.
_BIG_QUOTA = 2**30


def uniform_start(
  k: np.ndarray, quota: np.ndarray, num_starts: np.ndarray
) -> np.ndarray:
  """Returns the evenly spaced start of each sample, in integers.

      5 starts, quota 3: k = 0, 1, 2 -> 0, 2, 4

  Args:
    k: int64[N], 0 <= k < quota.
    quota: int64[N], samples of the document.
    num_starts: int64[N], starts of the document.

  Returns:
    int64[N], the first j with (j + 1) / num_starts > (k + 1/2) / quota.
  """
  if np.any(quota >= _BIG_QUOTA):
    k, quota, num_starts = (x.astype(object) for x in (k, quota, num_starts))
    exact = (2 * k + 1) * num_starts // (2 * quota)
    return exact.astype(np.int64)
  # num_starts = times * quota + rest keeps every product below 2 * quota**2.
  times, remainder = np.divmod(num_starts, quota)
  half, odd = np.divmod((2 * k + 1) * times, 2)
  return half + (odd * quota + (2 * k + 1) * remainder) // (2 * quota)


class EdgeWeights:
  """The cumulative edge weights of every document longer than K.

  Only starts near the two edges have weights other than 1. Counted from an
  edge, they form a slope that is the same for all documents (at the right edge,
  of the same remainder of span and stride), so this holds O(K) numbers in all.
  """

  def __init__(self, content_length: int, stride: int, alpha: float):
    """Stores the arguments; slopes are computed when needed.

    Args:
      content_length: K, tokens copied from a start.
      stride: Tokens between starts, at least 1.
      alpha: Strength of the weight, above 0.
    """
    self._content_length = content_length
    self._stride = stride
    self._alpha = alpha

  def select(
    self, k: np.ndarray, quota: np.ndarray, span: np.ndarray
  ) -> np.ndarray:
    """Returns the start index j (t = j * stride) of each sample.

    Args:
      k: int64[N], 0 <= k < quota.
      quota: int64[N], samples of the document.
      span: int64[N], L - K of the document, at least 0.

    Returns:
      int64[N], 0 <= j <= span // stride.
    """
    starts = np.empty(len(k), np.int64)
    for residue, pick in ragged.by_value(span % self._stride):
      starts[pick] = self._select_residue(
        k[pick], quota[pick], span[pick], residue
      )
    return starts

  def _select_residue(
    self, k: np.ndarray, quota: np.ndarray, span: np.ndarray, residue: int
  ) -> np.ndarray:
    """Returns the starts of samples whose spans have one remainder."""
    left_slope, right_slope = self._slope(1), self._slope(1 + residue)
    num_starts = span // self._stride + 1
    num_left = np.minimum(span // (2 * self._stride) + 1, num_starts)
    num_right = num_starts - num_left
    left_sum = _sum_from_edge(left_slope, num_left)
    total_weight = left_sum + _sum_from_edge(right_slope, num_right)
    target = (2 * k + 1) / (2 * quota) * total_weight
    from_left = _first_above(left_slope, target)
    tail_weight = total_weight - target
    # The last start counted from the right whose tail weight stays below.
    from_right = num_starts - 1 - _last_below(right_slope, tail_weight)
    j = np.where(target < left_sum, from_left, from_right)
    j = np.clip(j, 0, num_starts - 1)

    def cumulative(count: np.ndarray) -> np.ndarray:
      count = np.clip(count, 0, num_starts)
      return np.where(
        count <= num_left,
        _sum_from_edge(left_slope, np.minimum(count, num_left)),
        total_weight - _sum_from_edge(right_slope, num_starts - count),
      )

    margin = np.minimum(
      np.abs(cumulative(j + 1) - target), np.abs(cumulative(j) - target)
    )
    tolerance = (
      _EPSILON * (len(left_slope) + len(right_slope) + 8) * total_weight
    )
    for i in np.flatnonzero(margin < tolerance).tolist():
      j[i] = self._exact_start(
        int(k[i]), int(quota[i]), int(span[i]), int(j[i])
      )
    return j

  def _exact_start(self, k: int, quota: int, span: int, guess: int) -> int:
    """Computes a start near a tie by fractions, from a guess at most 1 off."""
    num_starts = span // self._stride + 1
    target = fractions.Fraction(2 * k + 1, 2 * quota) * self._exact_sum(
      span, num_starts
    )
    j = guess
    while j > 0 and self._exact_sum(span, j) > target:
      j -= 1
    while self._exact_sum(span, j + 1) <= target:
      j += 1
    return j

  def _exact_sum(self, span: int, count: int) -> fractions.Fraction:
    """Returns the exact weight of the first `count` starts."""
    num_starts = span // self._stride + 1
    num_left = min(span // (2 * self._stride) + 1, num_starts)
    count_left = min(count, num_left)
    total = self._exact_from_edge(1, count_left)
    if count > num_left:
      residue = span % self._stride
      total += self._exact_from_edge(1 + residue, num_starts - num_left)
      total -= self._exact_from_edge(1 + residue, num_starts - count)
    return total

  def _exact_from_edge(
    self, first_distance: int, count: int
  ) -> fractions.Fraction:
    """Returns the exact weight of `count` starts from `first_distance` on."""
    steep = min(count, len(self._distances(first_distance)))
    flat = fractions.Fraction(count - steep)
    if self._alpha == 1:
      return self._harmonic(first_distance, 0, steep) + flat
    sums, scale = self._scaled_sums(first_distance)
    return fractions.Fraction(sums[steep], scale) + flat

  def _distances(self, first_distance: int) -> np.ndarray:
    """Returns int64[n], distances from an edge whose weights are above 1."""
    return np.arange(first_distance, self._content_length, self._stride)

  @memo.remembered(64)
  def _scaled_sums(self, first_distance: int) -> tuple[list[int], int]:
    """Returns n + 1 exact sums of the weights above 1, and their scale."""
    weights, scale = powers.scaled_powers(
      self._content_length, self._distances(first_distance), self._alpha
    )
    return list(itertools.accumulate(weights, initial=0)), scale

  @memo.remembered(4096)
  def _harmonic(
    self, first_distance: int, low: int, high: int
  ) -> fractions.Fraction:
    """Sums weights low to high - 1 of a slope whose alpha is 1."""
    # They have no small common scale, so parts of 2**n weights are summed:
    # terms stay small, and sums of different lengths share cached parts.
    count = high - low
    if count <= _MAX_SUMMED:
      distances = self._distances(first_distance)[low:high].tolist()
      return sum(
        (fractions.Fraction(self._content_length, d) for d in distances),
        fractions.Fraction(0),
      )
    middle = low + (1 << (count - 1).bit_length() - 1)
    return self._harmonic(first_distance, low, middle) + self._harmonic(
      first_distance, middle, high
    )

  @memo.remembered(64)
  def _slope(self, first_distance: int) -> np.ndarray:
    """Returns float64[n + 1], sums of the weights above 1 from an edge."""
    if self._alpha == 1:
      weights = self._content_length / self._distances(first_distance)
      return np.concatenate([[0.0], np.cumsum(weights)])
    sums, scale = self._scaled_sums(first_distance)
    return np.asarray([total / scale for total in sums])


def _sum_from_edge(slope: np.ndarray, count: np.ndarray) -> np.ndarray:
  """Returns float64[N], the weight of the first `count` starts from an edge."""
  steep = np.minimum(count, len(slope) - 1)
  return slope[steep] + (count - steep)


def _first_above(slope: np.ndarray, target: np.ndarray) -> np.ndarray:
  """Returns int64[N], the first j whose sum of j + 1 weights is > target."""
  steep = len(slope) - 1
  on_slope = np.searchsorted(slope[1:], target, side="right")
  flat = steep + np.floor(_past_slope(slope, target)).astype(np.int64)
  return np.where(target < slope[-1], on_slope, flat)


def _last_below(slope: np.ndarray, target: np.ndarray) -> np.ndarray:
  """Returns int64[N], the largest m whose sum of m weights is < target."""
  steep = len(slope) - 1
  on_slope = np.searchsorted(slope, target, side="left") - 1
  flat = steep + np.ceil(_past_slope(slope, target)).astype(np.int64) - 1
  return np.where(target <= slope[-1], on_slope, np.maximum(flat, steep))


def _past_slope(slope: np.ndarray, target: np.ndarray) -> np.ndarray:
  """Returns float64[N], the target less the slope's sum, limited to int64."""
  return np.clip(target - slope[-1], 0, 2.0**60)
