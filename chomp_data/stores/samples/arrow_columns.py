# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Columns of Arrow record batches as NumPy views of a checked memory map.

A column of nested lists is its numbers side by side and, at each depth, where
lists begin:

    rows      [[1, 2], [3, 4]], [[5, 6], [7, 8]]
    numbers   1 2 3 4 5 6 7 8
    inner     0 2 4 6 8            lists of numbers
    outer     0 2 4                lists of lists: one a row

So a row is one run of numbers, whose shape is that of its lists at each depth,
all alike.
"""

import math
import pathlib
from typing import Any

import numpy as np

from chomp_data import errors
from chomp_data.storage import checked_file
from chomp_data.stores.array_record import record_files

PAGE_BYTES = checked_file.PAGE_BYTES


def pyarrow() -> Any:
  """Returns the module pyarrow.

  Raises:
    StoreError: If it is not installed.
  """
  try:
    import pyarrow as arrow  # pyright: ignore
  except ImportError as error:
    raise errors.StoreError(
      "pyarrow must be installed to read a directory of `save_to_disk`. Install"
      " chomp_data with the extra `arrow`."
    ) from error
  return arrow


class BadValueError(ValueError):
  """A row does not hold what it must; the message follows 'sample 3 '."""


class MappedFile(checked_file.CheckedFile):
  """A mapped file whose pages are verified when they are first read.

  Attributes:
    buffer: All of it, for Arrow.
  """

  def __init__(
    self,
    path: pathlib.Path,
    crc32c: np.ndarray,
    remedy: str = record_files.RESTORE,
  ):
    """Maps a file; see `CheckedFile`.

    Args:
      path: The file.
      crc32c: uint32[num_pages], of every MiB.
      remedy: What to do about a damaged file, for messages.

    Raises:
      StoreError: If it cannot be mapped.
    """
    super().__init__(
      path,
      np.uint8,
      crc32c,
      page_bytes=PAGE_BYTES,
      remedy=remedy,
    )
    self.buffer: Any = pyarrow().py_buffer(self.values)

  def offset(self, buffer: Any) -> int:
    """Returns where in the file an Arrow buffer is.

    Raises:
      StoreError: If it is elsewhere: it was compressed.
    """
    offset = buffer.address - self.buffer.address
    if not 0 <= offset <= self.buffer.size - buffer.size:
      raise errors.StoreError(
        f"{self.path} must hold arrays without compression to be read in place."
        " Save the dataset again without it."
      )
    return offset

  def verify(self, buffer: Any, width: int, first: int, last: int) -> None:
    """Verifies values first .. last - 1 of an Arrow buffer.

    Args:
      buffer: The buffer, or None, where there is nothing to verify.
      width: Bits of a value.
      first: The first value.
      last: The value after the last.

    Raises:
      StoreError: If a page was altered.
    """
    if buffer is not None:
      stop = min(-(-last * width // 8), buffer.size)
      start = min(first * width // 8, stop)
      begin = self.offset(buffer)
      self.read(begin + start, begin + stop)


class Column:
  """One column of one record batch, as it is stored in a stream.

  Attributes:
    is_raw: Whether it holds bytes, which have no shape.
  """

  def __init__(self, file: MappedFile, array: Any, name: str):
    """Reads nothing yet.

    Args:
      file: Which it is mapped from.
      array: pyarrow.Array of a type that `is_array` or `is_value`.
      name: The column's, for messages.
    """
    self._file = file
    self._name = name
    array = _storage(array)
    self.is_raw: bool = _is_bytes(array.type)
    self._array = _lists_of(array) if self.is_raw else array
    self._buffers_verified = False

  def array(self, row: int) -> np.ndarray:
    """Returns the numbers of a row; bytes as uint8[num_bytes].

    They are a view of the map, but for truth values, which are bits there.

    Raises:
      BadValueError: If a value is missing, or lists differ in length.
      StoreError: If the file was altered.
    """
    part, shape = self._array.slice(row, 1), []
    while _is_list(part.type):
      self._verify(part)
      if pyarrow().types.is_fixed_size_list(part.type):
        length = part.type.list_size
        first, count = part.offset * length, len(part) * length
      else:
        first, count, length = self._range(part.offsets.to_numpy())
      shape.append(length)
      part = _storage(part.values).slice(first, count)
    self._verify(part)
    if len(part) != math.prod(shape):
      raise BadValueError(
        f"must hold {math.prod(shape)} values as `{self._name}`, got"
        f" {len(part)}"
      )
    return part.to_numpy(zero_copy_only=False).reshape(shape)

  def item(self, row: int) -> Any:
    """Returns a row's number, text or truth value, or None.

    Raises:
      StoreError: If the file was altered.
    """
    if not self._buffers_verified:
      for buffer in self._array.buffers():
        if buffer is not None:
          self._file.verify(buffer, 8, 0, buffer.size)
      self._buffers_verified = True
    return self._array[row].as_py()

  def value(self, row: int) -> Any:
    """Returns `item`; raises BadValueError where it is None."""
    value = self.item(row)
    if value is None:
      raise self._missing()
    return value

  def numbers(self) -> np.ndarray | None:
    """Returns the numbers of all rows, None where they are no numbers.

    Raises:
      StoreError: If the file was altered.
    """
    if self._array.null_count or not _is_number(self._array.type):
      return None
    self._verify(self._array)
    return self._array.to_numpy()

  def _verify(self, part: Any) -> None:
    """Verifies the bytes that say which values a slice holds, all of them.

    Raises:
      BadValueError: If one is missing.
    """
    kind, types = part.type, pyarrow().types
    validity, *others = part.buffers()
    first, last = part.offset, part.offset + len(part)
    self._file.verify(validity, 1, first, last)
    if part.null_count:
      raise self._missing()
    if types.is_large_list(kind):
      self._file.verify(others[0], 64, first, last + 1)
    elif types.is_list(kind):
      self._file.verify(others[0], 32, first, last + 1)
    elif not types.is_fixed_size_list(kind):
      self._file.verify(others[0], kind.bit_width, first, last)

  def _range(self, offsets: np.ndarray) -> tuple[int, int, int]:
    """Returns the first value, the number of values and the length of lists."""
    lengths = np.diff(offsets)
    length = int(lengths[0]) if len(lengths) else 0
    if (lengths != length).any() or length < 0 or offsets.min(initial=0) < 0:
      raise BadValueError(
        f"must hold lists of one length as `{self._name}`, got lengths"
        f" {int(lengths.min())} to {int(lengths.max())}"
      )
    first = int(offsets[0]) if len(lengths) else 0
    return first, length * len(lengths), length

  def _missing(self) -> BadValueError:
    return BadValueError(f"must hold `{self._name}`, got a missing value")


def _lists_of(array: Any) -> Any:
  """Returns an array of bytes as lists of uint8, in the same buffers."""
  arrow, kind = pyarrow(), array.type
  *others, data = array.buffers()
  number = arrow.uint8()
  lists = arrow.list_(number)
  if arrow.types.is_large_binary(kind):
    lists = arrow.large_list(number)
  elif arrow.types.is_fixed_size_binary(kind):
    lists = arrow.list_(number, kind.byte_width)
  size = 0 if data is None else data.size
  numbers = arrow.Array.from_buffers(number, size, [None, data])
  return arrow.Array.from_buffers(
    lists, len(array), others, -1, array.offset, [numbers]
  )


def is_array(kind: Any) -> bool:
  """Whether a column holds lists of numbers or truth values, or bytes."""
  kind = _storage_type(kind)
  if _is_bytes(kind):
    return True
  if not _is_list(kind):
    return False
  while _is_list(kind):
    kind = _storage_type(kind.value_type)
  return _is_number(kind) or pyarrow().types.is_boolean(kind)


def is_value(kind: Any) -> bool:
  """Whether a column of this type holds a number, text or truth value."""
  types = pyarrow().types
  return (
    _is_number(kind)
    or types.is_boolean(kind)
    or types.is_string(kind)
    or types.is_large_string(kind)
  )


def lengths(array: Any) -> list[int]:
  """Returns the lengths and missing values of an array and those below it."""
  array = _storage(array)
  out = [len(array), array.null_count]
  if _is_list(array.type):
    out += lengths(array.values)
  return out


def value_dtype(kind: Any) -> np.dtype | None:
  """Returns the dtype of a column `is_value`, None of text."""
  if _is_number(kind) or pyarrow().types.is_boolean(kind):
    return np.dtype(kind.to_pandas_dtype())
  return None


def _is_number(kind: Any) -> bool:
  types = pyarrow().types
  return types.is_integer(kind) or types.is_floating(kind)


def _is_bytes(kind: Any) -> bool:
  types = pyarrow().types
  return (
    types.is_binary(kind)
    or types.is_large_binary(kind)
    or types.is_fixed_size_binary(kind)
  )


def _is_list(kind: Any) -> bool:
  types = pyarrow().types
  return (
    types.is_list(kind)
    or types.is_large_list(kind)
    or types.is_fixed_size_list(kind)
  )


def _storage(array: Any) -> Any:
  """Returns an array without an extension type that a library registered."""
  return getattr(array, "storage", array)


def _storage_type(kind: Any) -> Any:
  return getattr(kind, "storage_type", kind)
