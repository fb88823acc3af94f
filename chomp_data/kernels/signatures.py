# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What compiled loops take, known without numba.

By name the types of the arguments in turn, as NumPy writes them; an array has
a colon for each dimension. All return an int64.
"""

import functools

import numpy as np

# Where an array keeps its data, and its shape, beginning at its `id`: the
# struct PyArrayObject of NumPy's C API, after what every object begins with.
DATA = object.__basicsize__
SHAPE = DATA + 16

SIGNATURES = {
  "first_fit": "i8: i8: i8 i8 i8 i8: i8: i8:",
  "feistel": "u8: u8: u8: i8 u8: u4: u8:",
  "copy_spans": "i8: i8 i8 i8 i8: i8: i4: i8:",
  "copy_rows": "i8: i8: i8: i8: b1: b1: i4: i8 i8:: i8:: i4:",
  "placed": (
    "i8: i8: i8: i4: b1: b1: b1: i8 i8 i4: i4:: i4:: i4:: b1::"
  ),
  "span_sums": (
    "i8: i8: i8: i8: i8: i4: i4: b1: b1: b1: i8: i8: b1: u8:: u8:: u8::"
  ),
  "merge_levels": (
    "i8: i8: i8:: i8 i8 b1: u8: i8: i8: i4: i8 i8:: u8: i8: i4: i8:"
  ),
  "wire_patterns": "i8: i8: i8: i4: b1: i8 i8 i8 i8 i8 u2::",
}  # fmt: skip


@functools.cache
def parsed(name: str) -> tuple[tuple[np.dtype, int], ...]:
  """Returns (type, dimensions) of the arguments of a loop; 0 is a number."""
  return tuple(
    (np.dtype(own.rstrip(":")), own.count(":"))
    for own in SIGNATURES[name].split()
  )
