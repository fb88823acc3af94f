# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Records of several steps are those steps, one by one."""

import itertools
import json

import grain
import numpy as np
import pytest

from chomp_data.index import steps as steps_lib
from chomp_data.loading import batches
from chomp_data.loading import feed
from chomp_data.loading import reads
from chomp_data.loading import step_records

STEPS = 21
SIZES = (1, 3, 64)


class Counted(grain.transforms.Map):
  def map(self, element):
    return {**element, "twice": 2 * element["step"]}


class Noise(grain.transforms.RandomMap):
  def random_map(self, element, rng):
    return {**element, "noise": rng.integers(2**32, size=1)}


class More(grain.transforms.RandomMap):
  """Continues with the generator of the transform before it."""

  def random_map(self, element, rng):
    return {**element, "more": rng.integers(2**32, size=1)}


class Source:
  """Batches that are their step, read `size` at once."""

  rows = None

  def __init__(self, size=1, broken=None):
    self._size, self._broken = size, broken
    self.reads = reads.Reads({})
    self.steps = steps_lib.Steps()
    self.records = []

  def __len__(self):
    return STEPS

  def for_workers(self, count):
    return self

  def together(self, step, most):
    return range(step, min(step + min(self._size, most), STEPS))

  def read(self, steps):
    if self._broken in steps:
      raise KeyError("broken")
    self.records.append(steps)
    if self.rows is None:
      return [{"step": np.asarray(step)} for step in steps]
    return [{"step": np.full(len(self.rows), step)} for step in steps]

  def rows_of(self, steps):
    return [np.asarray(self.rows)] * len(steps)

  def __getitem__(self, step):
    return self.read(range(step, step + 1))[0]

  def __repr__(self):
    return "Source()"


@pytest.fixture(autouse=True)
def any_time(monkeypatch):
  monkeypatch.setattr(step_records, "RECORD_S", 1e9)


COUNTED = (Counted(),)


def loader(size, first_step=0, operations=COUNTED, broken=None):
  """Our loader with records of so many steps; with None Grain's own."""
  if size is not None:
    return feed.data_loader(
      Source(size, broken), first_step=first_step, operations=operations
    )
  return grain.DataLoader(
    data_source=Source(broken=broken),
    sampler=batches.StepSampler(first_step, STEPS),
    operations=operations,
    worker_count=0,
    shard_options=grain.sharding.NoSharding(),
    read_options=grain.ReadOptions(num_threads=0, prefetch_buffer_size=0),
  )


def rest(iterator):
  return [(int(b["step"]), int(b["twice"])) for b in iterator]


def test_a_record_is_read_when_its_first_step_is_asked_for():
  source = Source(8)
  it = iter(feed.data_loader(source))
  assert isinstance(it, step_records.StepIterator)
  assert not source.records
  assert [int(b["step"]) for b in itertools.islice(it, 2)] == [0, 1]
  # The first one is short: its batch is waited for.
  assert source.records == [range(1), range(1, 9)]
  assert [int(b["step"]) for b in it] == [*range(2, STEPS)]
  assert source.records[2:] == [range(9, 17), range(17, STEPS)]


def test_records_hold_what_is_ready_in_some_time(monkeypatch):
  now = [0]

  class Slow(grain.transforms.Map):
    def map(self, element):
      now[0] += 40 if 5 <= element["step"] < 9 else 2
      return element

  monkeypatch.setattr(step_records, "RECORD_S", 10)
  monkeypatch.setattr(step_records.time, "perf_counter", lambda: now[0])
  source = Source(8)
  found = feed.data_loader(source, operations=[Slow()])
  assert [int(b["step"]) for b in found] == [*range(STEPS)]
  assert [len(own) for own in source.records] == [1, 5, *[1] * 4, 5, 5, 1]


@pytest.mark.parametrize("first_step", [0, 5, STEPS])
@pytest.mark.parametrize("size", SIZES)
def test_states_are_grains_at_every_step(size, first_step):
  ours, grains = (iter(loader(own, first_step)) for own in (size, None))
  wanted = [(step, 2 * step) for step in range(first_step, STEPS)]
  for done in range(len(wanted) + 1):
    state = ours.get_state()
    assert state == grains.get_state()
    for other in (1, size, None):
      again = iter(loader(other, first_step))
      next(again, None)
      again.set_state(state)
      assert rest(again) == wanted[done:]
    assert (next(ours, None) is None) == (next(grains, None) is None)
  assert next(ours, None) is None
  assert rest(loader(size, first_step)) == wanted


def test_a_state_of_another_source_is_refused():
  class Other(Source):
    def __repr__(self):
      return "Other()"

  state = iter(feed.data_loader(Other())).get_state()
  with pytest.raises(ValueError, match="does not match"):
    iter(loader(4)).set_state(state)


@pytest.mark.parametrize("size", SIZES)
def test_a_record_that_cannot_be_read_is_an_error_each_time(size):
  it = iter(loader(size, broken=6))
  # Of the first record one step, then as many as `size` of each.
  first = 1 + 5 // size * size
  assert [int(b["step"]) for b in itertools.islice(it, first)] == [
    *range(first)
  ]
  for _ in range(2):
    with pytest.raises(KeyError, match="broken"):
      next(it)
  assert json.loads(it.get_state())["last_seen_indices"] == {"0": first - 1}


@pytest.mark.parametrize("size", SIZES)
def test_an_error_of_a_transform_is_that_of_its_step(size):
  class Fails(grain.transforms.Map):
    calls = 0

    def map(self, element):
      if element["step"] == 6:
        self.calls += 1
        if self.calls < 3:
          raise ValueError("no six")
      return element

  it = iter(loader(size, operations=[Counted(), Fails(), Counted()]))
  assert [int(b["step"]) for b in itertools.islice(it, 6)] == [*range(6)]
  for _ in range(2):
    with pytest.raises(ValueError, match="no six") as caught:
      next(it)
    assert "step 6" in "".join(caught.value.__notes__)
  assert rest(it) == [(n, 2 * n) for n in range(6, STEPS)]


@pytest.mark.parametrize("size", SIZES)
def test_random_transforms_have_the_generators_of_a_steps_rows(
  size, monkeypatch
):
  operations = (Noise(), Counted(), More())

  def loader_of(rows, first_step=0):
    monkeypatch.setattr(Source, "rows", rows)
    return loader(size, first_step, operations)

  def drawn(*of):
    return np.array(
      [np.stack([b["noise"], b["more"]], 1) for b in loader_of(*of)]
    )

  wanted = drawn([0, 1, 2, 3])
  assert wanted.shape == (STEPS, 4, 2)
  assert len(np.unique(wanted)) == wanted.size
  for rows in ([0, 1], [3], [2, 0]):
    assert (drawn(rows) == wanted[:, rows]).all()
  assert (drawn([1, 3], 5) == wanted[5:, [1, 3]]).all()
  it = iter(loader_of([1]))
  for done in range(STEPS):
    again = iter(loader_of([1]))
    again.set_state(it.get_state())
    assert next(again)["more"] == next(it)["more"] == wanted[done, 1, 1]


class Batchwide(grain.transforms.RandomMap):
  def random_map(self, element, rng):
    return {**element, "noise": rng.integers(9, size=4)}


def test_a_random_transform_that_returns_more_than_its_row_is_an_error(
  monkeypatch,
):
  monkeypatch.setattr(Source, "rows", [0, 1, 2, 3])
  with pytest.raises(
    ValueError, match=r"`Batchwide\.random_map` must return.*4 rows of 'noise'"
  ):
    next(iter(loader(1, operations=[Batchwide()])))
