# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Counts of every kind of run against those that were kept."""

import itertools
import tempfile

import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data.loading import batches
from chomp_data.ops import row_layout
from chomp_data.plans import accounts
from chomp_data.plans import rows_plan
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
  before = {name: 1_000_000}
  told = lambda now: baseline.differences(KIND, {name: now}, before)  # noqa: E731
  assert not told(1_000_000)
  assert not told(600_000)
  (worse,) = told(1_200_000)
  assert "must be at most" in worse
  assert baseline.UPDATE in worse
  (better,) = told(100_000)
  assert "far better" in better
  assert len(baseline.differences(KIND, {}, before)) == 1
  assert len(baseline.differences(KIND, before, {})) == 1


def twice(function):
  """Does all twice: more calls, arrays and bytes."""

  def changed(*arguments, **options):
    function(*arguments, **options)
    return function(*arguments, **options)

  return changed


def after(change):
  """Does something else too, for ever."""
  kept = []

  def worse(function):
    def changed(*arguments, **options):
      kept.append(change())
      return function(*arguments, **options)

    return changed

  return worse


def instead(value):
  return lambda _: value


def longer(function):
  return lambda *arguments: {**function(*arguments), "fingerprint": "9" * 500}


def a_map():
  with tempfile.NamedTemporaryFile() as file:
    return np.memmap(file, np.uint8, "w+", shape=9)


LAYOUT, BUILD = (row_layout, "token_grid"), (pipeline.Pipeline, "__init__")
READ = (rows_plan.RowsPlan, "read")
AT_ONCE = (batches, "_READ_STEPS")
FIRST, MOST = (batches, "_FIRST_ROWS"), (batches, "_PLANNED_ROWS")
# What is counted, what makes it worse, and for which kind of run.
WORSE = [
  ("first batch: rows planned", {FIRST: instead(256)}, KIND),
  ("64 batches: plans", {FIRST: instead(8), MOST: instead(8)}, KIND),
  ("reads: planned_examples", {FIRST: instead(4_096)}, KIND),
  ("64 batches: Grain records", {AT_ONCE: instead(1)}, KIND),
  ("64 batches: calls", {AT_ONCE: instead(1)}, KIND),
  ("64 batches: arrays", {READ: twice}, KIND),
  ("64 batches: bytes of arrays", {LAYOUT: twice}, KIND),
  ("a batch far on: arrays", {READ: twice}, KIND),
  ("a batch far on: rows planned", {FIRST: instead(4_096)}, "ffd full"),
  ("a state far on: calls", {(accounts.Accounts, "_standing_at"): twice}, KIND),
  ("build: calls", {BUILD: twice}, KIND),
  ("build: arrays", {BUILD: twice}, KIND),
  (
    "reads: logical_reads",
    {(row_layout, "joined_copies"): instead(lambda *copies: copies)},
    "sequential block",
  ),
  ("reads: chunks_fetched", {}, "ffd full"),
  ("reads: bytes_fetched", {}, "ffd full"),
  ("reads: coalesced_ranges", {}, "ffd full"),
  ("descriptors", {LAYOUT: after(lambda: open(__file__))}, KIND),  # noqa: SIM115
  ("maps", {LAYOUT: after(a_map)}, KIND),
  ("bytes held", {LAYOUT: after(lambda: bytes(50_000))}, KIND),
  ("most bytes held", {LAYOUT: after(lambda: bytes(2_000_000))}, KIND),
  (
    "bytes of a pickled reader",
    {(batches.BatchSource, "arguments"): longer},
    KIND,
  ),
  (
    "bytes of a state",
    {(pipeline.Pipeline, "fingerprint"): instead({"longer": "9" * 5_000})},
    KIND,
  ),
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed file")
@pytest.mark.parametrize(("name", "changes", "kind"), WORSE)
def test_a_run_that_costs_more_is_told(root, monkeypatch, name, changes, kind):
  # Where nothing changes, what costs more is another order.
  before = found(root, kind if changes else KIND)
  for (owner, attribute), worse in changes.items():
    monkeypatch.setattr(owner, attribute, worse(getattr(owner, attribute)))
  told = baseline.differences(kind, found(root, kind), before)
  assert any(f"{kind}: {name} must be at most" in line for line in told), told


def test_every_count_was_seen_to_grow():
  def what(names):
    return {name.rpartition(": ")[2] for name in names}

  every = itertools.chain.from_iterable(KEPT.values())
  assert what(every) == what(name for name, _, _ in WORSE)
