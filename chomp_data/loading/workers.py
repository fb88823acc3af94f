"""What goes between loader workers and the process that started them.

Workers end with it, however it ends: a killed main process cannot stop
Grain's workers; they would wait for ever for someone to take their batches,
and hold memory and shared memory. And what went wrong in one is told.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import functools
import itertools
import multiprocessing
from multiprocessing import connection
from multiprocessing import shared_memory
import os
import pickle
import struct
import threading
import traceback
from typing import Any

from absl import logging
import numpy as np

from chomp_data import errors
from chomp_data.loading import reads as reads_lib
from chomp_data.stores import heartbeat

InputError = errors.InputError


class SentToWorkers:
  """A Grain source that workers make anew from its arguments.

  Grain sends a source to its workers by pickling it. There it tells what it
  reads where its parent would, and the worker ends with its parent.
  """

  def arguments(self) -> dict[str, Any]:
    """Returns what its constructor takes, by name."""
    raise NotImplementedError

  def __getstate__(self) -> dict[str, Any]:
    return {**self.arguments(), "verbosity": logging.get_verbosity()}

  def __setstate__(self, state: dict[str, Any]) -> None:
    logging.set_verbosity(state.pop("verbosity"))
    logging.use_absl_handler()
    with errors_arrive():
      self.__init__(**state)
    end_with_parent()


class Board:
  """What workers tell while they run, in memory that they share.

  A worker tells how often it gave a sign of life, first when it begins,
  whether what ends its batches is on its way, and what it has read.
  """

  def __init__(self, worker_count: int, num_counts: int = 0):
    """Makes the board; `close` frees it.

    Args:
      worker_count: Processes that write to it.
      num_counts: How many counts each tells of what it has read.
    """
    self._lock = threading.Lock()
    self._places = itertools.count()
    self._count = worker_count
    # Of each worker: beats, whether it has ended, counts.
    self._row = struct.Struct(f"qq{num_counts}q")
    size = worker_count * self._row.size
    # Any: its `buf` is None only once it is closed.
    self._memory: Any = shared_memory.SharedMemory(create=True, size=size)
    self._last = [(0,) * (2 + num_counts)] * worker_count

  def __getstate__(self) -> dict[str, Any]:
    # Grain pickles a loader once for each worker: each gets its own place.
    place = next(self._places) % self._count
    return {
      "name": self._memory.name,
      "format": self._row.format,
      "place": place,
    }

  def __setstate__(self, state: dict[str, Any]) -> None:
    self._row = struct.Struct(state["format"])
    self._memory = shared_memory.SharedMemory(state["name"])
    self._first = state["place"] * self._row.size

  def tell_beats(self, beats: int) -> None:
    """Tells how often this worker gave a sign of life."""
    self._tell(0, [beats])

  def tell_end(self) -> None:
    """Tells that this worker's last batch, or its error, is on its way."""
    self._tell(1, [1])

  def tell_counts(self, counts: Sequence[int]) -> None:
    """Tells what this worker has read so far."""
    self._tell(2, counts)

  def beats(self) -> int:
    """Returns a number that changes with each worker's beats."""
    return sum(row[0] for row in self._rows())

  def begun(self) -> bool:
    """Returns whether all workers have begun to read."""
    return all(row[0] for row in self._rows())

  def ended(self) -> int:
    """Returns how many workers have told that they end."""
    return sum(row[1] for row in self._rows())

  def counts(self) -> list[int]:
    """Returns what all workers have read, summed."""
    return [sum(column) for column in zip(*self._rows(), strict=True)][2:]

  def close(self) -> None:
    """Frees the memory; what was told last is kept."""
    self._rows()
    with self._lock:
      if self._memory is not None:
        self._memory.close()
        self._memory.unlink()
        self._memory = None

  def _tell(self, column: int, values: Sequence[int]) -> None:
    struct.pack_into(
      f"{len(values)}q", self._memory.buf, self._first + 8 * column, *values
    )

  def _rows(self) -> list[tuple[int, ...]]:
    with self._lock:
      if self._memory is not None:
        size = self._row.size
        self._last = [
          self._row.unpack_from(self._memory.buf, place * size)
          for place in range(self._count)
        ]
      return self._last


class LastOperation:
  """The last of a loader's operations where workers read: faults arrive.

  Grain sends what a worker made through a queue that pickles it in a thread
  of its own. What does not survive that is dropped there: an exception would
  never come, and the batch after a dropped one would be taken for it.
  """

  def __init__(self, source: Any, board: Board | None, first_step: int = 0):
    """Remembers whom to tell.

    Args:
      source: The loader's source, with `reads`.
      board: Where to tell what happens, and then sums go with each batch, as
        (batch, sums); or None.
      first_step: The step of the loader's first record.
    """
    # In a worker this is the very object that Grain reads through.
    self._source = source
    self._board = board
    self._first_step = first_step

  def __call__(self, input_iterator: Iterator[Any]) -> Iterator[Any]:
    """Yields a worker's records as they are."""
    if self._board is not None:
      heartbeat.tell(self._board.tell_beats)
      heartbeat.beat()
    record = True
    while record is not None:
      try:
        with errors_arrive():
          record = next(input_iterator, None)
          if record is not None:
            _check_picklable(record.data)
            if self._board is not None:
              step = self._first_step + record.metadata.index
              record.data = record.data, self._source.handed_out(step)
      except Exception:
        self._tell(ends=True)
        raise
      self._tell(ends=record is None)
      if record is not None:
        yield record

  def _tell(self, ends: bool) -> None:
    if self._board is not None:
      counts = reads_lib.counts(self._source.reads.by_source())
      self._board.tell_counts(counts)
      if ends:
        self._board.tell_end()


@contextlib.contextmanager
def errors_arrive() -> Iterator[None]:
  """Raises what does not survive pickling as an `InputError` with its text."""
  try:
    yield
  except Exception as error:
    if _survives(error):
      raise
    told = "".join(traceback.format_exception(error))
    raise InputError(
      f"a loader worker failed with {_name(error)}, an exception that cannot"
      f" be pickled; in the worker it was:\n{told}"
    ) from None


def _survives(error: Exception) -> bool:
  try:
    # Exceptions whose constructor takes other arguments fail at `loads` only.
    copy = pickle.loads(pickle.dumps(error))
    return type(copy) is type(error) and str(copy) == str(error)
  except Exception:
    return False


def _name(error: Exception) -> str:
  own = type(error)
  return f"{own.__module__}.{own.__qualname__}"


def _check_picklable(batch: Any) -> None:
  fields = batch.values() if isinstance(batch, Mapping) else [batch]
  pickle.dumps(
    [
      field
      for field in fields
      if not isinstance(field, np.ndarray) or field.dtype.hasobject
    ]
  )


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
