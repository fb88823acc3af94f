# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The plan of a mix's next steps is made while those before are read."""

import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data.index import gradual
from chomp_data.loading import batches
from chomp_data.sources import sequential
from chomp_data.testing import stores as testing_stores

SOURCES = 12
BATCH = 8


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
  root = tmp_path_factory.mktemp("many")
  rng = np.random.default_rng(0)
  for number in range(SOURCES):
    documents = [rng.integers(3, 250, n) for n in rng.integers(1, 90, 20)]
    testing_stores.make_store(root / str(number), documents)
  return pipeline.build(
    {
      "seq_len": 16,
      "global_batch_size": BATCH,
      "epochs": None,
      "sources": {
        str(number): {
          "store": str(root / str(number)),
          "rows": {"kind": "sequential"},
          "shuffle": {"kind": "full"},
          "weight": 1 + number % 3,
        }
        for number in range(SOURCES)
      },
      "mix": {"kind": "token_balanced"},
    }
  )._plan


def part(plan, own):
  """A reader of some rows of each batch."""
  name = plan.buckets[0].name
  return batches.BatchSource(plan, {name: np.arange(own)})


def tokens_of(plan, step, own):
  name = plan.buckets[0].name
  planned = plan.planned(step, 1, {name: np.arange(own)})
  return plan.read(planned)["tokens"]


@pytest.mark.parametrize("own", [BATCH, 1])
def test_no_step_waits_for_all_sources_of_the_group_that_follows(
  plan, own, monkeypatch
):
  source, calls, counted = part(plan, own), [], sequential.SequentialSource.plan

  def count(self, rows):
    calls[-1] += 1
    return counted(self, rows)

  monkeypatch.setattr(sequential.SequentialSource, "plan", count)
  for step in range(500):
    calls.append(0)
    source[step]
  # The first groups are short: a step has much of the next.
  assert max(calls[:3]) > 2
  assert 0 < max(calls[200:]) <= 2


@pytest.mark.parametrize("own", [BATCH, 3])
def test_steps_in_any_order_hold_what_is_planned_of_each_alone(plan, own):
  source, rng = part(plan, own), np.random.default_rng(0)
  for first in (0, 5, 300, 40, 41):
    for step in range(first, first + int(rng.integers(1, 60))):
      wanted = tokens_of(plan, step, own)
      np.testing.assert_array_equal(source[step]["tokens"], wanted)


def test_what_fails_ahead_is_told_when_its_step_comes(plan, monkeypatch):
  source = part(plan, 3)
  for step in range(60):
    source[step]
  last = source._groups[-1].steps[-1]
  assert last > 60

  def fail(self, rows):
    raise OSError("the disk is gone")

  monkeypatch.setattr(sequential.SequentialSource, "plan", fail)
  for step in range(60, last + 1):
    wanted = (step, source[step]["tokens"].shape)
    assert wanted == (step, (3, 16))
  with pytest.raises(OSError, match="the disk is gone"):
    source[last + 1]
  monkeypatch.undo()
  wanted = tokens_of(plan, last + 1, 3)
  np.testing.assert_array_equal(source[last + 1]["tokens"], wanted)


def test_work_goes_on_where_it_stopped():
  done = []

  def work():
    for i in range(4):
      done.append(i)
      yield (i + 1) / 4
    return "all"

  begun = gradual.Begun(work())
  begun.until(0)
  assert done == []
  begun.until(0.3)
  assert done == [0, 1]
  begun.until(0.5)
  assert done == [0, 1]
  assert begun.result() == "all"
  assert begun.result() == "all"
  assert done == [0, 1, 2, 3]
  assert gradual.finished(work()) == "all"


def test_a_part_of_some_work_tells_its_share_of_all():
  def part():
    yield 0.5
    yield 1
    return "a part"

  def work():
    found = yield from gradual.within(part(), 0.2, 0.6)
    yield 1
    return found

  assert list(work()) == [0.4, 0.6, 1]
  assert gradual.finished(work()) == "a part"
