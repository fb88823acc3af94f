# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Objects of object stores as files that are read, each range a request.

with object_files.open("gs://bucket/corpus.jsonl", size) as file:
  file.seek(2**30)
  file.read(100)
"""

import functools
import io
from typing import Any

from chomp_data.stores import places

# Bytes of a request: with them a piece of 32 MiB and the end of its last line
# are four requests.
RANGE = 8 * 2**20 + 2**17

# What is read beyond `until` at first, and then twice as much each time.
_BEYOND = 2**16


def open(
  url: str, size: int, *, until: int | None = None, buffered: bool = True
) -> io.BufferedIOBase | io.RawIOBase:
  """Returns a file to read and to seek in; nothing is asked for yet.

  Args:
    url: Of an object.
    size: Its bytes.
    until: Little is read ahead beyond it; None is the end.
    buffered: Whether `RANGE` bytes are read at once, and kept; if not, each
      `read` is a request.
  """
  file = ObjectFile(url, size, until)
  return io.BufferedReader(file, RANGE) if buffered else file


@functools.lru_cache(maxsize=16)
def bucket(root: str) -> places.Place:
  """Returns the place of a bucket, one for all of its objects."""
  return places.at(root)


def place_of(url: str) -> tuple[places.Place, str]:
  """Returns the place that an object is read from, and its name there."""
  scheme, _, rest = url.partition("://")
  root, _, name = rest.partition("/")
  return bucket(f"{scheme}://{root}"), name


class ObjectFile(io.RawIOBase):
  """An object, read without a buffer."""

  def __init__(self, url: str, size: int, until: int | None = None):
    """See `open`."""
    super().__init__()
    self.name: str = url
    self._place, self._name = place_of(url)
    self._size = size
    self._until = size if until is None else until
    self._beyond = _BEYOND
    self._at = 0

  def readable(self) -> bool:
    """It is."""
    return True

  def seekable(self) -> bool:
    """It is."""
    return True

  def tell(self) -> int:
    """Returns the position."""
    return self._at

  def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
    """Moves the position, and returns it."""
    begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}
    self._at = max(0, begin[whence] + offset)
    return self._at

  def readinto(self, buffer: Any) -> int:
    """Reads bytes, fewer than there is room for only beyond `until`.

    Raises:
      FileNotFoundError: If the object is gone.
      StoreError: If it cannot be read.
    """
    room = memoryview(buffer).cast("B")
    done = 0
    while done < len(room) and self._at < self._size:
      end = min(self._at + min(len(room) - done, RANGE), self._size)
      if self._at >= self._until:
        if done:
          break
        end = min(end, self._at + self._beyond)
        self._beyond *= 2
      elif end > self._until:
        end = min(end, self._until + _BEYOND)
      data = self._place.read(self._name, self._at, end)
      room[done : done + len(data)] = data
      done += len(data)
      self._at += len(data)
      if end > self._until and done < len(room):
        break
    return done
