"""Lanes: bijections whose blocks are shared by no two lanes."""

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data.index.order import lanes
from chomp_data.index.order import orders
from tests import laws

KEY = orders.order_key(0, "text")

# Epoch 1 of 22 rows.
GOLDEN = [
  1, 2, 18, 20, 10, 11, 15, 17, 14, 12, 16,
  19, 13, 9, 3, 5, 7, 8, 0, 6, 21, 4,
]  # fmt: skip


def lane_order(block=4, window=2, count=3, rows=2, perm_type="feistel"):
  return lanes.LaneOrder(block, window, count, rows, KEY, perm_type)


ORDERS = st.builds(
  lane_order,
  block=st.integers(1, 9),
  window=st.integers(1, 4),
  count=st.integers(1, 6),
  rows=st.integers(1, 5),
  perm_type=st.sampled_from(orders.PERM_TYPES),
)


@hypothesis.given(ORDERS, st.integers(0, 3), st.integers(1, 300))
@laws.examples(100)
def test_every_epoch_is_a_bijection(order, epoch, size):
  rows = order.permute(np.arange(size), epoch, size)
  assert sorted(rows.tolist()) == list(range(size))


@hypothesis.given(ORDERS, st.integers(0, 3), st.integers(1, 200), st.data())
@laws.examples(60)
def test_any_positions_are_those_of_the_whole_epoch(order, epoch, size, data):
  rows = order.permute(np.arange(size), epoch, size)
  index = np.asarray(data.draw(st.lists(st.integers(0, size - 1))), np.int64)
  assert order.permute(index, epoch, size).tolist() == rows[index].tolist()
  many = np.full(len(index), epoch), np.full(len(index), size)
  assert order.permute(index, *many).tolist() == rows[index].tolist()


@hypothesis.given(ORDERS, st.integers(0, 3), st.integers(1, 200))
@laws.examples(60)
def test_rows_are_found(order, epoch, size):
  rows = order.permute(np.arange(size), epoch, size)
  assert order.positions(rows, epoch, size).tolist() == list(range(size))


@hypothesis.given(ORDERS, st.integers(0, 3), st.integers(1, 300))
@laws.examples(60)
def test_windows_part_the_epoch(order, epoch, size):
  first, last = order.window_bounds(np.arange(size), epoch, size)
  assert ((first <= np.arange(size)) & (np.arange(size) < last)).all()
  edges = np.flatnonzero(np.diff(first)) + 1
  assert first[np.concatenate([[0], edges])].tolist() == [0, *edges.tolist()]
  assert last[np.concatenate([edges - 1, [size - 1]])].tolist() == [
    *edges.tolist(),
    size,
  ]


@pytest.mark.parametrize("epoch", [0, 1, 5])
def test_lanes_share_no_block_and_are_those_of_the_run(epoch):
  size, order = 1_003, lane_order(block=8, window=2, count=5, rows=3)
  rows = order.permute(np.arange(size), epoch, size)
  lane = (epoch * size + np.arange(size)) // 3 % 5
  first, last = order.window_bounds(np.arange(size), epoch, size)
  # Whole turns: what begins and ends an epoch are windows of their own.
  turns = 15
  body = (epoch * size + first) % turns == 0
  body &= (epoch * size + last) % turns == 0
  blocks = [set((rows[body & (lane == i)] // 8).tolist()) for i in range(5)]
  assert sum(map(len, blocks)) == len(set.union(*blocks))
  # What comes in no turn: before the first and after the last, of each lane
  # less than a turn, blocks that are not dealt, and the tail.
  assert body.sum() > size - 2 * turns - 5 * 3 - 5 * 8 - 8


def test_one_lane_in_each_turn_is_a_block_shuffle_of_its_blocks():
  order = lane_order(block=8, window=2, count=2, rows=4)
  rows = order.permute(np.arange(320), 0, 320)
  own = rows.reshape(-1, 2, 4)[:, 0].reshape(-1)
  for low in range(0, len(own), 16):
    window = own[low : low + 16]
    assert len(set((window // 8).tolist())) == 2
    assert len(set(window.tolist())) == 16
  assert own[:16].tolist() != sorted(own[:16].tolist())


def test_epochs_and_keys_differ():
  order = lane_order()
  one, two = (order.permute(np.arange(500), e, 500) for e in (0, 1))
  assert (one == two).mean() < 0.1
  other = lanes.LaneOrder(4, 2, 3, 2, KEY + 1).permute(np.arange(500), 0, 500)
  assert (one == other).mean() < 0.1


def test_the_order_of_today_stays():
  order = lane_order(block=3, window=2, count=2, rows=2)
  assert order.permute(np.arange(22), 1, 22).tolist() == GOLDEN


@pytest.mark.parametrize("name", ["lanes", "lane_rows"])
def test_options_out_of_range_are_refused(name):
  options = {"lanes": 2, "lane_rows": 2, name: 0}
  with pytest.raises(ValueError, match=f"`{name}` must be an integer"):
    lanes.LaneOrder(4, 2, key=KEY, **options)
