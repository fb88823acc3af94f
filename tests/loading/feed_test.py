# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The loader: one stream of batches, however it is read."""

import gc
import json
import multiprocessing
import os
import pathlib
import signal as signals
import subprocess
import sys
import textwrap
import threading
import time

import grain
import jax
import pytest

from chomp_data import iterators
from chomp_data import pipeline
from chomp_data.loading import batches
from chomp_data.loading import feed
from chomp_data.loading import reader
from chomp_data.loading import state
from chomp_data.testing import batch_hashes


def hashes(iterator):
  return [batch_hashes.batch_sha256(batch) for batch in iterator]


def reference(data):
  pipe = pipeline.build(data)
  return [
    batch_hashes.batch_sha256(pipe.batch(step))
    for step in range(pipe.num_steps)
  ]


def sources_in_use():
  gc.collect()
  objects = gc.get_objects()
  return {id(own) for own in objects if type(own) is batches.BatchSource}


def test_an_iterator_that_is_dropped_keeps_no_store(data):
  before = sources_in_use()
  pipe = pipeline.build(data)
  with iterators.make_iterator(pipe) as iterator:
    next(iterator)
    assert sources_in_use() - before
  del iterator
  assert not sources_in_use() - before


def test_steps_cross_epochs_and_the_remainder_is_dropped_or_padded(data):
  # 3 epochs of 70 rows are 210 rows: 26 steps of 8, and 2 rows over.
  assert pipeline.build(data).num_steps == 26
  padded = pipeline.build({**data, "remainder": "pad"})
  assert padded.num_steps == 27
  last = padded.batch(26)
  assert last["source_id"].tolist() == [0, 0] + [-1] * 6
  assert last["document_id"][2:].tolist() == [[-1]] * 6
  assert not last["loss_mask"][2:].any()
  assert not last["segment_ids"][2:].any()
  with pytest.raises(IndexError, match="got 27"):
    padded.batch(27)
  for step in (27, -1, 10**9):
    with pytest.raises(IndexError, match=str(step)):
      pipeline.batch_source(padded)[step]
  endless = pipeline.build({**data, "epochs": None})
  endless.plan(2**58)
  for step in (2**59, 2**63 - 1):
    with pytest.raises(IndexError, match=str(step)):
      endless.plan(step)


def test_an_iterator_prints_what_it_is(data):
  pipe = pipeline.build({**data, "worker_count": 2})
  mesh = jax.sharding.Mesh(jax.devices()[:1], ("data",))
  sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
  with iterators.make_iterator(pipe, sharding, step=7) as iterator:
    digest = state.digest(pipe.fingerprint)[:16]
    assert repr(iterator) == (
      "InputIterator(step 7 of 26, 32: [8, 32], on devices by NamedSharding,"
      f" 2 workers, fingerprint {digest})"
    )
  endless = {**data, "epochs": None}
  with iterators.make_iterator(endless) as iterator:
    assert "step 0 of an endless run, " in str(iterator)


def test_a_closed_iterator_reads_no_more(data):
  it = iterators.make_iterator(data)
  next(it)
  it.close()
  state = it.get_state()
  for call in (
    lambda: next(it),
    it.start_prefetch,
    lambda: it.seek(3),
    lambda: it.set_state(state),
  ):
    with pytest.raises(feed.InputError, match="closed at step 1"):
      call()
  it.close()
  with iterators.make_iterator(data) as other:
    other.set_state(state)
    assert hashes(other) == reference(data)[1:]


@pytest.mark.parametrize("epochs", [3, None])
def test_the_bound_of_a_step_is_that_of_the_run(data, epochs):
  it = iterators.make_iterator({**data, "epochs": epochs})
  bound = r"in 0 \.\. 26" if epochs else "at least 0"
  for step in (-1, *((27, 10**9) if epochs else ())):
    with pytest.raises(
      IndexError, match=f"`step` must be {bound}, .* got {step}"
    ):
      it.seek(step)
    with pytest.raises(
      IndexError, match=f"`step` must be {bound}, .* got {step}"
    ):
      iterators.make_iterator({**data, "epochs": epochs}, step=step)


def test_a_state_may_be_any_bytes(data):
  state = iterators.make_iterator(data, step=4).get_state()
  for kind in (bytes, bytearray, memoryview):
    it = iterators.make_iterator(data)
    it.set_state(kind(state))
    assert it.step == 4


class Broken(grain.transforms.Map):
  """Fails at its second batch: shapes are asked of the first."""

  fingerprint = None

  def __init__(self):
    self._seen = 0

  def map(self, element):
    self._seen += 1
    if self._seen > 1:
      raise ArithmeticError("broken transform")
    return element


class Halved(grain.transforms.Map):
  """Leaves half of a batch's rows out."""

  def map(self, element):
    return {name: value[::2] for name, value in element.items()}


class OneRowMore(grain.transforms.Map):
  """Adds a field of one row."""

  def map(self, element):
    return {**element, "extra": element["tokens"][:1]}


def test_a_field_of_another_number_of_rows_is_an_error(data):
  with (
    iterators.make_iterator(data, operations=[OneRowMore()]) as iterator,
    pytest.raises(ValueError, match="got 1 of 8 rows of 'extra' in bucket 32"),
  ):
    next(iterator)


def test_a_transform_that_changes_the_number_of_rows_is_an_error(data):
  with (
    iterators.make_iterator(data, operations=[Halved()]) as iterator,
    pytest.raises(ValueError, match="got 4 of 8 rows of 'tokens' in bucket 32"),
  ):
    next(iterator)


def test_a_failed_input_stays_failed(data):
  it = iterators.make_iterator(data, operations=[Broken()])
  with pytest.raises(ArithmeticError, match="broken transform"):
    next(it)
  with pytest.raises(feed.InputError, match="stays failed"):
    next(it)


def workers_of(iterator):
  """Returns the processes that an iterator's first batch has started."""
  before = set(multiprocessing.active_children())
  next(iterator)
  return [p for p in multiprocessing.active_children() if p not in before]


def still_alive(processes, wait_s=10):
  """Returns those that do not end.

  Where two threads wait for a process, one reaps it. Until that one has said
  so, `join` returns in the other, and `is_alive` is true.
  """
  deadline = time.monotonic() + wait_s
  while left := [p for p in processes if p.is_alive()]:
    if time.monotonic() > deadline:
      break
    time.sleep(0.01)
  return left


def test_a_dead_worker_is_an_error_and_never_lost_batches(data):
  endless = {**data, "epochs": None, "worker_count": 2}
  wanted = pipeline.build(endless)
  with iterators.make_iterator(endless) as it:
    workers = workers_of(it)
    os.kill(workers[0].pid, signals.SIGKILL)
    with pytest.raises(Exception) as caught:  # noqa: PT011, PT012
      for _ in range(10_000):
        step = it.step
        got = batch_hashes.batch_sha256(next(it))
        assert got == batch_hashes.batch_sha256(wanted.batch(step))
    assert not isinstance(caught.value, AssertionError)
    with pytest.raises(feed.InputError):
      next(it)
  assert not still_alive(workers)


@pytest.mark.slow
@pytest.mark.parametrize("begun", [True, False])
def test_a_worker_that_dies_with_a_lock_does_not_hold_up_the_end(
  data, tmp_path, begun
):
  program = tmp_path / "main.py"
  program.write_text(
    textwrap.dedent("""
    import json, multiprocessing, os, signal, sys, threading
    from multiprocessing import synchronize
    from chomp_data import errors
    from chomp_data import iterators
    from chomp_data import pipeline
    from chomp_data.loading import workers

    workers.may_help = lambda *_: True

    if __name__ == "__main__":
      batches = iterators.make_iterator(json.loads(sys.argv[1]))

      def kill():
        # The worker asks for this event at each batch, under its lock.
        synchronize.Event.set = lambda event: threading.Event().wait()
        os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)

      if sys.argv[2] == "True":
        next(batches)
        kill()
      else:  # Before the worker can say whose it is: it imports for seconds.
        batches.start_prefetch()
        while len(multiprocessing.active_children()) < 2:
          pass
        threading.Timer(0.6, kill).start()
      try:
        while True:
          next(batches)
      except errors.InputError:
        print("refused", flush=True)
    """)
  )
  endless = {**data, "epochs": None, "worker_count": 2}
  ran = subprocess.run(
    [sys.executable, str(program), json.dumps(endless), str(begun)],
    capture_output=True,
    text=True,
    timeout=100,
  )
  assert ran.stdout == "refused\n", ran.stderr
  assert ran.returncode == 0, ran.stderr


@pytest.mark.slow
def test_workers_end_with_a_main_process_that_is_killed(data, tmp_path):
  program = tmp_path / "main.py"
  program.write_text(
    textwrap.dedent("""
    import json, multiprocessing, sys, time
    from chomp_data import iterators
    from chomp_data import pipeline
    from chomp_data.loading import workers

    workers.may_help = lambda *_: True

    if __name__ == "__main__":
      batches = iterators.make_iterator(json.loads(sys.argv[1]))
      next(batches)
      print(*(p.pid for p in multiprocessing.active_children()), flush=True)
      time.sleep(100)
    """)
  )
  endless = {**data, "epochs": None, "worker_count": 2}
  # Workers inherit the pipe, so waiting for its end could wait for them.
  main = subprocess.Popen(
    [sys.executable, str(program), json.dumps(endless)],
    stdout=subprocess.PIPE,
    text=True,
  )
  assert main.stdout is not None
  with main.stdout as lines:
    pids = [int(pid) for pid in lines.readline().split()]
  assert len(pids) == 2
  main.kill()
  main.wait()
  deadline = time.monotonic() + 30
  while any(is_running(pid) for pid in pids) and time.monotonic() < deadline:
    time.sleep(0.05)
  assert not [pid for pid in pids if is_running(pid)]


def is_running(pid):
  try:
    state = pathlib.Path(f"/proc/{pid}/stat").read_text().split()[2]
  except FileNotFoundError:
    return False
  return state != "Z"


class Exit(grain.transforms.Map):
  """Ends the worker that maps so many batches as if all were well."""

  fingerprint = None

  def __init__(self, after):
    self._after, self._seen = after, 0

  def map(self, element):
    self._seen += 1
    if multiprocessing.parent_process() and self._seen > self._after:
      os._exit(0)
    return element


@pytest.mark.slow
@pytest.mark.parametrize("after", [0, 3])
def test_a_worker_that_exits_0_is_an_error_and_not_a_hang(data, after):
  endless = {**data, "epochs": None, "worker_count": 1}
  with iterators.make_iterator(endless, operations=[Exit(after)]) as it:
    began = time.monotonic()
    told = "ended by itself with exit code 0"
    with pytest.raises(feed.InputError, match=told):  # noqa: PT012
      for _ in range(100):
        next(it)
    assert it.step <= after
    assert time.monotonic() - began < 30


@pytest.mark.slow
def test_a_stopped_worker_is_an_error_after_the_timeout(data):
  endless = {**data, "epochs": None, "worker_count": 2, "timeout_s": 8.0}
  with iterators.make_iterator(endless) as it:
    workers = workers_of(it)
    next(it)  # One of each: both have begun, which may take long.
    for worker in workers:
      os.kill(worker.pid, signals.SIGSTOP)
    with pytest.raises(feed.InputError, match=r"timeout_s"):  # noqa: PT012
      for _ in range(10_000):
        began = time.monotonic()
        next(it)
    # Nobody waits for what is left of them, either.
    assert time.monotonic() - began < 10
    assert not still_alive(workers)


@pytest.mark.slow
def test_an_iterator_that_is_dropped_takes_its_thread_and_workers_with_it(data):
  def threads():
    return {t for t in threading.enumerate() if t.name == "chomp_data"}

  before = threads()
  iterator = iterators.make_iterator({**data, "worker_count": 1})
  next(iterator)
  started = threads() - before
  children = set(multiprocessing.active_children())
  assert len(started) == 1
  assert children
  del iterator
  gc.collect()
  deadline = time.monotonic() + 10
  while any(t.is_alive() for t in started) and time.monotonic() < deadline:
    time.sleep(0.05)
  assert not any(t.is_alive() for t in started)
  assert not still_alive(children)


@pytest.mark.slow
def test_iterators_that_are_open_together_leave_each_others_workers(data):
  """Nor is a process of the user's own any of theirs."""
  data = {**data, "worker_count": 1, "epochs": None}
  with iterators.make_iterator(data) as one:
    other = iterators.make_iterator(data)
    one.start_prefetch()
    other.start_prefetch()
    own = multiprocessing.get_context("spawn").Process(
      target=time.sleep, args=(60,)
    )
    own.start()
    wanted = reference(data | {"epochs": 3})
    assert hashes([next(one), next(other)]) == wanted[:1] * 2
    other.close()
    assert hashes([next(one) for _ in range(3)]) == wanted[1:4]
    assert own.is_alive()
  assert own.is_alive()
  own.kill()
  own.join()


@pytest.mark.slow
def test_workers_that_are_closed_end_by_themselves(data):
  iterator = iterators.make_iterator(
    {**data, "worker_count": 2, "epochs": None}
  )
  workers = workers_of(iterator)
  assert len(workers) == 2
  iterator.close()
  # None was killed: they free their shared memory.
  assert [worker.exitcode for worker in workers] == [0, 0]


class Unable:
  """A loader that cannot begin."""

  def __iter__(self):
    raise OSError("no space for workers")


def test_a_loader_that_cannot_begin_says_why():
  own = reader.Reader(Unable(), lambda batch: batch, 2)
  with pytest.raises(OSError, match="no space for workers"):
    own.get(0, timeout_s=30)
  own.stop()
