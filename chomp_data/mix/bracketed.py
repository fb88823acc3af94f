# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A search in increasing values that are expensive to evaluate.

The first steps extrapolate by the mean increase, at least doubling; within a
bracket the next point is interpolated, and bisection takes over where
interpolation narrows the bracket slowly.
"""

from collections.abc import Callable
from typing import Any

# Interpolations that may fail to halve a bracket before it is bisected.
_PATIENCE = 3

# A value, its place, and any other data of the place.
Point = tuple[Any, ...]


def search(
  look: Callable[[int], Point],
  is_left: Callable[[Point], bool],
  aim: Callable[[Point], int],
  low: Point,
  high: Point | None = None,
  *,
  first_step: Callable[[], int] = lambda: 1,
  last: int | None = None,
  enough: Callable[[Point], bool] = lambda low: False,
) -> tuple[Point, Point | None]:
  """Returns the adjacent points where `is_left` changes from True to False.

  Args:
    look: Returns the point of a place; values increase with places.
    is_left: Returns whether a point is left of the answer.
    aim: Returns the target value less the value of a point.
    low: A point that is left.
    high: A point that is not left, or None.
    first_step: Returns the first step if `low` has value 0, about.
    last: The last place; None is without end.
    enough: Returns whether a left point is near enough to stop.

  Returns:
    The last evaluated point that is left, and the first that is not: the next
    place, unless `enough` ended the search; None if `last` is left.
  """
  step = slow = 0
  while not enough(low):
    if high is None:
      if low[1] == last:
        break
      mean = aim(low) * low[1] // low[0] if low[0] else first_step()
      step = max(2 * step, mean, 1)
      place = low[1] + step
      point = look(place if last is None else min(place, last))
    else:
      width = high[1] - low[1]
      if width == 1:
        break
      advance = width * aim(low) // max(high[0] - low[0], 1)
      advance = advance if slow < _PATIENCE else width // 2
      point = look(low[1] + min(max(advance, 1), width - 1))
      remaining = high[1] - point[1] if is_left(point) else point[1] - low[1]
      slow = 0 if 2 * remaining <= width + 1 else slow + 1
    low, high = (point, high) if is_left(point) else (low, point)
  return low, high
