# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How a state continues a run: what it tells that a config need not say.

Stores are appended: at which epochs do they join? A config names the stores of
a source, `store=('a', 'b')`. A run that resumes from a state of fewer of them
goes on as it was to the end of the source's epoch, and reads all of them from
the next one on. The state tells it, so the same config continues the run;
`joined` says it in a config.

Steps get another number of rows: at which step? A config with another
`global_batch_size` goes on at the same row, where that is allowed, and the
state tells it from then on; `batch_size_schedule` says it in a config.
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
from chomp_data.plans import rows_plan
from chomp_data.stores import concatenated

# (epoch, how many of the stores are read from it on), rising.
_Phases = list[tuple[int, int]]


def continued(
  run: options_lib.RunOptions,
  fingerprint: Mapping[str, Any],
  step: int,
  resize: bool = False,
) -> options_lib.RunOptions:
  """Returns a run as a state continues it.

  Args:
    run: As its config says.
    fingerprint: Of the state.
    step: The next step of the state.
    resize: Whether steps may get another number of rows from there on.

  Returns:
    The run, with the schedule of its batch sizes and the epochs at which
    stores of its sources join, where the state tells and the config does not.

  Raises:
    StoreError: If a store cannot be opened.
  """
  run = _resized(run, fingerprint, step, resize)
  found = {
    name: phases
    for name, source in run.sources.items()
    if (phases := _saved(run, source, fingerprint, name))
  }
  if not found:
    return run
  before = _replaced(run, found)
  plan = planning.make_plan(before)
  assert isinstance(plan, rows_plan.RowsPlan)
  sources = dict(run.sources)
  for name, phases in found.items():
    source = run.sources[name]
    now = next_epoch(plan, name, step)
    begun = [own for own in phases[1:] if own[0] < now]
    phases = [phases[0], *begun]
    count = len(source.paths)
    if phases[-1][1] < count:
      phases.append((now, count))
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
  """Returns a run with the batch sizes of a state, and its own from there."""
  if run.kind != "rows" or run.data.batch_size_schedule is not None:
    return run
  size, saved = run.data.global_batch_size, edits.steps_of(fingerprint).sizes
  if saved[-1][1] == size:
    sizes = saved
  else:
    # The step that comes next is the first that may change.
    own = steps_lib.Steps(skip=run.data.skip).data_step(step)
    begun = [entry for entry in saved if entry[0] < own]
    if begun and begun[-1][1] != size and not resize:
      return run
    steps = steps_lib.Steps([*begun, (own, size)])
    sizes = steps.sizes
    if begun and begun[-1][1] != size:
      logging.warning(
        "steps have %d rows from step %d on, and %d before: the run goes on at"
        " row %d, so that none is lost and none comes twice",
        size,
        step,
        begun[-1][1],
        steps.first_row(own),
      )
  if len(sizes) == 1:
    return run
  logging.info("config.data.batch_size_schedule = %s", sizes)
  data = dataclasses.replace(
    run.data, global_batch_size=None, batch_size_schedule=sizes
  )
  return dataclasses.replace(run, data=data)


def next_epoch(plan: rows_plan.RowsPlan, name: str, step: int) -> int:
  """Returns the first epoch of a source that has not begun before a step.

  At least 1: what was there from the start is of epoch 0.
  """
  taken = sum(plan.taken(min(step, plan.step_limit))[name].values())
  epoch, index = plan.ordered[name].epochs.locate(np.asarray([taken], np.int64))
  return max(1, int(epoch[0]) + bool(index[0]))


def begun(
  plan: Any, fingerprint: Mapping[str, Any], step: int
) -> Mapping[str, Any]:
  """Returns a fingerprint without stores that join after a step.

  Args:
    plan: Of the run.
    fingerprint: Of it, or of a state.
    step: The step.
  """
  sources = fingerprint.get("sources")
  if not isinstance(plan, rows_plan.RowsPlan) or not isinstance(sources, dict):
    return fingerprint
  out = dict(sources)
  for name, own in sources.items():
    if name in plan.ordered and isinstance(own, dict) and own.get("joined"):
      now = next_epoch(plan, name, step)
      joined = {e: v for e, v in own["joined"].items() if int(e) < now}
      out[name] = {k: v for k, v in own.items() if k != "joined"}
      if joined:
        out[name]["joined"] = joined
  return {**fingerprint, "sources": out}


def _saved(
  run: options_lib.RunOptions,
  source: options_lib.SourceOptions,
  fingerprint: Mapping[str, Any],
  name: str,
) -> _Phases | None:
  """Returns the phases of a source in a state; None where it tells nothing."""
  saved = fingerprint.get("sources", {}).get(name)
  if run.kind != "rows" or source.joined is not None or not saved:
    return None
  if len(source.paths) == 1:
    return None
  hashes = [
    own.hash for own in stores.open_stores(source.store, **source.store_options)
  ]
  counts = {
    concatenated.hash_of(hashes[: i + 1]): i + 1 for i in range(len(hashes))
  }
  phases: _Phases = []
  entries = {"0": saved, **saved.get("joined", {})}
  for epoch, own in sorted(entries.items(), key=lambda item: int(item[0])):
    # Of a store that only joined it says only what is other.
    count = counts.get(own.get("store"))
    if count is None or (phases and count <= phases[-1][1]):
      break
    phases.append((int(epoch), count))
  return phases or None


def _replaced(
  run: options_lib.RunOptions, found: Mapping[str, _Phases]
) -> options_lib.RunOptions:
  """Returns the run with the stores that a state tells of, and no other."""
  sources = dict(run.sources)
  for name, phases in found.items():
    source = sources[name]
    store = source.paths[: phases[-1][1]]
    sources[name] = dataclasses.replace(
      source, store=store, joined=_joined(phases)
    )
  return dataclasses.replace(run, sources=sources)


def _joined(phases: Sequence[tuple[int, int]]) -> tuple[int, ...]:
  """Returns the epoch of each store."""
  joined: list[int] = []
  for epoch, count in phases:
    joined += [epoch] * (count - len(joined))
  return tuple(joined)
