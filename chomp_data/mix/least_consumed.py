# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The merge of a few sources by least consumed, at any place in O(log n).

The next row is that of the source with the least units over weight. Two
sources of weights 1 and 2 whose rows consume 4 and 6 units:

    level  0    0    6    8    12   16   18
    row    a 0  b 0  b 1  a 1  b 2  a 2  b 3

A row's *level* is what its source consumed before it, over the weight; the
rows in order of (level, tie, source, row) are what the greedy rule takes. So
the rows before a level are counted by one search in each source's prefix sums,
and the rows from there on are sorted in one piece (`level_order`). One unit of
level is one unit of the heaviest source, so the levels of one source are at
least 1 apart. NumPy only.
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

# Rows that are walked rather than searched for.
_WALK = 4_096

# Rows of a source from which its mean is estimated first.
_PROBE = 64

# A mean of no units would ask for rows without end.
_LEAST_MEAN = 1e-3

# Powers of a weight that parts of units are reduced by.
_REDUCED = 4

# A row's place in the order: level, tie, source.
Key = tuple[fractions.Fraction, int, int]

# Rows below a level, the level, and each source's first row beyond it.
_Point = tuple[int, int, list[int]]


@dataclasses.dataclass
class Source:
  """What a source is in every merge that it is part of.

  Attributes:
    sequence: Units of its rows.
    tie_key: 64 bits; rows of one level go by their hashes.
    limit: The rows after which it ends, or None.
    mean: About what its next rows consume each, None before the first look.
      It decides how many rows are looked at, never what comes out.
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
      near: Whether about so many will do, where the sequence knows them
        without a look at single rows.
    """
    units = min(max(units, 0), unit_sequence.MOST_UNITS)
    return self.sequence.rows_below(units, near)

  def tie(self, first: int) -> int:
    """Returns what decides between rows of one level.

    Args:
      first: The first row with as many units before it.
    """
    keys = np.asarray([self.tie_key], np.uint64)
    return int(hashing.fold(keys, np.asarray([first]))[0])


class Merge:
  """Sources merged by least consumed, from where each of them stands."""

  def __init__(
    self,
    sources: Sequence[Source],
    weights: Sequence[fractions.Fraction],
    rows: Sequence[int],
    units: Sequence[int],
    overshoots: Sequence[int],
    parts: int = 1,
  ):
    """Fixes the order; everything is by source.

    Args:
      sources: At least one.
      weights: Positive.
      rows: The first row that each gives.
      units: The units before these rows.
      overshoots: Parts of units that each has consumed beyond its share, at
        least 0.
      parts: The parts of a unit. They have more digits from stage to stage;
        one number for all sources costs no greatest divisors.
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
      # Parts of units that are no units of this merge.
      ahead = overshoots[i] - units[i] * parts
      self._scales.append(
        level_order.Scale(ahead * gain, gain * parts, under * parts)
      )

  @property
  def num_rows(self) -> int | None:
    """Rows that the sources give from here on; None is without end."""
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
    """Returns what orders a row; rows of one source may share it."""
    rows = self._sources[source]
    before = rows.before(row)
    tie = rows.tie(rows.rows_below(before))
    return self._scales[source].level(before), tie, source

  def overshoots(
    self, standing: Mapping[int, int]
  ) -> tuple[dict[int, int], int]:
    """Returns by how much sources are beyond the least level of them.

    Args:
      standing: The units before the row that a source is at, by source.

    Returns:
      Parts of units of each, and the parts of a unit.
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
    """Returns how many rows come before a row, from the merge's start on.

    None where the count, or the units of another source, are beyond 2**62.
    """
    count = row - self._first[source]
    if len(self._sources) == 1:
      return count
    level, tie, _ = self.key(source, row)
    for i, other in enumerate(self._sources):
      if i == source:
        continue
      there, rest = self._scales[i].units(*level.as_integer_ratio())
      if there >= unit_sequence.MOST_UNITS and other.limit is None:
        return None
      below = other.rows_below(there + (rest > 0))
      count += self._clip(i, below) - self._first[i]
      if count >= unit_sequence.MOST_UNITS:
        return None
      if rest == 0 and 0 <= there < unit_sequence.MOST_UNITS:
        run = self._clip(i, other.rows_below(there + 1)) - self._clip(i, below)
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
      # An estimate that looks at no row says where to search exactly.
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
    """Returns a level with at most some rows below it, and the next one known.

    Args:
      count: The rows.
      slack: How many rows fewer will do.
      low: A level with at most so many rows below it.
      high: A level with more, or None.
      near: Whether rows are counted about, not exactly.
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
    """The last level up to which all units are counted, None without end."""
    levels = [
      math.floor(scale.level(unit_sequence.MOST_UNITS))
      for source, scale in zip(self._sources, self._scales, strict=True)
      if source.limit is None
    ]
    return min(levels, default=None)

  def _point(self, level: int, near: bool = False) -> _Point:
    """Returns the rows below a level, exactly or about."""
    rows = []
    for i, (source, scale) in enumerate(
      zip(self._sources, self._scales, strict=True)
    ):
      units, rest = scale.units(level)
      below = source.rows_below(units + (rest > 0), near)
      rows.append(self._clip(i, below))
    return sum(rows) - sum(self._first), level, rows

  def _rates(self, rows: Sequence[int] | None = None) -> list[float]:
    """Returns about how many rows each source gives in one unit of level.

    Args:
      rows: Each source's next row; None is the first of the merge.
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
      Sources int32[N] and their rows int64[N], N = `count` or as many as are
      left, and int64[S], each source's next row after them.
    """
    rows = np.array(rows, np.int64)
    if len(self._sources) == 1:
      # A source alone gives its rows one after the other, whatever they hold.
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
    """Returns rows of each source that has not ended, about those wanted."""
    rates = self._rates(rows)
    span = wanted / max(math.fsum(rates), 1e-300)
    out = []
    for i, row in enumerate(rows):
      left = self._clip(i, row + wanted) - row
      if not left:
        continue
      # A margin, since the source that runs out first ends the piece.
      need = min(rates[i] * span, wanted)
      size = min(left, int(need + 4 * math.sqrt(need)) + 4)
      out.append(self._next(i, row, size))
    return out

  def _next(self, number: int, row: int, size: int) -> level_order.Upcoming:
    # One row before, which tells whether a run without units goes on.
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
  """Returns by how much sources are beyond the least level of them.

  Args:
    consumed: Parts of units by source.
    weights: By source, whole numbers.
    parts: The parts of a unit.

  Returns:
    Parts of units by source, and the parts of a unit, which are others.
  """
  if not consumed:
    return [], 1
  least, weight = consumed[0], weights[0]
  for units, other in zip(consumed[1:], weights[1:], strict=True):
    if units * weight < least * other:
      least, weight = units, other
  ahead = [
    units * weight - least * other
    for units, other in zip(consumed, weights, strict=True)
  ]
  parts *= weight
  # Of the digits that a stage adds most go again; a greatest divisor with a
  # small number is cheap.
  common = math.gcd(weight**_REDUCED, parts, *ahead)
  return [units // common for units in ahead], parts // common


def whole(weights: Sequence[fractions.Fraction | int]) -> list[int]:
  """Returns weights in proportion, as small whole numbers."""
  under = math.lcm(*(weight.denominator for weight in weights))
  numbers = [
    weight.numerator * (under // weight.denominator) for weight in weights
  ]
  common = math.gcd(*numbers)
  return [number // common for number in numbers]
