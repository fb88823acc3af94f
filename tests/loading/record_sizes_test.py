# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How many steps a record holds decides no batch, state, sum or count.

A run of each kind is read with records of one step, which is what stock Grain
reads, and with larger ones: as a whole, and from every step on.
"""

import dataclasses
import itertools
import json

import grain
import jax
import numpy as np
import pytest

from chomp_data import iterators
from chomp_data import pipeline
from chomp_data.loading import batches
from chomp_data.loading import certificate
from chomp_data.loading import step_records
from chomp_data.testing import batch_hashes
from chomp_data.testing import stores as testing_stores

STEPS = 17
SIZES = (2, 8)


class Noise(grain.transforms.RandomMap):
  """Adds a number of the step's generator."""

  def random_map(self, element, rng):
    rows = len(next(iter(element.values())))
    return {**element, "noise": rng.integers(2**31, size=rows, dtype=np.int32)}


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
  """config.data of one run of each kind, by name."""
  root = tmp_path_factory.mktemp("records")
  rng = np.random.default_rng(0)
  for name, compression in (("a", "none"), ("b", "none"), ("zstd", "zstd")):
    documents = [rng.integers(3, 250, n) for n in rng.integers(1, 90, 60)]
    testing_stores.make_store(
      root / name, documents, chunk=64, compression=compression
    )
  gone = root / "gone.jsonl"
  gone.write_text(
    "".join(
      json.dumps({"source": "a", "document": own}) + "\n"
      for own in range(0, 60, 3)
    )
  )

  def source(name, rows="sequential", **shuffle):
    more = {
      "bin": {"packing_buffer_docs": 8},
      "multi_splice": {"num_docs": 5, "content_length": 9},
    }
    rows = {"kind": rows, **more.get(rows, {})}
    return {"store": str(root / name), "rows": rows, "shuffle": shuffle}

  one = {
    "seq_len": 32,
    "global_batch_size": 8,
    "seed": 3,
    "epochs": 3,
    "remainder": "pad",
    "certificate": "tokens",
  }
  window = {"kind": "block", "window_blocks": 2}
  bins = {"a": source("a", "bin", **window)}
  stages = ((0, {"a": 1, "b": 1}), (3, {"a": 1, "b": 3}), (6, {"b": 1}))
  both = {**bins, "b": source("b", kind="full")}
  return {
    "in order": {**one, "sources": {"a": source("a")}},
    "windows": {**one, "sources": {"a": source("a", **window)}},
    "compressed": {**one, "sources": {"a": source("zstd", **window)}},
    "bins": {**one, "sources": bins},
    "endless": {**one, "sources": bins, "epochs": None},
    "splice": {**one, "sources": {"a": source("a", "multi_splice")}},
    "mix": {**one, "sources": both, "epochs": 1},
    "stages": {
      **one,
      "sources": both,
      "epochs": None,
      "mix": {"kind": "token_balanced", "stages": stages},
    },
    "balance": {
      **one, "sources": bins, "balance": "attention", "balance_shards": 4,
    },
    "edits": {
      **one,
      "sources": bins,
      "epochs": None,
      "tombstones": ((5, str(gone)),),
      "skip": ((2, 4),),
      "global_batch_size": None,
      "batch_size_schedule": ((0, 8), (7, 4), (12, 16)),
    },
    "buckets": {
      "seed": 3,
      "epochs": None,
      "remainder": "pad",
      "certificate": "tokens",
      "buckets": {
        "kind": "length", "lengths": (16, 32, 64), "tokens_per_batch": 256,
      },
      "sources": {name: {"store": str(root / name)} for name in "ab"},
    },
  }  # fmt: skip


KINDS = (
  "in order", "windows", "compressed", "bins", "endless", "splice", "mix",
  "stages", "balance", "edits", "buckets",
)  # fmt: skip


@pytest.fixture(params=KINDS)
def pipe(request, kinds):
  return pipeline.build(kinds[request.param])


@pytest.fixture(autouse=True)
def any_time(monkeypatch):
  monkeypatch.setattr(step_records, "RECORD_S", 1e9)


@pytest.fixture
def sized(monkeypatch):
  """Sets the most steps of a record."""
  return lambda size: monkeypatch.setattr(batches, "READ_STEPS", size)


def steps_of(pipe):
  """Returns how many steps of a run are read: its end is, where it has one."""
  return STEPS if pipe.num_steps is None else pipe.num_steps


def planned(pipe, step):
  """Returns the hash of a step's batch, rows where `balance` says."""
  order = pipe.row_order(step)
  batch = {name: value[order] for name, value in pipe.batch(step).items()}
  return batch_hashes.batch_sha256(batch)


@dataclasses.dataclass
class Found:
  """What an iterator returned, and what it says of itself at every step."""

  hashes: list[str]
  states: list[bytes]
  reads: dict
  certificate: list


def read(pipe, operations=(), state=None, step=0, most=1_000):
  """Reads at most so many steps from a step or state on."""
  with iterators.make_iterator(pipe, operations=operations, step=step) as it:
    if state is not None:
      it.set_state(state)
    states, hashes = [it.get_state()], []
    for _ in range(min(most, steps_of(pipe) - it.step)):
      hashes.append(batch_hashes.batch_sha256(jax.device_get(next(it))))
      states.append(it.get_state())
    if it.step == pipe.num_steps:
      assert next(it, None) is None
    reads = {name: dataclasses.asdict(own) for name, own in it.reads.items()}
    return Found(hashes, states, reads, certificate.records(it.certificate))


# What stores do: they read less for steps that are read together, whose copies
# may follow each other in the same chunks.
OF_STORES = ("logical_reads", "chunks_fetched", "bytes_fetched")


def compare_reads(found, wanted):
  """Compares the counts of several steps a record with those of one."""
  assert found.keys() == wanted.keys()
  for name, counts in found.items():
    del counts["cache_hits"]
    for what, count in counts.items():
      if what in OF_STORES:
        assert 0 <= count <= wanted[name][what], what
      else:
        assert count == wanted[name][what], what


def test_a_whole_run_is_the_same_with_any_records(pipe, sized, monkeypatch):
  records, together = [], batches.BatchSource.together

  def remember(self, step, most):
    found = together(self, step, most)
    records.append(found)
    return found

  monkeypatch.setattr(batches.BatchSource, "together", remember)
  sized(1)
  wanted = read(pipe)
  assert wanted.hashes == [
    planned(pipe, step) for step in range(steps_of(pipe))
  ]
  for size in SIZES:
    sized(size)
    records.clear()
    found = read(pipe)
    assert found.hashes == wanted.hashes
    assert found.states == wanted.states
    assert found.certificate == wanted.certificate
    if pipe.num_steps is not None:
      # Read to its end: a thread may be ahead of one that is not.
      compare_reads(found.reads, wanted.reads)
    assert max(map(len, records)) == (
      1 if pipe.run_options.kind != "rows" else size
    )
    for steps in records:
      assert len({str(pipe.bucket_of(step)) for step in steps}) == 1
      assert len({len(pipe.batch(step)["tokens"]) for step in steps}) == 1


def test_a_state_of_any_step_restores_with_other_records(pipe, sized):
  sized(1)
  wanted = read(pipe)
  for step, state in enumerate(wanted.states):
    for size in (1, *SIZES)[step % 3 :][:2]:
      sized(size)
      found = read(pipe, state=state, most=9)
      assert found.hashes == wanted.hashes[step : step + 9]
      assert found.states == wanted.states[step : step + 10]


def test_random_transforms_are_those_of_single_steps(pipe, sized):
  sized(1)
  wanted = read(pipe, [Noise()])
  for size, step in itertools.product(SIZES, (0, 1, 5)):
    sized(size)
    found = read(pipe, [Noise()], step=step)
    assert found.hashes == wanted.hashes[step:]


def test_stock_states_are_those_of_single_steps(pipe, sized):
  def loader():
    return iter(pipeline.Pipeline.data_loader(pipe, operations=[Noise()]))

  sized(1)
  single, states, hashes = loader(), [], []
  for _ in range(steps_of(pipe)):
    states.append(single.get_state())
    hashes.append(batch_hashes.batch_sha256(next(single)))
  for size in SIZES:
    sized(size)
    several = loader()
    for step, state in enumerate(states):
      assert several.get_state() == state
      assert batch_hashes.batch_sha256(next(several)) == hashes[step]
    for step in range(0, len(states), 3):
      several.set_state(states[step])
      assert batch_hashes.batch_sha256(next(several)) == hashes[step]


def test_two_processes_hold_the_rows_of_one(kinds, sized):
  pipe = pipeline.build(kinds["mix"])
  sized(8)
  halves = [
    iter(pipe.data_loader(np.arange(first, first + 4))) for first in (0, 4)
  ]
  for step in range(steps_of(pipe)):
    parts = [next(half) for half in halves]
    for name, value in pipe.batch(step).items():
      both = np.concatenate([part[name] for part in parts])
      np.testing.assert_array_equal(both, value)


@pytest.mark.parametrize("size", [1, *SIZES])
def test_a_store_that_joins_comes_at_its_epoch(kinds, sized, tmp_path, size):
  sized(size)
  before = pipeline.build({**kinds["bins"], "epochs": None})
  with iterators.make_iterator(before) as it:
    for _ in range(3):
      next(it)
    state = it.get_state()
  (name,) = before.sources
  store = kinds["bins"]["sources"][name]["store"]
  source = {
    **kinds["bins"]["sources"][name],
    "store": [store, store[:-1] + "b"],
  }
  joined = {**kinds["bins"], "epochs": None, "sources": {name: source}}
  with iterators.make_iterator(joined) as it:
    it.set_state(state)
    run = it.fingerprint
    found = [
      batch_hashes.batch_sha256(jax.device_get(next(it))) for _ in range(STEPS)
    ]
  after = pipeline.continued(pipeline.build(joined), run, 3)
  assert found == [
    batch_hashes.batch_sha256(after.batch(step)) for step in range(3, 3 + STEPS)
  ]
