"""Several steps in a Grain record are handed out one by one."""

import itertools

import grain
import numpy as np
import pytest

from chomp_data.index import steps as steps_lib
from chomp_data.loading import batches
from chomp_data.loading import feed
from chomp_data.loading import reads
from chomp_data.loading import step_records

STEPS = 21


class Counted(grain.transforms.Map):
  def map(self, element):
    return {**element, "twice": 2 * element["step"]}


class Source:
  """Batches that are their step."""

  def __init__(self, broken=None):
    self._broken = broken
    self.reads = reads.Reads({})
    self.steps = steps_lib.Steps()

  def __len__(self):
    return STEPS

  def for_workers(self, count):
    return self

  def __getitem__(self, step):
    if step == self._broken:
      raise KeyError("broken")
    return {"step": np.asarray(step)}

  def __repr__(self):
    return "Source()"


def loader(size, first_step=0, broken=None):
  """Our loader with records of so many steps; Grain's own with 1."""
  source, options = Source(broken), {"operations": [Counted()]}
  kind = step_records.StepLoader
  if size == 1:
    kind, options["data_source"] = grain.DataLoader, source
  else:
    options |= {"source": source, "size": size}
  return kind(
    sampler=batches.StepSampler(first_step, STEPS),
    shard_options=grain.sharding.NoSharding(),
    read_options=grain.ReadOptions(num_threads=0, prefetch_buffer_size=0),
    **options,
  )


def rest(iterator):
  return [(int(b["step"]), int(b["twice"])) for b in iterator]


def test_records_are_read_a_step_at_a_time():
  read = []

  class Told(Source):
    def __getitem__(self, step):
      read.append(step)
      return super().__getitem__(step)

  it = iter(feed.data_loader(Told()))
  assert isinstance(it, step_records.StepIterator)
  assert not read
  assert [int(b["step"]) for b in itertools.islice(it, 2)] == [0, 1]
  assert read == [0, 1]


@pytest.mark.parametrize("first_step", [0, 5, STEPS])
@pytest.mark.parametrize("record_steps", [2, 8, 64])
def test_states_are_grains_at_every_step(record_steps, first_step):
  ours = iter(loader(record_steps, first_step))
  grains = iter(loader(1, first_step))
  wanted = [(step, 2 * step) for step in range(first_step, STEPS)]
  for done in range(len(wanted) + 1):
    state = ours.get_state()
    assert state == grains.get_state()
    for other in (1, record_steps):
      again = iter(loader(other, first_step))
      next(again, None)
      again.set_state(state)
      assert rest(again) == wanted[done:]
    assert (next(ours, None) is None) == (next(grains, None) is None)
  assert rest(loader(record_steps, first_step)) == wanted


def test_grains_handler_saves_and_restores_at_every_inner_step(tmp_path):
  handler = grain.checkpoint.CheckpointHandler()
  for done in range(10):
    it = iter(loader(4))
    for _ in range(done):
      next(it)
    (tmp_path / str(done)).mkdir()
    args = grain.checkpoint.CheckpointSave(it)
    handler.save(tmp_path / str(done), args=args)
    again = iter(loader(4))
    handler.restore(
      tmp_path / str(done), args=grain.checkpoint.CheckpointRestore(again)
    )
    assert rest(again) == rest(it) == [(n, 2 * n) for n in range(done, STEPS)]


def test_a_state_of_another_source_is_refused():
  class Other(Source):
    def __repr__(self):
      return "Other()"

  state = iter(feed.data_loader(Other())).get_state()
  with pytest.raises(ValueError, match="does not match"):
    iter(loader(4)).set_state(state)


def test_an_error_is_that_of_its_step():
  it = iter(loader(4, broken=6))
  assert [int(b["step"]) for b in itertools.islice(it, 6)] == [*range(6)]
  for _ in range(2):
    with pytest.raises(KeyError, match="broken"):
      next(it)


def test_random_transforms_have_a_record_of_their_own():
  class Noise(grain.transforms.RandomMap):
    def random_map(self, element, rng):
      return {**element, "noise": rng.integers(2**32)}

  def noise(first_step=0):
    found = feed.data_loader(
      Source(), first_step=first_step, operations=[Noise()]
    )
    return [int(b["noise"]) for b in found]

  assert noise(5) == noise()[5:]
