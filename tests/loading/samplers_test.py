# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Samplers: the orders of row sources, in a stock grain.DataLoader."""

import concurrent.futures
import pickle
import sys
import time

from absl import flags
import grain
import numpy as np
import pytest

from chomp_data.loading import samplers
from chomp_data.order import orders

SIZE = 103
KEY = orders.order_key(3, "text")
NAMED = {"seed": 3, "name": "text"}

SAMPLERS = {
  "none": (samplers.NoShuffleSampler, (), {}, orders.NoneOrder()),
  "full": (samplers.FullShuffleSampler, (), NAMED, orders.FullOrder(KEY)),
  "era": (
    samplers.EraShuffleSampler,
    (20,),
    NAMED,
    orders.EraOrder(20, KEY),
  ),
  "block": (
    samplers.BlockShuffleSampler,
    (5, 4),
    NAMED,
    orders.BlockOrder(5, 4, KEY),
  ),
  "linear": (
    samplers.BlockShuffleSampler,
    (5, 4),
    {**NAMED, "perm_type": "linear"},
    orders.BlockOrder(5, 4, KEY, "linear"),
  ),
}
KINDS = pytest.mark.parametrize("kind", SAMPLERS)


def make(kind, num_records=SIZE, **kwargs):
  sampler, arguments, options, _ = SAMPLERS[kind]
  return sampler(num_records, *arguments, **options, **kwargs)


def keys_of(sampler, low=0, high=None):
  count = len(sampler) if high is None else high
  return [sampler[i].record_key for i in range(low, count)]


def expected_keys(kind, epochs):
  order = SAMPLERS[kind][-1]
  return [
    key
    for epoch in range(epochs)
    for key in order.permute(np.arange(SIZE), epoch, SIZE).tolist()
  ]


def loader(sampler, worker_count=0, shard=(0, 1)):
  # Grain reads absl flags in its workers.
  flags.FLAGS.mark_as_parsed()
  return grain.DataLoader(
    data_source=range(SIZE),
    sampler=sampler,
    worker_count=worker_count,
    shard_options=grain.sharding.ShardOptions(*shard),
    read_options=grain.ReadOptions(num_threads=0, prefetch_buffer_size=0),
  )


def remainder_after(batches, state):
  batches.set_state(state)
  return [int(key) for key in batches]


@KINDS
def test_a_sampler_and_an_order_of_a_source_agree(kind):
  sampler = make(kind, num_epochs=3)
  assert len(sampler) == 3 * SIZE
  assert keys_of(sampler) == expected_keys(kind, 3)
  metadata = sampler[SIZE + 4]
  assert metadata.index == SIZE + 4
  assert type(metadata.record_key) is int
  assert metadata.rng is None


@KINDS
def test_runs_of_keys_have_no_seam(kind):
  size = 3_000
  sampler = make(kind, size, num_epochs=5)
  order = SAMPLERS[kind][-1]
  for index in (0, 2_999, 3_000, 4_095, 4_096, 4_097, 8_191, 8_192, 14_999):
    epoch, position = divmod(index, size)
    (row,) = order.permute(np.asarray([position]), epoch, size)
    assert sampler[index].record_key == row


@KINDS
def test_a_state_of_every_step_goes_on_where_it_was(kind):
  batches = iter(loader(make(kind, num_epochs=2), shard=(1, 2)))
  states, keys = [], []
  for key in batches:
    keys.append(int(key))
    states.append(batches.get_state())
  fresh = iter(loader(make(kind, num_epochs=2), shard=(1, 2)))
  for step in (0, 1, SIZE // 2 - 1, SIZE // 2, SIZE - 1):
    assert remainder_after(fresh, states[step]) == keys[step + 1 :]


@pytest.mark.slow
def test_two_workers_hand_out_the_same_order_and_resume_in_it():
  whole = expected_keys("block", 2)
  batches = iter(loader(make("block", num_epochs=2), 2))
  keys, states = [], []
  for key in batches:
    keys.append(int(key))
    states.append(batches.get_state())
  assert keys == whole
  fresh = iter(loader(make("block", num_epochs=2), 2))
  assert remainder_after(fresh, states[5]) == whole[6:]


@pytest.mark.parametrize(
  "changed",
  [
    {"num_records": 104},
    {"io_block_size": 6},
    {"window_blocks": 5},
    {"perm_type": "linear"},
    {"num_epochs": 3},
    {"seed": 4},
    {"name": "other"},
    {"rng_seed": 0},
  ],
  ids=str,
)
def test_grain_refuses_a_state_of_other_options(changed):
  options = {
    "num_records": SIZE,
    "io_block_size": 5,
    "window_blocks": 4,
    "num_epochs": 2,
    **NAMED,
  }
  batches = iter(loader(samplers.BlockShuffleSampler(**options)))
  next(batches)
  state = batches.get_state()
  iter(loader(samplers.BlockShuffleSampler(**options))).set_state(state)
  other = samplers.BlockShuffleSampler(**{**options, **changed})
  with pytest.raises(ValueError, match="Sampler in checkpoint does not match"):
    iter(loader(other)).set_state(state)


def test_repr_is_an_expression_of_the_sampler():
  for kind in SAMPLERS:
    sampler = make(kind, num_epochs=2, rng_seed=1)
    again = eval(repr(sampler), vars(samplers))
    assert repr(again) == repr(sampler)
    assert keys_of(again) == keys_of(sampler)


@KINDS
def test_a_pickled_sampler_keeps_its_order_and_not_its_keys(kind):
  sampler = make(kind)
  small = len(pickle.dumps(sampler))
  keys = keys_of(sampler)
  assert len(pickle.dumps(sampler)) == small
  assert keys_of(pickle.loads(pickle.dumps(sampler))) == keys


def test_generators_are_seeded_by_record_index_on_request():
  sampler = make("block", num_epochs=2, rng_seed=7)
  draws = [sampler[i].rng.integers(2**60) for i in (0, 1, SIZE)]
  again = make("block", num_epochs=2, rng_seed=7)
  other = make("block", num_epochs=2, rng_seed=8)
  assert len(set(draws)) == 3
  assert again[1].rng.integers(2**60) == draws[1]
  assert other[1].rng.integers(2**60) != draws[1]


@pytest.mark.parametrize("kind", ["none", "full", "era"])
def test_an_endless_order_goes_on(kind):
  sampler = make(kind, num_epochs=None)
  assert len(sampler) == sys.maxsize
  assert keys_of(sampler, 0, 2 * SIZE) == expected_keys(kind, 2)
  far = 10**9 * SIZE
  assert sorted(keys_of(sampler, far, far + SIZE)) == list(range(SIZE))
  assert 0 <= sampler[sys.maxsize - 1].record_key < SIZE


def test_two_threads_may_share_a_sampler():
  size = 20_000
  sampler = samplers.BlockShuffleSampler(size, 64)
  keys = keys_of(samplers.BlockShuffleSampler(size, 64))

  def read(seed):
    places = np.random.default_rng(seed).integers(0, size, 300).tolist()
    return all(sampler[i].record_key == keys[i] for i in places)

  with concurrent.futures.ThreadPoolExecutor(2) as pool:
    assert all(pool.map(read, range(2)))


def test_a_key_costs_little():
  sampler = samplers.BlockShuffleSampler(10**7, 128)
  count = 20_000
  costs = []
  for repeat in range(3):
    began = time.process_time()
    for index in range(repeat * count, (repeat + 1) * count):
      sampler[index]
    costs.append((time.process_time() - began) / count)
  # 0.5 us here; a key found by itself costs 200 us.
  assert min(costs) < 5e-6


@pytest.mark.parametrize("index", [-1, SIZE])
def test_an_index_outside_is_an_error(index):
  with pytest.raises(IndexError, match=rf"0 \.\. {SIZE - 1}, got {index}\."):
    make("block")[index]


@pytest.mark.parametrize(
  ("name", "call"),
  [
    ("num_records", lambda: samplers.FullShuffleSampler(0)),
    ("num_epochs", lambda: samplers.FullShuffleSampler(9, num_epochs=0)),
    ("num_epochs", lambda: samplers.BlockShuffleSampler(9, 2, num_epochs=0)),
    ("era_length", lambda: samplers.EraShuffleSampler(9, 0)),
    ("io_block_size", lambda: samplers.BlockShuffleSampler(9, 0)),
    ("window_blocks", lambda: samplers.BlockShuffleSampler(9, 2, 0)),
  ],
)
def test_wrong_arguments_name_field_value_and_fix(name, call):
  message = rf"`{name}` must be a whole number of at least 1.*, got 0\."
  with pytest.raises(ValueError, match=message):
    call()


def test_an_endless_block_shuffle_is_refused_with_its_reason():
  with pytest.raises(ValueError, match=r"got None: .* finite only.* Give the"):
    samplers.BlockShuffleSampler(9, 2, num_epochs=None)
