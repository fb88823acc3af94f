# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Bounded memories: what is used stays, and dropped objects go."""

import dataclasses
import gc
import pickle
import weakref

from chomp_data.index import memo


@dataclasses.dataclass(frozen=True)
class Squares:
  factor: int

  @memo.remembered(2)
  def square(self, value):
    return [self.factor * value**2]


def test_what_was_used_last_stays():
  own = Squares(2)
  first = own.square(1)
  own.square(2)
  assert own.square(1) is first
  own.square(3)
  assert own.square(1) is first
  assert len(own.__dict__["_memo_of_square"]) == 2


def test_objects_remember_their_own_and_forget_on_the_way():
  own, other = Squares(2), Squares(3)
  assert (own.square(2), other.square(2)) == ([8], [12])
  assert own == Squares(2)
  sent = pickle.loads(pickle.dumps(own))
  assert sent.square(2) == [8]
  assert sent.square(2) is not own.square(2)


def test_a_dropped_object_is_not_kept_alive():
  squares = Squares(3)
  squares.square(2)
  gone = weakref.ref(squares)
  del squares
  gc.collect()
  assert gone() is None


def test_weights_are_counted_seldom_and_bound_the_cache():
  cache = memo.Memo(3_000)
  for key in range(5_000):
    cache.put(key, key, weight=1 + key % 5)
    assert cache.weight <= 3_000
    assert cache.get(key) == key
  assert 500 < len(cache) < 1_000
  cache.put(4_999, "heavier", weight=2_900)
  assert cache.weight <= 3_000
  assert cache.get(4_999) == "heavier"


def test_a_value_that_replaces_another_counts_once():
  cache = memo.Memo(10)
  for _ in range(100):
    cache.put("a", 1, weight=4)
    cache.put("b", 2, weight=6)
  assert cache.weight == 10
  assert (cache.get("a"), cache.get("b")) == (1, 2)
