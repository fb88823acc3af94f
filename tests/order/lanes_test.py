# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Lanes: bijections whose blocks are shared by no two lanes, but at cuts."""

import dataclasses
import pickle

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data.order import lanes
from chomp_data.order import orders
from chomp_data.order import unequal_blocks
from tests import laws

KEY = orders.order_key(0, "text")

# Epoch 1 of 22 rows.
GOLDEN = {
  "equal": [
    2, 1, 18, 20, 7, 0, 9, 19, 8, 21, 16,
    17, 6, 5, 12, 10, 3, 13, 15, 11, 14, 4,
  ],
  "unequal": [
    3, 2, 14, 16, 13, 1, 17, 15, 0, 4, 21,
    5, 12, 11, 6, 18, 9, 7, 20, 19, 8, 10,
  ],
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Epochs:
  """Blocks of rows that differ by epoch."""

  rows: tuple[tuple[int, ...], ...]

  def boundaries(self, epoch):
    own = self.rows[epoch % len(self.rows)]
    return np.concatenate([[0], np.cumsum(own)]).astype(np.int64)

  def size(self, epoch):
    return int(self.boundaries(epoch)[-1])

  def first_row(self, epoch):
    sizes = np.asarray([self.size(e) for e in range(int(epoch.max(initial=0)))])
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)[epoch]


def equal(
  block=4, window=2, count=3, rows=2, perm_type="feistel", first_row=None
):
  return lanes.LaneOrder(
    orders.BlockOrder(block, window, KEY, perm_type),
    count,
    rows,
    block * window,
    first_row,
  )


def unequal(epochs, window_rows=6, count=3, rows=2, perm_type="feistel"):
  blocks = unequal_blocks.UnequalBlockOrder(
    epochs.boundaries, 2, KEY, perm_type
  )
  return lanes.LaneOrder(blocks, count, rows, window_rows, epochs.first_row)


@st.composite
def orders_and_sizes(draw):
  """Draws an order, an epoch and its rows."""
  epoch = draw(st.integers(0, 3))
  options = {
    "count": draw(st.integers(1, 6)),
    "rows": draw(st.integers(1, 5)),
    "perm_type": draw(st.sampled_from(orders.PERM_TYPES)),
  }
  if draw(st.booleans()):
    size, window = draw(st.integers(1, 300)), draw(st.integers(1, 4))
    return equal(draw(st.integers(1, 9)), window, **options), epoch, size
  blocks = st.lists(st.integers(0, 40), max_size=12).map(lambda b: (*b, 1))
  epochs = Epochs(tuple(draw(st.lists(blocks, min_size=1, max_size=3))))
  order = unequal(epochs, draw(st.integers(1, 60)), **options)
  return order, epoch, epochs.size(epoch)


@hypothesis.given(orders_and_sizes(), st.data())
@laws.examples(100)
def test_epochs_are_bijections_at_any_positions(case, data):
  order, epoch, size = case
  rows = order.permute(np.arange(size), epoch, size)
  assert sorted(rows.tolist()) == list(range(size))
  assert order.positions(rows, epoch, size).tolist() == list(range(size))
  index = np.asarray(data.draw(st.lists(st.integers(0, size - 1))), np.int64)
  assert order.permute(index, epoch, size).tolist() == rows[index].tolist()
  many = np.full(len(index), epoch), np.full(len(index), size)
  assert order.permute(index, *many).tolist() == rows[index].tolist()


@hypothesis.given(orders_and_sizes())
@laws.examples(60)
def test_windows_part_the_epoch(case):
  order, epoch, size = case
  first, last = order.window_bounds(np.arange(size), epoch, size)
  assert ((first <= np.arange(size)) & (np.arange(size) < last)).all()
  edges = np.flatnonzero(np.diff(first)) + 1
  assert first[np.concatenate([[0], edges])].tolist() == [0, *edges.tolist()]
  assert last[np.concatenate([edges - 1, [size - 1]])].tolist() == [
    *edges.tolist(),
    size,
  ]


@hypothesis.given(orders_and_sizes())
@laws.examples(60)
def test_lanes_share_blocks_only_where_these_are_cut(case):
  order, epoch, size = case
  begin = epoch * size
  if order.first_row is not None:
    begin = int(order.first_row(np.asarray([epoch]))[0])
  lane = (begin + np.arange(size)) // order.lane_rows % order.lanes
  rows = order.permute(np.arange(size), epoch, size)
  place = order.blocks.places(rows, epoch, size)
  # Each lane has one piece of the permuted blocks.
  for i, own in enumerate(place[lane == j] for j in range(order.lanes)):
    if len(own):
      assert own.max() - own.min() == len(own) - 1
      assert own.min() == (lane < i).sum()


def test_epochs_of_several_sizes_are_asked_at_once():
  epochs = Epochs(((3, 9, 4), (7, 7, 1, 12), (2,)))
  order = unequal(epochs)
  epoch = np.repeat(np.arange(3), 50)
  size = np.asarray([epochs.size(e) for e in epoch])
  index = np.random.default_rng(0).integers(0, size)
  expected = [
    int(order.permute(np.asarray([i]), e, s)[0])
    for i, e, s in zip(index, epoch.tolist(), size.tolist(), strict=True)
  ]
  assert order.permute(index, epoch, size).tolist() == expected
  again = pickle.loads(pickle.dumps(order))
  assert again.permute(index, epoch, size).tolist() == expected


def test_one_lane_in_each_turn_is_a_block_shuffle_of_its_blocks():
  order = equal(block=8, window=2, count=2, rows=4)
  rows = order.permute(np.arange(320), 0, 320)
  own = rows.reshape(-1, 2, 4)[:, 0].reshape(-1)
  for low in range(0, len(own), 16):
    window = own[low : low + 16]
    assert len(set((window // 8).tolist())) == 2
    assert len(set(window.tolist())) == 16
  assert own[:16].tolist() != sorted(own[:16].tolist())


def test_neighbouring_lanes_meet_where_they_end():
  order = equal(block=10, window=1, count=4, rows=5)
  rows = order.permute(np.arange(1_000), 0, 1_000).reshape(-1, 4, 5)
  block = order.blocks.places(rows.reshape(-1), 0, 1_000) // 10
  block = block.reshape(-1, 4, 5)
  assert block[0, 1].max() + 1 == block[0, 2].min()
  assert block[-1, 0].max() + 1 == block[-1, 1].min()


def test_epochs_and_keys_differ():
  order = equal()
  one, two = (order.permute(np.arange(500), e, 500) for e in (0, 1))
  assert (one == two).mean() < 0.1
  other = lanes.LaneOrder(orders.BlockOrder(4, 3, KEY + 1), 3, 2, 8)
  assert (one == other.permute(np.arange(500), 0, 500)).mean() < 0.1


@pytest.mark.parametrize("name", GOLDEN)
def test_the_order_of_today_stays(name):
  order = {
    "equal": equal(block=3, window=2, count=2, rows=2),
    "unequal": unequal(Epochs(((5, 9, 0, 8),)), count=2),
  }[name]
  assert order.permute(np.arange(22), 1, 22).tolist() == GOLDEN[name]
