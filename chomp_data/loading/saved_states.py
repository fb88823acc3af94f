# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""States of an input in checkpoints: written, read, and found for a run.

A state is one small JSON file in the directory of a checkpoint's item. The
primary process writes it and every process reads it, so it restores on any
number of processes and workers. It says which checkpoint it was saved in: in
another one it belongs to another model.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
import contextlib
import functools
import os
import pathlib
import re
from typing import Any

from absl import logging
from etils import epath

from chomp_data import errors
from chomp_data.loading import state as state_lib
from chomp_data.storage import opening
from chomp_data.storage import paths
from chomp_data.storage import publish

_FILE = "input.json"
# Where an input's state lies in a work directory: <step>/<item>/input.json, in
# it or in a directory of checkpoints; and in one step, or in its item.
_STATES = ("*/*/input.json", "*/*/*/input.json")
_STATES_OF_ONE = ("input.json", "*/input.json")
# The last object of a checkpoint in a bucket.
COMPLETE = "complete.json"
# What Orbax puts in the directory of a step.
METADATA = "_CHECKPOINT_METADATA"
# The field of a state that says which checkpoint it was saved in.
SAVED_IN = "checkpoint_step"
# A step as Orbax's managers write it, with and without prefix and zeros; while
# it is written the directory has another end.
_STEP_NAME = re.compile(r"(?:.+_)?(\d+)(?:\.orbax-checkpoint-tmp.*)?")


def write(directory: os.PathLike[str], state: bytes) -> None:
  """Writes a state, on the primary process alone.

  Args:
    directory: The item's, in the checkpoint's.
    state: Of `InputIterator.get_state`.
  """
  # Plans are asked where there is no JAX.
  import jax

  if jax.process_index() != 0:
    return
  place = epath.Path(directory)
  name = _checkpoint(place)
  saved_in = None if name is None else checkpoint_step(name)
  if saved_in is not None:
    state = state_lib.with_fields(state, {SAVED_IN: saved_in})
  (place / _FILE).write_bytes(state)


def read(
  directory: os.PathLike[str],
  step: int | None = None,
  allow_changes: bool = False,
) -> bytes:
  """Reads a state.

  Args:
    directory: The item's, in the checkpoint's.
    step: The step that it must be of, or None: saved in this checkpoint.
    allow_changes: Accept another step or checkpoint; it is logged.

  Raises:
    StateError: If there is none, or it is not of this checkpoint.
  """
  place = epath.Path(directory)
  path = place / _FILE
  if not path.exists():
    raise state_lib.StateError(
      f"input state must be at {path}, got no file. Restore from another"
      " checkpoint."
    )
  state = path.read_bytes()
  record = state_lib.decode(state)
  if step is None:
    problem = of_other_checkpoint(record, _checkpoint(place), str(place))
  elif record["step"] != step:
    problem = (
      f"input state must be at step {step}, got step {record['step']} in"
      f" {place}."
    )
  else:
    problem = None
  if problem and not allow_changes:
    raise state_lib.StateError(
      f"{problem} Restore from another checkpoint, or accept this one with"
      " `allow_changes=True` of `InputRestore`.",
      f"{problem} Restore from another checkpoint (--restore_step).",
    )
  if problem:
    logging.warning("Input state accepted: %s", problem)
  return state


def write_beside(directory: os.PathLike[str], state: bytes) -> None:
  """Saves from which step on a run has an input, beside its checkpoints.

      0.json  700.json    another input from step 700 on

  For checkpoints that cannot hold a state. A state is saved where its
  fingerprint is not that of the steps before it; states of later steps are
  removed, because the run is repeating these steps. The primary process writes.

  Args:
    directory: Of the run.
    state: The state of the step that comes next.

  Raises:
    StateError: If the newest state of an earlier step is damaged; all stay.
  """
  import jax

  if jax.process_index() != 0:
    return
  place, record = epath.Path(directory), state_lib.decode(state)
  place.mkdir(parents=True, exist_ok=True)
  step, paths_by_step = record["step"], _beside(place)
  before = max((other for other in paths_by_step if other < step), default=None)
  if (
    before is None
    or _read_one_beside(paths_by_step[before])["fingerprint"]
    != record["fingerprint"]
  ):
    _write_one_beside(place / f"{step}.json", state)
    paths_by_step.pop(step, None)
  # Last: where the others cannot be read or written, nothing is lost.
  for other, path in paths_by_step.items():
    if other >= step:
      path.unlink()


def read_beside(directory: os.PathLike[str], step: int) -> bytes:
  """Returns the state of a step that a checkpoint without a state is of.

  Args:
    directory: The one that `write_beside` was called with.
    step: The next step of the checkpoint, at least 1.

  Raises:
    StateError: If no state of an earlier step was saved, or it is damaged.
  """
  place = epath.Path(directory)
  paths_by_step = _beside(place)
  before = [other for other in paths_by_step if other < step]
  if not before:
    raise state_lib.StateError(
      f"{place} must hold the input of the run before step {step}, got"
      f" {', '.join(path.name for path in paths_by_step.values()) or 'none'}."
      " Resume a checkpoint that was saved with it."
    )
  record = _read_one_beside(paths_by_step[max(before)])
  return state_lib.encode(step, record["fingerprint"], record["topology"])


def _beside(place: epath.Path) -> dict[int, epath.Path]:
  """Returns the states that are beside checkpoints, by step."""
  return {
    int(path.stem): path
    for path in (place.iterdir() if place.exists() else ())
    if path.suffix == ".json" and path.stem.isdecimal()
  }


def _read_one_beside(path: epath.Path) -> dict[str, Any]:
  """Returns the record of a state that is beside checkpoints."""
  try:
    return state_lib.decode(path.read_bytes())
  except state_lib.StateError as error:
    raise state_lib.StateError(
      f"{path} must be a state that this version of chomp_data can read, got a"
      " damaged or other one. Restore a copy of it, or remove it and resume a"
      f" checkpoint of a step before {path.stem}; without one, begin the run"
      " again."
    ) from error


def _write_one_beside(path: epath.Path, state: bytes) -> None:
  """Writes a state beside checkpoints, whole or not at all."""
  if paths.is_url(path):
    path.write_bytes(state)  # Objects of buckets are.
    return
  with publish.staged_file(pathlib.Path(path)) as file:
    file.write(state)


def _checkpoint(directory: epath.Path) -> str | None:
  """Returns the name of an item's checkpoint, None if Orbax wrote none."""
  is_orbax = (directory.parent / METADATA).exists()
  return directory.parent.name if is_orbax else None


def find(workdir: str) -> dict[str, Any] | None:
  """Returns the record of a run's newest state, or None before it has one.

  Args:
    workdir: The run's work directory, or of one step of its checkpoints, or of
      its input in there; or a URL of one of them.

  Raises:
    StateError: If there is no such directory, the state is damaged, or it was
      saved in another checkpoint than the one that it is in.
    StoreError: If the bucket cannot be read.
  """
  for _, read_state in reversed(_saved(workdir)):
    # A checkpoint that was removed meanwhile is not the newest.
    with contextlib.suppress(FileNotFoundError):
      return read_state()
  return None


def is_one(workdir: str) -> bool:
  """Returns whether a local directory is of one checkpoint, or its item."""
  return _only_state(pathlib.Path(workdir)) is not None


def every(workdir: str) -> list[dict[str, Any]]:
  """Returns the records of all states that a run has kept, the newest last.

  Args:
    workdir: As in `find`.

  Raises:
    StateError: As `find`, of any of them.
    StoreError: If the bucket cannot be read.
  """
  states = []
  for _, read_state in reversed(_saved(workdir)):
    with contextlib.suppress(FileNotFoundError):
      states.append(read_state())
  return [state for state in reversed(states) if state is not None]


def _saved(
  workdir: str,
) -> list[tuple[int, Callable[[], dict[str, Any] | None]]]:
  """Returns the checkpoints of a run, ascending, and what reads their states.

  Raises:
    StateError: If there is no such directory.
  """
  storage = opening.open_storage(workdir)
  place = storage.directory
  if place is None:
    names = storage.names()
    folders = whole_steps(names)
    if COMPLETE in names or _FILE in names:
      # Of one checkpoint, or of the item in it.
      folders = {checkpoint_step(paths.name_of(storage.path)) or 0: ""}
    return [
      (step, functools.partial(_in_bucket, storage.path, names, step, folder))
      for step, folder in sorted(folders.items())
    ]
  if not place.is_dir():
    raise errors.StateError(
      f"the work directory of a job must exist, got {workdir}. Give the"
      " --workdir of its trainer."
    )
  one = _only_state(place)
  states = [] if one is None else [(0, one)]
  for pattern in _STATES if one is None else ():
    for path in place.glob(pattern):
      number = path.parent.parent.name.rpartition("_")[2]
      # Others are still being written.
      if number.isdecimal():
        states.append((int(number), path))
  return [
    (number, functools.partial(_read, path)) for number, path in sorted(states)
  ]


def _only_state(place: pathlib.Path) -> pathlib.Path | None:
  for pattern in _STATES_OF_ONE:
    files = list(place.glob(pattern))
    if len(files) == 1:
      return files[0]
  return None


def whole_steps(names: Iterable[str]) -> dict[int, str]:
  """Returns where whole checkpoints are, by step.

      checkpoints/12/complete.json -> {12: checkpoints/12}

  Args:
    names: Of objects; a work directory may hold others.
  """
  folders = {}
  for name in names:
    folder, _, last = name.rpartition("/")
    number = folder.rpartition("/")[2]
    if last == COMPLETE and number.isascii() and number.isdecimal():
      folders[int(number)] = folder
  return folders


def _in_bucket(
  url: str, names: Collection[str], step: int, folder: str
) -> dict[str, Any] | None:
  """Returns the record of a checkpoint's state; None: it has none."""
  prefix = f"{folder}/" if folder else ""
  # Of the item, or of an item in an attempt at the checkpoint; other files of
  # that name may be deeper.
  state = re.compile(rf"{re.escape(prefix)}([^/]+/){{0,2}}{re.escape(_FILE)}")
  states = filter(state.fullmatch, names)
  name = min(states, key=lambda name: name.count("/"), default=None)
  if name is None:
    return None
  item = name.rpartition("/")[0]
  is_orbax = paths.join(item.rpartition("/")[0], METADATA) in names
  record = state_in_bucket(url, name)
  where = paths.join(url, name)
  return _checked(record, str(step) if is_orbax else None, where)


@functools.lru_cache(maxsize=1)
def state_in_bucket(url: str, name: str) -> dict[str, Any]:
  data = opening.open_storage(url).get(name, check=state_lib.decode)
  return state_lib.decode(data)


def _read(path: pathlib.Path) -> dict[str, Any]:
  """Reads the record of a state."""
  record = state_lib.decode(path.read_bytes())
  name = _checkpoint(epath.Path(path.absolute().parent))
  return _checked(record, name, str(path))


def _checked(
  record: dict[str, Any], name: str | None, where: str
) -> dict[str, Any]:
  problem = of_other_checkpoint(record, name, where)
  if problem is not None:
    raise errors.StateError(f"{problem} Take another checkpoint.")
  return record


def checkpoint_step(name: str) -> int | None:
  """Returns the step in the name of a checkpoint, None without one."""
  match = _STEP_NAME.fullmatch(name)
  return None if match is None else int(match[1])


def of_other_checkpoint(
  record: Mapping[str, Any], name: str | None, where: str
) -> str | None:
  """Returns why a state does not belong to the checkpoint it is in, or None.

  Args:
    record: The state's, decoded.
    name: The checkpoint's, as Orbax's manager names it; None: not known.
    where: The state's file or directory, for the message.
  """
  step = None if name is None else checkpoint_step(name)
  if step is None or record.get(SAVED_IN) in (None, step):
    return None
  return (
    "input state must be of the checkpoint that it lies in, got one of step"
    f" {record['step']}, saved in checkpoint {record[SAVED_IN]!r}, in {where}."
  )
