# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""MaxText's train and eval iterators, from a config of ours.

    if config.grain_file_type == "chomp_data":
      return make_iterators(config, mesh)

docs/maxtext.md walks through it. Written against MaxText 0.2.5.
"""

from collections.abc import Awaitable
from collections.abc import Iterator
import math
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
from chomp_data.loading import saved_states

# What MaxText calls the input in a checkpoint.
_ITEM = "iter"
# Beside checkpoints that do not hold it.
_DIRECTORY = "input"

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
    ),
    directory=schema.optional(schema.instance("a path", os.PathLike)),
    saved_step=schema.optional(schema.WHOLE),
  )
  def __init__(
    self,
    batches: iterators.InputIterator,
    directory: os.PathLike[str] | None = None,
    saved_step: int | None = None,
  ):
    """Wraps an iterator.

    Args:
      batches: The iterator.
      directory: Where the input is saved beside checkpoints that cannot hold
        it; None: checkpoints hold it.
      saved_step: The newest of these checkpoints, or None. `resume` must be
        called before the first batch then.
    """
    self.batches: iterators.InputIterator = batches
    self._first_step = batches.step
    self._directory = directory
    self._saved_step = saved_step
    self._is_saved = directory is None

  def __next__(self) -> dict[str, jax.Array]:
    try:
      if not self._is_saved:
        self._save_beside()
      return next(self.batches)
    except StopIteration:
      raise
    except Exception as error:
      raise InputFailed(str(error)) from error

  def _save_beside(self) -> None:
    """Saves the input that batches have from here on.

    Raises:
      InputError: If MaxText resumed its model alone.
    """
    assert self._directory is not None
    if self._saved_step is not None:
      raise errors.InputError(
        f"MaxText must call `resume` of its input with a checkpoint's step, as"
        f" there is one of step {self._saved_step}, got no call. Make the last"
        " change of docs/maxtext.md; if MaxText restored no checkpoint, train"
        " with other directories of checkpoints."
      )
    saved_states.write_beside(self._directory, self.batches.get_state())
    self._is_saved = True

  @schema.arguments(step=schema.WHOLE)
  def resume(self, step: int) -> None:
    """Goes to the batch after a checkpoint that does not hold the input.

    Args:
      step: The checkpoint's, whose batch the model was last trained on.

    Raises:
      StateError: If the input is not that of the run.
    """
    assert self._directory is not None, "other checkpoints hold the input"
    state = saved_states.read_beside(self._directory, step + 1)
    self.batches.set_state(state)
    # The state counts nothing: what was consumed follows from the plan.
    self.batches.seek(step + 1)
    self._saved_step, self._is_saved = None, False

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
  problems += _unsaved(config) + _ramp_up(config)
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
  beside, saved_step = None, None
  if _is_beside(config):
    beside = epath.Path(config.checkpoint_dir).parent / _DIRECTORY
    steps_saved = [
      _saved_step(config.checkpoint_dir),
      _saved_step(_local_directory(config, mesh)),
    ]
    saved_step = max((s for s in steps_saved if s is not None), default=None)
  rows = None if _has_sizes(train) else config.global_batch_size_to_load
  return (
    MaxTextIterator(
      iterators.padded_iterator(
        train,
        sharding.get_input_data_sharding(config, mesh),
        device_rows=rows,
      ),
      beside,
      saved_step,
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
  if len(pipe.buckets) > 1 and not (_has_sizes(pipe) and use == "train_on"):
    return [
      f"`{field}` must give MaxText batches of one shape, got"
      f" {', '.join(map(str, pipe.buckets))}. Leave out `data.buckets` and"
      " `data.batch_size_schedule`."
    ]
  pairs = [("seq_len", "max_target_length"), ("global_batch_size", rows)]
  problems = [
    f"`data.{ours}` of `{field}` must be MaxText's {theirs},"
    f" {getattr(config, theirs)}, got {getattr(pipe, ours)}. Write"
    f" `{field}='... data.{ours}={getattr(config, theirs)}'`."
    for ours, theirs in pairs
    if getattr(pipe, ours) != getattr(config, theirs)
  ]
  loaded = config.global_batch_size_to_load
  if _has_sizes(pipe) and loaded != getattr(config, rows):
    problems.append(
      f"`data.batch_size_schedule` of `{field}` must be unset where MaxText"
      f" loads more rows than it trains on, got {loaded} and"
      f" {getattr(config, rows)}. Raise `per_device_batch_size` to 1."
    )
  problems += [
    f"`data.keep_fields` of `{field}` must hold fields of two axes or more,"
    f" which MaxText slices, got {name!r}. Leave it out."
    for name in pipe.run_options.data.keep_fields
    if name in ("next_token", "source_id")
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


def _has_sizes(pipe: pipeline.Pipeline) -> bool:
  """Returns whether the batches of a run have several numbers of rows."""
  return len(pipe.run_plan.steps.sizes) > 1


def _ramp_up(config: Any) -> list[str]:
  """Returns the schedule to write in place of MaxText's ramp-up."""
  if not config.enable_rampup_batch_size:
    return []
  last, step, sizes = config.global_batch_size_to_load, 0, []
  first = config.global_batch_size_to_load_start
  # MaxText computes no part where not one increment fits: there is one then.
  samples = (
    config.rampup_samples_per_increment_to_load or config.global_rampup_samples
  )
  for rows in range(
    first, last, config.global_batch_size_to_load_increment or last
  ):
    sizes.append((step, rows))
    step += math.ceil(samples / rows)
  return [
    "`enable_rampup_batch_size` of MaxText must be False with chomp_data: rows"
    " that it holds back are lost when a run is resumed; got True. Set it so,"
    " and write `grain_train_files='... data.global_batch_size=None"
    f' "data.batch_size_schedule={[*sizes, (step, last)]}"\'`.'
  ]


def _is_beside(config: Any) -> bool:
  """Returns whether checkpoints cannot hold the input."""
  return config.enable_checkpointing and (
    config.enable_emergency_checkpoint or config.enable_multi_tier_checkpointing
  )


def _local_directory(config: Any, mesh: jax.sharding.Mesh) -> epath.Path:
  """Returns where this process has its local checkpoints."""
  place = epath.Path(config.local_checkpoint_directory)
  on_gpus = mesh.devices.flat[0].platform == "gpu"
  if on_gpus and not config.enable_multi_tier_checkpointing:
    # MaxText puts a directory of each process there, whose names look like
    # steps.
    return place / str(jax.process_index())
  return place


def _saved_step(directory: str | os.PathLike[str]) -> int | None:
  """Returns the step of the newest checkpoint in a directory, or None."""
  place = epath.Path(directory)
  if not place.exists():
    return None
  names = ocp.path.step.standard_name_format()
  return max((step.step for step in names.find_all(place)), default=None)


def _unsaved(config: Any) -> list[str]:
  """Returns why MaxText would resume the model and not the input.

  It takes a checkpoint that has no input without a word, and the first batch
  with it.
  """
  if not config.enable_checkpointing or not config.checkpoint_dir:
    return []
  if _is_beside(config):
    return []
  step = _saved_step(config.checkpoint_dir)
  place = epath.Path(config.checkpoint_dir) / str(step)
  if step is not None and not (place / _ITEM).exists():
    return [
      f"a checkpoint must hold the input to go on from, `{_ITEM}`, got none in"
      f" {place}. Resume from an older one, or give another `run_name`."
    ]
  if step is None and config.load_full_state_path:
    logging.warning(
      "load_full_state_path=%s: the model goes on from there, and the input"
      " begins at step 0.",
      config.load_full_state_path,
    )
  return []
