# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""One process of several: it says that it lives, and ends when another fails.

Python cannot leave a blocked collective, so a thread beside the iterators
watches the other processes and ends this one. Processes hear of each other
through the key-value store of JAX's coordination service, which needs no
device. Process 0 keeps that service: where it dies, JAX itself aborts the
others at once, with that cause in their logs.
"""

import atexit
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import functools
import json
import math
import os
import sys
import threading
import time
from typing import Any
import weakref

from absl import logging

# A process that was silent for 30 s is dead; JAX waits for 100 s.
BEAT_S = 3.0
DEAD_BEATS = 10

_DIRECTORY = "chomp_data/alive/"
_NEEDED = (
  "blocking_key_value_get",
  "key_value_delete",
  "key_value_dir_get",
  "key_value_set",
)
# Longest that a log which nobody reads may keep a process from ending.
_LOG_S = 5.0


def client() -> Any:
  """Returns the client of JAX's coordination service, or None without one.

  All that this package uses of JAX's private modules is here. Also None where
  a version of JAX no longer has them.
  """
  state = _distributed()
  service = getattr(state, "client", None)
  if getattr(state, "num_processes", 1) < 2:
    return None
  return service if all(hasattr(service, name) for name in _NEEDED) else None


def _distributed() -> Any:
  # A process that has not imported it is alone: nothing is imported for this.
  module = sys.modules.get("jax._src.distributed")
  return getattr(module, "global_state", None)


def listing(service: Any, directory: str) -> dict[int, Any]:
  """Returns what processes have written to a directory, by process.

  Args:
    service: The client of JAX's coordination service.
    directory: A prefix of keys, each of which ends with `/` and a process.
  """
  return {
    int(key.rsplit("/", 1)[1]): json.loads(value)
    for key, value in service.key_value_dir_get(directory)
  }


@dataclasses.dataclass(eq=False)
class WatchedIterator:
  """An open iterator of a watched process.

  Attributes:
    processes: Those that it shares batches with, this one included.
    ends: Whether this process ends when another fails, and at once.
    grace_s: Otherwise, how long the process has to call this package.
    cause: What failed on another process, or None.
    known: By process, the number of its last failure that needs no answer.
  """

  processes: Sequence[int]
  ends: bool = True
  grace_s: float = 0.0
  cause: str | None = None
  known: dict[int, float] = dataclasses.field(default_factory=dict)


class _PeerStatus:
  """The last record of a process, and how many beats ago it was."""

  def __init__(self):
    self.record: dict[str, Any] = {}
    self.silent = 0
    # Beats since it failed.
    self.failed = 0

  def add(self, record: dict[str, Any], beats: int = 1) -> None:
    same = record == self.record
    self.silent = self.silent + beats if same else 0
    self.failed = self.failed + beats if record.get("cause") else 0
    self.record = record

  @property
  def has_left(self) -> bool:
    return self.record.get("state") in ("closed", "ended")

  @property
  def is_dead(self) -> bool:
    return self.silent >= DEAD_BEATS and not self.has_left


class Watch:
  """This process's word to the others, and what it hears of them."""

  def __init__(self, client: Any, process: int):
    """Begins to tell and to listen.

    Args:
      client: Of JAX's coordination service.
      process: This process.
    """
    self._client = client
    self.process = process
    self._members: weakref.WeakSet[WatchedIterator] = weakref.WeakSet()
    self._opened = False
    self._heard: dict[int, _PeerStatus] = {}
    # Why nothing is heard of any, or None.
    self._deaf: str | None = None
    self._beats = 0
    self.failures: int = 0
    # {"cause", "late", "number"} of this process.
    self._failure: dict[str, Any] = {}
    self._ends = True
    # Beats since another is gone too, after what failed here.
    self._alone = 0
    self._start_error: str | None = None
    # A failure that was logged and not raised yet, and the seconds left for it.
    self._unraised: tuple[str, float] | None = None
    # Held where iterators open, close or are told of a failure.
    self._lock = threading.Lock()
    self._leaving = False
    self._settled = threading.Event()
    self._ended = False
    self._done = threading.Event()
    self._wake = threading.Event()
    self._thread = threading.Thread(
      target=self._run, daemon=True, name="chomp_data-watch"
    )
    self._thread.start()
    # After JAX has registered its own, so that it runs before them.
    atexit.register(self._at_exit)

  def open(self, member: WatchedIterator) -> None:
    """Begins to watch the processes of an iterator."""
    self._opened = True
    with self._lock:
      self._members.add(member)
    self._wake.set()

  def close(self, member: WatchedIterator) -> None:
    """Watches them no more for this iterator."""
    with self._lock:
      self._unraised = None
      self._members.discard(member)

  def met(self) -> None:
    """Notes that the program has called this package, and is not blocked."""
    with self._lock:
      self._unraised = None

  def started(self, error: BaseException | None) -> None:
    """Remembers why there may be no iterator, to tell it at the end."""
    self._start_error = None if error is None else format_error(error)

  def report(
    self, cause: str, *, late: bool = False, ends: bool = True
  ) -> None:
    """Tells the others that this process has failed.

    Args:
      cause: One sentence, for their logs.
      late: Whether they may be failing alike: then they have as long as a
        dead process to end by themselves.
      ends: Whether this process may be ended once the others are gone.
    """
    if self._failure:
      return
    self.failures += 1
    self._ends = ends
    self._failure = {"cause": cause, "late": late, "number": self.failures}
    logging.error("%s Telling the other processes.", cause)
    self._wake.set()

  def recover(self, late: bool = False) -> None:
    """Takes back what `report` has told; with `late`, only if it was that."""
    if not late or self._failure.get("late"):
      self._failure = {}
      self._alone = 0

  def cause_of(self, process: int) -> str | None:
    """Returns why a process that has told something cannot go on, or None."""
    if process == 0 and self._deaf is not None:
      return self._deaf
    heard = self._heard.get(process)
    if heard is None:
      return None
    ended = heard.record.get("state") == "ended"
    if "cause" in heard.record and (ended or not heard.record["late"]):
      return heard.record["cause"]
    if ended:
      return f"process {process} has ended. See its log."
    return _death(process) if heard.is_dead else None

  def has_closed(self, process: int) -> bool:
    """Returns whether a process has closed its iterators, or ended."""
    heard = self._heard.get(process)
    return heard is not None and heard.has_left

  def is_starting(self, process: int) -> bool:
    """Returns whether a process lives and has not had an iterator yet."""
    heard = self._heard.get(process)
    return heard is not None and heard.record.get("state") == "starting"

  def _record(self) -> dict[str, Any]:
    self._beats += 1
    state = "running" if self._members else "closed"
    if not self._opened:
      state = "starting"
    if self._ended:
      state = "ended"
    return {"state": state, "beat": self._beats, **self._failure}

  def _exchange(self) -> dict[int, dict[str, Any]]:
    """Tells the others how this process is, and returns what they tell."""
    key = f"{_DIRECTORY}{self.process}"
    if self._beats:
      # Of these calls only this one ends where the service does not answer.
      self._client.blocking_key_value_get(key, int(BEAT_S * 1_000))
    self._client.key_value_set(key, json.dumps(self._record()), True)
    return listing(self._client, _DIRECTORY)

  def _run(self) -> None:
    try:
      self._watch()
    finally:
      self._done.set()
    failed = self._failure and not self._settled.is_set()
    if self._ended and failed and self._ends:
      # JAX's own end waits long for processes that are gone.
      time.sleep(3 * BEAT_S)
      os._exit(1)

  def _watch(self) -> None:
    missed, counted = 0, -math.inf
    while client() is self._client:
      began = time.monotonic()
      # What wakes this one makes the others no more silent.
      beats = int(began - counted > 0.9 * BEAT_S)
      counted = began if beats else counted
      self._wake.clear()
      self._end_overdue(beats)
      last = self._ended
      try:
        records = self._exchange()
      except Exception as error:
        # Once is an accident, or JAX is being shut down.
        missed += 1
        if missed >= DEAD_BEATS:
          self._deaf = cause = (
            "process 0, which keeps JAX's coordination service, has not"
            f" answered for {DEAD_BEATS * BEAT_S:g} s ({error})."
          )
          self._act(0, math.inf, cause)
      else:
        missed, self._deaf = 0, None
        self._hear(records, beats)
      if last:
        return
      self._wake.wait(max(0.0, BEAT_S - (time.monotonic() - began)))

  def _hear(self, records: dict[int, dict[str, Any]], beats: int) -> None:
    with self._lock:
      members = list(self._members)
    peers = {process for member in members for process in member.processes}
    causes: dict[int, tuple[float, str]] = {}
    # Of those that will not come to the same end by themselves.
    certain: list[str] = []
    for process in sorted((peers | records.keys()) - {self.process}):
      heard = self._heard.setdefault(process, _PeerStatus())
      heard.add(records.get(process, {}), beats)
      if "cause" in heard.record:
        if not heard.record["late"] or heard.failed > DEAD_BEATS:
          causes[process] = heard.record["number"], heard.record["cause"]
          if not heard.record["late"]:
            certain.append(heard.record["cause"])
      elif heard.is_dead:
        causes[process] = math.inf, _death(process)
        certain.append(_death(process))
    if self._failure and not self._failure["late"]:
      # The error is on its way up here; it may meet a collective there.
      self._alone += beats * bool(causes)
      if self._ends and self._alone > DEAD_BEATS:
        self._end(self._failure["cause"])
      return
    if self._failure and self._ends and not members and certain:
      # It may wait for others where it handles its error: to end a save.
      self._end(certain[0])
    for process, (number, cause) in causes.items():
      self._act(process, number, cause)
    if self._leaving:
      self._settle(causes)
    elif not self._opened:
      self._end_early()

  def _settle(self, causes: Mapping[int, tuple[float, str]]) -> None:
    """Lets this process go, which an error ends, once the cause is known.

    Of an error in a collective the cause may be on another process.
    """
    for _, cause in causes.values():
      self._end(cause)
    heard = self._heard.values()
    if all(peer.has_left or "cause" in peer.record for peer in heard):
      self._settled.set()

  def _end_early(self) -> None:
    """Ends this process if it can have no iterator: another has ended.

    It may wait for that one in JAX before there are any devices.
    """
    for process, heard in self._heard.items():
      if heard.failed > DEAD_BEATS and heard.has_left:
        self._end(heard.record["cause"])
      if heard.is_dead and heard.silent > DEAD_BEATS + 3:
        self._end(_death(process))

  def _act(self, process: int, number: float, cause: str) -> None:
    """Ends this process, or lets iterators raise, once for each failure."""
    with self._lock:
      # Of the iterators that are open now: one may have closed meanwhile.
      concerned = [
        member
        for member in self._members
        if process in member.processes and number > member.known.get(process, 0)
      ]
      ends = any(member.ends for member in concerned)
      graces = [member.grace_s for member in concerned if member.cause is None]
      for member in concerned:
        member.known[process] = number
        member.cause = cause
      unraised = None
      if graces and not ends and self._unraised is None:
        self._unraised = unraised = cause, max(graces)
    if ends:
      self._end(cause)
    if unraised is not None:
      log = functools.partial(_log_wait, self.process, *unraised)
      _within(_LOG_S, log)

  def _end_overdue(self, beats: int) -> None:
    """Ends this process if it has not called this package for too long.

    Time is counted in beats: where this process was stopped, none pass.
    """
    unraised = self._unraised
    if unraised is None:
      return
    cause, left = unraised
    if left <= 0:
      self._end(cause)
    with self._lock:
      # Unless it has called meanwhile.
      if self._unraised is unraised:
        self._unraised = cause, left - beats * BEAT_S

  def _end(self, cause: str) -> None:
    """Ends this process; threads in collectives cannot be waited for."""
    if self._ended:
      return
    number = self.failures + 1
    self._failure = {"cause": cause, "late": False, "number": number}
    _within(_LOG_S, lambda: _log_end(self.process, cause))
    with contextlib.suppress(Exception):
      _within(BEAT_S, self._exchange)
    if getattr(_distributed(), "service", None) is not None:
      # JAX aborts the others when this one goes: they log the cause first.
      time.sleep(3 * BEAT_S)
    os._exit(1)

  def _at_exit(self) -> None:
    """Tells the others that this process ends, and why."""
    error = getattr(sys, "last_value", None)
    if self._start_error is not None:
      self.report(f"process {self.process} ended: {self._start_error}.")
    elif isinstance(error, Exception):
      # The others may be ending alike.
      self.report(
        f"process {self.process} ended: {format_error(error)}.", late=True
      )
      # Nothing is raised any more, and JAX would wait for those that are gone.
      self._ends = True
    if self._failure.get("late") and self._ends:
      self._leaving = True
      self._wake.set()
      logging.info("waiting for what other processes say of this error")
      self._settled.wait((DEAD_BEATS + 3) * BEAT_S)
    self._ended = True
    self._wake.set()
    # A thread inside JAX would abort the process when the interpreter goes.
    self._done.wait(2 * BEAT_S)


_lock = threading.Lock()
_watch: Watch | None = None


def this_process() -> Watch | None:
  """Returns the watch of this process, None where it is alone."""
  global _watch
  service = client()
  if service is None:
    return None
  with _lock:
    if _watch is None or _watch._client is not service:
      _watch = Watch(service, _distributed().process_id)
    return _watch


@contextlib.contextmanager
def starting() -> Iterator[None]:
  """Reports start-up failures to the other processes.

  They wait while it lasts, and log the cause where this process ends.
  """
  watch = this_process()
  try:
    yield
  except Exception as error:
    if watch is not None:
      watch.started(error)
    raise
  if watch is not None:
    watch.started(None)


def format_error(error: BaseException) -> str:
  """Returns an error as other processes log it, without a last dot."""
  return f"{type(error).__name__}: {error}".rstrip(".")


def _death(process: int) -> str:
  silence = f"nothing was heard of it for {DEAD_BEATS * BEAT_S:g} s"
  return f"process {process} died, or lost its network: {silence}."


def _within(seconds: float, function: Callable[[], Any]) -> None:
  """Runs a function that may block, for so long."""
  thread = threading.Thread(target=function, daemon=True)
  thread.start()
  thread.join(seconds)


def _log_wait(process: int, cause: str, seconds: float) -> None:
  logging.error(
    "%s It is raised where process %d next calls its iterator. If it does not"
    " within %g s, as in a collective with that process, it is ended.",
    cause,
    process,
    seconds,
  )
  logging.flush()


def _log_end(process: int, cause: str) -> None:
  logging.error("ending process %d: %s", process, cause)
  logging.flush()
  sys.stdout.flush()
  sys.stderr.flush()
