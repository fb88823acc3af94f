# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Checks names of files that data contain, before they are joined to a path.

Manifests, headers of indexes, checkpoints and objects of buckets name files
relative to the directory or URL that they are in. Who wrote such data may not
choose what else is read or written on this machine: each of these names passes
`check` or `path_below` first.

    model/d/0, 00000.hashes           accepted
    /etc/passwd, ../x, a/../../x      outside of the directory
    a//b, a/, ./a, '', 'a\\0b'         not one name, or not a name
    C:x, a\\b                          outside of it on other systems
"""

import os
import pathlib
import re
from typing import Any

from chomp_data import errors

RULE = (
  "a name of a file below its directory, of parts separated by '/' and none of"
  " them '', '.' or '..'"
)
# What a file system holds in one part of a path, in bytes.
_MOST_PART = 255
_DRIVE = re.compile(r"[A-Za-z]:")


def is_valid(name: Any) -> bool:
  """Returns whether a value names a file below a directory.

  Args:
    name: A value of any type, as a file of JSON has it.
  """
  if not isinstance(name, str) or "\\" in name or "\0" in name:
    return False
  try:
    parts = os.fsencode(name).split(b"/")
  except UnicodeEncodeError:
    return False
  if any(
    part in (b"", b".", b"..") or len(part) > _MOST_PART for part in parts
  ):
    return False
  return _DRIVE.match(name) is None


def is_part(name: Any) -> bool:
  """Returns whether a value names a file in a directory, not deeper."""
  return is_valid(name) and "/" not in name


def leaves_address(name: str) -> bool:
  """Returns whether a URL made of an object's name is of another object.

  HTTP clients resolve '.' and '..' before they send a request. Unlike
  `is_valid` it accepts what buckets allow, such as empty parts.
  """
  return not {".", ".."}.isdisjoint(name.split("/"))


def check(name: Any, named_in: str | os.PathLike[str]) -> str:
  """Returns a name that a file contains.

  Args:
    name: A value of any type.
    named_in: The file that contains it, for the message.

  Raises:
    StoreError: If it does not name a file below a directory.
  """
  if not is_valid(name):
    raise errors.StoreError(
      f"{os.fspath(named_in)} must name files by {RULE}, got {brief(name)}. Do"
      " not use this data; get it again from whom you trust."
    )
  return name


def path_below(
  directory: str | os.PathLike[str],
  name: Any,
  named_in: str | os.PathLike[str],
) -> pathlib.Path:
  """Returns the path of a name that a file contains, links followed.

  A file and the one that names it may both be links into one other directory,
  as in the cache of the Hugging Face hub.

  Args:
    directory: Where the file should be.
    name: A value of any type.
    named_in: The file that contains the name.

  Raises:
    StoreError: If it does not name a file below the directory, or links lead
      out of it.
  """
  path = pathlib.Path(directory, check(name, named_in))
  target = os.path.realpath(path)
  for allowed in (directory, os.path.dirname(os.path.realpath(named_in))):
    if pathlib.Path(target).is_relative_to(os.path.realpath(allowed)):
      return path
  raise errors.StoreError(
    f"{os.fspath(named_in)} must name files below {os.fspath(directory)}, got"
    f" {brief(name)}, a link to {target}. Copy that file there if it is the"
    " right one."
  )


def brief(value: Any) -> str:
  """Returns a value of unknown size and type for a message."""
  text = repr(value)
  return text if len(text) <= 80 else f"{text[:77]}..."
