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
from chomp_data.loading import step_records
from chomp_data.testing import batch_hashes
from tests.catalogue import runs
from tests.golden import corpora

STEPS = 17
SIZES = (2, 8)


class Noise(grain.transforms.RandomMap):
  """Adds a number of the step's generator."""

  def random_map(self, element, rng):
    rows = len(next(iter(element.values())))
    return {**element, "noise": rng.integers(2**31, size=rows, dtype=np.int32)}


# Of tests/catalogue, with steps of which some can be read together.
NAMES = ("bin_ffd_block", "edits", "lengths_weighted")
SLOW = ("sequential_block", "multi_groups", "mix_stages", "joined", "balanced")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
  """The corpora of the catalogue."""
  root = tmp_path_factory.mktemp("records")
  with pytest.MonkeyPatch.context() as patch:
    corpora.write_for_tests(root, patch, tmp_path_factory.mktemp("cache"))
    yield root


@pytest.fixture(
  params=[
    *NAMES,
    *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW),
  ]
)
def pipe(request, root):
  return built(request.param, root)


def built(name, root):
  return pipeline.build(runs.data_of(name, root, certificate="tokens"))


@pytest.fixture(autouse=True)
def any_time(monkeypatch):
  monkeypatch.setattr(step_records, "RECORD_S", 1e9)


@pytest.fixture
def sized(monkeypatch):
  """Sets the most steps of a record."""
  return lambda size: monkeypatch.setattr(batches, "READ_STEPS", size)


def steps_of(pipe):
  """Returns how many steps of a run are read: its end is, where it has one."""
  return STEPS if pipe.num_steps is None else min(STEPS, pipe.num_steps)


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
    return Found(
      hashes, states, reads, json.loads(it.get_state())["certificate"]
    )


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
    if steps_of(pipe) == pipe.num_steps:
      # Read to its end: a thread may be ahead of one that is not.
      compare_reads(found.reads, wanted.reads)
    longest = max(map(len, records))
    if pipe.run_options.kind != "rows":
      assert longest == 1
    elif pipe.num_steps is None or pipe.num_steps > STEPS:
      assert longest == size
    else:  # They grow, and its end comes before.
      assert 1 < longest <= size
    for steps in records:
      assert len({str(pipe.bucket_of(step)) for step in steps}) == 1
      sizes = {len(next(iter(pipe.batch(step).values()))) for step in steps}
      assert len(sizes) == 1


def test_random_transforms_are_those_of_single_steps(pipe, sized):
  sized(1)
  wanted = read(pipe, [Noise()])
  for size, step in itertools.product(SIZES, (0, 1, 5)):
    sized(size)
    found = read(pipe, [Noise()], step=step)
    assert found.hashes == wanted.hashes[step:]
