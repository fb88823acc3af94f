# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of a batch dealt to shards so that shards cost alike.

    costs 9 8 4 1, 2 shards    shard 0: rows 0 and 3, shard 1: rows 1 and 2

Every shard gets the same number of rows. The costliest rows go first, in
rounds of one row for each shard, the costliest of a round to the shard that
has least. Where some are so costly that their shards are the slowest even
beside the cheapest rows, these are kept for them. Then pairs of a slow and a
fast shard exchange a row each. Ties go to the lower row and shard. NumPy only.
"""

import numpy as np

# Mean slowest over mean of lognormal rows at S = 8,192, 8 and 64 shards of 4,
# after rounds and each sweep. Packed: 1.062, 1.038, 1.032, 1.028 and 1.042,
# 1.031, 1.028, 1.025; a fourth would give 0.002. Sequential, whose bounds are
# 1.079 and 1.074: 1.118, 1.097, 1.093, 1.090 and 1.130, 1.094, 1.090, 1.089.
# One sweep costs 0.02 ms of 1,024 rows.
_SWEEPS = 3

# A batch is left as it is where its slowest shard is within this of what it
# has to be.
_GOOD = 1.02

# The cheapest rows are kept for as many as are within this of deciding.
_DECIDING = 0.995


def helps(size: int, shards: int) -> bool:
  """Returns whether it matters which shard has which rows.

  Args:
    size: Rows of a batch.
    shards: Over how many shards.
  """
  return 1 < shards < size


def bound(costs: np.ndarray, shards: int) -> np.ndarray:
  """Returns below which no deal brings the slowest shard.

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
    shards: Of each batch; divides B.

  Returns:
    int64[M, B], which row stands where: shard s holds the places s * B / shards
    and after, its rows in ascending order.
  """
  num_batches, size = costs.shape
  if not helps(size, shards):
    return np.broadcast_to(np.arange(size), costs.shape)
  order = np.argsort(-costs, axis=1, kind="stable")
  by_cost = np.take_along_axis(costs, order, 1)
  bounds = _bounds(by_cost, shards)
  whole, slowest = by_cost.sum(axis=1), bounds.max(axis=1)
  # How many shards decide, by batch.
  near = bounds >= _DECIDING * slowest[:, None]
  deciding = shards - near[:, ::-1].argmax(axis=1)
  deciding = np.where(slowest * shards > whole, deciding, 0)[:, None]
  sums = by_cost[:, :shards].copy()
  if deciding.any():
    turn = _kept(deciding, shards, size)
    order, by_cost = (
      np.take_along_axis(own, turn, 1) for own in (order, by_cost)
    )
    # In rounds they come after all others, to what was kept.
    late = np.where(np.arange(shards) < deciding, whole[:, None], 0)
  else:
    late = 0
  # Indices into `by_cost`, [M, shards, rows of a shard].
  seats = np.empty((num_batches, shards, size // shards), np.int64)
  seats[:, :, 0] = np.arange(shards)
  batch = np.arange(num_batches)[:, None]
  sums += late
  for number in range(1, size // shards):
    low = np.argsort(sums, axis=1, kind="stable")
    first = number * shards
    seats[batch, low, number] = np.arange(first, first + shards)
    sums[batch, low] += by_cost[:, first : first + shards]
  sums -= late
  least = np.maximum(slowest, whole / shards)
  _exchange(seats, by_cost[batch[..., None], seats], sums, least)
  rows = order[batch[..., None], seats]
  rows.sort(axis=2)
  return rows.reshape(costs.shape)


def _bounds(by_cost: np.ndarray, shards: int) -> np.ndarray:
  """Returns below which no deal is for the k costliest rows of batches.

  Each in a shard of its own, they have at least the cheapest rows beside them,
  and the slowest of these shards costs their mean; or two of them share one.

  Args:
    by_cost: int64[M, B], descending.
    shards: Of each batch.

  Returns:
    float64[M, shards], for k = 1 and more.
  """
  size = by_cost.shape[1]
  beside = size // shards - 1
  until = np.cumsum(by_cost, axis=1)
  count = np.arange(1, shards + 1)
  cheapest = until[:, -1:] - until[:, size - 1 - beside * count]
  found = (until[:, :shards] + cheapest) / count
  if beside:
    shared = by_cost[:, : shards - 1] + by_cost[:, 1:shards]
    shared += (until[:, -1] - until[:, size - beside])[:, None]
    found[:, 1:] = np.minimum(found[:, 1:], shared)
  return found


def _kept(deciding: np.ndarray, shards: int, size: int) -> np.ndarray:
  """Returns which row, by cost, is in which place of rounds, int64[M, B].

  The costliest rows of shards that decide are first in the first round and last
  in the others, where the cheapest rows are.

      2 shards of 3, one decides    0 1 | 2 4 | 3 5

  Args:
    deciding: int64[M, 1], how many shards do, below all.
    shards: Of a batch.
    size: Rows of a batch.
  """
  count = size // shards
  number, at = np.arange(count)[:, None], np.arange(shards)
  others, deciding = shards - deciding[..., None], deciding[..., None]
  turn = at + np.where(
    at < others,
    deciding + number * others,
    size - (count - number) * deciding - others,
  )
  turn[:, 0] = at
  return turn.reshape(len(deciding), size)


def _exchange(
  seats: np.ndarray, costs: np.ndarray, sums: np.ndarray, least: np.ndarray
) -> None:
  """Exchanges rows between costly shards and cheap ones, in place.

  Args:
    seats: int64[M, shards, N], which rows shards have.
    costs: int64[M, shards, N], theirs.
    sums: int64[M, shards], of `costs`.
    least: float64[M], below which no slowest shard is.
  """
  _, shards, num = seats.shape
  # By number: of a shard among those of all batches, of a seat among all.
  of_shard, by_seat = sums.reshape(-1), costs.reshape(-1)
  costs, seats = costs.reshape(-1, num), seats.reshape(-1)
  for sweep in range(_SWEEPS):
    left = np.flatnonzero(sums.max(axis=1) > _GOOD * least)
    if not len(left):
      return
    order = np.argsort(sums[left], axis=1, kind="stable")
    order += left[:, None] * shards
    low, high = order[:, : shards // 2], order[:, ::-1][:, : shards // 2]
    # Others than before: pairs that met have little left to give each other.
    low = np.roll(low, sweep * shards // 4, axis=1)
    low, high = low.reshape(-1), high.reshape(-1)
    gap = of_shard[high] - of_shard[low]
    # What moves if a row of the one goes for a row of the other: half of the
    # gap is best, and anything between nothing and the gap is better.
    off = costs[high][:, :, None] - costs[low][:, None]
    off *= 2
    off -= gap[:, None, None]
    off = np.abs(off, out=off).reshape(len(gap), -1)
    best = off.argmin(axis=1)
    better = np.flatnonzero(off[np.arange(len(gap)), best] < gap)
    given, got = np.divmod(best[better], num)
    high, low = high[better], low[better]
    one, other = high * num + given, low * num + got
    change = by_seat[one] - by_seat[other]
    of_shard[high] -= change
    of_shard[low] += change
    for values in (seats, by_seat):
      values[one], values[other] = values[other], values[one]
