# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""`tf.train.Example`, parsed without TensorFlow.

    Example     1: Features
    Features    1: entry, for each feature
    entry       1: name, 2: Feature
    Feature     1: bytes list, 2: float list, 3: int64 list; one of them
    a list      1: value, for each; numbers may be packed into one

The numbers are protobuf's field numbers, of tensorflow/core/example's
example.proto and feature.proto. What does not fit is an error, so that text is
not taken for an Example.
"""

from collections.abc import Iterator
import struct
from typing import Any

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_VARINT = 10


def is_example(data: bytes) -> bool:
  """Whether bytes are an Example that has a feature."""
  try:
    return bool(parse(data))
  except ValueError:
    return False


def parse(data: bytes) -> dict[str, Any]:
  """Returns the features of an Example by name.

  Args:
    data: The serialized message.

  Returns:
    Of each feature its value, bytes, float or int; a list of them unless it is
    one; None where it has none.

  Raises:
    ValueError: If it is no such message.
  """
  features: dict[str, Any] = {}
  for number, kind, message in _fields(data):
    _expect((number, kind) == (1, _BYTES), "Example", number, kind)
    for number, kind, entry in _fields(message):
      _expect((number, kind) == (1, _BYTES), "Features", number, kind)
      name, values = _entry(entry)
      features[name] = values
  return features


def _entry(data: bytes) -> tuple[str, Any]:
  """Returns name and value of a feature."""
  name, values = "", []
  for number, kind, field in _fields(data):
    _expect(number in (1, 2) and kind == _BYTES, "entry", number, kind)
    if number == 1:
      name = field.decode()
    else:
      values = _feature(field)
  if len(values) == 1:
    return name, values[0]
  return name, values or None


def _feature(data: bytes) -> list[Any]:
  values: list[Any] = []
  for which, kind, values_list in _fields(data):
    _expect(which in (1, 2, 3) and kind == _BYTES, "Feature", which, kind)
    values = []  # Of several kinds the last one counts.
    for number, kind, value in _fields(values_list):
      _expect(number == 1, "list", number, kind)
      if which == 1:
        _expect(kind == _BYTES, "bytes list", number, kind)
        values.append(value)
      elif which == 2:
        values += _floats(kind, value)
      else:
        values += _integers(kind, value)
  return values


def _floats(kind: int, value: Any) -> list[float]:
  _expect(kind in (_BYTES, _FIXED32), "float list", 1, kind)
  if len(value) % 4:
    raise ValueError(f"a float list of {len(value)} bytes")
  return [number for (number,) in struct.iter_unpack("<f", value)]


def _integers(kind: int, value: Any) -> list[int]:
  _expect(kind in (_BYTES, _VARINT), "int64 list", 1, kind)
  if kind == _VARINT:
    return [_signed(value)]
  values, at = [], 0
  while at < len(value):
    number, at = _varint(value, at)
    values.append(_signed(number))
  return values


def _signed(value: int) -> int:
  return value - 2**64 if value >= 2**63 else value


def _fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
  """Yields (number, wire type, value): an int of a varint, else bytes."""
  at = 0
  while at < len(data):
    tag, at = _varint(data, at)
    number, kind = tag >> 3, tag & 7
    if kind == _VARINT:
      value, at = _varint(data, at)
      yield number, kind, value
      continue
    if kind == _BYTES:
      size, at = _varint(data, at)
    elif kind in (_FIXED32, _FIXED64):
      size = 4 if kind == _FIXED32 else 8
    else:
      raise ValueError(f"wire type {kind}")
    if at + size > len(data):
      raise ValueError(f"a field of {size} bytes where {len(data) - at} are")
    yield number, kind, data[at : at + size]
    at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
  """Returns a number of 7 bits a byte, lowest first, and where it ends."""
  if at < len(data) and data[at] < 0x80:  # Nearly always.
    return data[at], at + 1
  value = 0
  for i in range(_MOST_VARINT):
    if at + i >= len(data):
      raise ValueError("a number that is cut")
    byte = data[at + i]
    value |= (byte & 0x7F) << 7 * i
    if byte < 0x80:
      return value & (2**64 - 1), at + i + 1
  raise ValueError("a number of more than 64 bits")


def _expect(fits: bool, what: str, number: int, kind: int) -> None:
  if not fits:
    raise ValueError(f"field {number} of wire type {kind} in its {what}")
