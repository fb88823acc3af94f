# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The thread that reads and places batches ahead of the consumer.

It ends with the iterator it reads for, with a failure, or with the process,
and its workers with it.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import functools
import multiprocessing
import os
import queue
import signal
import threading
import time
from typing import Any

import grain
import jax

from chomp_data.loading import handover
from chomp_data.loading import workers
from chomp_data.threads import background
from chomp_data.threads import heartbeat

# A live worker is silent only while it reads; a dead one for ever.
DEAD_WORKER_GRACE_S = 5.0
_POLL_S = 0.25
# Longest start of workers before the first batch, whatever `timeout_s`: they
# import what they need.
_START_S = 60.0
_STOP_WORKER_S = 2.0


InputError = workers.InputError


class _End:
  """Marks the end of the batches, or the error that ended them."""

  def __init__(self, error: BaseException | None):
    self.error = error


def _died(step: int, dead: Sequence[Any]) -> InputError:
  numbers = ", ".join(str(worker.pid) for worker in dead)
  who = f"before step {step} loader worker {numbers}"
  codes = [worker.exitcode or 0 for worker in dead]
  return InputError(workers.died(who, codes))


# One reader starts its workers at a time, so that it knows which are its own.
starting: threading.Lock = threading.Lock()


class Reader:
  """Reads and places batches in a thread, `depth` ahead."""

  def __init__(
    self,
    loader: Any,
    place: Callable,
    depth: int,
    worker_memory: handover.WorkerMemory | None = None,
    *,
    sums: Callable[[int], Any] | None = None,
    first_step: int = 0,
  ):
    """Begins to read.

    Args:
      loader: Makes an iterator over host batches.
      place: Puts a host batch on devices.
      depth: Batches kept ready.
      worker_memory: Where the loader's processes tell what happens; None where
        it starts none. It is closed when they have ended.
      sums: Of the step that the loader has given; with `worker_memory` they
        come with the batches.
      first_step: The loader's first.
    """
    self._sums = sums
    self._first_step = first_step
    self._ready: queue.Queue = queue.Queue(maxsize=depth)
    self._closing = False
    self._worker_memory = worker_memory
    # Children of others, while this reader starts its own.
    self._others: set[Any] | None = None
    self._workers: list[Any] = []
    # Whether it holds `starting`; who takes it out of here lets others start.
    self._turn: list[bool] = []
    self._ended: _End | None = None
    self._process = os.getpid()
    self._starts_until = time.monotonic() + _START_S
    self._thread = background.Thread(
      functools.partial(self._run, loader, place), "chomp_data", self._at_exit
    )
    self._stopped = self._thread.stopping
    self._thread.start()

  def get(
    self,
    step: int,
    timeout_s: float,
    check: Callable[[], object] | None = None,
  ) -> tuple[dict[str, jax.Array], Any]:
    """Returns the next batch and its sums; raises StopIteration at the end.

    Args:
      step: The step, for messages.
      timeout_s: Longest wait without a batch and without a sign of life: a
        pass over a store, such as packing an epoch, takes what it takes.
      check: Called now and then while it waits; may raise an error.
    """
    now = time.monotonic()
    deadline = now + timeout_s
    dead_since, beats = None, self._beats()
    while self._ended is None:
      try:
        item = self._ready.get(timeout=max(min(_POLL_S, deadline - now), 0.0))
      except queue.Empty:
        if check is not None:
          check()
        now, last = time.monotonic(), beats
        beats = self._beats()
        if beats != last or self._workers_start(now):
          deadline = now + timeout_s
        dead = [p for p in self._known_workers() if not p.is_alive()]
        # What ends a worker's batches waits for its turn, however long those
        # of other workers take.
        lost = (
          self._worker_memory is not None
          and len(dead) > self._worker_memory.ended()
        )
        dead_since = (dead_since or now) if lost else None
        if dead_since:
          self._check_bus(step)
        if dead_since and now - dead_since > DEAD_WORKER_GRACE_S:
          raise self._worker_error() or _died(step, dead) from None
        if now >= deadline:
          raise self._worker_error() or InputError(
            f"no batch for step {step} within {timeout_s:g} s, nor a sign of"
            " planning. A worker or the store hangs; resume from a checkpoint,"
            " or raise `config.data.timeout_s`."
          ) from None
        continue
      if not isinstance(item, _End):
        self._starts_until = 0.0
        return item
      self._ended = item
    if (error := self._ended.error) is not None:
      self._check_bus(step)
      dead = [p for p in self._known_workers() if p.exitcode]
      if dead and isinstance(error, workers.EndedError):
        # Grain tells its code, and not which it was.
        raise _died(step, dead) from None
      raise error
    raise StopIteration

  def stop(self, at_once: bool = False) -> bool:
    """Ends the thread; batches read ahead are dropped.

    Args:
      at_once: Kill workers and leave the thread behind: after a failure
        neither may ever answer.

    Returns:
      False where the thread is left behind.
    """
    self._thread.stop()
    if self._thread.is_current():
      return True  # Collected where it reads: it ends by itself.
    if os.getpid() != self._process:
      return True  # A fork has neither the thread nor the workers.
    # A thread that waits for a stopped worker is left behind.
    deadline = time.monotonic() + (0.0 if at_once else background.STOP_S)
    while self._thread.is_alive() and time.monotonic() < deadline:
      try:
        self._ready.get_nowait()
      except queue.Empty:
        self._thread.join(timeout=_POLL_S)
        dead = any(not p.is_alive() for p in self._known_workers())
        if dead and not self._closing:
          # Grain waits for ever for a worker that is gone; so would a join.
          break
    for worker in self._known_workers():
      if not self._thread.is_alive():
        worker.join(timeout=_STOP_WORKER_S)
      if worker.is_alive():
        worker.kill()
        worker.join(timeout=_STOP_WORKER_S)
    # A thread that waits for a worker that is gone never comes to it.
    self._let_others_start()
    return self._thread.join(max(0.0, deadline - time.monotonic()))

  def _at_exit(self) -> None:
    """Stops the thread and the workers at the end of the process."""
    if self.stop():
      return
    if self._worker_memory is not None:
      workers.leave_at_exit()
    else:
      self._thread.stop_at_exit()

  def _run(self, loader: Any, place: Callable) -> None:
    iterator = None
    try:
      iterator = iter(loader)
      for step, item in enumerate(self._batches(iterator), self._first_step):
        batch, sums = self._with_sums(step, item)
        self._put((place(batch), sums))
        if self._stopped.is_set():
          break
      end = _End(None)
    except BaseException as error:
      end = _End(error)
    self._put(end)
    if iterator is not None:
      # From here on workers end because they are told to.
      self._closing = True
      if isinstance(iterator, workers.WorkerIterator):
        iterator.stop_workers()
    if self._worker_memory is not None:
      self._worker_memory.close()

  def _with_sums(self, step: int, item: Any) -> tuple[Any, Any]:
    if self._worker_memory is not None:
      return item
    return item, None if self._sums is None else self._sums(step)

  def _beats(self) -> int:
    worker_memory = self._worker_memory
    return heartbeat.beats() if worker_memory is None else worker_memory.beats()

  def _check_bus(self, step: int) -> None:
    """Says what a worker died of where its own words would say nothing."""
    codes = [worker.exitcode for worker in self._known_workers()]
    if -signal.SIGBUS in codes:
      raise InputError(
        f"a loader worker died of SIGBUS before step {step}: a file of a store"
        " was cut while it was read, or its disk failed. Mend the store; resume"
        " from a checkpoint."
      )

  def _worker_error(self) -> BaseException | None:
    """Returns what a worker failed with, where that is slow to arrive."""
    return None if self._worker_memory is None else self._worker_memory.error()

  def _workers_start(self, now: float) -> bool:
    worker_memory = self._worker_memory
    waits = worker_memory is not None and not worker_memory.begun()
    return waits and now < self._starts_until

  def _batches(self, iterator: grain.DataLoaderIterator) -> Iterator[Any]:
    """Yields batches; Grain starts its workers at the first one."""
    if self._worker_memory is None:
      iterator.start_prefetch()
      yield from iterator
      return
    while not starting.acquire(timeout=_POLL_S):
      if self._stopped.is_set():
        return
    self._turn.append(True)
    try:
      self._others = set(multiprocessing.active_children())
      iterator.start_prefetch()
      first = next(iterator, None)
    finally:
      self._known_workers()
      self._others = None
      self._let_others_start()
    if first is not None:
      yield first
      yield from iterator

  def _let_others_start(self) -> None:
    """Ends this reader's turn, once, whichever thread says so."""
    with contextlib.suppress(IndexError):
      self._turn.pop()
      starting.release()

  def _known_workers(self) -> list[Any]:
    """Returns this reader's processes, those that are being started too."""
    others = self._others
    if others is not None:
      # Children that have ended are no longer listed: none is forgotten.
      self._workers += [
        child
        for child in multiprocessing.active_children()
        if child not in others
        and child not in self._workers
        and child.name.startswith(workers.NAME)
      ]
    return self._workers

  def _put(self, item: Any) -> None:
    while not self._stopped.is_set():
      try:
        self._ready.put(item, timeout=_POLL_S)
        return
      except queue.Full:
        continue
