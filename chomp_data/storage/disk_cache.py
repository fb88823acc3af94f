# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Chunks of object stores kept on a local disk, for several processes at once.

A chunk is a file `<store's hash>/<array>.<chunk>`: its bytes as they are
stored, followed by a crc32c: of our stores that of the bytes, of other tools'
files that of the store's hash, the file's name and the bytes. Readers check
files; one that is damaged, or another chunk's, counts as missing. Files are
written under another name and renamed, by one process at a time; their sum is
in the file `.bytes`, and what was used longest ago is removed where it would
pass the bound.
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
from chomp_data.storage import publish

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
    self._most_bytes = most_bytes
    self._has_failed: bool = False
    try:
      self.directory.mkdir(parents=True, exist_ok=True)
      with self._locked_sum():
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
    """Stores bytes, evicting others where there is no room.

    Args:
      store: As in `get`.
      name: As in `get`.
      data: With their checksum.
    """
    if len(data) > self._most_bytes * _LEFT:
      return
    path = self.directory / store[:16] / name
    new = path.with_name(f"{_NEW}{secrets.token_hex(8)}")
    try:
      with self._locked_sum() as sum_file:
        if not path.exists():
          self._add(sum_file, len(data))
          with publish.staged_file(path, new, durable=False) as file:
            file.write(data)
    except OSError as error:
      if not self._has_failed:
        logging.warning("%s keeps no more chunks: %s", self.directory, error)
      self._has_failed = True

  def remove(self, store: str, name: str) -> None:
    """Removes a chunk that is damaged."""
    (self.directory / store[:16] / name).unlink(missing_ok=True)

  @contextlib.contextmanager
  def _locked_sum(self) -> Iterator[int]:
    """Yields the descriptor of the file of the sum, locked."""
    descriptor = os.open(
      self.directory / _SUM, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666
    )
    try:
      fcntl.flock(descriptor, fcntl.LOCK_EX)
      yield descriptor
    finally:
      os.close(descriptor)

  def _add(self, sum_file: int, size: int) -> None:
    """Adds a file to come to the sum; evicts others where it does not fit."""
    stored = os.pread(sum_file, 8, 0)
    if len(stored) < 8:
      total = self._evict(self._most_bytes)
    else:
      (total,) = struct.unpack("<q", stored)
    if total + size > self._most_bytes:
      total = self._evict(int(self._most_bytes * _LEFT) - size)
    os.pwrite(sum_file, struct.pack("<q", total + size), 0)

  def _evict(self, most_bytes: int) -> int:
    """Leaves `most_bytes` of files; returns how many bytes there are."""
    files: list[tuple[int, int, pathlib.Path]] = []
    for path in self.directory.glob("*/*"):
      with contextlib.suppress(FileNotFoundError):
        status = path.stat()
        files.append((status.st_mtime_ns, status.st_size, path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
      # With the lock: a writer that left new files was killed.
      if total > most_bytes or path.name.startswith(_NEW):
        path.unlink(missing_ok=True)
        total -= size
    return total
