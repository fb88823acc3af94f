# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Files of a run until its store is published: in a directory, or at a URL.

Nothing is synced to a disk: a file that a power cut damages is detected by its
checksum, and written again.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import functools
import hashlib
import json
from typing import Any
from typing import TypeVar

from chomp_data import errors
from chomp_data.storage import checksums
from chomp_data.storage import opening
from chomp_data.storage import storage
from chomp_data.stores import json_values
from chomp_data.threads import together

_T = TypeVar("_T")

# Requests that are sent concurrently.
_CONCURRENT = 32


@functools.lru_cache(maxsize=16)
def storage_at(directory: str) -> storage.Storage:
  """Returns the storage of a directory or URL, opened once per process."""
  return opening.open_storage(directory, durable=False)


def write_summed(directory: str, name: str, data: bytes) -> None:
  """Writes a file, its crc32c in a line before it."""
  crc = checksums.crc32c(data)
  storage_at(directory).put(name, b"%08x\n%b" % (crc, data))


def read_summed(directory: str, name: str) -> bytes:
  """Returns what `write_summed` wrote.

  Raises:
    FileNotFoundError: If it is not there.
    StoreError: If it cannot be read.
    ValueError: If it is not as it was written.
  """
  files = storage_at(directory)

  def check(stored: bytes) -> None:
    crc, _, data = stored.partition(b"\n")
    if crc != b"%08x" % checksums.crc32c(data):
      raise ValueError(f"{files.url(name)} has other bytes")

  return files.get(name, check=check).partition(b"\n")[2]


def write_row(directory: str, name: str, value: Any) -> None:
  """Writes a dataclass as JSON, summed."""
  write_summed(directory, name, json_values.encode(value))


def read_row(kind: type[_T], directory: str, name: str) -> _T:
  """Returns what `write_row` wrote; raises as `read_summed`."""
  return json_values.parse(kind, read_summed(directory, name), name)


def saved(
  kind: type[_T], directory: str, name: str, make: Callable[[], _T]
) -> _T:
  """Returns the row that a run before this one wrote, else makes and writes it.

  Without the permission to write it is only made: an existing store is then
  still found, and a run that must write fails at its first part.
  """
  with contextlib.suppress(OSError, ValueError):
    return read_row(kind, directory, name)
  value = make()
  with contextlib.suppress(errors.AccessError):
    write_row(directory, name, value)
  return value


def digest(values: Iterable[Any]) -> str:
  """Returns a name for JSON values and dataclasses: 32 hexadecimal digits."""
  content = hashlib.sha256()
  for value in values:
    text = json.dumps(value, sort_keys=True, default=dataclasses.asdict)
    content.update(f"{text}\n".encode())
  return content.hexdigest()[:32]


def mapped(
  function: Callable[[Any], Any], values: Sequence[Any]
) -> Iterator[Any]:
  """Yields what a function returns for each value, 32 calls at a time."""
  return together.mapped(function, values, _CONCURRENT)
