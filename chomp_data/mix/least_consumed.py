# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The merge of a few sources by least consumed, at any place in O(log n).

The next row is taken from the source with the least units over weight. Two
sources of weights 1 and 2 whose rows consume 4 and 6 units:

    level  0    0    6    8    12   16   18
    row    a 0  b 0  b 1  a 1  b 2  a 2  b 3

A row's *level* is the units that its source consumed before it, over the
weight. Levels here are multiplied by a common denominator, and so are exact
integers. Rows sorted by (level, tie, source, row) are in the order of the rule:
the rows below a level are counted with one search in each source's prefix sums,
and the rows from there on are sorted together. NumPy only.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import fractions
import functools
import itertools
import math
from typing import Protocol

import numpy as np

from chomp_data.index import hashing
from chomp_data.mix import bracketed

# Sums of units stay below this, so that their differences fit into int64.
MOST_UNITS = 2**62

# Up to this many rows, and this many per source, are merged one by one. Further
# rows are skipped by a search on estimates, which may be off by as much.
WALK, _WALK_OF_SOURCE = 4_096, 128

# Rows from which the mean units per row of a source are first estimated.
_PROBE = 64

# A lower bound of the mean, so that rows without units cost finite work.
_LEAST_MEAN = 1e-3

# Fractions of units are reduced by common factors with this power of a weight.
_REDUCED = 4

# A row's place in the order: level, tie, source.
Key = tuple[int, int, int]


class UnitSequence(Protocol):
  """What a merge asks of a source: the units before its rows.

      rows      0  1  2  3      before(0 .. 4)  [0, 5, 5, 5, 9]
      consumes  5  0  0  4      rows_below(5) = 1, rows_below(6) = 4

  A unit is a token, a trained token, or 1 for a row. A sequence without an end
  must never stop consuming units: if all rows from some row on consumed
  nothing, a search for more units would not end.
  """

  @property
  def num_rows(self) -> int | None:
    """The number of rows; None if it has no end."""
    ...

  def before(self, rows: np.ndarray) -> np.ndarray:
    """Returns int64[N], the units of rows 0 .. k - 1 for each k of int64[N].

    Args:
      rows: Each in 0 .. `num_rows`, the end included; often consecutive.
    """
    ...

  def rows_below(self, units: int, near: bool = False) -> int:
    """Returns how many rows k below `num_rows` have before(k) < units.

    Args:
      units: At most 2**62.
      near: Whether an estimate is enough, if it is faster.
    """
    ...


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

  sequence: UnitSequence
  tie_key: int
  limit: int | None
  mean: float | None = None

  def before(self, row: int) -> int:
    """Returns the units before a row."""
    return int(self.sequence.before(np.asarray([row], np.int64))[0])

  def rows_below(self, units: int, near: bool = False) -> int:
    """Returns how many rows have fewer than some units before them."""
    return self.sequence.rows_below(min(max(units, 0), MOST_UNITS), near)

  def clip(self, row: int) -> int:
    """Returns a row, or the source's end if that is earlier."""
    return row if self.limit is None else min(row, self.limit)

  def tie(self, first: int) -> int:
    """Returns the hash that decides between rows of equal level.

    Args:
      first: The first row with the same units before it.
    """
    keys = np.asarray([self.tie_key], np.uint64)
    return int(hashing.fold(keys, np.asarray([first]))[0])

  def mean_units(self, row: int) -> float:
    """Returns about how many units each of the next rows consumes."""
    mean = self.mean
    if mean is None:
      end = self.clip(row + _PROBE)
      low, high = self.sequence.before(np.asarray([row, end])).tolist()
      mean = self.mean = (high - low) / max(end - row, 1)
    return max(mean, _LEAST_MEAN)


@dataclasses.dataclass(frozen=True)
class _Upcoming:
  """The next rows of a source.

  Attributes:
    source: The number of the source.
    row: The first of the rows.
    run_row: The first row of the source with the same units before it as `row`.
    before: int64[N], the units before each row.
    is_all: Whether the source has no rows after these. If not, the last one is
      not returned; it bounds which rows of other sources are.
  """

  source: int
  row: int
  run_row: int
  before: np.ndarray
  is_all: bool


class Merge:
  """Sources merged by least consumed, each from a given row on."""

  def __init__(
    self,
    sources: Sequence[Source],
    weights: Sequence[fractions.Fraction | int],
    rows: Sequence[int],
    ahead: Sequence[int],
    parts: int = 1,
  ):
    """Defines the order; all arguments but `parts` have one entry per source.

    Args:
      sources: The sources, at least one.
      weights: Their weights, positive.
      rows: The first row of each in the merge.
      ahead: What each has consumed beyond its share, at least 0, in fractions
        of a unit.
      parts: The common denominator of these fractions. Its digits grow from
        stage to stage.
    """
    self._sources = list(sources)
    self._first = list(rows)
    self._weights = whole(weights)
    self._ahead = list(ahead)
    self._parts = parts
    self._units = [
      source.before(row) for source, row in zip(sources, rows, strict=True)
    ]
    # The level of a row with P units before it is `offset + gain * P`.
    common = math.lcm(*self._weights)
    self._gains = [parts * (common // weight) for weight in self._weights]
    self._offsets = [
      (ahead[i] - self._units[i] * parts) * (common // weight)
      for i, weight in enumerate(self._weights)
    ]
    self._walk = min(WALK, _WALK_OF_SOURCE * len(sources))
    # Searches step by one unit of the source with the greatest weight.
    self._step = min(self._gains)

  @property
  def num_rows(self) -> int | None:
    """Rows of the merge; None if it has no end."""
    total = 0
    for source, first in zip(self._sources, self._first, strict=True):
      if source.limit is None:
        return None
      total += source.limit - first
    return total

  def key(self, source: int, row: int) -> Key:
    """Returns the sort key of a row; rows of one source may have the same."""
    rows = self._sources[source]
    before = rows.before(row)
    level = self._offsets[source] + self._gains[source] * before
    return level, rows.tie(rows.rows_below(before)), source

  def ahead_at(self, rows: Mapping[int, int]) -> tuple[dict[int, int], int]:
    """Returns how far each source is beyond the least level among them.

    Args:
      rows: The next row of each source, by source.

    Returns:
      Fractions of a unit by source, and their common denominator.
    """
    consumed = [
      self._ahead[i]
      + (self._sources[i].before(row) - self._units[i]) * self._parts
      for i, row in rows.items()
    ]
    weights = [self._weights[i] for i in rows]
    ahead, parts = beyond_least(consumed, weights, self._parts)
    return dict(zip(rows, ahead, strict=True)), parts

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
      units, rest = divmod(level - self._offsets[i], self._gains[i])
      if units >= MOST_UNITS and other.limit is None:
        return None
      below = other.rows_below(units + (rest > 0))
      first = max(other.clip(below), self._first[i])
      count += first - self._first[i]
      if count >= MOST_UNITS:
        return None
      if rest == 0 and 0 <= units < MOST_UNITS:
        last = other.clip(other.rows_below(units + 1))
        if last > first and (other.tie(below), i) < (tie, source):
          count += last - first
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
    # Estimates examine no single rows; one exact count follows.
    target = count - self._walk // 2 if count > self._walk else 0
    before, rows = 0, self._first
    while target > 0:
      rows = self._rows_below(self._level_near(target))
      before = sum(rows) - sum(self._first)
      if before <= count:
        break
      target, before, rows = 2 * target - before, 0, self._first
    return self.advance(np.asarray(rows), count - before)[2].tolist()

  def _level_near(self, count: int) -> int:
    """Returns a level with about `count` rows below it."""
    rates = self._rates(self._first)
    low, high = bracketed.search(
      lambda steps: (
        sum(self._rows_below(steps * self._step, near=True)) - sum(self._first),
        steps,
      ),
      lambda point: point[0] <= count,
      lambda point: count - self._walk // 8 - point[0],
      (0, 0),
      first_step=lambda: int(count / max(math.fsum(rates), 1e-300)),
      last=self._last_step,
      enough=lambda point: count - point[0] <= self._walk // 4,
    )
    if high is None and count - low[0] > self._walk:
      raise ValueError(
        "`stages` must begin before 2**62 units are consumed, got a place"
        f" about {count} rows after one begins. Begin the next one earlier."
      )
    return low[1] * self._step

  @functools.cached_property
  def _last_step(self) -> int | None:
    """The last level of a search, below 2**62 units; None if sources end."""
    levels = [
      self._offsets[i] + self._gains[i] * MOST_UNITS
      for i, source in enumerate(self._sources)
      if source.limit is None
    ]
    return min(levels) // self._step if levels else None

  def _rows_below(self, level: int, near: bool = False) -> list[int]:
    """Returns each source's first row that is not below a level."""
    rows = []
    for i, source in enumerate(self._sources):
      units = -((self._offsets[i] - level) // self._gains[i])
      below = source.clip(source.rows_below(units, near))
      rows.append(max(below, self._first[i]))
    return rows

  def _rates(self, rows: Sequence[int]) -> list[float]:
    """Returns about how many rows each source has in one step of a search."""
    return [
      0.0 if row == source.limit else self._step / gain / source.mean_units(row)
      for source, gain, row in zip(
        self._sources, self._gains, rows, strict=True
      )
    ]

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
      last = self._sources[0].clip(first + count)
      alone = np.arange(first, last)
      return np.zeros(len(alone), np.int32), alone, np.asarray([last])
    parts = [(np.zeros(0, np.int32), np.zeros(0, np.int64))]
    while count > 0:
      upcoming = self._upcoming(rows.tolist(), count)
      if not upcoming:
        break
      source, row = self._sorted(upcoming, count)
      rows += np.bincount(source, minlength=len(rows))
      count -= len(source)
      parts.append((source, row))
    sources, source_rows = map(np.concatenate, zip(*parts, strict=True))
    return sources, source_rows, rows

  def _upcoming(self, rows: list[int], wanted: int) -> list[_Upcoming]:
    """Returns about as many next rows of each source as will be merged."""
    rates = self._rates(rows)
    span = wanted / max(math.fsum(rates), 1e-300)
    upcoming = []
    for i, (source, row) in enumerate(zip(self._sources, rows, strict=True)):
      num_left = source.clip(row + wanted) - row
      if not num_left:
        continue
      # With a margin: the first source without further rows ends the piece.
      need = min(rates[i] * span, wanted)
      size = min(num_left, int(need + 4 * math.sqrt(need)) + 4)
      # Include the row before, to see whether it belongs to a run of rows
      # without units that continues here.
      lead = min(row, 1)
      before = source.sequence.before(
        np.arange(row - lead, row + size + 1, dtype=np.int64)
      )
      run_row = row
      if lead and before[0] == before[1]:
        run_row = source.rows_below(int(before[1]))
      before = before[lead:]
      source.mean = int(before[-1] - before[0]) / size
      is_all = row + size == source.limit
      if is_all:
        before = before[:-1]
      upcoming.append(_Upcoming(i, row, run_row, before, is_all))
    return upcoming

  def _sorted(
    self, upcoming: Sequence[_Upcoming], wanted: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows that come first, as far as the given rows determine it.

    Args:
      upcoming: The next rows by source, sorted by source; at least one source,
        and of each at least one row that may be returned.
      wanted: The most rows to return, at least 1.

    Returns:
      Sources int32[N] and their rows int64[N], in order, N in 1 .. `wanted`.
    """
    gains = [self._gains[rows.source] for rows in upcoming]
    tops = [
      self._offsets[rows.source] + gain * int(rows.before[0])
      for rows, gain in zip(upcoming, gains, strict=True)
    ]
    # Levels relative to the least one, and units to each source's first row.
    base = min(tops)
    tops = [top - base for top in tops]
    units = [rows.before - rows.before[0] for rows in upcoming]
    lasts = [
      top + gain * int(since[-1])
      for top, gain, since in zip(tops, gains, units, strict=True)
    ]
    # The last row of a source that has more rows is a bound: no row after the
    # first bound is returned.
    has_bound = np.asarray([not rows.is_all for rows in upcoming])
    highest = min(itertools.compress(lasts, has_bound), default=max(lasts))
    for i, last in enumerate(lasts):
      if last > highest:
        most_units = max((highest - tops[i]) // gains[i], -1)
        units[i] = units[i][: units[i].searchsorted(most_units, "right")]
        has_bound[i] = False
    counts = np.asarray([len(since) for since in units])
    lane = np.repeat(np.arange(len(upcoming)), counts)
    # Levels are exact: integers of Python, unless 64 bits suffice.
    exact = np.int64 if max(highest, *tops, *gains) < MOST_UNITS else object
    levels = (
      np.concatenate(units).astype(exact) * np.asarray(gains, exact)[lane]
    )
    levels = levels + np.asarray(tops, exact)[lane]
    first_rows = np.asarray([rows.row for rows in upcoming])
    row = np.arange(len(lane)) + (first_rows - np.cumsum(counts) + counts)[lane]
    order = self._order(upcoming, levels, lane, row)
    is_bound = np.zeros(len(lane), np.bool_)
    is_bound[(np.cumsum(counts) - 1)[has_bound]] = True
    reached = np.flatnonzero(is_bound[order])
    chosen = order[: min([wanted, *reached[:1].tolist()])]
    numbers = np.asarray([rows.source for rows in upcoming], np.int32)
    return numbers[lane[chosen]], row[chosen]

  def _order(
    self,
    upcoming: Sequence[_Upcoming],
    levels: np.ndarray,
    lane: np.ndarray,
    row: np.ndarray,
  ) -> np.ndarray:
    """Returns the order of rows by level, tie and source.

    `lane` is the index in `upcoming` of each row's source, ascending.
    """
    order = np.argsort(levels, kind="stable")
    is_equal = np.diff(levels[order]) == 0
    if not is_equal.any():
      return order
    tied = np.flatnonzero(
      np.append(is_equal, False) | np.append(False, is_equal)
    )
    members = order[tied]
    # The tie of a row is that of the first row of its source at the same level.
    run_row = row.copy()
    opens = np.append(True, np.diff(lane) != 0)
    run_row[opens] = [upcoming[i].run_row for i in lane[opens].tolist()]
    opens[1:] |= np.diff(levels) != 0
    first = np.maximum.accumulate(np.where(opens, np.arange(len(lane)), 0))
    tie_keys = np.asarray(
      [self._sources[rows.source].tie_key for rows in upcoming], np.uint64
    )
    ties = hashing.fold(tie_keys[lane[members]], run_row[first[members]])
    cluster = np.append(0, np.cumsum(~is_equal))[tied]
    order[tied] = members[np.lexsort((members, ties, cluster))]
    return order


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
