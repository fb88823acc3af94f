# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How far a task is, reported from within it to whoever shows progress."""

from collections.abc import Callable

# Called with bytes of the task's input, and documents, that are done.
Listener = Callable[[int, int], None]

_listener: Listener | None = None


def listen(listener: Listener | None) -> None:
  """Sets what is called as tasks of this process get on."""
  global _listener
  _listener = listener


def reach(done_bytes: int, documents: int = 0) -> None:
  """Reports what of the task in hand is done."""
  if _listener is not None:
    _listener(done_bytes, documents)
