# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Packing windows: First-Fit-Decreasing and exact rows against slow ones."""

import collections
import itertools

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data.pack import packing


def naive_first_fit(lengths, capacity, max_items=None, max_bins=None):
  """First-Fit-Decreasing as its textbook says it, one item at a time."""
  room, count, bins = [], [], [-1] * len(lengths)
  for item in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
    for bin_, left in enumerate(room):
      if left >= lengths[item] and count[bin_] != max_items:
        break
    else:
      if len(room) == max_bins:
        continue
      bin_ = len(room)
      room.append(capacity)
      count.append(0)
    room[bin_] -= lengths[item]
    count[bin_] += 1
    bins[item] = bin_
  return bins, len(room)


def rows_as_lists(rows):
  """Returns [[(slot, start, length), ...], ...]."""
  pieces = list(
    zip(
      rows.slot.tolist(),
      rows.start.tolist(),
      rows.length.tolist(),
      strict=True,
    )
  )
  return [pieces[a:b] for a, b in itertools.pairwise(rows.first.tolist())]


def tokens_of(pieces):
  return collections.Counter(
    (int(slot), token)
    for slot, start, length in zip(
      pieces.slot, pieces.start, pieces.length, strict=True
    )
    for token in range(start, start + length)
  )


def exact(kept, seq_len):
  pieces = packing.cut_pieces(np.asarray(kept), seq_len)
  bins, num_rows = packing.exact_bins(pieces, seq_len)
  filled = packing.filled(pieces, bins, num_rows, seq_len)
  return pieces, packing.rows_of_bins(*filled, num_rows)


# --- worked examples -------------------------------------------------------


def test_the_worked_example_of_first_fit_decreasing():
  bins, num = packing.first_fit_decreasing(np.asarray([3, 5, 2, 4, 2]), 8)
  assert (bins.tolist(), num) == ([0, 0, 1, 1, 1], 2)


def test_the_worked_example_of_cutting():
  pieces = packing.cut_pieces(np.asarray([3, 0, 9]), 4)
  assert pieces.slot.tolist() == [0, 2, 2, 2]
  assert pieces.start.tolist() == [0, 0, 4, 8]
  assert pieces.length.tolist() == [3, 4, 4, 1]


def test_the_worked_example_of_exact_rows():
  _, rows = exact([3, 3, 3], 5)
  assert rows_as_lists(rows) == [
    [(0, 0, 3), (2, 0, 2)],
    [(1, 0, 3), (2, 2, 1)],
  ]


def test_nothing_packs_into_no_row():
  none = np.empty(0, np.int64)
  bins, num = packing.first_fit_decreasing(none, 8)
  assert (len(bins), num) == (0, 0)
  for kept in (none, np.zeros(3, np.int64)):
    pieces, rows = exact(kept, 8)
    assert len(pieces.slot) == rows.num_rows == 0
    assert packing.rows_of_bins(pieces, bins, 0).num_rows == 0


# --- exhaustive ------------------------------------------------------------


def test_every_small_window_packs_as_the_textbook_says():
  for capacity, count in itertools.product(range(1, 5), range(5)):
    for lengths in itertools.product(range(1, capacity + 1), repeat=count):
      for max_items, max_bins in itertools.product((None, 1, 2), (None, 1, 2)):
        bins, num = packing.first_fit_decreasing(
          np.asarray(lengths, np.int64), capacity, max_items, max_bins
        )
        assert (bins.tolist(), num) == naive_first_fit(
          lengths, capacity, max_items, max_bins
        ), (lengths, capacity, max_items, max_bins)


# --- laws ------------------------------------------------------------------


@st.composite
def windows(draw):
  """Draws (capacity, lengths), often with long runs of equal lengths."""
  capacity = draw(st.integers(1, 40))
  longest = draw(st.sampled_from((1, 2, 3, 5, capacity)))
  lengths = draw(st.lists(st.integers(1, min(longest, capacity)), max_size=60))
  return capacity, np.asarray(lengths, np.int64)


@hypothesis.given(
  window=windows(),
  max_items=st.none() | st.integers(1, 5),
  max_bins=st.none() | st.integers(1, 20),
)
def test_first_fit_decreasing_equals_a_loop_over_items(
  window, max_items, max_bins
):
  capacity, lengths = window
  bins, num = packing.first_fit_decreasing(
    lengths, capacity, max_items, max_bins
  )
  assert (bins.tolist(), num) == naive_first_fit(
    lengths.tolist(), capacity, max_items, max_bins
  )


@pytest.mark.parametrize("max_items", [None, 7])
@pytest.mark.parametrize("count", [2_000, 3_001])
def test_large_windows_pack_as_a_loop_does(count, max_items):
  random = np.random.default_rng(count)
  lengths = np.minimum(1 + random.geometric(0.01, count), 512)
  bins, num = packing.first_fit_decreasing(lengths, 512, max_items)
  assert (bins.tolist(), num) == naive_first_fit(
    lengths.tolist(), 512, max_items
  )


@hypothesis.given(
  kept=st.lists(st.integers(0, 30), max_size=30).filter(any),
  seq_len=st.integers(1, 12),
)
def test_pieces_hold_every_token_once_and_fit_in_a_row(kept, seq_len):
  pieces = packing.cut_pieces(np.asarray(kept), seq_len)
  assert tokens_of(pieces) == {
    (slot, token): 1 for slot, n in enumerate(kept) for token in range(n)
  }
  assert pieces.length.min() >= 1
  assert pieces.length.max() <= seq_len
  # A document has as many pieces as it needs, all but the last of them full.
  full = np.diff(pieces.slot, append=-1) == 0
  assert (pieces.length[full] == seq_len).all()


@hypothesis.given(
  kept=st.lists(st.integers(0, 40), max_size=60).filter(any),
  seq_len=st.integers(1, 20),
)
def test_exact_rows_are_as_few_as_tokens_allow_and_lose_none(kept, seq_len):
  pieces, rows = exact(kept, seq_len)
  assert rows.num_rows == -(-sum(kept) // seq_len)
  assert tokens_of(rows) == tokens_of(pieces)
  for row in rows_as_lists(rows):
    assert row
    assert sum(length for *_, length in row) <= seq_len
    # By document, and none has two parts in one row.
    slots = [slot for slot, *_ in row]
    assert slots == sorted(set(slots))


@hypothesis.given(
  kept=st.lists(st.integers(0, 40), max_size=60).filter(any),
  seq_len=st.integers(1, 20),
)
def test_exact_rows_cut_only_pieces_that_do_not_fit(kept, seq_len):
  pieces, rows = exact(kept, seq_len)
  bins, _ = naive_first_fit(
    pieces.length.tolist(), seq_len, max_bins=rows.num_rows
  )
  placed = {
    (slot, start, length): number
    for number, row in enumerate(rows_as_lists(rows))
    for slot, start, length in row
  }
  for slot, start, length, bin_ in zip(
    pieces.slot, pieces.start, pieces.length, bins, strict=True
  ):
    whole_in = placed.get((slot, start, length))
    assert whole_in == (None if bin_ < 0 else bin_)


@hypothesis.given(window=windows(), max_items=st.none() | st.integers(1, 5))
def test_rows_of_bins_hold_the_pieces_of_their_bins(window, max_items):
  capacity, lengths = window
  pieces = packing.cut_pieces(lengths, capacity)
  bins, num = packing.first_fit_decreasing(pieces.length, capacity, max_items)
  rows = rows_as_lists(packing.rows_of_bins(pieces, bins, num))
  assert len(rows) == num
  for number, row in enumerate(rows):
    assert [slot for slot, *_ in row] == np.flatnonzero(bins == number).tolist()
    for slot, start, length in row:
      assert (start, length) == (0, lengths[slot])
