# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Signs of life of work that may take long, such as packing an epoch.

Who waits for the work counts only the time since the last beat. So beats come
from within its loops: a process that hangs or is stopped has none. They are
also where a thread of this package ends that was asked to stop.
"""

from collections.abc import Callable

from chomp_data.storage import background

_beats = 0
_hear: Callable[[int], None] | None = None


def beat() -> None:
  """Tells that work in this process goes on.

  Raises:
    Stopped: If this thread was asked to stop; see `background.check`.
  """
  global _beats
  background.check()
  _beats += 1
  if _hear is not None:
    _hear(_beats)


def beats() -> int:
  """Returns how often this process has told so."""
  return _beats


def tell(hear: Callable[[int], None] | None) -> None:
  """Hands this process's count to a function too, at each beat."""
  global _hear
  _hear = hear
