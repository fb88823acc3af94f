# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Arrays as JSON values: base64 of the narrowest dtype that holds them."""

import base64
from typing import Any

import numpy as np

_INTEGERS = ("u1", "u2", "u4", "i4")


def packed(values: np.ndarray) -> dict[str, str]:
  """Returns an array as {"type", "data"}, flat and little-endian.

  Args:
    values: Integers below 2**53, booleans, or float32.
  """
  values = np.ascontiguousarray(values).reshape(-1)
  if values.dtype == bool:
    return _of("u1", np.packbits(values, bitorder="little"))
  if values.dtype.kind == "f":
    return _of("f4", values)
  low, high = (values.min(), values.max()) if len(values) else (0, 0)
  for name in _INTEGERS:
    limits = np.iinfo(name)
    if limits.min <= low and high <= limits.max:
      return _of(name, values)
  return _of("f8", values)


def _of(name: str, values: np.ndarray) -> dict[str, str]:
  data = values.astype(f"<{name}", copy=False).tobytes()
  return {"type": name, "data": base64.b64encode(data).decode()}


def lines(values: np.ndarray, row_length: int) -> dict[str, Any]:
  """Returns integers that mostly stay or rise by one, as straight lines.

      values  5 6 7 0 0 0     begin 0 3, value 5 0, slope 1 0

  Args:
    values: int[rows, row_length]; lines do not cross rows.
    row_length: Values of a row.
  """
  flat = values.reshape(-1).astype(np.int64)
  rise = np.diff(flat, append=flat[-1:])
  steady = (rise == 0) | (rise == 1)
  begins = np.arange(len(flat)) % row_length == 0
  begins[1:] |= ~steady[:-1]
  bends = np.zeros(len(flat), bool)
  bends[2:] = (rise[1:-1] != rise[:-2]) & ~begins[1:-1]
  begin = np.flatnonzero(begins | bends)
  ends_here = np.append(begins[1:], True)[begin]
  return {
    "begin": packed(begin),
    "value": packed(flat[begin]),
    "slope": packed(np.where(ends_here, 0, rise[begin])),
  }


def levels(values: np.ndarray, row_length: int) -> dict[str, Any]:
  """Returns numbers that mostly stay, as runs that do not cross rows.

  Args:
    values: float32[rows, row_length].
    row_length: Values of a row.
  """
  flat = values.reshape(-1)
  begins = np.arange(len(flat)) % row_length == 0
  begins[1:] |= flat[1:] != flat[:-1]
  begin = np.flatnonzero(begins)
  return {"begin": packed(begin), "value": packed(flat[begin])}
