# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What a run keeps until its store is published: in a directory, or at a URL.

Files are there whole or not at all. On a disk nothing is synced: whoever reads
one checks it, and it is made again.
"""

from collections.abc import Sequence
import contextlib
import functools
import os
import pathlib
import secrets
import shutil

from chomp_data.stores import checksums
from chomp_data.stores import places
from chomp_data.stores import publish


@functools.lru_cache(maxsize=16)
def place(directory: str) -> places.Place:
  """Returns the place of a directory, one for all that is asked of it."""
  return places.at(directory)


def write(directory: str, name: str, data: bytes) -> None:
  """Writes a file, in the place of one of that name."""
  if places.is_url(directory):
    place(directory).write(name, data)
    return
  path = pathlib.Path(directory, name)
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
  publish.write_file(temporary, data)
  os.replace(temporary, path)


def read(
  directory: str,
  name: str,
  begin: int = 0,
  end: int | None = None,
  check: places.Check | None = None,
) -> bytes:
  """Returns bytes of a file; `check` as in `places.Place.read`.

  Raises:
    FileNotFoundError: If it is not there.
    StoreError: If it cannot be read.
  """
  return place(directory).read(name, begin, end, check)


def write_summed(directory: str, name: str, data: bytes) -> None:
  """Writes a file, its crc32c in a line before it."""
  write(directory, name, b"%08x\n%b" % (checksums.crc32c(data), data))


def read_summed(directory: str, name: str) -> bytes:
  """Returns what `write_summed` wrote.

  Raises:
    FileNotFoundError: If it is not there.
    StoreError: If it cannot be read.
    ValueError: If it has other bytes.
  """

  def check(stored: bytes) -> None:
    crc, _, data = stored.partition(b"\n")
    if crc != b"%08x" % checksums.crc32c(data):
      raise ValueError(f"{places.join(directory, name)} has other bytes")

  return read(directory, name, check=check).partition(b"\n")[2]


def exists(directory: str, name: str) -> bool:
  """Returns whether a file is there."""
  return place(directory).version(name) is not None


def names(directory: str) -> Sequence[str]:
  """Returns the names of all files, ascending."""
  return place(directory).names()


def remove(directory: str) -> None:
  """Removes all files, and the directory."""
  if places.is_url(directory):
    own = place(directory)
    own.delete(own.names())
    return
  with contextlib.suppress(FileNotFoundError):
    shutil.rmtree(directory)
