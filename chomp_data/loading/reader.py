# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The thread that reads and places batches ahead of the consumer.

It ends with the iterator it reads for, with a failure, or with the process,
and its workers with it.
"""

from collections.abc import Callable
from collections.abc import Mapping
import functools
import multiprocessing
import os
import queue
import time
from typing import Any
import weakref

import jax

from chomp_data.loading import workers
from chomp_data.threads import background
from chomp_data.threads import heartbeat

# A live worker is silent only while it reads; a dead one for ever.
DEAD_WORKER_GRACE_S = 5.0
_POLL_S = 0.25
# Longest wait for the first batch of workers, whatever `timeout_s`: they import
# what they need.
_START_S = 60.0
_STOP_WORKER_S = 2.0


InputError = workers.InputError

# Worker processes whose reader is known.
_known: weakref.WeakSet[Any] = weakref.WeakSet()


class _End:
  """Marks the end of the batches, or the error that ended them."""

  def __init__(self, error: BaseException | None):
    self.error = error


class Reader:
  """Reads and places batches in a thread, `depth` ahead."""

  def __init__(
    self,
    loader: Any,
    place: Callable[[int, Any], Any],
    depth: int,
    sums: Callable[[int], Any] | None = None,
    first_step: int = 0,
  ):
    """Begins to read.

    Args:
      loader: Makes an iterator over host batches.
      place: Puts the host batch of a step on devices.
      depth: Batches kept ready.
      sums: Of the step that the loader has given; workers send them.
      first_step: The loader's first.
    """
    self._sums = sums
    self._first_step = first_step
    self._ready: queue.Queue = queue.Queue(maxsize=depth)
    self._closing = False
    self._source: Any = None
    # Processes of any reader's workers, by pid.
    self._children: dict[Any, Any] = {}
    self._ended: _End | None = None
    self._process = os.getpid()
    # Whether workers may still be starting.
    self._starts = isinstance(loader, workers.WorkerLoader)
    self._thread = background.Thread(
      functools.partial(self._run, loader, place), "chomp_data", self._at_exit
    )
    self._stopped = self._thread.stopping
    self._thread.start()

  @property
  def _memory(self) -> Any:
    """What workers share with this process; None without workers."""
    return getattr(self._source, "memory", None)

  def worker_counts(self) -> list[int]:
    """Returns what workers have read; see `reads.counts`."""
    return [] if self._memory is None else self._memory.counts()

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
    deadline = now + (max(timeout_s, _START_S) if self._starts else timeout_s)
    dead_since, beats = None, self._beats()
    while self._ended is None:
      try:
        item = self._ready.get(timeout=max(min(_POLL_S, deadline - now), 0.0))
      except queue.Empty:
        if check is not None:
          check()
        now, last = time.monotonic(), beats
        beats = self._beats()
        if beats != last:
          deadline = max(deadline, now + timeout_s)
        # What ends a worker's batches waits for its turn, however long those
        # of other workers take.
        lost = self._lost()
        ended = self._memory.ended() if self._memory else 0
        dead_since = (dead_since or now) if len(lost) > ended else None
        if dead_since and now - dead_since > DEAD_WORKER_GRACE_S:
          raise self._died(step, lost) from None
        if now >= deadline:
          raise InputError(
            f"no batch for step {step} within {timeout_s:g} s, nor a sign of"
            " planning. A worker or the store hangs; resume from a checkpoint,"
            " or raise `config.data.timeout_s`."
          ) from None
        continue
      if not isinstance(item, _End):
        self._starts = False
        return item
      self._ended = item
    error = self._ended.error
    if isinstance(error, workers.EndedError):
      lost = self._lost()
      if any(code is not None for code in lost.values()):
        # Grain tells its code, and not which it was.
        raise self._died(step, lost) from None
    if error is not None:
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
        if self._lost() and not self._closing:
          # Grain waits for ever for a worker that is gone; so would a join.
          break
    for worker in filter(None, self._workers().values()):
      if not self._thread.is_alive():
        worker.join(timeout=_STOP_WORKER_S)
      if worker.is_alive():
        worker.kill()
        worker.join(timeout=_STOP_WORKER_S)
    return self._thread.join(max(0.0, deadline - time.monotonic()))

  def _at_exit(self) -> None:
    """Stops the thread and the workers at the end of the process."""
    if self.stop():
      return
    if self._memory is not None:
      workers.leave_at_exit()
    else:
      self._thread.stop_at_exit()

  def _run(self, loader: Any, place: Callable[[int, Any], Any]) -> None:
    try:
      self._source = iterator = iter(loader)
      iterator.start_prefetch()
      for step, batch in enumerate(iterator, self._first_step):
        if self._memory is not None:
          sums = iterator.sums
        else:
          sums = None if self._sums is None else self._sums(step)
        self._put((place(step, batch), sums))
        if self._stopped.is_set():
          break
      end = _End(None)
    except BaseException as error:
      end = _End(error)
    self._put(end)
    # From here on workers end because they are told to.
    self._closing = True
    if self._memory is not None:
      self._source.stop_workers()
      self._memory.close()

  def _beats(self) -> int:
    return heartbeat.beats() if self._memory is None else self._memory.beats()

  def _died(self, step: int, lost: Mapping[int, int | None]) -> InputError:
    """Returns the error of workers that have ended, of `_lost`."""
    codes = {pid: code for pid, code in lost.items() if code is not None}
    pids = ", ".join(map(str, codes or lost))
    who = f"before step {step} loader worker {pids}"
    if not codes:
      return InputError(
        f"{who} has ended. See its log above; resume from a checkpoint."
      )
    return InputError(workers.died(who, list(codes.values())))

  def _lost(self) -> dict[int, int | None]:
    """Returns the exit codes of this reader's workers that have ended, by pid.

    None is of one that ended before it was listed here: Python forgets those.
    One that has not said its pid may still start, which takes as long as its
    imports; one that ended before it said it may be this reader's.
    """
    lost: dict[int, int | None] = {}
    for pid, worker in self._workers().items():
      if worker is None:
        lost[pid] = None
      elif not worker.is_alive():
        lost[pid] = worker.exitcode
    absent = 0 if self._memory is None else self._memory.num_absent()
    nobodys = [
      child
      for child in self._children.values()
      if child not in _known and not child.is_alive()
    ]
    lost.update((child.pid, child.exitcode) for child in nobodys[:absent])
    return lost

  def _workers(self) -> dict[int, Any]:
    """Returns this reader's processes by pid, None of one that was forgotten.

    They are those that have said their pid in the shared memory.
    """
    if self._memory is None:
      return {}
    # Those that have ended are no longer listed: none is forgotten.
    self._children |= {
      child.pid: child
      for child in multiprocessing.active_children()
      if child.name.startswith(workers.NAME)
    }
    begun = {pid: self._children.get(pid) for pid in self._memory.processes()}
    _known.update(filter(None, begun.values()))
    return begun

  def _put(self, item: Any) -> None:
    while not self._stopped.is_set():
      try:
        self._ready.put(item, timeout=_POLL_S)
        return
      except queue.Full:
        continue
