# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Where two fingerprints differ, and what fields that older ones lack mean."""

from collections.abc import Iterator
import re
from typing import Any

_MISSING = "(absent)"

# What a field means that a fingerprint lacks, by a regular expression of its
# dotted path. A new field is listed here, and changes no state's meaning.
DEFAULTS: dict[str, Any] = {
  r"sources\..+\.max_epochs": None,
  "batch_size_schedule": {},
  "keep_fields": [],
  "skip": {},
  "tombstones": {},
}


def compared(
  old: Any, new: Any, path: str = ""
) -> Iterator[tuple[str, str, str]]:
  """Yields each difference; a section that only one side has is one.

  Args:
    old: A fingerprint or a section of one, as JSON values.
    new: What it is compared with.
    path: Dotted path of the section, by which `DEFAULTS` go.

  Yields:
    Dotted path, old and new value as text.
  """
  if isinstance(old, dict) and isinstance(new, dict):
    for name in sorted(old.keys() | new.keys()):
      below = f"{path}.{name}" if path else name
      default = _default(below)
      yield from compared(old.get(name, default), new.get(name, default), below)
  elif old != new or type(old) is not type(new):
    was, now = ("one" if isinstance(v, dict) else repr(v) for v in (old, new))
    yield path, was, now


def _default(path: str) -> Any:
  """Returns what a fingerprint without a field has there."""
  for pattern, value in DEFAULTS.items():
    if re.fullmatch(pattern, path):
      return value
  return _MISSING
