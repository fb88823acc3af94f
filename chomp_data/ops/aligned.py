# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Arrays that JAX takes as they are: on CPUs it copies what is not aligned.

NumPy's memory begins at multiples of 16 bytes, and XLA wants 64. Putting the
fields of [64, 2048] takes 173 us of CPU as they are, and 329 with copies.
"""

import math

import numpy as np

_BYTES = 64


def empty(shape: tuple[int, ...], dtype: type | np.dtype) -> np.ndarray:
  """Returns an array as `np.empty` does, that begins at a multiple of 64."""
  size = math.prod(shape) * np.dtype(dtype).itemsize
  memory = np.empty(size + _BYTES, np.uint8)
  first = -memory.__array_interface__["data"][0] % _BYTES
  return memory[first : first + size].view(dtype).reshape(shape)
