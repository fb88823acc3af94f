# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Deals the rows of a batch to shards of nearly equal cost.

    costs 9 8 4 1, 2 shards    shard 0: rows 0 and 3, shard 1: rows 1 and 2

Every shard gets the same number of rows. Rows are dealt from the costliest on,
in rounds of one row per shard; the costliest row of a round goes to the shard
of least cost. If some rows are so costly that their shards are the slowest even
with the cheapest rows, the cheapest rows are reserved for them. Then pairs of a
slow and a fast shard exchange a row each. Ties go to the lower row and shard.
NumPy only.
"""

import numpy as np

# Slowest over mean shard, of lognormal rows at S = 8,192, 8 and 64 shards of 4,
# after rounds and each sweep. Packed: 1.062, 1.038, 1.032, 1.028 and 1.042,
# 1.031, 1.028, 1.025; a fourth would give 0.002. Sequential, whose bounds are
# 1.079 and 1.074: 1.118, 1.097, 1.093, 1.090 and 1.130, 1.094, 1.090, 1.089.
# One sweep costs 0.02 ms of 1,024 rows.
_SWEEPS = 3

# No exchange where the slowest shard is within this factor of its lower bound.
_GOOD = 1.02

# The cheapest rows are reserved for costly rows whose bound is within this
# factor of the largest one.
_DECIDING = 0.995


def helps(size: int, shards: int) -> bool:
  """Returns whether the cost of shards depends on the deal.

  Args:
    size: Rows of a batch.
    shards: The number of shards.
  """
  return 1 < shards < size


def bound(costs: np.ndarray, shards: int) -> np.ndarray:
  """Returns lower bounds of the cost of the slowest shard.

  Args:
    costs: int64[M, B], as in `deal`.
    shards: As in `deal`.

  Returns:
    float64[M], in the unit of costs.
  """
  by_cost = -np.sort(-costs, axis=1)
  mean = costs.sum(axis=1) / shards
  return np.maximum(mean, _bounds(by_cost, shards).max(axis=1))


def deal(costs: np.ndarray, shards: int) -> np.ndarray:
  """Deals the rows of batches to shards by their cost.

  Args:
    costs: int64[M, B], at least 0, of the rows of M batches.
    shards: Shards of each batch; divides B.

  Returns:
    int64[M, B], rows by place: shard s has the B / shards places from
    s * B / shards on, its rows ascending.
  """
  num_batches, size = costs.shape
  if not helps(size, shards):
    return np.broadcast_to(np.arange(size), costs.shape)
  order = np.argsort(-costs, axis=1, kind="stable")
  by_cost = np.take_along_axis(costs, order, 1)
  bounds = _bounds(by_cost, shards)
  total, slowest = by_cost.sum(axis=1), bounds.max(axis=1)
  # How many shards set the bound, by batch.
  near = bounds >= _DECIDING * slowest[:, None]
  deciding = shards - near[:, ::-1].argmax(axis=1)
  deciding = np.where(slowest * shards > total, deciding, 0)[:, None]
  sums = by_cost[:, :shards].copy()
  if deciding.any():
    round_order = _reserving_order(deciding, shards, size)
    order, by_cost = (
      np.take_along_axis(values, round_order, 1) for values in (order, by_cost)
    )
    # In each round they come last, and get the reserved rows.
    reserved = np.where(np.arange(shards) < deciding, total[:, None], 0)
  else:
    reserved = 0
  # Indices into `by_cost`, [M, shards, rows of a shard].
  shard_rows = np.empty((num_batches, shards, size // shards), np.int64)
  shard_rows[:, :, 0] = np.arange(shards)
  batch = np.arange(num_batches)[:, None]
  sums += reserved
  for number in range(1, size // shards):
    low = np.argsort(sums, axis=1, kind="stable")
    first = number * shards
    shard_rows[batch, low, number] = np.arange(first, first + shards)
    sums[batch, low] += by_cost[:, first : first + shards]
  sums -= reserved
  least = np.maximum(slowest, total / shards)
  _exchange(shard_rows, by_cost[batch[..., None], shard_rows], sums, least)
  rows = order[batch[..., None], shard_rows]
  rows.sort(axis=2)
  return rows.reshape(costs.shape)


def _bounds(by_cost: np.ndarray, shards: int) -> np.ndarray:
  """Returns lower bounds of the slowest shard from the k costliest rows.

  Either each of these rows is in another shard, with at least the cheapest rows
  beside it, and the slowest of these shards costs at least their mean; or two
  of them share a shard.

  Args:
    by_cost: int64[M, B], descending.
    shards: Shards of each batch.

  Returns:
    float64[M, shards], for k = 1 .. shards.
  """
  size = by_cost.shape[1]
  others = size // shards - 1
  prefix_sums = np.cumsum(by_cost, axis=1)
  count = np.arange(1, shards + 1)
  cheapest = prefix_sums[:, -1:] - prefix_sums[:, size - 1 - others * count]
  bounds = (prefix_sums[:, :shards] + cheapest) / count
  if others:
    shared = by_cost[:, : shards - 1] + by_cost[:, 1:shards]
    shared += (prefix_sums[:, -1] - prefix_sums[:, size - others])[:, None]
    bounds[:, 1:] = np.minimum(bounds[:, 1:], shared)
  return bounds


def _reserving_order(
  num_reserved: np.ndarray, shards: int, size: int
) -> np.ndarray:
  """Returns the order in which rows are dealt, by rank of cost, int64[M, B].

  The costliest rows are first in the first round; their shards are last in the
  other rounds, which end with the reserved, cheapest rows.

      2 shards of 3 rows, one reserves    0 1 | 2 4 | 3 5

  Args:
    num_reserved: int64[M, 1], shards with reserved rows, fewer than `shards`.
    shards: Shards of a batch.
    size: Rows of a batch.
  """
  count = size // shards
  round_number, at = np.arange(count)[:, None], np.arange(shards)
  num_reserved = num_reserved[..., None]
  others = shards - num_reserved
  order = at + np.where(
    at < others,
    num_reserved + round_number * others,
    size - (count - round_number) * num_reserved - others,
  )
  order[:, 0] = at
  return order.reshape(len(num_reserved), size)


def _exchange(
  seats: np.ndarray, costs: np.ndarray, sums: np.ndarray, least: np.ndarray
) -> None:
  """Exchanges rows between costly shards and cheap ones, in place.

  Args:
    seats: int64[M, shards, N], the rows of shards.
    costs: int64[M, shards, N], their costs.
    sums: int64[M, shards], sums of `costs`.
    least: float64[M], lower bounds of the slowest shard.
  """
  _, shards, num = seats.shape
  # Flat views: shards of all batches, rows of all shards.
  of_shard, by_seat = sums.reshape(-1), costs.reshape(-1)
  costs, seats = costs.reshape(-1, num), seats.reshape(-1)
  for sweep in range(_SWEEPS):
    slow_batches = np.flatnonzero(sums.max(axis=1) > _GOOD * least)
    if not len(slow_batches):
      return
    order = np.argsort(sums[slow_batches], axis=1, kind="stable")
    order += slow_batches[:, None] * shards
    low, high = order[:, : shards // 2], order[:, ::-1][:, : shards // 2]
    # Other pairs in each sweep: earlier pairs are already nearly equal.
    low = np.roll(low, sweep * shards // 4, axis=1)
    low, high = low.reshape(-1), high.reshape(-1)
    gap = of_shard[high] - of_shard[low]
    # The cost that moves if two rows are exchanged: half of the gap is best,
    # and anything between 0 and the gap is an improvement.
    off = costs[high][:, :, None] - costs[low][:, None]
    off *= 2
    off -= gap[:, None, None]
    off = np.abs(off, out=off).reshape(len(gap), -1)
    best_pair = off.argmin(axis=1)
    improving = np.flatnonzero(off[np.arange(len(gap)), best_pair] < gap)
    high_row, low_row = np.divmod(best_pair[improving], num)
    high, low = high[improving], low[improving]
    high_seat, low_seat = high * num + high_row, low * num + low_row
    change = by_seat[high_seat] - by_seat[low_seat]
    of_shard[high] -= change
    of_shard[low] += change
    for values in (seats, by_seat):
      values[high_seat], values[low_seat] = values[low_seat], values[high_seat]
