# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""States of a run that reads: looked up, and what the plan says."""

import json
import os
import subprocess
import sys
import textwrap
import threading
import time

from hypothesis import given
from hypothesis import strategies as st
import pytest

from chomp_data import iterators
from chomp_data import pipeline
from chomp_data.loading import batches
from chomp_data.plans import ledger as ledger_lib
from chomp_data.plans import rows_plan
from chomp_data.plans import totals
from chomp_data.threads import background
from chomp_data.threads import heartbeat
from tests import laws
from tests.catalogue import runs
from tests.golden import corpora
from tests.loading import late


@pytest.fixture(scope="module")
def root(tmp_path_factory):
  """The corpora of the catalogue."""
  root = tmp_path_factory.mktemp("counted")
  with pytest.MonkeyPatch.context() as patch:
    corpora.write_for_tests(root, patch, tmp_path_factory.mktemp("cache"))
    yield root


# Of tests/catalogue: a run with a ledger of its own for each way to count.
NAMES = (
  *("sequential_block", "bin_exact_documents_full", "multi_groups"),
  *("mix_stages", "mix_resumed", "edits_of_mix", "edits_of_lengths"),
  *("weighed", "joined", "lengths_weighted"),
)
# Three sources, one of them packed.
MIX = "mix_tokens"
# Counted from the plans that are read here, and by a thread.
OWN_OR_NOT = pytest.mark.parametrize(
  ("name", "own"),
  [("bin_exact_documents_full", True), (MIX, False), ("edits_of_mix", True)],
)


def steady(name, root):
  """Returns a run without end, whose states are counted without its plan."""
  return runs.data_of(name, root, epochs=None, tombstones=None, skip=None)


def test_skipped_rows_are_passed_though_no_step_after_them_is_read(root):
  config = runs.data_of(MIX, root, skip=((3, 9), (40, 40)))
  alone, pipe = pipeline.build(config), pipeline.build(config)
  ledgers = []
  pipe.accounts.follow(0, lambda own: ledgers.append(own) or True)
  ledgers[0].add(range(3), pipe.run_plan.planned(0, 3))
  for step in (2, 3):
    assert pipe.accounts.record(step) == alone.accounts.record(step), step
  ledgers[0].add(range(3, 5), pipe.run_plan.planned(3, 2))
  assert pipe.accounts.record(5) == alone.accounts.record(5)


@pytest.mark.parametrize("name", NAMES)
@laws.examples(4)
@given(data=st.data())
def test_a_state_is_what_the_plan_says_at_every_step(root, name, data):
  config = runs.data_of(name, root)
  alone = pipeline.build(config)
  last = min(alone.num_steps or 100, 100)
  steps = st.integers(0, last)
  own = data.draw(st.booleans(), "read by this process")
  with pytest.MonkeyPatch.context() as patch:
    cached = data.draw(st.sampled_from([4, 99]))
    patch.setattr(ledger_lib, "CACHED_STEPS", cached)
    if not own:
      patch.setattr(batches.BatchSource, "count_into", lambda *_: False)
    with iterators.make_iterator(config, step=data.draw(steps, "begin")) as it:
      for _ in range(data.draw(st.integers(1, 3), "restores")):
        for _ in range(min(data.draw(st.integers(0, 60)), last - it.step)):
          next(it)
          if data.draw(st.integers(0, 3)) == 0:
            state = json.loads(it.get_state())
            want = json.loads(json.dumps(alone.accounts.record(it.step)))
            assert {key: state.get(key) for key in want} == want, it.step
        with iterators.make_iterator(config, step=data.draw(steps)) as other:
          saved = other.get_state()
        it.set_state(saved)
        assert it.get_state() == saved


@OWN_OR_NOT
def test_a_run_that_reads_plans_nothing_for_its_states(
  root, name, own, monkeypatch
):
  config, ledgers = steady(name, root), []
  if not own:
    monkeypatch.setattr(
      batches.BatchSource, "count_into", lambda _, to: ledgers.append(to)
    )
  pipe = pipeline.build(config)
  alone = pipeline.build(config).accounts
  want = [alone.record(step) for step in range(40)]
  deadline = time.monotonic() + 60
  with iterators.make_iterator(pipe) as it:
    # Who counts has its own copy of the plan from the first batch on.
    next(it)
    for rows in pipe.run_plan.ordered.values():
      monkeypatch.setattr(rows, "plan", None)
    monkeypatch.setattr(pipe.run_plan, "planned", None)
    for step in range(1, 40):
      while not (own or ledgers[-1].covers(it.step)):
        assert time.monotonic() < deadline
        time.sleep(1e-3)
      state = json.loads(it.get_state())
      assert state["accounts"] == want[step]["accounts"]
      next(it)
  assert isinstance(pipe.run_plan, rows_plan.RowsPlan)


@OWN_OR_NOT
def test_a_checkpoint_does_not_wait_for_what_came_before_a_seek(
  root, name, own, monkeypatch
):
  if not own:
    monkeypatch.setattr(batches.BatchSource, "count_into", lambda *_: False)
  monkeypatch.setattr(background, "STOP_S", 0.2)
  config = steady(name, root)
  alone = pipeline.build(config).accounts
  with iterators.make_iterator(config, step=20) as it:
    may_sum = late.sums(monkeypatch)
    saved = []
    for _ in range(3):
      next(it)
      saved.append((it.step, it.begin_save()))
    it.seek(2)
    next(it)
    saved.append((it.step, it.begin_save()))
    may_sum.set()
    saved.append((it.step, it.get_state))
    for step, state in saved:
      record = json.loads(state())
      want = json.loads(json.dumps(alone.record(step)))
      assert record["step"] == step
      assert {key: record.get(key) for key in want} == want


def test_a_thread_that_fails_tells_who_saves(root, monkeypatch):
  def fail(*_, **options):
    raise OSError("an index is gone")

  with iterators.make_iterator(runs.data_of(MIX, root), step=20) as it:
    monkeypatch.setattr(totals.PlanTotals, "at", fail)
    next(it)
    with pytest.raises(OSError, match="an index is gone"):
      it.begin_save()()


def test_all_threads_have_ended_once_an_iterator_is_closed(root, monkeypatch):
  """Also one that counts what came before, in parts that take long."""
  before = set(threading.enumerate())
  begun, parts = threading.Event(), []

  def counts(*args, **options):
    if threading.current_thread().name != "accounts":
      return totals_at(*args, **options)
    begun.set()
    for _ in range(1_000):
      parts.append(time.sleep(0.2))
      heartbeat.beat()

  totals_at = totals.PlanTotals.at
  monkeypatch.setattr(totals.PlanTotals, "at", counts)
  monkeypatch.setattr(batches.BatchSource, "count_into", lambda *_: False)
  it = iterators.make_iterator(runs.data_of(MIX, root), step=20)
  next(it)
  assert begun.wait(30)
  it.close()
  assert set(threading.enumerate()) <= before
  assert len(parts) < 50


def test_an_iterator_is_closed_while_its_checkpoint_is_saved(root, monkeypatch):
  may_sum = late.sums(monkeypatch)
  monkeypatch.setattr(background, "STOP_S", 0.2)
  it = iterators.make_iterator(runs.data_of(MIX, root), step=20)
  next(it)
  state = it.begin_save()
  it.close()
  may_sum.set()
  record = json.loads(state())
  want = json.loads(
    json.dumps(pipeline.build(runs.data_of(MIX, root)).accounts.record(21))
  )
  assert record["step"] == 21
  assert {key: record.get(key) for key in want} == want


@pytest.mark.slow
@pytest.mark.parametrize("end", ["leave open", "close"])
def test_no_thread_runs_when_the_interpreter_finalizes(root, end):
  """One that was inside TensorStore would abort the process."""
  program = textwrap.dedent("""
    import atexit, json, sys, threading, time

    @atexit.register
    def last():
      ours = {"chomp_data", "accounts", "background packer"}
      print(ours & {t.name for t in threading.enumerate()})

    from chomp_data import iterators
    from chomp_data import pipeline
    from chomp_data.plans import background_counter
    from chomp_data.threads import background

    background.STOP_S = 0.2
    loads = background_counter.pickle.loads
    def slow(pickled):
      begun.set()
      time.sleep(1)  # As arrays of a store that are opened.
      return loads(pickled)
    begun = threading.Event()
    background_counter.pickle.loads = slow
    batches = iterators.make_iterator(json.loads(sys.argv[1]), step=20)
    next(batches)
    begun.wait()
    if sys.argv[2] == "close":
      batches.close()
  """)
  data = json.dumps(runs.data_of(MIX, root))
  ran = subprocess.run(
    [sys.executable, "-c", program, data, end],
    env={**os.environ, "JAX_PLATFORMS": "cpu"},
    capture_output=True,
    text=True,
  )
  assert (ran.returncode, ran.stdout) == (0, "set()\n"), ran.stderr
