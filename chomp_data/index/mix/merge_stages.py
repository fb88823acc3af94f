"""The stages of a mix: where each begins in every source, and where all end.

At a change let v be the least units over weight among the sources that were
giving rows: each of them keeps the units that it is beyond its share, c - v w,
under its new weight; a source that joins or returns is at the level and goes
on with its next row. Stages are worked out one after the other, as far as they
are asked for. NumPy only.
"""

import bisect
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import decimal
import fractions
import itertools
import math

import numpy as np

from chomp_data.index import hashing
from chomp_data.index.mix import exhaustion as policies
from chomp_data.index.mix import least_consumed
from chomp_data.index.mix import unit_sums

# Weights further apart would never be served: no run is that long.
_MOST_RATIO = 10**15

_EXACT = frozenset([int, fractions.Fraction])


@dataclasses.dataclass(frozen=True)
class Stage:
  """Weights from a position on.

  Attributes:
    from_position: The first position with these weights; 0 in the first stage.
    weights: By source; positive and exact. A source left out gives no row.
  """

  from_position: int
  weights: Mapping[str, fractions.Fraction | int]


@dataclasses.dataclass(frozen=True)
class Begun:
  """A stage whose start is known.

  Attributes:
    index: Its number.
    position: Where it starts.
    rows: int64[S], each source's next row there.
    lanes: int32[A], the sources that it weighs, in the order of their names.
    merge: Their merge from there on.
    until: Where the next stage starts or the mix ends; None is never.
    ends: Whether the mix ends there.
  """

  index: int
  position: int
  rows: np.ndarray
  lanes: np.ndarray
  merge: least_consumed.Merge
  until: int | None
  ends: bool

  def rows_at(self, position: int) -> np.ndarray:
    """Returns int64[S], each source's next row at a position of the stage."""
    rows = self.rows.copy()
    rows[self.lanes] = self.merge.rows_after(position - self.position)
    return rows

  def lane_of(self, source: int) -> int | None:
    """Returns a source's place in the merge, None where it has no weight."""
    found = np.flatnonzero(self.lanes == source)
    return int(found[0]) if len(found) else None


class StageChain:
  """Stages in order, each from where the one before it stopped."""

  def __init__(
    self,
    sequences: Mapping[str, unit_sums.UnitSequence],
    stages: Sequence[Stage],
    key: int,
    exhaustion: str,
    exhausted_at: Mapping[str, int | None],
    start: Mapping[str, tuple[int, int]],
  ):
    """Checks and keeps the arguments, those of `Interleave`."""
    self._names = tuple(sequences)
    self._numbers = {name: i for i, name in enumerate(self._names)}
    self._sequences = tuple(map(unit_sums.windowed, sequences.values()))
    self._stages = tuple(stages)
    policies.named(exhaustion)
    self._exhaustion = exhaustion
    self._check_stages()
    self._starts = [stage.from_position for stage in self._stages]
    self.check_names("exhausted_at", exhausted_at)
    self._exhausted_at, self._limits = [], []
    for name, sequence in sequences.items():
      self._add_limits(name, sequence, exhausted_at.get(name))
    self._start = dict(start)
    self._check_start()
    self._tie_keys = {n: hashing.fold_key(key, "tie", n) for n in self._names}
    self._later = self._weighed_from()
    self._begun: list[Begun] = []

  def __getstate__(self) -> dict[str, object]:
    return {**self.__dict__, "_begun": []}

  def check_names(self, field: str, given: Mapping[str, object]) -> None:
    """Raises ValueError if a mapping names unknown sources."""
    unknown = [name for name in given if name not in self._numbers]
    if unknown:
      raise ValueError(
        f"`{field}` must name known sources, got {unknown}. Known:"
        f" {', '.join(self._names)}."
      )

  def _check_stages(self) -> None:
    positions = [stage.from_position for stage in self._stages]
    rising = all(a < b for a, b in itertools.pairwise(positions))
    if positions[:1] != [0] or not rising:
      raise ValueError(
        f"`stages` must start at position 0 and rise, got {positions}. Put"
        " them in order, each position once."
      )
    if positions[-1] >= unit_sums.MOST_UNITS:
      raise ValueError(
        f"`stages` must start before position {unit_sums.MOST_UNITS}, got"
        f" {positions[-1]}. Start them earlier."
      )
    if self._are_plain():
      return
    for i, stage in enumerate(self._stages):
      field = f"stages[{i}].weights"
      self.check_names(field, stage.weights)
      if not stage.weights:
        raise ValueError(
          f"`{field}` must name at least one source, got none. Give one a"
          " weight."
        )
      for name, weight in stage.weights.items():
        _check_weight(field, name, weight)
      if _lie_near(stage.weights.values()):
        continue
      low, high = (
        choose(stage.weights, key=lambda name: stage.weights[name])
        for choose in (min, max)
      )
      if stage.weights[high] > _MOST_RATIO * stage.weights[low]:
        shown = " and ".join(
          f"{_decimal(stage.weights[name])} of {name!r}" for name in (high, low)
        )
        raise ValueError(
          f"`{field}` must lie within a factor of {_MOST_RATIO:.0e}, got"
          f" {shown}. Leave {low!r} out."
        )

  def _are_plain(self) -> bool:
    """Says at once of most chains that nothing is wrong with their weights."""
    chain = [stage.weights for stage in self._stages]
    if not all(chain) or not self._numbers.keys() >= set().union(*chain):
      return False
    # Chains often repeat weights.
    every = {id(own): own for weights in chain for own in weights.values()}
    return _EXACT.issuperset(map(type, every.values())) and _lie_near(
      every.values()
    )

  def _add_limits(
    self, name: str, sequence: unit_sums.UnitSequence, at: int | None
  ) -> None:
    offered = sequence.num_rows
    at = offered if at is None else at
    if at is not None and (at < 1 or (offered is not None and at > offered)):
      most = "" if offered is None else f" and at most {offered}"
      raise ValueError(
        f"`exhausted_at[{name!r}]` must be at least 1 row{most}, got {at}."
        " Leave out a source without rows."
      )
    limit = offered if self._policy.repeats else at
    if limit is None and at is not None:
      consumed = sequence.before(np.asarray([at], np.int64))
      if not consumed[0]:
        raise ValueError(
          f"`sequences[{name!r}]` must consume units where its rows repeat,"
          f" got none in {at} rows. Leave the source out."
        )
    self._exhausted_at.append(at)
    self._limits.append(limit)

  def _check_start(self) -> None:
    self.check_names("start", self._start)
    for name, (row, consumed) in self._start.items():
      limit = self._limits[self._numbers[name]]
      if row < 0 or consumed < 0 or (limit is not None and row > limit):
        most = "" if limit is None else f" and at most {limit} rows"
        raise ValueError(
          f"`start[{name!r}]` must be at least 0 rows and units{most}, got"
          f" {(row, consumed)}. Take them from the run to go on from."
        )

  @property
  def _policy(self) -> policies.Exhaustion:
    # By its name, which workers know too: a policy may hold functions.
    return policies.named(self._exhaustion)

  def start_row(self, name: str) -> int:
    """Returns a source's first row in this run."""
    return self._start.get(name, (0, 0))[0]

  def limit(self, source: int) -> int | None:
    """Returns the rows after which a source, by number, ends."""
    return self._limits[source]

  def __len__(self) -> int:
    return len(self._stages)

  def begins_at(self, index: int) -> int:
    """Returns the position from which a stage's weights would hold."""
    return self._starts[index]

  def weights(self, index: int) -> Mapping[str, fractions.Fraction | int]:
    """Returns the weights of a stage."""
    return self._stages[index].weights

  def stage(self, index: int) -> Begun | None:
    """Returns a stage, or None where the mix ends before it."""
    begun = self._begun
    if len(begun) <= index:
      if begun and begun[-1].ends:
        return None
      begun = list(begun)
      while len(begun) <= index and not (begun and begun[-1].ends):
        begun.append(self._begin(begun[-1] if begun else None))
      # One assignment, so that threads see whole chains only.
      self._begun = begun
    return begun[index] if index < len(begun) else None

  def at(self, position: int) -> Begun:
    """Returns the stage of a position; the last one beyond the end.

    Args:
      position: At least 0.
    """
    index = bisect.bisect_right(self._starts, position) - 1
    return self.stage(index) or self._begun[-1]

  def last_begun(self, source: int, row: int) -> int:
    """Returns the last stage known to begin at a source's row, or before."""
    begun = self._begun
    after = bisect.bisect_right(begun, row, key=lambda own: own.rows[source])
    return max(after - 1, 0)

  @property
  def end(self) -> int | None:
    """Where the mix ends; None is never."""
    known, end = self._plain_end()
    if known:
      return end
    last = self.stage(len(self._stages) - 1) or self._begun[-1]
    return last.until if last.ends else None

  def _plain_end(self) -> tuple[bool, int | None]:
    """Returns whether the end follows from limits alone, and the end.

    It does where nothing but the last row of a stage's sources ends the mix,
    and those of a stage that another one follows outlast it, whoever gave the
    rows before it. No stage is worked out for it.
    """
    if self._policy.ends is not None:
      return False, None
    for stage, until in zip(self._stages, self._starts[1:], strict=False):
      left = self._offered(stage)
      if left is not None and left < until:
        return False, None
    end = self._offered(self._stages[-1])
    everyone = len(self._stages[-1].weights) == len(self._later[0])
    return end is None or everyone, end

  def _offered(self, stage: Stage) -> int | None:
    """Returns the rows that a stage's sources have in this run."""
    total = 0
    for name in stage.weights:
      limit = self._limits[self._numbers[name]]
      if limit is None:
        return None
      total += limit - self.start_row(name)
    return total

  def _weighed_from(self) -> list[list[str]]:
    """Returns which sources each stage or a later one weighs, by stage."""
    out: list[list[str]] = []
    weighed: set[str] = set()
    for stage in reversed(self._stages):
      if not weighed.issuperset(stage.weights):
        weighed.update(stage.weights)
        out.append(sorted(weighed))
      else:
        out.append(out[-1])
    return out[::-1]

  def _begin(self, last: Begun | None) -> Begun:
    """Returns the stage after `last`."""
    index = 0 if last is None else last.index + 1
    stage = self._stages[index]
    if last is None:
      rows = np.asarray([self.start_row(n) for n in self._names], np.int64)
      overshoots, parts = self._first_overshoots(stage)
    else:
      rows = last.rows_at(stage.from_position)
      overshoots, parts = self._overshoots(last, rows)
    # In the order of names: that of the mapping decides nothing.
    names = sorted(stage.weights)
    lanes = [self._numbers[name] for name in names]
    merge = least_consumed.Merge(
      [self._sequences[i] for i in lanes],
      [self._tie_keys[name] for name in names],
      [fractions.Fraction(stage.weights[name]) for name in names],
      rows[lanes].tolist(),
      [overshoots.get(name, 0) for name in names],
      [self._limits[i] for i in lanes],
      parts,
    )
    begun = Begun(
      index, stage.from_position, rows, np.asarray(lanes, np.int32), merge,
      until=None, ends=False,
    )  # fmt: skip
    until, ends = self._until(begun)
    return dataclasses.replace(begun, until=until, ends=ends)

  def _first_overshoots(self, stage: Stage) -> tuple[dict[str, int], int]:
    """Returns by how many parts of units sources are ahead at position 0."""
    # One that has ended is at no level: it gave what it had.
    levels = {
      name: fractions.Fraction(self._start[name][1]) / weight
      for name, weight in stage.weights.items()
      if name in self._start
      and self._start[name][0] != self._limits[self._numbers[name]]
    }
    least = min(levels.values(), default=fractions.Fraction(0))
    ahead = {
      name: (level - least) * stage.weights[name]
      for name, level in levels.items()
    }
    parts = math.lcm(*(own.denominator for own in ahead.values()))
    return {name: int(own * parts) for name, own in ahead.items()}, parts

  def _overshoots(
    self, last: Begun, rows: np.ndarray
  ) -> tuple[dict[str, int], int]:
    """Returns by how many parts of units sources are ahead after a stage."""
    giving = [
      (lane, source, int(rows[source]))
      for lane, source in enumerate(last.lanes.tolist())
      if not last.merge.ended(lane, int(rows[source]))
    ]
    ahead, parts = last.merge.overshoots(
      [(lane, row) for lane, _, row in giving]
    )
    names = [self._names[source] for _, source, _ in giving]
    return dict(zip(names, ahead, strict=True)), parts

  def _until(self, stage: Begun) -> tuple[int | None, bool]:
    """Returns where a stage stops, and whether the whole mix ends there."""
    following = None
    if stage.index + 1 < len(self._stages):
      following = self._stages[stage.index + 1].from_position
    exhausted = self._exhausted(stage)
    if exhausted is not None and (following is None or exhausted <= following):
      # A policy's end holds even where the next stage begins.
      following = exhausted
    left = stage.merge.num_rows
    if left is not None and (
      following is None or stage.position + left < following
    ):
      return stage.position + left, True
    return following, following is not None and following == exhausted

  def _exhausted(self, stage: Begun) -> int | None:
    """Returns where the policy ends the mix if no other stage comes."""
    ends = self._policy.ends
    if ends is None:
      return None
    sources = [self._seen(stage, name) for name in self._later[stage.index]]
    last = ends(sources, lambda own: stage.merge.key(*(own.last or (0, 0))))
    if last is None:
      return None
    if last.last is None:
      return stage.position
    rank = stage.merge.rank(*last.last)
    # Beyond 2**62 rows or units there is no end that a run could meet.
    return None if rank is None else stage.position + rank + 1

  def _seen(self, stage: Begun, name: str) -> policies.Source:
    """Returns a source as a policy sees it where a stage begins."""
    number = self._numbers[name]
    at, lane = self._exhausted_at[number], stage.lane_of(number)
    exhausted = at is not None and bool(stage.rows[number] >= at)
    last = None
    if at is not None and lane is not None and not exhausted:
      last = (lane, at - 1)
    return policies.Source(lane is not None, exhausted, last)


def _decimal(weight: fractions.Fraction | int) -> str:
  """Returns a weight for people; a float would not hold every one."""
  return f"{decimal.Decimal(weight.numerator) / weight.denominator:.6g}"


def _lie_near(weights: Collection[fractions.Fraction | int]) -> bool:
  """Says of most weights that all are above 0 and within `_MOST_RATIO`."""
  over = [weight.numerator for weight in weights]
  under = [weight.denominator for weight in weights]
  least = min(over) * min(under)
  return 0 < max(over) * max(under) <= _MOST_RATIO * least


def _check_weight(field: str, name: str, weight: object) -> None:
  if isinstance(weight, bool) or not isinstance(
    weight, (int, fractions.Fraction)
  ):
    raise TypeError(
      f"`{field}[{name!r}]` must be an int or a Fraction, got {weight!r}. Take"
      " Fraction(str(weight))."
    )
  if weight.numerator <= 0:
    raise ValueError(
      f"`{field}[{name!r}]` must be positive, got {weight}. Leave the"
      " source out of the stage to stop it."
    )
