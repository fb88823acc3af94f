# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The contract of storage: objects by name, in a directory or a bucket."""

import abc
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import dataclasses
import io
import pathlib
from typing import BinaryIO
from typing import TYPE_CHECKING

from chomp_data import errors

if TYPE_CHECKING:
  # Its event loop is not for processes that read and write disks.
  from chomp_data.storage import requests

# Called with the bytes of an answer; raises ValueError (such as a StoreError)
# where they are not those that were written.
Check = Callable[[bytes], object]


@dataclasses.dataclass(frozen=True, slots=True)
class ObjectInfo:
  """Metadata of an object.

  Attributes:
    name: Its name, relative to the storage.
    size: Its bytes.
    version: Changes whenever the object does: the modification time of a file
      in ns, the generation of an object of GCS, the ETag of others; None if it
      is not known.
    etag: Of an object in a bucket its ETag, which listings have too, or the
      time of its last change where a server has no ETags; else None.
  """

  name: str
  size: int
  version: int | str | None
  etag: str | None = dataclasses.field(default=None, compare=False)


class Storage(abc.ABC):
  """Objects by name.

  Attributes:
    path: The directory, or the URL without a slash at its end.
    directory: The directory; None of a bucket.
    durable: Whether an object that was put is whole after a crash, too.
  """

  path: str
  directory: pathlib.Path | None = None
  durable: bool = True

  @property
  def is_remote(self) -> bool:
    """Whether a request takes tens of milliseconds, whatever its size."""
    return self.directory is None

  def url(self, name: str) -> str:
    """Returns the path or URL of an object."""
    return f"{self.path}/{name}"

  @abc.abstractmethod
  def head(self, name: str) -> ObjectInfo | None:
    """Returns an object's size and version, or None if there is none.

    Raises:
      StoreError: If it cannot be read.
    """

  @abc.abstractmethod
  def read(
    self,
    name: str,
    start: int = 0,
    stop: int | None = None,
    *,
    check: Check | None = None,
    version: int | str | None = None,
    sent: "requests.Requests | None" = None,
  ) -> tuple[bytes, ObjectInfo]:
    """Returns the bytes start .. stop - 1 of an object, and its metadata.

    Args:
      name: The object.
      start: The first byte; a negative one counts from the object's end.
      stop: The byte after the last; None is the object's end.
      check: Checks the bytes. Objects of buckets are requested again where it
        raises ValueError; its last error is raised where that does not help.
      version: The version that is read, or of an object in a bucket its ETag;
        an object of another one is an error.
      sent: Requests to a bucket are counted here too.

    Raises:
      FileNotFoundError: If there is no such object.
      StoreError: If it cannot be read, or is of another version; of an object
        in a bucket also if it has fewer bytes than `stop`.
    """

  def get(
    self,
    name: str,
    start: int = 0,
    stop: int | None = None,
    *,
    check: Check | None = None,
    version: int | str | None = None,
    sent: "requests.Requests | None" = None,
  ) -> bytes:
    """Returns the bytes of `read`; an empty range takes no request."""
    if start == stop and self.is_remote:
      return b""
    return self.read(
      name, start, stop, check=check, version=version, sent=sent
    )[0]

  @abc.abstractmethod
  def open_file(
    self,
    name: str,
    size: int,
    *,
    until: int | None = None,
    buffered: bool = True,
  ) -> io.BufferedIOBase | io.RawIOBase:
    """Returns a file to read and to seek in; requests nothing yet.

    Args:
      name: The object.
      size: Its bytes.
      until: Of an object in a bucket little is read ahead beyond it; None is
        the end.
      buffered: Whether more is read than what is asked for, and cached; if not,
        each `read` of an object in a bucket is a request.

    Raises:
      OSError: If a file cannot be opened. Reading an object in a bucket raises
        FileNotFoundError or StoreError.
    """

  @abc.abstractmethod
  def open_ends(self, name: str, size: int) -> io.BufferedReader:
    """Returns a file of which the begin and the end are read.

    Of an object in a bucket the first and the last 64 KiB are a request each,
    and all that is read is of one version, which is in `raw.info`.

    Args:
      name: As in `open_file`.
      size: As in `open_file`.

    Raises:
      OSError: As `open_file`.
    """

  def new(self, name: str) -> contextlib.AbstractContextManager[BinaryIO]:
    """Yields a file that is an object once it is complete.

    That of a bucket is in memory until then.
    """
    return _in_memory(self, name)

  @abc.abstractmethod
  def put(self, name: str, data: bytes, *, create: bool = False) -> bool:
    """Writes an object.

    Args:
      name: The object.
      data: Its bytes.
      create: Whether it is only written if there is none of that name. Of
        several processes that do so at once one succeeds.

    Returns:
      Whether it was written.
    """

  def holds(self, name: str, data: bytes) -> bool:
    """Returns whether an object is there and has these bytes."""

    def check(answer: bytes) -> None:
      if answer != data:
        raise ValueError("other bytes")

    try:
      self.get(name, check=check)
    except FileNotFoundError:
      return False
    except errors.StoreError:
      raise
    except ValueError:
      return False
    return True

  @abc.abstractmethod
  def delete(self, names: Iterable[str]) -> None:
    """Deletes objects; names of none are ignored."""

  def clear(self) -> None:
    """Deletes all objects."""
    self.delete(self.names())

  def names(self, prefix: str = "") -> list[str]:
    """Returns the names of `list`, ascending."""
    return sorted(info.name for info in self.list(prefix))

  @abc.abstractmethod
  def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
    """Yields the objects whose names begin with a prefix, in any order.

    GCS lists no generations: the version of its objects is None here, and the
    ETag says which they are.
    """


@contextlib.contextmanager
def _in_memory(objects: Storage, name: str) -> Iterator[BinaryIO]:
  with io.BytesIO() as file:
    yield file
    objects.put(name, file.getvalue())
