"""The merge of a few sources by least consumed, at any place in O(log n).

The next row is that of the source with the least units over weight. Two
sources of weights 1 and 2 whose rows consume 4 and 6 units:

    level  0    0    3    4    6    8    9
    row    a 0  b 0  b 1  a 1  b 2  a 2  b 3

A row's *level* is what its source consumed before it, over the weight; the
rows in order of (level, tie, source, row) are what the greedy rule takes. So
the rows before a level are counted by one search in each source's prefix sums,
and the rows from there on are sorted in one piece. Levels are fractions and
are compared exactly: int64 keys round them down with a known bound, and rows
that are closer than the bound are told apart by what is left. One unit of
level is one unit of the heaviest source, so the levels of one source are at
least 1 apart. NumPy only.

Source: seed 001, "Interleave Policy".
"""

from collections.abc import Sequence
import fractions
import math

import numpy as np

from chomp_data.index import hashing
from chomp_data.index import units

# Rows that are walked rather than searched for.
_WALK = 4_096

# Rows of a source looked at where nothing is known of it yet.
_PROBE = 64

# Keys of one sort stay below 2**61 and its levels, in units of the heaviest
# source left, below 2**40: so keys of one source are 2**21 apart.
_KEY_BITS = 61
_CAP_BITS = 40
_CLAMP = 2**62

# Covers the rounding of float64 where floats only say which rows to sort.
_SLACK = 1 + 1e-9

# An interpolation that has not halved its bracket so often gives way.
_PATIENCE = 3

# A row's place in the order: level, tie, source.
Key = tuple[fractions.Fraction, int, int]


class Merge:
  """Sources merged by least consumed, from where each of them stands."""

  def __init__(
    self,
    sequences: Sequence[units.UnitSequence],
    tie_keys: Sequence[int],
    weights: Sequence[fractions.Fraction],
    rows: Sequence[int],
    overshoots: Sequence[fractions.Fraction],
    limits: Sequence[int | None],
  ):
    """Fixes the order; everything is by source.

    Args:
      sequences: Units of rows.
      tie_keys: Keys of 64 bits; rows of one level go by their hashes.
      weights: Positive.
      rows: The first row that each gives.
      overshoots: Units that each has consumed beyond its share, at least 0.
      limits: The rows after which each ends, or None.
    """
    self._sequences = list(sequences)
    self._tie_keys = np.asarray(tie_keys, np.uint64)
    self._first = [int(row) for row in rows]
    self._limits = list(limits)
    self._means: list[float | None] = [None] * len(self._sequences)
    self._hint: tuple[int, int, list[int]] | None = None
    heaviest = max(weights)
    # The level of a row with P units before it is (alpha + beta P) / delta.
    self._alpha, self._beta, self._delta = [], [], []
    for i, (weight, overshoot) in enumerate(
      zip(weights, overshoots, strict=True)
    ):
      gain = heaviest / weight
      offset = (overshoot - self._units(i, self._first[i])) * gain
      delta = math.lcm(gain.denominator, offset.denominator)
      self._alpha.append(int(offset * delta))
      self._beta.append(int(gain * delta))
      self._delta.append(delta)
    self._gain = np.asarray(
      [b / d for b, d in zip(self._beta, self._delta, strict=True)]
    )

  @property
  def num_rows(self) -> int | None:
    """Rows that the sources give from here on; None is without end."""
    if None in self._limits:
      return None
    pairs = zip(self._limits, self._first, strict=True)
    return sum(limit - row for limit, row in pairs if limit is not None)

  def _units(self, source: int, row: int) -> int:
    return int(self._sequences[source].before(np.asarray([row], np.int64))[0])

  def _clip(self, source: int, row: int) -> int:
    limit = self._limits[source]
    row = max(row, self._first[source])
    return row if limit is None else min(row, limit)

  def _level(self, source: int, before: int) -> fractions.Fraction:
    return fractions.Fraction(
      self._alpha[source] + self._beta[source] * before, self._delta[source]
    )

  def key(self, source: int, row: int) -> Key:
    """Returns what orders a row; rows of one source may share it."""
    before = self._units(source, row)
    first = self._sequences[source].rows_below(before)
    return self._level(source, before), self._tie(source, first), source

  def _tie(self, source: int, first: int) -> int:
    keys = self._tie_keys[source : source + 1]
    return int(hashing.fold(keys, np.asarray([first]))[0])

  def ended(self, source: int, row: int) -> bool:
    """Says whether a source has no row left at a row."""
    return row == self._limits[source]

  def level(self, source: int, row: int) -> fractions.Fraction:
    """Returns what a source consumed before a row, over the weight.

    In units of the heaviest source, the overshoot included.
    """
    return self._level(source, self._units(source, row))

  def overshoot(
    self, source: int, row: int, level: fractions.Fraction
  ) -> fractions.Fraction:
    """Returns by how many units a source at a row is beyond a level."""
    gain = fractions.Fraction(self._beta[source], self._delta[source])
    return (self.level(source, row) - level) / gain

  def rank(self, source: int, row: int) -> int:
    """Returns how many rows come before a row, from the merge's start on."""
    level, tie, _ = self.key(source, row)
    count = row - self._first[source]
    for other, sequence in enumerate(self._sequences):
      if other == source:
        continue
      below = self._rows_below(other, level.numerator, level.denominator)
      count += self._clip(other, below) - self._first[other]
      units_there, rest = divmod(
        level.numerator * self._delta[other]
        - self._alpha[other] * level.denominator,
        self._beta[other] * level.denominator,
      )
      if rest == 0 and 0 <= units_there < units.MOST_UNITS:
        end = sequence.rows_below(units_there + 1)
        run = self._clip(other, end) - self._clip(other, below)
        if run and (self._tie(other, below), other) < (tie, source):
          count += run
    return count

  def _rows_below(self, source: int, level: int, over: int = 1) -> int:
    """Returns the rows of a source below the level `level / over`."""
    # The ceiling of the units at that level.
    needed = -(
      (self._alpha[source] * over - level * self._delta[source])
      // (self._beta[source] * over)
    )
    needed = min(max(needed, 0), units.MOST_UNITS)
    return self._sequences[source].rows_below(needed)

  def rows_after(self, count: int) -> list[int]:
    """Returns each source's next row after `count` rows of the merge.

    Args:
      count: At least 0, and at most `num_rows`.
    """
    low = (0, 0, self._first)
    high = None
    if count == self.num_rows:
      return [int(limit or 0) for limit in self._limits]
    if self._hint is not None:
      if self._hint[0] <= count:
        low = self._hint
      else:
        high = self._hint
    step, slow = 0, 0
    while count - low[0] > _WALK:
      aim = max(count - _WALK // 2 - low[0], 1)
      if high is None:
        # By the mean so far, and never slower than doubling.
        mean = aim * low[1] // low[0] if low[0] else self._first_step(count)
        step = max(2 * step, mean, 1)
        point = self._point(low[1] + step)
      else:
        width = high[1] - low[1]
        if width == 1:
          return self._through_runs(count, low, high)
        ahead = width * aim // (high[0] - low[0])
        ahead = ahead if slow < _PATIENCE else width // 2
        point = self._point(low[1] + min(max(ahead, 1), width - 1))
        left = high[1] - point[1] if point[0] <= count else point[1] - low[1]
        slow = 0 if 2 * left <= width + 1 else slow + 1
      low, high = (point, high) if point[0] <= count else (low, point)
    self._hint = low if low[0] else self._hint
    rows = np.asarray(low[2], np.int64)
    return self.advance(rows, count - low[0])[2].tolist()

  def _point(self, level: int) -> tuple[int, int, list[int]]:
    """Returns (rows below a level, the level, each source's first beyond)."""
    rows = [
      self._clip(i, self._rows_below(i, level))
      for i in range(len(self._sequences))
    ]
    return sum(rows) - sum(self._first), level, rows

  def _first_step(self, count: int) -> int:
    """Returns about the level of the row at `count`, at least 1."""
    rates = [self._rate(i, self._first[i]) for i in range(len(self._first))]
    return max(1, int(count / max(math.fsum(rates), 1e-300)))

  def _rate(self, source: int, row: int) -> float:
    """Returns about how many rows a source gives in one unit of level."""
    mean = self._means[source]
    if mean is None:
      end = self._clip(source, row + _PROBE)
      if end == row:
        return 0.0
      rows = np.asarray([row, end], np.int64)
      first, last = self._sequences[source].before(rows).tolist()
      mean = self._means[source] = (last - first) / (end - row)
    return 1 / (max(mean, 1e-3) * float(self._gain[source]))

  def _through_runs(
    self,
    count: int,
    low: tuple[int, int, list[int]],
    high: tuple[int, int, list[int]],
  ) -> list[int]:
    """Walks whole runs where each source has at most one in a bracket."""
    rows, left = list(low[2]), count - low[0]
    runs = [i for i, row in enumerate(rows) if row < high[2][i]]
    for _, _, source in sorted(self.key(i, rows[i]) for i in runs):
      taken = min(left, high[2][source] - rows[source])
      rows[source] += taken
      left -= taken
    return rows

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
    parts = []
    while count > 0:
      source, row = self._piece(rows, count)
      if not len(source):
        break
      rows += np.bincount(source, minlength=len(rows))
      count -= len(source)
      parts.append((source, row))
    if not parts:
      parts = [(np.zeros(0, np.int32), np.zeros(0, np.int64))]
    sources, taken = zip(*parts, strict=True)
    return np.concatenate(sources), np.concatenate(taken), rows

  def _sizes(self, rows: list[int], wanted: int) -> list[int]:
    """Returns how many rows of each source to look at; 0 where it ended."""
    left = [
      wanted if limit is None else min(limit - row, wanted)
      for row, limit in zip(rows, self._limits, strict=True)
    ]
    rates = [
      self._rate(i, row) if left[i] else 0.0 for i, row in enumerate(rows)
    ]
    span = wanted / max(math.fsum(rates), 1e-300)
    needed = [min(rate * span, wanted) for rate in rates]
    # A margin, since the source that runs out first ends the piece.
    return [
      min(most, int(need + 4 * math.sqrt(need)) + 4)
      for most, need in zip(left, needed, strict=True)
    ]

  def _piece(
    self, rows: np.ndarray, wanted: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns between 1 and `wanted` next rows, none where all have ended."""
    starts = rows.tolist()
    sizes = self._sizes(starts, wanted)
    live = [i for i, size in enumerate(sizes) if size]
    if not live:
      return np.zeros(0, np.int32), np.zeros(0, np.int64)
    table = _Table(self, live, starts, sizes)
    for i, mean in zip(live, table.means, strict=True):
      self._means[i] = mean
    return table.ordered(wanted)


class _Table:
  """The next rows of each source, each followed by its first row not taken."""

  def __init__(
    self, merge: Merge, live: list[int], starts: list[int], sizes: list[int]
  ):
    self._merge = merge
    pieces, self._run_starts, self._heads, self.means = [], [], [], []
    counts = []
    for i in live:
      row, size = starts[i], sizes[i]
      # One row before, which tells whether a run of no units goes on.
      lead = min(row, 1)
      sequence = merge._sequences[i]
      sums = sequence.before(np.arange(row - lead, row + size + 1))
      self._run_starts.append((i, row) if lead and sums[0] == sums[1] else None)
      self._heads.append(int(sums[lead]))
      sums = sums[lead:] - sums[lead]
      self.means.append(int(sums[-1]) / size)
      last = merge.ended(i, row + size)
      pieces.append(sums[:-1] if last else sums)
      counts.append(size + (not last))
    self._live = np.asarray(live, np.int32)
    # By live source, and in the order of sources and rows.
    self._of = np.repeat(np.arange(len(live)), counts)
    self._used = np.concatenate(pieces)
    ends = np.cumsum(counts)
    begins = ends - counts
    shift = np.asarray([starts[i] for i in live]) - begins
    self._row = np.arange(len(self._of)) + shift[self._of]
    self._sentinels = np.zeros(len(self._of), bool)
    taken = np.asarray([sizes[i] for i in live])
    self._sentinels[(begins + taken)[taken < counts]] = True
    self._begins = begins

  def ordered(self, wanted: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns up to `wanted` rows, in order, that no other row can precede."""
    merge, live = self._merge, self._live.tolist()
    tops = [
      merge._alpha[i] + merge._beta[i] * head
      for i, head in zip(live, self._heads, strict=True)
    ]
    deltas = [merge._delta[i] for i in live]
    base = min(top // d for top, d in zip(tops, deltas, strict=True))
    tops = [top - base * d for top, d in zip(tops, deltas, strict=True)]
    # Floats choose which rows are worth sorting and how fine keys are.
    gains = merge._gain[self._live]
    levels = np.asarray([t / d for t, d in zip(tops, deltas, strict=True)])
    levels = levels[self._of] + self._used * gains[self._of]
    cap = 2**_CAP_BITS * math.ceil(gains.min())
    ends = levels[self._sentinels]
    highest = min(float(cap), ends.min()) if len(ends) else float(cap)
    kept = np.flatnonzero(levels <= highest * _SLACK)
    bits = _KEY_BITS - max(0, math.frexp(levels[kept].max())[1])
    of, used = self._of[kept], self._used[kept]
    keys, bound = self._keys(of, used, tops, bits)
    order = np.argsort(keys, kind="stable")
    order = self._told_apart(kept, order, keys, bound, bits, tops)
    stop = len(order)
    sentinels = np.flatnonzero(self._sentinels[kept[order]])
    if len(sentinels):
      stop = int(sentinels[0])
    # Rows at the cap and beyond may be missing.
    capped = min(_scaled(cap, 1, bits), _CLAMP) - bound
    stop = min(stop, int(np.count_nonzero(keys < capped)), wanted)
    chosen = kept[order[:stop]]
    return self._live[self._of[chosen]], self._row[chosen]

  def _keys(
    self, of: np.ndarray, used: np.ndarray, tops: list[int], bits: int
  ) -> tuple[np.ndarray, int]:
    """Returns levels times 2**bits, rounded down by less than a bound."""
    merge, live = self._merge, self._live.tolist()
    most = int(used.max())
    places = _KEY_BITS + 1 - most.bit_length()
    heads, wholes, parts = [], [], []
    for i, top in zip(live, tops, strict=True):
      beta, delta = merge._beta[i], merge._delta[i]
      heads.append(min(_scaled(top, delta, bits), _CLAMP))
      whole = _scaled(beta, delta, bits)
      part = _scaled(beta, delta, bits + places) - (whole << places)
      # A gain beyond the clamp meets no units: such a row is not kept.
      wholes.append(min(whole, _CLAMP))
      parts.append(part)
    keys = np.asarray(heads)[of] + used * np.asarray(wholes)[of]
    keys += (used * np.asarray(parts)[of]) >> places
    # Less than 1 for the head, 1 for the shift, used / 2**places for parts.
    return keys, 3 + (most >> places)

  def _told_apart(
    self,
    kept: np.ndarray,
    order: np.ndarray,
    keys: np.ndarray,
    bound: int,
    bits: int,
    tops: list[int],
  ) -> np.ndarray:
    """Returns the order with rows of nearly equal keys in their true places."""
    near = np.diff(keys[order]) < bound
    if not near.any():
      return order
    of = self._of[kept[order]]
    mixed = near & (of[1:] != of[:-1])
    if not mixed.any():
      return order
    cluster = np.concatenate([[0], np.cumsum(~near)])
    is_mixed = np.zeros(int(cluster[-1]) + 1, bool)
    is_mixed[cluster[1:][mixed]] = True
    members = np.flatnonzero(is_mixed[cluster])
    flat = kept[order[members]]
    ties, cluster = self._ties(flat), cluster[members]
    merge = self._merge
    deltas = [merge._delta[i] for i in self._live.tolist()]
    # Different levels differ by at least 1 over the product of denominators.
    finest = math.prod(sorted(deltas)[-2:])
    if bits > 0 and 2**bits > 2 * bound * finest:
      places = np.lexsort((flat, ties, cluster))
    else:
      betas = [merge._beta[i] for i in self._live.tolist()]
      levels = [
        fractions.Fraction(tops[i] + betas[i] * used, deltas[i])
        for i, used in zip(
          self._of[flat].tolist(), self._used[flat].tolist(), strict=True
        )
      ]
      exact = list(
        zip(cluster.tolist(), levels, ties.tolist(), flat.tolist(), strict=True)
      )
      places = np.asarray(sorted(range(len(exact)), key=exact.__getitem__))
    order = order.copy()
    order[members] = order[members][places]
    return order

  def _ties(self, flat: np.ndarray) -> np.ndarray:
    """Returns uint64[N], the hashes of rows by the first row of their run."""
    merge = self._merge
    new = np.ones(len(self._used), bool)
    new[1:] = self._used[1:] != self._used[:-1]
    new[self._begins] = True
    first = np.maximum.accumulate(np.where(new, np.arange(len(new)), 0))
    rows = self._row.copy()
    for begin, head, run in zip(
      self._begins.tolist(), self._heads, self._run_starts, strict=True
    ):
      if run is not None:
        rows[begin] = merge._sequences[run[0]].rows_below(head)
    keys = merge._tie_keys[self._live][self._of[flat]]
    return hashing.fold(keys, rows[first[flat]])


def _scaled(over: int, under: int, bits: int) -> int:
  """Returns floor(over / under * 2**bits)."""
  if bits >= 0:
    return (over << bits) // under
  return over // (under << -bits)
