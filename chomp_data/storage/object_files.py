# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Objects in buckets as files: each range that is read is a request.

with open_storage("gs://bucket").open_file("corpus.jsonl", size) as file:
  file.seek(2**30)
  file.read(100)
"""

import io
from typing import Any

from chomp_data.storage import storage

# Bytes of a request: with them a piece of 32 MiB and the end of its last line
# are four requests.
RANGE = 8 * 2**20 + 2**17

# What is read beyond `until` at first, and then twice as much each time.
HEAD_MARGIN = 2**16

# What `ObjectEnds` reads of each end.
END = 2**16


class ObjectFile(io.RawIOBase):
  """An object, read without a buffer."""

  def __init__(
    self,
    objects: storage.Storage,
    name: str,
    size: int,
    until: int | None = None,
  ):
    """Requests nothing; the arguments are those of `Storage.open_file`."""
    super().__init__()
    self.name: str = objects.url(name)
    self._storage = objects
    self._name = name
    self._size = size
    self._until = size if until is None else until
    self._beyond = HEAD_MARGIN
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
      FileNotFoundError: If the object was deleted.
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
        end = min(end, self._until + HEAD_MARGIN)
      data = self._read(self._at, end)
      room[done : done + len(data)] = data
      done += len(data)
      self._at += len(data)
      if end > self._until and done < len(room):
        break
    return done

  def _read(self, start: int, stop: int) -> bytes:
    return self._storage.get(self._name, start, stop)


class ObjectEnds(ObjectFile):
  """An object that is looked at: its first and last 64 KiB are read once.

  Attributes:
    info: The size and version that it has; None before anything is read. All
      that is read is of this version.
  """

  def __init__(self, objects: storage.Storage, name: str, size: int):
    """Requests nothing; the arguments are those of `Storage.open_ends`."""
    super().__init__(objects, name, size)
    self.info: storage.ObjectInfo | None = None
    self._ends: dict[int, bytes] = {}

  def _read(self, start: int, stop: int) -> bytes:
    for begin in (0, max(0, self._size - END)):
      end = min(begin + END, self._size)
      if begin <= start < end:
        if begin not in self._ends:
          self._ends[begin] = self._request(begin, end)
        return self._ends[begin][start - begin : stop - begin]
    return self._request(start, stop)

  def _request(self, start: int, stop: int) -> bytes:
    version = None if self.info is None else self.info.version
    data, self.info = self._storage.read(
      self._name, start, stop, version=version
    )
    return data
