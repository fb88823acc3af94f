"""How far a part is, told from within it to whoever shows progress."""

from collections.abc import Callable

_hear: Callable[[int], None] | None = None


def tell(hear: Callable[[int], None] | None) -> None:
  """Hands what this process reaches to a function."""
  global _hear
  _hear = hear


def reach(done: int) -> None:
  """Says how many bytes of the input of the task in hand are done."""
  if _hear is not None:
    _hear(done)
