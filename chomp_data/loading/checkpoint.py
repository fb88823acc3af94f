# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Orbax arguments for the input: one `CheckpointManager` for model and input.

    manager.save(step, args=ocp.args.Composite(
        model=ocp.args.StandardSave(model), input=InputSave(iterator)))
    manager.restore(step, args=ocp.args.Composite(
        model=ocp.args.StandardRestore(like), input=InputRestore(iterator)))

What is written is in `saved_states`. Under Orbax's `v1` an iterator is a
checkpointable as it is, and needs none of this.
"""

from collections.abc import Callable
from collections.abc import Collection
import dataclasses
from typing import Any

from etils import epath
import orbax.checkpoint as ocp
from orbax.checkpoint import future as future_lib

from chomp_data import schema
from chomp_data.loading import saved_states
from chomp_data.loading import state as state_lib

_ITERATOR = "an iterator, as `chomp_data.make_iterator` returns it"
_SAVED = schema.having(_ITERATOR, "begin_save")
_RESTORED = schema.having(_ITERATOR, "set_state", "start_prefetch")
_STEP = schema.optional(schema.integer(0))


class InputHandler(ocp.AsyncCheckpointHandler):
  """Writes and reads the state of an `InputIterator`."""

  def save(self, directory: epath.Path, args: "InputSave") -> None:
    """Writes the state that the iterator had when `InputSave` was made."""
    saved_states.write(directory, args.state())

  async def async_save(
    self, directory: epath.Path, args: "InputSave"
  ) -> list[future_lib.Future]:
    """Does so in the background: training does not wait for other processes.

    Nor for the sums of what came before a step that was gone to.
    """

    async def write() -> None:
      self.save(directory, args)

    return [
      future_lib.CommitFutureAwaitingContractedSignals(
        write(), name="input_save"
      )
    ]

  def restore(self, directory: epath.Path, args: "InputRestore") -> Any:
    """Sets the iterator to the saved step and begins to read ahead."""
    state = saved_states.read(directory, args.step, args.allow_changes is True)
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
    state: See `InputIterator.begin_save`.
  """

  item: dataclasses.InitVar[Any]
  state: Callable[[], bytes] = dataclasses.field(init=False)

  def __post_init__(self, item: Any) -> None:
    """Takes the state.

    Raises:
      TypeError: If it is no iterator.
    """
    item = schema.argument("item", _SAVED, item)
    self.state = item.begin_save()


@ocp.args.register_with_handler(InputHandler, for_restore=True)
@dataclasses.dataclass
class InputRestore(ocp.args.CheckpointArgs):
  """Restores an iterator.

  Attributes:
    item: The iterator to set.
    allow_changes: Accept the state of a run that differs, or of another
      checkpoint; it is logged. Dotted paths accept these fields alone; see
      `InputIterator.set_state`.
    step: The step that the iterator must be at, where the caller knows it.
      None takes any, saved in this checkpoint: a manager's steps may count
      something else.
  """

  item: Any
  allow_changes: bool | Collection[str] = False
  step: int | None = None

  def __post_init__(self) -> None:
    """Checks the fields.

    Raises:
      TypeError: If one is of a wrong type.
      ConfigError: If `step` is negative.
    """
    self.item = schema.argument("item", _RESTORED, self.item)
    self.allow_changes = schema.argument(
      "allow_changes", state_lib.CHANGES, self.allow_changes
    )
    self.step = schema.argument("step", _STEP, self.step)
