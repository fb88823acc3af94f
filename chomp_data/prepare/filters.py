# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A user's own function that says which documents are kept.

    def keep(text, record):
      if len(text) < 100:
        return "short"
      return record["score"] > 0.5

    keep.keys = ("score",)

It is named as `package.module:function`. A table's record holds the columns of
text, id and meta, and those that the attribute `keys` names; any other record
is whole. What is left out is counted by what the function returned.
"""

from collections.abc import Callable
from collections.abc import Mapping
import functools
import hashlib
import importlib
import inspect
import pathlib
from typing import Any

from chomp_data import errors

FILTERED = "filtered"

_Filter = Callable[[str, Mapping[str, Any]], Any]


@functools.lru_cache(maxsize=8)
def load(path: str) -> _Filter:
  """Imports a filter.

  Raises:
    PrepareError: If there is none.
  """
  module, _, name = path.partition(":")
  try:
    function: Any = importlib.import_module(module)
    for part in name.split("."):
      function = getattr(function, part)
  except (ImportError, AttributeError, ValueError) as error:
    raise errors.PrepareError(
      "`--filter` must be `package.module:function` that can be imported, got"
      f" {path!r}: {error}. Correct it; Python looks in PYTHONPATH, which every"
      " worker must have."
    ) from None
  if not callable(function):
    raise errors.PrepareError(
      f"`--filter` must name a function, got {path!r}, a"
      f" {type(function).__name__}. Correct it."
    )
  return function


def keys(path: str) -> tuple[str, ...]:
  """Returns the keys of records that a filter asks for."""
  return tuple(getattr(load(path), "keys", ()))


def digest(path: str) -> str:
  """Returns SHA-256 as hex of the file that a filter is in.

  It is part of the identity of a store, so that another version makes another
  store.
  """
  try:
    source = inspect.getsourcefile(inspect.unwrap(load(path)))
    data = pathlib.Path(source or "").read_bytes()
  except (OSError, TypeError):
    return ""
  return hashlib.sha256(data).hexdigest()


def reason_to_leave_out(
  path: str, text: str | bytes, record: Mapping[str, Any], where: str
) -> str | None:
  """Asks a filter.

  Returns:
    Why it is left out, or None to keep it.

  Raises:
    PrepareError: If the filter fails, or answers something else.
  """
  if isinstance(text, bytes):
    text = text.decode(errors="replace")
  try:
    answer = load(path)(text, record)
  except Exception as error:
    raise errors.PrepareError(
      f"`--filter` must not fail, got {type(error).__name__}: {error}, of"
      f" {path} at {where}. Correct the function."
    ) from error
  if isinstance(answer, str) and answer:
    return answer
  # NumPy's own truth values are no bool.
  if type(answer).__name__ in ("bool", "bool_"):
    return None if answer else FILTERED
  raise errors.PrepareError(
    f"`--filter` must return True, False or a reason to leave a document out,"
    f" got {answer!r} of {path} at {where}. Correct the function."
  )
