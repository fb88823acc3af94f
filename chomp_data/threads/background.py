# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Threads of this package, all of which end before the interpreter does.

A thread that returns from C++ code, such as an array that TensorStore opens,
while the interpreter finalizes is ended by CPython (before 3.14) in a way that
C++ does not allow: the process aborts ("terminate called without an active
exception", status 134). So each thread is asked to stop and is waited for:
where the iterator that it works for is closed, and at exit. Long work calls
`check`, or `heartbeat.beat`, between its parts and so ends soon.
"""

import atexit
from collections.abc import Callable
import threading
import time

# Longest that `close` waits for a thread, and that the process waits at its
# end. A thread that does not end in that time is blocked by the system, such as
# in a device or a file system that does not answer.
STOP_S = 5.0
EXIT_S = 60.0


class Stopped(BaseException):
  """Ends the work of a thread that was asked to stop. It is no error."""


# Those that have not ended.
_running: set["Thread"] = set()


class Thread:
  """A thread that ends when it is asked to, or with the process.

  Threads that are started from within one are its children: what stops it
  stops them too.

  Attributes:
    stopping: Set once it was asked to stop.
  """

  def __init__(
    self,
    work: Callable[[], object],
    name: str,
    at_exit: Callable[[], object] | None = None,
  ):
    """Prepares a thread.

    Args:
      work: What it does.
      name: Its name, in lists of threads and in logs.
      at_exit: Called at the end of the process in place of `stop` and a wait
        of up to 60 s.
    """
    self.stopping: threading.Event = threading.Event()
    self._work = work
    self._children: set[Thread] = set()
    self._parent: Thread | None = None
    self._at_exit = at_exit or self.stop_at_exit
    # A daemon: the interpreter waits for others before it calls `atexit`, and
    # nobody would have asked them to stop.
    self._thread = _OfThread(self, name)

  def start(self) -> None:
    """Starts it; a thread that was asked to stop starts none."""
    check()
    self._parent = _current()
    if self._parent is not None:
      self._parent._children.add(self)
    _running.add(self)
    # Last, so that it is called before what JAX and others have registered.
    atexit.unregister(_end_all)
    atexit.register(_end_all)
    try:
      self._thread.start()
    except BaseException:
      self._ended()
      raise

  def is_alive(self) -> bool:
    """Returns whether it runs."""
    return self._thread.is_alive()

  def is_current(self) -> bool:
    """Returns whether it is the thread that asks."""
    return threading.current_thread() is self._thread

  def stop(self) -> None:
    """Asks it and its children to stop."""
    self.stopping.set()
    for child in list(self._children):
      child.stop()

  def join(self, timeout: float | None = None) -> bool:
    """Waits for it and its children; returns whether all have ended.

    Called from within the thread, it waits for the children alone.

    Args:
      timeout: Seconds; None waits until they have.
    """
    until = None if timeout is None else time.monotonic() + timeout
    if self.is_alive() and not self.is_current():
      self._thread.join(timeout)
    ended = self.is_current() or not self.is_alive()
    for child in list(self._children):
      left = None if until is None else max(0.0, until - time.monotonic())
      ended &= child.join(left)
    return ended

  def stop_at_exit(self) -> None:
    """Stops it, and waits as long as the process may at its end."""
    self.stop()
    if self.join(STOP_S):
      return
    # Here: workers of prepare import this module, and nothing that is heavy.
    from absl import logging

    name = self._thread.name
    logging.info(
      "waiting up to %g s for the thread %r to end", EXIT_S - STOP_S, name
    )
    if not self.join(EXIT_S - STOP_S):
      logging.warning(
        "the thread %r has not ended in %g s: a device or a file system does"
        " not answer it. The process ends without it.",
        name,
        EXIT_S,
      )

  def _run(self) -> None:
    try:
      self._work()
    except Stopped:
      pass
    finally:
      self._ended()

  def _ended(self) -> None:
    _running.discard(self)
    if self._parent is not None:
      self._parent._children.discard(self)


class _OfThread(threading.Thread):
  """Python's thread of a `Thread`."""

  def __init__(self, owner: Thread, name: str):
    super().__init__(target=owner._run, name=name, daemon=True)
    self.owner: Thread = owner


def check() -> None:
  """Ends the work of the thread that calls it if it was asked to stop.

  Raises:
    Stopped: If so. In threads that are not of this package it does nothing.
  """
  thread = _current()
  if thread is not None and thread.stopping.is_set():
    raise Stopped


def _current() -> Thread | None:
  thread = threading.current_thread()
  return thread.owner if isinstance(thread, _OfThread) else None


def _end_all() -> None:
  """Ends all threads at the end of the process."""
  # In a fork they are listed and do not run.
  threads = [thread for thread in list(_running) if thread.is_alive()]
  for thread in threads:
    thread.stop()
  for thread in threads:
    thread._at_exit()
