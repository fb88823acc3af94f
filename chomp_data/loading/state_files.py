# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A state's file in the directory of a checkpoint's item.

One small JSON file that the primary process writes and every process reads, so
it restores on any number of processes and workers. It says which checkpoint it
was saved in: in another one it belongs to another model.
"""

from collections.abc import Mapping
import os
from typing import Any

from absl import logging
from etils import epath
import jax

from chomp_data.loading import saved_states
from chomp_data.loading import state as state_lib

_FILE = "input.json"


def write(directory: os.PathLike[str], state: bytes) -> None:
  """Writes a state, on the primary process alone.

  Args:
    directory: The item's, in the checkpoint's.
    state: Of `InputIterator.get_state`.
  """
  if jax.process_index() != 0:
    return
  place = epath.Path(directory)
  saved_in = _checkpoint_step(place)
  if saved_in is not None:
    state = state_lib.with_fields(state, {saved_states.SAVED_IN: saved_in})
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
  problem = _of_other_step(state_lib.decode(state), place, step)
  if problem and not allow_changes:
    raise state_lib.StateError(
      f"{problem} Restore from another checkpoint, or accept this one with"
      " `allow_changes=True` of `InputRestore`.",
      f"{problem} Restore from another checkpoint (--restore_step).",
    )
  if problem:
    logging.warning("Input state accepted: %s", problem)
  return state


def _checkpoint_step(directory: epath.Path) -> int | None:
  """Returns the step in the name of an item's checkpoint, None without one."""
  name = _checkpoint(directory)
  return None if name is None else saved_states.checkpoint_step(name)


def _checkpoint(directory: epath.Path) -> str | None:
  """Returns the name of an item's checkpoint, None if Orbax wrote none."""
  if not (directory.parent / saved_states.METADATA).exists():
    return None
  return directory.parent.name


def _of_other_step(
  record: Mapping[str, Any], directory: epath.Path, step: int | None
) -> str | None:
  """Returns why a state does not belong to a checkpoint, or None."""
  if step is not None:
    if record["step"] == step:
      return None
    return (
      f"input state must be at step {step}, got step {record['step']} in"
      f" {directory}."
    )
  return saved_states.of_other_checkpoint(
    record, _checkpoint(directory), str(directory)
  )
