# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Compiles all loops, in a process that does nothing else."""

import base64
from collections.abc import Callable
import hashlib
import json
import os
from typing import Any

import numba

from chomp_data.kernels import loops
from chomp_data.kernels import signatures


def _entry(name: str) -> Callable[..., int]:
  """Returns a loop as a function of numbers and of where its arrays are."""
  scope: dict[str, Any] = {
    name: getattr(loops, name) for name in ("array", "loaded", "pointer")
  }
  scope["loop"] = getattr(loops, name)
  given = []
  for i, (dtype, dims) in enumerate(signatures.parsed(name)):
    if not dims:
      given.append(f"v[{i}]")
      continue
    shape = f"loaded(v[{i}] + {signatures.SHAPE})"
    sizes = "".join(f"loaded({shape} + {8 * k}), " for k in range(dims))
    data = f"pointer(loaded(v[{i}] + {signatures.DATA}))"
    given.append(f"array({data}, ({sizes}), {dtype.name})")
    scope[dtype.name] = dtype.type
  exec(f"def entry(v):\n  return loop({', '.join(given)})\n", scope)
  return scope["entry"]


def machine_code(name: str) -> tuple[str, str]:
  """Returns a loop's symbol, and its object file for this processor."""
  signature: Any = numba.int64(numba.types.CPointer(numba.int64))
  # Nothing but the loop itself: wrappers would call Python.
  bare: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
  compile_: Any = numba.njit(signature, error_model="numpy", **bare)
  made = compile_(_entry(name))
  (found,) = made.overloads.values()
  _, _, (code, _) = found.library.serialize_using_object_code()
  return found.fndesc.llvm_func_name, base64.b64encode(code).decode()


def main() -> None:
  """Writes symbols and object files, in base 64, of all loops to stdout.

  The first line is a digest of the rest: what follows is run.
  """
  out = os.dup(1)
  os.dup2(2, 1)  # What numba prints is no result.
  found = {name: machine_code(name) for name in signatures.SIGNATURES}
  text = json.dumps(found)
  digest = hashlib.sha256(text.encode()).hexdigest()
  with open(out, "wb") as file:
    file.write(f"{digest}\n{text}".encode())
