# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The merge of a few sources by least consumed, at any place in O(log n).

The next row is taken from the source with the least units over weight. Two
sources of weights 1 and 2 whose rows consume 4 and 6 units:

    level  0    0    6    8    12   16   18
    row    a 0  b 0  b 1  a 1  b 2  a 2  b 3

A row's *level* is the units that its source consumed before it, over the
weight. Rows sorted by (level, tie, source, row) are in the order of the rule.
So the rows below a level are counted with one search in each source's prefix
sums, and the rows from there on are sorted together (`level_order`). One unit
of level is one unit of the source with the greatest weight, so the levels of a
source are at least 1 apart. NumPy only.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import fractions
import functools
import math

import numpy as np

from chomp_data.index import bracketed
from chomp_data.index import hashing
from chomp_data.mix import level_order
from chomp_data.mix import unit_sequence

# So many rows are merged in order rather than skipped by a search.
_WALK = 4_096

# Rows from which the mean units per row of a source are first estimated.
_PROBE = 64

# A lower bound of the mean, so that rows without units cost finite work.
_LEAST_MEAN = 1e-3

# Fractions of units are reduced by common factors with this power of a weight.
_REDUCED = 4

# A row's place in the order: level, tie, source.
Key = tuple[fractions.Fraction, int, int]

# Rows below a level, the level, and each source's first row beyond it.
_Point = tuple[int, int, list[int]]


@dataclasses.dataclass
class Source:
  """A source, the same in all merges that it is part of.

  Attributes:
    sequence: The units of its rows.
    tie_key: 64 bits; rows of equal level are sorted by hashes with it.
    limit: The rows after which it ends, or None.
    mean: An estimate of the units per row of its next rows, None at first. It
      decides how many rows are examined, and has no effect on results.
  """

  sequence: unit_sequence.UnitSequence
  tie_key: int
  limit: int | None
  mean: float | None = None

  def before(self, row: int) -> int:
    """Returns the units before a row."""
    return int(self.sequence.before(np.asarray([row], np.int64))[0])

  def rows_below(self, units: int, near: bool = False) -> int:
    """Returns how many rows have fewer than some units before them.

    Args:
      units: Any number.
      near: Whether an estimate is enough, if the sequence has one without
        examining single rows.
    """
    units = min(max(units, 0), unit_sequence.MOST_UNITS)
    return self.sequence.rows_below(units, near)

  def tie(self, first: int) -> int:
    """Returns the hash that decides between rows of equal level.

    Args:
      first: The first row with the same units before it.
    """
    keys = np.asarray([self.tie_key], np.uint64)
    return int(hashing.fold(keys, np.asarray([first]))[0])


class Merge:
  """Sources merged by least consumed, each from a given row on."""

  def __init__(
    self,
    sources: Sequence[Source],
    weights: Sequence[fractions.Fraction],
    rows: Sequence[int],
    units: Sequence[int],
    overshoots: Sequence[int],
    parts: int = 1,
  ):
    """Defines the order; all arguments but `parts` have one entry per source.

    Args:
      sources: The sources, at least one.
      weights: Their weights, positive.
      rows: The first row of each in the merge.
      units: The units before these rows.
      overshoots: What each has consumed beyond its share, at least 0, in
        fractions of a unit.
      parts: The common denominator of these fractions. Its digits grow from
        stage to stage; a common one needs no greatest common divisors.
    """
    self._sources = list(sources)
    self._first = list(rows)
    self._units = list(units)
    self._weights = whole(weights)
    self._parts = parts
    self._overshoots = list(overshoots)
    heaviest = max(self._weights)
    self._gains = [heaviest / weight for weight in self._weights]
    self._scales: list[level_order.Scale] = []
    for i, weight in enumerate(self._weights):
      common = math.gcd(heaviest, weight)
      gain, under = heaviest // common, weight // common
      # Levels count the units since the first row of the merge.
      ahead = overshoots[i] - units[i] * parts
      self._scales.append(
        level_order.Scale(ahead * gain, gain * parts, under * parts)
      )

  @property
  def num_rows(self) -> int | None:
    """Rows of the merge; None if it has no end."""
    total = 0
    for source, first in zip(self._sources, self._first, strict=True):
      if source.limit is None:
        return None
      total += source.limit - first
    return total

  def _clip(self, source: int, row: int) -> int:
    limit = self._sources[source].limit
    row = max(row, self._first[source])
    return row if limit is None else min(row, limit)

  def key(self, source: int, row: int) -> Key:
    """Returns the sort key of a row; rows of one source may have the same."""
    rows = self._sources[source]
    before = rows.before(row)
    tie = rows.tie(rows.rows_below(before))
    return self._scales[source].level(before), tie, source

  def overshoots(
    self, standing: Mapping[int, int]
  ) -> tuple[dict[int, int], int]:
    """Returns how far each source is beyond the least level among them.

    Args:
      standing: The units before the next row of each source, by source.

    Returns:
      Fractions of a unit by source, and their common denominator.
    """
    ahead, parts = beyond_least(
      [
        self._overshoots[i] + (units - self._units[i]) * self._parts
        for i, units in standing.items()
      ],
      [self._weights[i] for i in standing],
      self._parts,
    )
    return dict(zip(standing, ahead, strict=True)), parts

  def rank(self, source: int, row: int) -> int | None:
    """Returns how many rows of the merge are before a row.

    None if the count, or the units of another source, are beyond 2**62.
    """
    count = row - self._first[source]
    if len(self._sources) == 1:
      return count
    level, tie, _ = self.key(source, row)
    for i, other in enumerate(self._sources):
      if i == source:
        continue
      other_units, rest = self._scales[i].units(*level.as_integer_ratio())
      if other_units >= unit_sequence.MOST_UNITS and other.limit is None:
        return None
      below = other.rows_below(other_units + (rest > 0))
      count += self._clip(i, below) - self._first[i]
      if count >= unit_sequence.MOST_UNITS:
        return None
      if rest == 0 and 0 <= other_units < unit_sequence.MOST_UNITS:
        run = self._clip(i, other.rows_below(other_units + 1)) - self._clip(
          i, below
        )
        if run and (other.tie(below), i) < (tie, source):
          count += run
    return count

  def rows_after(self, count: int) -> list[int]:
    """Returns each source's next row after `count` rows of the merge.

    Args:
      count: At least 0, and at most `num_rows`.

    Raises:
      ValueError: If a source without an end consumes 2**62 units before.
    """
    if count == self.num_rows:
      return [source.limit or 0 for source in self._sources]
    if len(self._sources) == 1:
      return [self._first[0] + count]

    low, high = (0, 0, self._first), None
    if count > _WALK:
      # An estimate that examines no rows bounds the exact search.
      target = count - _WALK // 2
      (_, level, _), _ = self._search(target, _WALK // 4, low, near=True)
      point = self._point(level)
      low, high = (low, point) if point[0] > count else (point, None)
    (before, _, rows), high = self._search(count, _WALK, low, high)
    if high is None and count - before > _WALK:
      raise ValueError(
        "`stages` must begin before 2**62 units are consumed, got a place"
        f" {count} rows after one begins. Begin the next one earlier."
      )
    return self.advance(np.asarray(rows), count - before)[2].tolist()

  def _search(
    self,
    count: int,
    slack: int,
    low: _Point,
    high: _Point | None = None,
    near: bool = False,
  ) -> tuple[_Point, _Point | None]:
    """Searches for a level with about `count` rows below it.

    Args:
      count: The rows.
      slack: How many rows fewer are close enough.
      low: A level with at most `count` rows below it.
      high: A level with more rows below it, or None.
      near: Whether rows are estimated instead of counted.

    Returns:
      The level with at most `count` rows below it, and the least examined
      level with more, or None.
    """
    return bracketed.search(
      lambda level: self._point(level, near),
      lambda point: point[0] <= count,
      lambda point: count - slack // 2 - point[0],
      low,
      high,
      first_step=lambda: int(count / max(math.fsum(self._rates()), 1e-300)),
      last=self._last_level,
      enough=lambda point: count - point[0] <= slack,
    )

  @functools.cached_property
  def _last_level(self) -> int | None:
    """The last level with units below 2**62; None if all sources end."""
    levels = [
      math.floor(scale.level(unit_sequence.MOST_UNITS))
      for source, scale in zip(self._sources, self._scales, strict=True)
      if source.limit is None
    ]
    return min(levels, default=None)

  def _point(self, level: int, near: bool = False) -> _Point:
    """Returns the rows below a level, counted or estimated."""
    rows = []
    for i, (source, scale) in enumerate(
      zip(self._sources, self._scales, strict=True)
    ):
      units, rest = scale.units(level)
      below = source.rows_below(units + (rest > 0), near)
      rows.append(self._clip(i, below))
    return sum(rows) - sum(self._first), level, rows

  def _rates(self, rows: Sequence[int] | None = None) -> list[float]:
    """Returns about how many rows each source has in one unit of level.

    Args:
      rows: Each source's next row; None is its first row in the merge.
    """
    return [self._rate(i, row) for i, row in enumerate(rows or self._first)]

  def _rate(self, number: int, row: int) -> float:
    source = self._sources[number]
    end = self._clip(number, row + _PROBE)
    if end == row:
      return 0.0
    mean = source.mean
    if mean is None:
      low, high = source.sequence.before(np.asarray([row, end])).tolist()
      mean = source.mean = (high - low) / (end - row)
    return 1 / (max(mean, _LEAST_MEAN) * self._gains[number])

  def advance(
    self, rows: np.ndarray, count: int
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the next rows of the merge.

    Args:
      rows: int64[S], each source's next row.
      count: How many rows are wanted.

    Returns:
      Sources int32[N] and their rows int64[N], with N the smaller of `count`
      and the rows that are left, and int64[S], each source's next row after
      them.
    """
    rows = np.array(rows, np.int64)
    if len(self._sources) == 1:
      # The rows of a single source come in order, whatever they consume.
      first = int(rows[0])
      last = self._clip(0, first + count)
      alone = np.arange(first, last)
      return np.zeros(len(alone), np.int32), alone, np.asarray([last])
    parts = [(np.zeros(0, np.int32), np.zeros(0, np.int64))]
    while count > 0:
      upcoming = self._upcoming(rows.tolist(), count)
      if not upcoming:
        break
      source, row = level_order.first_rows(upcoming, count)
      rows += np.bincount(source, minlength=len(rows))
      count -= len(source)
      parts.append((source, row))
    sources, source_rows = map(np.concatenate, zip(*parts, strict=True))
    return sources, source_rows, rows

  def _upcoming(
    self, rows: list[int], wanted: int
  ) -> list[level_order.Upcoming]:
    """Returns about as many next rows of each source as will be merged."""
    rates = self._rates(rows)
    span = wanted / max(math.fsum(rates), 1e-300)
    upcoming = []
    for i, row in enumerate(rows):
      num_left = self._clip(i, row + wanted) - row
      if not num_left:
        continue
      # With a margin: the first source without further rows ends the piece.
      need = min(rates[i] * span, wanted)
      size = min(num_left, int(need + 4 * math.sqrt(need)) + 4)
      upcoming.append(self._next(i, row, size))
    return upcoming

  def _next(self, number: int, row: int, size: int) -> level_order.Upcoming:
    # Include the row before, to see whether it belongs to a run of rows without
    # units that continues here.
    lead = min(row, 1)
    source = self._sources[number]
    before = source.sequence.before(
      np.arange(row - lead, row + size + 1, dtype=np.int64)
    )
    run_row = row
    if lead and before[0] == before[1]:
      run_row = source.rows_below(int(before[1]))
    before = before[lead:]
    source.mean = int(before[-1] - before[0]) / size
    is_all = row + size == source.limit
    return level_order.Upcoming(
      number,
      self._scales[number],
      source.tie_key,
      row,
      run_row,
      before[:-1] if is_all else before,
      is_all,
    )


def beyond_least(
  consumed: Sequence[int], weights: Sequence[int], parts: int
) -> tuple[list[int], int]:
  """Returns how far each source is beyond the least level among them.

  Args:
    consumed: What each source consumed, in fractions of a unit.
    weights: Integer weights by source.
    parts: The common denominator of these fractions.

  Returns:
    The excess of each source in fractions of a unit, and their new common
    denominator.
  """
  if not consumed:
    return [], 1
  least, weight = consumed[0], weights[0]
  for units, other_weight in zip(consumed[1:], weights[1:], strict=True):
    if units * weight < least * other_weight:
      least, weight = units, other_weight
  ahead = [
    units * weight - least * other_weight
    for units, other_weight in zip(consumed, weights, strict=True)
  ]
  parts *= weight
  # This removes most of the digits that a stage adds; a greatest common divisor
  # with a small number is cheap.
  common = math.gcd(weight**_REDUCED, parts, *ahead)
  return [units // common for units in ahead], parts // common


def whole(weights: Sequence[fractions.Fraction | int]) -> list[int]:
  """Returns the smallest integers in the same proportion as the weights."""
  under = math.lcm(*(weight.denominator for weight in weights))
  numbers = [
    weight.numerator * (under // weight.denominator) for weight in weights
  ]
  common = math.gcd(*numbers)
  return [number // common for number in numbers]
