# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What goes between loader workers and the process that started them.

Workers end with it, however it ends: a killed main process cannot stop
Grain's workers; they would wait for ever for someone to take their batches,
and hold memory and shared memory. Errors of workers are raised with their text.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import functools
import multiprocessing
from multiprocessing import connection
from multiprocessing import util
import os
import pickle
import re
import signal
import threading
import traceback
from typing import Any

import grain

from chomp_data import errors
from chomp_data.loading import handover
from chomp_data.loading import reads as reads_lib
from chomp_data.threads import heartbeat
from chomp_data.threads import semaphores

InputError = errors.InputError

# How Grain's names of its workers begin.
NAME = "grain-process-prefetch"

# Where Linux keeps shared memory, and what locks of Grain 0.2.18 take of it by
# worker: 25 of them, a page each.
SHARED = "/dev/shm"
_LOCKS_BYTES = 2**18

# How Grain 0.2.18 says that one ended.
_ENDED = re.compile(r"Worker process was terminated.* exit code (-?\d+)\.")

# What a worker ends with that would start workers of its own.
_NO_GUARD = 78
_GUARD = (
  "a program whose loader has workers must be importable without reading, got"
  " one that reads as it is imported: workers import it. Put what it does under"
  " `if __name__ == '__main__':`, or set `config.data.worker_count` to 0."
)


def may_help(is_mapped: bool, operations: Sequence[Any]) -> bool:
  """Returns whether processes that read may be faster than this one.

  Files that are mapped are read ahead by the system, and then a batch costs
  less than handing it over. Transforms of a user may take any time.

  Args:
    is_mapped: Whether all stores are files that are mapped into memory.
    operations: A user's transforms over batches.
  """
  return bool(operations) or not is_mapped


class EndedError(InputError):
  """A worker has ended before its batches did."""


class LastOperation:
  """The last of a loader's operations where workers read: faults arrive.

  Grain sends what a worker made through a queue that pickles it in a thread
  of its own. What does not survive that is dropped there: an exception would
  never come, and the batch after a dropped one would be taken for it.
  """

  def __init__(self, source: Any, memory: handover.WorkerMemory):
    """Remembers what is read, and where batches are put.

    Args:
      source: The loader's source, with `reads` and `certificate_sums`.
      memory: What workers share with the process that started them.
    """
    # In a worker this is the very object that Grain reads through.
    self._source = source
    self._memory = memory

  def __call__(self, input_iterator: Iterator[Any]) -> Iterator[Any]:
    """Yields a worker's records: the batches and their sums, handed over."""
    heartbeat.on_beat(self._memory.tell_beats)
    heartbeat.beat()
    record = True
    while record is not None:
      try:
        with errors_arrive():
          record = next(input_iterator, None)
          if record is not None:
            sums = self._source.certificate_sums(record.metadata.record_key)
            record.data = self._memory.hand_over((record.data, sums))
      except Exception:
        record = None
        raise
      finally:
        counts = reads_lib.counts(self._source.reads.by_source())
        self._memory.tell_counts(counts, ended=record is None)
      if record is not None:
        yield record


class WorkerLoader(grain.DataLoader):
  """A loader whose workers hand batches over in memory that is used again.

  Its states are those of `grain.DataLoader`.
  """

  def __init__(self, **options: Any):
    """Binds options of `grain.DataLoader`, with workers."""
    super().__init__(**options)
    self._of_workers: dict[str, Any] = options

  def __iter__(self) -> "WorkerIterator":
    return WorkerIterator(self._of_workers)


class WorkerIterator(grain.DataLoaderIterator):
  """Batches of workers; its state is Grain's.

  Attributes:
    memory: What the workers share with this process.
    sums: The certificate's sums of the last batch.
  """

  memory: handover.WorkerMemory
  sums: Any = None

  def __init__(self, options: Mapping[str, Any]):
    """Begins with the loader's first step."""
    check_guard()
    semaphores.name_and_sweep()
    self._options = options
    self._begin()

  def _begin(self) -> None:
    """Prepares new workers."""
    options, source = self._options, self._options["data_source"]
    self.memory = handover.WorkerMemory(
      options["worker_count"], len(reads_lib.counts(source.reads.by_source()))
    )
    last = LastOperation(source, self.memory)
    loader = grain.DataLoader(
      **{**options, "operations": [*options["operations"], last]}
    )
    super().__init__(loader, state=None)

  def __next__(self) -> Any:
    try:
      handed = super().__next__()
    except RuntimeError as error:
      ended = _ENDED.match(str(error))
      if ended is None:
        raise
      code = int(ended[1])
      if code == _NO_GUARD:
        self.stop_workers()
        raise InputError(_GUARD) from None
      raise EndedError(died("a loader worker", [code])) from None
    batch, self.sums = self.memory.take(handed)
    return batch

  def set_state(self, state: bytes) -> None:
    """Goes on where a state was saved; see `grain.DataLoaderIterator`."""
    # Others: what those at work have on its way is not taken.
    self.stop_workers()
    self._begin()
    super().set_state(state)

  def stop_workers(self) -> None:
    """Stops the workers.

    Grain 0.2.18 has no public way: without this they run until the process
    ends. Not called `close`, which a `yield from` would call.
    """
    self._iterator.close()


@contextlib.contextmanager
def errors_arrive() -> Iterator[None]:
  """Raises what does not survive pickling as an `InputError` with its text."""
  try:
    yield
  except Exception as error:
    if _survives(error):
      raise
    text = "".join(traceback.format_exception(error))
    kind = type(error)
    raise InputError(
      f"a loader worker failed with {kind.__module__}.{kind.__qualname__}, an"
      " exception that cannot"
      f" be pickled; in the worker it was:\n{text}"
    ) from None


def died(who: str, codes: Sequence[int]) -> str:
  """Returns a sentence about workers that have ended, for an error.

  Args:
    who: Which they are.
    codes: What each has ended with; below 0 the signal that killed it.
  """
  ends = [
    f"was killed by signal {-code}"
    if code < 0
    else f"ended by itself with exit code {code}"
    for code in codes
  ]
  by_itself = (
    " A transform or a library that it calls ends the process; with"
    " `config.data.worker_count` = 0 it is this one, and can be debugged."
  )
  advice = by_itself * any(code >= 0 for code in codes)
  if -signal.SIGKILL in codes:
    advice += " The system kills so where memory runs out."
  if -signal.SIGBUS in codes:
    advice += (
      " The signal is SIGBUS: a file of a store was cut while it was read, or"
      " its disk failed. Mend the store."
    )
  return (
    f"{who} {', '.join(ends)}. See its log above; resume from a checkpoint."
    f"{advice}"
  )


def _survives(error: Exception) -> bool:
  try:
    # Exceptions whose constructor takes other arguments fail at `loads` only.
    copy = pickle.loads(pickle.dumps(error))
    return type(copy) is type(error) and str(copy) == str(error)
  except Exception:
    return False


def check_guard() -> None:
  """Ends a worker that does what the program that it imports does."""
  if multiprocessing.current_process().name.startswith(NAME):
    # In silence: the program itself is told, and each worker would repeat it.
    os._exit(_NO_GUARD)


def have_room(count: int) -> bool:
  """Returns whether the locks of some workers find shared memory."""
  # What killed runs left there takes room, too.
  semaphores.name_and_sweep()
  try:
    space = os.statvfs(SHARED)
  except OSError:
    return True  # A system that keeps it elsewhere.
  return space.f_bavail * space.f_frsize >= count * _LOCKS_BYTES


def leave_at_exit() -> None:
  """Keeps this process from waiting at its end for workers that are gone.

  A worker that is killed may hold a lock of Grain's, as it does for some
  microseconds of each batch. Who stops it then waits for that lock for ever:
  a thread, which is left behind, and what Grain has done at exit.
  """
  for finalizer in list(vars(util)["_finalizer_registry"].values()):
    if vars(finalizer)["_callback"].__module__.startswith("grain."):
      finalizer.cancel()


@functools.cache
def end_with_parent() -> None:
  """Ends this process when its parent does; does nothing in a main process."""
  parent = multiprocessing.parent_process()
  if parent is not None:
    threading.Thread(
      target=_wait_and_exit, args=(parent.sentinel,), daemon=True
    ).start()


def _wait_and_exit(sentinel: int) -> None:
  connection.wait([sentinel])
  # Nobody is left to report to, and threads may hang in a full queue.
  os._exit(1)
