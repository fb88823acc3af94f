# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Bounded caches of computed values: the only ones of the package.

    a value of an object and of arguments      `remembered`
    the single value of a property             `functools.cached_property`
    values by weight, or that may be missing   `Memo`

Caches never change a value and may be dropped at any time. Those of this module
are dropped when an object is pickled. A cached property is pickled, and in
Python 3.11 one thread at a time computes it, of all objects: it is small and
quick, else a property is `remembered`. Sums that grow from their start, such as
the first rows of epochs, are no caches: each is an attribute that is replaced
by a longer one.
"""

from collections.abc import Callable
from collections.abc import Hashable
import functools
from typing import Any


class Memo:
  """A cache that drops the least recently used values; pickles empty.

  Two threads that need a value at the same time may both make it.

  Attributes:
    most: The largest sum of weights of the values.
  """

  def __init__(self, most: int):
    """Makes an empty cache.

    Args:
      most: The largest sum of weights of the values; the default weight is 1.
    """
    self.most = most
    self._entries: dict[Hashable, tuple[Any, int]] = {}
    # About their weight, and seldom less: what was counted, and what came since
    # (two threads that add at the same time may count one).
    self._bound = 0

  def __reduce__(self) -> tuple[Any, ...]:
    return Memo, (self.most,)

  def __len__(self) -> int:
    return len(self._entries)

  @property
  def weight(self) -> int:
    """The sum of the weights of all values."""
    # Copied first, because another thread may add a value.
    return sum(weight for _, weight in list(self._entries.values()))

  def get(self, key: Hashable, make: Callable[[], Any] | None = None) -> Any:
    """Returns the value of a key, and makes and adds a missing one.

    Args:
      key: The key.
      make: Makes a missing value; if None, a missing value is None.
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
    """Adds a value, and drops the oldest ones if they do not all fit.

    Of many values a quarter of the weight goes at once.

    Args:
      key: The key.
      value: Its value.
      weight: Its weight.
    """
    self._entries.pop(key, None)
    self._entries[key] = (value, weight)
    self._bound += weight
    if self._bound <= self.most:
      return
    total = self.weight
    # Many light values: a quarter goes at once, so that counting is rare.
    most = self.most if len(self) < 128 else self.most * 3 // 4
    most = max(most, min(weight, self.most))
    for oldest in list(self._entries) if total > self.most else ():
      if total <= most:
        break
      dropped = self._entries.pop(oldest, None)
      total -= 0 if dropped is None else dropped[1]
    self._bound = total


def remembered(most: int) -> Callable[[Callable[..., Any]], Any]:
  """Decorates a method to cache its results per instance.

  Args:
    most: The most results per instance.
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
