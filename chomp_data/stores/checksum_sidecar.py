# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Checksums of files that others wrote: every later change is then an error.

`python -m chomp_data.stores adopt PATH` keeps, beside the data in
`<path>.adopted`, the size of every file and the crc32c of each of its pages of
1 MiB. It stays when files change, which an index does not. Where it was
copied to a bucket beside the files, they are checked there, too.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import hashlib
import json
import os
import pathlib

import numpy as np

from chomp_data import errors
from chomp_data.storage import checked_file
from chomp_data.storage import opening
from chomp_data.storage import paths
from chomp_data.storage import publish
from chomp_data.storage import relative_names
from chomp_data.storage import storage
from chomp_data.stores import modification_guard
from chomp_data.threads import together

FILE = "adopted.json"
PAGES = "pages.bin"
_SCHEMA = 1

# Pages of a request, and requests at once.
_JOINED_PAGES = 8
_TOGETHER = 16

# A directory, a file, or the URL of one.
_Path = pathlib.Path | str


@dataclasses.dataclass(frozen=True)
class Sums:
  """What a file held: its size in bytes, and uint32[pages], of its pages."""

  size: int
  crc32c: np.ndarray


@dataclasses.dataclass(frozen=True)
class ChecksumSidecar:
  """What the files of a corpus were when they were adopted.

  Attributes:
    directory: Where that is kept.
    files: By name.
  """

  directory: _Path
  files: Mapping[str, Sums]

  @property
  def num_bytes(self) -> int:
    """Bytes of all files."""
    return sum(sums.size for sums in self.files.values())

  def check_names(self, root: _Path, names: tuple[str, ...]) -> None:
    """Raises StoreError where files were added, removed, cut or grown.

    Of many files the sizes of some are compared; those of others are checked
    with their content. So are those of objects, which would cost requests.
    """
    # A glob may take some of the files that were adopted.
    for name in names:
      if name not in self.files:
        raise self.changed(paths.join(str(root), name), "is new")
    if isinstance(root, str):
      return
    files = opening.open_storage(root)
    others = sorted(self.files.keys() - set(names))
    for group in (names, others):
      for i in modification_guard.sample(group):
        self._check_size(files, group[i])

  def check_content(
    self,
    root: _Path,
    progress: Callable[[int], object] = lambda num_bytes: None,
  ) -> None:
    """Reads all files; raises StoreError where a page was altered.

    Args:
      root: What names are relative to.
      progress: Called with the bytes of each page.
    """
    objects = opening.open_storage(root)

    def parts() -> Iterator[tuple[str, int]]:
      for name, sums in self.files.items():
        self._check_size(objects, name)
        for first in range(0, len(sums.crc32c), _JOINED_PAGES):
          yield name, first

    def check(part: tuple[str, int]) -> int:
      return self._check_pages(objects, *part)

    for num_bytes in together.mapped(check, parts(), _TOGETHER):
      progress(num_bytes)

  def _check_size(self, objects: storage.Storage, name: str) -> None:
    """Raises StoreError where a file is gone, cut or grown."""
    info, size = objects.head(name), self.files[name].size
    if info is None:
      raise self.changed(objects.url(name), "is gone")
    if info.size != size:
      raise self.changed(
        objects.url(name), f"is of {info.size} bytes and not {size}"
      )

  def _check_pages(
    self, objects: storage.Storage, name: str, first: int
  ) -> int:
    """Checks some pages of a file from one on; returns their bytes."""
    sums = self.files[name]
    expected = sums.crc32c[first : first + _JOINED_PAGES].tolist()
    begin = first * checked_file.PAGE_BYTES
    end = min(begin + len(expected) * checked_file.PAGE_BYTES, sums.size)

    def check(data: bytes) -> None:
      page = checked_file.first_difference(data, expected)
      if page is not None:
        start = (first + page) * checked_file.PAGE_BYTES
        raise self.changed(
          objects.url(name), f"its bytes from {start} on are others"
        )

    return len(objects.get(name, begin, end, check=check))

  def changed(self, path: _Path, what: str) -> errors.StoreError:
    """Returns the error of a file that is not as it was."""
    return errors.StoreError(
      f"{path} must be as it was adopted, but {what}. {self.remedy}"
    )

  @property
  def remedy(self) -> str:
    """What to do about a file that is not as it was."""
    return (
      "Restore it from a copy; if it is right as it is, remove"
      f" {self.directory} and adopt it again."
    )


def directory_of(home: pathlib.Path) -> pathlib.Path:
  """Returns where the checksums of a corpus are kept."""
  return publish.beside(home, ".adopted")


def adopt(
  home: pathlib.Path,
  root: pathlib.Path,
  names: tuple[str, ...],
  progress: Callable[[int], object] = lambda num_bytes: None,
) -> ChecksumSidecar:
  """Keeps checksums of files; reads all of them.

  Args:
    home: What the checksums are kept beside.
    root: The directory that names are relative to.
    names: The files.
    progress: Called with the bytes of each page.

  Returns:
    The checksums.

  Raises:
    StoreError: If they were adopted before, or a file cannot be read.
  """
  directory = directory_of(home)
  with publish.staging(directory) as staged:
    if directory.exists():
      raise errors.StoreError(
        f"{home} must not be adopted yet, got {directory}. Verify it; to adopt"
        " files that changed on purpose, remove that directory first."
      )
    staged.mkdir(parents=True)
    files, pages = [], []
    for name in names:
      relative_names.check(name, root)
      try:
        sums = checked_file.sums_of(
          root / name, progress=lambda page: progress(len(page))
        )
      except OSError as error:
        raise errors.StoreError(
          f"{root / name} must be readable, got {error}. Restore it."
        ) from error
      files.append([name, sums.num_bytes])
      pages += sums.crc32c()
    table = np.asarray(pages, "<u4").tobytes()
    header = {
      "schema": _SCHEMA,
      "page_bytes": checked_file.PAGE_BYTES,
      "files": files,
      "pages_sha256": hashlib.sha256(table).hexdigest(),
    }
    publish.write_file(staged / PAGES, table)
    publish.write_file(
      staged / FILE, f"{json.dumps(header, indent=1)}\n".encode()
    )
    publish.publish(staged, directory)
  sidecar = load(home)
  assert sidecar is not None
  return sidecar


def load(home: _Path) -> ChecksumSidecar | None:
  """Returns the checksums of a corpus, or None where it was not adopted.

  Args:
    home: What they are kept beside.

  Raises:
    StoreError: If they are damaged.
  """
  if isinstance(home, str):
    directory = f"{home}.adopted"
    if opening.open_storage(directory).head(FILE) is None:
      return None
  else:
    directory = directory_of(home)
    if not os.path.isdir(directory):
      return None
  objects = opening.open_storage(directory)
  try:
    header = json.loads(objects.get(FILE, check=json.loads))
    if (
      header["schema"] != _SCHEMA
      or header["page_bytes"] != checked_file.PAGE_BYTES
    ):
      raise ValueError(f"schema {header['schema']!r}")

    def check(data: bytes) -> None:
      if hashlib.sha256(data).hexdigest() != header["pages_sha256"]:
        raise ValueError("another table of checksums")

    crc32c = np.frombuffer(objects.get(PAGES, check=check), "<u4")
    files, first = {}, 0
    for name, size in header["files"]:
      if type(size) is not int or size < 0:
        raise ValueError(f"size {relative_names.brief(size)}")
      stop = first - (-size // checked_file.PAGE_BYTES)
      name = relative_names.check(name, objects.url(FILE))
      files[name] = Sums(size, crc32c[first:stop])
      first = stop
    if first != len(crc32c):
      raise ValueError(f"{len(crc32c)} checksums for {first} pages")
  except (OSError, ValueError, KeyError, TypeError) as error:
    raise errors.StoreError(
      f"{directory} must hold the checksums that `stores adopt` wrote, got"
      f" {FILE} and {PAGES} with {error!r}. Restore it from a"
      " copy, or remove it and adopt again."
    ) from error
  return ChecksumSidecar(directory, files)
