# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Loads compiled loops from a numba cache that is filled once per machine.

numba takes seconds to compile, so a child process compiles and marks the cache
as complete. A cache holds pickles and machine code, so it is read only from
directories that no other user can have written to (`private_files`).

    $XDG_CACHE_HOME/chomp_data_kernels/KEY/complete
                                           kernels_.../loops.placed-....nbi
"""

from collections.abc import Callable
import hashlib
import importlib.metadata
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import llvmlite.binding as llvm
import numba

from chomp_data.kernels import private_files

_COMPLETE = "complete"

# The program of the child process. It ends if its parent has ended, however
# long numba takes.
_COMPILER = """
import sys
parent, directory, *sys.path = sys.argv[1:]
import os, threading, time

def watch():
  while os.getppid() == int(parent):
    time.sleep(0.2)
  os._exit(1)

threading.Thread(target=watch, daemon=True).start()
from chomp_data.kernels import cache
cache.main(directory)
"""


def load() -> dict[str, Callable[..., int]]:
  """Returns all loops by name; compiles them if the cache is not complete.

  Raises:
    UnsafeError: If there is no directory that only this user can write to.
    OSError: If the directory cannot be made or written to.
    RuntimeError: If numba cannot compile.
  """
  directory = private_files.make(_directory())
  # Before compiling, because the compiler reads existing files too.
  private_files.check(directory)
  if not (directory / _COMPLETE).exists():
    _run_compiler(directory)
  try:
    return compiled_in(directory)
  except private_files.UnsafeError:
    raise
  except Exception:
    # A file may be truncated: the next process compiles again.
    shutil.rmtree(directory, ignore_errors=True)
    raise


def compiled_in(directory: pathlib.Path) -> dict[str, Callable[..., int]]:
  """Returns all loops, from numba's cache in a directory or compiled to it."""
  # numba chooses the cache directory of a function when it is decorated.
  config: Any = numba.config  # pyright: ignore[reportPrivateImportUsage]
  before, config.CACHE_DIR = config.CACHE_DIR, str(directory)
  try:
    from chomp_data.kernels import loops
  finally:
    config.CACHE_DIR = before
  for function, signature in loops.LOOPS.values():
    path = pathlib.Path(function.stats.cache_path)
    if directory not in path.parents:
      raise private_files.UnsafeError(
        f"numba's cache must be in {directory}, got {path}"
      )
    if not function.signatures:
      function.compile(signature)
    # Arguments of other types are an error from now on.
    function.disable_compile()
  return {name: function for name, (function, _) in loops.LOOPS.items()}


def main(directory: str) -> None:
  """Compiles all loops; the work of the child process."""
  os.umask(0o077)
  path = pathlib.Path(directory)
  compiled_in(path)
  (path / _COMPLETE).touch()


def _run_compiler(directory: pathlib.Path) -> None:
  """Compiles in a child process, which ends if this process ends."""
  arguments = [str(os.getpid()), str(directory), *sys.path]
  result = subprocess.run(
    [sys.executable, "-c", _COMPILER, *arguments],
    stdin=subprocess.DEVNULL,
    capture_output=True,
  )
  if result.returncode:
    problem = result.stderr.decode(errors="replace").strip()[-500:]
    raise RuntimeError(problem or f"rc {result.returncode}")


def _directory() -> pathlib.Path:
  """Returns the cache of these loops on this processor.

  Raises:
    UnsafeError: If there is no home directory.
  """
  root = os.environ.get("XDG_CACHE_HOME", "")
  if not os.path.isabs(root):
    root = os.path.expanduser("~/.cache")
  if not os.path.isabs(root):
    raise private_files.UnsafeError("there is no home directory")
  source = pathlib.Path(__file__).with_name("loops.py")
  # What numba compares before it uses a cached function.
  parts = [
    sys.implementation.cache_tag,
    *(importlib.metadata.version(name) for name in ("numba", "llvmlite")),
    llvm.get_host_cpu_name(),
    llvm.get_host_cpu_features().flatten(),
    str(source),
    str(source.stat().st_mtime_ns),
    source.read_text(),
  ]
  key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
  return pathlib.Path(root) / "chomp_data_kernels" / key
