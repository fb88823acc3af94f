# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in a loader worker is told, soon and in its own words."""

import contextlib
import json
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
import types

import grain
import numpy as np
import pytest

from chomp_data import iterators
from chomp_data import pipeline
from chomp_data.loading import feed
from chomp_data.loading import handover
from chomp_data.loading import reader
from chomp_data.loading import reads
from chomp_data.loading import workers
from chomp_data.pack import packing
from chomp_data.plans import accounts
from chomp_data.testing import stores as testing_stores
from tests.loading import feed_test


class HoldsALockError(Exception):
  """Pickling it fails."""

  def __init__(self, text):
    super().__init__(text)
    self.lock = threading.Lock()


class TakesTwoError(Exception):
  """It pickles, and unpickling it fails."""

  def __init__(self, text, code):
    super().__init__(f"{text} with code {code}")


class RewordsError(Exception):
  """Survives, with other words."""

  def __init__(self, code):
    super().__init__(f"code {code}")


class Failing(grain.transforms.Map):
  """Fails in a worker, at its third batch."""

  fingerprint = None

  def __init__(self, error, *args):
    self._error, self._args, self._seen = error, args, 0

  def map(self, element):
    self._seen += 1
    if self._seen > 3:
      raise self._error(*self._args)
    return element


@pytest.mark.parametrize(
  ("error", "args", "text"),
  [
    (HoldsALockError, ("a broken shard",), "a broken shard"),
    pytest.param(
      TakesTwoError,
      ("a broken shard", 7),
      "a broken shard with code 7",
      marks=pytest.mark.slow,
    ),
  ],
)
def test_an_exception_that_cannot_be_pickled_arrives_soon_with_its_text(
  data, error, args, text
):
  endless = {**data, "epochs": None, "worker_count": 1, "timeout_s": 60.0}
  with iterators.make_iterator(
    endless, operations=[Failing(error, *args)]
  ) as it:
    next(it)
    began = time.monotonic()
    with pytest.raises(feed.InputError) as caught:  # noqa: PT012
      for _ in range(10):
        next(it)
    assert time.monotonic() - began < 20
    assert it.step <= 3
  # Its type, its text, and where it was raised.
  for part in (error.__name__, text, "raise self._error"):
    assert part in str(caught.value)


class Exiting(grain.transforms.Map):
  """Ends the worker, at its second batch; of one that shapes are asked of."""

  fingerprint = None

  def __init__(self):
    self._seen = 0

  def map(self, element):
    self._seen += 1
    if self._seen > 2:
      time.sleep(1)  # A thread sends what was made.
      os._exit(3)
    return element


@pytest.mark.parametrize(
  "how", ["iterator", pytest.param("loader", marks=pytest.mark.slow)]
)
def test_a_worker_that_ends_by_itself_is_named_with_its_exit_code(data, how):
  options = {**data, "epochs": None, "worker_count": 1}
  with contextlib.ExitStack() as stack:
    if how == "iterator":
      batches = stack.enter_context(
        iterators.make_iterator(options, operations=[Exiting()])
      )
      (worker,) = feed_test.workers_of(batches)
      who = f"loader worker {worker.pid}"
    else:
      pipe = pipeline.build(options)
      batches = iter(pipe.data_loader(operations=[Exiting()]))
      who = "a loader worker"
    with pytest.raises(feed.InputError) as caught:  # noqa: PT012
      for _ in range(9):
        next(batches)
  told = str(caught.value)
  assert f"{who} ended by itself with exit code 3." in told
  assert "resume from a checkpoint" in told
  assert "`config.data.worker_count` = 0" in told


class EndingAtOnce(grain.transforms.Map):
  """Ends a worker as it begins, with the exit code that Grain ignores."""

  fingerprint = None

  def map(self, element):
    if multiprocessing.parent_process() is not None:
      os._exit(0)
    return element


def test_a_worker_that_ended_before_its_batches_were_asked_for_is_an_error(
  data, monkeypatch
):
  monkeypatch.setattr(reader, "DEAD_WORKER_GRACE_S", 0.5)
  options = {**data, "epochs": None, "worker_count": 1, "timeout_s": 60.0}
  before = set(multiprocessing.active_children())
  with iterators.make_iterator(options, operations=[EndingAtOnce()]) as it:
    it.start_prefetch()
    started = set()
    while not started:
      started = set(multiprocessing.active_children()) - before
    while started & set(multiprocessing.active_children()):
      time.sleep(0.01)  # It is removed from the list when it has ended.
    (worker,) = started
    assert worker.exitcode == 0
    began = time.monotonic()
    with pytest.raises(feed.InputError, match=f"worker {worker.pid} has ended"):
      next(it)
    assert time.monotonic() - began < 20


class Large(grain.transforms.Map):
  """Takes more than a pipe holds: a start returns when a worker reads it."""

  fingerprint = None

  def __init__(self):
    self._content = bytes(2**20)

  def map(self, element):
    return element


def test_workers_that_take_long_to_start_are_not_dead_ones(
  data, monkeypatch, tmp_path
):
  """Until a start returns, Python does not list its process."""
  main = types.ModuleType("__main__")
  main.__file__ = str(tmp_path / "program.py")
  (tmp_path / "program.py").write_text("import time\ntime.sleep(1.2)\n")
  monkeypatch.setitem(sys.modules, "__main__", main)
  monkeypatch.setattr(reader, "DEAD_WORKER_GRACE_S", 0.5)
  options = {**data, "epochs": None, "worker_count": 1}
  with iterators.make_iterator(options, operations=[Large()]) as it:
    began = time.monotonic()
    next(it)
    # Longer than the patience, or this test tells nothing.
    assert time.monotonic() - began > 1.2


def test_a_worker_that_is_killed_is_told_with_its_signal():
  told = workers.died("before step 3 loader worker 7, 8", [-signal.SIGKILL, 0])
  assert told.startswith(
    "before step 3 loader worker 7, 8 was killed by signal 9, ended by itself"
    " with exit code 0. See its log above"
  )
  assert "memory runs out" in told


@pytest.mark.parametrize(
  "error",
  [
    HoldsALockError("words"),
    TakesTwoError("words", 1),
    RewordsError("words"),
    pytest.param(
      type("Local", (Exception,), {"__module__": "nowhere"})("words"),
      id="of no module",
    ),
  ],
)
def test_errors_that_do_not_survive_pickling_are_told_as_text(error):
  with pytest.raises(feed.InputError) as caught, workers.errors_arrive():
    raise error
  assert "words" in str(pickle.loads(pickle.dumps(caught.value)))
  assert type(error).__name__ in str(caught.value)


def test_errors_that_survive_pickling_stay_what_they_are():
  for error in (KeyError("name"), FileNotFoundError(2, "no", "x.bin")):
    with pytest.raises(type(error)) as caught, workers.errors_arrive():
      raise error
    assert caught.value is error


def test_a_batch_that_cannot_be_pickled_is_an_error_and_not_dropped():
  def records():
    for value in (np.zeros(2), "a word", (x for x in "ab"), np.zeros(2)):
      yield types.SimpleNamespace(
        data={"field": value}, metadata=types.SimpleNamespace(record_key=7)
      )

  board = handover.WorkerMemory(1)
  source = types.SimpleNamespace(
    reads=reads.Reads({}), certificate_sums=lambda step: step
  )
  worker = pickle.loads(pickle.dumps(board))
  batches = workers.LastOperation(source, worker)(records())
  next(batches)
  assert board.take(next(batches).data) == ({"field": "a word"}, 7)
  with pytest.raises(TypeError, match="generator"):
    next(batches)
  assert board.ended() == 1


UNGUARDED = textwrap.dedent("""
  import json, sys
  from chomp_data import iterators
  from chomp_data import pipeline
  from chomp_data.loading import workers

  workers.may_help = lambda *_: True
  print("read as a program")
  if sys.argv[2] == "iterator":
    batches = iterators.make_iterator(json.loads(sys.argv[1]))
  else:
    batches = iter(pipeline.build(json.loads(sys.argv[1])).data_loader())
  next(batches)
""")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["iterator", "loader"])
def test_a_program_without_a_guard_gets_one_clear_error(data, tmp_path, how):
  program = tmp_path / "program.py"
  program.write_text(UNGUARDED)
  config = json.dumps({**data, "worker_count": 2})
  ran = subprocess.run(
    [sys.executable, str(program), config, how],
    capture_output=True,
    text=True,
    timeout=120,
  )
  assert ran.returncode == 1
  # Of a loader that is left open Grain's own destructors complain, too.
  told = ran.stderr.split("Exception ignored")[0]
  assert ran.stderr.startswith("Traceback")
  assert told.count("Traceback (most recent call last)") == 1, ran.stderr
  last = told.strip().splitlines()[-1]
  assert "InputError: a program whose loader has workers must be" in last
  assert "if __name__ == '__main__':" in last
  assert "leaked" not in ran.stderr


@pytest.fixture
def reshuffled(tmp_path):
  """config.data of documents that are packed anew in every epoch."""
  # An epoch is two steps, which are planned together, and 16 windows.
  documents = [np.arange(3, 3 + n) for n in [8, 3, 5] * 1_024]
  testing_stores.make_store(
    tmp_path / "store", documents, vocab_size=256, pad_id=0
  )
  return {
    "seq_len": 8,
    "global_batch_size": 1_024,
    "seed": 3,
    "prefetch": 1,
    "timeout_s": 1.0,
    "sources": {
      "text": {
        "store": str(tmp_path / "store"),
        "rows": {
          "kind": "bin",
          "packing_buffer_docs": 192,
          "shuffle_documents": "full",
          "reshuffle_documents": True,
        },
        "shuffle": {"kind": "none"},
      }
    },
  }


def slowed(monkeypatch, seconds):
  """Makes packing a window take longer."""
  first_fit = packing.first_fit_decreasing

  def slow(*args, **kwargs):
    time.sleep(seconds)
    return first_fit(*args, **kwargs)

  monkeypatch.setattr(packing, "first_fit_decreasing", slow)


@pytest.mark.slow
def test_packing_an_epoch_does_not_count_as_waiting(reshuffled, monkeypatch):
  pipe = pipeline.build(reshuffled)
  slowed(monkeypatch, 0.1)
  with iterators.make_iterator(pipe) as it:
    while it.step < 3:
      next(it)
    # Longer than `timeout_s`, or this test tells nothing.
    assert it.waits.seconds > 1.5
    state = it.get_state()
  shutil.rmtree(reshuffled["sources"]["text"]["store"] + ".index")
  # A resume in a later epoch packs those before it, and goes on to the next.
  with iterators.make_iterator(reshuffled) as it:
    it.set_state(state)
    while it.step < 7:
      next(it)
    assert it.waits.seconds > 1.5


class SlowPacking(grain.transforms.Map):
  """Makes packing slow in the worker that it is sent to."""

  fingerprint = None

  def __init__(self, seconds):
    self._seconds = seconds

  def __getstate__(self):
    return {"seconds": self._seconds}

  def __setstate__(self, state):
    self.__init__(state["seconds"])
    slowed(pytest.MonkeyPatch(), self._seconds)

  def map(self, element):
    return element


@pytest.mark.slow
def test_a_worker_that_packs_is_waited_for_and_a_stopped_one_is_not(
  reshuffled, monkeypatch
):
  changed = {**reshuffled, "worker_count": 1, "timeout_s": 8.0}
  # What counts for states in this process packs too: it would be first.
  monkeypatch.setattr(accounts.Accounts, "follow", lambda *_: None)
  with iterators.make_iterator(changed, operations=[SlowPacking(0.9)]) as it:
    (worker,) = feed_test.workers_of(it)
    for _ in range(2):  # The third is of the second epoch.
      next(it)
    assert it.waits.seconds > 9
    # The third epoch is packed now.
    os.kill(worker.pid, signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(feed.InputError, match="timeout_s"):  # noqa: PT012
      for _ in range(10):
        next(it)
    assert 7 < time.monotonic() - began < 30


class Uneven(grain.transforms.Map):
  """Takes long for step 1, of the second of two workers, and fails at one."""

  fingerprint = None

  def __init__(self, slow, broken):
    self._slow, self._broken = slow, broken

  def map(self, element):
    if multiprocessing.parent_process() is not None:
      if np.array_equal(element["tokens"], self._slow):
        time.sleep(9)
      if np.array_equal(element["tokens"], self._broken):
        raise KeyError("broken at 2")
    return element


@pytest.mark.slow
@pytest.mark.parametrize("broken", [False, True])
def test_a_worker_that_has_ended_is_not_a_dead_one(data, broken):
  """Another one may be long at what comes first."""
  # Three steps: the first worker ends while the second is at its only one.
  changes = {"epochs": 1, "global_batch_size": 23, "worker_count": 2}
  pipe = pipeline.build({**data, **changes})
  slow, last = (pipe.batch(step)["tokens"] for step in (1, 2))
  uneven = Uneven(slow, last if broken else None)
  # Three steps: the first worker ends while the second is at its only one.
  with iterators.make_iterator(pipe, operations=[uneven], step=0) as it:
    for step in range(2):
      np.testing.assert_array_equal(
        next(it)["tokens"], pipe.batch(step)["tokens"]
      )
    if broken:
      with pytest.raises(KeyError, match="broken at 2"):
        next(it)
    else:
      assert len(list(it)) == 1
