# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Pairs (t, s): the seed's worked examples, and a slow listing of all."""

import itertools

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data.splice import pair_space
from chomp_data.splice import pairs as pairs_lib


def space(**changes):
  fields = {
    "seq_len": 5,
    "content_length": 3,
    "content_start_mode": "slide_within",
    "content_stride": 1,
    "offset_stride": 1,
    "offset_domain": "tight",
    "min_copy_len": 2,
    "adaptive_k": True,
    "offset_jitter": 0,
  }
  return pair_space.PairSpace(**{**fields, **changes})


def listed(pairs, length):
  count = int(pairs.num_pairs(np.array([length]))[0])
  lengths = np.full(count, length)
  decoded = pairs.decode(lengths, np.arange(count))
  return list(
    zip(*(v.tolist() for v in pairs.place(lengths, *decoded)), strict=True)
  )


def slow_listing(pairs, length):
  """Every pair of the sweep modes by the definitions, t outer, s inner."""
  seq_len, limit = pairs.seq_len, pairs.max_copy_len
  out = []
  last = 1 if pairs.content_start_mode == "anchor_start" else length
  for t in range(0, last, pairs.content_stride):
    cyclic = pairs.content_start_mode == "cyclic_roll"
    available = min(limit, length if cyclic else length - t)
    own = min(limit, length) if pairs.adaptive_k else limit
    last_offset = {
      "tight": seq_len - available,
      "grid": seq_len - own,
      "frame": seq_len - pairs.min_copy_len,
    }[pairs.offset_domain]
    for s in range(0, last_offset + 1, pairs.offset_stride):
      copied = min(available, seq_len - s)
      if copied >= pairs.min_copy_len:
        out.append((t, s, copied))
  return out


def test_seed_000_example_a_has_13_pairs():
  assert [(t, s) for t, s, _ in listed(space(), 5)] == [
      (0, 0), (0, 1), (0, 2),
      (1, 0), (1, 1), (1, 2),
      (2, 0), (2, 1), (2, 2),
      (3, 0), (3, 1), (3, 2), (3, 3),
  ]  # fmt: skip


def test_seed_000_example_a_on_the_grid_has_12_pairs():
  pairs = listed(space(offset_domain="grid"), 5)
  assert [(t, s) for t, s, _ in pairs] == list(
    itertools.product(range(4), range(3))
  )


def test_example_a_in_the_frame_has_16_pairs_as_the_docs_say():
  pairs = listed(space(offset_domain="frame"), 5)
  assert [(t, s) for t, s, _ in pairs] == list(
    itertools.product(range(4), range(4))
  )


def test_seed_000_example_b_k_2_places_1_2_at_four_offsets():
  pairs = listed(space(content_length=2), 5)
  assert [p for p in pairs if p[0] == 1] == [
      (1, 0, 2), (1, 1, 2), (1, 2, 2), (1, 3, 2)
  ]  # fmt: skip


def test_seed_000_whole_document_splice_lets_the_frame_cut():
  pairs = listed(
    space(
      content_length=None,
      content_start_mode="anchor_start",
      offset_domain="frame",
    ),
    5,
  )
  assert pairs == [(0, 0, 5), (0, 1, 4), (0, 2, 3), (0, 3, 2)]


@pytest.mark.parametrize("domain", pair_space.OFFSET_DOMAINS)
def test_seed_000_six_pair_list_is_in_every_domain(domain):
  wanted = {(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0)}
  pairs = {(t, s) for t, s, _ in listed(space(offset_domain=domain), 5)}
  assert wanted <= pairs


def test_seed_000_base_pairs_of_coverage_balanced():
  pairs = space(
    seq_len=8,
    content_length=4,
    content_start_mode="coverage_balanced",
    adaptive_k=False,
  )
  assert listed(pairs, 7) == [(0, 4, 4), (1, 4, 4), (2, 4, 4), (3, 4, 4)]
  assert listed(pairs, 5) == [(0, 4, 4), (1, 4, 4)]
  assert listed(pairs, 3) == []


def test_jitter_cuts_k_first_so_that_every_placement_fits():
  pairs = space(
    seq_len=8,
    content_length=8,
    content_start_mode="coverage_balanced",
    offset_jitter=2,
  )
  one = np.array([20])
  assert [
    tuple(int(v[0]) for v in pairs.place(one, np.array([0]), np.array([j])))
    for j in range(3)
  ] == [(0, 2, 6), (0, 1, 6), (0, 0, 6)]


def test_slide_windows_end_with_one_that_is_right_aligned():
  pairs = space(content_start_mode="slide", content_length=None)
  assert listed(pairs, 7) == [(0, 0, 5), (1, 0, 5), (2, 0, 5)]
  strided = space(
    content_start_mode="slide", content_length=None, content_stride=4
  )
  assert [t for t, _, _ in listed(strided, 12)] == [0, 4, 7]
  assert listed(strided, 3) == [(0, 0, 3)]
  assert listed(strided, 1) == []


SPACES = st.builds(
  space,
  seq_len=st.integers(4, 12),
  content_length=st.none() | st.integers(4, 14),
  content_start_mode=st.sampled_from(
    ["slide_within", "anchor_start", "cyclic_roll"]
  ),
  content_stride=st.integers(1, 4) | st.integers(5, 18),
  offset_stride=st.integers(1, 4),
  offset_domain=st.sampled_from(pair_space.OFFSET_DOMAINS),
  min_copy_len=st.integers(2, 4),
  adaptive_k=st.booleans(),
)


@hypothesis.given(pairs=SPACES, length=st.integers(1, 25))
@hypothesis.example(pairs=space(content_stride=5), length=6)
def test_pairs_by_random_access_equal_the_slow_listing(pairs, length):
  if length < pairs.min_copy_len:
    assert listed(pairs, length) == []
  else:
    assert listed(pairs, length) == slow_listing(pairs, length)


@hypothesis.given(
  pairs=SPACES,
  length=st.integers(1, 25),
  content=st.sampled_from([False, True, 1, 3]),
  offsets=st.sampled_from([False, True, 1, 2]),
  epoch=st.integers(0, 3),
)
def test_shuffled_axes_visit_every_pair_once_an_epoch(
  pairs, length, content, offsets, epoch
):
  order = pairs_lib.PairOrder(pairs, content, offsets, 11, 12)
  count = int(pairs.num_pairs(np.array([length]))[0])
  lengths, same = np.full(count, length), np.zeros(count, np.int64)
  got = order.decode(lengths, np.arange(count), same, same + epoch)
  plain = pairs.decode(lengths, np.arange(count))
  visited = list(zip(*(v.tolist() for v in got), strict=True))
  assert sorted(visited) == list(zip(*(v.tolist() for v in plain), strict=True))
  if not offsets:
    # One start at a time, its offsets ascending.
    changes = sum(a[0] != b[0] for a, b in itertools.pairwise(visited))
    assert changes == max(len({t for t, _ in visited}) - 1, 0)


def test_axes_are_permuted_anew_in_each_epoch_and_document():
  order = pairs_lib.PairOrder(space(seq_len=9), True, False, 1, 2)
  lengths = np.full(40, 20)
  count = np.arange(40)

  def starts(document, epoch):
    return tuple(
      order.decode(lengths, count, lengths * 0 + document, lengths * 0 + epoch)[
        0
      ].tolist()
    )

  assert len({starts(d, e) for d in range(3) for e in range(3)}) == 9
