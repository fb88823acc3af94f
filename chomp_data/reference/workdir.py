# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Work directories: what a run writes, in a directory or in a bucket.

Orbax writes to directories that all processes share. Of a work directory in a
bucket, process 0 writes whole checkpoints to a local disk, in the background,
and mirrors them; each process brings the one to restore to its own disk and
reads it there, by itself, so that no disk is shared. Other files of a run are
mirrored with each checkpoint, before it is complete.

A checkpoint is looked through before anything of it is restored: its items, and
checksums of their files. Process 0 does, and tells the others which step it is.
What is later than the step that a run goes on from is of another future: it is
set aside as the run saves its first checkpoint, or steps of two runs would lie
side by side, and Orbax saves none that is not later than all that are there.

    WORKDIR/checkpoints/100      goes to WORKDIR/set_aside/1/100
    URL/checkpoints/100/complete.json, to .../100/set_aside.json
"""

from collections.abc import Callable
from collections.abc import Sequence
from concurrent import futures
import contextlib
import itertools
import json
import os
import pathlib
import shutil
import time
from typing import Any

from absl import logging
from etils import epath
import jax
from jax.experimental import multihost_utils
import numpy as np
import orbax.checkpoint as ocp

from chomp_data import errors
from chomp_data.loading import saved_states
from chomp_data.loading import watching
from chomp_data.reference import checkpoint_sums
from chomp_data.reference import mirror
from chomp_data.storage import opening
from chomp_data.storage import paths
from chomp_data.storage import publish

# What a checkpoint of a trainer holds, besides checksums.
ITEMS = ("input", "model", "run")

_CHECKPOINTS = "checkpoints"
_SET_ASIDE = "set_aside"

# Where process 0 tells the others; how long they wait while it lives, since it
# may fetch several checkpoints and look through them; how often they ask.
_CHOICES = "chomp_data/checkpoint"
LONGEST_WAIT_S = 3_600.0
ASK_INTERVAL_S = 1.0
_numbers = itertools.count()


class Workdir:
  """Where a run's checkpoints and files are.

  Attributes:
    path: The directory or URL, for messages.
    directory: Where files of the run are written: they are mirrored from there
      where `path` is a URL.
    manager: Orbax's; use `save` and `finish` of this class instead of its own.
  """

  def __init__(
    self,
    path: str,
    keep: int | None,
    *,
    files: Sequence[str] = (),
  ):
    """Makes the directory; brings what a run goes on with from a bucket.

    Args:
      path: A directory, or the URL of a place in a bucket.
      keep: How many of the newest checkpoints are kept; None keeps all.
      files: Files that a run goes on writing.

    Raises:
      StoreError: If there cannot be such a directory, the bucket cannot be
        read, or another process of this machine has the same work directory.
    """
    storage = opening.open_storage(path)
    is_remote = storage.directory is None
    self.path: str = storage.path if is_remote else os.path.abspath(path)
    self._mirror: mirror.Mirror | None = None
    self._files: mirror.Files | None = None
    with contextlib.ExitStack() as stack:
      options = ocp.CheckpointManagerOptions(max_to_keep=keep)
      local = pathlib.Path(self.path)
      if is_remote:
        local = stack.enter_context(_scratch(self.path))
        self._mirror = mirror.Mirror(self.checkpoints, keep)
        (local / _CHECKPOINTS).mkdir()
        if jax.process_index() == 0:
          self._files = mirror.Files(self.path, local, _CHECKPOINTS)
          self._files.fetch(files)
        process = jax.process_index()
        options = ocp.CheckpointManagerOptions(
          max_to_keep=1,
          create=False,
          enable_async_checkpointing=False,
          # It knows of no other process.
          multiprocessing_options=ocp.options.MultiprocessingOptions(
            primary_host=process,
            active_processes={process},
            barrier_sync_key_prefix=f"alone_{process}",
          ),
        )
      try:
        local.mkdir(parents=True, exist_ok=True)
      except OSError as error:
        raise errors.StoreError(
          "the work directory must be one that is there or can be made, got"
          f" {local} ({error.strerror}). Give another --workdir."
        ) from error
      self.directory: epath.Path = epath.Path(local)
      self.manager: ocp.CheckpointManager = ocp.CheckpointManager(
        self.directory / _CHECKPOINTS, options=options
      )
      stack.callback(self.manager.close)
      # One thread writes and sends, so that Orbax needs none of its own.
      self._thread = stack.enter_context(futures.ThreadPoolExecutor(1))
      self._sent: futures.Future = self._thread.submit(lambda: None)
      # Checkpoints of another future than the run's.
      self._later: list[int] = []
      self._stack = stack.pop_all()

  @property
  def checkpoints(self) -> str:
    """The directory or URL of the checkpoints, for messages."""
    return paths.join(self.path, _CHECKPOINTS)

  def choose(
    self, step: int | None = None, fall_back: bool = False
  ) -> int | None:
    """Returns the step of the checkpoint to restore, which is whole.

    All processes call it, once, before they save. The manager can restore that
    step then.

    Args:
      step: Which it shall be; None is the newest.
      fall_back: Whether it may be an older one where that is damaged.

    Returns:
      The step; None where there is no checkpoint.

    Raises:
      StateError: If there is no such checkpoint, or it is damaged.
      StoreError: If the bucket cannot be read.
      InputError: If process 0, which looks for it, dies or hangs.
    """
    chosen = from_first_process(lambda: self._choose(step, fall_back))
    if chosen["step"] is None:
      return None
    step = int(chosen["step"])
    self._later = chosen["later"]
    if self._mirror is not None:
      if jax.process_index() != 0:
        self._mirror.fetch(step, self._local(step))
      self.manager.reload()
    return step

  def save(self, step: int, model: Any, **others: Any) -> None:
    """Starts to write a checkpoint, unless the step has one.

    In a bucket it waits until the one before is there. All processes call it.

    Args:
      step: Its step.
      model: A pytree of `jax.Array`s, which may be donated after this.
      **others: Orbax's arguments to save what else there is.

    Raises:
      StoreError: If the one before could not be written to its bucket.
    """
    if self._later:
      from_first_process(self._set_aside)
      self._later = []
      if self._mirror is None:
        self.manager.reload()
    if self._mirror is None:
      if step not in self.manager.all_steps():
        self._write(step, model, others)
      return
    self._sent.result()
    model = jax.tree.map(_on_host, model)
    if jax.process_index() == 0:
      self._sent = self._thread.submit(
        self._write_and_send, self._mirror, step, model, others
      )

  def finish(self) -> None:
    """Waits until all that was written is where it shall be; as `save`."""
    if self._mirror is None:
      self.manager.wait_until_finished()
      return
    self._sent.result()
    if self._files is not None:
      self._files.send()

  def close(self) -> None:
    """Lets what is being written come to its end."""
    self._stack.close()

  def damaged(self, step: int, problem: object) -> errors.StateError:
    """Returns the error of a checkpoint that is damaged, with what to do."""
    others = [other for other in self._steps if other != step]
    return errors.StateError(
      f"the checkpoint at {paths.join(self.checkpoints, str(step))} must be"
      f" whole, got {problem}. {_offer(step, others)}"
    )

  @property
  def _steps(self) -> list[int]:
    """The steps of all checkpoints, ascending."""
    if self._mirror is not None:
      return self._mirror.steps()
    return sorted(self.manager.all_steps())

  def _local(self, step: int) -> pathlib.Path:
    return pathlib.Path(self.directory, _CHECKPOINTS, str(step))

  def _choose(self, wanted: int | None, fall_back: bool) -> dict[str, Any]:
    """Returns the step to restore, and the steps that are later."""
    steps = self._steps
    if wanted is not None and wanted not in steps:
      raise errors.StateError(
        f"`--restore_step` must be a step of {self.checkpoints}, got {wanted}."
        f" There {_listed(steps)}."
      )
    candidates = [
      candidate for candidate in steps if wanted is None or candidate <= wanted
    ]
    for step in reversed(candidates):
      problem = self._problem(step)
      if problem is None:
        if step != candidates[-1]:
          logging.warning(
            "fell back to the checkpoint of step %d, from %d: what came after"
            " it is trained again",
            step,
            candidates[-1],
          )
        return {
          "step": step,
          "later": [later for later in steps if later > step],
        }
      if not fall_back:
        raise self.damaged(step, problem)
      logging.warning(
        "skipped the checkpoint at %s: it has %s",
        paths.join(self.checkpoints, str(step)),
        problem,
      )
    if candidates:
      raise errors.StateError(
        f"one checkpoint of {self.checkpoints} must be whole, got none of steps"
        f" {', '.join(map(str, candidates))}. Bring a copy of one, or use"
        " another --workdir."
      )
    return {"step": None, "later": []}

  def _problem(self, step: int) -> str | None:
    """Returns why a checkpoint cannot be restored, or None; it is here then."""
    path = self._local(step)
    if self._mirror is not None:
      try:
        self._mirror.fetch(step, path)
      except mirror.DamagedError as error:
        shutil.rmtree(path, ignore_errors=True)
        return str(error)
    problem = checkpoint_sums.problem(path, ITEMS)
    if problem is None:
      try:
        saved_states.read(path / "input", step=step)
      except errors.StateError as error:
        problem = str(error)
    if problem is None and not checkpoint_sums.has_sums(path):
      logging.warning(
        "the checkpoint at %s has no checksums, as earlier versions saved it:"
        " its model is trusted as found",
        paths.join(self.checkpoints, str(step)),
      )
    if problem is not None and self._mirror is not None:
      shutil.rmtree(path, ignore_errors=True)
    return problem

  def _set_aside(self) -> dict[str, Any]:
    """Takes checkpoints of another future from where runs look for them."""
    if self._mirror is not None:
      to = ", ".join([self._mirror.set_aside(step) for step in self._later])
    else:
      to = _move([self._local(step) for step in self._later], self.path)
    logging.warning(
      "checkpoints of steps %s are of the run as it was before it went back:"
      " set aside as %s",
      ", ".join(map(str, self._later)),
      to,
    )
    return {}

  def _write(self, step: int, model: Any, others: dict[str, Any]) -> None:
    items = {"model": ocp.args.StandardSave(model), **others}
    items[checkpoint_sums.ITEM] = checkpoint_sums.SumsSave()
    self.manager.save(step, args=ocp.args.Composite(**items))

  def _write_and_send(
    self,
    bucket: mirror.Mirror,
    step: int,
    model: Any,
    others: dict[str, Any],
  ) -> None:
    self._write(step, model, others)
    if self._files is not None:
      self._files.send()
    bucket.send(step, self._local(step))


def from_first_process(
  function: Callable[[], dict[str, Any]],
) -> dict[str, Any]:
  """Returns what a function gives on process 0, or raises its error, on all.

  Raises:
    InputError: If process 0 dies or hangs.
  """
  client: Any = watching.client()
  if client is None:
    return function()
  key = f"{_CHOICES}/{next(_numbers)}"
  # Process 0 says that it lives, too, where it has no iterator yet.
  watch = watching.this_process()
  if watch is None or jax.process_index() == 0:
    answer: dict[str, Any] = {}
    try:
      answer = function()
    except BaseException as error:
      answer = {"error": watching.format_error(error)}
      raise
    finally:
      client.key_value_set(key, json.dumps(answer))
    return answer
  began = time.monotonic()
  while True:
    asked = time.monotonic()
    try:
      text = client.blocking_key_value_get(key, int(ASK_INTERVAL_S * 1_000))
      break
    except Exception as error:
      cause = watch.cause_of(0)
      if cause is None and asked - began > LONGEST_WAIT_S:
        cause = (
          f"process 0 has told nothing of checkpoints for {LONGEST_WAIT_S:g} s."
        )
      if cause is not None:
        raise errors.InputError(cause) from error
    # Not all errors are of the time that was waited.
    time.sleep(max(0.0, asked + ASK_INTERVAL_S - time.monotonic()))
  answer = json.loads(text)
  if "error" in answer:
    raise errors.StateError(f"process 0: {answer['error']}")
  return answer


def _offer(step: int, others: Sequence[int]) -> str:
  """Returns what to do about a damaged step, for a message."""
  if not others:
    return "There is no other: bring a copy of it, or use another --workdir."
  older = [other for other in others if other < step]
  offered = f"--restore_step={(older or others)[-1]} goes on from another"
  if older:
    offered = f"--fall_back goes on from the newest whole one before, {offered}"
  return f"{offered} (there {_listed(others)})."


def _listed(steps: Sequence[int]) -> str:
  if not steps:
    return "is no checkpoint"
  are = "are steps" if len(steps) > 1 else "is step"
  return f"{are} {', '.join(map(str, steps))}"


def _move(steps: Sequence[pathlib.Path], workdir: str) -> str:
  """Moves checkpoints to a new folder of a work directory; returns it."""
  # One level deeper than where questions about a job look for its states.
  root = pathlib.Path(workdir) / _SET_ASIDE
  root.mkdir(exist_ok=True)
  taken = {path.name for path in root.iterdir()}
  folder = root / next(
    n for n in map(str, itertools.count(1)) if n not in taken
  )
  folder.mkdir()
  for path in steps:
    path.rename(folder / path.name)
  return str(folder)


@contextlib.contextmanager
def _scratch(url: str):
  """Yields an empty directory of this process on a local disk."""
  local = paths.staging(url)
  local = local.with_name(f"{local.name}-{jax.process_index()}")
  with publish.lock(local):
    # What a run that was killed left here may be newer, and is not whole.
    shutil.rmtree(local, ignore_errors=True)
    local.mkdir()
    try:
      yield local
    finally:
      shutil.rmtree(local, ignore_errors=True)


def _on_host(leaf: jax.Array) -> np.ndarray:
  """Returns a copy of an array, whole, which no later step writes over."""
  if leaf.is_fully_addressable or leaf.is_fully_replicated:
    return np.array(leaf)
  return np.array(multihost_utils.process_allgather(leaf, tiled=True))
