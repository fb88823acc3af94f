# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Sequences whose items are computed when they are read, not held in memory."""

import bisect
from collections.abc import Callable
from collections.abc import Sequence
import itertools
from typing import Any
from typing import TypeVar

_T = TypeVar("_T")


class LazySequence(Sequence[_T]):
  """A sequence of `make(0)`, `make(1)`, ..., `make(size - 1)`."""

  def __init__(self, make: Callable[[int], _T], size: int):
    """Calls nothing yet."""
    self._make = make
    self._numbers = range(size)

  def __len__(self) -> int:
    return len(self._numbers)

  def __getitem__(self, number: Any) -> Any:
    if isinstance(number, slice):
      return [self._make(i) for i in self._numbers[number]]
    return self._make(self._numbers[number])


def chained(sequences: Sequence[Sequence[_T]]) -> Sequence[_T]:
  """Returns the items of several sequences as one."""
  ends = list(itertools.accumulate(map(len, sequences)))

  def item(number: int) -> _T:
    i = bisect.bisect(ends, number)
    return sequences[i][number - ends[i]]

  return LazySequence(item, ends[-1] if ends else 0)
