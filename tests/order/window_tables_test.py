# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Tables of windows: built where they pay, bounded, and never pickled."""

import pickle

import numpy as np

from chomp_data.index import memo
from chomp_data.order import window_tables


class Builds:
  """Builds tables and counts them."""

  def __init__(self):
    self.count = 0

  def __call__(self, length):
    self.count += 1
    return np.arange(length)


def ask(tables, builds, key, length, asked=64):
  return tables.table(key, length, asked, lambda: builds(length))


def test_a_short_window_is_built_at_once_and_kept():
  tables, builds = window_tables.WindowTables(), Builds()
  for _ in range(3):
    table = ask(tables, builds, "a", 1_000)
    assert table.tolist() == list(range(1_000))
    assert table.dtype == np.int32
  assert builds.count == 1


def test_a_long_window_is_built_when_calls_have_cost_as_much():
  tables, builds = window_tables.WindowTables(), Builds()
  found = [ask(tables, builds, "a", 100_000) is not None for _ in range(40)]
  # Each call counts as 4,096 rows and what it asks for: the 25th reaches it.
  assert found == [False] * 24 + [True] * 16
  assert builds.count == 1


def test_a_window_longer_than_the_bound_is_never_built():
  tables, builds = window_tables.WindowTables(most_rows=50_000), Builds()
  assert all(ask(tables, builds, "a", 50_001) is None for _ in range(100))
  assert ask(tables, builds, "b", 50_000, asked=50_000) is not None
  assert builds.count == 1


def test_the_oldest_tables_go_when_the_bound_is_reached():
  tables, builds = window_tables.WindowTables(most_rows=20_000), Builds()
  for key in range(10):
    ask(tables, builds, key, 5_000, asked=5_000)
    assert tables.rows <= 20_000
  assert builds.count == 10
  ask(tables, builds, 9, 5_000)
  ask(tables, builds, 6, 5_000)
  assert builds.count == 10
  ask(tables, builds, 5, 5_000, asked=5_000)
  assert builds.count == 11


def test_tables_of_few_rows_are_bounded_in_number():
  tables, builds = window_tables.WindowTables(most_rows=2**15), Builds()
  for key in range(100):
    ask(tables, builds, key, 1)
  assert ask(tables, builds, 92, 1) is not None
  assert builds.count == 100
  ask(tables, builds, 91, 1)
  assert builds.count == 101


def test_rows_above_int32_stay_int64():
  tables = window_tables.WindowTables()
  rows = np.asarray([2**31, 5])
  assert tables.table("a", 2, 2, lambda: rows).tolist() == [2**31, 5]


def test_pickles_are_empty_and_as_bounded():
  tables, builds = window_tables.WindowTables(most_rows=50_000), Builds()
  ask(tables, builds, "a", 20_000, asked=20_000)
  copy = pickle.loads(pickle.dumps(tables))
  assert tables.rows == 20_000
  assert copy.rows == 0
  assert ask(copy, builds, "b", 50_001, asked=10**6) is None


def test_kept_values_are_replaced_and_not_added_up():
  kept = memo.Memo(10)
  for value in range(5):
    kept.put("a", value, 6)
  assert kept.get("a") == 4
  assert kept.weight == 6
  assert kept.get("b") is None
  kept.put("b", 1, 11)
  assert kept.get("b") is None
