# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Counts of every kind of run against those that were kept."""

import itertools

import pytest

import chomp_data
from chomp_data import pipeline
from tests.counts import baseline
from tests.counts import measuring

KEPT = baseline.read()
KIND = "ffd block"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
  path = tmp_path_factory.mktemp("counts")
  measuring.write(path)
  return path


def found(root, kind=KIND):
  return measuring.counts(kind, measuring.kinds(root)[kind], root)


@pytest.mark.parametrize("kind", KEPT)
def test_a_kind_of_run_costs_no_more_than_it_did(root, kind):
  lines = baseline.differences(kind, found(root, kind), KEPT[kind])
  assert not lines, "\n" + "\n".join(lines)


def test_every_kind_is_compared(root):
  assert sorted(measuring.kinds(root)) == sorted(KEPT)


@pytest.mark.parametrize("name", KEPT[KIND])
def test_a_count_that_grows_is_told_and_one_that_halves_is_to_be_kept(name):
  before = {name: 10_000_000}
  told = lambda now: baseline.differences(KIND, {name: now}, before)  # noqa: E731
  assert not told(10_000_000)
  assert not told(6_000_000)
  (worse,) = told(12_000_000)
  assert "must be at most" in worse
  assert baseline.UPDATE in worse
  (better,) = told(1_000_000)
  assert "far better" in better
  assert len(baseline.differences(KIND, {}, before)) == 1
  assert len(baseline.differences(KIND, before, {})) == 1


def test_every_count_is_compared_with_what_a_user_would_notice():
  names = set(itertools.chain.from_iterable(KEPT.values()))
  assert names == {
    "bytes held", "bytes of a pickled reader", "bytes of a state",
    "descriptors", "maps", "most bytes held", "reads: bytes_fetched",
    "reads: chunks_fetched", "reads: coalesced_ranges", "reads: logical_reads",
    "reads: planned_examples",
  }  # fmt: skip


@pytest.mark.slow
def test_a_run_that_costs_more_is_told(root):
  """Of whole epochs in another order: more chunks, more ranges."""
  lines = baseline.differences(KIND, found(root, "ffd full"), found(root))
  told = "\n".join(lines)
  for what in ("chunks_fetched", "bytes_fetched", "coalesced_ranges"):
    assert f"{KIND}: reads: {what} must be at most" in told


def test_files_and_memory_that_a_batch_leaves_open_are_told(root, monkeypatch):
  left = []

  def leaving(function):
    def changed(*arguments, **options):
      left.extend((open(__file__), bytes(2_000_000)))  # noqa: SIM115
      return function(*arguments, **options)

    return changed

  source = type(
    pipeline.batch_source(chomp_data.build(measuring.kinds(root)[KIND]))
  )
  before = found(root)
  monkeypatch.setattr(source, "__getitem__", leaving(source.__getitem__))
  told = "\n".join(baseline.differences(KIND, found(root), before))
  for file in left[::2]:
    file.close()
  for what in ("descriptors", "bytes held", "most bytes held"):
    assert f"{KIND}: {what} must be at most" in told
