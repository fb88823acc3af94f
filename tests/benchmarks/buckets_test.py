# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The tables of benchmarks/buckets.py hold what buckets promise."""

import pytest

from tests import benchmarks_test

pytestmark = pytest.mark.slow
number = benchmarks_test.number


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
  directory = tmp_path_factory.mktemp("buckets")
  return benchmarks_test.run("buckets", directory)


def test_samples_are_read_and_compared_with_a_plain_loop(tables):
  ways = [(line["files"], line["way"]) for line in tables[0]]
  assert len(set(ways)) == len(ways) == 6
  assert all(number(line["samples/s"]) > 0 for line in tables[0])


def test_buckets_pad_less_than_the_longest_and_more_than_packing(tables):
  padding = {
    line["way"]: number(line["padding"].rstrip("%")) for line in tables[2]
  }

  def least(word):
    return min(own for way, own in padding.items() if word in way)

  assert least("packed") < least("buckets") < least("longest")


def test_datasets_stay_near_their_shares(tables):
  for line in tables[3]:
    # Over weights of 60, 30 and 10%, each is within a batch over its weight.
    for name, weight in (("a 60%", 0.6), ("b 30%", 0.3), ("c 10%", 0.1)):
      assert number(line[name]) <= max(1, weight / 0.1), line
