# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Tokens are read, and transforms applied, within Grain's own call."""

import contextlib
import multiprocessing
import sys

import grain
import jax
import numpy as np
import pytest

from chomp_data import iterators
from chomp_data import pipeline
from chomp_data.testing import batch_hashes


def is_within_grain():
  """Whether Grain's iterator of a loader is among the callers."""
  frame = sys._getframe(1)
  while frame is not None:
    name = frame.f_code.co_filename
    if "/grain/_src/python/" in name and frame.f_code.co_name == "__next__":
      return True
    frame = frame.f_back
  return False


class Where(grain.transforms.Map):
  """Tells of each batch who calls, in which process, and its shape."""

  def map(self, element):
    rows = len(element["tokens"])
    in_worker = multiprocessing.parent_process() is not None
    return {
      **element,
      "within_grain": np.full(rows, is_within_grain()),
      "in_worker": np.full(rows, in_worker),
      "rows": np.full(rows, rows),
    }


class RandomWhere(grain.transforms.RandomMap):
  def random_map(self, element, rng):
    return {**Where().map(element), "noise": rng.integers(9, size=1)}


@pytest.mark.parametrize(
  ("operation", "rows"), [(Where(), 8), (RandomWhere(), 1)]
)
@pytest.mark.parametrize(
  "workers", [0, pytest.param(2, marks=pytest.mark.slow)]
)
def test_transforms_see_one_step_within_grains_next(
  data, workers, operation, rows
):
  """A random one sees each of its rows by itself."""
  data = {**data, "worker_count": workers}
  with iterators.make_iterator(data, operations=[operation]) as iterator:
    batches = [jax.device_get(batch) for batch in iterator]
  assert len(batches) == 26
  for batch in batches:
    assert batch["within_grain"].all()
    assert batch["rows"].tolist() == [rows] * 8
    assert (batch["in_worker"] == bool(workers)).all()


def tokens_of(element):
  """Returns the tokens of what a source returned, batch by batch."""
  batches = getattr(element, "batches", [element])
  return [batch["tokens"] for batch in batches]


@contextlib.contextmanager
def sources_of_loaders(monkeypatch):
  """Collects the sources of all Grain loaders."""
  found, init = [], grain.DataLoader.__init__

  def remember(self, **options):
    found.append(options["data_source"])
    init(self, **options)

  with monkeypatch.context() as patch:
    patch.setattr(grain.DataLoader, "__init__", remember)
    yield found


@pytest.mark.parametrize(
  "workers", [0, pytest.param(2, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("by_steps", [True, False])
def test_a_record_of_the_source_holds_tokens(
  data, workers, by_steps, monkeypatch
):
  pipe = pipeline.build({**data, "worker_count": workers})
  with sources_of_loaders(monkeypatch) as sources:
    if by_steps:
      with iterators.make_iterator(pipe) as iterator:
        next(iterator)
    else:
      next(iter(pipe.data_loader(worker_count=workers)))
  assert sources
  for source in sources:
    for step in (0, 11, 25):
      first, *others = tokens_of(source[step])
      np.testing.assert_array_equal(first, pipe.batch(step)["tokens"])
      for number, tokens in enumerate(others, step + 1):
        np.testing.assert_array_equal(tokens, pipe.batch(number)["tokens"])


def test_reading_is_within_grains_next(data, monkeypatch):
  from chomp_data.plans import rows_plan

  within, read = [], rows_plan.RowsPlan.read

  def remember(self, planned):
    within.append(is_within_grain())
    return read(self, planned)

  pipe = pipeline.build(data)
  wanted = [
    batch_hashes.batch_sha256(pipe.batch(step))
    for step in range(pipe.num_steps)
  ]
  with iterators.make_iterator(pipe) as iterator:
    monkeypatch.setattr(rows_plan.RowsPlan, "read", remember)
    found = [batch_hashes.batch_sha256(batch) for batch in iterator]
  assert found == wanted
  assert within
  assert all(within)
