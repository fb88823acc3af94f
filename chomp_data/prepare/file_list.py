# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Lists of input files that take 200 bytes per file: buckets hold millions."""

from collections.abc import Sequence
import json
from typing import Any

from chomp_data import errors
from chomp_data.prepare.reading import base

_SEPARATOR = "\0"  # In no name of a file, and sorts before all else.


def pack(*fields: str) -> bytes:
  """Returns texts as bytes that sort as a tuple of the texts does.

      pack("b.txt", "/a/b.txt")  b"b.txt\\0/a/b.txt"

  Args:
    *fields: Texts without NUL.

  Raises:
    PrepareError: If there is NUL in one, as in the name of an object.
  """
  row = _SEPARATOR.join(fields)
  if row.count(_SEPARATOR) >= len(fields):
    name = next(field for field in fields if _SEPARATOR in field)
    raise errors.PrepareError(
      f"`--input` must hold objects without NUL in their names, got {name!r}."
      " Rename the object, or name only others by globs."
    )
  # Paths that are no UTF-8 hold surrogates.
  return row.encode("utf-8", "surrogatepass")


def unpack(row: bytes) -> list[str]:
  """Returns what `pack` packed."""
  return row.decode("utf-8", "surrogatepass").split(_SEPARATOR)


def pack_file(file: base.InputFile) -> bytes:
  """Returns a file as bytes that sort by its name, then its path."""
  return pack(
    file.name,
    file.path,
    str(file.size),
    json.dumps(file.version),
    file.kind,
    file.compression,
  )


class FileList(Sequence[base.InputFile]):
  """Files, which are made of bytes whenever they are read."""

  def __init__(self, rows: list[bytes]):
    """Reads the results of `pack_file`, in their order."""
    self._rows = rows

  def __len__(self) -> int:
    return len(self._rows)

  def __getitem__(self, number: Any) -> Any:
    if isinstance(number, slice):
      return [_file(row) for row in self._rows[number]]
    return _file(self._rows[number])

  def __setitem__(self, number: int, file: base.InputFile) -> None:
    self._rows[number] = pack_file(file)


def _file(row: bytes) -> base.InputFile:
  name, path, size, version, kind, compression = unpack(row)
  return base.InputFile(
    name, path, int(size), json.loads(version), kind, compression
  )
