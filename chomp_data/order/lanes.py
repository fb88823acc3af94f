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
from chomp_data.order import unequal_blocks

_Numbers = np.ndarray | int


@dataclasses.dataclass(frozen=True)
class LaneOrder(orders.KeyedOrder):
  """Permuted blocks cut into lanes, and rows shuffled within each lane.

  Attributes:
    blocks: The blocks, their order and the keys; its windows are not used.
    lanes: The number of lanes.
    lane_rows: Consecutive rows of a lane, its turn.
    window_rows: Rows of a lane that are shuffled together, at least one turn.
    first_row: Returns the first row of epochs in the run, int64[N]; None if
      all epochs have the same size.
  """

  blocks: orders.BlockOrder | unequal_blocks.UnequalBlockOrder
  lanes: int
  lane_rows: int
  window_rows: int
  first_row: Callable[[np.ndarray], np.ndarray] | None = dataclasses.field(
    default=None, repr=False
  )
  key: int = dataclasses.field(init=False, repr=False)
  perm_type: str = dataclasses.field(init=False, repr=False)

  def __post_init__(self) -> None:
    object.__setattr__(self, "key", self.blocks.key)
    object.__setattr__(self, "perm_type", self.blocks.perm_type)
    super().__post_init__()
    for name, fix in (
      ("lanes", "Give how many there are."),
      ("lane_rows", "Give the rows of a lane that follow each other."),
      ("window_rows", "Give the rows of a lane that are mixed."),
    ):
      orders.check_positive(name, getattr(self, name), fix)

  def window_bounds(
    self, index: np.ndarray, epoch: _Numbers, size: _Numbers
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the positions of the turns that form a window of each lane."""
    index, size = np.asarray(index, np.int64), np.asarray(size, np.int64)
    begin = self._begin(epoch, size)
    turn = self.lanes * self.lane_rows
    window = turn * max(1, min(self.window_rows, 2**40) // self.lane_rows)
    # Turns are counted in the run: an epoch continues those of the last one.
    head = begin % turn
    first = (index + head) // window * window - head
    last = np.minimum(first + window, size)
    return np.maximum(first, 0), last

  def positions(self, rows: np.ndarray, epoch: int, size: int) -> np.ndarray:
    """Returns the positions of rows of an epoch."""
    begin = self._begin(epoch, np.asarray(size))
    place = self.blocks.places(rows, epoch, size)
    ends = np.arange(self.lanes + 1)
    ends = self._in_lanes(ends, begin + size) - self._in_lanes(ends, begin)
    lane = np.searchsorted(ends, place, side="right") - 1
    number = np.where(lane % 2, ends[lane + 1] - 1 - place, place - ends[lane])
    before = self._rows_of_lane(lane, begin)

    def position(number: np.ndarray) -> np.ndarray:
      turn, within = np.divmod(number + before, self.lane_rows)
      return (turn * self.lanes + lane) * self.lane_rows + within - begin

    first, last = self.window_bounds(position(number), epoch, size)
    low = self._rows_of_lane(lane, begin + first) - before
    length = self._rows_of_lane(lane, begin + last) - before - low
    key = self._window_key(np.asarray(epoch), lane, first)
    return position(low + self._unpermuted(number - low, length, key))

  def _begin(self, epoch: _Numbers, size: np.ndarray) -> np.ndarray:
    """Returns the first row of epochs in the run."""
    epoch = np.asarray(epoch, np.int64)
    if self.first_row is None:
      return epoch * size
    return self.first_row(np.atleast_1d(epoch)).reshape(epoch.shape)

  def _rows_of_lane(self, lane: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Returns how many rows of a lane come before a row of the run."""
    turn, rest = np.divmod(row, self.lanes * self.lane_rows)
    rest = np.clip(rest - lane * self.lane_rows, 0, self.lane_rows)
    return turn * self.lane_rows + rest

  def _in_lanes(self, lanes: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Returns how many rows of the first lanes come before a row of the run."""
    turn, rest = np.divmod(row, self.lanes * self.lane_rows)
    each = lanes * self.lane_rows
    return turn * each + np.minimum(rest, each)

  def _evaluate(self, index, epoch, size, first, last) -> np.ndarray:
    begin = self._begin(epoch, size)
    lane = (begin + index) // self.lane_rows % self.lanes
    # Sorted by lane: permutations draw values once per run of equal keys.
    by_lane = np.argsort(lane, kind="stable")
    index, lane = index[by_lane], lane[by_lane]
    begin, epoch, size, first, last = (
      values[by_lane] if values.size > 1 else values
      for values in (begin, epoch, size, first, last)
    )
    before = self._rows_of_lane(lane, begin)
    low = self._rows_of_lane(lane, begin + first) - before
    length = self._rows_of_lane(lane, begin + last) - before - low
    number = self._rows_of_lane(lane, begin + index) - before - low
    key = self._window_key(epoch, lane, first)
    number = low + self._permuted(number, length, key)
    backwards = lane % 2
    edge = lane + backwards
    edge = self._in_lanes(edge, begin + size) - self._in_lanes(edge, begin)
    place = edge + np.where(backwards, -1 - number, number)
    rows = np.empty_like(index)
    rows[by_lane] = self.blocks.rows(place, epoch, size)
    return rows

  def _window_key(self, epoch, lane, first) -> np.ndarray:
    return hashing.fold(
      hashing.fold(self.epoch_key("lane", epoch), lane), first
    )
