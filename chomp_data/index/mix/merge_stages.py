# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The stages of a mix: where each begins in every source, and where all end.

At a change let v be the least units over weight among the sources that were
giving rows: each of them keeps the units that it is beyond its share, c - v w,
under its new weight; a source that joins or returns is at the level and goes
on with its next row. Stages are worked out one after the other, as far as they
are asked for. NumPy only.
"""

import bisect
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import decimal
import fractions
import itertools
import math
from typing import Any
from typing import Protocol

import numpy as np

from chomp_data.index import hashing
from chomp_data.index import memo
from chomp_data.index.mix import exhaustion as policies
from chomp_data.index.mix import least_consumed
from chomp_data.index.mix import standings
from chomp_data.index.mix import unit_sums

# Weights further apart would never be served: no run is that long.
_MOST_RATIO = 10**15

_EXACT = frozenset([int, fractions.Fraction])

# Stages whose merges are at hand.
_BEGUN_KEPT = 64

# Of the form of `Kept.lines`, of the order that they stand for, what a policy's
# name means included, and of `standings.EVERY`.
_KEPT_VERSION = 1

# Stages whose begins are worked out before they are kept: 6 ms of work where
# sums are at hand, a second where rows of long stages are planned for them.
KEPT_AFTER = standings.EVERY


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


@dataclasses.dataclass(frozen=True)
class Kept:
  """Begins of stages as they outlive a process.

  Attributes:
    lines: All that they depend on: the begin of stage k on lines 0 .. k, each
      of which ends with a line break.
    names: The sources, by number.
    standings: The begins, as many as there are lines.
  """

  lines: bytes
  names: Sequence[str]
  standings: standings.Standings


class Keeper(Protocol):
  """Keeps begins of stages for other processes and later runs."""

  def identity(self, source: str) -> str:
    """Returns a line of all that the units of a source's rows depend on."""
    ...

  def found(self, lines: bytes) -> Iterable[Kept]:
    """Returns what was kept whose first two lines are these."""
    ...

  def keep(self, kept: Kept) -> None:
    """Keeps begins, if it can."""
    ...


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
    keeper: "Keeper | None" = None,
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
    self._keeper = keeper
    self._forget()
    self._known = self._at_first()
    if len(self._stages) > KEPT_AFTER:
      self._known = self._recalled(self._known)

  def __getstate__(self) -> dict[str, Any]:
    state = dict(self.__dict__)
    del state["_begun"], state["_in_turn"], state["_unkept"]
    if len(self._known) == 1:
      del state["_known"]
    return state

  def __setstate__(self, state: dict[str, Any]) -> None:
    self.__dict__.update(state)
    self._forget()
    if "_known" not in state:
      self._known = self._at_first()

  def _forget(self) -> None:
    self._begun = memo.Memo(_BEGUN_KEPT)
    # Overshoots of stages in a row, and the first of these.
    self._in_turn: tuple[int, list[standings.Overshoots]] = (0, [])
    self._unkept = 0

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

  def lanes(self, index: int) -> list[int]:
    """Returns the sources that a stage weighs, in the order of their names."""
    return [self._numbers[name] for name in sorted(self.weights(index))]

  def stage(self, index: int) -> Begun | None:
    """Returns a stage, or None where the mix ends before it."""
    found = self._begun.get(index)
    if found is not None:
      return found
    known = self._until_stage(index)
    return self._begin(known, index) if index < len(known) else None

  def _last(self) -> Begun:
    """Returns the last stage that is known to begin."""
    known = self._known
    return self._begin(known, len(known) - 1)

  def at(self, position: int) -> Begun:
    """Returns the stage of a position; the last one beyond the end.

    Args:
      position: At least 0.
    """
    index = bisect.bisect_right(self._starts, position) - 1
    return self.stage(index) or self._last()

  def last_begun(self, source: int, row: int) -> int:
    """Returns the last stage known to begin at a source's row, or before."""
    rows = self._known.rows[:, source]
    return max(int(rows.searchsorted(row, side="right")) - 1, 0)

  def rows_before(self, position: int) -> np.ndarray:
    """Returns where the stages begin that begin before a position.

    Args:
      position: At least 1.

    Returns:
      int64[n, S], each source's next row; of stages that the mix ends before,
      none.
    """
    count = bisect.bisect_left(self._starts, position)
    return self._until_stage(count - 1).rows[:count]

  @property
  def end(self) -> int | None:
    """Where the mix ends; None is never."""
    known, end = self._plain_end()
    if known:
      return end
    last = self.stage(len(self._stages) - 1) or self._last()
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

  def _at_first(self) -> standings.Standings:
    """Returns where sources stand at position 0."""
    rows = np.asarray([[self.start_row(n) for n in self._names]], np.int64)
    overshoots = self._first_overshoots(self._stages[0])
    return standings.Standings(rows, np.zeros_like(rows), {0: overshoots})

  def _until_stage(self, index: int) -> standings.Standings:
    """Returns the begins of stages up to one, or to the mix's end before it."""
    known = self._known
    if len(known) > index:
      return known
    if index - len(known) >= KEPT_AFTER:
      known = self._recalled(known)
    before = len(known)
    while len(known) <= index:
      last = self._begin(known, len(known) - 1)
      if last.ends:
        break
      known = self._followed(known, last)
    # One assignment, for other threads.
    self._known = known
    self._unkept += len(known) - before
    if self._keeper is not None and self._unkept >= KEPT_AFTER:
      self._unkept = 0
      self._keeper.keep(Kept(self._lines(len(known)), self._names, known))
    return known

  def _recalled(self, known: standings.Standings) -> standings.Standings:
    """Returns what was kept of these stages where it is more than is known."""
    if self._keeper is None:
      return known
    for own in self._keeper.found(self._lines(2)):
      most = min(len(own.standings), len(self._stages))
      if most <= len(known):
        continue
      count = _lines_in_common(own.lines, self._lines(most))
      if count > len(known):
        known = self._as_here(own, count)
    return known

  def _as_here(self, kept: Kept, count: int) -> standings.Standings:
    """Returns the first begins that were kept, with sources as numbered here.

    Where no stage has weighed a source yet it is where it starts in this run.
    """
    rows = np.repeat(self._at_first().rows, count, axis=0)
    units = np.zeros_like(rows)
    weighed = set().union(*(own.weights for own in self._stages[: count - 1]))
    numbers = {}
    for number, name in enumerate(kept.names):
      if name in weighed:
        own = numbers[number] = self._numbers[name]
        rows[:, own] = kept.standings.rows[:count, number]
        units[:, own] = kept.standings.units[:count, number]
    overshoots = {
      index: standings.Overshoots(
        {numbers[i]: ahead for i, ahead in own.ahead.items()}, own.parts
      )
      for index, own in kept.standings.overshoots.items()
      if index < count
    }
    return standings.Standings(rows, units, overshoots)

  def _lines(self, count: int) -> bytes:
    """Returns all that the begins of the first stages depend on; see `Kept`."""
    # `drop` by any of its names.
    policy = self._policy.canonical or self._exhaustion
    lines = [f"{_KEPT_VERSION} {policy}"]
    quoted = {name: repr(name) for name in self._names}
    told, later = set(), None
    for index, stage in enumerate(self._stages[: count - 1]):
      weights = sorted(stage.weights.items())
      parts = [
        f"{quoted[name]} {weight.numerator}/{weight.denominator}"
        for name, weight in weights
      ]
      new = stage.weights.keys() - told
      # Such a policy looks ahead, at sources that only come later.
      if self._policy.ends is not None and self._later[index] is not later:
        later = self._later[index]
        parts.append(f"later {' '.join(quoted[name] for name in later)}")
        new = {*new, *later} - told
      parts += [self._told(name) for name in sorted(new)]
      told |= new
      lines.append(f"{', '.join(parts)} until {self._starts[index + 1]}")
    return "".join(f"{line}\n" for line in lines).encode()

  def _told(self, name: str) -> str:
    """Returns what a source's place in the order depends on, weights apart."""
    assert self._keeper is not None
    number = self._numbers[name]
    row, consumed = self._start.get(name, (0, None))
    return (
      f"{name!r} tie {self._tie_keys[name]:x} from {row} {consumed} limit"
      f" {self._limits[number]} exhausted at {self._exhausted_at[number]} of"
      f" {self._keeper.identity(name)}"
    )

  def _begin(self, known: standings.Standings, index: int) -> Begun:
    """Returns a stage whose begin is known."""
    return self._begun.get(index, lambda: self._made(known, index))

  def _made(self, known: standings.Standings, index: int) -> Begun:
    stage = self._stages[index]
    rows, overshoots = known.rows[index], self._overshoots(known, index)
    # In the order of names: that of the mapping decides nothing.
    names, lanes = sorted(stage.weights), self.lanes(index)
    merge = least_consumed.Merge(
      [self._sequences[i] for i in lanes],
      [self._tie_keys[name] for name in names],
      [fractions.Fraction(stage.weights[name]) for name in names],
      rows[lanes].tolist(),
      [overshoots.ahead.get(i, 0) for i in lanes],
      [self._limits[i] for i in lanes],
      overshoots.parts,
    )
    begun = Begun(
      index,
      stage.from_position,
      rows,
      np.asarray(lanes, np.int32),
      merge,
      until=self._starts[index + 1] if index + 1 < len(known) else None,
      ends=False,
    )
    if begun.until is not None:
      return begun
    until, ends = self._until(begun)
    return dataclasses.replace(begun, until=until, ends=ends)

  def _followed(
    self, known: standings.Standings, last: Begun
  ) -> standings.Standings:
    """Returns what is known with the stage after the last one."""
    rows = last.rows_at(self._starts[last.index + 1])
    gained = np.zeros_like(rows)
    for lane, source in enumerate(last.lanes.tolist()):
      row = int(rows[source])
      if not last.merge.ended(lane, row):
        gained[source] = last.merge.consumed(lane, row)
    overshoots = _passed(
      self._overshoots(known, last.index),
      last.lanes.tolist(),
      last.merge.weights,
      gained.tolist(),
      [own == limit for own, limit in zip(rows, self._limits, strict=True)],
    )
    return known.followed(rows, known.units[last.index] + gained, overshoots)

  def _overshoots(
    self, known: standings.Standings, index: int
  ) -> standings.Overshoots:
    """Returns by how much sources are ahead where a known stage begins."""
    found = known.overshoots.get(index)
    if found is not None:
      return found
    first, run = self._in_turn
    base = index - index % standings.EVERY
    run = list(run) if first == base and run else [known.overshoots[base]]
    for i in range(base + len(run) - 1, index):
      weights = self._stages[i].weights
      rows = known.rows[i + 1].tolist()
      run.append(
        _passed(
          run[-1],
          self.lanes(i),
          least_consumed.whole([weights[name] for name in sorted(weights)]),
          (known.units[i + 1] - known.units[i]).tolist(),
          [own == limit for own, limit in zip(rows, self._limits, strict=True)],
        )
      )
    # One assignment, for other threads.
    self._in_turn = base, run
    return run[index - base]

  def _first_overshoots(self, stage: Stage) -> standings.Overshoots:
    """Returns by how much sources are ahead at position 0."""
    # One that has ended is at no level: it gave what it had.
    levels = {
      name: fractions.Fraction(self._start[name][1]) / weight
      for name, weight in stage.weights.items()
      if name in self._start
      and self._start[name][0] != self._limits[self._numbers[name]]
    }
    least = min(levels.values(), default=fractions.Fraction(0))
    ahead = {
      self._numbers[name]: (level - least) * stage.weights[name]
      for name, level in levels.items()
    }
    parts = math.lcm(*(own.denominator for own in ahead.values()))
    return standings.Overshoots(
      {number: int(own * parts) for number, own in ahead.items()}, parts
    )

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


def _passed(
  before: standings.Overshoots,
  lanes: Sequence[int],
  weights: Sequence[int],
  gained: Sequence[int],
  ended: Sequence[bool],
) -> standings.Overshoots:
  """Returns by how much sources are ahead after a stage.

  Args:
    before: How much they were where it began.
    lanes: The sources that it weighs.
    weights: Of these, whole numbers.
    gained: The units that each source has consumed in it.
    ended: Which sources have no row left.
  """
  giving = [
    (source, weight)
    for source, weight in zip(lanes, weights, strict=True)
    if not ended[source]
  ]
  ahead, parts = least_consumed.beyond_least(
    [before.ahead.get(i, 0) + gained[i] * before.parts for i, _ in giving],
    [weight for _, weight in giving],
    before.parts,
  )
  sources = [source for source, _ in giving]
  return standings.Overshoots(dict(zip(sources, ahead, strict=True)), parts)


def _lines_in_common(one: bytes, other: bytes) -> int:
  """Returns how many lines two texts begin with alike."""
  most = min(len(one), len(other))
  pair = [np.frombuffer(own, np.uint8, most) for own in (one, other)]
  differ = np.flatnonzero(pair[0] != pair[1])
  return one.count(b"\n", 0, int(differ[0]) if len(differ) else most)


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
