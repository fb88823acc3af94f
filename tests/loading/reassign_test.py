# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Parts of a mesh die and come back: the others read the same batches."""

import hashlib
import itertools
import json

import grain
import jax
import numpy as np
import pytest

import chomp_data
from chomp_data import pipeline
from chomp_data import process_input
from chomp_data import schema
from tests.loading import processes


def padded(pipe, filler, step, num_rows):
  """A step's batch with rows of filler at its end, as on devices."""
  own = filler[pipe.bucket_of(step)[1]]
  out = {}
  for name, value in pipe.batch(step).items():
    more = np.repeat(own[name], num_rows - len(value), axis=0)
    out[name] = np.concatenate([value, more])
    if value.dtype == np.int64:
      out[name] = out[name].astype(np.int32)
  return out


def survive(data, turns, num_processes, num_devices):
  found = processes.call(
    "tests.loading.distributed_worker:survive",
    [{"data": data, "layout": "contiguous", "turns": turns}] * num_processes,
    num_devices=num_devices,
    timeout_s=500,
  )
  return list(zip(*found, strict=True))


def check_turn(pipe, filler, alive, own, first, count):
  """Each row of each step is on one device, and nothing but filler besides."""
  assert all(one["kept"] for one in own)
  for step in range(first, first + count):
    pieces = [p for one in own for p in one["steps"].get(str(step), ())]
    size = len(next(iter(pipe.batch(step).values())))
    num_rows = max(bounds[0][1] for _, bounds, _ in pieces)
    assert num_rows % len(alive) == 0
    assert size <= num_rows
    batch = padded(pipe, filler, step, num_rows)
    held = {name: np.zeros(num_rows, int) for name in batch}
    for name, bounds, digest in pieces:
      (low, high), *_ = bounds
      value = np.ascontiguousarray(batch[name][low:high])
      assert hashlib.sha256(value.tobytes()).hexdigest() == digest, (step, name)
      held[name][low:high] += 1
    for name, times in held.items():
      assert (times == 1).all(), (step, name)


def check(data, turns, num_processes, num_devices):
  pipe, first = pipeline.build(data), 0
  filler = process_input.padding_rows(pipe, ())
  found = survive(data, turns, num_processes, num_devices)
  for (alive, count, *at), own in zip(turns, found, strict=True):
    first = at[0] if at else first
    check_turn(pipe, filler, alive, own, first, count)
    first += count
  return found


SUBSETS = [
  list(own)
  for count in range(1, 9)
  for own in itertools.combinations(range(8), count)
]


def endless(data, **fields):
  return {**data, "epochs": None, **fields}


@pytest.mark.parametrize(
  "count", [12, pytest.param(255, marks=pytest.mark.slow)]
)
def test_any_of_eight_slices_die_and_come_back(data, count):
  assert len(SUBSETS) == 255
  order = np.random.default_rng(0).permutation(255)[:count]
  turns = [(SUBSETS[i], 1 + int(i) % 2) for i in order]
  check(endless(data, batch_format="chomp"), turns, 1, 8)


@pytest.mark.slow
def test_survivors_read_their_rows_alone_whoever_dies(data):
  """Eight slices of four processes."""
  order = np.random.default_rng(1).permutation(255)
  turns = [(SUBSETS[i], 1 + int(i) % 2) for i in order]
  found = check(endless(data), turns, 4, 2)
  for (alive, _), own in zip(turns, found, strict=True):
    share = -(-8 // len(alive))
    for process, one in enumerate(own):
      devices = [p for p in (2 * process, 2 * process + 1) if p in alive]
      rows = sum(
        len(range(8)[i * share : (i + 1) * share])
        for i, part in enumerate(alive)
        if part in devices
      )
      assert (sum(one["rows"].values()) if one["rows"] else 0) == rows


TURNS = [([0, 1, 2, 3], 3), ([1, 2, 3], 3), ([3], 2), ([0, 1, 2, 3], 3)]


@pytest.mark.parametrize(
  "worker_count", [0, pytest.param(1, marks=pytest.mark.slow)]
)
def test_processes_that_live_read_on(data, worker_count):
  data = endless(data, worker_count=worker_count)
  found, first = check(data, TURNS, 2, 2), 0
  # Of each turn the parts of those that live make a certificate of all rows.
  for (_, count), own in zip(TURNS, found, strict=True):
    parts = [
      segment
      for one in own
      for segment in one.get("certificate", ())
      if (segment["first"], segment["last"]) == (first, first + count)
    ]
    assert sum(segment["rows"] for segment in parts) == count * 8
    first += count


def test_buckets_go_on_over_parts_that_do_not_divide_them(store_path):
  data = {
    "seed": 3,
    "epochs": None,
    "remainder": "pad",
    "document_id": True,
    "buckets": {
      "kind": "length",
      "lengths": (16, 32, 64),
      "tokens_per_batch": 512,
    },
    "sources": {"text": {"store": store_path}},
  }
  turns = [(list(range(8)), 4), ([0, 2, 3], 8), ([1], 3), ([1, 3, 4, 6, 7], 8)]
  check(data, turns, 1, 8)


def test_sizes_that_change_go_on_and_come_again_after_a_seek(data):
  data = endless(data, global_batch_size=None, device_fields="always")
  data["batch_size_schedule"] = ((0, 16), (3, 24), (5, 8))
  turns = [([0, 1, 2, 3], 2), ([0, 1, 3], 3), ([1, 2, 3, 6, 7], 2)]
  check(data, [*turns, ([0, 2], 6, 1)], 1, 8)


def test_a_state_of_another_size_fits_the_parts_that_there_are(data):
  larger = endless(data, global_batch_size=16)
  with chomp_data.make_iterator(larger) as iterator:
    for _ in range(3):
      next(iterator)
    state = iterator.get_state()
    fingerprint = iterator.pipeline.fingerprint
  smaller = endless(data, global_batch_size=8)
  alive = [0, 1, 3]
  (own,) = processes.call(
    "tests.loading.distributed_worker:resized_survivors",
    [
      {
        "data": smaller,
        "layout": "contiguous",
        "alive": alive,
        "state": state.decode(),
        "count": 3,
      }
    ],
    num_devices=8,
  )
  pipe = pipeline.continued(pipeline.build(smaller), fingerprint, 3, True)
  check_turn(pipe, process_input.padding_rows(pipe, ()), alive, [own], 3, 3)


@pytest.mark.slow
def test_a_process_may_have_no_row_of_batches_of_several_sizes(data):
  data = endless(data, global_batch_size=None)
  data["batch_size_schedule"] = ((0, 8), (3, 16))
  check(data, [([0, 1, 2, 3, 4, 5, 7], 6)], 4, 2)


def test_balance_goes_on_with_the_shards_that_there_are(data):
  # Rows stand elsewhere, or as planned: each is there once.
  data = endless(data, balance="attention")
  turns = [([0, 1, 2, 3], 2), ([0, 3], 2), ([0, 1, 3], 2)]
  pipe = pipeline.build({**data, "balance": None})
  found = survive(data, turns, 1, 8)
  check_turn(
    pipe, process_input.padding_rows(pipe, ()), turns[2][0], found[2], 4, 2
  )


def test_who_is_not_there_is_refused_and_nothing_changes(data):
  with chomp_data.make_iterator(data) as iterator:
    first = jax.device_get(next(iterator))
    for wrong in ([], [1], [0]):
      with pytest.raises(
        schema.ConfigError, match="`alive` must be a sharding"
      ):
        iterator.reassign(wrong)
    device = jax.local_devices()[0]
    mesh = jax.sharding.Mesh([device], ("data",))
    spec = jax.sharding.PartitionSpec("data")
    iterator.reassign(jax.sharding.NamedSharding(mesh, spec))
    assert iterator.step == 1
    next(iterator)
  sharding = jax.sharding.NamedSharding(mesh, spec)
  with chomp_data.make_iterator(data, sharding) as iterator:
    with pytest.raises(schema.ConfigError, match=r"`alive` must .*got \[-1\]"):
      iterator.reassign([-1])
    for wrong in ([], [1], [0, 1]):
      with pytest.raises(
        schema.ConfigError, match=r"some of 0 \.\. 0, .*'data'"
      ):
        iterator.reassign(wrong)
    np.testing.assert_array_equal(next(iterator)["tokens"], first["tokens"])


class FailsOnce(grain.transforms.Map):
  """Fails at a batch of these tokens, once."""

  def __init__(self, tokens):
    self.tokens = tokens

  def __repr__(self):
    return "FailsOnce()"

  def map(self, element):
    if np.array_equal(element["tokens"], self.tokens):
      self.tokens = None
      raise ValueError("a broken batch")
    return element


def test_a_failed_iterator_goes_on_and_a_state_fits_any_parts(data):
  device = jax.local_devices()[0]
  mesh = jax.sharding.Mesh([device], ("data",))
  spec = jax.sharding.PartitionSpec("data")
  sharding = jax.sharding.NamedSharding(mesh, spec)
  with chomp_data.make_iterator(data, sharding) as iterator:
    expected = [
      jax.device_get(batch) for batch in itertools.islice(iterator, 6)
    ]
  fails = FailsOnce(expected[1]["tokens"])
  with chomp_data.make_iterator(data, sharding, operations=[fails]) as iterator:
    next(iterator)
    with pytest.raises(ValueError, match="a broken batch"):
      next(iterator)
    with pytest.raises(chomp_data.InputError):
      next(iterator)
    iterator.reassign([0])
    for batch in expected[1:3]:
      np.testing.assert_array_equal(next(iterator)["tokens"], batch["tokens"])
    state = iterator.get_state()
    (segment,) = json.loads(state)["certificate"]
    assert (segment["first"], segment["last"], segment["rows"]) == (0, 3, 24)
    assert sum(own.logical_reads for own in iterator.reads.values()) >= 24
    next(iterator)
    iterator.set_state(state)
    np.testing.assert_array_equal(
      next(iterator)["tokens"], expected[3]["tokens"]
    )
