# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A thread that counts what a run consumes, so that no checkpoint waits for it.

To sum what was consumed before a step may plan thousands of rows. A reader
that plans all rows counts them itself (`ledger`), which adds 1% to the CPU time
of [8, 2048] without `fast`; to plan them a second time here would add 6 to 12%,
by the kind of rows. If a process plans only its
part of the rows, or workers read, this thread plans all rows, slightly ahead
of the run. If a run begins at a step whose totals are unknown, it computes
them. It starts after the first batch, so as not to delay it.
"""

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
from chomp_data.threads import background

_Start = TypeVar("_Start")

# Rows planned together; few at first, because an answer waits for a group.
_FIRST_ROWS, _ROWS = 64, 4_096
# Steps that are counted ahead of the run.
_STEPS_AHEAD = 256


class BackgroundCounter(Generic[_Start]):
  """A thread that computes totals before a step and counts steps from it on."""

  def __init__(
    self,
    plan: plan_lib.Plan,
    ledger: ledger_lib.Ledger,
    step: int,
    begin: Callable[[plan_lib.Plan], _Start],
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
    self._plan: plan_lib.Plan | None = plan
    self._ledger = ledger
    self._first = self._step = step
    self._begin = begin
    self._counts = counts
    self._wake = threading.Event()
    self._closed = self._is_awaited = False
    self._thread: background.Thread | None = None
    self._start: futures.Future[_Start] = futures.Future()
    # Held while the copy of the plan is used.
    self._lock = threading.Lock()

  @property
  def begun(self) -> _Start | None:
    """What `begin` returned, or None until it has returned."""
    start = self._start
    return start.result() if start.done() and not start.exception() else None

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
    """Ends the thread; `begin` is completed if `awaited` was asked for.

    Args:
      wait: Whether to wait until the thread has ended, for at most 5 s. If it
        takes longer, the end of the process waits for it.
    """
    self._closed = True
    thread = self._thread
    if thread is not None and (self._start.done() or not self._is_awaited):
      thread.stop()
    self._wake.set()
    if thread is not None and wait:
      thread.join(background.STOP_S)

  def _at_exit(self) -> None:
    thread = self._thread
    assert thread is not None
    thread.stop()
    self._wake.set()
    thread.stop_at_exit()

  def wait_begun(self) -> None:
    """Waits until `begin` has returned, if the thread was started."""
    if self._thread is not None:
      futures.wait([self._start])

  def awaited(self) -> "futures.Future[_Start] | None":
    """Returns what `begin` will return, also if the counter is closed now.

    A checkpoint that is being saved needs it. None if no thread is running.
    """
    if self._thread is None or self._closed:
      return None
    self._is_awaited = True
    return self._start

  def call(self, work: Callable[[_Start], Any]) -> Any:
    """Waits for `begin`, and calls a function with what it returned.

    Args:
      work: Called while the thread does not use its copy of the plan.
    """
    start = self._start.result()
    with self._lock:
      return work(start)

  def _work(self, pickled: bytes) -> None:
    failure: Exception = errors.InputError(
      "the process ended before what its input had consumed was counted. Resume"
      " from an earlier checkpoint."
    )
    try:
      plan = pickle.loads(pickled)
      self._start.set_result(self._begin(plan))
      if self._counts:
        self._count(plan)
    except Exception as error:  # Raised where a state is asked for.
      logging.debug("the run is not counted", exc_info=True)
      failure = error
    except background.Stopped:
      pass
    finally:
      if not self._start.done():
        self._start.set_exception(failure)

  def _count(self, plan: plan_lib.Plan) -> None:
    step, rows = self._first, _FIRST_ROWS
    limit = plan_lib.step_limit(plan)
    while not self._closed and step < limit:
      if step >= self._step + _STEPS_AHEAD:
        self._wake.wait()
        self._wake.clear()
        continue
      end = min(step + _STEPS_AHEAD, limit)
      with self._lock:
        steps = next(ledger_lib.groups(plan, step, end, rows))
        self._ledger.add(steps, plan.planned(steps.start, len(steps)))
      rows = min(2 * rows, _ROWS)
      step = steps.stop
