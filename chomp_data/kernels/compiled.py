"""Which hot loops run compiled: with numba (the extra `fast`), lazily.

Each has a form in NumPy that gives the same bytes, so it changes nothing which
of them runs, nor when. numba takes half a second to import and some seconds to
compile (once a machine: what it made is kept). So nothing is loaded before
NumPy has done about as much work as that, and then beside it, in a thread.
"""

from collections.abc import Callable
import contextlib
import importlib
import os
import threading
from typing import Any

from absl import logging
import numpy as np

# Seconds of NumPy's work after which loading is begun.
_PAYS_S = 0.6

# 'off' leaves everything to NumPy; 'now' loads at the first use, and waits.
VARIABLE = "CHOMP_DATA_KERNELS"


class _Loops:
  """What is loaded."""

  def __init__(self):
    self.loops: Any = None
    self.work_s = 0.0
    self.thread: threading.Thread | None = None
    told = os.environ.get(VARIABLE, "")
    self.allowed = told != "off"
    self.now = told == "now"

  def load(self) -> None:
    """Imports and compiles; where there is no numba, nothing is to be had."""
    try:
      self.loops = importlib.import_module("chomp_data.kernels.loops")
    except ImportError:
      logging.debug("no numba: NumPy does what it would")
    except Exception as error:  # As numba has them, of any kind.
      logging.warning(
        "numba cannot compile here (%s: %s), so NumPy does the work, slower."
        " Mend it, or set %s=off.",
        type(error).__name__,
        error,
        VARIABLE,
      )

  def begin(self) -> threading.Thread | None:
    """Starts to load, once; None where no thread can be started."""
    if self.thread is None and self.allowed:
      # No daemon: what compiles would be cut off in the middle of C++ code.
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


def find(name: str, seconds: float) -> Callable[..., Any] | None:
  """Returns a compiled loop, or None where NumPy is to do it now.

  Args:
    name: A function of `loops`.
    seconds: About what NumPy takes for it.
  """
  loaded = _loaded
  if loaded.loops is not None:
    return getattr(loaded.loops, name) if loaded.allowed else None
  if loaded.thread is None and loaded.allowed:
    loaded.work_s += seconds
    if loaded.now and wait():
      return getattr(loaded.loops, name)
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
