# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A block shuffle in lanes, so that readers need not share blocks.

    lanes 2, lane_rows 2: rows come from lanes 0 0 1 1 0 0 1 1 ...
    permuted blocks       |--- lane 0 --->|<--- lane 1 ---|

Row r of a run is of lane (r // lane_rows) % lanes. A reader of some columns of
every batch, or of every n-th step, reads some of the lanes where these divide,
and no two readers the same. The rows of an epoch's permuted blocks, one after
the other, are cut into as many pieces as there are lanes, each of the rows that
its lane gives in that epoch: nothing is left over, and only a block that is cut
belongs to two lanes. Every second lane reads its piece from the end, so that
one reader of all lanes meets both parts of most of these at once. The rows of
a lane are mixed in windows.

The number of lanes is an option, so that the order is the same for any number
of readers. Positions and rows are int64. NumPy only.
"""

from collections.abc import Callable
import dataclasses

import numpy as np

from chomp_data.index import hashing
from chomp_data.index.order import orders
from chomp_data.index.order import unequal_blocks

_Numbers = np.ndarray | int


@dataclasses.dataclass(frozen=True)
class LaneOrder(orders.KeyedOrder):
  """Permuted blocks cut into lanes, and rows mixed within each of them.

  Attributes:
    blocks: The blocks, their order and the keys; its windows are not used.
    lanes: How many there are.
    lane_rows: Rows of a lane that follow each other.
    window_rows: Rows of a lane that are mixed; at least those of a turn are.
    first_row: Returns the first row of epochs in the run, int64[N]; None is of
      epochs of one size.
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
    """Returns the turns that make a window of each lane; see `Order`."""
    index, size = np.asarray(index, np.int64), np.asarray(size, np.int64)
    begin = self._begin(epoch, size)
    turn = self.lanes * self.lane_rows
    window = turn * max(1, min(self.window_rows, 2**40) // self.lane_rows)
    # Turns are those of the run: epochs go on where the last one ended.
    head = begin % turn
    first = (index + head) // window * window - head
    last = np.minimum(first + window, size)
    return np.maximum(first, 0), last

  def positions(self, rows: np.ndarray, epoch: int, size: int) -> np.ndarray:
    """Returns where rows stand; see `Order.positions`."""
    begin = self._begin(epoch, np.asarray(size))
    place = self.blocks.places(rows, epoch, size)
    ends = np.arange(self.lanes + 1)
    ends = self._of_lanes(ends, begin + size) - self._of_lanes(ends, begin)
    lane = np.searchsorted(ends, place, side="right") - 1
    number = np.where(lane % 2, ends[lane + 1] - 1 - place, place - ends[lane])
    given = self._given(lane, begin)

    def position(number: np.ndarray) -> np.ndarray:
      turn, within = np.divmod(number + given, self.lane_rows)
      return (turn * self.lanes + lane) * self.lane_rows + within - begin

    first, last = self.window_bounds(position(number), epoch, size)
    low = self._given(lane, begin + first) - given
    length = self._given(lane, begin + last) - given - low
    key = self._window_key(np.asarray(epoch), lane, first)
    return position(low + self._unpermuted(number - low, length, key))

  def _begin(self, epoch: _Numbers, size: np.ndarray) -> np.ndarray:
    """Returns the first row of epochs in the run."""
    epoch = np.asarray(epoch, np.int64)
    if self.first_row is None:
      return epoch * size
    return self.first_row(np.atleast_1d(epoch)).reshape(epoch.shape)

  def _given(self, lane: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Returns how many rows a lane has given before a row of the run."""
    turn, rest = np.divmod(row, self.lanes * self.lane_rows)
    rest = np.clip(rest - lane * self.lane_rows, 0, self.lane_rows)
    return turn * self.lane_rows + rest

  def _of_lanes(self, lanes: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Returns how many rows the first lanes have given before a row."""
    turn, rest = np.divmod(row, self.lanes * self.lane_rows)
    each = lanes * self.lane_rows
    return turn * each + np.minimum(rest, each)

  def _evaluate(self, index, epoch, size, first, last) -> np.ndarray:
    begin = self._begin(epoch, size)
    lane = (begin + index) // self.lane_rows % self.lanes
    # What a permutation draws by key it draws once for each run of a key.
    by = np.argsort(lane, kind="stable")
    index, lane = index[by], lane[by]
    begin, epoch, size, first, last = (
      own[by] if own.size > 1 else own
      for own in (begin, epoch, size, first, last)
    )
    before = self._given(lane, begin)
    low = self._given(lane, begin + first) - before
    length = self._given(lane, begin + last) - before - low
    number = self._given(lane, begin + index) - before - low
    key = self._window_key(epoch, lane, first)
    number = low + self._permuted(number, length, key)
    backwards = lane % 2
    edge = lane + backwards
    edge = self._of_lanes(edge, begin + size) - self._of_lanes(edge, begin)
    place = edge + np.where(backwards, -1 - number, number)
    rows = np.empty_like(index)
    rows[by] = self.blocks.rows(place, epoch, size)
    return rows

  def _window_key(self, epoch, lane, first) -> np.ndarray:
    return hashing.fold(
      hashing.fold(self.epoch_key("lane", epoch), lane), first
    )
