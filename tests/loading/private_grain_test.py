# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What we use of Grain that Grain does not promise, one line for each.

If one of these fails after an upgrade of Grain, it says what to mend and where.
Nothing else of Grain's inside is used: the last test looks for more.
"""

import ast
import inspect
import json
import multiprocessing
from multiprocessing import util
import pathlib
from typing import Any

from absl import flags
import grain
import pytest

import chomp_data
from chomp_data.loading import workers


def loader(worker_count=0, operations=(), records=6):
  return grain.DataLoader(
    data_source=grain.MapDataset.range(records),
    sampler=grain.samplers.SequentialSampler(
      records, grain.sharding.NoSharding(), seed=0
    ),
    operations=operations,
    worker_count=worker_count,
    shard_options=grain.sharding.NoSharding(),
  )


def test_an_iterator_is_made_of_a_loader_and_a_state():
  """Else mend `StepIterator` and `WorkerIterator`, which extend it."""
  found = inspect.signature(grain.DataLoaderIterator.__init__).parameters
  assert list(found)[:3] == ["self", "data_loader", "state"]
  assert [next(grain.DataLoaderIterator(loader(), state=None))] == [0]


def test_a_state_is_json_with_what_each_worker_saw_last():
  """Else mend `step_records.StepIterator`, which makes and reads such states.

  Its states must stay those that Grain gives for one step a record.
  """
  iterator = iter(loader())
  next(iterator)
  next(iterator)
  state = json.loads(iterator.get_state())
  assert state["last_seen_indices"] == {"0": 1}
  assert state["worker_count"] == 0


class Seen:
  """An operation as `workers.LastOperation` is one."""

  def __call__(self, records):
    for record in records:
      # Replaced in place, and the sampler's key beside it.
      record.data = (record.data, record.metadata.record_key)
      yield record


def test_an_operation_takes_records_and_may_change_what_they_hold():
  """Else make `workers.LastOperation` what Grain takes instead."""
  assert list(loader(operations=[Seen()]))[:3] == [(0, 0), (1, 1), (2, 2)]


class Whole:
  """What Grain must not look into: `handover.Handed`, a record of steps."""

  def __init__(self, value):
    self.value = value


class Wrapped(grain.transforms.Map):
  """Gives elements that Grain does not know."""

  def map(self, element: int) -> Any:
    return Whole(element)


@pytest.mark.slow
def test_workers_are_named_closed_and_told_of_as_we_expect():
  """Of three names: where each is used is said beside it."""
  # `feed.data_loader`: workers copy flags of absl, which must be parsed.
  if not flags.FLAGS.is_parsed():
    flags.FLAGS.mark_as_parsed()
  before = set(multiprocessing.active_children())
  # More records than workers can make before they are killed.
  iterator = iter(
    loader(worker_count=2, operations=[Wrapped()], records=1_000_000)
  )
  # An object of a class of ours comes as it is: `handover.Handed`.
  assert [next(iterator).value for _ in range(2)] == [0, 1]
  own = [p for p in multiprocessing.active_children() if p not in before]
  # `workers.NAME`: how `Reader` knows its processes, and a worker itself.
  assert len(own) == 2
  assert all(process.name.startswith(workers.NAME) for process in own)
  # The words of a dead worker: `WorkerIterator` knows a missing guard by them.
  for process in own:
    process.kill()
    process.join()
  with pytest.raises(RuntimeError, match=r"exit code -9\."):
    list(iterator)
  # `WorkerIterator.stop_workers`.
  vars(iterator)["_iterator"].close()


def test_what_runs_at_exit_is_listed_with_its_function():
  """Of `multiprocessing`, not of Grain; else mend `workers.leave_at_exit`."""
  finalizer = util.Finalize(None, print, exitpriority=0)
  try:
    registry = vars(util)["_finalizer_registry"]
    assert finalizer in registry.values()
    assert vars(finalizer)["_callback"] is print
  finally:
    finalizer.cancel()


def test_no_other_private_name_of_grain_is_used():
  """Add a test here for one that must be, or do without it."""
  root = pathlib.Path(chomp_data.__file__).parent
  found = set()
  for file in sorted(root.rglob("*.py")):
    text = file.read_text()
    if "grain" not in text and "_iterator" not in text:
      continue  # Parsing takes long.
    for node in ast.walk(ast.parse(text)):
      if isinstance(node, ast.ImportFrom | ast.Import):
        names = [getattr(node, "module", None) or ""]
        names += [alias.name for alias in node.names]
        if any(name.startswith(("grain._", "grain.python")) for name in names):
          found.add((file.name, ast.unparse(node)))
      if isinstance(node, ast.Attribute):
        text = ast.unparse(node)
        if text.startswith("grain.") and "._" in text:
          found.add((file.name, text))
        if node.attr == "_iterator" and "loading" in file.parts:
          found.add((file.name, text))
  assert found == {("workers.py", "self._iterator")}
