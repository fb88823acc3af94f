# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A search in rising values that are dear to look up.

The first steps follow the mean so far and are never slower than doubling;
within a bracket the next point is interpolated, and where that is slow to
narrow it, halving takes over.
"""

from collections.abc import Callable
from typing import Any

# Interpolated points that fail to halve a bracket, before one is halved.
_PATIENCE = 3

# A value, the place that has it, and whatever comes with it.
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
  """Returns the points left and right of where `is_left` ends.

  Args:
    look: Returns the point of a place; values rise with places.
    is_left: Whether a point is left of the answer.
    aim: How much more than the value of a point is looked for.
    low: A point that is left.
    high: A point that is not, or None.
    first_step: Returns about how many places to go where `low` has value 0.
    last: The last place; None is without end.
    enough: Whether a left point is near enough to end there.

  Returns:
    The last point known to be left, and the first known not to be: the next
    place, unless `enough` ended the search; None where `last` is left too.
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
      ahead = width * aim(low) // max(high[0] - low[0], 1)
      ahead = ahead if slow < _PATIENCE else width // 2
      point = look(low[1] + min(max(ahead, 1), width - 1))
      left = high[1] - point[1] if is_left(point) else point[1] - low[1]
      slow = 0 if 2 * left <= width + 1 else slow + 1
    low, high = (point, high) if is_left(point) else (low, point)
  return low, high
