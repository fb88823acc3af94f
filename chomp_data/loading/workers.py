"""Loader workers end with the process that started them, however it ends.

A killed main process cannot stop Grain's workers; they would wait for ever
for someone to take their batches, and hold memory and shared memory.
"""

import functools
import multiprocessing
from multiprocessing import connection
import os
import threading
from typing import Any

from absl import logging


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
    self.__init__(**state)
    end_with_parent()


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
