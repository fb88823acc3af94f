# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Sorts the next rows of a few sources by level, tie, source and row, exactly.

A row's level is (alpha + beta P) / delta for the P units before it. Levels are
rounded down to int64 keys with a known error bound, and sorted. Rows of
different sources whose keys differ by less than the bound are then sorted by
their ties if only equal levels can be so close, otherwise by exact fractions.
NumPy only.
"""

from collections.abc import Sequence
import dataclasses
import fractions
import math

import numpy as np

from chomp_data.index import hashing

# Keys stay below 2**61, so that sums of two stay below 2**63.
_KEY_BITS = 61
_CLAMP = 2**62

# A margin for rounding where float64 decides which rows are sorted.
_SLACK = 1 + 1e-9


@dataclasses.dataclass(frozen=True)
class Scale:
  """The level of each number of units of a source, (alpha + beta P) / delta."""

  alpha: int
  beta: int
  delta: int

  def level(self, before: int) -> fractions.Fraction:
    """Returns the level of a row with some units before it."""
    return fractions.Fraction(self.alpha + self.beta * before, self.delta)

  def units(self, level: int, over: int = 1) -> tuple[int, int]:
    """Returns the units at the level `level / over`, rounded down, and a rest.

    The rest is 0 if the units are exact.
    """
    return divmod(level * self.delta - self.alpha * over, self.beta * over)

  @property
  def gain(self) -> float:
    """The difference in level of one unit."""
    return self.beta / self.delta


@dataclasses.dataclass(frozen=True)
class Upcoming:
  """The next rows of a source.

  Attributes:
    source: The number of the source.
    scale: The scale of its levels.
    tie_key: Key of the hash that decides between equal levels.
    row: The first of the rows.
    run_row: The first row of the source with the same units before it as `row`.
    before: int64[N], the units before each row.
    is_all: Whether the source has no rows after these. If not, the last one is
      not returned; it bounds which rows of other sources are.
  """

  source: int
  scale: Scale
  tie_key: int
  row: int
  run_row: int
  before: np.ndarray
  is_all: bool


def first_rows(
  upcoming: Sequence[Upcoming], wanted: int
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the rows that come first, as far as the given rows determine it.

  Args:
    upcoming: The next rows by source, sorted by source; at least one source,
      and of each at least one row that may be returned.
    wanted: The most rows to return, at least 1.

  Returns:
    Sources int32[N] and their rows int64[N], in order, N in 1 .. `wanted`.
  """
  return _Table(upcoming).ordered(wanted)


class _Table:
  """The rows that may be returned, of all sources, sorted by source."""

  def __init__(self, upcoming: Sequence[Upcoming]):
    # Numerators of the first levels, relative to an integer below all levels.
    tops = [
      rows.scale.alpha + rows.scale.beta * int(rows.before[0])
      for rows in upcoming
    ]
    self._deltas = [rows.scale.delta for rows in upcoming]
    pairs = list(zip(tops, self._deltas, strict=True))
    base = min(top // delta for top, delta in pairs)
    self._tops = [top - base * delta for top, delta in pairs]
    # No row after the first bound is returned.
    firsts = [t / d for t, d in zip(self._tops, self._deltas, strict=True)]
    units_since = [rows.before - rows.before[0] for rows in upcoming]
    lasts = [
      first + int(units[-1]) * rows.scale.gain
      for first, units, rows in zip(firsts, units_since, upcoming, strict=True)
    ]
    bounds = [
      last
      for last, rows in zip(lasts, upcoming, strict=True)
      if not rows.is_all
    ]
    highest = min(bounds, default=math.inf) * _SLACK
    for i, rows in enumerate(upcoming):
      if lasts[i] > highest:
        most_units = int((highest - firsts[i]) / rows.scale.gain)
        units_since[i] = units_since[i][
          : units_since[i].searchsorted(most_units, "right")
        ]
    self._highest = min(highest, max(lasts))
    self._upcoming = upcoming
    self._counts = np.asarray([len(units) for units in units_since])
    self._first_places = np.cumsum(self._counts) - self._counts
    self._units_since = np.concatenate(units_since)
    self._first_rows = np.asarray([rows.row for rows in upcoming])
    # Sources whose last row here is a bound.
    self._bounds = np.asarray(
      [
        len(units) == len(rows.before) and not rows.is_all
        for units, rows in zip(units_since, upcoming, strict=True)
      ]
    )

  def ordered(self, wanted: int) -> tuple[np.ndarray, np.ndarray]:
    bits = _KEY_BITS - max(0, math.frexp(self._highest)[1])
    scales, places, error = self._key_scales(bits)
    sources = np.asarray([rows.source for rows in self._upcoming], np.int32)
    # Different levels differ by at least 1 over the product of denominators.
    finest = math.prod(sorted(self._deltas)[-2:])
    ties_suffice = bits > 0 and 2**bits > 2 * error * finest
    lane = np.repeat(np.arange(len(sources)), self._counts)
    keys = np.repeat(scales[0], self._counts)
    keys += self._units_since * np.repeat(scales[1], self._counts)
    keys += (self._units_since * np.repeat(scales[2], self._counts)) >> places
    order = np.argsort(keys, kind="stable")
    order = self._tie_broken(lane, order, keys, error, ties_suffice)
    is_bound = np.zeros(len(lane), np.bool_)
    is_bound[(self._first_places + self._counts - 1)[self._bounds]] = True
    bounds = np.flatnonzero(is_bound[order])
    chosen = order[: min(wanted, int(bounds[0])) if len(bounds) else wanted]
    lane = lane[chosen]
    return sources[lane], chosen + (self._first_rows - self._first_places)[lane]

  def _key_scales(self, bits: int) -> tuple[np.ndarray, int, int]:
    """Returns the integers by which levels times 2**bits are rounded down.

    A key is scales[0] + units * scales[1] + (units * scales[2] >> places) for
    the units since the first row of the source.

    Args:
      bits: Binary places of the level that keys keep.

    Returns:
      `scales` int64[3, S], `places`, and a bound of the rounding error.
    """
    most_units = int(self._units_since.max())
    places = _KEY_BITS + 1 - most_units.bit_length()
    heads, wholes, parts = [], [], []
    for rows, top in zip(self._upcoming, self._tops, strict=True):
      fine = _scaled(rows.scale.beta, rows.scale.delta, bits + places)
      # Rows beyond the clamp come too late to be returned.
      heads.append(min(_scaled(top, rows.scale.delta, bits), _CLAMP))
      wholes.append(min(fine >> places, _CLAMP))
      parts.append(fine & ((1 << places) - 1))
    # Below 1 for the head, 1 for the shift, and used / 2**places for parts.
    return (
      np.asarray([heads, wholes, parts]),
      places,
      3 + (most_units >> places),
    )

  def _tie_broken(
    self,
    lane: np.ndarray,
    order: np.ndarray,
    keys: np.ndarray,
    error: int,
    ties_suffice: bool,
  ) -> np.ndarray:
    """Returns the order with rows of nearly equal keys sorted exactly."""
    near = np.diff(keys[order]) < error
    if not near.any():
      return order
    source = lane[order]
    mixed = near & (source[1:] != source[:-1])
    if not mixed.any():
      return order
    cluster = np.concatenate([[0], np.cumsum(~near)])
    is_mixed = np.zeros(int(cluster[-1]) + 1, bool)
    is_mixed[cluster[1:][mixed]] = True
    members = np.flatnonzero(is_mixed[cluster])
    flat, cluster = order[members], cluster[members]
    ties = self._ties(lane, flat)
    if ties_suffice:
      places = np.lexsort((flat, ties, cluster))
    else:
      arrays = (
        cluster.tolist(),
        self._exact(lane, flat),
        ties.tolist(),
        flat.tolist(),
      )
      exact = list(zip(*arrays, strict=True))
      places = np.asarray(sorted(range(len(exact)), key=exact.__getitem__))
    order = order.copy()
    order[members] = order[members][places]
    return order

  def _exact(
    self, lane: np.ndarray, flat: np.ndarray
  ) -> list[fractions.Fraction]:
    """Returns the exact levels of rows."""
    betas = [rows.scale.beta for rows in self._upcoming]
    return [
      fractions.Fraction(self._tops[i] + betas[i] * units, self._deltas[i])
      for i, units in zip(
        lane[flat].tolist(), self._units_since[flat].tolist(), strict=True
      )
    ]

  def _ties(self, lane: np.ndarray, flat: np.ndarray) -> np.ndarray:
    """Returns uint64[N], tie hashes: equal within a run of equal levels."""
    starts_run = np.ones(len(self._units_since), bool)
    starts_run[1:] = self._units_since[1:] != self._units_since[:-1]
    has_rows = self._counts > 0
    first_places = self._first_places[has_rows]
    starts_run[first_places] = True
    first = np.maximum.accumulate(
      np.where(starts_run, np.arange(len(starts_run)), 0)
    )
    rows = (
      np.arange(len(starts_run)) + (self._first_rows - self._first_places)[lane]
    )
    rows[first_places] = self._run_rows()[has_rows]
    return hashing.fold(self._tie_keys()[lane[flat]], rows[first[flat]])

  def _tie_keys(self) -> np.ndarray:
    return np.asarray([rows.tie_key for rows in self._upcoming], np.uint64)

  def _run_rows(self) -> np.ndarray:
    return np.asarray([rows.run_row for rows in self._upcoming])


def _scaled(over: int, under: int, bits: int) -> int:
  """Returns floor(over / under * 2**bits)."""
  if bits >= 0:
    return (over << bits) // under
  return over // (under << -bits)
