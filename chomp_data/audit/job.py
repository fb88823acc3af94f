# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How far a running job is: what a trainer writes, and others read.

`job.json` in the work directory says at which step the trainer is, and whether
it still runs. A job without such a file is as far as its newest checkpoint, and
so is one whose work directory is in a bucket.
"""

from collections.abc import Mapping
import dataclasses
import json
import os
import pathlib
import socket
import time
from typing import Any
from typing import Self

from chomp_data import errors
from chomp_data import joining
from chomp_data import pipeline
from chomp_data.loading import saved_states
from chomp_data.loading import state as state_lib
from chomp_data.storage import opening
from chomp_data.storage import publish

RUNNING = "running"

_FILE = "job.json"
# Not more often: a file system of many hosts is not written to at each step.
_EVERY_S = 1.0


@dataclasses.dataclass(frozen=True)
class JobState:
  """How far a job is.

  Attributes:
    step: The step that it is at, or ended before.
    status: 'running', 'finished', 'stopped' or 'failed'; 'gone' where its
      process ended without a word; None where only checkpoints tell.
    fingerprint: What its newest checkpoint says of its input, or None.
    saved_step: The step of that checkpoint, or None.
    input: The digest of the fingerprint of the input that it reads, which may
      have changed since that checkpoint; or None.
  """

  step: int
  status: str | None
  fingerprint: dict[str, Any] | None = None
  saved_step: int | None = None
  input: str | None = None

  @property
  def ended(self) -> bool:
    """Whether it will take no more steps."""
    return self.status not in (RUNNING, None)

  def run_of(self, pipe: pipeline.Pipeline) -> pipeline.Pipeline:
    """Returns the job's run.

    Args:
      pipe: The run as the job's config says: a checkpoint tells at which epochs
        stores joined, and when steps got other sizes.

    Raises:
      StateError: If the checkpoint is of another run; what lies ahead of it may
        be other.
      StoreError: If a store cannot be opened.
    """
    if self.fingerprint is None or self.saved_step is None:
      return pipe
    if self.input is not None:
      # Since its checkpoint it may have gone on with what it was allowed to.
      run = pipeline.continued(
        pipe, self.fingerprint, self.saved_step, resize=True
      )
      if state_lib.digest(run.fingerprint) == self.input:
        return run
    run = pipeline.continued(pipe, self.fingerprint, self.saved_step)
    lines = differences(run, self.fingerprint, self.saved_step)
    options = joining.with_sizes_of(pipe.run_options, self.fingerprint)
    if lines and options is not pipe.run_options:
      pipe = pipeline.Pipeline(options)
      run = pipeline.continued(pipe, self.fingerprint, self.saved_step)
      lines = differences(run, self.fingerprint, self.saved_step)
    if not lines:
      return run
    raise errors.StateError(
      f"the config must be that of the job's checkpoint of step"
      f" {self.saved_step}, got another:\n  "
      + "\n  ".join(lines)
      + "\nGive the config and the options that the job was last resumed with."
    )


def differences(
  run: pipeline.Pipeline, saved: Mapping[str, Any], step: int
) -> list[str]:
  """Returns where a run differs before a step from the fingerprint of a state.

  Transforms are left out: those of a program are in no config.
  """
  saved = {k: v for k, v in saved.items() if k != "operations"}
  return state_lib.differences(
    # Stores may join ahead of the state.
    joining.until(run.run_plan, saved, step),
    joining.until(run.run_plan, run.fingerprint, step),
    step,
  )


class Report:
  """Tells how far this process's job is; a context that says how it ends.

  Attributes:
    status: How it ends, unless it fails.
    input: See `JobState`.

  It tells nothing where `workdir` is a URL: files there are not replaced once
  a second.
  """

  def __init__(self, workdir: str, writes: bool = True):
    """Binds a work directory.

    Args:
      workdir: The job's.
      writes: Whether this process does: one of a job.
    """
    self._path = pathlib.Path(workdir) / _FILE
    self._writes = writes and not opening.open_storage(workdir).is_remote
    self._last = -_EVERY_S
    self._step = 0
    self.status: str = "finished"
    self.input: str | None = None

  def at(self, step: int) -> None:
    """Says that the job is at a step, at most once a second."""
    self._step = step
    now = time.monotonic()
    if now - self._last >= _EVERY_S:
      self._last = now
      self._write(RUNNING)

  def __enter__(self) -> Self:
    return self

  def __exit__(self, kind: object, *_: object) -> None:
    self._write("failed" if kind is not None else self.status)

  def _write(self, status: str) -> None:
    if not self._writes:
      return
    values = {
      "step": self._step,
      "status": status,
      "host": socket.gethostname(),
      "pid": os.getpid(),
      "input": self.input,
    }
    with publish.staged_file(self._path, durable=False) as file:
      file.write(f"{json.dumps(values)}\n".encode())


def continued(
  pipe: pipeline.Pipeline, directory: str
) -> tuple[pipeline.Pipeline, int]:
  """Returns a job's run, and the step that it is at.

  Args:
    pipe: The run as the job's config says.
    directory: Of the job, or of one of its checkpoints.

  Raises:
    StateError: If there is no job, or it is of another config.
    StoreError: If a store or a bucket cannot be read.
  """
  state = begun(directory)
  return state.run_of(pipe), state.step


def begun(directory: str) -> JobState:
  """Returns how far a job is, as `read`.

  Raises:
    StateError: If it has not said anything, too.
  """
  state = read(directory)
  if state is not None:
    return state
  raise errors.StateError(
    f"{directory} must be the work directory of a job or hold a checkpoint of"
    f" its input, got neither {_FILE} nor a checkpoint there. Give the"
    " --workdir of its trainer, or one of its checkpoints."
  )


def read(workdir: str) -> JobState | None:
  """Returns how far a job is, or None before it has said anything.

  Args:
    workdir: The job's work directory, or of one step of its checkpoints, or of
      its input in there.

  Raises:
    StateError: If there is no such directory, or its files are damaged.
    StoreError: If the bucket cannot be read.
  """
  record = saved_states.find(workdir)
  saved = None if record is None else _saved(record)
  is_remote = opening.open_storage(workdir).directory is None
  if is_remote or saved_states.is_one(workdir):
    return saved
  reported = _reported(pathlib.Path(workdir) / _FILE)
  if reported is None:
    return saved
  if saved is None:
    return reported
  # One that failed before it had read its checkpoint says step 0.
  return dataclasses.replace(
    saved,
    step=max(reported.step, saved.step),
    status=reported.status,
    input=reported.input,
  )


def _reported(path: pathlib.Path) -> JobState | None:
  if not path.exists():
    return None
  try:
    values = json.loads(path.read_text())
    step, status = int(values["step"]), str(values["status"])
    host, pid = values["host"], int(values["pid"])
    input_digest = values.get("input")
  except (ValueError, KeyError, TypeError) as error:
    raise errors.StateError(
      f"{path} must be what a trainer wrote, got {error!r}. Remove it."
    ) from error
  if status == RUNNING and host == socket.gethostname() and not _lives(pid):
    status = "gone"
  return JobState(step, status, input=input_digest)


def _lives(pid: int) -> bool:
  try:
    os.kill(pid, 0)
  except ProcessLookupError:
    return False
  except PermissionError:
    return True
  return True


def _saved(record: Mapping[str, Any]) -> JobState:
  """Returns what a checkpoint's state tells."""
  return JobState(record["step"], None, record["fingerprint"], record["step"])
