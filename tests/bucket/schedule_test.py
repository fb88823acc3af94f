# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Buckets: homogeneous, once an epoch, in shares, the same from any step."""

import fractions
import pickle
import random

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data.bucket import batch_list
from chomp_data.bucket import batch_order
from chomp_data.bucket import schedule as schedule_lib
from chomp_data.index import hashing
from chomp_data.index import permutation
from chomp_data.mix import interleave
from tests import laws

F = fractions.Fraction
Stage = interleave.Stage


def random_case(rng, exhaustion="drop"):
  """Returns the arguments of a small schedule with an end."""
  names = [f"b{i}" for i in range(rng.randint(1, 4))]
  sizes = {name: rng.randint(1, 5) for name in names}
  remainder = rng.choice(("drop", "pad"))
  groups = {}
  for i in range(rng.randint(1, 4)):
    counts = {}
    for name in names:
      least = 1 if remainder == "pad" else sizes[name]
      counts[name] = rng.choice([0, least, rng.randint(least, least + 12)])
    if not any(counts.values()):
      counts[names[0]] = sizes[names[0]]
    groups[f"d{i}"] = counts
  used = [n for n in names if any(own.get(n, 0) for own in groups.values())]
  return {
    "groups": {
      name: {b: n for b, n in counts.items() if b in used}
      for name, counts in groups.items()
    },
    "batch_sizes": {name: sizes[name] for name in used},
    "units": {name: rng.choice([1, 1, 7, 1024]) for name in used},
    "stages": [Stage(0, {name: rng.randint(1, 4) for name in groups})],
    "key": rng.getrandbits(64),
    "remainder": remainder,
    "exhaustion": exhaustion,
    "epochs": rng.randint(1, 3),
  }


def made(case, **changes):
  arguments = {**case, **changes}
  groups = arguments.pop("groups")
  return schedule_lib.BucketSchedule(groups, **arguments)


CASES = st.integers(0, 2**32).map(lambda seed: random_case(random.Random(seed)))


def slow_steps(case):
  """Returns (dataset, bucket, epoch, samples) of each step, by counters."""
  staged = case.get("bucket_stages")
  make = SlowList if staged is None else SlowStages
  lists = {name: make(case, name) for name in case["groups"]}
  weights = case["stages"][0].weights
  mix = hashing.fold_key(case["key"], "mix")
  taken = dict.fromkeys(lists, 0)
  units = dict.fromkeys(lists, 0)
  steps = []
  while True:
    live = [name for name, own in lists.items() if own.has(len(steps))]
    # A later stage would have more of these: their turn must not come before.
    waiting = [
      name
      for name, own in lists.items()
      if name not in live and own.has_later(len(steps))
    ]
    if not live and not waiting:
      return steps

    def level(name):
      key = hashing.fold_key(mix, "tie", name)
      tie = int(hashing.fold(key, np.asarray([taken[name]]))[0])
      return F(units[name], weights[name]), tie, name

    name = min([*live, *waiting], key=level)
    if name in waiting:
      return None
    bucket, epoch, samples = lists[name].take(len(steps))
    steps.append((name, bucket, epoch, samples))
    taken[name] += 1
    units[name] += slow_units(case, name, bucket, samples)


def slow_units(case, name, bucket, samples):
  real = [sample for sample in samples if sample >= 0]
  own = case.get("sample_units")
  if own is None:
    return len(real) * case["units"][bucket]
  number = list(case["batch_sizes"]).index(bucket)
  return int(own[name](number, np.asarray(real)).sum())


class SlowList:
  """A dataset's batches, those of all buckets shuffled together."""

  def __init__(self, case, name):
    self.batches = slow_list(case, name)

  def has(self, step):
    return bool(self.batches)

  def has_later(self, step):
    return False

  def take(self, step):
    return self.batches.pop(0)


class SlowStages:
  """A dataset's batches, bucket by bucket by what each has consumed."""

  def __init__(self, case, name):
    self.case, self.name = case, name
    self.left = {
      bucket: slow_list(case, name, bucket)
      for bucket, count in case["groups"][name].items()
      if count
    }
    self.taken = dict.fromkeys(self.left, 0)
    self.counts, self.weights = {}, {}
    key = hashing.fold_key(case["key"], name, "buckets")
    self.key = hashing.fold_key(key, "stages")

  def stage(self, step):
    whole = [own for at, own in self.case["bucket_stages"] if at <= step][-1]
    return {b: F(w) for b, w in whole.items() if b in self.left}

  def has(self, step):
    return any(self.left[bucket] for bucket in self.stage(step))

  def has_later(self, step):
    later = [own for at, own in self.case["bucket_stages"] if at > step]
    return any(self.left.get(bucket) for own in later for bucket in own)

  def enter(self, weights):
    """Keeps what each bucket is beyond its share; a new one is level."""
    going = [b for b in self.weights if self.left[b]]
    levels = [F(self.counts[b]) / self.weights[b] for b in going]
    least = min(levels, default=F(0))
    self.counts = {
      b: self.counts[b] - self.weights[b] * least if b in going else F(0)
      for b in weights
    }
    self.weights = weights

  def take(self, step):
    weights = self.stage(step)
    if weights != self.weights:
      self.enter(weights)

    def level(bucket):
      key = hashing.fold_key(self.key, "tie", str(bucket))
      tie = int(hashing.fold(key, np.asarray([self.taken[bucket]]))[0])
      return self.counts[bucket] / weights[bucket], tie, str(bucket)

    bucket = min((b for b in weights if self.left[b]), key=level)
    found = self.left[bucket].pop(0)
    self.taken[bucket] += 1
    self.counts[bucket] += slow_units(self.case, self.name, *found[::2])
    return found


def slow_list(case, name, only=None):
  """Returns (bucket, epoch, samples) of a dataset's batches, one by one."""
  key = hashing.fold_key(case["key"], name, "buckets")
  out = []
  for epoch in range(case["epochs"]):
    batches = []
    for bucket in sorted(case["batch_sizes"]):
      size = case["batch_sizes"][bucket]
      count = case["groups"][name].get(bucket, 0)
      if only not in (None, bucket):
        continue
      own = hashing.fold_key(key, "samples", bucket)
      own = int(hashing.fold(own, np.asarray([epoch]))[0])
      samples = permutation.permute(np.arange(count), max(count, 1), own)
      samples = samples.tolist()
      while samples:
        batch, samples = samples[:size], samples[size:]
        if len(batch) == size or case["remainder"] == "pad":
          batch += [-1] * (size - len(batch))
          batches.append((bucket, epoch, batch))
    own = hashing.fold_key(key, "list")
    own = int(hashing.fold(own, np.asarray([epoch]))[0])
    order = permutation.permute(np.arange(len(batches)), len(batches), own)
    out += [batches[i] for i in order.tolist()]
  return out


def fast_steps(schedule, steps=None):
  steps = np.arange(schedule.num_steps) if steps is None else steps
  columns = [column.tolist() for column in schedule.locate(steps)]
  return [
    (
      schedule.datasets[dataset],
      schedule.buckets[bucket],
      epoch,
      schedule.samples(step).tolist(),
    )
    for step, dataset, bucket, epoch, _ in zip(
      steps.tolist(), *columns, strict=True
    )
  ]


def test_the_example_of_the_module():
  schedule = schedule_lib.BucketSchedule(
    {"a": {"32x32": 5, "48x32": 2}, "b": {"32x32": 3}},
    batch_sizes={"32x32": 2, "48x32": 2},
    units={"32x32": 1, "48x32": 1},
    stages=[Stage(0, {"a": 1, "b": 1})],
    key=0,
  )
  assert fast_steps(schedule) == [
    ("a", "32x32", 0, [1, 4]),
    ("b", "32x32", 0, [2, 1]),
    ("a", "48x32", 0, [1, 0]),
    ("a", "32x32", 0, [3, 2]),
  ]
  assert schedule.locate(np.arange(4))[3].tolist() == [0, 0, 0, 1]
  assert schedule.batches_per_epoch.tolist() == [[2, 1], [1, 0]]


@laws.examples(60)
@hypothesis.given(seed=st.integers(0, 2**32))
def test_random_cases_are_what_counters_give(seed):
  case = random_case(random.Random(seed))
  assert fast_steps(made(case)) == slow_steps(case)


def own_units(seed):
  """Returns what samples consume, each for itself: 1 .. 9."""

  def units_of(bucket, samples):
    key = hashing.fold_key(seed, bucket)
    return 1 + (hashing.fold(key, samples) % np.uint64(9)).astype(np.int64)

  return units_of


def with_units(rng, case):
  """Returns a case where samples, not buckets, tell what they consume."""
  return {
    **case,
    "sample_units": {
      name: own_units(rng.getrandbits(32)) for name in case["groups"]
    },
  }


def with_stages(rng, case):
  """Returns a case with a curriculum in which each dataset has a bucket."""
  names = list(case["batch_sizes"])
  filled = [
    {b for b, count in counts.items() if count}
    for counts in case["groups"].values()
  ]
  stages, step = [], 0
  for _ in range(rng.randint(1, 4)):
    chosen = rng.sample(names, rng.randint(1, len(names)))
    if not all(own & set(chosen) for own in filled):
      chosen = names
    stages.append((step, {b: rng.randint(1, 4) for b in chosen}))
    step += rng.randint(1, 12)
  return {**case, "bucket_stages": stages}


@laws.examples(40)
@hypothesis.given(seed=st.integers(0, 2**32))
def test_samples_with_units_of_their_own_are_what_counters_give(seed):
  rng = random.Random(seed)
  case = with_units(rng, random_case(rng))
  assert fast_steps(made(case)) == slow_steps(case)


@laws.examples(60)
@hypothesis.given(seed=st.integers(0, 2**32), units=st.booleans())
def test_random_curricula_are_what_counters_give(seed, units):
  rng = random.Random(seed)
  case = with_stages(rng, random_case(rng))
  if units:
    case = with_units(rng, case)
  expected = slow_steps(case)
  if expected is None:
    with pytest.raises(ValueError, match="still to come"):
      made(case)
    # Most cases have samples enough for all of their stages.
    hypothesis.reject()
  assert fast_steps(made(case)) == expected


def test_a_step_far_into_a_curriculum_is_what_walking_to_it_gives():
  steps = (4_999, 4_001, 3_999, 4_096)
  rng = random.Random(5)
  case = with_units(rng, random_case(random.Random(11)))
  case["epochs"] = None
  case["groups"] = {
    name: {b: 900 * count for b, count in counts.items()}
    for name, counts in case["groups"].items()
  }
  case["bucket_stages"] = [
    (0, dict.fromkeys(case["batch_sizes"], 1)),
    (4_000, {b: i + 1 for i, b in enumerate(case["batch_sizes"])}),
  ]
  walked = made(case)
  walked.locate(np.arange(steps[0] + 1))
  for step, wanted in zip(
    steps, fast_steps(walked, np.asarray(steps)), strict=True
  ):
    far = made(case)
    assert fast_steps(far, np.asarray([step])) == [wanted]
    np.testing.assert_array_equal(far.consumed(step), walked.consumed(step))
    np.testing.assert_array_equal(
      made(case).consumed_units(step), walked.consumed_units(step)
    )


def test_a_bucket_that_is_spent_leaves_its_share_to_its_dataset():
  schedule = schedule_lib.BucketSchedule(
    {"a": {"s": 20, "t": 4_000}, "b": {"s": 2_000, "t": 2_000}},
    batch_sizes={"s": 2, "t": 2},
    units={"s": 1, "t": 1},
    stages=[Stage(0, {"a": 1, "b": 1})],
    key=0,
    bucket_stages=[(0, {"s": 3, "t": 1})],
  )
  given = schedule.consumed(1_000)
  assert given[0].tolist() == [20, 980]
  assert given[1].tolist() == [750, 250]


def test_a_stage_without_buckets_of_a_dataset_is_refused():
  arguments = {
    "batch_sizes": {"s": 2, "t": 2},
    "units": {"s": 1, "t": 1},
    "stages": [Stage(0, {"a": 9, "b": 1}), Stage(50, {"a": 1})],
    "key": 0,
    "epochs": None,
  }
  groups = {"a": {"s": 40, "t": 40}, "b": {"t": 40}}
  with pytest.raises(
    ValueError, match=r"from step 0 .* dataset 'b' has, got s"
  ):
    schedule_lib.BucketSchedule(
      groups, **arguments, bucket_stages=[(0, {"s": 1}), (60, {"t": 1})]
    )
  # Where it has no weight it needs no bucket.
  schedule_lib.BucketSchedule(
    groups, **arguments, bucket_stages=[(0, {"t": 1}), (50, {"s": 1})]
  )


def test_a_stage_may_begin_where_the_one_before_has_given_all():
  arguments = {
    "batch_sizes": {"s": 2, "t": 2},
    "units": {"s": 1, "t": 1},
    "stages": [Stage(0, {"a": 1})],
    "key": 0,
    "epochs": 1,
  }
  groups = {"a": {"s": 20, "t": 40}}
  schedule = schedule_lib.BucketSchedule(
    groups, **arguments, bucket_stages=[(0, {"s": 1}), (10, {"t": 1})]
  )
  assert schedule.locate(np.arange(30))[1].tolist() == [0] * 10 + [1] * 20
  assert schedule.num_steps == 30
  with pytest.raises(ValueError, match="t are still to come"):
    schedule_lib.BucketSchedule(
      groups, **arguments, bucket_stages=[(0, {"s": 1}), (11, {"t": 1})]
    )


@pytest.mark.parametrize("exhaustion", ["first_exhausted", "all_exhausted"])
def test_a_bucket_that_is_left_out_exhausts_nothing_before(exhaustion):
  case = {
    "groups": {"a": {"s": 4, "t": 400}, "b": {"s": 4_000, "t": 4_000}},
    "batch_sizes": {"s": 2, "t": 2},
    "units": {"s": 1, "t": 1},
    "stages": [Stage(0, {"a": 1, "b": 1})],
    "key": 3,
    "exhaustion": exhaustion,
    "epochs": 1,
    "bucket_stages": [(0, {"s": 1, "t": 1})],
  }
  before = made(case)
  for step in (100, 200, 398):
    stages = [*case["bucket_stages"], (step, {"s": 1})]
    after = made(case, bucket_stages=stages)
    assert after.num_steps > step
    assert fast_steps(after, np.arange(step)) == fast_steps(
      before, np.arange(step)
    )


def test_a_stage_appended_to_a_curriculum_changes_nothing_before_it():
  for seed in range(20):
    rng = random.Random(seed)
    case = with_stages(rng, random_case(rng))
    case["epochs"] = None
    at = case["bucket_stages"][-1][0] + rng.randint(1, 30)
    later = (at, dict.fromkeys(case["batch_sizes"], 1))
    longer = {**case, "bucket_stages": [*case["bucket_stages"], later]}
    steps = np.arange(at)
    assert fast_steps(made(longer), steps) == fast_steps(made(case), steps)


@pytest.mark.parametrize("exhaustion", ["first_exhausted", "all_exhausted"])
def test_a_dataset_is_exhausted_when_all_its_buckets_are(exhaustion):
  schedule = schedule_lib.BucketSchedule(
    {"a": {"s": 20, "t": 40}, "b": {"s": 30, "t": 10}},
    batch_sizes={"s": 2, "t": 2},
    units={"s": 1, "t": 1},
    stages=[Stage(0, {"a": 1, "b": 1})],
    key=0,
    exhaustion=exhaustion,
    epochs=1,
    bucket_stages=[(0, {"s": 1, "t": 1})],
  )
  whole = {"a": [20, 40], "b": [30, 10]}

  def done(step):
    given = schedule.consumed(step)
    return [
      all(n >= m for n, m in zip(given[i], counts, strict=True))
      for i, counts in enumerate(whole.values())
    ]

  ended = any if exhaustion == "first_exhausted" else all
  end = schedule.num_steps
  assert ended(done(end))
  assert not ended(done(end - 1))


@hypothesis.given(case=CASES)
def test_the_histogram_counts_the_samples_of_the_steps_before(case):
  schedule = made(case)
  samples = np.zeros((len(case["groups"]), len(case["batch_sizes"])), int)
  batches = samples.copy()
  units = np.asarray([case["units"][b] for b in schedule.buckets])
  rows = fast_steps(schedule)
  for step in range(schedule.num_steps + 1):
    np.testing.assert_array_equal(schedule.consumed(step), samples)
    np.testing.assert_array_equal(schedule.batches(step), batches)
    np.testing.assert_array_equal(
      schedule.consumed_units(step), (samples * units).sum(axis=1)
    )
    if step < schedule.num_steps:
      dataset, bucket, _, own = rows[step]
      place = (
        schedule.datasets.index(dataset),
        schedule.buckets.index(bucket),
      )
      samples[place] += sum(sample >= 0 for sample in own)
      batches[place] += 1


@laws.examples(30)
@hypothesis.given(case=CASES, seed=st.integers(0, 2**32))
def test_every_step_is_the_same_in_any_order_and_after_pickling(case, seed):
  schedule = made(case)
  expected = fast_steps(schedule)
  steps = np.random.default_rng(seed).permutation(schedule.num_steps)
  again = pickle.loads(pickle.dumps(schedule))
  for step in steps.tolist():
    assert fast_steps(again, np.asarray([step])) == [expected[step]]
    np.testing.assert_array_equal(
      made(case).consumed(step), schedule.consumed(step)
    )


@laws.examples(60)
@hypothesis.given(case=CASES)
def test_a_datasets_order_does_not_depend_on_other_datasets(case):
  whole = fast_steps(made(case))
  for name, counts in case["groups"].items():
    used = [b for b in case["batch_sizes"] if counts.get(b, 0)]
    # Nor on how buckets are numbered, or on those it does not have.
    alone = schedule_lib.BucketSchedule(
      {name: {b: counts[b] for b in used}},
      batch_sizes={b: case["batch_sizes"][b] for b in reversed(used)},
      units=case["units"],
      stages=[Stage(0, {name: 1})],
      key=case["key"],
      remainder=case["remainder"],
      epochs=case["epochs"],
    )
    assert fast_steps(alone) == [step for step in whole if step[0] == name]


@hypothesis.given(case=CASES)
def test_a_datasets_list_counts_units_both_ways(case):
  for counts in case["groups"].values():
    order = batch_order.BatchOrder(
      list(case["batch_sizes"]),
      [counts.get(bucket, 0) for bucket in case["batch_sizes"]],
      list(case["batch_sizes"].values()),
      case["key"],
      keeps_partial=case["remainder"] == "pad",
      epochs=case["epochs"],
    )
    units = np.asarray(list(case["units"].values()))
    own = batch_list.BatchList(order, units)
    used = [
      int((order.samples_before(place) * units).sum())
      for place in range(own.num_rows + 1)
    ]
    assert own.before(np.arange(own.num_rows + 1)).tolist() == used
    for needed in {0, 1, *used, *(n + 1 for n in used)}:
      below = sum(n < needed for n in used[:-1])
      assert own.rows_below(needed) == below, needed


def test_a_step_far_into_a_run_is_what_walking_to_it_gives():
  case = {
    "groups": {"a": {"s": 900, "t": 55}, "b": {"s": 70, "t": 700}},
    "batch_sizes": {"s": 3, "t": 2},
    "units": {"s": 4, "t": 9},
    "stages": [Stage(0, {"a": 2, "b": 3})],
    "key": 9,
    "remainder": "pad",
    "epochs": None,
  }
  walked = made(case)
  columns = walked.locate(np.arange(30_000))
  for step in (29_999, 12_345, 4_096, 20_000):
    for jumped, column in zip(
      made(case).locate(np.asarray([step])), columns, strict=True
    ):
      assert jumped[0] == column[step]
  batches = np.zeros((2, 2), np.int64)
  np.add.at(batches, (columns[0], columns[1]), 1)
  np.testing.assert_array_equal(made(case).batches(30_000), batches)


def test_a_dataset_has_another_order_with_a_seed_of_its_own():
  case = {
    "groups": {"a": {"s": 40}, "b": {"s": 40}},
    "batch_sizes": {"s": 4},
    "units": {"s": 1},
    "stages": [Stage(0, {"a": 1, "b": 1})],
    "key": 3,
  }
  plain, seeded = made(case), made(case, seeds={"b": 5})
  other_run = made(case, seeds={"b": 5}, key=4)

  def of(schedule, name):
    return [step[3] for step in fast_steps(schedule) if step[0] == name]

  assert of(plain, "a") == of(seeded, "a")
  assert of(plain, "b") != of(seeded, "b")
  assert of(seeded, "b") == of(other_run, "b")
  assert of(seeded, "a") != of(other_run, "a")


@pytest.mark.parametrize(
  ("exhaustion", "steps"),
  [("drop", 7), ("first_exhausted", 4), ("all_exhausted", 10)],
)
def test_exhaustion_ends_a_run_by_its_name(exhaustion, steps):
  schedule = schedule_lib.BucketSchedule(
    {"a": {"s": 4}, "b": {"s": 10}},
    batch_sizes={"s": 2},
    units={"s": 1},
    stages=[Stage(0, {"a": 1, "b": 1})],
    key=0,
    exhaustion=exhaustion,
  )
  # Ties decide which of the two comes first, and so the last step.
  assert abs(schedule.num_steps - steps) <= 1
  epochs = {step[2] for step in fast_steps(schedule) if step[0] == "a"}
  assert (epochs == {0}) == (exhaustion != "all_exhausted")


def test_max_epochs_end_one_dataset_of_an_endless_run():
  schedule = schedule_lib.BucketSchedule(
    {"a": {"s": 5}, "b": {"s": 7}},
    batch_sizes={"s": 2},
    units={"s": 1},
    stages=[Stage(0, {"a": 1, "b": 1})],
    key=0,
    remainder="pad",
    epochs=None,
    max_epochs={"a": 3},
  )
  assert schedule.num_steps is None
  far = 10**7
  assert schedule.consumed(far)[0].tolist() == [15]
  assert schedule.batches(far).sum() == far
  dataset, _, epoch, _ = schedule.locate(np.asarray([far]))
  assert (dataset[0], epoch[0]) == (1, (far - 9) // 4)


def test_no_step_and_no_row_beyond_the_end():
  schedule = schedule_lib.BucketSchedule(
    {"a": {"s": 4}},
    batch_sizes={"s": 2},
    units={"s": 1},
    stages=[Stage(0, {"a": 1})],
    key=0,
  )
  assert schedule.num_steps == 2
  for empty in schedule.locate(np.zeros(0, np.int64)):
    assert len(empty) == 0
  with pytest.raises(IndexError, match=r"0 \.\. 2, got 3"):
    schedule.locate(np.asarray([2]))
  with pytest.raises(IndexError, match="got -1"):
    schedule.locate(np.asarray([-1]))
  with pytest.raises(IndexError, match=r"`rows` must be in 0 \.\. 1 .*got 2"):
    schedule.samples(0, np.asarray([0, 2]))
  with pytest.raises(IndexError, match="got 3"):
    schedule.consumed(3)


GOOD = {
  "groups": {"cats": {"32x32": 8}, "dogs": {"32x32": 8, "64x64": 8}},
  "batch_sizes": {"32x32": 4, "64x64": 4},
  "units": {"32x32": 1, "64x64": 1},
  "stages": [Stage(0, {"cats": 1, "dogs": 1})],
  "key": 0,
}


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    (
      {"groups": {"cats": {"32x32": 8, "64x64": 3}, "dogs": {"32x32": 4}}},
      "bucket '64x64' of dataset 'cats' must fill a global batch of 4 samples,"
      " got 3.*remainder='pad'",
    ),
    (
      {"groups": {"cats": {"32x32": 8}, "dogs": {"32x32": 8}}},
      "bucket '64x64' must have a sample in some dataset, got none",
    ),
    (
      {"groups": {"cats": {}, "dogs": {"32x32": 8, "64x64": 8}}},
      "dataset 'cats' must have samples in some bucket, got none",
    ),
  ],
)
def test_bad_arguments_are_errors_that_say_what_to_do(changes, message):
  made(GOOD)
  with pytest.raises(ValueError, match=message):
    made(GOOD, **changes)


def test_all_that_is_wrong_with_groups_is_in_one_error():
  with pytest.raises(ValueError, match="'64x64' of dataset 'cats'") as caught:
    made(
      GOOD,
      groups={"cats": {"32x32": 1, "64x64": 1}, "dogs": {"32x32": 1}},
    )
  lines = str(caught.value).splitlines()
  assert sum("must fill a global batch of 4" in own for own in lines) == 3
