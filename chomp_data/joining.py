# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Derives options of a run from the state that it continues.

`joined`: a config names the stores of a source, `store=('a', 'b')`. A run that
resumes from a state of fewer stores completes the epoch of the source with
these, and reads all of them from its next epoch on. States record these epochs,
so the same config continues the run; a config may also set them.

`batch_size_schedule`: a config with another `global_batch_size` continues at
the same row, if that change is allowed. States record the step of the change; a
config may also set it.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

from absl import logging
import numpy as np

from chomp_data import planning
from chomp_data import stores
from chomp_data.config import edits
from chomp_data.config import options as options_lib
from chomp_data.index import steps as steps_lib
from chomp_data.plans import consumption
from chomp_data.plans import plan as plan_lib
from chomp_data.plans import rows_plan
from chomp_data.stores import concatenated

# (epoch, number of stores that are read from it on), ascending.
_Phases = list[tuple[int, int]]


def continued(
  run: options_lib.RunOptions,
  fingerprint: Mapping[str, Any],
  step: int,
  resize: bool = False,
) -> options_lib.RunOptions:
  """Returns the options of a run that continues a state.

  Args:
    run: The options of the config.
    fingerprint: The fingerprint of the state.
    step: The next step of the state.
    resize: Whether the number of rows of a step may change at that step.

  Returns:
    The options, with `batch_size_schedule` and the `joined` of sources from
    the state where the config does not set them; the same object if nothing
    changes.

  Raises:
    StoreError: If a store cannot be opened.
  """
  run = _resized(run, fingerprint, step, resize)
  saved_phases = {
    name: phases
    for name, source in run.sources.items()
    if (phases := _saved_phases(run, source, fingerprint, name))
  }
  if not saved_phases:
    return run
  before = _as_saved(run, saved_phases)
  plan = planning.make_plan(before)
  assert isinstance(plan, rows_plan.RowsPlan)
  sources = dict(run.sources)
  for name, (first_phase, *later) in saved_phases.items():
    source = run.sources[name]
    epoch, count = next_epoch(plan, name, step), len(source.members)
    phases = [first_phase, *(phase for phase in later if phase[0] < epoch)]
    if phases[-1][1] < count:
      phases.append((epoch, count))
    joined = _joined(phases)
    if any(joined):
      sources[name] = dataclasses.replace(source, joined=joined)
      logging.info("config.data.sources.%s.joined = %s", name, joined)
  return dataclasses.replace(run, sources=sources)


def _resized(
  run: options_lib.RunOptions,
  fingerprint: Mapping[str, Any],
  step: int,
  resize: bool,
) -> options_lib.RunOptions:
  """Returns a run with the batch sizes of a state up to a step."""
  if run.kind != "rows" or run.data.batch_size_schedule is not None:
    return run
  size, saved = run.data.global_batch_size, edits.steps_of(fingerprint).sizes
  if saved[-1][1] == size:
    sizes = saved
  else:
    # The next step is the first whose size may change.
    data_step = run.data.steps.data_step(step)
    past = [entry for entry in saved if entry[0] < data_step]
    changes = bool(past) and past[-1][1] != size
    if changes and not resize:
      return run
    steps = steps_lib.Steps([*past, (data_step, size)])
    sizes = steps.sizes
    if changes:
      logging.warning(
        "steps have %d rows from step %d on, and %d before: the run continues"
        " at row %d; no row is lost or repeated",
        size,
        step,
        past[-1][1],
        steps.first_row(data_step),
      )
  if len(sizes) == 1:
    return run
  logging.info("config.data.batch_size_schedule = %s", sizes)
  return _with_sizes(run, sizes)


def _with_sizes(
  run: options_lib.RunOptions, sizes: Sequence[tuple[int, int]]
) -> options_lib.RunOptions:
  data = dataclasses.replace(
    run.data, global_batch_size=None, batch_size_schedule=sizes
  )
  return dataclasses.replace(run, data=data)


def with_sizes_of(
  run: options_lib.RunOptions, fingerprint: Mapping[str, Any]
) -> options_lib.RunOptions:
  """Returns a run with the batch sizes of a job that was resized.

      global_batch_size 8, state ((0, 8), (20, 16)) -> ((0, 8), (20, 16))

  Args:
    run: The options of the config that the job began with, or had in between.
    fingerprint: The fingerprint of the job's newest state.

  Returns:
    The options with the state's batch sizes if `global_batch_size` is one of
    them; else the same object.
  """
  if run.kind != "rows" or run.data.batch_size_schedule is not None:
    return run
  sizes = edits.steps_of(fingerprint).sizes
  if run.data.global_batch_size not in [size for _, size in sizes[:-1]]:
    return run
  return _with_sizes(run, sizes)


def next_epoch(plan: rows_plan.RowsPlan, name: str, step: int) -> int:
  """Returns the first epoch of a source that has not begun before a step.

  It is at least 1, because stores of the first epoch are there from the start.
  """
  counts = consumption.consumed(plan, min(step, plan_lib.step_limit(plan)))
  row = sum(counts[name].values())
  epoch, index = plan.ordered[name].epochs.locate(np.asarray([row], np.int64))
  return max(1, int(epoch[0]) + bool(index[0]))


def until(
  plan: Any, fingerprint: Mapping[str, Any], step: int
) -> Mapping[str, Any]:
  """Returns a fingerprint without the stores that join after a step.

  Args:
    plan: The plan of the run.
    fingerprint: The fingerprint of the run, or of a state that it continues.
    step: The step.
  """
  sources = fingerprint.get("sources")
  if not isinstance(plan, rows_plan.RowsPlan) or not isinstance(sources, dict):
    return fingerprint
  options_of_state = dict(sources)
  for name, fields in sources.items():
    if name not in plan.ordered or not isinstance(fields, dict):
      continue
    if not fields.get("joined"):
      continue
    epoch = next_epoch(plan, name, step)
    joined = {e: v for e, v in fields["joined"].items() if int(e) < epoch}
    options_of_state[name] = {k: v for k, v in fields.items() if k != "joined"}
    if joined:
      options_of_state[name]["joined"] = joined
  return {**fingerprint, "sources": options_of_state}


def _saved_phases(
  run: options_lib.RunOptions,
  source: options_lib.SourceOptions,
  fingerprint: Mapping[str, Any],
  name: str,
) -> _Phases | None:
  """Returns the phases of a source that a state records, or None.

  Args:
    run: The options of the config.
    source: The options of the source.
    fingerprint: The fingerprint of the state.
    name: The source's name.
  """
  saved = fingerprint.get("sources", {}).get(name)
  if run.kind != "rows" or source.joined is not None or not saved:
    return None
  if run.simulated_epochs is not None:
    return None  # No store may join: another one refuses the state.
  if len(source.members) == 1:
    return None
  opened = stores.open_stores(source.store, **source.store_options)
  hashes = [store.hash for store in opened]
  counts = {
    concatenated.hash_of(hashes[: i + 1]): i + 1 for i in range(len(hashes))
  }
  phases: _Phases = []
  entries = {"0": saved, **saved.get("joined", {})}
  for epoch, fields in sorted(entries.items(), key=lambda item: int(item[0])):
    # Entries of `joined` hold only the fields that change.
    count = counts.get(fields.get("store"))
    if count is None or (phases and count <= phases[-1][1]):
      break
    phases.append((int(epoch), count))
  return phases or None


def _as_saved(
  run: options_lib.RunOptions, saved_phases: Mapping[str, _Phases]
) -> options_lib.RunOptions:
  """Returns the run with only the stores that a state has."""
  sources = dict(run.sources)
  for name, phases in saved_phases.items():
    source = sources[name]
    store = source.members[: phases[-1][1]]
    sources[name] = dataclasses.replace(
      source, store=store, joined=_joined(phases)
    )
  return dataclasses.replace(run, sources=sources)


def _joined(phases: Sequence[tuple[int, int]]) -> tuple[int, ...]:
  """Returns the epoch from which on each store is read."""
  joined: list[int] = []
  for epoch, count in phases:
    joined += [epoch] * (count - len(joined))
  return tuple(joined)
