# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Whole numbers that somebody passed: checked, and brought to int and int64."""

from collections.abc import Collection
from typing import Any

import numpy as np

_MAX_INT64 = 2**63 - 1


def whole(name: str, value: Any, fix: str = "Correct it.") -> int:
  """Returns a whole number, NumPy's too, as an int.

  Args:
    name: The argument's, for messages.
    value: What was passed.
    fix: What to do where it is none.

  Raises:
    TypeError: If it is none.
  """
  if value.__class__ is int:
    return value
  if isinstance(value, bool) or not isinstance(value, int | np.integer):
    raise TypeError(
      f"`{name}` must be a whole number, got {value!r:.400}. {fix}"
    )
  return int(value)


def array(name: str, values: Any, axes: Collection[int] = (1,)) -> np.ndarray:
  """Returns whole numbers as an int64 array; of such an array at no cost.

  Args:
    name: The argument's, for messages.
    values: An array, or a sequence of whole numbers.
    axes: How many axes it may have.

  Raises:
    TypeError: If they are none, or of other axes.
  """
  if values.__class__ is np.ndarray and values.dtype == np.int64:
    found = values
  else:
    try:
      found = np.asarray(values)
    except (TypeError, ValueError, OverflowError):
      found = np.empty(0, object)  # Lists of several lengths.
    if not found.size and found.dtype == np.float64:
      found = found.astype(np.int64)  # An empty list.
    if found.dtype == np.uint64 and found.size and found.max() > _MAX_INT64:
      found = found.astype(object)
  if found.dtype.kind not in "iu" or found.ndim not in axes:
    raise TypeError(
      f"`{name}` must be whole numbers, a list or int64 array of"
      f" {' or '.join(map(str, axes))} axes, got {str(values)!r:.400}. Correct"
      " it."
    )
  return found.astype(np.int64, copy=False)
