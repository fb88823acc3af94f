# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Orders: bijections of every epoch, with the structure that each promises."""

import dataclasses
import itertools
import pickle

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data.index import hashing
from chomp_data.index import permutation
from chomp_data.order import orders
from chomp_data.order import unequal_blocks

KEY = orders.order_key(0, "text")

# Epoch 1 of 22 rows.
GOLDEN = {
    "FullOrder": [
        7, 18, 0, 9, 10, 11, 1, 4, 17, 5, 19, 13,
        12, 8, 20, 21, 14, 3, 6, 15, 16, 2,
    ],
    "EraOrder": [
        0, 3, 2, 4, 1, 5, 9, 6, 8, 7, 13, 11,
        10, 14, 12, 19, 15, 16, 18, 17, 20, 21,
    ],
    "BlockOrder": [
        16, 6, 18, 17, 8, 19, 7, 5, 15, 9, 13, 1,
        2, 3, 11, 4, 0, 10, 12, 14, 20, 21,
    ],
    "UnequalBlockOrder": [
        10, 15, 20, 6, 7, 17, 9, 16, 4, 18, 21, 19,
        8, 14, 5, 0, 3, 12, 2, 11, 13, 1,
    ],
}  # fmt: skip


class Boundaries:
  """Boundaries that may differ by epoch, and can be pickled."""

  def __init__(self, *epochs):
    self.epochs = [np.concatenate([[0], np.cumsum(own)]) for own in epochs]

  def __call__(self, epoch):
    return self.epochs[epoch % len(self.epochs)]


def epoch_of(order, size, epoch=0):
  return order.permute(np.arange(size), epoch, size)


def unequal(*epochs, window_blocks=2, **kwargs):
  return unequal_blocks.UnequalBlockOrder(
    Boundaries(*epochs), window_blocks, KEY, **kwargs
  )


def every_kind(perm_type="feistel"):
  return [
    orders.NoneOrder(),
    orders.FullOrder(KEY, perm_type),
    orders.EraOrder(7, KEY, perm_type),
    orders.BlockOrder(3, 4, KEY, perm_type),
    orders.BlockOrder(1, 1, KEY, perm_type),
    orders.BlockOrder(128, 8, KEY, perm_type),
  ]


@pytest.mark.parametrize("perm_type", orders.PERM_TYPES)
def test_every_epoch_of_every_small_size_is_a_bijection(perm_type):
  for size in (*range(1, 40), 97, 1000, 1025):
    for order in every_kind(perm_type):
      for epoch in (0, 1, 2**40):
        assert sorted(epoch_of(order, size, epoch)) == list(range(size)), order


@pytest.mark.parametrize("perm_type", orders.PERM_TYPES)
@pytest.mark.parametrize("window_blocks", [1, 3])
def test_blocks_windows_and_tail_are_where_they_should_be(
  window_blocks, perm_type
):
  for size, block in itertools.product(range(1, 60), (1, 2, 3, 5, 8)):
    order = orders.BlockOrder(block, window_blocks, KEY, perm_type)
    rows = epoch_of(order, size, 3)
    full = size // block
    # The tail is last, and whole.
    assert sorted(rows[full * block :]) == list(range(full * block, size))
    seen = []
    for first in range(0, full, window_blocks):
      last = min(first + window_blocks, full)
      numbers, counts = np.unique(
        rows[first * block : last * block] // block, return_counts=True
      )
      # A window holds whole blocks, and as many as it should.
      assert len(numbers) == last - first
      assert (counts == block).all()
      seen += numbers.tolist()
    assert sorted(seen) == list(range(full))


@hypothesis.given(
  epochs=st.lists(
    st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(any),
    min_size=1,
    max_size=3,
  ),
  window_blocks=st.integers(1, 5),
  perm_type=st.sampled_from(orders.PERM_TYPES),
)
def test_unequal_blocks_are_bijections_of_whole_blocks(
  epochs, window_blocks, perm_type
):
  order = unequal(*epochs, window_blocks=window_blocks, perm_type=perm_type)
  sizes = np.asarray([sum(epochs[e % len(epochs)]) for e in range(4)])
  epoch = np.repeat(np.arange(4), sizes)
  index = np.concatenate([np.arange(size) for size in sizes])
  together = order.permute(index, epoch, sizes[epoch])
  for number, size in enumerate(sizes):
    rows = together[epoch == number]
    assert sorted(rows) == list(range(size))
    assert rows.tolist() == epoch_of(order, size, number).tolist()
    bounds = order.boundaries(number)
    block = np.searchsorted(bounds, rows, side="right") - 1
    lengths = np.diff(bounds)
    low, high = order.window_bounds(np.arange(size), number, size)
    for begin, end in set(zip(low.tolist(), high.tolist(), strict=True)):
      inside = (np.arange(size) >= begin) & (np.arange(size) < end)
      assert ((low == begin) == inside).all()
      numbers, counts = np.unique(block[begin:end], return_counts=True)
      assert (counts == lengths[numbers]).all()
      assert len(numbers) <= window_blocks


@pytest.mark.parametrize("size", [8, 72, 1000])
def test_unequal_blocks_of_equal_size_are_the_block_order(size):
  perm_type = "feistel"
  block = 8
  order = unequal(
    [block] * (size // block), window_blocks=3, perm_type=perm_type
  )
  same = orders.BlockOrder(block, 3, KEY, perm_type)
  for epoch in range(3):
    assert (epoch_of(order, size, epoch) == epoch_of(same, size, epoch)).all()
    for mine, theirs in zip(
      order.window_bounds(np.arange(size), epoch, size),
      same.window_bounds(np.arange(size), epoch, size),
      strict=True,
    ):
      assert mine.tolist() == theirs.tolist()


def test_a_last_block_that_is_no_tail_moves_like_any_other():
  order = unequal([4, 4, 4, 4, 2], window_blocks=1)
  places = {
    int(np.flatnonzero(epoch_of(order, 18, epoch) == 16)[0]) // 4
    for epoch in range(60)
  }
  assert places == {0, 1, 2, 3, 4}


@hypothesis.given(data=st.data(), perm_type=st.sampled_from(orders.PERM_TYPES))
def test_any_positions_in_any_order_equal_the_whole_epochs(data, perm_type):
  order = data.draw(
    st.sampled_from(
      [
        *every_kind(perm_type),
        orders.EraOrder(300, KEY, perm_type),
        orders.BlockOrder(16, 8, KEY, perm_type),
        unequal([90] * 11 + [10], perm_type=perm_type),
      ]
    )
  )
  size = 1000
  whole = np.stack([epoch_of(order, size, epoch) for epoch in range(3)])
  order = pickle.loads(pickle.dumps(order))
  # Calls after each other: what one computes must not matter to the next.
  for _ in range(data.draw(st.integers(1, 4))):
    places = data.draw(
      st.lists(st.integers(0, 3 * size - 1), min_size=1, max_size=12)
      | st.builds(
        lambda low, count: list(range(low, min(low + count, 3 * size))),
        st.integers(0, 3 * size - 1),
        st.integers(1, 700),
      )
    )
    epoch, index = np.divmod(np.asarray(places), size)
    expected = whole[epoch, index].tolist()
    sizes = np.full(len(index), size)
    assert order.permute(index, epoch, size).tolist() == expected
    assert order.permute(index, epoch, sizes).tolist() == expected


@pytest.mark.parametrize("order", every_kind()[1:], ids=repr)
def test_epochs_and_keys_give_other_orders(order):
  size = 2_048
  found = [
    epoch_of(order, size, 0),
    epoch_of(order, size, 1),
    epoch_of(dataclasses.replace(order, key=KEY + 1), size, 0),
    epoch_of(dataclasses.replace(order, perm_type="linear"), size, 0),
  ]
  for one, other in itertools.combinations(found, 2):
    assert (one != other).any()


def test_windows_eras_and_tails_do_not_share_an_order():
  order = orders.BlockOrder(1, 50, KEY)
  eras = orders.EraOrder(50, KEY)
  local = [
    tuple(np.argsort(epoch_of(own, 200)[low : low + 50]))
    for own in (order, eras)
    for low in range(0, 200, 50)
  ]
  assert len(set(local)) == 8
  # The tail moves too, anew in every epoch.
  tails = {
    tuple(epoch_of(orders.BlockOrder(50, 2, KEY), 120, epoch)[100:])
    for epoch in range(10)
  }
  assert len(tails) == 10


def test_blocks_are_mixed_in_batches_as_chance_has_it():
  keys = [orders.order_key(seed) for seed in range(8)]
  rows = [epoch_of(orders.BlockOrder(128, 8, key), 8_192) for key in keys]
  block = np.stack(rows) // 128
  same = (block[:, 1:] == block[:, :-1]).mean()
  # A standard error of 0.001; affine permutations give 0.31.
  assert abs(same - 127 / 1_023) < 0.006
  batches = block.reshape(-1, 128)
  counts = (batches[:, :, None] == np.arange(64)).sum(axis=1)
  variance = (counts**2).sum(axis=1).mean() / 8 - 16**2
  # Of draws without replacement: 12.2, a standard error of 0.3; affine: 0.
  assert abs(variance - 128 * 7 / 64 * 896 / 1_023) < 1.5


@pytest.mark.parametrize("size", [2, 5])
def test_every_order_of_a_few_blocks_comes_up_equally_often(size):
  epochs = 6_000
  order = orders.BlockOrder(1, 1, KEY)
  index = np.tile(np.arange(size), epochs)
  rows = order.permute(index, np.repeat(np.arange(epochs), size), size)
  found = rows.reshape(epochs, size) @ size ** np.arange(size)
  _, counts = np.unique(found, return_counts=True)
  expected = epochs / len(list(itertools.permutations(range(size))))
  assert counts.sum() == epochs
  chi_square = ((counts - expected) ** 2 / expected).sum()
  degrees = epochs / expected - 1
  assert len(counts) == degrees + 1
  assert chi_square < degrees + 5 * np.sqrt(2 * degrees)


@hypothesis.given(
  size=st.integers(0, 47).flatmap(lambda bits: st.integers(1, 2**bits)),
  key=st.integers(0, 2**64 - 1),
  data=st.data(),
)
def test_linear_is_an_exact_affine_map_with_its_inverse(size, key, data):
  index = np.asarray(
    [
      0,
      min(1, size - 1),
      *data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=5)),
    ]
  )
  image = permutation.linear(index, size, key)
  shift = int(image[0])
  factor = (int(image[1]) - shift) % size
  expected = [(factor * int(i) + shift) % size for i in index]
  assert image.tolist() == expected
  assert permutation.linear_inverse(image, size, key).tolist() == index.tolist()


def test_linear_refuses_sizes_whose_products_overflow():
  with pytest.raises(ValueError, match=r"`size` must be at most 2\*\*47"):
    permutation.linear(np.arange(3), 2**47 + 1, 0)


def test_tiny_and_large_domains_mix_in_one_call():
  rng = np.random.default_rng(0)
  sizes = rng.choice([1, 2, 5, 31, 32, 33, 64, 1000, 2**40], 500)
  index = rng.integers(0, sizes)
  keys = hashing.fold(3, rng.integers(0, 4, 500))
  image = permutation.permute(index, sizes, keys)
  for i in range(0, 500, 7):
    alone = permutation.permute(index[i : i + 1], int(sizes[i]), keys[i])
    assert image[i] == alone[0]
  assert (permutation.inverse(image, sizes, keys) == index).all()


@pytest.mark.parametrize(
  ("order", "index", "bounds"),
  [
    (orders.NoneOrder(), [0, 5], [(0, 1), (5, 6)]),
    (orders.FullOrder(KEY), [0, 99], [(0, 100), (0, 100)]),
    (orders.EraOrder(30, KEY), [29, 30, 99], [(0, 30), (30, 60), (90, 100)]),
    (
      orders.BlockOrder(10, 4, KEY),
      [0, 39, 79, 80, 99],
      [(0, 40), (0, 40), (40, 80), (80, 100), (80, 100)],
    ),
    (
      orders.BlockOrder(9, 4, KEY),
      [71, 72, 98, 99],
      [(36, 72), (72, 99), (72, 99), (99, 100)],
    ),
    (orders.BlockOrder(101, 4, KEY), [0, 99], [(0, 100), (0, 100)]),
  ],
  ids=repr,
)
def test_window_bounds_are_those_of_the_shuffle(order, index, bounds):
  first, last = order.window_bounds(np.asarray(index), 2, 100)
  assert list(zip(first.tolist(), last.tolist(), strict=True)) == bounds


def test_orders_are_fixed_for_ever():
  # A change of these numbers would change every user's order of data.
  assert {
    type(order).__name__: epoch_of(order, 22, 1).tolist()
    for order in (
      orders.FullOrder(KEY),
      orders.EraOrder(5, KEY),
      orders.BlockOrder(5, 2, KEY),
      unequal([4, 7, 3, 8]),
    )
  } == GOLDEN


def test_a_pickled_order_is_equal_and_as_short_as_before():
  # Of 4,000 blocks an epoch's order takes 130,000 bytes.
  order = unequal([4, 7, 3, 8] * 1_000)
  small = len(pickle.dumps(order))
  epoch_of(order, 22_000)
  assert len(pickle.dumps(order)) < small + 100
  for used in (order, orders.BlockOrder(64, 128, KEY)):
    copy = pickle.loads(pickle.dumps(used))
    assert repr(copy) == repr(used)
  order = orders.BlockOrder(64, 128, KEY)
  copy = pickle.loads(pickle.dumps(order))
  assert copy == order
  assert hash(copy) == hash(order)


def test_windows_wider_than_any_source_do_not_overflow():
  order = orders.BlockOrder(2**40, 2**40, KEY)
  assert sorted(epoch_of(order, 50)) == list(range(50))
  wide = orders.BlockOrder(5, 2**62, KEY)
  assert sorted(epoch_of(wide, 53)) == list(range(53))
  first, last = wide.window_bounds(np.asarray([0, 52]), 0, 53)
  assert (first.tolist(), last.tolist()) == ([0, 50], [50, 53])


def test_rows_above_int32_are_permuted():
  era = 2**33
  order = orders.EraOrder(1_000, KEY)
  index = era // 1_000 * 1_000 + np.arange(1_000)
  rows = order.permute(index, 0, 2**34)
  assert rows.dtype == np.int64
  assert sorted(rows) == index.tolist()


def test_keys_of_sources_differ_and_an_own_seed_replaces_the_runs():
  keys = {
    orders.order_key(0),
    orders.order_key(0, "a"),
    orders.order_key(1, "a"),
    orders.order_key(0, "a", 0),
    orders.order_key(0, "a", 1),
  }
  assert len(keys) == 5
  assert orders.order_key(5, "a", 1) == orders.order_key(6, "a", 1)
  assert orders.order_key(7, "wiki") == hashing.fold_key(7, "wiki", "shuffle")
