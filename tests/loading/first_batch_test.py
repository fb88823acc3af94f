# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Nothing runs beside whoever has just got the first batch."""

import threading
import time
import types
from typing import Any

from chomp_data.loading import reader as reader_lib
from chomp_data.plans import background_counter


class Numbers:
  """What a reader reads: the numbers from 0 on, noted as they are."""

  def __init__(self):
    self.read = []

  def __iter__(self):
    return self

  def __next__(self):
    self.read.append(len(self.read))
    return self.read[-1]

  def start_prefetch(self):
    pass


def reading(numbers):
  return reader_lib.Reader(numbers, lambda batch: batch, 2)


def test_a_reader_reads_on_when_its_second_batch_is_asked_for(monkeypatch):
  monkeypatch.setattr(reader_lib, "_FIRST_USED_S", 60.0)
  numbers = Numbers()
  reader = reading(numbers)
  assert reader.get(0, 10)[0] == 0
  time.sleep(0.05)
  assert numbers.read == [0]
  assert [reader.get(step, 10)[0] for step in (1, 2)] == [1, 2]
  assert reader.stop()


def test_a_reader_reads_on_where_nobody_asks():
  numbers = Numbers()
  reader = reading(numbers)
  deadline = time.monotonic() + 10
  while len(numbers.read) < 3 and time.monotonic() < deadline:
    time.sleep(0.001)
  assert numbers.read[:3] == [0, 1, 2]
  assert reader.stop()


def test_a_reader_that_waits_is_stopped_at_once(monkeypatch):
  monkeypatch.setattr(reader_lib, "_FIRST_USED_S", 60.0)
  reader = reading(Numbers())
  reader.get(0, 10)
  began = time.monotonic()
  assert reader.stop()
  assert time.monotonic() - began < 5


def test_a_follower_begins_when_somebody_needs_it(monkeypatch):
  monkeypatch.setattr(background_counter, "_FIRST_USED_S", 60.0)

  ledger: Any = types.SimpleNamespace(end=None)
  plan: Any = None
  begun = threading.Event()
  follower = background_counter.BackgroundCounter(
    plan, ledger, 0, lambda _: begun.set(), counts=False
  )
  follower.reached(1)
  time.sleep(0.05)
  assert not begun.is_set()
  follower.wait_begun()
  assert begun.is_set()
