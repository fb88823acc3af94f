# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows dealt to shards by cost."""

import itertools

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data.plans import dealing
from tests import laws


def slowest(costs, shards):
  """Slowest shard over the mean, of each batch."""
  sums = costs.reshape(len(costs), shards, -1).sum(axis=2)
  return sums.max(axis=1) / np.maximum(sums.mean(axis=1), 1)


@st.composite
def batches(draw):
  shards, rows = draw(st.integers(1, 6)), draw(st.integers(1, 5))
  shape = draw(st.integers(1, 4)), shards * rows
  most = draw(st.sampled_from([1, 5, 2**40]))
  size = shape[0] * shape[1]
  costs = draw(st.lists(st.integers(0, most), min_size=size, max_size=size))
  return np.asarray(costs, np.int64).reshape(shape), shards


def test_the_example_of_the_module():
  assert dealing.deal(np.asarray([[9, 8, 4, 1]]), 2).tolist() == [[0, 3, 1, 2]]


@laws.examples(100)
@hypothesis.given(case=batches())
def test_every_row_of_a_batch_has_one_place(case):
  costs, shards = case
  found = dealing.deal(costs, shards)
  every = np.broadcast_to(np.arange(costs.shape[1]), costs.shape)
  np.testing.assert_array_equal(np.sort(found, axis=1), every)
  # Within a shard rows stand as they are planned.
  by_shard = found.reshape(len(costs), shards, -1)
  np.testing.assert_array_equal(by_shard, np.sort(by_shard, axis=2))


@laws.examples(50)
@hypothesis.given(case=batches())
def test_a_batch_is_dealt_alike_whatever_is_dealt_beside_it(case):
  costs, shards = case
  whole = dealing.deal(costs, shards)
  for own, one in zip(costs, whole, strict=True):
    np.testing.assert_array_equal(dealing.deal(own[None], shards)[0], one)


@laws.examples(50)
@hypothesis.given(case=batches())
def test_no_shard_is_slower_than_after_rounds_of_one_row(case):
  costs, shards = case
  found = np.take_along_axis(costs, dealing.deal(costs, shards), 1)
  for own, dealt in zip(costs, found, strict=True):
    sums = np.zeros(shards, np.int64)
    rows = sorted(own.tolist(), reverse=True)
    for first in range(0, len(rows), shards):
      order = np.argsort(sums, kind="stable")
      sums[order] += rows[first : first + shards]
    # Sums of one row a shard are what they are.
    assert dealt.reshape(shards, -1).sum(axis=1).max() <= sums.max()


def slowest_of_every_deal(costs, shards):
  """The slowest shard of each way to deal the rows of a batch, sorted."""
  if shards == 1:
    return [sum(costs)]
  found = []
  for own in itertools.combinations(
    range(1, len(costs)), len(costs) // shards - 1
  ):
    own = (0, *own)
    rest = [costs[i] for i in range(len(costs)) if i not in own]
    first = sum(costs[i] for i in own)
    found += [max(first, x) for x in slowest_of_every_deal(rest, shards - 1)]
  return sorted(found)


@laws.examples(50)
@hypothesis.given(
  spread=st.floats(0, 5),
  shape=st.sampled_from([(2, 1), (2, 2), (3, 2), (2, 3), (3, 3), (2, 4)]),
  seed=st.integers(0, 99),
)
def test_no_deal_of_all_is_below_the_bound(spread, shape, seed):
  shards, rows = shape
  costs = np.random.default_rng(seed).normal(0, spread, (1, shards * rows))
  costs = np.exp(costs + 5).astype(np.int64)
  best = slowest_of_every_deal(costs[0].tolist(), shards)[0]
  assert dealing.bound(costs, shards)[0] <= best * (1 + 1e-12)


def test_the_bound_knows_that_costly_rows_have_the_cheapest_beside_them():
  # Shards of the three that cost 9 have six others, at best those below 4.
  costs = np.asarray([[9, 9, 9, 1, 1, 2, 2, 3, 3, 4, 4, 4]])
  np.testing.assert_allclose(dealing.bound(costs, 4), [13])
  assert slowest_of_every_deal(costs[0].tolist(), 4)[0] == 13
  assert slowest(costs[:, dealing.deal(costs, 4)[0]], 4) == 13 / 12.75


def test_the_rows_of_two_shards_are_dealt_in_the_best_of_all_ways():
  rng = np.random.default_rng(0)
  costs = np.exp(rng.normal(9, 1, (40, 8))).astype(np.int64)
  found = np.take_along_axis(costs, dealing.deal(costs, 2), 1)
  least = dealing.bound(costs, 2)
  for own, dealt, bound in zip(costs, found, least, strict=True):
    best = slowest_of_every_deal(own.tolist(), 2)[0]
    found_best = dealt.reshape(2, 4).sum(axis=1).max()
    assert found_best == best or found_best <= 1.02 * bound


@pytest.mark.parametrize("shards", [1, 12])
def test_rows_stay_where_nothing_can_be_gained(shards):
  costs = np.random.default_rng(0).integers(0, 100, (3, 12))
  found = dealing.deal(costs, shards)
  np.testing.assert_array_equal(found, np.broadcast_to(np.arange(12), (3, 12)))


@pytest.mark.parametrize(("shards", "seq_len"), [(8, 2_048), (64, 8_192)])
def test_shards_of_four_lognormal_packed_rows_are_within_five_percent(
  shards, seq_len
):
  rng = np.random.default_rng(0)
  # As web text: pieces of documents fill rows, first fit; then shuffled.
  lengths = np.exp(rng.normal(np.log(500), 1.2, 20_000)).astype(np.int64)
  lengths = np.clip(lengths, 16, 65_536)
  whole = int((lengths // seq_len).sum())
  rest = np.sort(lengths % seq_len)[::-1]
  room, costs = np.full(len(rest), seq_len), np.zeros(len(rest), np.int64)
  for length in rest.tolist():
    row = int(np.argmax(room >= length))
    room[row] -= length
    costs[row] += length**2
  costs = np.append(costs[costs > 0], np.full(whole, seq_len**2))
  rng.shuffle(costs)
  size = 4 * shards
  costs = costs[: len(costs) // size * size].reshape(-1, size)
  dealt = np.take_along_axis(costs, dealing.deal(costs, shards), 1)
  assert slowest(costs, shards).mean() > 1.25
  assert slowest(dealt, shards).mean() <= 1.05


@pytest.mark.parametrize("shards", [8, 64])
def test_long_documents_have_the_short_ones_of_a_batch_beside_them(shards):
  # Of sequential rows at S = 8,192 one in twelve is of one document.
  rng = np.random.default_rng(0)
  costs = np.minimum(np.exp(rng.normal(0, 0.6, (32, 4 * shards))), 5.2)
  costs[rng.random(costs.shape) < 0.08] = 5.2
  costs = (costs * 1e6).astype(np.int64)
  dealt = np.take_along_axis(costs, dealing.deal(costs, shards), 1)
  least = dealing.bound(costs, shards) / costs.sum(axis=1) * shards
  assert least.mean() > 1.05
  assert slowest(dealt, shards).mean() <= 1.03 * least.mean()
