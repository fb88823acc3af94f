# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Calls that wait for a bucket or a disk, several at once."""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from concurrent import futures
import itertools
from typing import TypeVar

from chomp_data.threads import heartbeat

_Value = TypeVar("_Value")
_Result = TypeVar("_Result")

# Calls that are submitted, or whose results wait, for each thread.
_AHEAD = 4


def mapped(
  function: Callable[[_Value], _Result],
  values: Iterable[_Value],
  at_once: int,
) -> Iterator[_Result]:
  """Yields the results of a function for each of many values, in order.

  Values are taken, and results wait in memory, only a few ahead. After each
  result this thread beats. Where a call raises, or the results are not all
  taken, calls that did not begin are cancelled.

  Args:
    function: Called by several threads; of a single value, by this thread.
    values: Its arguments.
    at_once: Most calls at the same time.

  Raises:
    BaseException: What a call raised.
  """
  values = iter(values)
  ahead = list(itertools.islice(values, _AHEAD * at_once))
  if len(ahead) < 2:
    for value in ahead:
      yield function(value)
      heartbeat.beat()
    return
  with futures.ThreadPoolExecutor(at_once) as pool:
    calls = collections.deque(pool.submit(function, each) for each in ahead)
    try:
      while calls:
        result = calls.popleft().result()
        heartbeat.beat()
        yield result
        for value in itertools.islice(values, 1):
          calls.append(pool.submit(function, value))
    finally:
      for call in calls:
        call.cancel()


def for_all(
  function: Callable[[_Value], object],
  values: Iterable[_Value],
  at_once: int,
) -> None:
  """Calls a function with each of many values, as `mapped`, in any order.

  A call that takes long delays no other one, and no error of another one.
  """
  values = iter(values)
  ahead = list(itertools.islice(values, 2))
  if len(ahead) < 2:
    for value in ahead:
      function(value)
      heartbeat.beat()
    return
  values = itertools.chain(ahead, values)
  with futures.ThreadPoolExecutor(at_once) as pool:
    calls: set[futures.Future[object]] = set()
    try:
      while True:
        for value in itertools.islice(values, _AHEAD * at_once - len(calls)):
          calls.add(pool.submit(function, value))
        if not calls:
          return
        done, calls = futures.wait(calls, return_when=futures.FIRST_COMPLETED)
        for call in done:
          call.result()
          heartbeat.beat()
    finally:
      for call in calls:
        call.cancel()
