"""The machine code of loops: made by numba elsewhere, kept, loaded by LLVM.

numba is never imported here. What was compiled is kept by what decides it: the
loops, numba's version and the processor; beside this module, or where that
cannot be written to, in the user's cache.
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
import tempfile
from typing import Any

import llvmlite.binding as llvm
import numpy as np

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
  cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
  places = [_HERE / "__pycache__", pathlib.Path(cache) / "chomp_data"]
  for place in places:
    try:
      return _read(place / name)
    except (OSError, ValueError):
      continue  # None is there, or none that was written whole.
  for place in places:
    try:
      place.mkdir(parents=True, exist_ok=True)
      with tempfile.TemporaryDirectory(dir=place) as own:
        made = pathlib.Path(own) / name
        _build(made)
        os.replace(made, place / name)
      return _read(place / name)
    except OSError:
      continue
  with tempfile.TemporaryDirectory() as own:
    made = pathlib.Path(own) / name
    _build(made)
    return _read(made)


def _read(path: pathlib.Path) -> dict[str, tuple[str, str]]:
  """Returns what was kept; raises ValueError if it is not as it was written."""
  told, _, text = path.read_text().partition("\n")
  if hashlib.sha256(text.encode()).hexdigest() != told:
    raise ValueError(f"{path} does not match its digest")
  return json.loads(text)


def _build(path: pathlib.Path) -> None:
  """Compiles in a process that has this one's paths."""
  program = (
    f"import sys; sys.path[:] = {sys.path!r};"
    " from chomp_data.kernels import building; building.main(sys.argv[1])"
  )
  done = subprocess.run(
    [sys.executable, "-c", program, str(path)],
    stdin=subprocess.DEVNULL,
    capture_output=True,
    text=True,
    errors="replace",
  )
  if done.returncode:
    raise RuntimeError(done.stderr.strip()[-500:] or f"rc {done.returncode}")


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
