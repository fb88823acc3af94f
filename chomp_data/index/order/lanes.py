"""A block shuffle in lanes, so that readers need not share blocks.

    lanes 2, lane_rows 2: rows come from lanes 0 0 1 1 0 0 1 1 ...

Row r of a run is of lane (r // lane_rows) % lanes. A reader of some columns of
every batch, or of every n-th step, reads some of the lanes where these divide,
and no two readers the same. Each lane is a block shuffle of its own over its
share of the permuted blocks; the number of lanes is an option, so that the
order is the same for any number of readers.

What makes no whole turn of all lanes (the blocks left over when they are dealt,
the tail, and rows before an epoch's first turn) comes where it is left,
permuted in itself. Positions and rows are int64. NumPy only.
"""

import dataclasses

import numpy as np

from chomp_data.index import hashing
from chomp_data.index import permutation
from chomp_data.index.order import orders


@dataclasses.dataclass(frozen=True)
class _Turns:
  """How an epoch is dealt; each is int64 of the shape of epoch and size.

  Attributes:
    blocks: Whole blocks.
    lane_size: Rows of a lane's blocks.
    lane_used: Of these, rows that come in turns.
    head: Positions before the first turn.
    last: The position after the last turn.
    rest: Rows that come in no turn.
  """

  blocks: np.ndarray
  lane_size: np.ndarray
  lane_used: np.ndarray
  head: np.ndarray
  last: np.ndarray
  rest: np.ndarray


@dataclasses.dataclass(frozen=True)
class LaneOrder(orders.KeyedOrder):
  """Blocks dealt to lanes, and a block shuffle within each of them.

  Attributes:
    io_block_size: Rows of a block, which are read together.
    window_blocks: Blocks of a lane whose rows are mixed.
    lanes: How many there are.
    lane_rows: Rows of a lane that follow each other.
    key: See `order_key`.
    perm_type: 'feistel', or 'linear', which is weak.
  """

  io_block_size: int
  window_blocks: int
  lanes: int
  lane_rows: int
  key: int
  perm_type: str = "feistel"

  def __post_init__(self) -> None:
    super().__post_init__()
    for name, fix in (
      ("io_block_size", "Give the rows read together."),
      ("window_blocks", "Give the blocks mixed together."),
      ("lanes", "Give how many there are."),
      ("lane_rows", "Give the rows of a lane that follow each other."),
    ):
      orders.check_positive(name, getattr(self, name), fix)

  def window_bounds(
    self, index: np.ndarray, epoch: np.ndarray | int, size: np.ndarray | int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the turns of a window of each lane; see `Order`."""
    index = np.asarray(index, np.int64)
    turns = self._turns(np.asarray(epoch), np.asarray(size))
    turn = self.lanes * self.lane_rows
    window = (index - turns.head) // turn * self.lane_rows // self._window_rows
    # The turns that begin in this window.
    first = -(-window * self._window_rows // self.lane_rows)
    last = -(-(window + 1) * self._window_rows // self.lane_rows)
    first = turns.head + first * turn
    last = np.minimum(turns.head + last * turn, turns.last)
    before, after = index < turns.head, index >= turns.last
    size = np.asarray(size, np.int64)
    first = np.where(before, 0, np.where(after, turns.last, first))
    last = np.where(before, turns.head, np.where(after, size, last))
    return first, last

  def positions(self, rows: np.ndarray, epoch: int, size: int) -> np.ndarray:
    """Returns where rows stand; see `Order.positions`."""
    found = [self._position(row, epoch, size) for row in rows.tolist()]
    return np.asarray(found, np.int64)

  def _position(self, row: int, epoch: int, size: int) -> int:
    turns = self._turns(np.asarray(epoch), np.asarray(size))
    block, offset = divmod(row, self.io_block_size)
    blocks, dealt = int(turns.blocks), int(turns.blocks) // self.lanes
    used, lane_rest = (
      int(turns.lane_used),
      int(turns.lane_size - turns.lane_used),
    )
    rest = (
      self.lanes * lane_rest + row - dealt * self.lanes * self.io_block_size
    )
    if block < blocks:
      key = int(self.epoch_key("blocks", epoch)[0])
      block = self._found(block, blocks, key)
      rest = (
        self.lanes * lane_rest
        + (block - dealt * self.lanes) * self.io_block_size
        + offset
      )
    if block < dealt * self.lanes:
      lane, place = block % self.lanes, block // self.lanes
      place = place * self.io_block_size + offset
      first = place // self._window_rows * self._window_rows
      length = min(self._window_rows, int(turns.lane_size) - first)
      window = first // self._window_rows
      key = int(self._window_key(np.asarray(epoch), lane, window)[0])
      number = first + self._found(place - first, length, key)
      if number < used:
        turn, within = divmod(number, self.lane_rows)
        turn = turn * self.lanes + lane
        return int(turns.head) + turn * self.lane_rows + within
      rest = lane * lane_rest + number - used
    key = int(self.epoch_key("rest", epoch)[0])
    position = self._found(rest, int(turns.rest), key)
    in_turns = int(turns.last - turns.head)
    return position if position < turns.head else position + in_turns

  def _found(self, row: int, size: int, key: int) -> int:
    inverse = permutation.INVERSES[self.perm_type]
    return int(inverse(np.asarray([row]), size, key)[0])

  @property
  def _window_rows(self) -> int:
    return min(self.io_block_size * self.window_blocks, 2**40)

  def _turns(self, epoch: np.ndarray, size: np.ndarray) -> _Turns:
    turn = self.lanes * self.lane_rows
    blocks = size // self.io_block_size
    lane_size = blocks // self.lanes * self.io_block_size
    # Turns are those of the run: epochs go on where the last one ended.
    head = np.minimum(-(epoch * size) % turn, size)
    used = np.minimum(lane_size // self.lane_rows, (size - head) // turn)
    return _Turns(
      blocks=blocks,
      lane_size=lane_size,
      lane_used=used * self.lane_rows,
      head=head,
      last=head + used * turn,
      rest=size - used * turn,
    )

  def _evaluate(self, index, epoch, size, first, last) -> np.ndarray:
    del first, last
    epoch, size = (np.broadcast_to(own, index.shape) for own in (epoch, size))
    turns = self._turns(epoch, size)
    turn, within = np.divmod(index - turns.head, self.lanes * self.lane_rows)
    lane, within = np.divmod(within, self.lane_rows)
    number = turn * self.lane_rows + within
    rows = np.empty_like(index)
    in_turns = (index >= turns.head) & (index < turns.last)
    own = np.flatnonzero(in_turns)
    rows[own] = self._of_lanes(lane[own], number[own], own, epoch, turns)
    own = np.flatnonzero(~in_turns)
    if not len(own):
      return rows
    position = index[own]
    turned = (turns.last - turns.head)[own]
    position = np.where(position < turns.head[own], position, position - turned)
    rest = self._permuted(
      position, turns.rest[own], self.epoch_key("rest", epoch[own])
    )
    used = turns.lane_used[own]
    each = turns.lane_size[own] - used
    of_lanes = self.lanes * each
    lane, number = np.divmod(rest, np.maximum(each, 1))
    pick = np.flatnonzero(rest < of_lanes)
    rows[own[pick]] = self._of_lanes(
      lane[pick], (used + number)[pick], own[pick], epoch, turns
    )
    pick = np.flatnonzero(rest >= of_lanes)
    place = (rest - of_lanes)[pick]
    own = own[pick]
    dealt = turns.blocks[own] // self.lanes * self.lanes
    rows[own] = self._of_places(
      dealt * self.io_block_size + place, epoch[own], turns.blocks[own]
    )
    return rows

  def _of_lanes(self, lane, number, own, epoch, turns: _Turns) -> np.ndarray:
    """Returns the rows that are the n-th of their lanes.

    Args:
      lane: int64[N].
      number: int64[N].
      own: int64[N], where their epochs are in `epoch` and `turns`.
      epoch: int64[M].
      turns: Of [M].
    """
    if not len(number):
      return number
    epoch, size = epoch[own], turns.lane_size[own]
    window = number // self._window_rows
    first = window * self._window_rows
    length = np.minimum(self._window_rows, size - first)
    # What a permutation draws by key it draws once for each run of a key.
    by = np.lexsort((window, lane, epoch))
    key = self._window_key(epoch[by], lane[by], window[by])
    place = np.array(first)
    place[by] += self._permuted((number - first)[by], length[by], key)
    block, offset = np.divmod(place, self.io_block_size)
    block = block * self.lanes + lane
    return self._of_places(
      block * self.io_block_size + offset, epoch, turns.blocks[own]
    )

  def _window_key(self, epoch, lane, window) -> np.ndarray:
    of_lane = hashing.fold(self.epoch_key("lane", epoch), np.asarray(lane))
    return hashing.fold(of_lane, np.asarray(window))

  def _of_places(self, place, epoch, blocks) -> np.ndarray:
    """Returns the rows at places in the permuted blocks; then the tail's."""
    number, offset = np.divmod(place, self.io_block_size)
    rows = np.array(place)
    own = np.flatnonzero(number < blocks)
    if not len(own):
      return rows
    block = self._permuted(
      number[own], blocks[own], self.epoch_key("blocks", epoch[own])
    )
    rows[own] = block * self.io_block_size + offset[own]
    return rows
