"""What goes between loader workers and the process that started them.

Workers end with it, however it ends: a killed main process cannot stop
Grain's workers; they would wait for ever for someone to take their batches,
and hold memory and shared memory. And what went wrong in one is told.
"""

from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import functools
import multiprocessing
from multiprocessing import connection
import os
import pickle
import threading
import traceback
from typing import Any

from absl import logging
import numpy as np


class InputError(RuntimeError):
  """The input failed; the iterator stays failed."""


class SentToWorkers:
  """A Grain source that workers make anew from its arguments.

  Grain sends a source to its workers by pickling it. There it tells what it
  reads where its parent would, and the worker ends with its parent.
  """

  def arguments(self) -> dict[str, Any]:
    """Returns what its constructor takes, by name."""
    raise NotImplementedError

  def __getstate__(self) -> dict[str, Any]:
    return {**self.arguments(), "verbosity": logging.get_verbosity()}

  def __setstate__(self, state: dict[str, Any]) -> None:
    logging.set_verbosity(state.pop("verbosity"))
    logging.use_absl_handler()
    with errors_arrive():
      self.__init__(**state)
    end_with_parent()


class LastOperation:
  """The last of a loader's operations where workers read: faults arrive.

  Grain sends what a worker made through a queue that pickles it in a thread
  of its own. What does not survive that is dropped there: an exception would
  never come, and the batch after a dropped one would be taken for it.
  """

  def __call__(self, input_iterator: Iterator[Any]) -> Iterator[Any]:
    """Yields a worker's records as they are."""
    while True:
      with errors_arrive():
        record = next(input_iterator, None)
        if record is not None:
          _check_picklable(record.data)
      if record is None:
        return
      yield record


@contextlib.contextmanager
def errors_arrive() -> Iterator[None]:
  """Raises what does not survive pickling as an `InputError` with its text."""
  try:
    yield
  except Exception as error:
    if _survives(error):
      raise
    told = "".join(traceback.format_exception(error))
    raise InputError(
      f"a loader worker failed with {_name(error)}, an exception that cannot"
      f" be pickled; in the worker it was:\n{told}"
    ) from None


def _survives(error: Exception) -> bool:
  try:
    # Exceptions whose constructor takes other arguments fail at `loads` only.
    copy = pickle.loads(pickle.dumps(error))
    return type(copy) is type(error) and str(copy) == str(error)
  except Exception:
    return False


def _name(error: Exception) -> str:
  own = type(error)
  return f"{own.__module__}.{own.__qualname__}"


def _check_picklable(batch: Any) -> None:
  fields = batch.values() if isinstance(batch, Mapping) else [batch]
  pickle.dumps(
    [
      field
      for field in fields
      if not isinstance(field, np.ndarray) or field.dtype.hasobject
    ]
  )


@functools.cache
def end_with_parent() -> None:
  """Ends this process when its parent does; does nothing in a main process."""
  parent = multiprocessing.parent_process()
  if parent is not None:
    threading.Thread(
      target=_wait_and_exit, args=(parent.sentinel,), daemon=True
    ).start()


def _wait_and_exit(sentinel: int) -> None:
  connection.wait([sentinel])
  # Nobody is left to report to, and threads may hang in a full queue.
  os._exit(1)
