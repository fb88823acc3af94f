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
weights is valid from its position to that of the next stage (`merge_stages`).
A stage with the same weights as before does not change the order, and nothing
before a stage depends on it.

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
# The most blocks that are computed together: a merge costs about 50 us per
# source for each piece, however many rows the piece has.
_PIECE_BLOCKS = 16
_FRONTIERS_CACHED = 64

# Sources int32[N], by number, and their rows int64[N].
_Rows = tuple[np.ndarray, np.ndarray]


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
    sequences: Mapping[str, unit_sequence.UnitSequence],
    stages: Sequence[Stage],
    key: int,
    *,
    exhaustion: str = "drop",
    exhausted_at: Mapping[str, int | None] | None = None,
    start: Mapping[str, tuple[int, int]] | None = None,
  ):
    """Checks the arguments; computes nothing yet.

    Args:
      sequences: Units of each source's rows. Their order numbers the sources
        and has no other effect.
      stages: The stages, sorted by position.
      key: 64 bits. It and the names of sources decide ties.
      exhaustion: One of `exhaustion.EXHAUSTIONS`.
      exhausted_at: Rows after which each source counts as exhausted; if left
        out or None its `num_rows`. If rows do not repeat ('drop'), the source
        ends there, otherwise at its `num_rows`.
      start: Rows and units consumed before position 0, for example by an
        earlier run. A source that is left out starts at row 0, at the least
        units over weight of the others.

    Raises:
      ValueError: If names are unknown, weights are not positive or too far
        apart, stages are not sorted, or repeated rows consume nothing.
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
    # Caches, so that reading on from a position needs no search.
    self._blocks = memo.Memo(_BLOCKS_CACHED)
    self._frontiers = memo.Memo(_FRONTIERS_CACHED)

  @property
  def names(self) -> tuple[str, ...]:
    """The names of the sources, by number."""
    return tuple(self._sequences)

  @property
  def num_positions(self) -> int | None:
    """The number of positions; None if the mix has no end."""
    return self._chain.end

  def locate(self, positions: np.ndarray) -> _Rows:
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
    blocks, places = np.divmod(positions, BLOCK)
    order = np.argsort(blocks, kind="stable")
    cuts = np.flatnonzero(np.diff(blocks[order])) + 1
    members = np.split(order, cuts)
    numbers = [int(blocks[picks[0]]) for picks in members]
    # Adjacent blocks are computed in one piece.
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
      bad_position = low if low < 0 else high
      raise IndexError(
        f"positions must be in 0 .. {self.num_positions}, got {bad_position}."
        " The mix has no other rows."
      )

  def _frontier(self, position: int) -> np.ndarray:
    """Returns int64[S], each source's next row at a position."""
    rows = self._frontiers.get(position)
    if rows is None:
      stage = self._chain.at(position)
      # At the first position of a stage the next rows are known.
      begins = position == stage.position
      rows = stage.rows if begins else stage.rows_at(position)
      self._frontiers.put(position, rows)
    return rows

  def _block(self, block: int) -> _Rows:
    """Returns sources int32[N] and rows int64[N] of up to 4,096 positions."""
    return self._blocks.get(block) or self._piece(block, 1)[block]

  def _piece(self, block: int, count: int) -> dict[int, _Rows]:
    """Computes `count` consecutive blocks; fewer if the mix ends."""
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
      int64[S]. Rows before `start` are included in both.

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
    block_start = position - position % BLOCK
    block = self._blocks.get(position // BLOCK)
    if block is None:
      return self._frontier(position).copy()
    sources = block[0][: position - block_start]
    return self._frontier(block_start) + np.bincount(
      sources, minlength=len(self._sequences)
    )

  def position_of(self, source: str, row: int) -> int | None:
    """Returns the position of a source's row; None if it is not in the mix.

    None also if another source consumes 2**62 units before the position.

    Args:
      source: The name of the source.
      row: The row in the source's own order, at least 0.

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
    # Start at the last of the computed stages that begins at or before the row.
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
    """Returns the positions of a source's rows; inverts `locate`.

    Args:
      source: The name of the source.
      rows: int64[N], ascending, none before the source's first in this run.

    Returns:
      int64[M], ascending; M < N if the last rows are not in the mix.

    Raises:
      ValueError: As `position_of`.
    """
    number = self.names.index(source) if source in self.names else -1
    parts, end = [np.empty(0, np.int64)], self.num_positions
    num_located = 0
    while num_located < len(rows):
      position = self.position_of(source, int(rows[num_located]))
      if position is None or (end is not None and position >= end):
        break
      block = position // BLOCK
      sources, block_rows = self._block(block)
      places = np.flatnonzero(sources == number)
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
    if end <= 0:
      return
    begins = self._chain.rows_before(end)
    last = self._chain.stage(len(begins) - 1)
    assert last is not None
    stop = end if last.until is None else min(last.until, end)
    # Counts of all sources at once: searching for single rows takes longer.
    rows_by_stage = np.diff(begins, axis=0, append=[self._frontier(stop)])
    for index in np.flatnonzero((rows_by_stage < 2).any(axis=1)).tolist():
      counts = rows_by_stage[index]
      few_rows = [lane for lane in self._chain.lanes(index) if counts[lane] < 2]
      if not few_rows:
        continue
      stage = self._chain.stage(index)
      assert stage is not None
      until = end if stage.until is None else min(stage.until, end)
      if until - stage.position < 2 * len(stage.lanes):
        continue
      for number in few_rows:
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
    """Returns a source's share of a stage by weight, in rows."""
    weights = self._chain.weights(stage.index)
    last = self._frontier(until)
    total_weight, total_units = fractions.Fraction(0), 0
    for source in stage.lanes.tolist():
      name, row = self.names[source], int(stage.rows[source])
      if row != self._chain.limit(source):
        total_weight += weights[name]
        total_units += self._between(source, row, int(last[source]))
    row = int(stage.rows[number])
    row_units = max(self._between(number, row, row + 1), 1)
    return weights[self.names[number]] / total_weight * total_units / row_units

  def _between(self, source: int, first: int, last: int) -> int:
    """Returns the units of a source's rows first .. last - 1."""
    sums = self._sequences[self.names[source]].before(np.asarray([first, last]))
    return int(sums[1] - sums[0])


def _side_by_side(numbers: Sequence[int]) -> int:
  """Returns how many numbers are consecutive from the first one on."""
  count = 1
  while count < len(numbers) and numbers[count] == numbers[0] + count:
    count += 1
  return count
