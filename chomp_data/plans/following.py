# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What steps hand out, counted as a run reads them.

Summing what was handed out before a step may plan thousands of rows. A run
that reads has planned them: it counts each group of steps as it comes to it,
and a state is then a look-up. Where a process plans its own rows only, or
workers do, a thread plans all rows a little ahead of the run. What it does
waits for the first batch, which it would hold up.
"""

import collections
from collections.abc import Callable
from concurrent import futures
import functools
import pickle
import threading
from typing import Any

from absl import logging
import numpy as np

from chomp_data import errors
from chomp_data.plans import plan as plan_lib
from chomp_data.plans import token_sums
from chomp_data.rows import spans as spans_lib
from chomp_data.rows import tombstones
from chomp_data.stores import background

# Steps that are kept behind those that are read: more than are read ahead.
_KEPT_STEPS = 1_024
# Rows that are planned together where nobody else plans them all, and the
# steps that are counted before the run comes to them.
_ROWS = 4_096
_FIRST_ROWS = 64
_STEPS_AHEAD = 256
# Whoever has got the first batch is to use it before a thread competes for the
# interpreter, as a reader's does; see `loading/reader.py`.
_FIRST_USED_S = 0.01


class Ledger:
  """Sums at the steps that a run is at; several threads may.

  Sums are one vector: samples by source and bucket, and by source tokens,
  trained tokens, and where something is gone those of both that are.
  """

  def __init__(self, plan: plan_lib.Plan):
    """Counts nothing yet.

    Args:
      plan: The run.
    """
    self._steps = plan.steps
    self._tells_gone = plan.gone.first_step is not None
    self._shape = (len(plan.source_names), len(plan.buckets))
    self._labelled = token_sums.labelled(
      {name: own.store for name, own in plan.sources.items()}
    )
    self._lock = threading.Lock()
    # (first step, int64[steps + 1, N]), side by side: sums before each step,
    # from some step on that does not matter.
    self._groups: collections.deque[tuple[int, np.ndarray]] = (
      collections.deque()
    )

  def add(self, steps: range, planned: plan_lib.Planned) -> None:
    """Counts steps that follow each other.

    Args:
      steps: Of one size, with no skip between them.
      planned: All of their rows.
    """
    units = self._units(len(steps), planned)
    with self._lock:
      last = self._groups[-1] if self._groups else (steps.start, units[:1])
      if self._end(last) != steps.start or self._skips_before(steps.start):
        # The run went elsewhere.
        self._groups.clear()
      elif self._groups:
        units += last[1][-1]
      self._groups.append((steps.start, units))
      while (
        len(self._groups) > 1
        and self._end(self._groups[0]) < steps.start - _KEPT_STEPS
      ):
        self._groups.popleft()

  def between(self, first: int, last: int) -> np.ndarray | None:
    """Returns the sums of steps first .. last - 1, or None if not known."""
    with self._lock:
      ends = [self._before(step) for step in (first, last)]
    return None if ends[0] is None or ends[1] is None else ends[1] - ends[0]

  def covers(self, step: int) -> bool:
    """Returns whether sums before a step are counted."""
    with self._lock:
      return self._before(step) is not None

  def split(
    self, sums: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns samples [sources, buckets], and units [sources, 2] twice.

    Units are tokens and trained tokens: what is live, and what is gone.
    """
    sources, buckets = self._shape
    samples = sums[: sources * buckets].reshape(self._shape)
    units = sums[sources * buckets :].reshape(-1, 2, sources)
    live, gone = units[0], units[-1] if self._tells_gone else 0 * units[0]
    return samples, live.T, gone.T

  @property
  def end(self) -> int | None:
    """The step after the last one counted."""
    with self._lock:
      return self._end(self._groups[-1]) if self._groups else None

  def _before(self, step: int) -> np.ndarray | None:
    for first, sums in reversed(self._groups):
      if first <= step < first + len(sums):
        return sums[step - first]
    return None

  def _end(self, group: tuple[int, np.ndarray]) -> int:
    return group[0] + len(group[1]) - 1

  def _skips_before(self, step: int) -> bool:
    """Returns whether the data step before a step is skipped."""
    before = self._steps.data_step(step) - 1
    return before >= 0 and self._steps.run_step(before) is None

  def _units(self, count: int, planned: plan_lib.Planned) -> np.ndarray:
    """Returns int64[count + 1, N], sums before each of the steps."""
    sources, buckets = self._shape
    spans, samples = planned.spans, planned.samples
    if samples is not None:
      source = np.where(samples < 0, -1, planned.dataset)
    else:
      assert spans is not None
      source = spans.row_source()
    step = np.repeat(np.arange(count), len(source) // count)
    real = source >= 0
    given = np.zeros((count, sources, buckets), np.int64)
    given[:, :, planned.bucket] = np.bincount(
      (step * sources + source)[real], minlength=count * sources
    ).reshape(count, sources)
    tokens = np.zeros((4 if self._tells_gone else 2, count, sources), np.int64)
    if spans is not None:
      live = spans.live()
      self._sum(live, step, tokens[:2])
      if spans.gone is not None:
        self._sum(tombstones.whole(spans), step, tokens[2:])
        tokens[2:] -= tokens[:2]
    columns = np.concatenate([given.reshape(count, -1), *tokens], axis=1)
    found = np.zeros((count + 1, columns.shape[1]), np.int64)
    np.cumsum(columns, axis=0, out=found[1:])
    return found

  def _sum(
    self, spans: spans_lib.Spans, step: np.ndarray, out: np.ndarray
  ) -> None:
    """Sums tokens and trained tokens into int64[2, steps, sources].

    Args:
      spans: The plan.
      step: int64[num_rows], which step each row is of.
      out: Where they go.
    """
    key = step[spans.row] * out.shape[2] + spans.source
    for own, units in zip(
      out, token_sums.span_units(spans, self._labelled), strict=True
    ):
      # Sums of steps stay far below 2**53, where float64 is exact.
      own[:] = np.bincount(key, units, own.size).reshape(own.shape)


class Follower:
  """A thread that counts what nobody else does; see `Ledger`."""

  def __init__(
    self,
    plan: plan_lib.Plan,
    ledger: Ledger,
    step: int,
    begin: Callable[[plan_lib.Plan], Any],
    counts: bool,
  ):
    """Waits for the first batch.

    Args:
      plan: The run; the thread gets its own copy.
      ledger: Where it counts.
      step: The run's step.
      begin: Called with that copy first; what it returns is kept for `ask`.
      counts: Whether it plans and counts steps too.
    """
    self._plan: plan_lib.Plan | None = plan
    self._ledger = ledger
    self._first = self._step = step
    self._begin = begin
    self._counts = counts
    self._wake, self._begun = threading.Event(), threading.Event()
    self._needed = threading.Event()
    self._closed = self._ended = self._answering = False
    self._thread: background.Thread | None = None
    self._lock = threading.Lock()
    self._asked: collections.deque[
      tuple[futures.Future[Any], Callable[[Any], Any]]
    ] = collections.deque()

  def reached(self, step: int) -> None:
    """Hears where the run is."""
    self._step = step
    if self._thread is None:
      self._start()
    end = self._ledger.end
    if end is not None and step + _STEPS_AHEAD // 2 > end:
      self._wake.set()

  def close(self, wait: bool = True) -> None:
    """Ends the thread.

    What it was asked to do it still does, for checkpoints that are being saved;
    other work is interrupted.

    Args:
      wait: Whether to wait until it has ended, up to 5 s: what takes longer is
        waited for at the end of the process.
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
    """Waits until `begin` has returned, if it is to be called so far."""
    if self._thread is not None:
      self._needed.set()
      self._begun.wait()

  def ask(self, work: Callable[[Any], Any]) -> "futures.Future[Any] | None":
    """Has the thread do something once it has begun, before it counts on.

    Args:
      work: Called in the thread, with what `begin` returned.

    Returns:
      What will hold what it returns; None: the thread is not at work.
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
    self, begun: Any, failure: Exception | None = None, ends: bool = False
  ) -> None:
    """Does what was asked.

    Args:
      begun: What `begin` returned.
      failure: Why it returned nothing.
      ends: Nobody can ask from then on.
    """
    while True:
      with self._lock:
        self._answering = bool(self._asked)
        if not self._asked:
          self._ended = ends
          return
        future, work = self._asked.popleft()
      try:
        if failure is not None:
          raise failure
        future.set_result(work(begun))
      except background.Stopped:
        future.set_exception(_interrupted())
        raise
      except Exception as error:  # Whoever asked meets it.
        future.set_exception(error)

  def _start(self) -> None:
    pickled, self._plan = pickle.dumps(self._plan), None
    self._thread = background.Thread(
      functools.partial(self._work, pickled), "accounts", self._at_exit
    )
    self._thread.start()

  def _work(self, pickled: bytes) -> None:
    begun, failure = None, None
    try:
      self._needed.wait(_FIRST_USED_S)
      plan = pickle.loads(pickled)
      begun = self._begin(plan)
      self._begun.set()
      if self._counts:
        self._count(plan, begun)
    except Exception as error:  # Whoever asks for a state meets it, says it.
      logging.debug("the run is not followed", exc_info=True)
      failure = error if begun is None else None
    except background.Stopped:
      failure = _interrupted()
    finally:
      self._begun.set()
      self._answer(begun, failure, ends=True)

  def _count(self, plan: plan_lib.Plan, begun: Any) -> None:
    following, most_rows = self._first, _FIRST_ROWS
    while not self._closed and following < plan.step_limit:
      self._answer(begun)
      if following >= self._step + _STEPS_AHEAD:
        self._wake.wait()
        self._wake.clear()
        continue
      rows = plan.buckets[plan.at(following)[1]].batch_size
      # What is asked for waits for a group.
      most = max(1, min(most_rows // rows, _STEPS_AHEAD))
      most_rows = min(2 * most_rows, _ROWS)
      last = plan.group(following, most)[1]
      steps = range(following, last)
      self._ledger.add(steps, plan.planned(following, len(steps)))
      following = last


def _interrupted() -> errors.InputError:
  return errors.InputError(
    "the process ended before what its input had consumed was counted. Resume"
    " from an earlier checkpoint."
  )
