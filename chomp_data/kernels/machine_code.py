# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The machine code of loops: made by numba elsewhere, kept, loaded by LLVM.

numba is never imported here. What was compiled is kept by what decides it: the
loops, numba's version and the processor; beside this module, or where that
cannot be written to, in the user's cache. It is code, so it is read only from
where no other user can have written it (`private_files`).
"""

import base64
from collections.abc import Callable
import ctypes
import hashlib
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

from absl import logging
import llvmlite.binding as llvm
import numpy as np

from chomp_data.kernels import private_files
from chomp_data.kernels import signatures

_HERE = pathlib.Path(__file__).parent
_SOURCES = ("building.py", "loops.py", "mixing.py", "signatures.py")

# Called where an array is freed that numba's own allocator made: none is here.
_NEVER_CALLED = "NRT_MemInfo_call_dtor"


class _Loop:
  """A loop that is called with arrays and numbers."""

  def __init__(self, name: str, address: int):
    self._name = name
    self._kinds = signatures.parsed(name)
    self._size = len(self._kinds)
    # Arguments, and then what it returns and what it raises.
    self._slots = ctypes.c_int64 * (self._size + 2)
    # It runs without Python's lock.
    self._function = ctypes.CFUNCTYPE(ctypes.c_int32, *3 * [ctypes.c_void_p])(
      address
    )

  def __call__(self, *arguments: Any) -> int:
    values = []
    for (dtype, dims), own in zip(self._kinds, arguments, strict=True):
      if not dims:
        values.append(int(own))
        continue
      if (
        (own.dtype is not dtype and own.dtype != dtype)
        or own.ndim != dims
        or not own.flags.c_contiguous
      ):
        raise TypeError(
          f"{self._name} must get contiguous {dtype} of {dims} dimensions, got"
          f" {own.dtype}{list(own.shape)} with strides {own.strides}."
        )
      # Where an array is told is looked up there: to ask it takes 0.5 us.
      values.append(id(own))
    slots = self._slots(*values)
    first = ctypes.addressof(slots)
    found = first + 8 * self._size
    status = self._function(found, found + 8, first)
    if status:
      raise RuntimeError(f"{self._name} failed with status {status}.")
    return slots[self._size]


def loops() -> dict[str, Callable[..., int]]:
  """Returns all loops by name; compiles them where nobody has.

  Raises:
    ImportError: If there is no numba.
    RuntimeError: If it cannot compile.
  """
  llvm.initialize_native_target()
  llvm.initialize_native_asmprinter()
  _check_arrays()
  kept = _kept()
  if llvm.address_of_symbol(_NEVER_CALLED) is None:
    abort = ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p)
    llvm.add_symbol(_NEVER_CALLED, abort.value)
  machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
  engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
  for _, code in kept.values():
    own = llvm.ObjectFileRef.from_data(base64.b64decode(code))
    engine.add_object_file(own)
  engine.finalize_object()
  _engines.append(engine)
  return {
    name: _Loop(name, engine.get_function_address(symbol))
    for name, (symbol, _) in kept.items()
  }


def _check_arrays() -> None:
  """Raises RuntimeError where arrays are not laid out as loops have them."""
  array = np.zeros((3, 5))
  where = ctypes.c_int64.from_address(id(array) + signatures.DATA).value
  shape = ctypes.c_int64.from_address(id(array) + signatures.SHAPE).value
  found = [ctypes.c_int64.from_address(shape + 8 * i).value for i in range(2)]
  if where != array.ctypes.data or found != [3, 5]:
    raise RuntimeError("arrays of this NumPy are laid out in another way")


# Code goes with its engine.
_engines: list[Any] = []


def _kept() -> dict[str, tuple[str, str]]:
  """Returns symbols and object files, in base 64, by name."""
  name = f"loops-{_key()}.json"
  directories = _directories()
  unsafe = [] if len(directories) > 1 else ["there is no home directory"]
  for directory in directories:
    try:
      return _parsed(private_files.read(directory, name))
    except private_files.UnsafeError as error:
      unsafe.append(str(error))
    except (OSError, ValueError):
      continue  # None is there, or none that was written whole.
  data = _build()
  for directory in directories:
    try:
      private_files.write(directory, name, data)
      break
    except OSError:
      continue
  else:
    logging.warning(
      "compiled loops are kept nowhere, so each process compiles them (%s)."
      " Set XDG_CACHE_HOME to a directory that only this user can write to, or"
      " CHOMP_DATA_KERNELS=off.",
      "; ".join(dict.fromkeys(unsafe)) or "no directory is writable",
    )
  return _parsed(data)


def _directories() -> list[pathlib.Path]:
  """Returns where compiled loops may be: where there is no home, only here."""
  cache = os.environ.get("XDG_CACHE_HOME", "")
  if not os.path.isabs(cache):
    cache = os.path.expanduser("~/.cache")
  found = [_HERE / "__pycache__"]
  if os.path.isabs(cache):
    # Its own directory: others in the user's cache may be shared by a group.
    found.append(pathlib.Path(cache) / "chomp_data_kernels")
  return found


def _parsed(data: bytes) -> dict[str, tuple[str, str]]:
  """Returns what was kept; raises ValueError if it is not as it was written."""
  digest, _, text = data.partition(b"\n")
  if hashlib.sha256(text).hexdigest().encode() != digest:
    raise ValueError("compiled loops do not match their digest")
  return json.loads(text)


def _build() -> bytes:
  """Compiles in a process that has this one's paths, and ends with this one."""
  program = (
    f"import sys; sys.path[:] = {sys.path!r};"
    " from chomp_data.kernels import parent_watch;"
    " parent_watch.begin(int(sys.argv[1]));"
    " from chomp_data.kernels import building; building.main()"
  )
  done = subprocess.run(
    [sys.executable, "-c", program, str(os.getpid())],
    stdin=subprocess.DEVNULL,
    capture_output=True,
  )
  if done.returncode:
    problem = done.stderr.decode(errors="replace").strip()[-500:]
    raise RuntimeError(problem or f"rc {done.returncode}")
  return done.stdout


def _key() -> str:
  """Returns what decides the machine code, as a hash."""
  try:
    versions = [importlib.metadata.version(n) for n in ("numba", "llvmlite")]
  except importlib.metadata.PackageNotFoundError as error:
    raise ImportError(str(error)) from error
  features = llvm.get_host_cpu_features().flatten()
  found = hashlib.sha256(
    "\n".join([*versions, llvm.get_host_cpu_name(), features]).encode()
  )
  for name in _SOURCES:
    found.update((_HERE / name).read_bytes())
  return found.hexdigest()[:16]
