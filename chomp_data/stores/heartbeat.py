"""Signs of life of work that may take long, such as packing an epoch.

Who waits for the work counts only the time since the last beat. So beats come
from within its loops: a process that hangs or is stopped has none.
"""

from collections.abc import Callable

_beats = 0
_hear: Callable[[int], None] | None = None


def beat() -> None:
  """Tells that work in this process goes on."""
  global _beats
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
