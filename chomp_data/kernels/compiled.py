# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Replaces hot loops by compiled ones with numba (the extra `fast`), lazily.

Each loop also has a NumPy form that gives the same bytes, so results do not
depend on which one runs. numba takes 50 MB and a second to load, and seconds to
compile. So a child process compiles once per machine, into a cache (`cache`),
and a thread loads the cache only after NumPy has worked for a while.
"""

from collections.abc import Callable
import contextlib
import os
import threading
from typing import Any

import numpy as np

# Loading begins after this many seconds of work in NumPy.
_PAYS_S = 0.1

# Environment variable: 'off' uses NumPy only; 'now' loads at the first use and
# waits for it.
VARIABLE = "CHOMP_DATA_KERNELS"


class _Loops:
  """The loops of this process.

  Attributes:
    loops: The loops by name once they are loaded, else None.
    work_s: Estimated seconds of work in NumPy so far.
    thread: The thread that loads them, or None.
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


_loaded = _Loops()
_lock = threading.Lock()


def _load() -> None:
  """Loads or compiles the loops; logs the reason if it cannot."""
  # Not at import: workers of `prepare` import this module, and compile nothing.
  from absl import logging

  try:
    # Imported here, because it needs numba, which not every process uses.
    from chomp_data.kernels import cache

    _loaded.loops = cache.load()
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
  except Exception as error:  # numba raises errors of many classes.
    logging.warning(
      "numba cannot compile here (%s: %s), so NumPy does the work, slower."
      " Fix it, or set %s=off.",
      type(error).__name__,
      error,
      VARIABLE,
    )


def _loading() -> threading.Thread | None:
  """Returns the thread that loads the loops; None if it cannot be started."""
  with _lock:
    if _loaded.thread is None and _loaded.allowed:
      # Not a daemon thread: exit would stop LLVM in the middle of C++ code.
      thread = threading.Thread(target=_load, name="kernels")
      try:
        thread.start()
      except RuntimeError as error:
        from absl import logging

        logging.info("loops are not compiled: %s", error)
        _loaded.allowed = False
        return None
      _loaded.thread = thread
    return _loaded.thread


def find(name: str, seconds: float) -> Callable[..., int] | None:
  """Returns a compiled loop, or None if the NumPy form should run.

  Args:
    name: A function of `loops`.
    seconds: About how long the NumPy form takes.
  """
  if not _loaded.allowed:
    return None
  if _loaded.loops is None and _loaded.thread is None:
    _loaded.work_s += seconds
    if _loaded.now:
      wait()
    elif _loaded.work_s > _PAYS_S:
      _loading()
  return None if _loaded.loops is None else _loaded.loops[name]


def flat(array: np.ndarray, dtype: Any) -> np.ndarray:
  """Returns an array [N] of a dtype, contiguous and writable, as loops need."""
  if array.dtype == dtype and array.flags.carray:
    return array
  return np.array(array, dtype)


def wait() -> bool:
  """Waits until the loops are loaded, before work that takes long.

  Returns:
    Whether loops are compiled from here on.
  """
  if not _loaded.allowed:
    return False
  thread = _loading()
  if thread is not None:
    thread.join()
  return _loaded.loops is not None


@contextlib.contextmanager
def allowed(yes: bool):
  """Enables or disables compiled loops in a block, for tests and benchmarks."""
  before = _loaded.allowed
  _loaded.allowed = yes
  try:
    yield wait() if yes else False
  finally:
    _loaded.allowed = before
