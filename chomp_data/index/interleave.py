"""Which source's row stands at each position of a mix, in stages of weights.

At every position the source with the least units over weight gives its next
row (`least_consumed`). Each source gives its rows 0, 1, 2, ... in its own
order, once each, whatever the weights; a position needs none of those before
it.

A stage holds from its position to the next one's. At a change let v be the
least units over weight among the sources that were giving rows: each of them
keeps the units that it is beyond its share, c - v w, under its new weight; a
source that joins or returns is at the level and goes on with its next row.
Equal weights therefore change no order, and nothing before a stage depends
on it. A source without a weight gives no row in that stage.

The end, by `exhaustion`:

    drop                                 each row once; a source that has
    all_exhausted_without_replacement    ended leaves the rest
    first_exhausted    after the row that exhausts a source in a stage that
                       weighs it; a source that left before does not count
    all_exhausted      after the row by which every source weighted in this
                       stage or a later one has been exhausted once; a source
                       that left for good does not hold it up

The merge ends as well at a position whose stage has no row left to give, even
where a later stage would have one. NumPy only.

Source: seed 001, "Interleave Policy"; seed 004, "Dataset Assembly Pipeline".
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import fractions
import itertools

import numpy as np

from chomp_data.index import hashing
from chomp_data.index import least_consumed
from chomp_data.index import units
from chomp_data.index import window_tables

EXHAUSTIONS = (
  "drop",
  "first_exhausted",
  "all_exhausted",
  "all_exhausted_without_replacement",
)
_FINITE = ("drop", "all_exhausted_without_replacement")

# Positions computed and kept together: 48 KiB.
BLOCK = 4_096
_KEPT_BLOCKS = 16
_KEPT_FRONTIERS = 256

# Weights further apart would never be served: no run is that long.
_MOST_RATIO = 10**15


@dataclasses.dataclass(frozen=True)
class Stage:
  """Weights from a position on.

  Attributes:
    from_position: The first position with these weights; 0 in the first stage.
    weights: By source; any positive ints or fractions, exact.
  """

  from_position: int
  weights: Mapping[str, fractions.Fraction | int]


@dataclasses.dataclass(frozen=True)
class _Begun:
  """A stage whose start is known.

  Attributes:
    position: Where it starts.
    rows: int64[S], each source's next row there.
    lanes: int32[A], the sources it weighs, in order of their names.
    merge: Their merge from there on.
    end: Where the whole mix ends, if that is in this stage.
  """

  position: int
  rows: np.ndarray
  lanes: np.ndarray
  merge: least_consumed.Merge
  end: int | None


class Interleave:
  """Positions to (source, row), and back."""

  def __init__(
    self,
    sequences: Mapping[str, units.UnitSequence],
    stages: Sequence[Stage],
    key: int,
    *,
    exhaustion: str = "drop",
    exhausted_at: Mapping[str, int | None] | None = None,
    start: Mapping[str, tuple[int, int]] | None = None,
  ):
    """Checks and keeps the arguments; computes nothing yet.

    Args:
      sequences: Units of each source's rows. Their order numbers the sources
        and decides nothing else.
      stages: In order of their positions.
      key: 64 bits; ties go by it and the source's name.
      exhaustion: One of `EXHAUSTIONS`.
      exhausted_at: Rows after which a source counts as exhausted; its
        `num_rows` where left out. Under `drop` a source ends there; under the
        others it goes on up to its `num_rows`.
      start: Rows and units consumed before position 0, for instance by an
        earlier run; a source left out starts at its row 0, at the least level
        of the others.

    Raises:
      ValueError: If names are unknown, weights not positive or too far apart,
        stages out of order, or rows without an end consume nothing.
      TypeError: If a weight is not exact.
    """
    self._sequences = dict(sequences)
    self._stages = tuple(stages)
    self._key = key
    self._exhaustion = exhaustion
    self._start = dict(start or {})
    if exhaustion not in EXHAUSTIONS:
      raise ValueError(
        f"`exhaustion` must be one of {', '.join(EXHAUSTIONS)}, got"
        f" {exhaustion!r}. Choose one."
      )
    self._check_names("start", self._start)
    self._check_names("exhausted_at", exhausted_at or {})
    self._check_stages()
    self._exhausted_at, self._limits = [], []
    for name in self._sequences:
      self._add_limits(name, exhausted_at or {})
    self._forget()

  def _forget(self) -> None:
    self._begun: tuple[_Begun, ...] = ()
    self._blocks = window_tables.Kept(_KEPT_BLOCKS)
    self._frontiers = window_tables.Kept(_KEPT_FRONTIERS)

  def __getstate__(self) -> dict[str, object]:
    own = ("_begun", "_blocks", "_frontiers")
    return {k: v for k, v in self.__dict__.items() if k not in own}

  def __setstate__(self, state: dict[str, object]) -> None:
    self.__dict__.update(state)
    self._forget()

  @property
  def names(self) -> tuple[str, ...]:
    """The sources by number."""
    return tuple(self._sequences)

  def _check_names(self, field: str, given: Mapping[str, object]) -> None:
    unknown = [name for name in given if name not in self._sequences]
    if unknown:
      raise ValueError(
        f"`{field}` must name known sources, got {unknown}. Known:"
        f" {', '.join(self._sequences)}."
      )

  def _check_stages(self) -> None:
    positions = [stage.from_position for stage in self._stages]
    if positions[:1] != [0] or any(
      a >= b for a, b in itertools.pairwise(positions)
    ):
      raise ValueError(
        f"`stages` must start at position 0 and rise, got {positions}. Put"
        " them in order, each position once."
      )
    for i, stage in enumerate(self._stages):
      field = f"stages[{i}].weights"
      self._check_names(field, stage.weights)
      for name, weight in stage.weights.items():
        if isinstance(weight, bool) or not isinstance(
          weight, int | fractions.Fraction
        ):
          raise TypeError(
            f"`{field}[{name!r}]` must be an int or a Fraction, got"
            f" {weight!r}. Take Fraction(str(weight))."
          )
        if weight <= 0:
          raise ValueError(
            f"`{field}[{name!r}]` must be positive, got {weight}. Leave the"
            " source out of the stage to stop it."
          )
      if not stage.weights:
        raise ValueError(
          f"`{field}` must name at least one source, got none. Give one a"
          " weight."
        )
      ratio = max(stage.weights.values()) / min(stage.weights.values())
      if ratio > _MOST_RATIO:
        raise ValueError(
          f"`{field}` must be within a factor of {_MOST_RATIO:.0e}, got"
          f" {float(ratio):.1e}. Leave out the source of the least weight."
        )

  def _add_limits(self, name: str, given: Mapping[str, int | None]) -> None:
    sequence = self._sequences[name]
    offered, at = sequence.num_rows, given.get(name)
    at = offered if at is None else at
    if at is not None and (at < 1 or (offered is not None and at > offered)):
      raise ValueError(
        f"`exhausted_at[{name!r}]` must be in 1 .. {offered} rows, got {at}."
        " Leave out sources without rows."
      )
    limit = at if self._exhaustion in _FINITE else offered
    if limit is None and at is not None:
      last = sequence.before(np.asarray([at], np.int64))
      if not last[0]:
        raise ValueError(
          f"`sequences[{name!r}]` must consume units where its rows repeat,"
          f" got none in {at} rows. Leave the source out."
        )
    self._exhausted_at.append(at)
    self._limits.append(limit)

  # Stages.

  def _stage(self, index: int) -> _Begun | None:
    """Returns a stage, or None where the mix ends before it."""
    begun = self._begun
    while len(begun) <= index:
      if begun and begun[-1].end is not None:
        return None
      begun = (*begun, self._begin(begun))
      self._begun = begun
    return begun[index]

  def _begin(self, begun: tuple[_Begun, ...]) -> _Begun:
    """Returns the stage after those that have begun."""
    stage = self._stages[len(begun)]
    position = stage.from_position
    numbers = {name: i for i, name in enumerate(self._sequences)}
    if begun:
      last = begun[-1]
      rows = self._rows_in(last, position)
      level_of = self._overshoots(last, rows)
    else:
      start = (self._start.get(name, (0, 0)) for name in self._sequences)
      rows = np.asarray([row for row, _ in start], np.int64)
      level_of = self._start_overshoots(stage)
    # The order of names, so that the order of the mapping decides nothing.
    names = sorted(stage.weights)
    lanes = [numbers[name] for name in names]
    merge = least_consumed.Merge(
      [self._sequences[name] for name in names],
      [hashing.fold_key(self._key, "tie", name) for name in names],
      [fractions.Fraction(stage.weights[name]) for name in names],
      rows[lanes].tolist(),
      [level_of.get(i, fractions.Fraction(0)) for i in lanes],
      [self._limits[i] for i in lanes],
    )
    out = _Begun(position, rows, np.asarray(lanes, np.int32), merge, None)
    return dataclasses.replace(out, end=self._end_in(out, len(begun)))

  def _overshoots(
    self, last: _Begun, rows: np.ndarray
  ) -> dict[int, fractions.Fraction]:
    """Returns by source how far each is beyond its share after a stage."""
    lanes = [
      (lane, source, int(rows[source]))
      for lane, source in enumerate(last.lanes.tolist())
      if not last.merge.ended(lane, int(rows[source]))
    ]
    levels = [last.merge.level(lane, row) for lane, _, row in lanes]
    least = min(levels, default=fractions.Fraction(0))
    return {
      source: last.merge.overshoot(lane, row, least)
      for lane, source, row in lanes
    }

  def _start_overshoots(self, stage: Stage) -> dict[int, fractions.Fraction]:
    levels = {
      name: fractions.Fraction(self._start[name][1]) / weight
      for name, weight in stage.weights.items()
      if name in self._start
    }
    least = min(levels.values(), default=fractions.Fraction(0))
    numbers = {name: i for i, name in enumerate(self._sequences)}
    return {
      numbers[name]: (level - least) * stage.weights[name]
      for name, level in levels.items()
    }

  def _end_in(self, stage: _Begun, index: int) -> int | None:
    """Returns where the mix ends if that is before the next stage begins."""
    ends = []
    left = stage.merge.num_rows
    if left is not None:
      ends.append(stage.position + left)
    policy_end = self._policy_end(stage, index)
    if policy_end is not None:
      ends.append(policy_end)
    end = min(ends, default=None)
    if end is None or index + 1 == len(self._stages):
      return end
    following = self._stages[index + 1].from_position
    if end == following and end != policy_end:
      return None
    return end if end <= following else None

  def _policy_end(self, stage: _Begun, index: int) -> int | None:
    if self._exhaustion in _FINITE:
      return None
    lane_of = {i: lane for lane, i in enumerate(stage.lanes.tolist())}
    if self._exhaustion == "first_exhausted":
      counted = set(lane_of)
    else:
      numbers = {name: i for i, name in enumerate(self._sequences)}
      later = self._stages[index:]
      counted = {numbers[name] for own in later for name in own.weights}
    open_ = []
    for i in counted:
      at = self._exhausted_at[i]
      if at is not None and stage.rows[i] >= at:
        if self._exhaustion == "first_exhausted":
          return stage.position
        continue
      open_.append((lane_of.get(i), at))
    if self._exhaustion == "first_exhausted":
      known = [(lane, at) for lane, at in open_ if at is not None]
      choose = min
    else:
      if any(lane is None or at is None for lane, at in open_):
        return None
      known, choose = open_, max
      if not known:
        return stage.position
    if not known:
      return None
    last = choose(
      ((lane, at - 1) for lane, at in known if lane is not None),
      key=lambda pair: stage.merge.key(*pair),
    )
    return stage.position + stage.merge.rank(*last) + 1

  def _index_of(self, position: int) -> int:
    """Returns the number of the stage of a position."""
    starts = [stage.from_position for stage in self._stages]
    return int(np.searchsorted(starts, position, side="right")) - 1

  @property
  def num_positions(self) -> int | None:
    """Where the mix ends; None is never."""
    for index in range(len(self._stages)):
      stage = self._stage(index)
      if stage is None or stage.end is not None:
        break
    return self._begun[-1].end

  # Positions.

  def _rows_in(self, stage: _Begun, position: int) -> np.ndarray:
    """Returns int64[S], each source's next row at a position of a stage."""
    rows = stage.rows.copy()
    rows[stage.lanes] = stage.merge.rows_after(position - stage.position)
    return rows

  def _frontier(self, position: int) -> np.ndarray:
    """Returns int64[S], each source's next row at a position."""
    found = self._frontiers.get(position)
    if found is None:
      stage = self._at(position, inside=False)
      found = self._rows_in(stage, position)
      self._frontiers.put(position, found)
    return found

  def _at(self, position: int, inside: bool = True) -> _Begun:
    """Returns the stage of a position, which may be the end if not inside."""
    stage = self._stage(self._index_of(position)) if position >= 0 else None
    stage = stage or (self._begun[-1] if self._begun else None)
    if stage is not None and position >= 0:
      end = stage.end
      if end is None or position < end or (position == end and not inside):
        return stage
    raise IndexError(
      f"`positions` must be in 0 .. {self.num_positions}, got {position}. The"
      " mix has no other rows."
    )

  def _block(self, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns sources int32[N] and rows int64[N] of 4,096 positions."""
    found = self._blocks.get(block)
    if found is not None:
      return found
    position, stop = block * BLOCK, (block + 1) * BLOCK
    parts = []
    while position < stop:
      index = self._index_of(position)
      stage = self._stage(index)
      if stage is None:
        break
      until = min(stop, stop if stage.end is None else stage.end)
      if index + 1 < len(self._stages):
        until = min(until, self._stages[index + 1].from_position)
      if until <= position:
        break
      rows = self._frontier(position).copy()
      lane, row, after = stage.merge.advance(
        rows[stage.lanes], until - position
      )
      rows[stage.lanes] = after
      parts.append((stage.lanes[lane], row))
      position = until
      self._frontiers.put(position, rows)
    sources, taken = zip(*parts, strict=True)
    found = np.concatenate(sources), np.concatenate(taken)
    for array in found:
      array.flags.writeable = False
    self._blocks.put(block, found)
    return found

  def locate(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns which row stands at each position.

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
    self._at(int(positions.min()))
    self._at(int(positions.max()))
    blocks, places = np.divmod(positions, BLOCK)
    order = np.argsort(blocks, kind="stable")
    cuts = np.flatnonzero(np.diff(blocks[order])) + 1
    for own in np.split(order, cuts):
      source, row = self._block(int(blocks[own[0]]))
      sources[own] = source[places[own]]
      rows[own] = row[places[own]]
    return sources, rows

  def consumed(self, position: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns what every source has given before a position.

    Args:
      position: At most `num_positions`.

    Returns:
      Rows int64[S] and their units int64[S], those of `start` included.

    Raises:
      IndexError: If the position is negative or beyond the end.
    """
    self._at(position, inside=False)
    found = self._blocks.get(position // BLOCK)
    start = position - position % BLOCK
    if found is not None and self._frontiers.get(start) is not None:
      given = found[0][: position - start]
      rows = self._frontier(start) + np.bincount(
        given, minlength=len(self._sequences)
      )
    else:
      rows = self._frontier(position).copy()
    sums = [
      sequence.before(rows[i : i + 1])
      for i, sequence in enumerate(self._sequences.values())
    ]
    return rows, np.concatenate(sums)

  def position_of(self, source: str, row: int) -> int | None:
    """Returns where a row of a source stands, None where it never does.

    Args:
      source: Its name.
      row: The row, in the source's own order.

    Raises:
      ValueError: If the name is unknown or the row negative.
    """
    self._check_names("source", {source: None})
    if row < 0:
      raise ValueError(
        f"`row` must be at least 0, got {row}. Rows count from a source's"
        " first."
      )
    number = self.names.index(source)
    limit = self._limits[number]
    if limit is not None and row >= limit:
      return None
    for index in range(len(self._stages)):
      stage = self._stage(index)
      if stage is None or row < stage.rows[number]:
        return None
      following = None
      if stage.end is None and index + 1 < len(self._stages):
        following = self._stage(index + 1)
        if following is not None and row >= following.rows[number]:
          continue
      if source not in self._stages[index].weights:
        return None
      lane = stage.lanes.tolist().index(number)
      position = stage.position + stage.merge.rank(lane, row)
      return (
        None if stage.end is not None and position >= stage.end else position
      )
    return None

  def first_position(self, source: str, count: int = 1) -> int | None:
    """Returns where a source gives its `count`-th row, None where never.

    A source gives its first row at once, however small its weight: it has
    consumed nothing. Its second row shows how often it is served.

    Args:
      source: Its name.
      count: At least 1.
    """
    self._check_names("source", {source: None})
    return self.position_of(
      source, self._start.get(source, (0, 0))[0] + count - 1
    )
