# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Permutations: bijections for every size and key, and their inverses."""

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data.index import hashing
from chomp_data.index import permutation

GOLDEN_10 = [1, 4, 9, 2, 7, 6, 5, 8, 0, 3]


@pytest.mark.parametrize("size", [*range(1, 70), 255, 256, 257, 1000, 4097])
def test_every_size_is_a_bijection_with_its_inverse(size):
  index = np.arange(size)
  for key in (0, 1, 2**64 - 1):
    image = permutation.permute(index, size, key)
    assert sorted(image.tolist()) == index.tolist()
    back = permutation.inverse(image, size, key)
    assert back.tolist() == index.tolist()


@hypothesis.given(
  size=st.integers(1, 2**45),
  key=st.integers(0, 2**64 - 1),
  data=st.data(),
)
def test_inverse_undoes_permute_in_large_domains(size, key, data):
  index = np.asarray(
    data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=5))
  )
  image = permutation.permute(index, size, key)
  assert ((image >= 0) & (image < size)).all()
  assert permutation.inverse(image, size, key).tolist() == index.tolist()


def test_sizes_and_keys_by_element_equal_one_call_each():
  sizes = np.asarray([5, 1, 17, 4096, 2**40])
  keys = hashing.fold(7, np.arange(5))
  index = sizes // 2
  together = permutation.permute(index, sizes, keys)
  alone = [
    int(permutation.permute(np.asarray([i]), int(s), int(k))[0])
    for i, s, k in zip(index, sizes, keys, strict=True)
  ]
  assert together.tolist() == alone


def test_keys_give_different_orders_that_are_fixed_for_ever():
  orders = {
    tuple(permutation.permute(np.arange(20), 20, key)) for key in range(50)
  }
  assert len(orders) == 50
  # A change of these numbers would change every user's order of data.
  assert permutation.permute(np.arange(10), 10, 1).tolist() == GOLDEN_10
  assert hashing.fold_key("seed", 1) != hashing.fold_key("seed", "1")
  assert int(hashing.fold(1, np.asarray([2]))[0]) != int(
    hashing.fold(2, np.asarray([1]))[0]
  )


def test_a_permutation_mixes_like_a_random_one():
  size = 8192
  index = np.arange(size)
  displacement = [
    np.abs(permutation.permute(index, size, key) - index).mean() / size
    for key in range(8)
  ]
  assert abs(np.mean(displacement) - 1 / 3) < 0.01
