# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How many arrays NumPy allocates, and of how many bytes.

tracemalloc knows what is alive, not what was made and freed again. NumPy (NEP
49) lets a context have allocating functions of its own: these count, and leave
the work to NumPy's. What other threads allocate is not counted.
"""

from collections.abc import Iterator
import contextlib
import ctypes
import dataclasses
from typing import Any

from numpy._core import _multiarray_umath  # pyright: ignore

# Places in the table of NumPy's C functions, which never move.
_SET_HANDLER, _DEFAULT_HANDLER = 304, 306

_SIZE = ctypes.c_size_t
_POINTER = ctypes.c_void_p
_MALLOC = ctypes.CFUNCTYPE(_POINTER, _POINTER, _SIZE)
_CALLOC = ctypes.CFUNCTYPE(_POINTER, _POINTER, _SIZE, _SIZE)
_REALLOC = ctypes.CFUNCTYPE(_POINTER, _POINTER, _POINTER, _SIZE)


def _locked(function: Any, *types: Any):
  """Returns a C function that wants the lock of the interpreter held."""
  address: Any = ctypes.cast(function, _POINTER).value
  return ctypes.PYFUNCTYPE(_POINTER, _POINTER, *types)(address)


class _Handler(ctypes.Structure):
  """NumPy's `PyDataMem_Handler`."""

  _fields_ = (
    ("name", ctypes.c_char * 127),
    ("version", ctypes.c_uint8),
    ("context", _POINTER),
    ("malloc", _MALLOC),
    ("calloc", _CALLOC),
    ("realloc", _REALLOC),
    # NumPy's own, so that arrays may outlive everything here.
    ("free", _POINTER),
  )


@dataclasses.dataclass
class Allocations:
  """What was allocated.

  Attributes:
    number: How often.
    size: Bytes.
  """

  number: int = 0
  size: int = 0


def _python(name: str, *types: Any, result: Any = ctypes.py_object):
  return ctypes.PYFUNCTYPE(result, *types)((name, ctypes.pythonapi))


_pointer_of = _python(
  "PyCapsule_GetPointer", ctypes.py_object, ctypes.c_char_p, result=_POINTER
)
_capsule_of = _python("PyCapsule_New", _POINTER, ctypes.c_char_p, _POINTER)

_counted = Allocations()
_handlers: list[object] = []


def _function(number: int) -> Any:
  """Returns what stands at a place of NumPy's table, as an address."""
  table = _pointer_of(_multiarray_umath._ARRAY_API, None)
  return ctypes.cast(table, ctypes.POINTER(_POINTER))[number]


def _set(handler: object) -> object:
  """Makes a handler this context's; returns the one that was."""
  call = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)
  return call(_function(_SET_HANDLER))(handler)


def _counting() -> object:
  """Returns the handler that counts; there is one, for ever."""
  if _handlers:
    return _handlers[0]
  own = ctypes.POINTER(ctypes.py_object)
  capsule = ctypes.cast(_function(_DEFAULT_HANDLER), own)[0]
  default = ctypes.cast(
    _pointer_of(capsule, b"mem_handler"), ctypes.POINTER(_Handler)
  )[0]

  plain = _locked(default.malloc, _SIZE)
  zeroed = _locked(default.calloc, _SIZE, _SIZE)
  again = _locked(default.realloc, _POINTER, _SIZE)

  def add(size: int) -> None:
    _counted.number += 1
    _counted.size += size

  def malloc(context, size):
    add(size)
    return plain(context, size)

  def calloc(context, count, size):
    add(count * size)
    return zeroed(context, count, size)

  def realloc(context, old, size):
    add(size)
    return again(context, old, size)

  counting = _Handler(
    b"counting",
    1,
    default.context,
    _MALLOC(malloc),
    _CALLOC(calloc),
    _REALLOC(realloc),
    default.free,
  )
  _handlers.append(
    _capsule_of(ctypes.addressof(counting), b"mem_handler", None)
  )
  _handlers.append(counting)
  # Arrays that end after this module still ask it how they are freed.
  for each in _handlers:
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
  return _handlers[0]


@contextlib.contextmanager
def counted() -> Iterator[Allocations]:
  """Yields what is allocated within it, by this thread."""
  before = _set(_counting())
  begun = dataclasses.replace(_counted)
  found = Allocations()
  try:
    yield found
  finally:
    _set(before)
    found.number = _counted.number - begun.number
    found.size = _counted.size - begun.size
