# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Chunks of object stores kept on a local disk, for several processes at once.

A chunk is a file `<store's hash>/<array>.<chunk>`: its bytes as they are
stored, with their crc32c behind them. Whoever reads a file checks it, and takes
one that is damaged for missing. Files are written beside their place and
renamed, by one process at a time; their sum is in the file `.bytes`, and what
was used longest ago goes when it would pass the bound.
"""

from collections.abc import Iterator
import contextlib
import fcntl
import os
import pathlib
import secrets
import struct

from absl import logging

from chomp_data import errors

DEFAULT_BYTES = 64 * 2**30

_SUM = ".bytes"
_NEW = ".new-"
# Evicting leaves so much of the bound, so that the files are not listed often.
_LEFT = 7 / 8


class DiskCache:
  """A directory with at most so many bytes of chunks.

  Attributes:
    directory: Where.
  """

  def __init__(self, directory: str | os.PathLike[str], most_bytes: int):
    """Makes the directory.

    Args:
      directory: A local one; processes and runs may share it.
      most_bytes: Of all files in it, one that is being written included.

    Raises:
      StoreError: If one cannot write there.
    """
    self.directory: pathlib.Path = pathlib.Path(directory)
    self._most = most_bytes
    self._full = False
    try:
      self.directory.mkdir(parents=True, exist_ok=True)
      with self._sum():
        pass
    except OSError as error:
      raise errors.StoreError(
        f"`cache_dir` must be a directory that one may write to, got"
        f" {os.fspath(directory)!r} ({error.strerror or error}). Give another"
        " one, or none."
      ) from error

  def get(self, store: str, name: str) -> bytes | None:
    """Returns what was put, unchecked, or None.

    Args:
      store: The store's hash.
      name: Of the chunk.
    """
    path = self.directory / store[:16] / name
    try:
      data = path.read_bytes()
      os.utime(path)
    except OSError:
      return None
    return data

  def put(self, store: str, name: str, data: bytes) -> None:
    """Keeps bytes, where there is room or room can be made.

    Args:
      store: As in `get`.
      name: As in `get`.
      data: With their checksum.
    """
    if len(data) > self._most * _LEFT:
      return
    path = self.directory / store[:16] / name
    new = path.with_name(f"{_NEW}{secrets.token_hex(8)}")
    try:
      path.parent.mkdir(exist_ok=True)
      with self._sum() as add:
        if not path.exists():
          add(len(data))
          new.write_bytes(data)
          os.rename(new, path)
    except OSError as error:
      if not self._full:
        logging.warning("%s keeps no more chunks: %s", self.directory, error)
      self._full = True

  def remove(self, store: str, name: str) -> None:
    """Removes what was found to be damaged."""
    (self.directory / store[:16] / name).unlink(missing_ok=True)

  @contextlib.contextmanager
  def _sum(self) -> Iterator["_Sum"]:
    """Yields what adds bytes to the sum, once, before they are written."""
    descriptor = os.open(
      self.directory / _SUM, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666
    )
    try:
      fcntl.flock(descriptor, fcntl.LOCK_EX)
      yield _Sum(self.directory, descriptor, self._most)
    finally:
      os.close(descriptor)


class _Sum:
  """The sum of a cache's files; whoever has it holds the lock."""

  def __init__(self, directory: pathlib.Path, descriptor: int, most: int):
    self._directory = directory
    self._descriptor = descriptor
    self._most = most

  def __call__(self, size: int) -> None:
    """Adds a file to come; evicts others where it does not fit."""
    stored = os.pread(self._descriptor, 8, 0)
    if len(stored) < 8:
      total = self._evicted(self._most)
    else:
      (total,) = struct.unpack("<q", stored)
    if total + size > self._most:
      total = self._evicted(int(self._most * _LEFT) - size)
    os.pwrite(self._descriptor, struct.pack("<q", total + size), 0)

  def _evicted(self, most: int) -> int:
    """Leaves `most` bytes of files; returns how many there are."""
    files = []
    for path in self._directory.glob("*/*"):
      with contextlib.suppress(FileNotFoundError):
        status = path.stat()
        files.append((status.st_mtime_ns, status.st_size, path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
      # Nobody else is writing: who began these was killed.
      if total > most or path.name.startswith(_NEW):
        path.unlink(missing_ok=True)
        total -= size
    return total
