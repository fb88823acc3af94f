# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Checks integer arguments and converts them to int and int64."""

from collections.abc import Collection
from typing import Any

import numpy as np

_MAX_INT64 = 2**63 - 1


def whole(name: str, value: Any, fix: str = "Correct it.") -> int:
  """Converts a Python or NumPy integer to an int.

  Args:
    name: Name of the argument, for messages.
    value: The value of the argument.
    fix: The advice of the error message.

  Raises:
    TypeError: If it is not an integer.
  """
  if value.__class__ is int:
    return value
  if isinstance(value, bool) or not isinstance(value, int | np.integer):
    raise TypeError(
      f"`{name}` must be a whole number, got {value!r:.400}. {fix}"
    )
  return int(value)


def array(name: str, values: Any, axes: Collection[int] = (1,)) -> np.ndarray:
  """Converts integers to an int64 array, without a copy where they are one.

  Args:
    name: Name of the argument, for messages.
    values: An array, or a sequence of whole numbers.
    axes: The numbers of axes that are allowed.

  Raises:
    TypeError: If they are not integers, or have another number of axes.
  """
  if values.__class__ is np.ndarray and values.dtype == np.int64:
    numbers = values
  else:
    try:
      numbers = np.asarray(values)
    except (TypeError, ValueError, OverflowError):
      numbers = np.empty(0, object)  # Lists of several lengths.
    if not numbers.size and numbers.dtype == np.float64:
      numbers = numbers.astype(np.int64)  # An empty list.
    if (
      numbers.dtype == np.uint64 and numbers.size and numbers.max() > _MAX_INT64
    ):
      numbers = numbers.astype(object)
  if numbers.dtype.kind not in "iu" or numbers.ndim not in axes:
    raise TypeError(
      f"`{name}` must be whole numbers, a list or int64 array of"
      f" {' or '.join(map(str, axes))} axes, got {str(values)!r:.400}. Correct"
      " it."
    )
  return numbers.astype(np.int64, copy=False)
