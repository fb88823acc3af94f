# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Shares by source: what was intended and what came, at every step."""

import math

import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data.reference import window_log
from chomp_data.testing import stores as testing_stores

BATCH = 4


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
  rng = np.random.default_rng(0)
  root = tmp_path_factory.mktemp("by_source")
  for name, size in (("a", 600), ("b", 2_000), ("c", 4_000)):
    testing_stores.make_store(root / name, [rng.integers(3, 250, size)])
  return root


def build(paths, names="abc", mix=None, **changes):
  sources = {
    name: {"store": str(paths / name), "rows": {"kind": "sequential"}}
    for name in names
  }
  return pipeline.build(
    {
      "seq_len": 16,
      "global_batch_size": BATCH,
      "epochs": None,
      "sources": sources,
      **({} if mix is None else {"mix": mix}),
      **changes,
    }
  )


def means(pipe, last):
  """Returns the mean of intended shares, one step after the other."""
  total = dict.fromkeys(pipe.source_names, 0.0)
  for step in range(last):
    for name, share in pipe.accounts.questions.intended(step).items():
      total[name] += share
  return {n: own / max(last, 1) for n, own in total.items()}


RUNS = {
  "sources end": {"epochs": 1, "mix": {}},
  "the last batch is padded": {"epochs": 1, "mix": {}, "remainder": "pad"},
  "stages": {
    "mix": {
      "stages": [
        (0, {"a": 1, "b": 1}),
        (9, {"a": 1, "b": 2, "c": 1}),
        (30, {"c": 1}),
        (31, {"b": 1, "c": 3}),
      ]
    }
  },
  "a stage that returns": {
    "mix": {
      "stages": [(0, {"a": 1, "b": 1}), (20, {"c": 1}), (30, {"a": 1, "b": 1})]
    },
  },
  "stages and ends": {
    "epochs": 1,
    "mix": {"stages": [(0, {"a": 1, "b": 1}), (40, {"b": 1, "c": 1})]},
  },
}


@pytest.mark.parametrize("what", RUNS)
def test_intended_shares_are_means_over_steps(paths, what):
  pipe = build(paths, **RUNS[what])
  log = window_log.WindowLog(pipe)
  last = pipe.num_steps or 60
  cuts = [0, 1, 10, 10, 17, 43, last]
  for end in cuts[1:]:
    found = log.take(end).sources
    since = means(pipe, end)
    for name, own in found.items():
      assert own["intended_share"] == pytest.approx(since[name])
  # Intended and actual agree within a row of each source at every change.
  for own in found.values():
    assert own["share"] == pytest.approx(own["intended_share"], abs=0.05)


def test_a_log_that_begins_later_counts_from_the_start(paths):
  pipe = build(paths, **RUNS["stages"])
  whole, later = window_log.WindowLog(pipe), window_log.WindowLog(pipe, 33)
  whole.take(33)
  wanted = whole.take(50).sources
  found = later.take(50).sources
  for name, own in found.items():
    for field in ("intended_share", "window_share", "share"):
      assert own[field] == pytest.approx(wanted[name][field])


def test_what_has_ended_is_not_intended(paths):
  pipe = build(paths, **RUNS["sources end"])
  rows = {name: len(own) for name, own in pipe.sources.items()}
  for step in range(pipe.num_steps):
    given = pipe.run_plan.merge.rows_before(step * BATCH)
    left = [name for name in rows if given[name] < rows[name]]
    assert pipe.accounts.questions.intended(step) == {
      name: 1 / len(left) if name in left else 0.0 for name in rows
    }
  assert left == ["c"]


def test_intended_of_no_step_is_refused(paths):
  pipe = build(paths, **RUNS["the last batch is padded"])
  last = pipe.num_steps - 1
  assert sum(pipe.accounts.questions.intended(last).values()) == pytest.approx(
    1
  )
  for step in (last + 1, 10**9, -1):
    with pytest.raises(IndexError, match=rf"0 \.\. {last}, got {step}\."):
      pipe.accounts.questions.intended(step)
  with pytest.raises(IndexError, match=r"got -1\."):
    build(paths, mix={}).accounts.questions.intended(-1)


def test_one_source_alone_is_all_that_is_intended(paths):
  (own,) = window_log.WindowLog(build(paths, "a")).take(5).sources.values()
  assert own["intended_share"] == 1
  assert own["window_share"] == own["share"] == 1
  assert math.isnan(own["loss"])


def test_buckets_of_text_have_shares_too(paths):
  pipe = pipeline.build(
    {
      "epochs": None,
      "remainder": "pad",
      "buckets": {
        "kind": "length",
        "lengths": (16, 32),
        "tokens_per_batch": 64,
      },
      "mix": {"weights": {"b": 3, "c": 1}},
      "sources": {name: {"store": str(paths / name)} for name in "bc"},
    }
  )
  log = window_log.WindowLog(pipe)
  log.take(3)
  found = log.take(20).sources
  assert found["b"]["intended_share"] == pytest.approx(0.75)
  assert found["b"]["window_share"] == pytest.approx(0.75, abs=0.1)


def test_a_table_tells_the_shares_since_the_start(paths):
  stages = [(0, {"a": 3, "b": 1}), (8, {"a": 1, "b": 1})]
  log = window_log.WindowLog(build(paths, "ab", mix={"stages": stages}))
  log.take(8)
  found = log.take(16).sources
  head, *lines = window_log.source_table(found, note={"a": "x", "b": "yy"})
  assert head.split() == [
    *("source", "tokens", "share", "wanted", "epochs", "loss", "note")
  ]
  for line, (name, own) in zip(lines, found.items(), strict=True):
    shares = [f"{own[field]:.2%}" for field in ("share", "intended_share")]
    assert line.split()[:4] == [name, f"{own['tokens']:,}", *shares]
  assert len({len(line) for line in (head, *lines)}) == 1
  assert found["a"]["intended_share"] == pytest.approx(0.625)
