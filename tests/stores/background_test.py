# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Threads of the package: stopped, waited for, and ended before the process."""

import subprocess
import sys
import textwrap
import threading
import time

import pytest

from chomp_data.threads import background
from chomp_data.threads import heartbeat


def until_stopped(begun):
  begun.set()
  while True:
    time.sleep(0.001)
    heartbeat.beat()


@pytest.fixture
def started():
  found = []

  def start(work=until_stopped, **options):
    begun = threading.Event()
    found.append(background.Thread(lambda: work(begun), "test", **options))
    found[-1].start()
    assert begun.wait(30)
    return found[-1]

  yield start
  for thread in found:
    thread.stop()
    assert thread.join(30)


def test_a_thread_runs_until_it_is_stopped(started):
  thread = started()
  assert thread.is_alive()
  assert not thread.join(0.05)
  thread.stop()
  assert thread.join(30)
  assert not thread.is_alive()


def test_threads_that_are_not_stopped_and_others_go_on(started):
  first, second = started(), started()
  first.stop()
  assert first.join(30)
  assert not second.join(0.05)
  background.check()


def test_what_a_thread_starts_ends_with_it(started):
  children = []

  def parent(begun):
    children.append(started())
    until_stopped(begun)

  thread = started(parent)
  thread.stop()
  assert thread.join(30)
  assert not children[0].is_alive()


def test_a_thread_that_was_stopped_starts_none(started):
  outcome, asked = [], threading.Event()

  def parent(begun):
    begun.set()
    assert asked.wait(30)
    try:
      started()
    except background.Stopped:
      outcome.append("stopped")
      raise

  thread = started(parent)
  thread.stop()
  asked.set()
  assert thread.join(30)
  assert outcome == ["stopped"]


def test_a_handler_of_errors_does_not_take_a_stop_for_one(started):
  def work(begun):
    while True:
      try:
        until_stopped(begun)
      except Exception:
        continue

  thread = started(work)
  thread.stop()
  assert thread.join(30)


AT_EXIT = """
  import atexit, threading, time
  # Called after what is registered later.
  @atexit.register
  def last():
    print([t.name for t in threading.enumerate()], order)

  order = []
  from chomp_data.threads import background
  background.EXIT_S, background.STOP_S = {exit_s}, 0.1

  def work():
    while True:
      time.sleep({piece_s})
      try:
        background.check()
      except background.Stopped:
        order.append("stopped")
        raise

  background.Thread(work, "first").start()
  atexit.register(lambda: order.append("other"))
  background.Thread(work, "second").start()
"""


@pytest.mark.parametrize(
  ("piece_s", "exit_s", "wanted"),
  [
    (0.5, 60, "['MainThread'] ['stopped', 'stopped', 'other']"),
    (30, 0.3, "['MainThread', 'first', 'second'] ['other']"),
  ],
  ids=["ends", "is blocked"],
)
def test_a_process_waits_for_its_threads_at_its_end(piece_s, exit_s, wanted):
  code = textwrap.dedent(AT_EXIT).format(piece_s=piece_s, exit_s=exit_s)
  done = subprocess.run(
    [sys.executable, "-c", code],
    capture_output=True,
    text=True,
    timeout=60,
    check=True,
  )
  assert done.stdout.strip() == wanted
  blocked = "has not ended in 0.3 s: a device or a file system" in done.stderr
  assert blocked == (piece_s == 30)
