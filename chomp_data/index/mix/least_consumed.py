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

Source: seed 001, "Interleave Policy".
"""

import bisect
from collections.abc import Sequence
import fractions
import functools
import math

import numpy as np

from chomp_data.index import bracketed
from chomp_data.index import gradual
from chomp_data.index import hashing
from chomp_data.index.mix import level_order
from chomp_data.index.mix import unit_sums

# Rows that are walked rather than searched for.
_WALK = 4_096

# Rows of a source looked at where nothing is known of it yet.
_PROBE = 64

# A mean of no units would ask for rows without end.
_LEAST_MEAN = 1e-3

# Levels in float64 that lie so far apart, as a part of them, do so exactly.
_APART = 1e-12

# Levels that are tried, and rows that may then be wanting, before rows are
# sorted.
_TRIES = 8
_WANTING = 64

# Powers of a weight that parts of units are reduced by.
_REDUCED = 4

# A row's place in the order: level, tie, source.
Key = tuple[fractions.Fraction, int, int]

# Rows below a level, the level, and each source's first row beyond it.
_Point = tuple[int, int, list[int]]


class Merge:
  """Sources merged by least consumed, from where each of them stands."""

  def __init__(
    self,
    sequences: Sequence[unit_sums.UnitSequence],
    tie_keys: Sequence[int],
    weights: Sequence[fractions.Fraction],
    rows: Sequence[int],
    overshoots: Sequence[int],
    limits: Sequence[int | None],
    parts: int = 1,
  ):
    """Fixes the order; everything is by source.

    Args:
      sequences: Units of rows.
      tie_keys: Keys of 64 bits; rows of one level go by their hashes.
      weights: Positive.
      rows: The first row that each gives.
      overshoots: Parts of units that each has consumed beyond its share, at
        least 0.
      limits: The rows after which each ends, or None.
      parts: The parts of a unit. They have more digits from stage to stage;
        one number for all sources costs no greatest divisors.
    """
    self._sequences = [unit_sums.windowed(own) for own in sequences]
    self._tie_keys = list(tie_keys)
    self._first = list(rows)
    self._limits = list(limits)
    # Guesses: they decide how much is looked at, never what comes out.
    self._means: list[float | None] = [None] * len(self._sequences)
    self._hint: _Point = (0, 0, self._first)
    self._weights = whole(weights)
    self._parts = parts
    self._overshoots = list(overshoots)
    heaviest = max(self._weights)
    self._gains = [heaviest / weight for weight in self._weights]

  @property
  def weights(self) -> list[int]:
    """The weights of the sources in proportion, as small whole numbers."""
    return self._weights

  @functools.cached_property
  def _scales(self) -> list[level_order.Scale]:
    """The levels of each source; a stage that is passed over needs none."""
    heaviest = max(self._weights)
    scales = []
    for i, weight in enumerate(self._weights):
      common = math.gcd(heaviest, weight)
      gain, under = heaviest // common, weight // common
      # Parts of units that are no units of this merge.
      ahead = (
        self._overshoots[i]
        - self._sequences[i].at(self._first[i]) * self._parts
      )
      scales.append(
        level_order.Scale(ahead * gain, gain * self._parts, under * self._parts)
      )
    return scales

  @property
  def num_rows(self) -> int | None:
    """Rows that the sources give from here on; None is without end."""
    limits = [limit for limit in self._limits if limit is not None]
    if len(limits) < len(self._limits):
      return None
    return sum(limits) - sum(self._first)

  def _clip(self, source: int, row: int) -> int:
    limit = self._limits[source]
    row = max(row, self._first[source])
    return row if limit is None else min(row, limit)

  def _tie(self, source: int, first: int) -> int:
    keys = np.asarray([self._tie_keys[source]], np.uint64)
    return int(hashing.fold(keys, np.asarray([first]))[0])

  def key(self, source: int, row: int) -> Key:
    """Returns what orders a row; rows of one source may share it."""
    before = self._sequences[source].at(row)
    first = self._sequences[source].rows_below(before)
    return self._scales[source].level(before), self._tie(source, first), source

  def ended(self, source: int, row: int) -> bool:
    """Says whether a source has no row left at a row."""
    return row == self._limits[source]

  def consumed(self, source: int, row: int) -> int:
    """Returns the units that a source gives before a row, from its first on."""
    own = self._sequences[source]
    return own.at(row) - own.at(self._first[source])

  def overshoots(
    self, standing: Sequence[tuple[int, int]]
  ) -> tuple[list[int], int]:
    """Returns by how much sources are beyond the least level of them.

    Args:
      standing: Each source and the row that it is at.

    Returns:
      Parts of units of each, and the parts of a unit.
    """
    return beyond_least(
      [
        self._overshoots[i] + self.consumed(i, row) * self._parts
        for i, row in standing
      ],
      [self._weights[i] for i, _ in standing],
      self._parts,
    )

  def rank(self, source: int, row: int) -> int | None:
    """Returns how many rows come before a row, from the merge's start on.

    None where the count, or the units of another source, are beyond 2**62.
    """
    count = row - self._first[source]
    if len(self._sequences) == 1:
      return count
    level, tie, _ = self.key(source, row)
    for other, sequence in enumerate(self._sequences):
      if other == source:
        continue
      there, rest = self._scales[other].units(*level.as_integer_ratio())
      if there >= unit_sums.MOST_UNITS and self._limits[other] is None:
        return None
      below = self._rows_below(other, there + (rest > 0))
      count += self._clip(other, below) - self._first[other]
      if count >= unit_sums.MOST_UNITS:
        return None
      if rest == 0 and 0 <= there < unit_sums.MOST_UNITS:
        end = sequence.rows_below(there + 1)
        run = self._clip(other, end) - self._clip(other, below)
        if run and (self._tie(other, below), other) < (tie, source):
          count += run
    return count

  def _rows_below(self, source: int, needed: int) -> int:
    needed = min(max(needed, 0), unit_sums.MOST_UNITS)
    return self._sequences[source].rows_below(needed)

  def rows_after(self, count: int) -> list[int]:
    """Returns each source's next row after `count` rows of the merge.

    Args:
      count: At least 0, and at most `num_rows`.

    Raises:
      ValueError: If a source without an end consumes 2**62 units before.
    """
    if count == self.num_rows:
      return [limit or 0 for limit in self._limits]
    if len(self._sequences) == 1:
      return [self._first[0] + count]
    low: bracketed.Point = (0, 0, self._first)
    high = None
    if self._hint[0] <= count:
      low = self._hint
    else:
      high = self._hint

    def look(level: int) -> _Point:
      point = self._point(level)
      if point[0] <= count and self._is_beyond(*point[1:]):
        raise ValueError(
          "`stages` must begin before 2**62 units are consumed, got a place"
          f" {count} rows after one begins. Begin the next one earlier."
        )
      return point

    if count - low[0] > _WALK:
      point = look(self._level_near(count - _WALK // 2))
      if point[0] > count:
        high = point if high is None else min(high, point)
      else:
        low = max(low, point)
    low, high = bracketed.search(
      look,
      lambda point: point[0] <= count,
      lambda point: count - _WALK // 2 - point[0],
      low,
      high,
      enough=lambda point: count - point[0] <= _WALK,
    )
    if count - low[0] > _WALK:
      assert high is not None  # The two stand side by side.
      return self._through_runs(count, low, high)
    self._hint = low
    return self._walked(low[2], count - low[0])

  def _point(self, level: int) -> _Point:
    rows = []
    for i, scale in enumerate(self._scales):
      needed, rest = scale.units(level)
      rows.append(self._clip(i, self._rows_below(i, needed + (rest > 0))))
    return sum(rows) - sum(self._first), level, rows

  def _is_beyond(self, level: int, rows: list[int]) -> bool:
    """Says whether a level is beyond the units that are counted."""
    return any(
      scale.units(level)[0] >= unit_sums.MOST_UNITS
      and not self.ended(i, rows[i])
      for i, scale in enumerate(self._scales)
    )

  def _level_near(self, count: int) -> int:
    """Returns about the level of the row at `count`."""

    def look(level: int) -> bracketed.Point:
      rows = 0
      for i, scale in enumerate(self._scales):
        units = min(max(scale.units(level)[0], 0), unit_sums.MOST_UNITS)
        rows += self._clip(i, self._rows_near(i, units))
      return rows - sum(self._first), level

    low, _ = bracketed.search(
      look,
      lambda point: point[0] <= count,
      lambda point: count - point[0],
      # From there one step is mostly enough.
      self._hint[:2] if self._hint[0] < count else (0, 0),
      # Nobody counts further.
      last=unit_sums.MOST_UNITS * math.ceil(max(self._gains)),
      enough=lambda point: count - point[0] <= _WALK // 4,
    )
    return low[1]

  def _rows_near(self, source: int, units: int) -> int:
    """Returns about how many rows have fewer units before them."""
    near = self._sequences[source].rows_near
    if near is not None:
      return near(units)
    row = self._first[source]
    units -= self._sequences[source].at(row)
    return row + int(units * self._rate(source, row) * self._gains[source])

  def _rate(self, source: int, row: int) -> float:
    """Returns about how many rows a source gives in one unit of level."""
    mean = self._means[source]
    if mean is None:
      end = self._clip(source, row + _PROBE)
      if end == row:
        return 0.0
      first, sums = self._sequences[source].reach(row, end)
      own = sums[end - first] - sums[row - first]
      mean = self._means[source] = own / (end - row)
    return 1 / (max(mean, _LEAST_MEAN) * self._gains[source])

  def _through_runs(self, count: int, low: _Point, high: _Point) -> list[int]:
    """Walks whole runs where each source has at most one in a bracket."""
    rows, left = list(low[2]), count - low[0]
    runs = [i for i, row in enumerate(rows) if row < high[2][i]]
    for _, _, source in sorted(self.key(i, rows[i]) for i in runs):
      taken = min(left, high[2][source] - rows[source])
      rows[source] += taken
      left -= taken
    return rows

  def _walked(self, rows: list[int], count: int) -> list[int]:
    """Returns each source's next row, `count` rows after those given."""
    found = self._clear(rows, count) if len(rows) > 1 else None
    if found is None:
      found = self.advance(np.asarray(rows, np.int64), count)[2].tolist()
    return found

  def _clear(self, rows: list[int], count: int) -> list[int] | None:
    """Returns what `_walked` does where float64 can tell, else None.

    It can where the rows taken and those left lie clearly apart in level: not
    where a tie is between them, for instance.
    """
    lanes = [i for i, row in enumerate(rows) if row != self._limits[i]]
    ahead, parts = self._overshoots, self._parts
    if rows is not self._first:
      own, parts = self.overshoots([(i, rows[i]) for i in lanes])
      ahead = dict(zip(lanes, own, strict=True))
    rates = {i: self._rate(i, rows[i]) for i in lanes}
    rate = max(math.fsum(rates.values()), 1e-300)
    low, high, level = 0.0, math.inf, count / rate
    starts = []
    for i in lanes:
      row = rows[i]
      cap = self._clip(i, row + count)
      likely = row + int(1.2 * min(rates[i] * level, count)) + 8
      starts.append(
        _Start(
          self._sequences[i],
          row,
          min(likely, cap),
          cap,
          ahead[i] / parts,
          self._gains[i],
        )
      )
    wanting = count
    for _ in range(_TRIES):
      wanting = count - sum([own.go_to(level) for own in starts])
      # Sources that are level give their next rows at one level.
      if abs(wanting) <= len(lanes):
        break
      low, high = (level, high) if wanting > 0 else (low, level)
      level += wanting / rate
      if not low < level < high:
        level = (low + high) / 2 if high < math.inf else 2 * low
    if abs(wanting) > max(_WANTING, len(lanes)):
      return None
    following = [own.level(0) for own in starts]
    last = [own.level(-1) for own in starts]
    while wanting:
      ahead_of, step = (min(following), 1) if wanting > 0 else (max(last), -1)
      i = (following if wanting > 0 else last).index(ahead_of)
      starts[i].row += step
      following[i], last[i] = starts[i].level(0), starts[i].level(-1)
      wanting -= step
    if not max(last) < min(following) * (1 - _APART):
      return None
    out = list(rows)
    for i, own in zip(lanes, starts, strict=True):
      out[i] = own.row
    return out

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
    return gradual.finished(self.advancing(rows, count))

  def advancing(
    self, rows: np.ndarray, count: int
  ) -> "gradual.Work[tuple[np.ndarray, np.ndarray, np.ndarray]]":
    """Does what `advance` does, a source at a time."""
    rows = np.array(rows, np.int64)
    if len(self._sequences) == 1:
      # A source alone gives its rows one after the other, whatever they hold.
      first = int(rows[0])
      last = self._clip(0, first + count)
      own = np.arange(first, last)
      return np.zeros(len(own), np.int32), own, np.asarray([last])
    parts = [(np.zeros(0, np.int32), np.zeros(0, np.int64))]
    wanted = count
    while count > 0:
      upcoming = yield from gradual.within(
        self._upcoming(rows.tolist(), count), 1 - count / wanted, 1
      )
      if not upcoming:
        break
      source, row = level_order.first_rows(upcoming, count)
      rows += np.bincount(source, minlength=len(rows))
      count -= len(source)
      parts.append((source, row))
    sources, taken = zip(*parts, strict=True)
    return np.concatenate(sources), np.concatenate(taken), rows

  def _upcoming(
    self, rows: list[int], wanted: int
  ) -> "gradual.Work[list[level_order.Upcoming]]":
    """Finds rows of each source that has not ended, about those wanted."""
    left = [
      wanted if limit is None else min(limit - row, wanted)
      for row, limit in zip(rows, self._limits, strict=True)
    ]
    rates = [
      self._rate(i, row) if left[i] else 0.0 for i, row in enumerate(rows)
    ]
    span = wanted / max(math.fsum(rates), 1e-300)
    out = []
    for i, row in enumerate(rows):
      if not left[i]:
        continue
      # A margin, since the source that runs out first ends the piece.
      need = min(rates[i] * span, wanted)
      size = min(left[i], int(need + 4 * math.sqrt(need)) + 4)
      out.append(self._next(i, row, size))
      yield len(out) / len(rows)
    return out

  def _next(self, source: int, row: int, size: int) -> level_order.Upcoming:
    # One row before, which tells whether a run without units goes on.
    lead = min(row, 1)
    before = self._sequences[source].before(
      np.arange(row - lead, row + size + 1, dtype=np.int64)
    )
    run_row = row
    if lead and before[0] == before[1]:
      run_row = self._sequences[source].rows_below(int(before[1]))
    before = before[lead:]
    self._means[source] = int(before[-1] - before[0]) / size
    is_all = row + size == self._limits[source]
    return level_order.Upcoming(
      source,
      self._scales[source],
      self._tie_keys[source],
      row,
      run_row,
      before[:-1] if is_all else before,
      is_all,
    )


class _Start:
  """Rows of a source from one on, by their levels in float64.

  Attributes:
    row: The row after those taken.
  """

  def __init__(
    self,
    sequence: unit_sums.Windowed,
    row: int,
    likely: int,
    cap: int,
    ahead: float,
    gain: float,
  ):
    self.row = self._from = row
    self._sequence, self._cap = sequence, cap
    self._ahead, self._gain = ahead, gain
    self._first, self._sums = sequence.reach(row, likely)
    self._base = self._sums[row - self._first]

  def go_to(self, level: float) -> int:
    """Takes the rows below a level; returns how many these are."""
    units = math.ceil(level / self._gain - self._ahead) + self._base
    first, sums = self._first, self._sums
    low, high = self._from - first, self._cap - first
    if high > len(sums):
      high = len(sums)
    row = first + bisect.bisect_left(sums, units, low, high)
    if row == first + high and row < self._cap:
      self._reach(min(2 * row - self._from + 1, self._cap))
      return self.go_to(level)
    self.row = row
    return row - self._from

  def level(self, shift: int) -> float:
    """Returns the level of the next row, at shift 0, or the last one, at -1.

    Beyond all levels where there is none.
    """
    row = self.row + shift
    if row < self._from:
      return -math.inf
    if self.row == self._cap and not shift:
      return math.inf
    if row - self._first >= len(self._sums):
      self._reach(row)
    units = self._sums[row - self._first] - self._base
    return (self._ahead + units) * self._gain

  def _reach(self, row: int) -> None:
    self._first, self._sums = self._sequence.reach(self._from, row)


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
  for own, own_weight in zip(consumed[1:], weights[1:], strict=True):
    if own * weight < least * own_weight:
      least, weight = own, own_weight
  ahead = [
    own * weight - least * of for own, of in zip(consumed, weights, strict=True)
  ]
  parts *= weight
  # Of the digits that a stage adds most go again; a greatest divisor with a
  # small number is cheap.
  common = math.gcd(weight**_REDUCED, parts, *ahead)
  return [own // common for own in ahead], parts // common


def whole(weights: Sequence[fractions.Fraction | int]) -> list[int]:
  """Returns weights in proportion, as small whole numbers."""
  under = math.lcm(*(weight.denominator for weight in weights))
  found = [
    weight.numerator * (under // weight.denominator) for weight in weights
  ]
  common = math.gcd(*found)
  return [own // common for own in found]
