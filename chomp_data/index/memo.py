"""A bounded memory of what is computed more than once.

Nothing here decides a value; all of it may be dropped at any time, and is
where an object goes to another process.
"""

from collections.abc import Callable
from collections.abc import Hashable
import functools
from typing import Any


class Memo:
  """A few values by key, those used longest ago dropped first.

  Two threads that ask at once may both make a value.
  """

  def __init__(self, most: int):
    """Keeps at most `most` values."""
    self._most = most
    self._values: dict[Hashable, Any] = {}

  def __reduce__(self) -> tuple[Any, ...]:
    return Memo, (self._most,)

  def __len__(self) -> int:
    return len(self._values)

  def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
    """Returns the value of a key, made if it is not there."""
    missing = object()
    value = self._values.pop(key, missing)
    if value is missing:
      value = make()
    self._values[key] = value
    while len(self._values) > self._most:
      self._values.pop(next(iter(self._values)), None)
    return value


def remembered(most: int) -> Callable[[Callable[..., Any]], Any]:
  """Decorates a method: each object remembers its own results, and with them.

  Args:
    most: Results that an object keeps.
  """

  def decorate(method: Callable[..., Any]) -> Any:
    name = f"_memo_of_{method.__name__}"

    @functools.wraps(method)
    def recall(self: Any, *arguments: Hashable) -> Any:
      # Not by `setattr`, which frozen dataclasses refuse.
      memo = self.__dict__.setdefault(name, Memo(most))
      return memo.get(arguments, lambda: method(self, *arguments))

    return recall

  return decorate
