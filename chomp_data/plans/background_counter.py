# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A thread that counts what a run consumes, so that no checkpoint waits for it.

To sum what was consumed before a step may plan thousands of rows. A reader
that plans all rows counts them itself (`ledger`). If a process plans only its
part of the rows, or workers read, this thread plans all rows, slightly ahead
of the run. If a run begins at a step whose totals are unknown, it computes
them. It starts after the first batch, so as not to delay it.
"""

import collections
from collections.abc import Callable
from concurrent import futures
import functools
import pickle
import threading
from typing import Any
from typing import Generic
from typing import TypeVar

from absl import logging

from chomp_data import errors
from chomp_data.plans import ledger as ledger_lib
from chomp_data.plans import plan as plan_lib
from chomp_data.stores import background

_Work = TypeVar("_Work")

# Rows planned together; few at first, because an answer waits for a group.
_FIRST_ROWS, _ROWS = 64, 4_096
# Steps that are counted ahead of the run.
_STEPS_AHEAD = 256
# The thread starts this long after the first batch was read, so that it does
# not compete with the use of that batch for the interpreter.
_FIRST_USED_S = 0.01


class BackgroundCounter(Generic[_Work]):
  """A thread that computes totals before a step and counts steps from it on.

  Attributes:
    begun: What `begin` returned, or None until it has returned.
  """

  def __init__(
    self,
    plan: plan_lib.Plan,
    ledger: ledger_lib.Ledger,
    step: int,
    begin: Callable[[plan_lib.Plan], _Work],
    counts: bool,
  ):
    """Prepares the thread, which `reached` starts after the first batch.

    Args:
      plan: The run, of which the thread gets a copy.
      ledger: Where steps are counted.
      step: The first step that is read.
      begin: Called first in the thread, with the copy of the plan.
      counts: Whether the thread also plans and counts steps.
    """
    self.begun: _Work | None = None
    self._plan: plan_lib.Plan | None = plan
    self._ledger = ledger
    self._first = self._step = step
    self._begin = begin
    self._counts = counts
    self._wake, self._has_begun = threading.Event(), threading.Event()
    self._needed = threading.Event()
    self._closed = self._ended = self._answering = False
    self._thread: background.Thread | None = None
    self._lock = threading.Lock()
    self._asked: collections.deque[
      tuple[futures.Future[Any], Callable[[_Work], Any]]
    ] = collections.deque()

  def reached(self, step: int) -> None:
    """Records the step of the run, and starts the thread."""
    self._step = step
    if self._thread is None:
      pickled, self._plan = pickle.dumps(self._plan), None
      self._thread = background.Thread(
        functools.partial(self._work, pickled), "accounts", self._at_exit
      )
      self._thread.start()
    end = self._ledger.end
    if end is not None and step + _STEPS_AHEAD // 2 > end:
      self._wake.set()

  def close(self, wait: bool = True) -> None:
    """Ends the thread.

    Functions passed to `ask` before are still called, because checkpoints that
    are being saved need their results. Other work is interrupted.

    Args:
      wait: Whether to wait until the thread has ended, for at most 5 s. If it
        takes longer, the end of the process waits for it.
    """
    with self._lock:
      self._closed = True
      thread, busy = self._thread, self._asked or self._answering
    if thread is not None and not busy:
      thread.stop()
    self._needed.set()
    self._wake.set()
    if thread is not None and wait:
      thread.join(background.STOP_S)

  def _at_exit(self) -> None:
    thread = self._thread
    assert thread is not None
    thread.stop()
    self._needed.set()
    self._wake.set()
    thread.stop_at_exit()

  def wait_begun(self) -> None:
    """Waits until `begin` has returned, if the thread was started."""
    if self._thread is not None:
      self._needed.set()
      self._has_begun.wait()

  def ask(self, work: Callable[[_Work], Any]) -> "futures.Future[Any] | None":
    """Calls a function in the thread, after `begin` and between counted groups.

    Args:
      work: Called in the thread with what `begin` returned.

    Returns:
      A future of what `work` returns; None if no thread is running.
    """
    future: futures.Future[Any] = futures.Future()
    with self._lock:
      if self._thread is None or self._closed or self._ended:
        return None
      self._asked.append((future, work))
    self._needed.set()
    self._wake.set()
    return future

  def _answer(
    self, failure: Exception | None = None, is_last: bool = False
  ) -> None:
    """Calls the functions that `ask` has queued.

    Args:
      failure: The error of `begin`, if it failed.
      is_last: Whether `ask` accepts no function afterwards.
    """
    while True:
      with self._lock:
        self._answering = bool(self._asked)
        if not self._asked:
          self._ended = is_last
          return
        future, work = self._asked.popleft()
      try:
        if self.begun is None:
          raise failure or _interrupted()
        future.set_result(work(self.begun))
      except background.Stopped:
        future.set_exception(_interrupted())
        raise
      except Exception as error:  # Raised where the answer is asked for.
        future.set_exception(error)

  def _work(self, pickled: bytes) -> None:
    failure = None
    try:
      self._needed.wait(_FIRST_USED_S)
      plan = pickle.loads(pickled)
      self.begun = self._begin(plan)
      self._has_begun.set()
      if self._counts:
        self._count(plan)
    except Exception as error:  # Raised where a state is asked for.
      logging.debug("the run is not counted", exc_info=True)
      failure = error
    except background.Stopped:
      pass
    finally:
      self._has_begun.set()
      self._answer(failure, is_last=True)

  def _count(self, plan: plan_lib.Plan) -> None:
    step, rows = self._first, _FIRST_ROWS
    while not self._closed and step < plan.step_limit:
      self._answer()
      if step >= self._step + _STEPS_AHEAD:
        self._wake.wait()
        self._wake.clear()
        continue
      end = min(step + _STEPS_AHEAD, plan.step_limit)
      steps = next(ledger_lib.groups(plan, step, end, rows))
      rows = min(2 * rows, _ROWS)
      self._ledger.add(steps, plan.planned(steps.start, len(steps)))
      step = steps.stop


def _interrupted() -> errors.InputError:
  return errors.InputError(
    "the process ended before what its input had consumed was counted. Resume"
    " from an earlier checkpoint."
  )
