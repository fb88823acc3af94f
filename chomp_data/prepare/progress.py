# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The progress of a task, reported from within it."""

from collections.abc import Callable

# Called with the bytes of the task's input, and documents, that are done.
Callback = Callable[[int, int], None]

_callback: Callback | None = None


def set_callback(callback: Callback | None) -> None:
  """Sets the progress callback of this process; None removes it."""
  global _callback
  _callback = callback


def report(done_bytes: int, documents: int = 0) -> None:
  """Reports what of the present task is done."""
  if _callback is not None:
    _callback(done_bytes, documents)
