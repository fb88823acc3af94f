"""Orbax arguments for the input: one `CheckpointManager` for model and input.

    manager.save(step, args=ocp.args.Composite(
        model=ocp.args.StandardSave(model), input=InputSave(iterator)))
    manager.restore(step, args=ocp.args.Composite(
        model=ocp.args.StandardRestore(like), input=InputRestore(iterator)))

The item is one small JSON file that the primary process writes and every
process reads, so it restores on any number of processes and workers. It says
which checkpoint it was saved in: in another one it belongs to another model.
"""

from collections.abc import Mapping
import dataclasses
import re
from typing import Any

from absl import logging
from etils import epath
import orbax.checkpoint as ocp

from chomp_data.loading import feed
from chomp_data.loading import state as state_lib

_FILE = "input.json"
_SAVED_IN = "checkpoint_step"
# A step as Orbax's managers write it, with and without prefix and zeros; while
# it is written the directory has another end.
_STEP_NAME = re.compile(r"(?:.+_)?(\d+)(?:\.orbax-checkpoint-tmp.*)?")
# What Orbax puts in the directory of a step.
_METADATA = "_CHECKPOINT_METADATA"


class InputHandler(ocp.CheckpointHandler):
  """Writes and reads the state of an `InputIterator`."""

  def save(self, directory: epath.Path, args: "InputSave") -> None:
    """Writes the state that the iterator had when `InputSave` was made."""
    if not ocp.utils.is_primary_host(0):
      return
    saved_in = _checkpoint_step(directory)
    state = args.state
    if saved_in is not None:
      state = state_lib.with_fields(state, {_SAVED_IN: saved_in})
    (directory / _FILE).write_bytes(state)

  def restore(
    self, directory: epath.Path, args: "InputRestore"
  ) -> feed.InputIterator:
    """Sets the iterator to the saved step and begins to read ahead."""
    path = directory / _FILE
    if not path.exists():
      raise state_lib.StateError(
        f"input state must be at {path}, got no file. Restore from another"
        " checkpoint."
      )
    state = path.read_bytes()
    problem = _of_other_step(state_lib.decode(state), directory, args.step)
    if problem and not args.allow_changes:
      raise state_lib.StateError(
        f"{problem} Restore from another checkpoint, or set `allow_changes`."
      )
    if problem:
      logging.warning("Input state accepted: %s", problem)
    args.item.set_state(state, allow_changes=args.allow_changes)
    args.item.start_prefetch()
    return args.item

  def finalize(self, directory: epath.Path) -> None:
    """Does nothing: the state is whole once it is written."""

  def close(self) -> None:
    """Does nothing: no resource is held."""


@ocp.args.register_with_handler(InputHandler, for_save=True)
@dataclasses.dataclass
class InputSave(ocp.args.CheckpointArgs):
  """Saves an iterator's state as it is now.

  Attributes:
    item: The iterator; its state is taken at once, so a save in the
      background cannot see a later step.
  """

  item: dataclasses.InitVar[Any]
  state: bytes = dataclasses.field(init=False)

  def __post_init__(self, item: Any) -> None:
    self.state = item.get_state()


@ocp.args.register_with_handler(InputHandler, for_restore=True)
@dataclasses.dataclass
class InputRestore(ocp.args.CheckpointArgs):
  """Restores an iterator.

  Attributes:
    item: The iterator to set.
    allow_changes: Accept the state of a run that differs, or of another
      checkpoint; it is logged.
    step: The step that the iterator must be at, where the caller knows it.
      None takes any, saved in this checkpoint: a manager's steps may count
      something else.
  """

  item: feed.InputIterator
  allow_changes: bool = False
  step: int | None = None


def _checkpoint_step(directory: epath.Path) -> int | None:
  """Returns the step in the name of an item's checkpoint, None without one."""
  found = _STEP_NAME.fullmatch(directory.parent.name)
  if found is None or not (directory.parent / _METADATA).exists():
    return None
  return int(found[1])


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
  saved_in, found = record.get(_SAVED_IN), _checkpoint_step(directory)
  if saved_in is None or found is None or saved_in == found:
    return None
  return (
    "input state must be of the checkpoint that it lies in, got one of step"
    f" {record['step']}, saved in checkpoint {saved_in}, in {directory}."
  )
