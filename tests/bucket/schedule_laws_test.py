# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Bucketed schedules: random cases of datasets, buckets and processes."""

import collections
import fractions
import itertools

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data.bucket import schedule as schedule_lib
from chomp_data.index import hashing
from chomp_data.mix import interleave
from tests import laws

F = fractions.Fraction


def make(groups, *, seed, stages, **args):
  """Returns a schedule as a run of that seed has it."""
  return schedule_lib.BucketSchedule(
    groups,
    key=hashing.fold_key(seed, "buckets"),
    stages=[interleave.Stage(*stage) for stage in stages],
    **args,
  )


def random_case(seed):
  """Returns the arguments of a schedule."""
  rng = np.random.default_rng(seed)
  processes = int(rng.choice([1, 2, 4]))
  names = [f"b{i}" for i in range(rng.integers(1, 5))]
  batch_sizes = {b: int(rng.integers(1, 5)) * processes for b in names}
  remainder = str(rng.choice(["drop", "pad"]))
  groups = {}
  for d in range(rng.integers(1, 5)):
    counts = {}
    for bucket in names:
      if rng.random() < 0.7:
        least = batch_sizes[bucket] if remainder == "drop" else 1
        counts[bucket] = int(rng.integers(least, least + 30))
    groups[f"d{d}"] = counts
  # No empty dataset, no empty bucket: those are errors of their own.
  first = next(iter(groups.values()))
  for bucket in names:
    if not any(bucket in counts for counts in groups.values()):
      first[bucket] = batch_sizes[bucket]
  for counts in groups.values():
    counts.setdefault(names[0], batch_sizes[names[0]])
  weights = {d: F(int(rng.integers(1, 6))) for d in groups}
  curriculum = None
  if rng.random() < 0.5:
    curriculum = [(0, {b: F(int(rng.integers(1, 6))) for b in names})]
    if all(set(names[1:]) & counts.keys() for counts in groups.values()):
      curriculum.append((int(rng.integers(1, 9)), {b: F(1) for b in names[1:]}))
  return (
    processes,
    groups,
    {
      "batch_sizes": batch_sizes,
      "units": {b: int(rng.integers(1, 9)) for b in names},
      "stages": [(0, weights)],
      "bucket_stages": curriculum,
      "seed": seed,
      "remainder": remainder,
      "exhaustion": "drop",
      "epochs": int(rng.integers(1, 3)),
      "max_epochs": {},
      "seeds": {"d0": 7} if rng.random() < 0.5 else {},
    },
  )


@laws.examples(40)
@hypothesis.given(seed=st.integers(0, 2**32))
def test_random_cases_keep_the_laws(seed):
  processes, groups, args = random_case(seed)
  schedule = make(groups, **args)
  seen = collections.Counter()
  datasets, buckets, *_ = schedule.locate(np.arange(schedule.num_steps))
  for step in range(schedule.num_steps):
    dataset, bucket = int(datasets[step]), int(buckets[step])
    assert schedule.at(step) == (dataset, bucket)
    size = schedule.batch_sizes[bucket]
    whole = schedule.samples(step)
    assert len(whole) == size
    # In step: each process takes its rows of the same batch.
    held = [
      schedule.samples(step, np.arange(p, size, processes))
      for p in range(processes)
    ]
    assert len({len(own) for own in held}) == 1
    np.testing.assert_array_equal(np.stack(held, 1).reshape(-1), whole)
    real = whole[whole >= 0]
    assert len(np.unique(real)) == len(real)
    seen.update((dataset, bucket, int(own)) for own in real)
    assert (whole >= 0).all() or args["remainder"] == "pad"
  check_epochs(groups, args, schedule, seen)
  check_histogram(args, schedule, datasets, buckets)
  check_shares(args, schedule)


def check_shares(args, schedule):
  """Datasets stay within a global batch of each other, over their weights."""
  weights = args["stages"][0][1]
  most = max(
    F(size * args["units"][bucket]) / min(weights.values())
    for bucket, size in args["batch_sizes"].items()
  )
  lasting = schedule.consumed(schedule.num_steps)
  for step in range(0, schedule.num_steps, 3):
    used = schedule.consumed_units(step)
    if (schedule.consumed(step).sum(axis=1) >= lasting.sum(axis=1)).any():
      break  # One has ended, and leaves its share to the others.
    levels = [
      F(int(own)) / weights[name]
      for own, name in zip(used, schedule.datasets, strict=True)
    ]
    assert max(levels) - min(levels) <= most


def check_epochs(groups, args, schedule, seen):
  """At most once an epoch; with 'pad' exactly once."""
  for d, (_, counts) in enumerate(groups.items()):
    for b, name in enumerate(schedule.buckets):
      times = [seen[d, b, i] for i in range(counts.get(name, 0))]
      assert max(times, default=0) <= args["epochs"]
      served = args["bucket_stages"] is None or (
        name in args["bucket_stages"][-1][1]
      )
      if args["remainder"] == "pad" and served:
        assert set(times) <= {args["epochs"]}
  assert all(
    sample < list(groups.values())[d][schedule.buckets[b]]
    for d, b, sample in seen
  )


def check_histogram(args, schedule, datasets, buckets):
  counts = np.zeros((len(schedule.datasets), len(schedule.buckets)), np.int64)
  units = np.zeros(len(schedule.datasets), np.int64)
  for step in range(schedule.num_steps):
    if step % 7 == 0:
      np.testing.assert_array_equal(schedule.consumed(step), counts)
      np.testing.assert_array_equal(schedule.consumed_units(step), units)
    real = int((schedule.samples(step) >= 0).sum())
    d, b = datasets[step], buckets[step]
    counts[d, b] += real
    units[d] += real * args["units"][schedule.buckets[b]]
  np.testing.assert_array_equal(schedule.consumed(schedule.num_steps), counts)


def whole(weights, bucket_weights=None, steps=600):
  """Returns an endless schedule of two datasets and three buckets."""
  names = ("8", "16", "32")
  return make(
    {d: dict.fromkeys(names, 500) for d in weights},
    batch_sizes={"8": 8, "16": 4, "32": 2},
    units={"8": 8, "16": 16, "32": 32},
    stages=[(0, weights)],
    bucket_stages=bucket_weights,
    seed=1,
    remainder="drop",
    exhaustion="drop",
    epochs=None,
    max_epochs={},
    seeds={},
  )


def test_consumed_units_stay_within_one_global_batch_of_the_weights():
  weights = {"a": F(9, 10), "b": F(1, 10)}
  schedule = whole(weights)
  for step in range(400):
    units = schedule.consumed_units(step)
    total = units.sum()
    for own, weight in zip(units, weights.values(), strict=True):
      assert abs(own - total * weight) <= 64


def test_a_curriculum_gives_each_stage_its_buckets_in_their_shares():
  schedule = whole(
    {"a": F(3), "b": F(1)},
    [
      (0, {"8": F(1)}),
      (40, {"8": F(1), "16": F(3)}),
      (200, {"32": F(1)}),
    ],
  )
  _, buckets, *_ = schedule.locate(np.arange(300))
  assert set(buckets[:40]) == {0}
  assert set(buckets[40:200]) == {0, 1}
  assert set(buckets[200:]) == {2}
  # All batches hold 64 tokens, so shares of tokens are shares of steps.
  assert abs(int((buckets[40:200] == 1).sum()) - 120) <= 2
  for first, last in itertools.pairwise((0, 40, 200, 300)):
    taken = schedule.consumed_units(last) - schedule.consumed_units(first)
    assert abs(int(taken[0]) - 48 * (last - first)) <= 64


def test_a_later_stage_changes_nothing_before_it():
  weights = {"a": F(2), "b": F(1)}
  stages = [(0, {"8": F(1), "16": F(1)}), (50, {"32": F(1)})]
  short, long = whole(weights, stages[:1]), whole(weights, stages)
  for step in range(50):
    assert short.at(step) == long.at(step)
    np.testing.assert_array_equal(short.samples(step), long.samples(step))


def test_a_curriculum_keeps_many_datasets_within_a_batch_of_their_shares():
  weights = {f"d{i}": F(1) for i in range(4)}
  schedule = whole(weights, [(0, {"8": F(1)}), (90, {"8": F(5), "32": F(2)})])
  for step in range(0, 300, 7):
    units = schedule.consumed_units(step)
    assert units.max() - units.min() <= 64


def test_steps_beyond_the_run_are_refused():
  _, groups, args = random_case(3)
  schedule = make(groups, **args)
  with pytest.raises(IndexError):
    schedule.at(schedule.num_steps)


def test_a_stage_without_a_filled_bucket_is_an_error():
  with pytest.raises(ValueError, match="from step 5"):
    make(
      {"a": {"8": 9}, "b": {"8": 9, "16": 9}},
      batch_sizes={"8": 2, "16": 2},
      units={"8": 8, "16": 16},
      stages=[(0, {"a": F(1), "b": F(1)}), (5, {"a": F(1)})],
      bucket_stages=[(0, {"8": F(1)}), (5, {"16": F(1)})],
      seed=1,
      remainder="drop",
      exhaustion="drop",
      epochs=1,
      max_epochs={},
      seeds={},
    )
