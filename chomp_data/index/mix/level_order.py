"""Sorts the next rows of a few sources by level, tie, source and row, exactly.

A row's level is (alpha + beta P) / delta for the P units before it. Levels are
sorted as int64 keys, rounded down by less than a known bound; rows of several
sources whose keys are closer than that are told apart by their ties where
nothing but equal levels can be so close, else as fractions. NumPy only.
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

# Covers the rounding of float64 where floats only say which rows to sort.
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

    The rest is 0 where the units are exact.
    """
    return divmod(level * self.delta - self.alpha * over, self.beta * over)

  @property
  def gain(self) -> float:
    """Levels of one unit."""
    return self.beta / self.delta


@dataclasses.dataclass(frozen=True)
class Upcoming:
  """The next rows of a source.

  Attributes:
    source: Its number.
    scale: Its levels.
    tie_key: Folded with the first row of a run, decides between equal levels.
    row: The first of the rows.
    run_row: The first row with as many units before it as that one.
    before: int64[N], the units before each row.
    is_all: Whether the source has no rows after these. Else the last of them
      is not taken; it bounds how far the others may go.
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
  """Returns the rows that come first, as far as these rows can tell.

  Args:
    upcoming: By source, in the order of the sources; at least one, each with
      at least one row that may be taken.
    wanted: At least 1.

  Returns:
    Sources int32[N] and their rows int64[N], in order, N in 1 .. `wanted`.
  """
  return _Table(upcoming).ordered(wanted)


class _Table:
  """All rows side by side, source after source."""

  def __init__(self, upcoming: Sequence[Upcoming]):
    self._upcoming = upcoming
    counts = np.asarray([len(own.before) for own in upcoming])
    self._begins = np.cumsum(counts) - counts
    self._of = np.repeat(np.arange(len(upcoming)), counts)
    shift = np.asarray([own.row for own in upcoming]) - self._begins
    self._row = np.arange(len(self._of)) + shift[self._of]
    self._used = np.concatenate([o.before - o.before[0] for o in upcoming])
    is_all = np.asarray([own.is_all for own in upcoming])
    self._is_bound = np.zeros(len(self._of), bool)
    self._is_bound[(self._begins + counts - 1)[~is_all]] = True
    # Levels relative to a whole one below them all, where the rows start.
    tops = [own.scale.alpha + own.scale.beta * int(own.before[0])
            for own in upcoming]  # fmt: skip
    self._deltas = [own.scale.delta for own in upcoming]
    pairs = list(zip(tops, self._deltas, strict=True))
    base = min(top // delta for top, delta in pairs)
    self._tops = [top - base * delta for top, delta in pairs]

  def ordered(self, wanted: int) -> tuple[np.ndarray, np.ndarray]:
    gains = np.asarray([own.scale.gain for own in self._upcoming])
    tops = zip(self._tops, self._deltas, strict=True)
    levels = np.asarray([top / delta for top, delta in tops])[self._of]
    levels += self._used * gains[self._of]
    bounds = levels[self._is_bound]
    highest = bounds.min() if len(bounds) else math.inf
    kept = np.flatnonzero(levels <= highest * _SLACK)
    bits = _KEY_BITS - max(0, math.frexp(levels[kept].max())[1])
    keys, error = self._keys(kept, bits)
    order = np.argsort(keys, kind="stable")
    order = self._told_apart(kept, order, keys, error, bits)
    bounds = np.flatnonzero(self._is_bound[kept[order]])
    stop = min(wanted, int(bounds[0])) if len(bounds) else wanted
    chosen = kept[order[:stop]]
    sources = np.asarray([own.source for own in self._upcoming], np.int32)
    return sources[self._of[chosen]], self._row[chosen]

  def _keys(self, kept: np.ndarray, bits: int) -> tuple[np.ndarray, int]:
    """Returns levels times 2**bits, rounded down by less than an error."""
    of, used = self._of[kept], self._used[kept]
    most = int(used.max())
    places = _KEY_BITS + 1 - most.bit_length()
    heads, wholes, parts = [], [], []
    for own, top in zip(self._upcoming, self._tops, strict=True):
      fine = _scaled(own.scale.beta, own.scale.delta, bits + places)
      # Beyond the clamp are rows that are not kept.
      heads.append(min(_scaled(top, own.scale.delta, bits), _CLAMP))
      wholes.append(min(fine >> places, _CLAMP))
      parts.append(fine & ((1 << places) - 1))
    keys = np.asarray(heads)[of] + used * np.asarray(wholes)[of]
    keys += (used * np.asarray(parts)[of]) >> places
    # Below 1 for the head, 1 for the shift, and used / 2**places for parts.
    return keys, 3 + (most >> places)

  def _told_apart(
    self,
    kept: np.ndarray,
    order: np.ndarray,
    keys: np.ndarray,
    error: int,
    bits: int,
  ) -> np.ndarray:
    """Returns the order with rows of nearly equal keys in their true places."""
    near = np.diff(keys[order]) < error
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
    flat, cluster = kept[order[members]], cluster[members]
    ties = self._ties(flat)
    # Different levels differ by at least 1 over the product of denominators.
    finest = math.prod(sorted(self._deltas)[-2:])
    if bits > 0 and 2**bits > 2 * error * finest:
      places = np.lexsort((flat, ties, cluster))
    else:
      arrays = (
        cluster.tolist(),
        self._exact(flat),
        ties.tolist(),
        flat.tolist(),
      )
      exact = list(zip(*arrays, strict=True))
      places = np.asarray(sorted(range(len(exact)), key=exact.__getitem__))
    order = order.copy()
    order[members] = order[members][places]
    return order

  def _exact(self, flat: np.ndarray) -> list[fractions.Fraction]:
    """Returns the levels of rows."""
    betas = [own.scale.beta for own in self._upcoming]
    of, used = self._of[flat].tolist(), self._used[flat].tolist()
    return [
      fractions.Fraction(self._tops[i] + betas[i] * units, self._deltas[i])
      for i, units in zip(of, used, strict=True)
    ]

  def _ties(self, flat: np.ndarray) -> np.ndarray:
    """Returns uint64[N], the hashes of rows by the first row of their run."""
    new = np.ones(len(self._used), bool)
    new[1:] = self._used[1:] != self._used[:-1]
    new[self._begins] = True
    first = np.maximum.accumulate(np.where(new, np.arange(len(new)), 0))
    rows = self._row.copy()
    rows[self._begins] = [own.run_row for own in self._upcoming]
    keys = np.asarray([own.tie_key for own in self._upcoming], np.uint64)
    return hashing.fold(keys[self._of[flat]], rows[first[flat]])


def _scaled(over: int, under: int, bits: int) -> int:
  """Returns floor(over / under * 2**bits)."""
  if bits >= 0:
    return (over << bits) // under
  return over // (under << -bits)
