# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Files with a CRC-32C of every page: written once, verified when read.

A page is a part of a file of fixed size, 1 MiB unless said otherwise; the last
one may be shorter. The checksums are stored in an index or in another file.
"""

from collections.abc import Callable
from collections.abc import Sequence
import itertools
import os
import pathlib
from typing import Any

import google_crc32c
import numpy as np

from chomp_data import errors
from chomp_data.index import ragged
from chomp_data.storage import file_maps
from chomp_data.storage import publish

PAGE_BYTES = 1 << 20


class CheckedFile:
  """An array in a file, mapped; each page is verified when it is first read.

      file = CheckedFile(path, np.uint16, crc32c, remedy="Restore it.")
      file.read(10, 20)         # verifies the page of values 10 .. 19
      file.read(12, 18)         # verifies nothing

  Which pages were verified is remembered as long as the object lives. A page
  that was verified is removed from the process's memory: few of its values may
  be needed, and what is read again comes from the system's cache.

  Attributes:
    path: The file.
    values: All values, verified or not.
  """

  def __init__(
    self,
    path: pathlib.Path,
    dtype: np.dtype | type,
    crc32c: Sequence[int] | np.ndarray | None,
    *,
    size: int | None = None,
    page_bytes: int = PAGE_BYTES,
    remedy: str,
  ):
    """Maps a file.

    Args:
      path: The file.
      dtype: Of its values.
      crc32c: uint32[num_pages]; None if none is known, so nothing is verified.
      size: Number of values that it must hold; None is as many as there are.
      page_bytes: Bytes of a page, a multiple of the size of a value.
      remedy: What to do about a damaged file, for messages.

    Raises:
      StoreError: If the file cannot be read, or is not of that size.
    """
    self.path: pathlib.Path = path
    self._remedy = remedy
    dtype = np.dtype(dtype)
    try:
      data = file_maps.mapped(path, np.uint8)
    except OSError as error:
      errors.check_open_files(error)
      raise self.damaged(f"must be readable, got {error}") from error
    if size is None:
      size = len(data) // dtype.itemsize
    if len(data) != size * dtype.itemsize:
      raise self.damaged(
        f"must hold {size} values of {dtype.name} in"
        f" {size * dtype.itemsize} bytes, got {len(data)} bytes"
      )
    self.values: np.ndarray = data.view(dtype)
    self._per_page = page_bytes // self.values.itemsize
    num_pages = -(-len(self.values) // self._per_page)
    if crc32c is not None and len(crc32c) != num_pages:
      raise self.damaged(
        f"must be of {len(crc32c)} pages of {page_bytes} bytes, got {num_pages}"
      )
    self._crc32c = crc32c
    self._is_verified = np.full(num_pages, crc32c is None, np.bool_)

  def __len__(self) -> int:
    return len(self.values)

  def read(self, start: int = 0, stop: int | None = None) -> np.ndarray:
    """Returns values start .. stop - 1, verified, as a view of the map.

    Args:
      start: The first one, 0 or more.
      stop: The one after the last; None is the end.

    Raises:
      StoreError: If a page was altered.
    """
    stop = len(self) if stop is None else stop
    first, last = start // self._per_page, -(-stop // self._per_page)
    if not self._is_verified[first:last].all():
      self._verify(np.arange(first, last))
    return self.values[start:stop]

  def gather(self, positions: np.ndarray) -> np.ndarray:
    """Returns values at positions, verified; a new array.

    Args:
      positions: int64[N], 0 <= position < len.

    Raises:
      StoreError: If a page was altered.
    """
    pages = positions // self._per_page
    if not self._is_verified[pages].all():
      self._verify(np.unique(pages))
    return self.values[positions]

  def search(self, values: np.ndarray) -> np.ndarray:
    """Returns how many of ascending values are at most each, int64[N].

    Args:
      values: int64[N], at least 0.

    Raises:
      StoreError: If a page was altered.
    """
    values = self._as_stored(values)
    count = np.searchsorted(self.values, values, side="right")
    # Pages on the way are not verified. Where the neighbours are right, and
    # the values ascend, so is the result.
    below = self.gather(np.maximum(count - 1, 0))
    above = self.gather(np.minimum(count, len(self) - 1))
    is_right = ((count == 0) | (below <= values)) & (
      (count == len(self)) | (above > values)
    )
    if not is_right.all():
      self.read()
      return np.searchsorted(self.values, values, side="right")
    return count

  def _as_stored(self, values: np.ndarray) -> np.ndarray:
    """Returns values in the type of the file's, as far as it has them.

    NumPy would copy all values of the file into the other type.
    """
    values = np.clip(values, 0, np.iinfo(self.values.dtype).max)
    return values.astype(self.values.dtype)

  def check(self, starts: np.ndarray, stops: np.ndarray) -> None:
    """Verifies the pages of several ranges.

    Args:
      starts: int64[N], in values.
      stops: int64[N], the values after the last ones, each at least its start.

    Raises:
      StoreError: If a page was altered.
    """
    if self._crc32c is None:
      return
    first, last = starts // self._per_page, -(-stops // self._per_page)
    pages = ragged.ranges(first, last - first)
    if not self._is_verified[pages].all():
      self._verify(np.unique(pages))

  def damaged(self, rule: str) -> errors.StoreError:
    """Returns the error of a file that breaks a rule."""
    return errors.StoreError(f"{self.path}: {rule}. {self._remedy}")

  def _verify(self, pages: np.ndarray) -> None:
    """Verifies those of ascending pages that were not yet."""
    wrong: list[int] = []
    for page in pages[~self._is_verified[pages]].tolist():
      data = self._page(page)
      try:
        self._check_page(page, data)
      except errors.StoreError:
        wrong.append(page)
        continue
      self._is_verified[page] = True
      file_maps.release(data)
    if wrong:
      self._restore(wrong)

  def _restore(self, pages: list[int]) -> None:
    """Puts pages that are not as they were written in their place, if it can.

    Raises:
      StoreError: If it cannot.
    """
    self._check_page(pages[0], self._page(pages[0]))

  def _page(self, page: int) -> np.ndarray:
    """Returns the values of a page, verified or not."""
    start = page * self._per_page
    return self.values[start : start + self._per_page]

  def _check_page(self, page: int, data: Any) -> None:
    """Raises StoreError where the bytes of a page are not those written."""
    assert self._crc32c is not None
    actual, expected = google_crc32c.value(data), int(self._crc32c[page])
    if actual != expected:
      first = page * self._per_page * self.values.itemsize
      raise self.damaged(
        f"page {page} must have crc32c {expected:08x}, got {actual:08x}"
        f" (bytes {first} .. {first + memoryview(data).nbytes - 1})"
      )


class PageSums:
  """CRC-32C of each page of bytes that come in pieces of any size.

  Attributes:
    num_bytes: Bytes summed.
  """

  def __init__(self, page_bytes: int = PAGE_BYTES):
    """Begins with no bytes."""
    self.num_bytes: int = 0
    self._page_bytes = page_bytes
    self._crc32c: list[int] = []

  def update(self, data: Any) -> None:
    """Appends bytes, a contiguous buffer."""
    data = np.frombuffer(data, np.uint8)
    while len(data):
      within = self.num_bytes % self._page_bytes
      piece = data[: self._page_bytes - within]
      if not within:
        self._crc32c.append(0)
      self._crc32c[-1] = google_crc32c.extend(self._crc32c[-1], piece)
      self.num_bytes += len(piece)
      data = data[len(piece) :]

  def crc32c(self) -> list[int]:
    """Returns the checksums, the last one of the part of a page so far."""
    return list(self._crc32c)


def page_sums(data: Any, page_bytes: int = PAGE_BYTES) -> list[int]:
  """Returns the CRC-32C of each page of bytes, a contiguous buffer."""
  sums = PageSums(page_bytes)
  sums.update(data)
  return sums.crc32c()


def first_difference(
  data: Any, crc32c: Sequence[int], page_bytes: int = PAGE_BYTES
) -> int | None:
  """Returns the first page of bytes that is not as it was written, or None.

  Args:
    data: The bytes, a contiguous buffer.
    crc32c: Of the pages that they must have.
    page_bytes: Bytes of a page.
  """
  sums = itertools.zip_longest(page_sums(data, page_bytes), crc32c)
  return next((i for i, (a, b) in enumerate(sums) if a != b), None)


def sums_of(
  path: str | os.PathLike[str],
  page_bytes: int = PAGE_BYTES,
  progress: Callable[[bytes], object] = lambda page: None,
) -> PageSums:
  """Returns the sums of the pages of a file, which is read whole.

  Args:
    path: The file.
    page_bytes: Bytes of a page.
    progress: Called with each page.

  Raises:
    OSError: If it cannot be read.
  """
  sums = PageSums(page_bytes)
  with publish.open_file(path) as file:
    while page := file.read(page_bytes):
      sums.update(page)
      progress(page)
  return sums


class CheckedWriter:
  """Writes a file and sums its pages.

  Attributes:
    sums: Of what was written.
  """

  def __init__(
    self,
    path: pathlib.Path,
    resume_bytes: int = 0,
    page_bytes: int = PAGE_BYTES,
  ):
    """Creates or replaces a file, or continues one.

    Args:
      path: The file.
      resume_bytes: Bytes of an existing file that stay; 0 begins a new one.
      page_bytes: Bytes of a page.

    Raises:
      OSError: If it cannot be written.
      ValueError: If the file has fewer bytes.
    """
    self.sums: PageSums = PageSums(page_bytes)
    self._file = publish.new_file(path, "r+b" if resume_bytes else "wb")
    while missing := resume_bytes - self.sums.num_bytes:
      data = self._file.read(min(missing, page_bytes))
      if not data:
        self._file.close()
        raise ValueError(f"{path} must have {resume_bytes} bytes, got fewer")
      self.sums.update(data)
    self._file.truncate()

  def write(self, data: Any) -> None:
    """Appends bytes, a contiguous buffer."""
    self._file.write(data)
    self.sums.update(data)

  def sync(self) -> None:
    """Returns when all that was written is on disk."""
    self._file.flush()
    os.fsync(self._file.fileno())

  def close(self) -> None:
    """Closes the file, which is then on disk."""
    self.sync()
    self._file.close()
