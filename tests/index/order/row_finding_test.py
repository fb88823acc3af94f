"""Finding a row: the inverse of every order with blocks of one size."""

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data.index.order import orders
from chomp_data.index.order import row_finding
from chomp_data.index.order import unequal_blocks

KEY = orders.order_key(5, "wiki")
PERM_TYPES = st.sampled_from(orders.PERM_TYPES)
COUNTS = st.integers(1, 12)


def make_orders():
  return st.one_of(
    st.just(orders.NoneOrder()),
    st.builds(orders.FullOrder, st.just(KEY), PERM_TYPES),
    st.builds(orders.EraOrder, COUNTS, st.just(KEY), PERM_TYPES),
    st.builds(orders.BlockOrder, COUNTS, COUNTS, st.just(KEY), PERM_TYPES),
  )


@hypothesis.given(make_orders(), st.integers(1, 90), st.integers(0, 3))
def test_a_row_is_found_where_the_order_puts_it(order, size, epoch):
  standing = order.permute(np.arange(size), epoch, size)
  found = [
    row_finding.find(order, row, epoch, size) for row in standing.tolist()
  ]
  assert found == list(range(size))


@pytest.mark.parametrize(
  "order",
  [
    orders.FullOrder(KEY),
    orders.EraOrder(1_000, KEY),
    orders.BlockOrder(1_000, 8, KEY),
  ],
)
def test_the_last_row_of_a_long_epoch_is_found_in_its_window(order):
  size = 10**10 + 7
  for row in (0, 12_345_678, size - 1):
    position = row_finding.find(order, row, 2, size)
    assert order.permute(np.asarray([position]), 2, size).tolist() == [row]


def test_blocks_of_unequal_sizes_are_refused():
  order = unequal_blocks.UnequalBlockOrder(
    lambda epoch: np.asarray([0, 2, 5]), 2, KEY
  )
  with pytest.raises(TypeError, match="blocks of one size, got UnequalBlock"):
    row_finding.find(order, 1, 0, 5)
