# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What a transform is called in a fingerprint: its class and its options.

    Scale(by=2)           a dataclass: its fields
    Crop {"size": 8}      its `fingerprint`, JSON values, where it has one
    Noise <sigma 0.1>     its own `repr`
    Shift                 nothing that tells, and nothing to tell

One that holds something which only Python's own `repr` would tell is refused:
a state could not tell it from one of other options.

Classes go by qualified name and not by module: a file that is moved or run as
`__main__` holds the same transforms. States of earlier versions name the module
before it.
"""

import dataclasses
import json
import re
from typing import Any

from chomp_data import errors

# Of what has options and only Python's own `repr`, alone or within others.
_HIDDEN = re.compile(r"<[^<>]* object at 0x[0-9a-f]+>")
# Of functions and the like: no other process shares it.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_NAME = re.compile(r"[\w.<>]+")


def fingerprint_of(operation: Any) -> str:
  """Returns what decides what a transform does, as text.

  Raises:
    ConfigError: If its `fingerprint` is not of JSON values, or it does not tell
      its options.
  """
  cls = type(operation)
  if hasattr(operation, "fingerprint"):
    try:
      text = json.dumps(operation.fingerprint, sort_keys=True)
    except TypeError as error:
      raise errors.ConfigError(
        [
          f"`{cls.__qualname__}.fingerprint` must be of JSON values, got"
          f" {operation.fingerprint!r} ({error}). Make it numbers, texts,"
          " lists and mappings."
        ]
      ) from error
    return f"{cls.__qualname__} {text}"
  if dataclasses.is_dataclass(operation):
    fields = ", ".join(
      f"{field.name}={_shown(operation, getattr(operation, field.name))}"
      for field in dataclasses.fields(operation)
      if field.compare
    )
    return f"{cls.__qualname__}({fields})"
  shown = _shown(operation, operation)
  # Python's own `repr` tells the module, and nothing else.
  return cls.__qualname__ + ("" if shown.startswith("<") else f" {shown}")


def as_now(saved: Any, current: Any) -> Any:
  """Returns saved names with those of earlier versions as they are now.

  Args:
    saved: Names in a state.
    current: Names now; what they are not equal to is left as it is.
  """
  lists = isinstance(saved, list) and isinstance(current, list)
  if not lists or len(saved) != len(current):
    return saved
  pairs = zip(saved, current, strict=True)
  return [now if _is_of(was, now) else was for was, now in pairs]


def _shown(operation: Any, value: Any) -> str:
  """Returns the `repr` of a transform, or of one of its fields.

  Raises:
    ConfigError: If it hides what decides what the transform does.
  """
  shown = repr(value)
  if _HIDDEN.search(shown) and (
    type(value).__repr__ is not object.__repr__ or _holds_something(value)
  ):
    raise errors.ConfigError(
      [
        f"`{type(operation).__qualname__}` must tell its options, got"
        f" {shown}: a state could not tell it from one of other options. Make"
        f" {type(value).__qualname__!r} a dataclass, or give it a `__repr__` or"
        " the transform a `fingerprint` of JSON values."
      ]
    )
  return _ADDRESS.sub("", shown)


def _holds_something(value: Any) -> bool:
  """Whether an object has attributes of its own."""
  slots = (
    name
    for base in type(value).__mro__
    for name in getattr(base, "__slots__", ())
    if name not in ("__dict__", "__weakref__")
  )
  held = getattr(value, "__dict__", None)
  return bool(held) or any(hasattr(value, name) for name in slots)


def _is_of(was: str, now: str) -> bool:
  """Whether an earlier version would have named a transform so.

  It wrote the module, the class, and the `repr` unless that was Python's own.
  """
  match = _NAME.match(now)
  head, _, options = was.partition(" ")
  if match is None or not head.endswith(f".{match[0]}"):
    return False
  return not options or now in (options, f"{match[0]} {options}")
