# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The tables of benchmarks/mixing.py hold what mixing promises."""

import pytest

from tests import benchmarks_test

pytestmark = pytest.mark.slow
number = benchmarks_test.number


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
  directory = tmp_path_factory.mktemp("mixing")
  return benchmarks_test.run("mixing", directory)


def test_our_mix_is_nearest_to_its_shares(tables):
  ours, *others = [
    number(line["largest deviation, tokens"]) for line in tables[0]
  ]
  assert len(others) == 3
  assert ours < min(others)
  # Sources of one weight each: a row of the longest, and then some.
  assert ours < 30_392


def test_plans_of_more_sources_are_measured(tables):
  counts = [(line["rows"], line["sources"]) for line in tables[1]]
  kinds = ("sequential, full", "bin ffd, block")
  assert counts == [(kind, n) for kind in kinds for n in ("3", "8")]
  for line in tables[1]:
    assert number(line["merge alone, mean"]) > 0


def test_sums_stay_small_where_rows_are_many(tables):
  few, many = tables[2]
  assert number(many["rows"]) > 3 * number(few["rows"])
  assert number(many["kept, MB"]) < 2
  # What windows take does not grow with rows.
  in_use = [number(line["with windows in use, MB"]) for line in tables[2]]
  assert in_use[1] < in_use[0] + 2


def test_mixes_are_read(tables):
  assert len(tables[3]) == 5
  for line in tables[3]:
    assert 0 < number(line["ratio, median"]) < 1


def test_the_permutation_of_a_batch_shares_sources_among_processes(tables):
  merged, permuted = tables[4][:2], tables[4][2:]
  assert [number(line["least"]) for line in merged] == [0, 0]
  for line in permuted:
    assert number(line["least"]) > 15
    assert number(line["most"]) < 35
