# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What loader workers and the process that started them share: memory.

Grain hands every array over in a new block of `/dev/shm`, whose pages the
system clears, maps twice and frees: at [64, 4096] that took ten times as long
as reading. Here a worker writes a batch into one of a few buffers, and writes
there again when nobody holds the batch any more. The memory has no name, and
so it ends with the processes, however they end, and no limit but the machine's.
"""

from collections.abc import Callable
from collections.abc import Sequence
import ctypes
import dataclasses
import functools
import itertools
import mmap
import os
import pickle
import struct
import tempfile
from typing import Any
import weakref

import numpy as np

from chomp_data import errors
from chomp_data.storage import file_maps

InputError = errors.InputError

# Buffers of a worker: of the batches that the consumer holds, and of those on
# their way: one in the queue, one before it, and two in threads of Grain. One
# that finds none free goes through the queue.
_BUFFERS = 16

# Room of a buffer. Only what was written takes memory.
_ROOM = 1 << 40
# What JAX wants of memory that it takes for its own.
_ALIGNED = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Handed:
  """A batch on its way from a worker.

  Attributes:
    pickled: The batch, without its arrays where these are in a buffer.
    buffer: Which one, or None.
    pieces: Where in it each array is.
  """

  pickled: bytes
  buffer: int | None = None
  pieces: tuple[slice, ...] = ()


class WorkerMemory:
  """What workers tell while they run, and where they put their batches.

  Each tells its process, how often it gave a sign of life, whether what ends
  its batches is on its way, and what it has read.
  """

  def __init__(self, worker_count: int, num_counts: int = 0):
    """Allocates the memory, which is freed with this object and the batches.

    Args:
      worker_count: Processes that write to it.
      num_counts: How many counts each tells of what it has read.
    """
    self._places = itertools.count()
    self._count = worker_count
    self._describe(num_counts)
    self._descriptor, self._path, close = _new_file()
    self._closes = weakref.finalize(self, close)
    size = self._first + worker_count * _BUFFERS * _ROOM
    os.ftruncate(self._descriptor, size)
    self._open()

  def _describe(self, num_counts: int) -> None:
    self._num_counts = num_counts
    # Of each worker: process, beats, whether it has ended, counts.
    self._row = struct.Struct(f"qqq{num_counts}q")
    # After all rows, which buffers are in use.
    self._states = self._count * self._row.size
    size = self._states + self._count * _BUFFERS
    self._first = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE

  def _open(self) -> None:
    # Any: types of NumPy do not say that it is a buffer.
    self._shared: Any = file_maps.shared(self._descriptor, 0, self._first)
    self._buffers: dict[int, np.ndarray] = {}

  def __getstate__(self) -> dict[str, Any]:
    # Grain pickles a loader once for each worker: each gets its own place.
    return {
      "count": self._count,
      "num_counts": self._num_counts,
      "path": self._path,
      "file": _identity(self._descriptor),
      "place": next(self._places) % self._count,
    }

  def __setstate__(self, state: dict[str, Any]) -> None:
    self._count, self._place = state["count"], state["place"]
    self._describe(state["num_counts"])
    self._descriptor = os.open(state["path"], os.O_RDWR)
    if _identity(self._descriptor) != state["file"]:
      # A number of a descriptor that is of another file by now.
      raise InputError("a loader worker began when its reader had ended.")
    self._open()
    self._tell(0, [os.getpid()])

  def tell_beats(self, beats: int) -> None:
    """Tells how often this worker gave a sign of life."""
    self._tell(1, [beats])

  def tell_counts(self, counts: Sequence[int], ended: bool = False) -> None:
    """Tells what this worker has read so far.

    Args:
      counts: Of `reads.counts`.
      ended: Whether its last batch, or its error, is on its way.
    """
    self._tell(2, [ended, *counts])

  def processes(self) -> list[int]:
    """Returns the processes of workers that have begun."""
    return [row[0] for row in self._rows() if row[0]]

  def num_absent(self) -> int:
    """Returns how many workers have not begun."""
    return self._count - len(self.processes())

  def beats(self) -> int:
    """Returns a number that changes with each worker's beats."""
    return sum(row[1] for row in self._rows())

  def ended(self) -> int:
    """Returns how many workers have told that they end."""
    return sum(row[2] for row in self._rows())

  def counts(self) -> list[int]:
    """Returns what all workers have read, summed."""
    return [sum(column) for column in zip(*self._rows(), strict=True)][3:]

  def hand_over(self, batch: Any) -> Handed:
    """Returns a batch of this worker as it is sent.

    Raises:
      Exception: If the batch cannot be pickled.
    """
    arrays: list[memoryview] = []
    pickled = pickle.dumps(
      batch, 5, buffer_callback=lambda array: arrays.append(array.raw())
    )
    pieces, size = [], 0
    for array in arrays:
      pieces.append(slice(size, size + array.nbytes))
      size += -(-array.nbytes // _ALIGNED) * _ALIGNED
    buffer = self._free_buffer() if size else None
    memory = None if buffer is None else self._memory(buffer, size)
    if buffer is None or memory is None:
      return Handed(pickle.dumps(batch, 5))
    for piece, array in zip(pieces, arrays, strict=True):
      memory[piece] = np.frombuffer(array, np.uint8)
    self._shared[self._states + buffer] = True
    return Handed(pickled, buffer, tuple(pieces))

  def take(self, handed: Handed) -> Any:
    """Returns a batch; its buffer is free when nobody holds an array of it."""
    number = handed.buffer
    if number is None:
      return pickle.loads(handed.pickled)
    size, state = handed.pieces[-1].stop, self._states + number
    # Lives as long as any array over it, or part of one.
    memory = (ctypes.c_ubyte * size).from_buffer(self._mapped(number, size))
    released = (self._shared, state, os.getpid())
    weakref.finalize(memory, _release, *released).atexit = False
    content = memoryview(memory)
    pieces = [content[piece] for piece in handed.pieces]
    return pickle.loads(handed.pickled, buffers=pieces)

  def close(self) -> None:
    """Refuses new workers, and batches that have not arrived."""
    self._closes()
    # Who asks for counts may keep this object: memory goes with the batches.
    self._buffers.clear()

  def _free_buffer(self) -> int | None:
    first = self._place * _BUFFERS
    for number in range(first, first + _BUFFERS):
      if not self._shared[self._states + number]:
        return number
    return None

  def _memory(self, number: int, size: int) -> np.ndarray | None:
    """Returns a buffer of this worker, or None where memory is lacking."""
    offset = self._first + number * _ROOM
    known = self._buffers.get(number)
    if known is None or len(known) < size:
      try:
        # Else the lack of memory would be a signal that kills.
        os.posix_fallocate(self._descriptor, offset, size)
      except OSError:
        return None
    return self._mapped(number, size)

  def _mapped(self, number: int, size: int) -> np.ndarray:
    known = self._buffers.get(number)
    if known is None or len(known) < size:
      offset = self._first + number * _ROOM
      known = file_maps.shared(self._descriptor, offset, size)
      self._buffers[number] = known
    return known

  def _tell(self, column: int, values: Sequence[int]) -> None:
    first = self._place * self._row.size + 8 * column
    struct.pack_into(f"{len(values)}q", self._shared, first, *values)

  def _rows(self) -> list[tuple[int, ...]]:
    size = self._row.size
    return [
      self._row.unpack_from(self._shared, place * size)
      for place in range(self._count)
    ]


def _new_file() -> tuple[int, str, Callable[[], None]]:
  """Returns a file's descriptor, where others open it, and what closes it."""
  if hasattr(os, "memfd_create"):
    descriptor = os.memfd_create("chomp_data")
    path = f"/proc/{os.getpid()}/fd/{descriptor}"
    return descriptor, path, functools.partial(os.close, descriptor)
  descriptor, path = tempfile.mkstemp(prefix="chomp_data")

  def close() -> None:
    os.close(descriptor)
    os.unlink(path)

  return descriptor, path, close


def _identity(descriptor: int) -> tuple[int, int]:
  status = os.fstat(descriptor)
  return status.st_dev, status.st_ino


def _release(states: np.ndarray, state: int, process: int) -> None:
  # A fork drops its own view of a batch, which its parent may still hold.
  if os.getpid() == process:
    states[state] = False
