# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Engines: they call one pure function for each task, in any process.

Results come in any order; what a task writes depends on the task alone, so
engine and number of workers change nothing but the time. A new engine is a
function that makes it and an entry in `ENGINES`.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import concurrent.futures
from concurrent.futures import process as futures_process
import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
from typing import Protocol
from typing import TypeVar

from chomp_data import errors
from chomp_data.prepare import progress
from chomp_data.threads import semaphores

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

_PR_SET_PDEATHSIG = 1
# Tasks that are submitted ahead for each worker; others are not made yet.
_TASKS_AHEAD = 4


class Engine(Protocol):
  """Calls functions on tasks."""

  def run(
    self,
    function: Callable[[_Task], _Result],
    tasks: Sequence[_Task],
    on_progress: progress.Callback = lambda done, documents: None,
  ) -> Iterator[tuple[int, _Result]]:
    """Calls a function for each task.

    Args:
      function: Importable by name.
      tasks: What to call it with; items may be made when they are read.
      on_progress: May be called with the bytes and the documents that are done
        of tasks that have not been yielded.

    Yields:
      (number of the task, result), in any order.

    Raises:
      PrepareError: If a worker dies. Errors of the function are raised as they
        are, and few further tasks are begun.
    """
    ...

  def close(self) -> None:
    """Ends what it has started."""
    ...


class Pool:
  """The engine `pool`: processes of this machine, kept until it is closed."""

  def __init__(self, workers: int):
    """Starts none yet.

    Args:
      workers: Processes; 0 and 1 stay in this one.
    """
    self._workers = workers
    self._pool: concurrent.futures.ProcessPoolExecutor | None = None

  def run(
    self,
    function: Callable[[_Task], _Result],
    tasks: Sequence[_Task],
    on_progress: progress.Callback = lambda done, documents: None,
  ) -> Iterator[tuple[int, _Result]]:
    """Calls a function for each task; see `Engine`."""
    if self._workers <= 1 or len(tasks) <= 1:
      for number, task in enumerate(tasks):
        progress.set_callback(on_progress)
        try:
          result = function(task)
        finally:
          progress.set_callback(None)
        yield number, result
      return
    pool = self._started()
    numbers: dict[concurrent.futures.Future[_Result], int] = {}
    next_number = 0
    done = False
    try:
      while next_number < len(tasks) or numbers:
        with _one_thread():
          while len(numbers) < _TASKS_AHEAD * self._workers and (
            next_number < len(tasks)
          ):
            future = pool.submit(function, tasks[next_number])
            numbers[future] = next_number
            next_number += 1
        ended, _ = concurrent.futures.wait(
          numbers, return_when=concurrent.futures.FIRST_COMPLETED
        )
        for future in ended:
          yield numbers.pop(future), future.result()
      done = True
    except futures_process.BrokenProcessPool:
      raise errors.PrepareError(
        f"A worker of --workers={self._workers} died, perhaps for lack of"
        " memory. Run again, with fewer workers: what is done is kept."
      ) from None
    finally:
      if not done:
        self.close()

  def close(self) -> None:
    """Ends the processes; tasks that they have not begun are left out."""
    if self._pool is not None:
      self._pool.shutdown(wait=True, cancel_futures=True)
      self._pool = None

  def _started(self) -> concurrent.futures.ProcessPoolExecutor:
    if self._pool is None:
      semaphores.name_and_sweep()
      # It starts as many as there are tasks.
      self._pool = concurrent.futures.ProcessPoolExecutor(
        self._workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin_worker,
        initargs=(os.getpid(),),
      )
    return self._pool


def _beam(workers: int, flags: Sequence[str], directory: str) -> Engine:
  # Only who asks for it has it installed.
  from chomp_data.prepare import beam_engine

  return beam_engine.Beam(flags, workers, directory)


# By name, of (workers, flags of its own, a directory or URL for it).
ENGINES: dict[str, Callable[..., Engine]] = {
  "pool": lambda workers, flags, directory: Pool(workers),
  "beam": _beam,
}


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
  """Limits processes that are spawned meanwhile to one thread of OpenBLAS.

  Starting its threads takes a quarter of the time that a worker takes to start.
  """
  name = "OPENBLAS_NUM_THREADS"
  before = os.environ.get(name)
  os.environ[name] = "1"
  try:
    yield
  finally:
    if before is None:
      del os.environ[name]
    else:
      os.environ[name] = before


def _begin_worker(parent: int) -> None:
  """Has a worker end with its parent, however the parent ends."""
  if sys.platform == "linux":
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
  # The parent may have died before that.
  if os.getppid() != parent:
    os._exit(1)
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  # A worker uses one core: the tokenizer must not start threads.
  os.environ["TOKENIZERS_PARALLELISM"] = "false"
