# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The stages of a mix: each source's next row where one starts, and the end.

Let v be the least level (units over weight) of the sources that had rows in a
stage. In the next stage, each of them keeps its excess c - v w, the units it
consumed beyond its share, under its new weight. A source that joins or returns
starts at the least level, with its next row. Stages are computed one after the
other, as far as they are needed, and cached. NumPy only.
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

# With weights further apart, no run is long enough to reach the smaller one.
_MOST_RATIO = 10**15


@dataclasses.dataclass(frozen=True)
class Stage:
  """Weights from a position on.

  Attributes:
    from_position: The first position with these weights; 0 in the first stage.
    weights: Exact positive weights by source. A source that is left out has no
      rows in the stage.
  """

  from_position: int
  weights: Mapping[str, fractions.Fraction | int]


@dataclasses.dataclass(frozen=True)
class StageStart:
  """A stage whose start is known.

  Attributes:
    index: The number of the stage.
    position: The position at which it starts.
    rows: int64[S], each source's next row there.
    units: The units before these rows.
    lanes: int32[A], the sources that have a weight, sorted by name.
    merge: The merge of these sources from there on.
    until: The position at which the next stage starts or the mix ends; None if
      neither happens.
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
    """Returns a source's number in the merge; None if it has no weight."""
    lanes = np.flatnonzero(self.lanes == source)
    return int(lanes[0]) if len(lanes) else None


class StageChain:
  """The stages of a mix, each starting where the one before it stops."""

  def __init__(
    self,
    sequences: Mapping[str, unit_sequence.UnitSequence],
    stages: Sequence[Stage],
    key: int,
    exhaustion: str,
    exhausted_at: Mapping[str, int | None],
    start: Mapping[str, tuple[int, int]],
  ):
    """Checks the arguments; they are those of `Interleave.__init__`."""
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
    self._weighed_later = self._weighed_from()
    # The stages that were computed, from the first on.
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
      if _clearly_within_ratio(stage.weights.values()):
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
    """Returns the rows after which a source is exhausted, and those it has."""
    offered = sequence.num_rows
    at = offered if at is None else at
    if at is not None and (at < 1 or (offered is not None and at > offered)):
      most_text = "" if offered is None else f" and at most {offered}"
      raise ValueError(
        f"`exhausted_at[{name!r}]` must be at least 1 row{most_text}, got {at}."
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
        most_text = "" if limit is None else f" and at most {limit} rows"
        raise ValueError(
          f"`start[{name!r}]` must be at least 0 rows and units{most_text}, got"
          f" {(row, consumed)}. Take them from the run to go on from."
        )

  @property
  def _policy(self) -> policies.Exhaustion:
    # Looked up by name, because functions of a policy cannot be pickled.
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
    """Returns the sources that have a weight in a stage, sorted by name."""
    return [self._numbers[name] for name in sorted(self.weights(index))]

  def stage(self, index: int) -> StageStart | None:
    """Returns a stage, or None if the mix ends before it."""
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
    """Returns the last computed stage that starts not after a source's row."""
    index = bisect.bisect_right(
      self._stage_starts, row, key=lambda stage: stage.rows[source]
    )
    return max(index - 1, 0)

  def rows_before(self, position: int) -> np.ndarray:
    """Returns each source's next row at the starts of stages before a position.

    Args:
      position: At least 1.

    Returns:
      int64[n, S], without stages after the end of the mix.
    """
    count = bisect.bisect_left(self._starts, position)
    starts = self._stages_until(count - 1)[:count]
    return np.stack([start.rows for start in starts])

  @property
  def end(self) -> int | None:
    """The position at which the mix ends; None if it has no end."""
    follows, end = self._end_by_limits()
    if follows:
      return end
    last = self._stages_until(len(self._stages) - 1)[-1]
    return last.until if last.ends else None

  def _end_by_limits(self) -> tuple[bool, int | None]:
    """Returns whether the end follows from limits alone, and the end.

    It does if the policy ends the mix only when the sources of a stage have no
    rows left, and the sources of all but the last stage surely have enough.
    Then no stage needs to be computed.
    """
    if self._policy.ends is not None:
      return False, None
    for stage, until in zip(self._stages, self._starts[1:], strict=False):
      left = self._offered(stage)
      if left is not None and left < until:
        return False, None
    end = self._offered(self._stages[-1])
    everyone = len(self._stages[-1].weights) == len(self._weighed_later[0])
    return end is None or everyone, end

  def _offered(self, stage: Stage) -> int | None:
    """Returns how many rows a stage's sources have in this run, or None."""
    total = 0
    for name in stage.weights:
      limit = self.limit(self._numbers[name])
      if limit is None:
        return None
      total += limit - self.start_row(name)
    return total

  def _weighed_from(self) -> list[list[str]]:
    """Returns by stage the sources with a weight in it or a later stage."""
    names_by_stage: list[list[str]] = []
    weighed: set[str] = set()
    for stage in reversed(self._stages):
      if not weighed.issuperset(stage.weights):
        weighed.update(stage.weights)
        names_by_stage.append(sorted(weighed))
      else:
        names_by_stage.append(names_by_stage[-1])
    return names_by_stage[::-1]

  def _stages_until(self, index: int) -> list[StageStart]:
    """Returns at least the stages up to `index`, or up to the mix's end."""
    starts = self._stage_starts
    if len(starts) > index:
      return starts
    starts = starts.copy() or [self._first_stage()]
    while len(starts) <= index and not starts[-1].ends:
      starts.append(self._stage_after(starts[-1]))
    # A single assignment, so that other threads see a complete list.
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
    """Returns the stage after a stage."""
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
    """Returns a stage from the state of the sources at its start.

    Args:
      index: The number of the stage.
      rows: int64[S], each source's next row.
      units: The units before these rows.
      ahead: How far sources are beyond the least level among them, in fractions
        of a unit; 0 if left out.
      parts: The common denominator of these fractions.
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
    """Returns `ahead` and `parts` of `_start_stage` for position 0."""
    by_name = self._stages[0].weights
    weights = dict(
      zip(by_name, least_consumed.whole(list(by_name.values())), strict=True)
    )
    # A source that has ended has no next row, and so no level.
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
    """Returns the position at which a stage stops, and whether the mix ends."""
    following = None
    if stage.index + 1 < len(self._stages):
      following = self._stages[stage.index + 1].from_position
    exhausted = self._exhausted(stage)
    if exhausted is not None and (following is None or exhausted <= following):
      # The end of a policy takes precedence over a stage at the same position.
      following = exhausted
    num_left = stage.merge.num_rows
    if num_left is not None and (
      following is None or stage.position + num_left < following
    ):
      return stage.position + num_left, True
    return following, following is not None and following == exhausted

  def _exhausted(self, stage: StageStart) -> int | None:
    """Returns where the policy ends the mix if no other stage follows."""
    ends = self._policy.ends
    if ends is None:
      return None
    sources = [
      self._policy_source(stage, name)
      for name in self._weighed_later[stage.index]
    ]
    last = ends(
      sources, lambda source: stage.merge.key(*(source.last or (0, 0)))
    )
    if last is None:
      return None
    if last.last is None:
      return stage.position
    rank = stage.merge.rank(*last.last)
    # No run reaches an end beyond 2**62 rows or units.
    return None if rank is None else stage.position + rank + 1

  def _policy_source(self, stage: StageStart, name: str) -> policies.Source:
    """Returns the state of a source at the start of a stage, for a policy."""
    number = self._numbers[name]
    at, lane = self._exhausted_at[number], stage.lane_of(number)
    exhausted = at is not None and bool(stage.rows[number] >= at)
    last = None
    if at is not None and lane is not None and not exhausted:
      last = (lane, at - 1)
    return policies.Source(lane is not None, exhausted, last)


def _decimal(weight: fractions.Fraction | int) -> str:
  """Returns a weight as text; some are too large or small for a float."""
  return f"{decimal.Decimal(weight.numerator) / weight.denominator:.6g}"


def _clearly_within_ratio(
  weights: Collection[fractions.Fraction | int],
) -> bool:
  """Returns True only if weights are within `_MOST_RATIO`; may miss some.

  Compares numerators and denominators, which is faster than fractions.
  """
  numerators = [weight.numerator for weight in weights]
  denominators = [weight.denominator for weight in weights]
  least = min(numerators) * min(denominators)
  return 0 < max(numerators) * max(denominators) <= _MOST_RATIO * least


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
