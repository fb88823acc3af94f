# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Which hot loops run compiled: with numba (the extra `fast`), lazily.

Each has a form in NumPy that gives the same bytes, so it changes nothing which
of them runs, nor when. numba takes 50 MB and a second to load, and seconds to
compile. So a child process compiles, once per machine, and what it compiled is
cached (`cache`). Even loading is not done before NumPy has worked for a while,
and then in a thread.
"""

from collections.abc import Callable
import contextlib
import os
import threading
from typing import Any

from absl import logging
import numpy as np

# Seconds of NumPy's work after which loading begins.
_PAYS_S = 0.1

# 'off' leaves everything to NumPy; 'now' loads at the first use, and waits.
VARIABLE = "CHOMP_DATA_KERNELS"


class _Loops:
  """The loops of this process.

  Attributes:
    loops: By name, once they are loaded.
    work_s: Seconds of NumPy's work so far.
    thread: Loads them.
    allowed: Whether they may be used.
    now: Whether the first use waits for them.
  """

  def __init__(self):
    self.loops: dict[str, Callable[..., int]] | None = None
    self.work_s = 0.0
    self.thread: threading.Thread | None = None
    setting = os.environ.get(VARIABLE, "")
    self.allowed = setting != "off"
    self.now = setting == "now"

  def load(self) -> None:
    """Loads or compiles the loops; logs why it cannot."""
    try:
      # Here, as not every process has use for it.
      from chomp_data.kernels import cache

      self.loops = cache.load()
    except ImportError:
      logging.debug("no numba: NumPy does the work")
    except OSError as error:
      logging.warning(
        "compiled loops cannot be cached, so NumPy does the work, slower: %s."
        " Set XDG_CACHE_HOME to a directory that only this user can write to,"
        " or %s=off.",
        error,
        VARIABLE,
      )
    except Exception as error:  # As numba has them, of any kind.
      logging.warning(
        "numba cannot compile here (%s: %s), so NumPy does the work, slower."
        " Fix it, or set %s=off.",
        type(error).__name__,
        error,
        VARIABLE,
      )

  def begin(self) -> threading.Thread | None:
    """Starts to load, once; None where no thread can be started."""
    if self.thread is None and self.allowed:
      # No daemon: LLVM would be cut off in the middle of C++ code.
      thread = threading.Thread(target=self.load, name="kernels")
      try:
        thread.start()
      except RuntimeError as error:
        logging.info("loops are not compiled: %s", error)
        self.allowed = False
        return None
      self.thread = thread
    return self.thread


_loaded = _Loops()
_lock = threading.Lock()


def find(name: str, seconds: float) -> Callable[..., int] | None:
  """Returns a compiled loop, or None where NumPy is to do the work now.

  Args:
    name: A function of `loops`.
    seconds: About what NumPy takes for it.
  """
  loaded = _loaded
  if loaded.loops is not None:
    return loaded.loops[name] if loaded.allowed else None
  if loaded.thread is None and loaded.allowed:
    loaded.work_s += seconds
    if loaded.now and wait() and loaded.loops is not None:
      return loaded.loops[name]
    if loaded.work_s > _PAYS_S:
      with _lock:
        loaded.begin()
  return None


def flat(array: np.ndarray, dtype: Any) -> np.ndarray:
  """Returns an array [N] as loops take it: of a type, contiguous, writable."""
  if array.dtype == dtype and array.flags.carray:
    return array
  return np.array(array, dtype)


def wait() -> bool:
  """Loads what can be loaded before it returns: for work that takes long.

  Returns:
    Whether loops are compiled from here on.
  """
  if not _loaded.allowed:
    return False
  with _lock:
    thread = _loaded.begin()
  if thread is not None:
    thread.join()
  return _loaded.loops is not None


@contextlib.contextmanager
def allowed(yes: bool):
  """Within it loops are compiled, or are not; for tests and benchmarks."""
  before = _loaded.allowed
  _loaded.allowed = yes
  try:
    yield wait() if yes else False
  finally:
    _loaded.allowed = before
