# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Checksums of files that others wrote: every later change is then an error.

`python -m chomp_data.stores adopt PATH` keeps, beside the data in
`<path>.adopted`, the size of every file and the crc32c of each of its pages of
1 MiB. It stays when files change, which an index does not. Copied to a bucket
beside the files, it is obeyed there, too.
"""

from collections.abc import Callable
from collections.abc import Mapping
from concurrent import futures
import hashlib
import json
import os
import pathlib
import shutil
from typing import Any

import numpy as np

from chomp_data import errors
from chomp_data.stores import checksums
from chomp_data.stores import places
from chomp_data.stores import publish
from chomp_data.stores import relative_names

FILE = "adopted.json"
PAGES = "pages.bin"
PAGE_BYTES = 1 << 20
_SCHEMA = 1

# Of an object, pages of a request, and requests at once.
_JOINED_PAGES = 8
_TOGETHER = 16

# A directory, a file, or the URL of one.
_Path = pathlib.Path | str


class Adopted:
  """What the files of a corpus were when they were adopted.

  Attributes:
    directory: Where that is kept.
    files: (number of the first page, size) by name.
  """

  def __init__(
    self,
    directory: _Path,
    files: Mapping[str, tuple[int, int]],
    crc32c: np.ndarray,
  ):
    """Holds what `load` read."""
    self.directory = directory
    self.files = files
    self._crc32c = crc32c

  def pages(self, name: str) -> "Pages":
    """Returns the pages of a file."""
    first, size = self.files[name]
    return Pages(self, self._crc32c[first : first + num_pages(size)], size)

  def check_names(self, root: _Path, names: tuple[str, ...]) -> None:
    """Raises StoreError where files were added, removed, cut or grown.

    Of objects the names only: their sizes would cost requests, and are checked
    with their content.
    """
    # A glob may take some of the files that were adopted.
    for name in names:
      if name not in self.files:
        raise self.changed(places.join(str(root), name), "is new")
    if isinstance(root, str):
      return
    for name, (_, size) in self.files.items():
      try:
        found = os.stat(root / name).st_size
      except OSError:
        raise self.changed(root / name, "is gone") from None
      if found != size:
        raise self.changed(root / name, f"is of {found} bytes and not {size}")

  def check_content(
    self,
    root: _Path,
    progress: Callable[[int], object] = lambda num_bytes: None,
  ) -> None:
    """Reads all files; raises StoreError where a page is another.

    Args:
      root: What names are relative to.
      progress: Told the bytes of each page.
    """
    for name in self.files:
      pages = self.pages(name)
      if isinstance(root, str):
        pages.check_object(places.at(root), name, progress)
      else:
        pages.check_all(root / name, progress)

  def changed(self, path: _Path, what: str) -> errors.StoreError:
    """Returns the error of a file that is not as it was."""
    return errors.StoreError(
      f"{path} must be as it was adopted, but {what}. Restore it from a copy;"
      f" if it is right as it is, remove {self.directory} and adopt it again."
    )


class Pages:
  """The pages of one file, each checked once."""

  def __init__(self, adopted: Adopted, crc32c: np.ndarray, size: int):
    """See `Adopted.pages`."""
    self._adopted = adopted
    self._crc32c = crc32c
    self._size = size
    self._checked = np.zeros(len(crc32c), np.bool_)

  def check(
    self, path: pathlib.Path, starts: np.ndarray, stops: np.ndarray
  ) -> None:
    """Checks the pages that ranges touch, those not checked before.

    Args:
      path: The file.
      starts: int64[N], in bytes.
      stops: int64[N], in bytes.

    Raises:
      StoreError: If a page was altered.
    """
    low, high = starts // PAGE_BYTES, -(-stops // PAGE_BYTES)
    if (high - low <= 1).all():
      pages = np.unique(low[high > low])
    else:
      ranges = map(range, low.tolist(), high.tolist())
      pages = np.unique([page for own in ranges for page in own])
    missing = pages[~self._checked[pages]] if len(pages) else pages
    if not len(missing):
      return
    with publish.open_file(path) as file:
      for page in missing.tolist():
        self._check(path, file, page)

  def check_all(
    self, path: pathlib.Path, progress: Callable[[int], object]
  ) -> None:
    """Checks all pages, whether or not they were; see `check_content`."""
    with publish.open_file(path) as file:
      for page in range(len(self._crc32c)):
        progress(self._check(path, file, page))
      if file.read(1):
        raise self._adopted.changed(path, f"is of more than {self._size} bytes")

  def check_object(
    self, place: places.Place, name: str, progress: Callable[[int], object]
  ) -> None:
    """As `check_all`, of an object."""
    path, found = place.file(name), place.find(name)
    if found is None:
      raise self._adopted.changed(path, "is gone")
    if found.size != self._size:
      raise self._adopted.changed(
        path, f"is of {found.size} bytes and not {self._size}"
      )

    def check(first: int) -> int:
      begin = first * PAGE_BYTES
      end = min(begin + _JOINED_PAGES * PAGE_BYTES, self._size)

      def compare(data: bytes) -> None:
        for i, low in enumerate(range(0, len(data), PAGE_BYTES), first):
          self._compare(path, i, data[low : low + PAGE_BYTES])

      return len(place.read(name, begin, end, compare))

    with futures.ThreadPoolExecutor(_TOGETHER) as pool:
      firsts = range(0, len(self._crc32c), _JOINED_PAGES)
      for num_bytes in pool.map(check, firsts):
        progress(num_bytes)

  def _check(self, path: pathlib.Path, file: Any, page: int) -> int:
    file.seek(page * PAGE_BYTES)
    data = file.read(PAGE_BYTES)
    self._compare(path, page, data)
    return len(data)

  def _compare(self, path: _Path, page: int, data: bytes) -> None:
    found = checksums.crc32c(data)
    if found != self._crc32c[page]:
      raise self._adopted.changed(
        path, f"its bytes from {page * PAGE_BYTES} on are others"
      )
    self._checked[page] = True


def num_pages(size: int) -> int:
  """Returns the pages of a file."""
  return -(-size // PAGE_BYTES)


def directory_of(home: pathlib.Path) -> pathlib.Path:
  """Returns where the checksums of a corpus are kept."""
  return publish.beside(home, ".adopted")


def adopt(
  home: pathlib.Path,
  root: pathlib.Path,
  names: tuple[str, ...],
  progress: Callable[[int], object] = lambda num_bytes: None,
) -> Adopted:
  """Keeps checksums of files; reads all of them.

  Args:
    home: What the checksums are kept beside.
    root: The directory that names are relative to.
    names: The files.
    progress: Told the bytes of each page.

  Returns:
    The checksums.

  Raises:
    StoreError: If they were adopted before, or a file cannot be read.
  """
  directory = directory_of(home)
  with publish.lock(directory):
    if directory.exists():
      raise errors.StoreError(
        f"{home} must not be adopted yet, got {directory}. Verify it; to adopt"
        " files that changed on purpose, remove that directory first."
      )
    staging = publish.beside(directory, ".writing")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    try:
      _write(staging, root, names, progress)
      publish.publish(staging, directory)
    finally:
      shutil.rmtree(staging, ignore_errors=True)
  found = load(home)
  assert found is not None
  return found


def _write(
  staging: pathlib.Path,
  root: pathlib.Path,
  names: tuple[str, ...],
  progress: Callable[[int], object],
) -> None:
  sizes = []
  table = hashlib.sha256()
  with publish.new_file(staging / PAGES) as out:
    for name in names:
      size = 0
      relative_names.check(name, root)
      try:
        with publish.open_file(root / name) as file:
          while data := file.read(PAGE_BYTES):
            crc = np.asarray([checksums.crc32c(data)], "<u4").tobytes()
            out.write(crc)
            table.update(crc)
            size += len(data)
            progress(len(data))
      except OSError as error:
        raise errors.StoreError(
          f"{root / name} must be readable, got {error}. Restore it."
        ) from error
      sizes.append([name, size])
    out.flush()
    os.fsync(out.fileno())
  header = {
    "schema": _SCHEMA,
    "page_bytes": PAGE_BYTES,
    "files": sizes,
    "pages_sha256": table.hexdigest(),
  }
  path = staging / FILE
  publish.write_file(path, f"{json.dumps(header, indent=1)}\n".encode())
  publish.sync(path)


def load(home: _Path) -> Adopted | None:
  """Returns the checksums of a corpus, or None where it was not adopted.

  Args:
    home: What they are kept beside.

  Raises:
    StoreError: If they are damaged.
  """
  if isinstance(home, str):
    directory = f"{home}.adopted"
    if places.at(directory).version(FILE) is None:
      return None
  else:
    directory = directory_of(home)
    if not os.path.isdir(directory):
      return None
  place = places.at(directory)
  try:
    header = json.loads(place.read(FILE, check=json.loads))
    if header["schema"] != _SCHEMA or header["page_bytes"] != PAGE_BYTES:
      raise ValueError(f"schema {header['schema']!r}")

    def check(data: bytes) -> None:
      if hashlib.sha256(data).hexdigest() != header["pages_sha256"]:
        raise ValueError("another table of checksums")

    data = place.read(PAGES, check=check)
    crc32c = np.frombuffer(data, "<u4")
    files, first = {}, 0
    for name, size in header["files"]:
      if type(size) is not int or size < 0:
        raise ValueError(f"size {relative_names.brief(size)}")
      files[relative_names.check(name, place.file(FILE))] = (first, size)
      first += num_pages(size)
    if first != len(crc32c):
      raise ValueError(f"{len(crc32c)} checksums for {first} pages")
  except (OSError, ValueError, KeyError, TypeError) as error:
    raise errors.StoreError(
      f"{directory} must hold the checksums that `stores adopt` wrote, got"
      f" {FILE} and {PAGES} with {error!r}. Restore it from a"
      " copy, or remove it and adopt again."
    ) from error
  return Adopted(directory, files, crc32c)
