# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A block shuffle in lanes, which readers can read without sharing blocks.

    lanes 2, lane_rows 2: rows come from lanes 0 0 1 1 0 0 1 1 ...
    permuted blocks       |--- lane 0 --->|<--- lane 1 ---|

Row r of a run is in lane (r // lane_rows) % lanes. A reader of some columns of
every batch, or of every n-th step, reads some of the lanes if these divide
evenly, and no two readers share a lane. The permuted blocks of an epoch are cut
into one consecutive piece per lane, of as many rows as the lane has in the
epoch: no row is left over, and only blocks at a cut belong to two lanes. Every
second lane reads its piece from the end, so that one reader of all lanes reads
both parts of most of these blocks at the same time. The rows of a lane are
shuffled in windows.

The number of lanes is an option, so that the order is the same for any number
of readers. Positions and rows are int64. NumPy only.
"""

from collections.abc import Callable
import dataclasses

import numpy as np

from chomp_data.index import hashing
from chomp_data.order import orders


@dataclasses.dataclass(frozen=True)
class LaneOrder(orders.Order):
  """Permuted blocks cut into lanes, and rows shuffled within each lane.

  Attributes:
    blocks: The blocks, their order and the keys; its windows are not used.
    lanes: The number of lanes.
    lane_rows: Consecutive rows of a lane, its turn.
    window_rows: Rows of a lane that are shuffled together, at least one turn.
    first_row: Returns the first row of epochs in the run, int64[N]; None if
      all epochs have the same size.
  """

  blocks: orders.BlockShuffle
  lanes: int
  lane_rows: int
  window_rows: int
  first_row: Callable[[np.ndarray], np.ndarray] | None = dataclasses.field(
    default=None, repr=False
  )

  def window_bounds(
    self, index: np.ndarray, epoch: int, size: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the positions of the turns that form a window of each lane."""
    index = np.asarray(index, np.int64)
    turn = self.lanes * self.lane_rows
    window = turn * max(1, min(self.window_rows, 2**40) // self.lane_rows)
    # Turns are counted in the run: an epoch continues those of the last one.
    head = self._begin(epoch, size) % turn
    window_begin = (index + head) // window * window - head
    return np.maximum(window_begin, 0), np.minimum(window_begin + window, size)

  def positions(self, rows: np.ndarray, epoch: int, size: int) -> np.ndarray:
    """Returns the positions of rows of an epoch; inverts `permute`."""
    begin = self._begin(epoch, size)
    place = self.blocks.places(np.asarray(rows, np.int64), epoch, size)
    edges = self._lane_edges(np.arange(self.lanes + 1), begin, size)
    lane = np.searchsorted(edges, place, side="right") - 1
    number = np.where(
      lane % 2, edges[lane + 1] - 1 - place, place - edges[lane]
    )
    before = self._rows_of_lane(lane, begin)

    def position(number: np.ndarray) -> np.ndarray:
      turn, within = np.divmod(number + before, self.lane_rows)
      return (turn * self.lanes + lane) * self.lane_rows + within - begin

    window_begin, length, key = self._lane_windows(
      lane, position(number), epoch, size, begin
    )
    return position(
      window_begin + self.blocks.unpermuted(number - window_begin, length, key)
    )

  def _permute(self, index: np.ndarray, epoch: int, size: int) -> np.ndarray:
    begin = self._begin(epoch, size)
    lane = (begin + index) // self.lane_rows % self.lanes
    before = self._rows_of_lane(lane, begin)
    number = self._rows_of_lane(lane, begin + index) - before
    window_begin, length, key = self._lane_windows(
      lane, index, epoch, size, begin
    )
    number = window_begin + self.blocks.permuted(
      number - window_begin, length, key
    )
    backwards = lane % 2
    edge = self._lane_edges(lane + backwards, begin, size)
    place = edge + np.where(backwards, -1 - number, number)
    return self.blocks.rows(place, epoch, size)

  def _lane_windows(
    self, lane: np.ndarray, index: np.ndarray, epoch: int, size: int, begin: int
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the windows of positions, counted in rows of their lanes.

    The first row of the lane in the epoch, how many there are, and the key.
    """
    window_begin, window_end = self.window_bounds(index, epoch, size)
    rows_before = self._rows_of_lane(lane, begin + window_begin)
    length = self._rows_of_lane(lane, begin + window_end) - rows_before
    key = hashing.fold(self.blocks.epoch_key("lane", epoch), lane)
    before = self._rows_of_lane(lane, begin)
    return rows_before - before, length, hashing.fold(key, window_begin)

  def _begin(self, epoch: int, size: int) -> int:
    """Returns the first row of an epoch in the run."""
    if self.first_row is None:
      return epoch * size
    return int(self.first_row(np.asarray([epoch]))[0])

  def _rows_of_lane(
    self, lane: np.ndarray, row: np.ndarray | int
  ) -> np.ndarray:
    """Returns how many rows of a lane come before a row of the run."""
    turn, turn_rows = np.divmod(row, self.lanes * self.lane_rows)
    turn_rows = np.clip(turn_rows - lane * self.lane_rows, 0, self.lane_rows)
    return turn * self.lane_rows + turn_rows

  def _lane_edges(self, lanes: np.ndarray, begin: int, size: int) -> np.ndarray:
    """Returns the rows of an epoch in all lanes before each one, int64[N]."""

    def before(row: int) -> np.ndarray:
      turn, turn_rows = divmod(row, self.lanes * self.lane_rows)
      each = lanes * self.lane_rows
      return turn * each + np.minimum(turn_rows, each)

    return before(begin + size) - before(begin)
