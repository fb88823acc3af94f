"""Work directories: what a run writes, in a directory or in a bucket.

Orbax writes to directories that all processes share. Of a work directory in a
bucket, process 0 writes whole checkpoints to a local disk, in the background,
and mirrors them; each process brings the newest one to its own disk and reads
it there, by itself, so that no disk is shared. Other files of a run are
mirrored with each checkpoint, before it is complete.
"""

from collections.abc import Sequence
from concurrent import futures
import contextlib
import os
import pathlib
import shutil
from typing import Any

from etils import epath
import jax
from jax.experimental import multihost_utils
import numpy as np
import orbax.checkpoint as ocp

from chomp_data import errors
from chomp_data.reference import mirror
from chomp_data.stores import places
from chomp_data.stores import publish

_CHECKPOINTS = "checkpoints"


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
    folders: Sequence[str] = (),
  ):
    """Makes the directory; brings what a run goes on with from a bucket.

    Args:
      path: A directory, or the URL of a place in a bucket.
      keep: How many of the newest checkpoints are kept; None keeps all.
      files: Files that a run goes on writing.
      folders: Folders in which a run removes files of later steps by name.

    Raises:
      StoreError: If there cannot be such a directory, the bucket cannot be
        read, or another process of this machine has the same work directory.
    """
    self.path: str = path if places.is_url(path) else os.path.abspath(path)
    self._mirror: mirror.Mirror | None = None
    self._files: mirror.Files | None = None
    with contextlib.ExitStack() as stack:
      options = ocp.CheckpointManagerOptions(max_to_keep=keep)
      local = pathlib.Path(self.path)
      if places.is_url(path):
        self.path = places.at(path).path
        local = stack.enter_context(_scratch(self.path))
        self._mirror = mirror.Mirror(self.checkpoints, keep)
        step = self._mirror.newest()
        (local / _CHECKPOINTS).mkdir()
        if step is not None:
          self._mirror.fetch(step, local / _CHECKPOINTS / str(step))
        if jax.process_index() == 0:
          self._files = mirror.Files(self.path, local, (_CHECKPOINTS,))
          self._files.fetch(files, folders)
        own = jax.process_index()
        options = ocp.CheckpointManagerOptions(
          max_to_keep=1,
          create=False,
          enable_async_checkpointing=False,
          # It knows of no other process.
          multiprocessing_options=ocp.options.MultiprocessingOptions(
            primary_host=own,
            active_processes={own},
            barrier_sync_key_prefix=f"alone_{own}",
          ),
        )
      _make(local)
      self.directory: epath.Path = epath.Path(local)
      self.manager: ocp.CheckpointManager = ocp.CheckpointManager(
        self.directory / _CHECKPOINTS, options=options
      )
      stack.callback(self.manager.close)
      # One thread writes and sends, so that Orbax needs none of its own.
      self._thread = stack.enter_context(futures.ThreadPoolExecutor(1))
      self._sent: futures.Future | None = None
      self._stack = stack.pop_all()

  @property
  def checkpoints(self) -> str:
    """The directory or URL of the checkpoints, for messages."""
    return places.join(self.path, _CHECKPOINTS)

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
    if self._mirror is None:
      if step not in self.manager.all_steps():
        self._write(step, model, others)
      return
    self._wait()
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
    self._wait()
    if self._files is not None:
      self._files.send()

  def close(self) -> None:
    """Lets what is being written come to its end."""
    self._stack.close()

  def _wait(self) -> None:
    if self._sent is not None:
      sent, self._sent = self._sent, None
      sent.result()

  def _write(self, step: int, model: Any, others: dict[str, Any]) -> None:
    items = {"model": ocp.args.StandardSave(model), **others}
    self.manager.save(step, args=ocp.args.Composite(**items))

  def _write_and_send(
    self,
    kept: mirror.Mirror,
    step: int,
    model: Any,
    others: dict[str, Any],
  ) -> None:
    self._write(step, model, others)
    if self._files is not None:
      self._files.send()
    kept.send(step, pathlib.Path(self.directory, _CHECKPOINTS, str(step)))


def _make(path: pathlib.Path) -> None:
  """Makes a directory, which may be there."""
  try:
    path.mkdir(parents=True, exist_ok=True)
  except OSError as error:
    raise errors.StoreError(
      f"the work directory must be one that is there or can be made, got {path}"
      f" ({error.strerror}). Give another --workdir."
    ) from error


@contextlib.contextmanager
def _scratch(url: str):
  """Yields an empty directory of this process on a local disk."""
  local = places.staging(url)
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
