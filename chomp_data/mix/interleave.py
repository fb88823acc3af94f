# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Which row of which source is at each position of a mix, in stages of weights.

Each position takes the next row of the source that has consumed the least units
over its weight. Three sources of equal weight whose rows hold 4, 2 and 1
tokens:

    position  0 1 2 3 4 5 6 7 8 9 ...
    source    a b c c b c c a b c ...   if ties are decided like this

The rows of each source come in its own order, each once, whatever the weights.
Any position is computed without those before it (`least_consumed`). A stage of
weights is valid from its position to that of the next stage. Let v be the least
level (units over weight) of the sources that had rows in a stage. In the next
stage, each of them keeps its excess c - v w, the units it consumed beyond its
share, under its new weight. A source that joins or returns starts at the least
level, with its next row. So a stage with the same weights as before does not
change the order, and nothing before a stage depends on it. Stages are computed
one after the other, as far as they are needed.

`exhaustion` decides where the mix ends:

    drop             after each row once; when a source ends, the others
                     continue. all_exhausted_without_replacement is the same
    first_exhausted  after the row that exhausts a source in a stage in which
                     it has a weight
    all_exhausted    after every source with a weight in this stage or a later
                     one has been exhausted once

The mix also ends if its stage has no rows left, even if a later stage would
have some. NumPy only.
"""

import bisect
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import decimal
import fractions
import functools

import numpy as np

from chomp_data.index import hashing
from chomp_data.index import memo
from chomp_data.index import ragged
from chomp_data.mix import exhaustion as policies
from chomp_data.mix import least_consumed

# Positions computed and cached together: 48 KiB.
BLOCK = 4_096
_BLOCKS_CACHED = 32

# With weights further apart, no run is long enough to reach the smaller one.
_MOST_RATIO = 10**15

# Each source's next row at the first position of a block, int64[S], and the
# sources int32[N], by number, and rows int64[N] of its positions.
_Block = tuple[np.ndarray, np.ndarray, np.ndarray]


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
class _StageStart:
  """A stage whose start is known.

  Attributes:
    number: The number of the stage.
    position: The position at which it starts.
    rows: int64[S], each source's next row there.
    lanes: int32[A], the sources that have a weight, sorted by name.
    merge: The merge of these sources from there on.
    until: The position at which the next stage starts or the mix ends; None if
      neither happens.
    ends: Whether the mix ends there.
  """

  number: int
  position: int
  rows: np.ndarray
  lanes: np.ndarray
  merge: least_consumed.Merge
  until: int | None = None
  ends: bool = False

  def rows_at(self, position: int) -> np.ndarray:
    """Returns int64[S], each source's next row at a position of the stage."""
    rows = self.rows.copy()
    rows[self.lanes] = self.merge.rows_after(position - self.position)
    return rows

  @functools.cached_property
  def last_rows(self) -> np.ndarray | None:
    """Each source's next row where the stage stops; None if it never does."""
    return None if self.until is None else self.rows_at(self.until)

  def lane_of(self, source: int) -> int | None:
    """Returns a source's number in the merge; None if it has no weight."""
    lanes = np.flatnonzero(self.lanes == source)
    return int(lanes[0]) if len(lanes) else None


@dataclasses.dataclass(frozen=True)
class Unserved:
  """A weight whose share of a stage is less than one row.

  Attributes:
    stage: The number of the stage.
    source: The name of the source.
    share: Its share of the stage, in rows: its part of the stage's units by
      weight, divided by the units of its next row.
    num_rows: Its rows in the stage, 0 or 1.
    following: The position of its next row; None if there is none.
  """

  stage: int
  source: str
  share: float
  num_rows: int
  following: int | None


class Interleave:
  """Maps positions of a mix to (source, row), and back."""

  def __init__(
    self,
    sequences: Mapping[str, least_consumed.UnitSequence],
    stages: Sequence[Stage],
    key: int,
    *,
    exhaustion: str = "drop",
    exhausted_at: Mapping[str, int | None] | None = None,
    start: Mapping[str, tuple[int, int]] | None = None,
  ):
    """Checks the weights and the rows of sources; computes nothing.

    Args:
      sequences: Units of each source's rows. Their order numbers the sources
        and has no other effect.
      stages: The stages, ascending from position 0, of known sources.
      key: 64 bits. It and the names of sources decide ties.
      exhaustion: One of `exhaustion.EXHAUSTIONS`.
      exhausted_at: Rows after which each source counts as exhausted; if left
        out or None its `num_rows`. If rows do not repeat ('drop'), the source
        ends there, otherwise at its `num_rows`.
      start: Rows and units consumed before position 0, for example by an
        earlier run. A source that is left out starts at row 0, at the least
        units over weight of the others.

    Raises:
      ValueError: If weights of a stage are too far apart, a stage begins too
        late, a source has no rows, or repeated rows consume nothing.
    """
    self._exhaustion = exhaustion
    self._numbers = {name: i for i, name in enumerate(sequences)}
    self._stages = tuple(stages)
    self._positions = [stage.from_position for stage in self._stages]
    if self._positions[-1] >= least_consumed.MOST_UNITS:
      raise ValueError(
        "`stages` must start before position"
        f" {least_consumed.MOST_UNITS}, got {self._positions[-1]}. Start them"
        " earlier."
      )
    for i, stage in enumerate(self._stages):
      _check_weights(f"stages[{i}].weights", stage.weights)
    self._start = dict(start or {})
    self._exhausted_at: list[int | None] = []
    self._sources: list[least_consumed.Source] = []
    for name, sequence in sequences.items():
      at = (exhausted_at or {}).get(name)
      at = sequence.num_rows if at is None else at
      limit = sequence.num_rows if self._policy.repeats else at
      tie_key = hashing.fold_key(key, "tie", name)
      source = least_consumed.Source(sequence, tie_key, limit)
      _check_source(name, source, at)
      self._exhausted_at.append(at)
      self._sources.append(source)
    # The stages that were computed, from the first on.
    self._starts: list[_StageStart] = []
    # Reading on from a position continues from the block before.
    self._blocks = memo.Memo(_BLOCKS_CACHED)

  @property
  def _policy(self) -> policies.Exhaustion:
    # Looked up by name, because functions of a policy cannot be pickled.
    return policies.EXHAUSTIONS[self._exhaustion]

  @property
  def names(self) -> tuple[str, ...]:
    """The names of the sources, by number."""
    return tuple(self._numbers)

  @functools.cached_property
  def num_positions(self) -> int | None:
    """The number of positions; None if the mix has no end."""
    if self._needs_no_stages():
      end = self._offered(self._stages[-1])
      weighed = {name for stage in self._stages for name in stage.weights}
      if end is None or len(self._stages[-1].weights) == len(weighed):
        return end
    last = self._stages_until(len(self._stages) - 1)[-1]
    return last.until if last.ends else None

  def _needs_no_stages(self) -> bool:
    """Returns whether limits alone show that the last stage is reached."""
    offered = map(self._offered, self._stages)
    return self._policy.ends is None and all(
      rows is None or rows >= until
      for rows, until in zip(offered, self._positions[1:], strict=False)
    )

  def _offered(self, stage: Stage) -> int | None:
    """Returns how many rows a stage's sources have in this run, or None."""
    total = 0
    for name in stage.weights:
      limit = self._sources[self._numbers[name]].limit
      if limit is None:
        return None
      total += limit - self._start.get(name, (0, 0))[0]
    return total

  # Stages.

  @functools.cached_property
  def _names_from(self) -> list[list[str]]:
    """The sources that have a weight from each stage on, sorted by name."""
    names: set[str] = set()
    names_from: list[list[str]] = []
    for stage in reversed(self._stages):
      if not names.issuperset(stage.weights):
        names.update(stage.weights)
        names_from.append(sorted(names))
      else:
        names_from.append(names_from[-1])
    return names_from[::-1]

  def _stages_until(self, number: int) -> list[_StageStart]:
    """Returns at least the stages up to one, or up to the mix's end."""
    starts = self._starts
    if len(starts) > number:
      return starts
    starts = starts.copy() or [self._first_stage()]
    while len(starts) <= number and not starts[-1].ends:
      starts.append(self._stage_after(starts[-1]))
    # A single assignment, so that other threads see a complete list.
    self._starts = starts
    return starts

  def _stage(self, number: int) -> _StageStart | None:
    """Returns a stage, or None if the mix ends before it."""
    starts = self._stages_until(number)
    return starts[number] if number < len(starts) else None

  def _stage_at(self, position: int) -> _StageStart:
    """Returns the stage of a position; the last one beyond the end."""
    number = bisect.bisect_right(self._positions, position) - 1
    return self._stages_until(number)[: number + 1][-1]

  def _first_stage(self) -> _StageStart:
    begun = [self._start.get(name, (0, 0)) for name in self._numbers]
    rows = np.asarray([row for row, _ in begun], np.int64)
    weights = self._stages[0].weights
    integers = least_consumed.whole(list(weights.values()))
    # A source that has ended has no next row, and so no level.
    by_name = {
      name: weight
      for name, weight in zip(weights, integers, strict=True)
      if name in self._start
      and self._start[name][0] != self._sources[self._numbers[name]].limit
    }
    ahead, parts = least_consumed.beyond_least(
      [self._start[name][1] for name in by_name], list(by_name.values()), 1
    )
    numbers = [self._numbers[name] for name in by_name]
    return self._started(0, rows, dict(zip(numbers, ahead, strict=True)), parts)

  def _stage_after(self, last: _StageStart) -> _StageStart:
    rows = last.last_rows
    assert rows is not None
    running = {
      lane: int(rows[number])
      for lane, number in enumerate(last.lanes.tolist())
      if rows[number] != self._sources[number].limit
    }
    ahead, parts = last.merge.ahead_at(running)
    ahead = {int(last.lanes[lane]): excess for lane, excess in ahead.items()}
    return self._started(last.number + 1, rows, ahead, parts)

  def _started(
    self, number: int, rows: np.ndarray, ahead: Mapping[int, int], parts: int
  ) -> _StageStart:
    """Returns a stage from what `beyond_least` is where it starts."""
    weights = self._stages[number].weights
    names = sorted(weights)
    lanes = [self._numbers[name] for name in names]
    merge = least_consumed.Merge(
      [self._sources[lane] for lane in lanes],
      [weights[name] for name in names],
      rows[lanes].tolist(),
      [ahead.get(lane, 0) for lane in lanes],
      parts,
    )
    stage = _StageStart(
      number,
      self._positions[number],
      rows,
      np.asarray(lanes, np.int32),
      merge,
    )
    until, ends = next(iter(self._positions[number + 1 :]), None), False
    exhausted = self._exhausted_position(stage)
    # A policy's end takes precedence over a stage at the same position.
    if exhausted is not None and (until is None or exhausted <= until):
      until, ends = exhausted, True
    if merge.num_rows is not None:
      last = stage.position + merge.num_rows
      if until is None or last < until:
        until, ends = last, True
    return dataclasses.replace(stage, until=until, ends=ends)

  def _exhausted_position(self, stage: _StageStart) -> int | None:
    """Returns where the policy ends the mix if no other stage follows."""
    ends = self._policy.ends
    if ends is None:
      return None
    last = ends(
      [
        self._policy_source(stage, self._numbers[name])
        for name in self._names_from[stage.number]
      ],
      lambda source: stage.merge.key(*(source.last or (0, 0))),
    )
    if last is None:
      return None
    if last.last is None:
      return stage.position
    rank = stage.merge.rank(*last.last)
    # No run reaches an end beyond 2**62 rows or units.
    return None if rank is None else stage.position + rank + 1

  def _policy_source(self, stage: _StageStart, number: int) -> policies.Source:
    """Returns the state of a source at the start of a stage, for a policy."""
    at, lane = self._exhausted_at[number], stage.lane_of(number)
    exhausted = at is not None and bool(stage.rows[number] >= at)
    last = None
    if at is not None and lane is not None and not exhausted:
      last = (lane, at - 1)
    return policies.Source(lane is not None, exhausted, last)

  # Positions.

  def locate(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns which row of which source is at each position.

    Args:
      positions: int64[N], in any order, each below `num_positions`.

    Returns:
      Sources int32[N], by number, and rows int64[N] of their own orders.

    Raises:
      IndexError: If a position is negative or beyond the end.
    """
    positions = np.asarray(positions, np.int64)
    sources = np.empty(len(positions), np.int32)
    rows = np.empty(len(positions), np.int64)
    if not len(positions):
      return sources, rows
    self._check(int(positions.min()), int(positions.max()) + 1)
    numbers, places = np.divmod(positions, BLOCK)
    for number, picks in ragged.by_value(numbers):
      _, block_sources, block_rows = self._block(number)
      sources[picks] = block_sources[places[picks]]
      rows[picks] = block_rows[places[picks]]
    return sources, rows

  def _check(self, low: int, high: int) -> None:
    """Raises IndexError unless 0 <= low and high is at most the end."""
    last = self._stage_at(max(high, 0))
    if low < 0 or (last.ends and last.until is not None and high > last.until):
      bad_position = low if low < 0 else high
      raise IndexError(
        f"positions must be in 0 .. {self.num_positions}, got {bad_position}."
        " The mix has no other rows."
      )

  def _block(self, number: int) -> _Block:
    """Returns up to 4,096 positions; fewer if the mix ends."""
    return self._blocks.get(number, lambda: self._computed(number))

  def _computed(self, number: int) -> _Block:
    position, stop = number * BLOCK, (number + 1) * BLOCK
    previous = self._blocks.get(number - 1)
    if previous is None:
      stage = self._stage_at(position)
      begins = position == stage.position
      first_rows = stage.rows if begins else stage.rows_at(position)
    else:
      first_rows = previous[0] + self._counts(previous[1])
    rows = first_rows.copy()
    parts = [(np.zeros(0, np.int32), np.zeros(0, np.int64))]
    while position < stop:
      stage = self._stage_at(position)
      until = stop if stage.until is None else min(stop, stage.until)
      if until <= position:
        break
      lane, row, rows[stage.lanes] = stage.merge.advance(
        rows[stage.lanes], until - position
      )
      parts.append((stage.lanes[lane], row))
      position = until
    sources, source_rows = map(np.concatenate, zip(*parts, strict=True))
    return first_rows, sources, source_rows

  def _counts(self, sources: np.ndarray) -> np.ndarray:
    """Returns how often each source occurs, int64[S]."""
    return np.bincount(sources, minlength=len(self._numbers))

  def rows_at(self, position: int) -> np.ndarray:
    """Returns each source's next row at a position, int64[S].

    Args:
      position: At most `num_positions`.

    Raises:
      IndexError: If the position is negative or beyond the end.
    """
    self._check(position, position)
    stage = self._stage_at(position)
    # Where a stage begins or the mix ends, no row needs to be merged.
    if position == stage.position:
      return stage.rows.copy()
    if position == stage.until and stage.last_rows is not None:
      return stage.last_rows.copy()
    first_rows, sources, _ = self._block(position // BLOCK)
    return first_rows + self._counts(sources[: position % BLOCK])

  def consumed(self, position: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns what was consumed of every source before a position.

    Args:
      position: At most `num_positions`.

    Returns:
      Each source's next row, int64[S], and the units of the rows before it,
      int64[S]. Rows before `start` are included in both.

    Raises:
      IndexError: If the position is negative or beyond the end.
    """
    rows = self.rows_at(position)
    units = [
      source.before(row)
      for source, row in zip(self._sources, rows.tolist(), strict=True)
    ]
    return rows, np.asarray(units, np.int64)

  def position_of(self, source: str, row: int) -> int | None:
    """Returns the position of a source's row; None if it is not in the mix.

    None also if another source consumes 2**62 units before the position.

    Args:
      source: The name of the source.
      row: The row in the source's own order, at least 0.
    """
    number = self._numbers[source]
    limit = self._sources[number].limit
    if limit is not None and row >= limit:
      return None
    # Start at the last of the computed stages that begins at or before the row.
    first = bisect.bisect_right(
      self._starts, row, key=lambda stage: stage.rows[number]
    )
    for index in range(max(first - 1, 0), len(self._stages)):
      stage = self._stage(index)
      if stage is None or row < stage.rows[number]:
        return None
      if stage.last_rows is None or row < stage.last_rows[number]:
        lane = stage.lane_of(number)
        rank = None if lane is None else stage.merge.rank(lane, row)
        return None if rank is None else stage.position + rank
    return None

  def positions_of(self, source: str, rows: np.ndarray) -> np.ndarray:
    """Returns the positions of a source's rows; inverts `locate`.

    Args:
      source: The name of the source.
      rows: int64[N], ascending, none before the source's first in this run.

    Returns:
      int64[M], ascending; M < N if the last rows are not in the mix.
    """
    parts, end = [np.empty(0, np.int64)], self.num_positions
    num_located = 0
    while num_located < len(rows):
      position = self.position_of(source, int(rows[num_located]))
      if position is None or (end is not None and position >= end):
        break
      block = position // BLOCK
      _, sources, block_rows = self._block(block)
      places = np.flatnonzero(sources == self._numbers[source])
      rows_of_block = block_rows[places]
      stop = int(np.searchsorted(rows, rows_of_block[-1], side="right"))
      pick = np.searchsorted(rows_of_block, rows[num_located:stop])
      parts.append(block * BLOCK + places[pick])
      num_located = stop
    return np.concatenate(parts)

  def unserved(self, end: int) -> Iterator[Unserved]:
    """Yields the weights whose share of a stage is less than one row.

    Such a source is almost left out of the stage. The number of its rows does
    not show this, because a source that joins delivers one row whatever its
    weight, and a source ahead of its share delivers none. Sources with fewer
    than two rows left, and stages with fewer than two rows per source, are
    ignored.

    Args:
      end: The positions of the run, at most `num_positions`.
    """
    for number in range(bisect.bisect_left(self._positions, end)):
      stage = self._stage(number)
      if stage is None:
        return
      until = end if stage.until is None else min(stage.until, end)
      if until - stage.position < 2 * len(stage.lanes):
        continue
      rows = stage.last_rows if stage.until == until else None
      rows = stage.rows_at(until) if rows is None else rows
      counts = rows - stage.rows
      for source in stage.lanes[counts[stage.lanes] < 2].tolist():
        row, num_rows = int(stage.rows[source]), int(counts[source])
        if self._sources[source].clip(row + 2) < row + 2:
          continue
        share = self._share(stage, source, rows)
        if share < 1:
          name = self.names[source]
          position = self.position_of(name, row + num_rows)
          yield Unserved(number, name, float(share), num_rows, position)

  def _share(
    self, stage: _StageStart, source: int, rows: np.ndarray
  ) -> fractions.Fraction:
    """Returns a source's share of a stage that ends at `rows`, in rows."""
    weights = self._stages[stage.number].weights
    total_weight, total_units = fractions.Fraction(0), 0
    for lane in stage.lanes.tolist():
      row = int(stage.rows[lane])
      if row != self._sources[lane].limit:
        total_weight += weights[self.names[lane]]
        total_units += self._units(lane, row, int(rows[lane]))
    row = int(stage.rows[source])
    row_units = max(self._units(source, row, row + 1), 1)
    return weights[self.names[source]] / total_weight * total_units / row_units

  def _units(self, source: int, first: int, last: int) -> int:
    """Returns the units of a source's rows first to last - 1."""
    rows = self._sources[source]
    return rows.before(last) - rows.before(first)


def _check_weights(
  field: str, weights: Mapping[str, fractions.Fraction | int]
) -> None:
  """Raises ValueError unless weights are near each other."""
  low, high = (
    choose(weights, key=weights.__getitem__) for choose in (min, max)
  )
  if weights[high] > _MOST_RATIO * weights[low]:
    shown = " and ".join(
      f"{_decimal(weights[name])} of {name!r}" for name in (high, low)
    )
    raise ValueError(
      f"`{field}` must lie within a factor of {_MOST_RATIO:.0e}, got {shown}."
      f" Leave {low!r} out."
    )


def _decimal(weight: fractions.Fraction | int) -> str:
  """Returns a weight as text; some are too large or small for a float."""
  return f"{decimal.Decimal(weight.numerator) / weight.denominator:.6g}"


def _check_source(
  name: str, source: least_consumed.Source, exhausted_at: int | None
) -> None:
  """Raises ValueError if a source cannot have these rows in a mix."""
  offered, limit = source.sequence.num_rows, source.limit
  if exhausted_at is not None and (
    exhausted_at < 1 or (offered is not None and exhausted_at > offered)
  ):
    most_text = "" if offered is None else f" and at most {offered}"
    raise ValueError(
      f"`exhausted_at[{name!r}]` must be at least 1 row{most_text}, got"
      f" {exhausted_at}. Leave out a source without rows."
    )
  repeated = exhausted_at if limit is None else None
  if repeated is not None and not source.before(repeated):
    raise ValueError(
      f"`sequences[{name!r}]` must consume units where its rows repeat, got"
      f" none in {exhausted_at} rows. Leave the source out."
    )
