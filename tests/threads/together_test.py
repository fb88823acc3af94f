# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Several calls at once: in order, few ahead, cancelled where one fails."""

import threading

import pytest

from chomp_data.threads import background
from chomp_data.threads import heartbeat
from chomp_data.threads import together


@pytest.mark.parametrize("count", [0, 1, 2, 3, 100])
def test_results_are_in_the_order_of_the_values_with_a_beat_each(count):
  before = heartbeat.beats()
  results = list(together.mapped(lambda i: i * i, iter(range(count)), 3))
  assert results == [i * i for i in range(count)]
  assert heartbeat.beats() - before == count


def test_as_many_calls_run_at_once_as_asked():
  barrier = threading.Barrier(5)  # Returns once five threads wait.
  together.for_all(lambda i: barrier.wait(60), range(20), 5)


def test_values_are_taken_few_ahead():
  taken = []

  def values():
    for i in range(1_000):
      taken.append(i)
      yield i

  results = together.mapped(lambda i: i, values(), 2)
  assert next(results) == 0
  assert len(taken) <= 10
  results.close()
  assert len(taken) <= 10


def test_where_a_call_fails_those_that_did_not_begin_never_do():
  called = []

  def call(i):
    called.append(i)
    if i == 3:
      raise OSError("gone")

  with pytest.raises(OSError, match="gone"):
    together.for_all(call, range(1_000), 2)
  assert len(called) <= 20


def test_one_value_takes_no_thread():
  (name,) = together.mapped(lambda i: threading.current_thread().name, [0], 8)
  assert name == threading.current_thread().name
  names = []
  together.for_all(
    lambda i: names.append(threading.current_thread().name), [0], 8
  )
  assert names == [name]


def test_a_call_that_takes_long_delays_no_other_and_no_error():
  ended = threading.Event()
  called = []

  def call(i):
    called.append(i)
    if i == 0:
      ended.wait(60)
    elif i == 99:
      ended.set()
      raise OSError("gone")

  with pytest.raises(OSError, match="gone"):
    together.for_all(call, range(100), 2)
  assert sorted(called) == list(range(100))


def test_a_process_that_stops_calls_no_more(monkeypatch):
  called = []

  def stop():
    raise background.Stopped

  monkeypatch.setattr(heartbeat, "beat", stop)
  with pytest.raises(background.Stopped):
    together.for_all(called.append, range(1_000), 2)
  assert len(called) <= 10
