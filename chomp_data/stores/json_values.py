# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Typed values as JSON, and JSON as values of the types that are expected.

What reads a file states the type; the file cannot name another, so that no
file can make a process run code or build other objects.
"""

from collections.abc import Mapping
import dataclasses
import functools
import json
import types
import typing
from typing import Any
from typing import TypeVar

from chomp_data.storage import relative_names

_T = TypeVar("_T")

_PLAIN = {
  int: "an integer",
  str: "a string",
  bool: "true or false",
  types.NoneType: "null",
}


def encode(value: Any) -> bytes:
  """Returns JSON of numbers, texts, dataclasses, named tuples and sequences.

  Raises:
    TypeError: If it holds anything else.
  """
  return json.dumps(value, default=_fields).encode()


def parse(kind: type[_T], data: bytes, name: str) -> _T:
  """Returns the value of a file of JSON.

  Args:
    kind: What it must be: as `decode` takes it.
    data: The file's content.
    name: What it is called in errors.

  Raises:
    ValueError: If it is not JSON, or of another type; the message says where.
  """
  try:
    value = json.loads(data)
  except (ValueError, RecursionError) as error:
    raise ValueError(f"`{name}` must be JSON, got {error}") from None
  return decode(kind, value, name)


def decode(kind: Any, value: Any, name: str) -> Any:
  """Returns a value of JSON as one of a type.

  Args:
    kind: `int`, `float`, `str`, `bool`, `None`, a dataclass or named tuple of
      such types, `list[T]`, `tuple[T, ...]`, `tuple[T, U]`, `dict[str, T]`,
      unions of them, or `Any`. A dataclass must have all of its fields and no
      others.
    value: What `json.loads` returned.
    name: What it is called in errors.

  Raises:
    ValueError: If it is of another type; the message names the field.
  """
  if kind is Any:
    return value
  if kind in (None, *_PLAIN):
    kind = types.NoneType if kind is None else kind
    if type(value) is not kind:
      raise _wrong(name, _PLAIN[kind], value)
    return value
  if kind is float:
    # Larger integers are no floats.
    if type(value) not in (int, float) or not abs(value) < 2**1023:
      raise _wrong(name, "a finite number", value)
    return float(value)
  origin, inner = typing.get_origin(kind), typing.get_args(kind)
  if origin in (types.UnionType, typing.Union):
    return _one_of(inner, value, name)
  if origin in (list, tuple):
    return _sequence(origin, inner, value, name)
  if origin in (dict, Mapping):
    if not isinstance(value, dict):
      raise _wrong(name, "an object", value)
    return {
      key: decode(inner[1], field, f"{name}.{key}")
      for key, field in value.items()
    }
  hints = _hints(kind)
  if issubclass(kind, tuple):
    return kind(*_sequence(tuple, tuple(hints.values()), value, name))
  if not isinstance(value, dict) or value.keys() != hints.keys():
    fields = sorted(value) if isinstance(value, dict) else value
    raise _wrong(name, f"an object of {', '.join(hints)}", fields)
  return kind(
    **{
      field: decode(hint, value[field], f"{name}.{field}")
      for field, hint in hints.items()
    }
  )


def _one_of(kinds: tuple[Any, ...], value: Any, name: str) -> Any:
  problem = ""
  for kind in kinds:
    try:
      return decode(kind, value, name)
    except ValueError as error:
      problem = problem or str(error)
  raise ValueError(problem)


def _sequence(
  origin: Any, inner: tuple[Any, ...], value: Any, name: str
) -> Any:
  if not isinstance(value, list):
    raise _wrong(name, "an array", value)
  if origin is list or inner[1:] == (...,):
    inner = inner[:1] * len(value)
  if len(inner) != len(value):
    raise _wrong(name, f"an array of {len(inner)} values", value)
  return origin(
    decode(kind, item, f"{name}[{i}]")
    for i, (kind, item) in enumerate(zip(inner, value, strict=True))
  )


@functools.cache
def _hints(kind: Any) -> Mapping[str, Any]:
  hints = typing.get_type_hints(kind)
  if dataclasses.is_dataclass(kind):
    return {
      field.name: hints[field.name]
      for field in dataclasses.fields(kind)
      if field.init
    }
  return hints


def _fields(value: Any) -> Any:
  if dataclasses.is_dataclass(value) and not isinstance(value, type):
    return {name: getattr(value, name) for name in _hints(type(value))}
  raise TypeError(f"{type(value).__name__} is no value of JSON")


def _wrong(name: str, rule: str, value: Any) -> ValueError:
  return ValueError(
    f"`{name}` must be {rule}, got {relative_names.brief(value)}"
  )
