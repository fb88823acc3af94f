# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The stages of a mix: where each begins in every source, and where all end.

At a change let v be the least units over weight among the sources that were
giving rows: each of them keeps the units that it is beyond its share, c - v w,
under its new weight; a source that joins or returns is at the level and goes
on with its next row. Where stages begin is computed sequentially, as far as
it is asked for, and kept in memory. NumPy only.
"""

import bisect
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import decimal
import fractions
import itertools

import numpy as np

from chomp_data.index import hashing
from chomp_data.mix import exhaustion as policies
from chomp_data.mix import least_consumed
from chomp_data.mix import unit_sequence

# Weights further apart would never be served: no run is that long.
_MOST_RATIO = 10**15


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
class StageStart:
  """A stage whose start is known.

  Attributes:
    index: Its number.
    position: Where it starts.
    rows: int64[S], each source's next row there.
    units: The units before these rows.
    lanes: int32[A], the sources that it weighs, in the order of their names.
    merge: Their merge from there on.
    until: Where the next stage starts or the mix ends; None is never.
    ends: Whether the mix ends there.
  """

  index: int
  position: int
  rows: np.ndarray
  units: list[int]
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
    lanes = np.flatnonzero(self.lanes == source)
    return int(lanes[0]) if len(lanes) else None


class StageChain:
  """Stages in order, each from where the one before it stopped."""

  def __init__(
    self,
    sequences: Mapping[str, unit_sequence.UnitSequence],
    stages: Sequence[Stage],
    key: int,
    exhaustion: str,
    exhausted_at: Mapping[str, int | None],
    start: Mapping[str, tuple[int, int]],
  ):
    """Checks the arguments, those of `Interleave`."""
    self._names = tuple(sequences)
    self._numbers = {name: i for i, name in enumerate(self._names)}
    self._stages = tuple(stages)
    policies.named(exhaustion)
    self._exhaustion = exhaustion
    self._check_stages()
    self._starts = [stage.from_position for stage in self._stages]
    self.check_names("exhausted_at", exhausted_at)
    self._exhausted_at: list[int | None] = []
    self._sources: list[least_consumed.Source] = []
    for name, sequence in sequences.items():
      at, limit = self._limits_of(name, sequence, exhausted_at.get(name))
      self._exhausted_at.append(at)
      tie_key = hashing.fold_key(key, "tie", name)
      self._sources.append(least_consumed.Source(sequence, tie_key, limit))
    self._start = dict(start)
    self._check_start()
    self._later = self._weighed_from()
    # The stages from the first on, as far as they were asked for.
    self._stage_starts: list[StageStart] = []

  def check_names(self, field: str, by_name: Mapping[str, object]) -> None:
    """Raises ValueError if a mapping names unknown sources."""
    unknown = [name for name in by_name if name not in self._numbers]
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
    if positions[-1] >= unit_sequence.MOST_UNITS:
      raise ValueError(
        f"`stages` must start before position {unit_sequence.MOST_UNITS}, got"
        f" {positions[-1]}. Start them earlier."
      )
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
      if _surely_near(stage.weights.values()):
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

  def _limits_of(
    self, name: str, sequence: unit_sequence.UnitSequence, at: int | None
  ) -> tuple[int | None, int | None]:
    """Returns after which rows a source is exhausted, and where it ends."""
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
    return at, limit

  def _check_start(self) -> None:
    self.check_names("start", self._start)
    for name, (row, consumed) in self._start.items():
      limit = self.limit(self._numbers[name])
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
    return self._sources[source].limit

  def __len__(self) -> int:
    return len(self._stages)

  def weights(self, index: int) -> Mapping[str, fractions.Fraction | int]:
    """Returns the weights of a stage."""
    return self._stages[index].weights

  def lanes(self, index: int) -> list[int]:
    """Returns the sources that a stage weighs, in the order of their names."""
    return [self._numbers[name] for name in sorted(self.weights(index))]

  def stage(self, index: int) -> StageStart | None:
    """Returns a stage, or None where the mix ends before it."""
    starts = self._stages_until(index)
    return starts[index] if index < len(starts) else None

  def at(self, position: int) -> StageStart:
    """Returns the stage of a position; the last one beyond the end.

    Args:
      position: At least 0.
    """
    index = bisect.bisect_right(self._starts, position) - 1
    starts = self._stages_until(index)
    return starts[min(index, len(starts) - 1)]

  def last_started(self, source: int, row: int) -> int:
    """Returns the last stage so far that starts at a source's row or before."""
    index = bisect.bisect_right(
      self._stage_starts, row, key=lambda stage: stage.rows[source]
    )
    return max(index - 1, 0)

  def rows_before(self, position: int) -> np.ndarray:
    """Returns where the stages begin that begin before a position.

    Args:
      position: At least 1.

    Returns:
      int64[n, S], each source's next row; of stages that the mix ends before,
      none.
    """
    count = bisect.bisect_left(self._starts, position)
    starts = self._stages_until(count - 1)[:count]
    return np.stack([start.rows for start in starts])

  @property
  def end(self) -> int | None:
    """Where the mix ends; None is never."""
    follows, end = self._plain_end()
    if follows:
      return end
    last = self._stages_until(len(self._stages) - 1)[-1]
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
      limit = self.limit(self._numbers[name])
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

  def _stages_until(self, index: int) -> list[StageStart]:
    """Returns at least the stages up to one, or up to the mix's end."""
    starts = self._stage_starts
    if len(starts) > index:
      return starts
    starts = starts.copy() or [self._first_stage()]
    while len(starts) <= index and not starts[-1].ends:
      starts.append(self._stage_after(starts[-1]))
    # One assignment, for other threads.
    self._stage_starts = starts
    return starts

  def _first_stage(self) -> StageStart:
    rows = np.asarray([self.start_row(name) for name in self._names], np.int64)
    units = [
      source.before(row)
      for source, row in zip(self._sources, rows.tolist(), strict=True)
    ]
    return self._start_stage(0, rows, units, *self._first_overshoots())

  def _stage_after(self, last: StageStart) -> StageStart:
    """Returns the stage that begins where a stage stops."""
    rows, units = last.rows_at(self._starts[last.index + 1]), last.units.copy()
    running = {}
    for lane, number in enumerate(last.lanes.tolist()):
      units[number] = self._sources[number].before(int(rows[number]))
      if rows[number] != self.limit(number):
        running[lane] = units[number]
    ahead, parts = last.merge.overshoots(running)
    ahead = {int(last.lanes[lane]): excess for lane, excess in ahead.items()}
    return self._start_stage(last.index + 1, rows, units, ahead, parts)

  def _start_stage(
    self,
    index: int,
    rows: np.ndarray,
    units: list[int],
    ahead: Mapping[int, int],
    parts: int,
  ) -> StageStart:
    """Returns a stage, and where it stops.

    Args:
      index: Its number.
      rows: int64[S], each source's next row where it begins.
      units: The units before these rows.
      ahead: By how much sources are beyond the least level of them there, in
        parts of units; 0 of those left out.
      parts: The parts of a unit.
    """
    stage, lanes = self._stages[index], self.lanes(index)
    merge = least_consumed.Merge(
      [self._sources[number] for number in lanes],
      [fractions.Fraction(stage.weights[self._names[i]]) for i in lanes],
      rows[lanes].tolist(),
      [units[number] for number in lanes],
      [ahead.get(number, 0) for number in lanes],
      parts,
    )
    start = StageStart(
      index,
      stage.from_position,
      rows,
      units,
      np.asarray(lanes, np.int32),
      merge,
      until=None,
      ends=False,
    )
    until, ends = self._until(start)
    return dataclasses.replace(start, until=until, ends=ends)

  def _first_overshoots(self) -> tuple[dict[int, int], int]:
    """Returns how far sources are ahead at position 0, as `_start_stage`."""
    by_name = self._stages[0].weights
    weights = dict(
      zip(by_name, least_consumed.whole(list(by_name.values())), strict=True)
    )
    # A source that has ended has no level: it gave all of its rows.
    units = {
      name: consumed
      for name, (row, consumed) in self._start.items()
      if name in weights and row != self.limit(self._numbers[name])
    }
    ahead, parts = least_consumed.beyond_least(
      list(units.values()), [weights[name] for name in units], 1
    )
    numbers = [self._numbers[name] for name in units]
    return dict(zip(numbers, ahead, strict=True)), parts

  def _until(self, stage: StageStart) -> tuple[int | None, bool]:
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

  def _exhausted(self, stage: StageStart) -> int | None:
    """Returns where the policy ends the mix if no other stage comes."""
    ends = self._policy.ends
    if ends is None:
      return None
    sources = [self._seen(stage, name) for name in self._later[stage.index]]
    last = ends(
      sources, lambda source: stage.merge.key(*(source.last or (0, 0)))
    )
    if last is None:
      return None
    if last.last is None:
      return stage.position
    rank = stage.merge.rank(*last.last)
    # Beyond 2**62 rows or units there is no end that a run could meet.
    return None if rank is None else stage.position + rank + 1

  def _seen(self, stage: StageStart, name: str) -> policies.Source:
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


def _surely_near(weights: Collection[fractions.Fraction | int]) -> bool:
  """Returns True only if all weights are within `_MOST_RATIO`, by bounds."""
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
