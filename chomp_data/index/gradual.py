# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Work that is done bit by bit, so that nobody waits for all of it at once.

A generator does it: it yields the share that is done, 0 .. 1, and returns what
comes of it. How the work is cut decides nothing of that.
"""

from collections.abc import Generator
import math
from typing import Generic
from typing import TypeVar

_T = TypeVar("_T")

Work = Generator[float, None, _T]


def finished(work: "Work[_T]") -> _T:
  """Does all of some work; returns what comes of it."""
  while True:
    try:
      next(work)
    except StopIteration as done:
      return done.value


def within(work: "Work[_T]", first: float, last: float) -> "Work[_T]":
  """Does some work as a part of other work: from one share of that to another.

  Args:
    work: The part.
    first: The share that is done before it.
    last: The share that is done after it.
  """
  while True:
    try:
      done = next(work)
    except StopIteration as found:
      return found.value
    yield first + (last - first) * done


class Begun(Generic[_T]):
  """Work that others do a part of now and then."""

  def __init__(self, work: "Work[_T]"):
    """Does nothing yet."""
    self._work = work
    self._done = 0.0
    self._found: list[_T] = []

  def until(self, share: float) -> None:
    """Does work until a share is done, 0 .. 1."""
    while not self._found and self._done < share:
      try:
        self._done = next(self._work)
      except StopIteration as done:
        self._found.append(done.value)

  def result(self) -> _T:
    """Does what is left; returns what comes of it."""
    self.until(math.inf)
    return self._found[0]
