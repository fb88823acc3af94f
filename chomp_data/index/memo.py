# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A bounded memory of what is computed more than once.

Nothing here decides a value; all of it may be dropped at any time, and is
where an object goes to another process.
"""

from collections.abc import Callable
from collections.abc import Hashable
import functools
from typing import Any


class Memo:
  """A few values by key, those used longest ago dropped first; pickles empty.

  Two threads that ask at once may both make a value.
  """

  def __init__(self, most: int):
    """Keeps values up to a sum of weights.

    Args:
      most: The largest sum of the weights kept; a value weighs 1 unless it is
        told otherwise.
    """
    self._most = most
    self._entries: dict[Hashable, tuple[Any, int]] = {}
    self._weighed = False

  def __reduce__(self) -> tuple[Any, ...]:
    return Memo, (self._most,)

  def __len__(self) -> int:
    return len(self._entries)

  @property
  def weight(self) -> int:
    """The sum of the weights kept."""
    # A list at once: another thread may add meanwhile.
    return sum(weight for _, weight in list(self._entries.values()))

  def get(self, key: Hashable, make: Callable[[], Any] | None = None) -> Any:
    """Returns the value of a key; where it is not there what `make` makes.

    Args:
      key: The key.
      make: Makes the value, which is then kept; without it None is returned.
    """
    entry = self._entries.pop(key, None)
    if entry is not None:
      self._entries[key] = entry
      return entry[0]
    if make is None:
      return None
    value = make()
    self.put(key, value)
    return value

  def put(self, key: Hashable, value: Any, weight: int = 1) -> None:
    """Adds a value, and drops others until all fit.

    Args:
      key: The key.
      value: Its value.
      weight: What it counts for.
    """
    self._weighed |= weight != 1
    self._entries.pop(key, None)
    self._entries[key] = (value, weight)
    total = self.weight if self._weighed else len(self._entries)
    for oldest in list(self._entries) if total > self._most else ():
      if total <= self._most:
        break
      gone = self._entries.pop(oldest, None)
      total -= 0 if gone is None else gone[1]


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
