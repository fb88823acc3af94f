# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Beats: evidence that work which may take long, such as packing, continues.

A process that waits for the work counts only the time since the last beat. So
beats come from within its loops: a process that hangs or is stopped has none.
They are also where a thread of this package ends that was asked to stop.
"""

from collections.abc import Callable

from chomp_data.threads import background

_beats = 0
_callback: Callable[[int], None] | None = None


def beat() -> None:
  """Counts a beat of this process.

  Raises:
    Stopped: If this thread was asked to stop.
  """
  global _beats
  background.check()
  _beats += 1
  if _callback is not None:
    _callback(_beats)


def beats() -> int:
  """Returns the beats of this process."""
  return _beats


def on_beat(callback: Callable[[int], None] | None) -> None:
  """Sets what is called with the number of beats at each beat, or nothing."""
  global _callback
  _callback = callback
