# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Files of a corpus that others wrote, in an object store.

Objects are identified by their versions, which listings have, or a request for
each. What is read is of that version or an error, so that no object is replaced
unseen.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import tempfile
from typing import Any

import numpy as np

from chomp_data import errors
from chomp_data.storage import opening
from chomp_data.storage import paths
from chomp_data.storage import storage
from chomp_data.threads import together

# Asked for at once, and bytes of a request where an object is read whole.
_TOGETHER = 16
_BLOCK_BYTES = 8 * 2**20


@dataclasses.dataclass(frozen=True)
class ObjectCorpus:
  """As `record_files.Corpus`, of objects.

  Attributes:
    root: The URL that names are relative to.
    names: Of the objects, with slashes.
    home: What an index is put beside.
    versions: Of the objects, when they were found.
    sizes: Their bytes then, by name.
    files: The storage of `root`.
  """

  root: str
  names: tuple[str, ...]
  home: str
  versions: tuple[int | str, ...]
  sizes: Mapping[str, int]
  files: storage.Storage

  def path(self, file: int) -> str:
    """Returns an object's URL."""
    return self.files.url(self.names[file])

  def key(self) -> list[list[str | int]]:
    """Returns URL and version of every object, which identify its content."""
    return [[self.path(i), version] for i, version in enumerate(self.versions)]

  def check_unharmed(self, *unused: Any) -> None:
    """An object of the same version is the same."""
    del unused

  def is_copy_of(self, *unused: Any) -> bool:
    """Objects have versions and no times to compare."""
    del unused
    return False

  def read(
    self,
    file: int,
    begin: int,
    end: int | None,
    check: storage.Check | None = None,
  ) -> bytes:
    """Returns bytes of an object, as `Storage.get`.

    Raises:
      StoreError: If it cannot be read, is gone, or was replaced.
    """
    try:
      return self.files.get(
        self.names[file],
        begin,
        end,
        version=self.versions[file],
        check=check,
      )
    except FileNotFoundError:
      raise errors.StoreError(
        f"{self.path(file)} must exist, got no such object any more. Put it"
        " back, or start again."
      ) from None

  def size(self, file: int) -> int:
    """Returns the bytes of an object of the version that was found."""
    return self.sizes[self.names[file]]

  def download(self, file: int) -> np.ndarray:
    """Returns an object's bytes, uint8, in a temporary file that is mapped."""
    size = self.size(file)
    parent = paths.staging(self.path(file)).parent
    parent.mkdir(parents=True, exist_ok=True)
    # The file has no name: the system removes it with the map.
    with tempfile.TemporaryFile(dir=parent) as out:
      out.truncate(max(size, 1))
      data = np.memmap(out, np.uint8, "r+", shape=size) if size else None
    if data is None:
      return np.empty(0, np.uint8)

    def copy_block(begin: int) -> None:
      end = min(begin + _BLOCK_BYTES, size)
      data[begin:end] = np.frombuffer(self.read(file, begin, end), np.uint8)

    together.for_all(copy_block, range(0, size, _BLOCK_BYTES), _TOGETHER)
    return data


def find(root: str, names: Sequence[str], home: str, what: str) -> ObjectCorpus:
  """Returns the objects of a corpus, by a request for each.

  Args:
    root: A URL.
    names: Relative to it.
    home: What an index is put beside.
    what: What each must be, for an error.

  Raises:
    StoreError: If one is missing, or cannot be read.
  """
  files = opening.open_storage(root)
  infos = together.mapped(files.head, names, _TOGETHER)
  objects = []
  for name, info in zip(names, infos, strict=True):
    if info is None:
      raise errors.StoreError(
        f"{files.url(name)} must be {what}, got no such object."
        " Correct the URL, or put the object there."
      )
    objects.append(info)
  return of_listing(files, objects, home)


def of_listing(
  files: storage.Storage, objects: Sequence[storage.ObjectInfo], home: str
) -> ObjectCorpus:
  """Returns the objects of a corpus that were listed; sends no request.

  Args:
    files: Where they are.
    objects: Their metadata, of a listing or of `Storage.head`. Where that has
      no version, as in listings of GCS, objects are known by their ETags.
    home: What an index is put beside.
  """
  return ObjectCorpus(
    files.path,
    tuple(info.name for info in objects),
    home,
    tuple(_version(info) for info in objects),
    {info.name: info.size for info in objects},
    files,
  )


def _version(info: storage.ObjectInfo) -> int | str:
  version = info.etag if info.version is None else info.version
  assert version is not None
  return version
