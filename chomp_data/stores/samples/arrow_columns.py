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

import pathlib
from typing import Any

import numpy as np

from chomp_data import errors
from chomp_data.stores import checksums
from chomp_data.stores.array_record import record_files

PAGE_BYTES = 1 << 20


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


class MappedFile:
  """A file's bytes through a memory map, each MiB checked at first touch.

  Attributes:
    path: The file.
    buffer: All of it, for Arrow.
  """

  def __init__(self, path: pathlib.Path, crc32c: np.ndarray):
    """Maps a file.

    Args:
      path: The file.
      crc32c: uint32[num_pages], of every MiB.

    Raises:
      StoreError: If it cannot be mapped.
    """
    self.path = path
    self._crc32c = crc32c
    self._checked = np.zeros(len(crc32c), np.bool_)
    arrow = pyarrow()
    try:
      with arrow.memory_map(str(path)) as mapped:
        self.buffer: Any = mapped.read_buffer()
    except (arrow.ArrowException, OSError) as error:
      raise errors.StoreError(
        f"{path} must be readable, got {record_files.first_line(error)}."
        f" {record_files.RESTORE}"
      ) from error
    self._bytes = np.frombuffer(self.buffer, np.uint8)

  def tail(self, count: int) -> bytes:
    """Returns the last bytes."""
    return self._bytes[-count:].tobytes()

  def offset(self, buffer: Any) -> int:
    """Returns where in the file an Arrow buffer lies.

    Raises:
      StoreError: If it does not: it was compressed.
    """
    offset = buffer.address - self.buffer.address
    if not 0 <= offset <= self.buffer.size - buffer.size:
      raise errors.StoreError(
        f"{self.path} must hold arrays without compression to be read in place."
        " Save the dataset again without it."
      )
    return offset

  def check(self, values: np.ndarray) -> None:
    """Checks the pages that a contiguous view of the map lies in.

    Raises:
      StoreError: If one was altered since it was indexed.
    """
    if not values.nbytes:
      return
    low = values.__array_interface__["data"][0] - self.buffer.address
    first, last = low // PAGE_BYTES, -(-(low + values.nbytes) // PAGE_BYTES)
    if self._checked[first:last].all():
      return
    for page in range(first, last):
      data = self._bytes[page * PAGE_BYTES : (page + 1) * PAGE_BYTES]
      found = checksums.crc32c(data)
      if found != self._crc32c[page]:
        raise errors.StoreError(
          f"{self.path}: bytes {page * PAGE_BYTES} .."
          f" {page * PAGE_BYTES + len(data) - 1} must have crc32c"
          f" {self._crc32c[page]:08x}, as when they were indexed, got"
          f" {found:08x}. {record_files.RESTORE}"
        )
      self._checked[page] = True


class Column:
  """One column of one record batch, as it lies in a stream.

  Attributes:
    is_raw: Whether it holds bytes, which have no shape.
  """

  def __init__(self, file: MappedFile, array: Any, name: str):
    """Finds the parts of a column; touches no number of it.

    Args:
      file: Which it is mapped from.
      array: pyarrow.Array of a type that `is_array` or `is_value`.
      name: The column's, for messages.
    """
    self._file = file
    self._name = name
    self._array = own = _storage(array)
    self.is_raw: bool = _is_bytes(own.type)
    self._buffers_checked = False
    # By depth: the lists' offsets or their one length, and the array where
    # some of it may be missing.
    self._levels: list[tuple[np.ndarray | int, Any]] = []
    while _is_list(own.type):
      if pyarrow().types.is_fixed_size_list(own.type):
        offsets = own.type.list_size
      else:
        offsets = own.offsets.to_numpy(zero_copy_only=True)
      self._levels.append((offsets, own if own.null_count else None))
      own = _storage(own.values)
    self._leaf = own if own.null_count else None
    dtype = np.dtype(np.uint8)
    if self.is_raw:
      self._levels.append((_byte_offsets(own), self._leaf))
      self._leaf = None
    elif _is_number(own.type):
      dtype = np.dtype(own.type.to_pandas_dtype())
    data = own.buffers()[-1]
    # Truth values are bits, the first one of a byte lowest.
    self._is_bits = pyarrow().types.is_boolean(own.type)
    self._count = len(own)
    self._bits = np.zeros(0, np.uint8)
    if self._is_bits and data is not None:
      self._bits = np.frombuffer(data, np.uint8, -(-len(own) // 8))
    self._numbers = np.zeros(0, dtype)
    if data is not None and (self.is_raw or _is_number(own.type)):
      count = data.size // dtype.itemsize if self.is_raw else len(own)
      self._numbers = np.frombuffer(data, dtype, count)

  def array(self, row: int) -> np.ndarray:
    """Returns the numbers of a row; bytes as uint8[num_bytes].

    They are a view of the map, but for truth values, which are bits there.

    Raises:
      BadValueError: If a value is missing, or lists differ in length.
      StoreError: If the file was altered.
    """
    low, high = row, row + 1
    shape = []
    for offsets, missing in self._levels:
      self._check_missing(missing, low, high)
      if isinstance(offsets, int):
        shape.append(offsets)
        low, high = low * offsets, high * offsets
        continue
      own = offsets[low : high + 1]
      self._file.check(own)
      lengths = np.diff(own)
      length = int(lengths[0]) if len(lengths) else 0
      if (lengths != length).any() or length < 0:
        raise BadValueError(
          f"must hold lists of one length as `{self._name}`, got lengths"
          f" {int(lengths.min())} to {int(lengths.max())}"
        )
      shape.append(length)
      low, high = (int(own[0]), int(own[-1])) if len(own) else (low, low)
    self._check_missing(self._leaf, low, high)
    if self._is_bits:
      numbers = self._truths(low, high)
    else:
      numbers = self._numbers[low:high]
      self._file.check(numbers)
    if low < 0 or len(numbers) != high - low:
      raise BadValueError(
        f"must hold {high - low} values as `{self._name}`, got {len(numbers)}"
      )
    return numbers.reshape(shape)

  def item(self, row: int) -> Any:
    """Returns a row's number, text or truth value, or None.

    Raises:
      StoreError: If the file was altered.
    """
    if not self._buffers_checked:
      for buffer in self._array.buffers():
        if buffer is not None:
          self._file.check(np.frombuffer(buffer, np.uint8))
      self._buffers_checked = True
    return self._array[row].as_py()

  def value(self, row: int) -> Any:
    """Returns `item`; raises BadValueError where it is None."""
    value = self.item(row)
    if value is None:
      raise self._lacks()
    return value

  def numbers(self) -> np.ndarray | None:
    """Returns the numbers of all rows, None where they are no numbers.

    Raises:
      StoreError: If the file was altered.
    """
    if self._leaf is not None or not _is_number(self._array.type):
      return None
    self._file.check(self._numbers)
    return self._numbers

  def _truths(self, low: int, high: int) -> np.ndarray:
    """Returns truth values low .. high - 1, as far as they are there."""
    high = min(high, self._count)
    first = low // 8
    packed = self._bits[first : -(-high // 8)]
    self._file.check(packed)
    bits = np.unpackbits(packed, bitorder="little")
    return bits[low - 8 * first : high - 8 * first].astype(np.bool_)

  def _check_missing(self, array: Any, low: int, high: int) -> None:
    if array is not None and array.slice(low, high - low).null_count:
      raise self._lacks()

  def _lacks(self) -> BadValueError:
    return BadValueError(f"must hold `{self._name}`, got a missing value")


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
  own = _storage(array)
  out = [len(own), own.null_count]
  if _is_list(own.type):
    out += lengths(own.values)
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


def _byte_offsets(array: Any) -> np.ndarray | int:
  """Returns where each row's bytes begin, or their one length."""
  types = pyarrow().types
  if types.is_fixed_size_binary(array.type):
    return array.type.byte_width
  dtype = np.int64 if types.is_large_binary(array.type) else np.int32
  return np.frombuffer(array.buffers()[1], dtype, len(array) + 1)


def _storage(array: Any) -> Any:
  """Returns an array without an extension type that a library registered."""
  return getattr(array, "storage", array)


def _storage_type(kind: Any) -> Any:
  return getattr(kind, "storage_type", kind)
