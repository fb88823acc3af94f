# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A directory of files."""

from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import errno
import io
import os
import pathlib
import shutil
from typing import BinaryIO
from typing import TYPE_CHECKING

from chomp_data import errors
from chomp_data.storage import publish
from chomp_data.storage import storage

if TYPE_CHECKING:
  from chomp_data.storage import requests


class DiskStorage(storage.Storage):
  """A directory of files."""

  def __init__(self, path: str | os.PathLike[str], durable: bool = True):
    """Touches nothing.

    Args:
      path: The directory, which need not exist.
      durable: Whether a file that was put is on disk.
    """
    self.path: str = os.fspath(path)
    self.directory: pathlib.Path | None = pathlib.Path(path)
    self.durable: bool = durable

  def url(self, name: str) -> str:
    """Returns the path of a file."""
    return os.path.join(self.path, name)

  def head(self, name: str) -> storage.ObjectInfo | None:
    """Returns a file's size and modification time."""
    with self._access(name):
      try:
        status = os.stat(self.url(name))
      except (FileNotFoundError, NotADirectoryError):
        return None
    return storage.ObjectInfo(name, status.st_size, status.st_mtime_ns)

  def read(
    self,
    name: str,
    start: int = 0,
    stop: int | None = None,
    *,
    check: storage.Check | None = None,
    version: int | str | None = None,
    sent: "requests.Requests | None" = None,
  ) -> tuple[bytes, storage.ObjectInfo]:
    """Returns bytes of a file."""
    del sent
    with self._access(name), publish.open_file(self.url(name)) as file:
      status = os.fstat(file.fileno())
      modified = status.st_mtime_ns
      if version not in (None, modified):
        raise errors.StoreError(
          f"{self.url(name)} must be the file of version {version} that was"
          f" opened, got {modified}: it was replaced meanwhile. Put it back, or"
          " start again."
        )
      file.seek(start if start >= 0 else max(0, status.st_size + start))
      data = file.read() if stop is None else file.read(stop - start)
    if check is not None:
      check(data)
    return data, storage.ObjectInfo(name, status.st_size, modified)

  def open_file(
    self,
    name: str,
    size: int,
    *,
    until: int | None = None,
    buffered: bool = True,
  ) -> io.BufferedIOBase | io.RawIOBase:
    """Opens a file."""
    del until, buffered
    return self.open_ends(name, size)

  def open_ends(self, name: str, size: int) -> io.BufferedReader:
    """Opens a file."""
    del size
    return open(self.url(name), "rb")

  def new(self, name: str) -> contextlib.AbstractContextManager[BinaryIO]:
    """Yields a file that has its name once it is complete."""
    path = pathlib.Path(self.url(name))
    return publish.staged_file(path, durable=self.durable)

  def put(self, name: str, data: bytes, *, create: bool = False) -> bool:
    """Writes a file beside its name, then renames it."""
    try:
      with publish.staged_file(
        pathlib.Path(self.url(name)), create=create, durable=self.durable
      ) as file:
        file.write(data)
    except FileExistsError:
      if not create:
        raise  # What should be its directory is a file.
      return False
    return True

  def list(self, prefix: str = "") -> Iterator[storage.ObjectInfo]:
    """Yields the files whose names begin with a prefix."""
    for folder, _, files in os.walk(
      os.path.join(self.path, prefix.rpartition("/")[0])
    ):
      for file in files:
        path = pathlib.Path(folder, file)
        name = path.relative_to(self.path).as_posix()
        if name.startswith(prefix) and (info := self.head(name)) is not None:
          yield info

  def delete(self, names: Iterable[str]) -> None:
    """Deletes files."""
    for name in names:
      pathlib.Path(self.url(name)).unlink(missing_ok=True)

  def clear(self) -> None:
    """Deletes all files, and the directory."""
    with contextlib.suppress(FileNotFoundError):
      shutil.rmtree(self.path)

  @contextlib.contextmanager
  def _access(self, name: str) -> Iterator[None]:
    """Raises errors of the file system as FileNotFoundError or StoreError."""
    path = self.url(name)
    try:
      yield
    except (FileNotFoundError, NotADirectoryError):
      raise FileNotFoundError(errno.ENOENT, "no file", path) from None
    except OSError as error:
      errors.check_open_files(error)
      raise errors.StoreError(
        f"{path} must be readable, got {error}. Check the disk and its"
        " permissions."
      ) from error
