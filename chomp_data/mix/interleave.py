# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Which source's row stands at each position of a mix, in stages of weights.

At every position the source with the least units over weight gives its next
row. Three sources of equal weight whose rows hold 4, 2 and 1 tokens:

    position  0 1 2 3 4 5 6 7 8 9 ...
    source    a b c c b c c a b c ...   where ties fall this way

Each source gives its rows 0, 1, 2, ... in its own order, once each, whatever
the weights, and any position is found without those before it
(`least_consumed`). A stage of weights holds from its position to the next
one's (`mix_stages`): equal weights change no order, and nothing before a stage
depends on it.

The end, by `exhaustion`:

    drop             each row once; a source that has ended leaves the rest, as
                     it does in all_exhausted_without_replacement
    first_exhausted  after the row that exhausts a source in a stage that
                     weighs it; a source that left before does not count
    all_exhausted    after the row by which every source weighted in this stage
                     or a later one has been exhausted once; a source that left
                     for good does not hold it up

The merge ends as well where its stage has no row left, even if a later stage
would have one. NumPy only.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import fractions

import numpy as np

from chomp_data.index import memo
from chomp_data.mix import merge_stages
from chomp_data.mix import unit_sequence

Stage = merge_stages.Stage

# Positions computed and cached together: 48 KiB.
BLOCK = 4_096
_BLOCKS_CACHED = 32
# Worked out in one piece, at most: a merge of S sources costs about 50 us a
# source and piece, whatever its rows.
_PIECE_BLOCKS = 16
_FRONTIERS_CACHED = 64

# Sources int32[N], by number, and their rows int64[N].
_Rows = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Unserved:
  """A weight that amounts to less than one row of a stage.

  Attributes:
    stage: The stage's number.
    source: The source's name.
    share: The rows that its weight amounts to: its share of the units of the
      stage, over the units of its next row.
    num_rows: Its rows in the stage, 0 or 1.
    following: The position of its next row; None where it never comes.
  """

  stage: int
  source: str
  share: float
  num_rows: int
  following: int | None


class Interleave:
  """Positions to (source, row), and back."""

  def __init__(
    self,
    sequences: Mapping[str, unit_sequence.UnitSequence],
    stages: Sequence[Stage],
    key: int,
    *,
    exhaustion: str = "drop",
    exhausted_at: Mapping[str, int | None] | None = None,
    start: Mapping[str, tuple[int, int]] | None = None,
  ):
    """Checks and keeps the arguments.

    Args:
      sequences: Units of each source's rows. Their order numbers the sources
        and decides nothing else.
      stages: In order of their positions.
      key: 64 bits; ties go by it and the source's name.
      exhaustion: One of `exhaustion.EXHAUSTIONS`.
      exhausted_at: Rows after which a source counts as exhausted; its
        `num_rows` where left out or None. Where no row is repeated ('drop'), a
        source ends there, else it goes on to its `num_rows`.
      start: Rows and units consumed before position 0, for instance by an
        earlier run. A source left out starts at row 0 and at the least units
        over weight of the others.

    Raises:
      ValueError: If names are unknown, weights not positive or too far apart,
        stages out of order, or repeated rows consume nothing.
      TypeError: If a weight is not exact.
    """
    self._sequences = dict(sequences)
    self._chain = merge_stages.StageChain(
      self._sequences,
      stages,
      key,
      exhaustion,
      exhausted_at or {},
      start or {},
    )
    # Kept, so that going on costs no search; any entry may be dropped.
    self._blocks = memo.Memo(_BLOCKS_CACHED)
    self._frontiers = memo.Memo(_FRONTIERS_CACHED)

  @property
  def names(self) -> tuple[str, ...]:
    """The sources, by number."""
    return tuple(self._sequences)

  @property
  def num_positions(self) -> int | None:
    """Where the mix ends; None is never."""
    return self._chain.end

  def locate(self, positions: np.ndarray) -> _Rows:
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
    self._check(int(positions.min()), int(positions.max()) + 1)
    blocks, places = np.divmod(positions, BLOCK)
    order = np.argsort(blocks, kind="stable")
    cuts = np.flatnonzero(np.diff(blocks[order])) + 1
    members = np.split(order, cuts)
    numbers = [int(blocks[picks[0]]) for picks in members]
    # Those side by side are worked out in one piece.
    piece: dict[int, _Rows] = {}
    for i, (block, picks) in enumerate(zip(numbers, members, strict=True)):
      block_rows = piece.get(block) or self._blocks.get(block)
      if block_rows is None:
        count = _side_by_side(numbers[i : i + _PIECE_BLOCKS])
        piece = self._piece(block, count)
        block_rows = piece[block]
      source, row = block_rows
      sources[picks] = source[places[picks]]
      rows[picks] = row[places[picks]]
    return sources, rows

  def _check(self, low: int, high: int) -> None:
    """Raises IndexError unless 0 <= low and high is at most the end."""
    last = self._chain.at(max(high, 0))
    if low < 0 or (last.ends and last.until is not None and high > last.until):
      wrong = low if low < 0 else high
      raise IndexError(
        f"positions must be in 0 .. {self.num_positions}, got {wrong}. The mix"
        " has no other rows."
      )

  def _frontier(self, position: int) -> np.ndarray:
    """Returns int64[S], each source's next row at a position."""
    rows = self._frontiers.get(position)
    if rows is None:
      stage = self._chain.at(position)
      # Where a stage begins, its rows are known.
      begins = position == stage.position
      rows = stage.rows if begins else stage.rows_at(position)
      self._frontiers.put(position, rows)
    return rows

  def _block(self, block: int) -> _Rows:
    """Returns sources int32[N] and rows int64[N] of up to 4,096 positions."""
    return self._blocks.get(block) or self._piece(block, 1)[block]

  def _piece(self, block: int, count: int) -> dict[int, _Rows]:
    """Returns consecutive blocks; fewer where the mix ends."""
    first = block * BLOCK
    position, stop = first, first + count * BLOCK
    parts = []
    while position < stop:
      stage = self._chain.at(position)
      until = stop if stage.until is None else min(stop, stage.until)
      if until <= position:
        break
      rows = self._frontier(position).copy()
      lane, row, rows[stage.lanes] = stage.merge.advance(
        rows[stage.lanes], until - position
      )
      parts.append((stage.lanes[lane], row))
      position = until
      self._frontiers.put(position, rows)
    sources, source_rows = map(np.concatenate, zip(*parts, strict=True))
    blocks = {}
    frontier = self._frontier(first)
    for low in range(0, len(sources), BLOCK):
      part = slice(low, low + BLOCK)
      if low:
        self._frontiers.put(first + low, frontier)
      frontier = frontier + np.bincount(
        sources[part], minlength=len(self._sequences)
      )
      # Copies: a view would keep the whole piece.
      blocks[block + low // BLOCK] = (
        sources[part].copy(),
        source_rows[part].copy(),
      )
    for number, rows in blocks.items():
      self._blocks.put(number, rows)
    return blocks

  def consumed(self, position: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns what was consumed of every source before a position.

    Args:
      position: At most `num_positions`.

    Returns:
      Each source's next row, int64[S], and the units of the rows before it,
      int64[S]: those skipped by `start` count.

    Raises:
      IndexError: If the position is negative or beyond the end.
    """
    rows = self.rows_at(position)
    sums = [
      sequence.before(rows[i : i + 1])
      for i, sequence in enumerate(self._sequences.values())
    ]
    return rows, np.concatenate(sums)

  def rows_at(self, position: int) -> np.ndarray:
    """Returns each source's next row at a position, int64[S].

    Args:
      position: At most `num_positions`.

    Raises:
      IndexError: If the position is negative or beyond the end.
    """
    self._check(position, position)
    begin = position - position % BLOCK
    block = self._blocks.get(position // BLOCK)
    if block is None:
      return self._frontier(position).copy()
    sources = block[0][: position - begin]
    return self._frontier(begin) + np.bincount(
      sources, minlength=len(self._sequences)
    )

  def position_of(self, source: str, row: int) -> int | None:
    """Returns where a row of a source stands, None where it never does.

    Positions that only 2**62 units of another source would reach are never.

    Args:
      source: Its name.
      row: The row, in the source's own order, at least 0.

    Raises:
      ValueError: If the name is unknown or the row negative.
    """
    self._chain.check_names("source", {source: None})
    if row < 0:
      raise ValueError(
        f"`row` must be at least 0, got {row}. Rows count from a source's"
        " first."
      )
    number = self.names.index(source)
    limit = self._chain.limit(number)
    if limit is not None and row >= limit:
      return None
    # Rows of stages rise: of those that are worked out, the last that begins
    # at the row or before it.
    for index in range(self._chain.last_started(number, row), len(self._chain)):
      stage = self._chain.stage(index)
      if stage is None or row < stage.rows[number]:
        return None
      until = stage.until
      if until is None or row < self._frontier(until)[number]:
        lane = stage.lane_of(number)
        rank = None if lane is None else stage.merge.rank(lane, row)
        return None if rank is None else stage.position + rank
    return None

  def positions_of(self, source: str, rows: np.ndarray) -> np.ndarray:
    """Returns where rows of a source stand: `locate` back.

    Args:
      source: Its name.
      rows: int64[N], ascending, each at least the source's first of this run.

    Returns:
      int64[M], ascending; M < N where rows from one on never come.

    Raises:
      ValueError: As `position_of`.
    """
    number = self.names.index(source) if source in self.names else -1
    parts, end = [np.empty(0, np.int64)], self.num_positions
    done = 0
    while done < len(rows):
      position = self.position_of(source, int(rows[done]))
      if position is None or (end is not None and position >= end):
        break
      block = position // BLOCK
      sources, block_rows = self._block(block)
      places = np.flatnonzero(sources == number)
      there = block_rows[places]
      stop = int(np.searchsorted(rows, there[-1], side="right"))
      pick = np.searchsorted(there, rows[done:stop])
      parts.append(block * BLOCK + places[pick])
      done = stop
    return np.concatenate(parts)

  def unserved(self, end: int) -> Iterator[Unserved]:
    """Yields the weights that amount to less than a row, stage by stage.

    A source gives a row where it joins, whatever its weight, and none where it
    is ahead of its share: what its weight amounts to tells whether it is as
    good as left out of the stage. Sources with fewer rows than two left, and
    stages of fewer rows than two for each source, are passed over.

    Args:
      end: The positions of the run, at most `num_positions`.
    """
    if end <= 0:
      return
    begins = self._chain.rows_before(end)
    last = self._chain.stage(len(begins) - 1)
    assert last is not None
    stop = end if last.until is None else min(last.until, end)
    # Counted by source at once: to look for single rows costs much more.
    counted = np.diff(begins, axis=0, append=[self._frontier(stop)])
    for index in np.flatnonzero((counted < 2).any(axis=1)).tolist():
      counts = counted[index]
      few = [lane for lane in self._chain.lanes(index) if counts[lane] < 2]
      if not few:
        continue
      stage = self._chain.stage(index)
      assert stage is not None
      until = end if stage.until is None else min(stage.until, end)
      if until - stage.position < 2 * len(stage.lanes):
        continue
      for number in few:
        name, row = self.names[number], int(stage.rows[number])
        limit = self._chain.limit(number)
        if limit is not None and limit - row < 2:
          continue
        share = self._share(stage, number, until)
        if share < 1:
          num_rows = int(counts[number])
          position = self.position_of(name, row + num_rows)
          yield Unserved(index, name, float(share), num_rows, position)

  def _share(
    self, stage: merge_stages.StageStart, number: int, until: int
  ) -> fractions.Fraction:
    """Returns the rows that a source's weight amounts to in a stage."""
    weights = self._chain.weights(stage.index)
    last = self._frontier(until)
    whole, total = fractions.Fraction(0), 0
    for source in stage.lanes.tolist():
      name, row = self.names[source], int(stage.rows[source])
      if row != self._chain.limit(source):
        whole += weights[name]
        total += self._between(source, row, int(last[source]))
    row = int(stage.rows[number])
    each = max(self._between(number, row, row + 1), 1)
    return weights[self.names[number]] / whole * total / each

  def _between(self, source: int, first: int, last: int) -> int:
    """Returns the units of a source's rows first .. last - 1."""
    sums = self._sequences[self.names[source]].before(np.asarray([first, last]))
    return int(sums[1] - sums[0])


def _side_by_side(numbers: Sequence[int]) -> int:
  """Returns how many numbers follow each other from the first one on."""
  count = 1
  while count < len(numbers) and numbers[count] == numbers[0] + count:
    count += 1
  return count
