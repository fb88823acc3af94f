"""The thread that reads and places batches ahead of the consumer.

It ends with the iterator it reads for, with a failure, or with the process,
and its workers with it.
"""

import atexit
from collections.abc import Callable
import multiprocessing
import queue
import threading
import time
from typing import Any
import weakref

import grain
import jax

# A live worker is silent only while it reads; a dead one for ever.
_DEAD_WORKER_GRACE_S = 5.0
_POLL_S = 0.25
# A thread that waits for a stopped worker is left behind.
_STOP_THREAD_S = 5.0
_STOP_WORKER_S = 2.0


class InputError(RuntimeError):
  """The input failed; the iterator stays failed."""


class _End:
  """Marks the end of the batches, or the error that ended them."""

  def __init__(self, error: BaseException | None):
    self.error = error


def _close(iterator: grain.DataLoaderIterator) -> None:
  """Stops the workers of a Grain iterator and frees their shared memory.

  Grain 0.2.18 has no public way: without this its batches in flight stay in
  shared memory until the process ends.
  """
  close = getattr(getattr(iterator, "_iterator", None), "close", None)
  if close is not None:
    close()


# Those whose threads may still run.
_readers: weakref.WeakSet = weakref.WeakSet()


def _stop_at_exit(reader: "Reader") -> None:
  """Stops a reader's thread before the interpreter goes.

  A thread that is inside JAX or Grain when the interpreter finalizes is ended
  by an exception that C++ does not let through: the process would abort.
  """
  if not _readers:
    # After JAX has registered its own, so that it runs before them.
    atexit.unregister(_stop_readers)
    atexit.register(_stop_readers)
  _readers.add(reader)


def _stop_readers() -> None:
  for reader in list(_readers):
    reader.stop()


class Reader:
  """Reads and places batches in a thread, `depth` ahead."""

  def __init__(self, loader, place: Callable, depth: int):
    self._ready: queue.Queue = queue.Queue(maxsize=depth)
    self._stopped = threading.Event()
    self._others = set(multiprocessing.active_children())
    self._workers: list[Any] = []
    self._ended: _End | None = None
    self._thread = threading.Thread(
      target=self._run, args=(loader, place), daemon=True, name="chomp_data"
    )
    self._thread.start()
    _stop_at_exit(self)

  def get(self, step: int, timeout_s: float) -> dict[str, jax.Array]:
    """Returns the next batch; raises StopIteration at the end."""
    deadline = time.monotonic() + timeout_s
    dead_since = None
    while self._ended is None:
      try:
        item = self._ready.get(timeout=_POLL_S)
      except queue.Empty:
        now = time.monotonic()
        self._find_workers()
        dead = [p for p in self._workers if not p.is_alive()]
        dead_since = (dead_since or now) if dead else None
        if dead_since and now - dead_since > _DEAD_WORKER_GRACE_S:
          raise InputError(
            f"a loader worker died before step {step} (exit codes"
            f" {[p.exitcode for p in dead]}). See its log above; resume from"
            " a checkpoint."
          ) from None
        if now > deadline:
          raise InputError(
            f"no batch for step {step} within {timeout_s:g} s. A worker or"
            " the store hangs; resume from a checkpoint, or raise"
            " `config.data.timeout_s`."
          ) from None
        continue
      if not isinstance(item, _End):
        return item
      self._ended = item
    if self._ended.error is not None:
      raise self._ended.error
    raise StopIteration

  def stop(self) -> None:
    """Ends the thread; batches read ahead are dropped."""
    self._stopped.set()
    if threading.current_thread() is self._thread:
      return  # Collected where it reads: it ends by itself.
    self._find_workers()
    deadline = time.monotonic() + _STOP_THREAD_S
    while self._thread.is_alive() and time.monotonic() < deadline:
      try:
        self._ready.get_nowait()
      except queue.Empty:
        self._thread.join(timeout=_POLL_S)
        if any(not p.is_alive() for p in self._workers):
          # Grain waits for ever for a worker that is gone; so would a join.
          break
    for worker in self._workers:
      if not self._thread.is_alive():
        worker.join(timeout=_STOP_WORKER_S)
      if worker.is_alive():
        worker.kill()
        worker.join(timeout=_STOP_WORKER_S)

  def _run(self, loader, place) -> None:
    iterator = iter(loader)
    try:
      iterator.start_prefetch()
      for batch in iterator:
        self._find_workers()
        self._put(place(batch))
        if self._stopped.is_set():
          break
      end = _End(None)
    except BaseException as error:
      end = _End(error)
    self._put(end)
    _close(iterator)

  def _find_workers(self) -> None:
    # Grain starts them at its first batch and does not say which they are.
    if not self._workers:
      self._workers = [
        child
        for child in multiprocessing.active_children()
        if child not in self._others
      ]

  def _put(self, item) -> None:
    while not self._stopped.is_set():
      try:
        self._ready.put(item, timeout=_POLL_S)
        return
      except queue.Full:
        continue
