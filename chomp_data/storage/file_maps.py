# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Files mapped into memory, with no descriptor kept open.

Python's `mmap` duplicates the descriptor and holds it as long as the map, and
so does `np.memmap`: a run of some hundred sources met the limit of open files,
1,024 on most machines. The system itself needs none once a file is mapped.
(`trackfd=False` would do; Python has it from 3.13 on.)
"""

import ctypes
import mmap
import os
import weakref

import numpy as np

from chomp_data.storage import publish

_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
  ctypes.c_void_p,
  ctypes.c_size_t,
  ctypes.c_int,
  ctypes.c_int,
  ctypes.c_int,
  ctypes.c_int64,
)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def mapped(path: str | os.PathLike[str], dtype: np.dtype | type) -> np.ndarray:
  """Returns a file's values, read-only; the map goes with the last view.

  Args:
    path: The file.
    dtype: Of its values; bytes after the last whole one are left out.

  Raises:
    OSError: If it is no regular file, or cannot be opened or mapped.
  """
  dtype = np.dtype(dtype)
  with publish.open_file(path) as file:
    size = os.fstat(file.fileno()).st_size
    if not size:
      return np.empty(0, dtype)
    buffer = _buffer(file.fileno(), 0, size, mmap.PROT_READ, path)
  view = memoryview(buffer).toreadonly()
  return np.frombuffer(view, dtype, size // dtype.itemsize)


def shared(descriptor: int, offset: int, size: int) -> np.ndarray:
  """Returns bytes of an open file, which are written where they are changed.

  Args:
    descriptor: Of a file of at least `offset + size` bytes, open for writing.
    offset: A multiple of the page size.
    size: At least 1.

  Raises:
    OSError: If it cannot be mapped.
  """
  access = mmap.PROT_READ | mmap.PROT_WRITE
  buffer = _buffer(descriptor, offset, size, access)
  return np.frombuffer(memoryview(buffer), np.uint8)


def _buffer(
  descriptor: int,
  offset: int,
  size: int,
  access: int,
  path: str | os.PathLike[str] = "shared memory",
) -> ctypes.Array:
  """Returns a map of a part of an open file."""
  address = _libc.mmap(None, size, access, mmap.MAP_SHARED, descriptor, offset)
  if address == _FAILED:
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number), os.fspath(path))
  buffer = (ctypes.c_ubyte * size).from_address(address)
  # At the end of a process other threads may still read.
  weakref.finalize(buffer, _libc.munmap, address, size).atexit = False
  return buffer


def read_soon(values: np.ndarray) -> None:
  """Asks the system to read a part of a map ahead."""
  _advise(values, mmap.MADV_WILLNEED)


def release(values: np.ndarray) -> None:
  """Takes a part of a read-only map out of this process's memory.

  It stays in the system's cache of files, and reading it maps it again.
  """
  _advise(values, mmap.MADV_DONTNEED)


def _advise(values: np.ndarray, advice: int) -> None:
  address = values.__array_interface__["data"][0]
  first = address // mmap.PAGESIZE * mmap.PAGESIZE
  # Advice only: where a file system refuses it, reads do all the same.
  _libc.madvise(first, address + values.nbytes - first, advice)
