# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Where rows stand: the inverse of every order."""

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data.order import orders
from chomp_data.order import unequal_blocks

KEY = orders.order_key(5, "wiki")
PERM_TYPES = st.sampled_from(orders.PERM_TYPES)
COUNTS = st.integers(1, 12)


@st.composite
def make_orders(draw):
  """Returns an order and the rows of an epoch."""
  size = draw(st.integers(1, 90))
  order = draw(
    st.one_of(
      st.just(orders.NoneOrder()),
      st.builds(orders.FullOrder, st.just(KEY), PERM_TYPES),
      st.builds(orders.EraOrder, COUNTS, st.just(KEY), PERM_TYPES),
      st.builds(orders.BlockOrder, COUNTS, COUNTS, st.just(KEY), PERM_TYPES),
      st.none(),
    )
  )
  if order is None:
    bounds = draw(st.lists(st.integers(0, size), max_size=12))
    bounds = np.asarray([0, *sorted(bounds), size])
    order = unequal_blocks.UnequalBlockOrder(
      lambda epoch: bounds,
      draw(COUNTS),
      KEY,
      draw(PERM_TYPES),
    )
  return order, size


@hypothesis.given(make_orders(), st.integers(0, 3))
def test_rows_stand_where_the_order_puts_them(drawn, epoch):
  order, size = drawn
  standing = order.permute(np.arange(size), epoch, size)
  assert order.positions(standing, epoch, size).tolist() == list(range(size))


@pytest.mark.parametrize(
  "order",
  [
    orders.FullOrder(KEY),
    orders.EraOrder(1_000, KEY),
    orders.BlockOrder(1_000, 8, KEY),
  ],
)
def test_rows_of_a_long_epoch_are_found_at_once(order):
  size = 10**10 + 7
  rows = np.asarray([0, 12_345_678, size - 1])
  positions = order.positions(rows, 2, size)
  assert order.permute(positions, 2, size).tolist() == rows.tolist()
