# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Consecutive lists of different lengths: their elements, and their edges.

NumPy only.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence

import numpy as np


def ranges(first: np.ndarray, counts: np.ndarray) -> np.ndarray:
  """Returns first[i], first[i] + 1, ... of each list, one after the other.

      first [5, 0, 9], counts [2, 0, 3] -> [5, 6, 9, 10, 11]

  Args:
    first: int64[N].
    counts: int64[N], at least 0.

  Returns:
    int64[counts.sum()].
  """
  ends = np.cumsum(counts)
  out = np.repeat(first - (ends - counts), counts)
  out += np.arange(len(out))
  return out


def elements(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns the list of each element, and its place in that list.

      counts [2, 0, 3] -> list [0, 0, 2, 2, 2], place [0, 1, 0, 1, 2]

  Args:
    counts: int64[N], at least 0, the elements of each list.

  Returns:
    int64[counts.sum()] each.
  """
  return np.repeat(np.arange(len(counts)), counts), places(counts)


def places(counts: np.ndarray) -> np.ndarray:
  """Returns 0 .. count - 1 of each list, one after the other.

  Args:
    counts: int64[N], at least 0.
  """
  return ranges(np.zeros(len(counts), np.int64), counts)


def run_edges(*columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns which elements are the first, and the last, of runs of equal ones.

      [4, 4, 7, 4] -> first [1, 0, 1, 1], last [0, 1, 1, 1]

  Args:
    *columns: [N] each; elements are equal where all of them are.

  Returns:
    bool[N] each.
  """
  first, last = np.ones((2, len(columns[0])), np.bool_)
  change = columns[0][1:] != columns[0][:-1]
  for values in columns[1:]:
    change |= values[1:] != values[:-1]
  first[1:] = last[:-1] = change
  return first, last


def by_value(values: np.ndarray) -> Iterator[tuple[int, np.ndarray | slice]]:
  """Yields each value that occurs, ascending, and an index of where it does.

      [4, 4, 7, 4] -> 4, [0, 1, 3]; then 7, [2]

  Args:
    values: int64[N].

  Yields:
    The value, and int64[M]; a slice of all if there is no other value.
  """
  if len(values) and (values == values[0]).all():
    yield int(values[0]), slice(None)
    return
  for value in np.unique(values).tolist():
    yield value, np.flatnonzero(values == value)


def neighbours(
  numbers: Sequence[int],
  begins: Callable[[int], bool],
  most: int | None = None,
) -> list[list[int]]:
  """Divides ascending numbers into lists of those that follow each other.

      [2, 3, 4, 5, 9], begins at multiples of 4 -> [[2, 3], [4, 5], [9]]

  Args:
    numbers: Distinct.
    begins: Whether a number is the first of a list, whatever is before it.
    most: Numbers of a list; None is any.
  """
  lists: list[list[int]] = []
  for number in numbers:
    if (
      not lists
      or number != lists[-1][-1] + 1
      or len(lists[-1]) == most
      or begins(number)
    ):
      lists.append([])
    lists[-1].append(number)
  return lists
