# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Cutting documents into buckets: what the docstring shows, and laws."""

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data.bucket import pieces

ASSIGNS = ["least_waste", "powers_of_two"]


def cut(length, buckets, assign):
  """Returns (bucket, begin, end) of one document's pieces, by begin."""
  found = pieces.cut(np.asarray([length]), buckets, assign)
  return sorted(
    (begin, min(begin + size, length), size)
    for size, (document, starts) in zip(buckets, found, strict=True)
    for begin in starts.tolist()
    if (document == 0).all()
  )


@pytest.mark.parametrize(
  ("length", "assign", "expected"),
  [
    (13, "least_waste", [(0, 13, 16)]),
    (37, "least_waste", [(0, 16, 16), (16, 32, 16), (32, 37, 8)]),
    (13, "powers_of_two", [(0, 8, 8), (8, 12, 4), (12, 13, 4)]),
    (
      37,
      "powers_of_two",
      [(0, 16, 16), (16, 32, 16), (32, 36, 4), (36, 37, 4)],
    ),
    (32, "least_waste", [(0, 16, 16), (16, 32, 16)]),
    (4, "least_waste", [(0, 4, 4)]),
    (5, "least_waste", [(0, 5, 8)]),
  ],
)
def test_the_documented_examples(length, assign, expected):
  assert cut(length, (4, 8, 16), assign) == expected


@hypothesis.given(
  st.lists(st.integers(0, 300), max_size=20),
  st.lists(st.integers(1, 100), min_size=1, max_size=5, unique=True),
  st.sampled_from(ASSIGNS),
)
def test_pieces_tile_every_document_and_fit_their_buckets(
  lengths, buckets, assign
):
  buckets = sorted(buckets)
  covered = [np.zeros(n, int) for n in lengths]
  found = pieces.cut(np.asarray(lengths, np.int64), buckets, assign)
  assert len(found) == len(buckets)
  for size, (document, begin) in zip(buckets, found, strict=True):
    order = list(zip(document.tolist(), begin.tolist(), strict=True))
    assert order == sorted(order)
    for d, low in order:
      high = min(low + size, lengths[d])
      assert low < high
      covered[d][low:high] += 1
      # Only the last piece of a document may waste.
      assert high - low == size or high == lengths[d]
  assert all((own == 1).all() for own in covered)


@hypothesis.given(
  st.integers(1, 400),
  st.lists(st.integers(1, 100), min_size=1, max_size=5, unique=True),
)
def test_least_waste_pads_as_little_as_any_bucket_would(length, buckets):
  buckets = sorted(buckets)
  found = cut(length, buckets, "least_waste")
  *whole, (begin, end, size) = found
  assert all(own[2] == buckets[-1] for own in whole)
  assert size == min(b for b in buckets if b >= end - begin)


def test_powers_of_two_waste_less_than_the_smallest_bucket():
  for length in range(1, 2000):
    found = cut(length, (16, 32, 64, 128), "powers_of_two")
    assert sum(size - (end - begin) for begin, end, size in found) < 16
