# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Requests to object stores: run, retried with backoff, hedged and counted.

A request that fails, and an answer whose bytes are not those that were written,
are retried with backoff. Permanent errors, such as a missing permission, are
raised at once; so are damaged bytes that come again and again the same, which
are then damaged where they are stored.
"""

import asyncio
import atexit
import collections
from collections.abc import Callable
from collections.abc import Coroutine
from concurrent import futures
import contextlib
import dataclasses
import os
import pathlib
import random
import re
import threading
import time
from typing import Any
from typing import TypeVar

from chomp_data import errors
from chomp_data.threads import heartbeat

_T = TypeVar("_T")

# Seconds before each further try: 100 s in all, as long as a server restarts.
RETRY_DELAYS_S: tuple[float, ...] = (
  0.2,
  0.4,
  0.8,
  1.6,
  3.2,
  6.4,
  12.8,
  25.6,
  25.6,
  25.6,
)

# Damaged bytes that come so often in a row, each time the same, are damaged
# where they are stored: the last one comes 3 s after the first at most.
_SAME_ANSWERS = 5

# A read is sent again after so many times what half of them take, and no sooner
# than this: a stray second request is cheap, many are not.
HEDGE_FACTOR = 4.0
LEAST_HEDGE_S = 0.1
FIRST_HEDGE_S = 1.0
_MOST_HEDGED = 0.05

# A request that takes so long is taken for lost, however large.
TIMEOUT_S = 60.0

# Tries of a server that never answered: its name is wrong. They take 6 s.
_TRIES_UNREACHED = 5

# What an error of an HTTP status says. Of the client errors these are worth
# another try: timeout, too early, too many requests.
_STATUS = re.compile(r"status code: (\d{3})[^:]*")
_RETRIED_STATUS = {408, 425, 429}
_SECRET_BODY = re.compile(r"\s*(<\?xml|<Error|\{)")


@dataclasses.dataclass
class Requests:
  """Counts of requests to object stores.

  Attributes:
    requests: Requests sent, retries and hedges included.
    retries: Further tries after one that failed.
    corrupt: Answers that were too short, or not what was written.
    hedged: Second requests for what took too long to come.
    bytes_read: Bytes that came.
    bytes_written: Bytes that were sent.
  """

  requests: int = 0
  retries: int = 0
  corrupt: int = 0
  hedged: int = 0
  bytes_read: int = 0
  bytes_written: int = 0

  def add(self, more: "Requests") -> None:
    """Adds other counts."""
    for field in dataclasses.fields(self):
      value = getattr(self, field.name) + getattr(more, field.name)
      setattr(self, field.name, value)


# Of this process. Threads count into it, so it is not exact to the last one.
counts: Requests = Requests()


class DamagedAnswer(Exception):
  """An answer is not what was written; raised where a retry may help.

  Attributes:
    error: What is raised if no further answer is right.
    answer: Distinguishes it from other answers; None if its bytes are unknown.
  """

  def __init__(self, error: Exception, answer: Any = None):
    """Sets the attributes."""
    super().__init__(str(error))
    self.error: Exception = error
    self.answer: Any = answer


class Refused(Exception):
  """The condition of a conditional write does not hold."""


# Set when the process is about to end: no further try is made.
_ending = threading.Event()


def at_exit(stop: Callable[[], object]) -> None:
  """Calls a function before the interpreter waits for threads at its end.

  `atexit` calls functions after it has waited; a thread that retries requests
  would hold up the end of a process for minutes.
  """
  register = getattr(threading, "_register_atexit", atexit.register)
  register(stop)
  register(_ending.set)


class _Loop:
  """The event loop that requests of this process run in, in a thread."""

  def __init__(self):
    """Starts the thread."""
    self.loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
    self.process: int = os.getpid()
    self.is_stopped: bool = False
    self._thread = threading.Thread(
      target=self.loop.run_forever, name="chomp_data-requests", daemon=True
    )
    self._thread.start()
    at_exit(self.stop)

  def stop(self) -> None:
    """Cancels all requests, so that nothing calls Python once it ends."""

    async def cancel() -> None:
      tasks = asyncio.all_tasks() - {asyncio.current_task()}
      for task in tasks:
        task.cancel()
      await asyncio.gather(*tasks, return_exceptions=True)

    with _loop_lock:
      self.is_stopped = True
    if self.process == os.getpid() and self._thread.is_alive():
      with contextlib.suppress(Exception):
        asyncio.run_coroutine_threadsafe(cancel(), self.loop).result(5.0)
      self.loop.call_soon_threadsafe(self.loop.stop)
      self._thread.join(5.0)
      _await_idle("tokio")


def _await_idle(name: str) -> None:
  """Waits until the threads of a name are idle, for a second at most.

  A thread of obstore that has handed an answer over calls Python once more; the
  process aborts if the interpreter has ended by then.
  """
  until, num_idle = time.monotonic() + 1.0, 0
  while num_idle < 3 and time.monotonic() < until:
    time.sleep(0.002)  # Threads that wait for the interpreter get it.
    is_idle = True
    for status in pathlib.Path("/proc/self/task").glob("*/stat"):
      with contextlib.suppress(OSError):
        _, thread, state = re.split("[()]", status.read_text(), maxsplit=2)
        is_idle &= not (thread.startswith(name) and state.split()[0] == "R")
    num_idle = num_idle + 1 if is_idle else 0


_loop: _Loop | None = None
_loop_lock = threading.Lock()


def run(request: Callable[[], Coroutine[Any, Any, _T]], timeout_s: float) -> _T:
  """Runs a request in the thread of all requests, and waits for its result.

  Args:
    request: Makes the coroutine.
    timeout_s: Seconds after which it is cancelled.

  Raises:
    StoreError: If this process is a fork of one that has sent requests, whose
      threads it does not have.
    TimeoutError: If it takes longer.
  """
  global _loop

  async def bounded() -> _T:
    async with asyncio.timeout(timeout_s):
      return await request()

  with _loop_lock:
    if _loop is None:
      _loop = _Loop()
    if _loop.process != os.getpid():
      raise errors.StoreError(
        "object stores must be read in processes that were started, got a fork"
        " of a process that has read one before. Start processes with 'spawn'"
        " or 'forkserver' (`multiprocessing.set_start_method`)."
      )
    if _loop.is_stopped:
      raise TimeoutError("the process ends")
    future = asyncio.run_coroutine_threadsafe(bounded(), _loop.loop)
  try:
    return future.result()
  except futures.CancelledError:
    raise TimeoutError("the process ends") from None


class Hedging:
  """Decides when reads of a bucket that take long are sent a second time."""

  def __init__(self):
    """Nothing has been read."""
    self._seconds: collections.deque[float] = collections.deque(maxlen=64)
    self._num_sent = self._num_hedged = 0

  def after_s(self) -> float | None:
    """Returns seconds after which a read is sent again, or None for never."""
    if self._num_hedged > _MOST_HEDGED * self._num_sent + 2:
      return None
    seconds = sorted(self._seconds)
    if len(seconds) < 8:
      return FIRST_HEDGE_S
    return max(LEAST_HEDGE_S, HEDGE_FACTOR * seconds[len(seconds) // 2])

  def add(self, seconds: float, num_sent: int) -> None:
    """Counts a read.

    Args:
      seconds: That it took.
      num_sent: Requests that were sent for it.
    """
    self._seconds.append(seconds)
    self._num_sent += num_sent
    self._num_hedged += num_sent - 1


async def hedged(
  request: Callable[[], Coroutine[Any, Any, _T]],
  hedge_after_s: float | None,
  sent: Requests,
) -> _T:
  """Returns the first answer of a request, and of a second if it is slow.

  Args:
    request: Makes a coroutine that sends the request.
    hedge_after_s: Seconds after which a second request is sent; None sends
      none.
    sent: Counts the requests.
  """
  sent.requests += 1
  if hedge_after_s is None:
    return await request()
  tasks = [asyncio.ensure_future(request())]
  try:
    done, _ = await asyncio.wait(tasks, timeout=hedge_after_s)
    if not done:
      sent.requests += 1
      sent.hedged += 1
      tasks.append(asyncio.ensure_future(request()))
    pending = set(tasks)
    while True:
      done, pending = await asyncio.wait(
        pending, return_when=asyncio.FIRST_COMPLETED
      )
      for task in done:
        if task.exception() is None or not pending:
          return task.result()
  finally:
    for task in tasks:
      task.cancel()


class Retries:
  """Retries requests to one bucket.

  Attributes:
    has_answered: Whether the server has ever answered.
  """

  def __init__(self):
    """Nothing has been asked."""
    self.has_answered: bool = False

  def call(
    self,
    ask: Callable[[], _T],
    sent: Requests,
    label: str,
    error_of: Callable[[Exception, float], Exception],
  ) -> _T:
    """Returns an answer, with further tries where these may help.

    Args:
      ask: Sends a request and checks its answer. It raises DamagedAnswer for
        one that is not what was written.
      sent: Counts tries and damaged answers; added to `counts`.
      label: What is done to which object, for the log.
      error_of: From the last error and the seconds since the first try, what is
        raised.
    """
    try:
      began = time.monotonic()
      num_same, last_answer = 0, None
      for delay in (*RETRY_DELAYS_S, None):
        try:
          answer = ask()
          self.has_answered = True
          return answer
        except (errors.StoreError, FileNotFoundError, Refused):
          self.has_answered = True
          raise
        except DamagedAnswer as error:
          sent.corrupt += 1
          is_same = error.answer is not None and error.answer == last_answer
          num_same, last_answer = num_same * is_same + 1, error.answer
          if delay is None or num_same >= _SAME_ANSWERS or _ending.is_set():
            raise error.error from error
          reason = str(error)
        except Exception as error:  # pylint: disable=broad-except
          reason, num_same = reason_of(error), 0
          is_hopeless = not (self.has_answered or _reached(error)) and (
            sent.retries >= _TRIES_UNREACHED
          )
          if (
            delay is None
            or is_permanent(error)
            or is_hopeless
            or _ending.is_set()
          ):
            raise error_of(error, time.monotonic() - began) from error
        sent.retries += 1
        _log(label, delay, reason)
        _sleep(delay)
    finally:
      counts.add(sent)
    raise AssertionError("unreachable")


def status_of(error: Exception) -> int | None:
  """Returns the HTTP status that an error of obstore tells, or None."""
  match = _STATUS.search(str(error))
  return None if match is None else int(match[1])


def is_permanent(error: Exception) -> bool:
  """Returns whether another try of a request cannot succeed."""
  if isinstance(
    error, ValueError | TypeError
  ):  # No name, or a mistake of ours.
    return True
  status = status_of(error)
  if is_bad_name(error):
    return True
  if status is None:
    # obstore has classes for some answers, and none for failed connections.
    return type(error).__name__ in (
      "NotSupportedError",
      "PermissionDeniedError",
      "UnauthenticatedError",
      "UnknownConfigurationKeyError",
    )
  return 400 <= status < 500 and status not in _RETRIED_STATUS


def is_bad_name(error: Exception) -> bool:
  """Returns whether a listing has a name that obstore cannot represent."""
  return "invalid path" in str(error)


def reason_of(error: Exception) -> str:
  """Returns what an error says, without the page that a server sent."""
  text = str(error).partition("\n\nDebug source:")[0]
  text = _SECRET_BODY.split(text, maxsplit=1)[0]
  return text.split("\n", 1)[0].strip(" :")[:300] or type(error).__name__


def _reached(error: Exception) -> bool:
  """Returns whether a server answered, whatever it said."""
  return "kind: Connect," not in str(error)


def _log(label: str, delay: float, reason: str) -> None:
  from absl import logging  # Not in workers that fail at nothing.

  logging.log_every_n_seconds(
    logging.WARNING, "%s is tried again in %.1f s: %s", 10, label, delay, reason
  )


def _sleep(delay: float) -> None:
  """Waits between half and all of a delay: not all workers retry at once."""
  until = time.monotonic() + delay * random.uniform(0.5, 1.0)
  while (left := until - time.monotonic()) > 0 and not _ending.is_set():
    heartbeat.beat()
    _ending.wait(min(left, 1.0))
