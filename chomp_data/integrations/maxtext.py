# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""MaxText's train and eval iterators, from a config of ours.

    if config.grain_file_type == "chomp_data":
      return make_iterators(config, mesh)

docs/maxtext.md walks through it. Written against MaxText 0.2.5.
"""

from collections.abc import Awaitable
from collections.abc import Iterator
import os
import shlex
from typing import Any

from absl import logging
from etils import epath
import jax
import orbax.checkpoint as ocp

from chomp_data import errors
from chomp_data import iterators
from chomp_data import pipeline
from chomp_data import schema
from chomp_data.config import files

# What MaxText calls the input in a checkpoint.
_ITEM = "iter"

# Of MaxText's config: what it must be, and why. All of them would have batches
# trained on that no plan says, or an input that is not restored.
_NEEDED = {
  "dataset_type": (
    ("grain",), "MaxText saves the input of no other kind in its checkpoints"
  ),
  "colocated_python_data_input": (
    (False,), "the controller reads the rows and puts them on the devices"
  ),
  "packing": (
    (True,), "else attention='cudnn_flash_te' looks across documents"
  ),
  "enable_diloco": ((False,), "its replicas take batches of three axes"),
  "enable_rampup_batch_size": (
    (False,), "rows that it holds back are lost when a run is resumed"
  ),
  "enable_emergency_checkpoint": ((False,), "it does not save the input"),
  "enable_multi_tier_checkpointing": ((False,), "it does not save the input"),
  "expansion_factor_real_data": (
    (-1, 0, 1), "each process reads the rows that its own devices hold"
  ),
}  # fmt: skip


class InputFailed(BaseException):
  """The input failed, so that training must.

  No `Exception`: MaxText takes any of those for the end of the data, and ends
  with status 0.
  """


class MaxTextIterator(Iterator[dict[str, jax.Array]]):
  """An `InputIterator` as MaxText asks for it.

  Attributes:
    batches: The iterator.
  """

  @schema.arguments(
    batches=schema.having(
      "an iterator, as `chomp_data.make_iterator` returns it", "__next__"
    )
  )
  def __init__(self, batches: iterators.InputIterator):
    """Wraps an iterator."""
    self.batches: iterators.InputIterator = batches
    self._first_step = batches.step

  def __next__(self) -> dict[str, jax.Array]:
    try:
      return next(self.batches)
    except StopIteration:
      raise
    except Exception as error:
      raise InputFailed(str(error)) from error

  def reset(self) -> None:
    """Goes back to the first batch: an evaluation begins."""
    self.batches.seek(self._first_step)

  async def save(self, directory: iterators.AwaitedPath) -> Awaitable[None]:
    """Saves the input; see `InputIterator.save`."""
    return await self.batches.save(directory)

  async def load(self, directory: os.PathLike[str]) -> Awaitable[None]:
    """Restores the input; see `InputIterator.load`."""
    return await self.batches.load(directory)

  def close(self) -> None:
    """Stops the thread and the workers."""
    self.batches.close()


@schema.arguments(
  config=schema.having("a config of MaxText", "grain_train_files", "steps"),
  mesh=schema.instance("a `jax.sharding.Mesh`", jax.sharding.Mesh),
)
def make_iterators(
  config: Any, mesh: jax.sharding.Mesh
) -> tuple[MaxTextIterator, MaxTextIterator | None]:
  """Returns what MaxText's `create_data_iterator` returns.

  Args:
    config: MaxText's. `grain_train_files` and, where `eval_interval` is set,
      `grain_eval_files` name a config of ours and its options, as
      `packed.py:arg data.seed=3`; its `batch_format` is set to 'maxtext'.
    mesh: MaxText's.

  Returns:
    The batches to train on; and those to evaluate on, or None.

  Raises:
    ConfigError: If the two configs do not fit, or MaxText would resume from a
      checkpoint without its input.
    StoreError: If a store cannot be opened.
  """
  # Only here, where it calls: it is no dependency.
  from maxtext.utils import sharding  # pyright: ignore[reportMissingImports]

  problems = [
    f"`{name}` of MaxText must be {wanted[0]!r} with chomp_data:"
    f" {reason}; got {getattr(config, name)!r}. Set it so."
    for name, (wanted, reason) in _NEEDED.items()
    if getattr(config, name) not in wanted
  ]
  problems += _unsaved(config)
  if problems:
    raise errors.ConfigError(problems)
  train = _pipeline(config.grain_train_files)
  problems = _misfits(train, config, "grain_train_files", "train_on")
  steps = train.num_steps
  if steps is not None and config.steps > steps:
    problems.append(
      f"`steps` of MaxText must be at most {steps}, the batches of"
      f" {config.grain_train_files!r}, got {config.steps}. Lower it, or raise"
      " `data.epochs`."
    )
  held_out = None
  if config.eval_interval > 0:
    held_out = _pipeline(config.grain_eval_files)
    problems += _misfits(held_out, config, "grain_eval_files", "eval_on")
    problems += _no_end(held_out, config)
  if problems:
    raise errors.ConfigError(problems)
  for line in train.describe().splitlines():
    logging.info("%s", line)
  return (
    MaxTextIterator(
      iterators.padded_iterator(
        train,
        sharding.get_input_data_sharding(config, mesh),
        device_rows=config.global_batch_size_to_load,
      )
    ),
    held_out
    and MaxTextIterator(
      iterators.padded_iterator(
        held_out,
        sharding.get_input_data_sharding(
          config, mesh, rules=config.logical_axis_rules_for_eval
        ),
        device_rows=config.global_batch_size_to_load_eval,
      )
    ),
  )


def _pipeline(named: str) -> pipeline.Pipeline:
  """Returns the run of a config's name, with options after it."""
  name, *overrides = shlex.split(named)
  config = files.load_config(name, [*overrides, "data.batch_format=maxtext"])
  return pipeline.build(config.data)


def _misfits(
  pipe: pipeline.Pipeline, config: Any, field: str, use: str
) -> list[str]:
  """Returns where a run is not what MaxText's config says.

  Args:
    pipe: The run.
    config: MaxText's.
    field: The field of it that names the run.
    use: How MaxText names the rows of it: 'train_on' or 'eval_on'.
  """
  rows = f"global_batch_size_to_{use}"
  if len(pipe.buckets) > 1:
    return [
      f"`data.buckets` of `{field}` must give MaxText batches of one shape, got"
      f" {', '.join(map(str, pipe.buckets))}. Leave the section out."
    ]
  pairs = [("seq_len", "max_target_length"), ("global_batch_size", rows)]
  problems = [
    f"`data.{ours}` of `{field}` must be MaxText's {theirs},"
    f" {getattr(config, theirs)}, got {getattr(pipe, ours)}. Write"
    f" `{field}='... data.{ours}={getattr(config, theirs)}'`."
    for ours, theirs in pairs
    if getattr(pipe, ours) != getattr(config, theirs)
  ]
  # One option of MaxText, `context_parallel_load_balance`, says both whether it
  # permutes columns and whether its attention expects them permuted.
  if pipe.layout:
    layout = pipe.run_options.sequence_layout
    problems.append(
      f"`data.sequence_layout` of `{field}` must be unset with MaxText, got"
      f" {layout and layout.kind!r}: MaxText puts columns in the order of its"
      " attention itself. Leave it out."
    )
  if pipe.vocab_size > config.vocab_size:
    problems.append(
      f"`vocab_size` of MaxText must be at least {pipe.vocab_size}, which"
      f" the stores of `{field}` hold, got {config.vocab_size}. Raise it."
    )
  return problems


def _no_end(pipe: pipeline.Pipeline, config: Any) -> list[str]:
  """Returns why an evaluation would not take the batches that it is asked."""
  steps, wanted = pipe.num_steps, config.eval_steps
  if wanted <= 0 and steps is None:
    return [
      "`eval_steps` of MaxText must be above 0 where `grain_eval_files` has no"
      f" end, got {wanted}. Set it, or `data.epochs=1`."
    ]
  if steps is not None and wanted > steps:
    return [
      f"`eval_steps` of MaxText must be at most {steps}, the batches of"
      f" {config.grain_eval_files!r}, got {wanted}. Lower it, or raise"
      " `data.epochs`."
    ]
  return []


def _unsaved(config: Any) -> list[str]:
  """Returns why MaxText would resume the model and not the input.

  It takes a checkpoint that has no input without a word, and the first batch
  with it.
  """
  if not config.enable_checkpointing or not config.checkpoint_dir:
    return []
  directory = epath.Path(config.checkpoint_dir)
  saved = []
  if directory.exists():
    steps = ocp.path.step.standard_name_format().find_all(directory)
    saved = sorted(step.step for step in steps)
  if saved and not (directory / str(saved[-1]) / _ITEM).exists():
    return [
      f"a checkpoint must hold the input to go on from, `{_ITEM}`, got none in"
      f" {directory / str(saved[-1])}. Resume from an older one, or give"
      " another `run_name`."
    ]
  if not saved and config.load_full_state_path:
    logging.warning(
      "load_full_state_path=%s: the model goes on from there, and the input"
      " begins at step 0.",
      config.load_full_state_path,
    )
  return []
