# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Arrays aligned to 64 bytes, which JAX uses on CPUs without a copy.

NumPy aligns memory to 16 bytes, and XLA needs 64. Placing the fields of
[64, 2048] takes 173 us of CPU if they are aligned, and 329 with copies.
"""

import math

import numpy as np

_BYTES = 64


def empty(shape: tuple[int, ...], dtype: type | np.dtype) -> np.ndarray:
  """Returns an uninitialised array that is aligned to 64 bytes."""
  size = math.prod(shape) * np.dtype(dtype).itemsize
  memory = np.empty(size + _BYTES, np.uint8)
  offset = -memory.__array_interface__["data"][0] % _BYTES
  return memory[offset : offset + size].view(dtype).reshape(shape)
