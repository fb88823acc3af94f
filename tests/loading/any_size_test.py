# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Changes of size: resumes on other processes and workers, again and again.

Processes and workers are simulated in one process: each process is an iterator
of its own rows, each worker a copy of its source that reads every n-th step, as
Grain deals them. Real ones are in `sharding_test` and `processes_test`.
"""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from chomp_data import iterators
from chomp_data import pipeline
from chomp_data import process_input
from chomp_data.plans import plan as plan_lib
from tests.catalogue import runs
from tests.golden import corpora

WORKERS = (0, 1, 2, 4)

# Of tests/catalogue, with batches that divide over all of these.
ROWS = {"epochs": None, "global_batch_size": 8}
LENGTHS = {"kind": "length", "lengths": (16, 32, 64), "tokens_per_batch": 512}
RUNS = {
  "multi_groups": ROWS,
  "mix_stages": ROWS,
  "lengths_weighted": {
    "epochs": None,
    "buckets": LENGTHS,
    "batch_format": None,
    "train_on_eos": None,
    "mix": None,
  },
}


class Turns:
  """A source that so many workers read by turns."""

  def __init__(self, source, count):
    self._workers = [source.for_workers(count) for _ in range(max(count, 1))]
    self.reads, self.steps = source.reads, source.steps

  def __len__(self):
    return len(self._workers[0])

  def _at(self, step):
    return self._workers[int(step) % len(self._workers)]

  def __getitem__(self, step):
    return self._at(step)[step]

  def together(self, step, most):
    return self._at(step).together(step, 1)

  def read(self, steps):
    return [self[step] for step in steps]

  def bucket_of(self, step):
    return self._at(step).bucket_of(step)

  def certificate_sums(self, step):
    return self._at(step).certificate_sums(step)

  def positions(self, step):
    del step

  def count_into(self, ledger):
    del ledger
    return False

  def for_workers(self, count):
    del count
    return self


class OnHost:
  """A placement that leaves batches on the host."""

  def put(self, bucket, batch):
    del bucket
    return dict(batch)


class Run:
  """A run, and the input that one process without workers has of it."""

  def __init__(self, data):
    self.pipe = pipeline.build(data)
    self.batch = functools.cache(self.pipe.batch)
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    self.input = process_input.of_pipeline(
      self.pipe, process_input.DeviceLayout.of(device)
    )
    self.options = dataclasses.replace(
      self.pipe.run_options.data, prefetch=1, worker_count=0
    )

  def source_of(self, process, count, workers):
    rows = {
      bucket.name: np.arange(bucket.batch_size).reshape(count, -1)[process]
      for bucket in self.pipe.buckets
    }
    # Over one plan: copies of it for real processes cost most of the time.
    local = plan_lib.LocalRows(rows)
    return Turns(self.input.source.for_rows(local), workers)

  def read(self, state, first, num_steps, count, workers):
    """Reads steps on so many processes; returns a state of one of them.

    That one is an iterator; of the others the sources will do.
    """
    parts, saving = [], num_steps % count
    for process in range(count):
      source = self.source_of(process, count, workers)
      if process != saving:
        parts.append(source)
        continue
      part = dataclasses.replace(self.input, source=source, placement=OnHost())
      with iterators.InputIterator(part, self.options) as iterator:
        if state is not None:
          iterator.set_state(state)
        assert iterator.step == first
        parts.append({first + i: next(iterator) for i in range(num_steps)})
        state = iterator.get_state()
    for step in range(first, first + num_steps):
      of_step = [part[step] for part in parts]
      for name, value in self.batch(step).items():
        whole = np.concatenate([part[name] for part in of_step])
        np.testing.assert_array_equal(whole, value, f"{name} of {step}")
    return state


@pytest.fixture(scope="module")
def root(tmp_path_factory):
  root = tmp_path_factory.mktemp("sizes")
  with pytest.MonkeyPatch.context() as patch:
    corpora.write_for_tests(root, patch, tmp_path_factory.mktemp("cache"))
    yield root


@pytest.mark.parametrize("name", RUNS)
def test_some_changes_of_size(root, name):
  """Three resumes in a row: there and back, and there with other workers."""
  run = Run(runs.data_of(name, root, **RUNS[name]))
  for before, after, workers, cut in (
    (1, 8, 0, 4), (8, 2, 4, 5), (4, 1, 2, 1), (2, 4, 1, 7),
  ):  # fmt: skip
    other = WORKERS[(WORKERS.index(workers) + cut) % len(WORKERS)]
    state = run.read(None, 0, cut, before, workers)
    state = run.read(state, cut, 2, after, workers)
    state = run.read(state, cut + 2, 1, before, other)
    run.read(state, cut + 3, 2, after, other)
