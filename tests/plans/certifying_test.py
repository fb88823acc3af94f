# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What was handed out is one sum, whoever hands out which part of it."""

import dataclasses
import itertools
import json

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data.audit import verifying
from chomp_data.plans import certifying
from chomp_data.plans import digests
from chomp_data.plans import plan as plan_lib
from chomp_data.rows import spans as spans_lib
from tests import laws

STEPS = 9


@pytest.fixture(scope="module")
def kinds(text_stores, tmp_path_factory):
  """config.data of one run of each kind, by name."""
  gone = tmp_path_factory.mktemp("gone") / "gone.jsonl"
  gone.write_text(
    "".join(
      json.dumps({"source": "notes", "document": own}) + "\n"
      for own in range(0, 300, 3)
    )
  )
  notes, code = (
    {"store": text_stores[name][0], "rows": {"kind": kind}, **more}
    for name, kind, more in (
      ("notes", "bin", {"shuffle": {"kind": "block", "window_blocks": 2}}),
      ("code", "sequential", {"shuffle": {"kind": "full"}}),
    )
  )
  one = {
    "seq_len": 32,
    "global_batch_size": 8,
    "seed": 3,
    "sources": {"notes": notes},
  }
  return {
    "bins": one,
    "mix": {**one, "sources": {"notes": notes, "code": code}},
    "splice": {
      **one,
      "sources": {
        "notes": {
          "store": notes["store"],
          "rows": {"kind": "multi_splice", "num_docs": 5, "content_length": 9},
        }
      },
    },
    "balance": {**one, "balance": "attention", "balance_shards": 4},
    "edits": {
      **one,
      "tombstones": ((3, str(gone)),),
      "skip": ((2, 4),),
      "global_batch_size": None,
      "batch_size_schedule": ((0, 8), (6, 4)),
    },
  }


KINDS = ("bins", "mix", "splice", "balance", "edits", "text", "pictures")


@pytest.fixture
def pipe(request, kinds, text, pictures):
  data = {**kinds, "text": text, "pictures": pictures}[request.param]
  return pipeline.build({**data, "remainder": "pad", "certificate": "tokens"})


def added(parts):
  """Sums of sums."""
  fields = (dataclasses.astuple(own) for own in parts)
  rows, plan, tokens = (sum(own) for own in zip(*fields, strict=True))
  modulus = digests.MODULUS
  return certifying.Sums(rows, plan % modulus, tokens % modulus)


def handed_out(pipe, process, count, workers, steps):
  """Returns the sums of steps of one of some processes."""
  rows = {
    bucket.name: np.array_split(np.arange(bucket.batch_size), count)[process]
    for bucket in pipe.buckets
  }
  counted = {name: np.ones(len(own), bool) for name, own in rows.items()}
  if process < count - 1:
    # It holds a row of the next one too, which that one counts.
    rows = {n: np.r_[own, own[-1] + 1] for n, own in rows.items()}
    counted = {n: np.r_[own, False] for n, own in counted.items()}
  local = plan_lib.LocalRows(rows, counted=counted)
  source = pipeline.batch_source(pipe, local)
  readers = [source.for_workers(workers) for _ in range(workers)]
  found = []
  for step in steps:
    reader = readers[step % workers]
    reader[step]
    found.append(reader.certificate_sums(step))
  return found


@pytest.mark.parametrize("pipe", KINDS, indirect=True)
def test_sums_are_the_plans_for_any_processes_workers_and_cuts(pipe):
  wanted = verifying.sums(pipe, range(STEPS), tokens=True)
  for count, workers, cut in [*((1, 2, 4), (2, 1, 3), (4, 2, 5))]:
    parts = [
      own
      for process in range(count)
      for steps in (range(cut, STEPS), range(cut))
      for own in handed_out(pipe, process, count, workers, steps)
    ]
    assert added(parts) == wanted, (count, workers, cut)
  single = [
    verifying.sums(pipe, range(step, step + 1), tokens=True)
    for step in range(STEPS)
  ]
  assert added(single) == wanted
  # Skipped, repeated or in another's place: none is the same.
  for first, second in itertools.permutations(range(STEPS), 2):
    other = [*single]
    other[first] = single[second]
    assert added(other).plan != wanted.plan
    del other[first]
    assert added(other).plan != wanted.plan


def test_dealing_rows_to_shards_changes_no_sum(kinds):
  plain = pipeline.build(kinds["bins"])
  dealt = pipeline.build(kinds["balance"])
  assert any(np.diff(dealt.row_order(step)).min() < 0 for step in range(STEPS))
  wanted = verifying.sums(plain, range(STEPS))
  parts = handed_out(dealt, 0, 1, 1, range(STEPS))
  assert added([dataclasses.replace(own, tokens=0) for own in parts]) == (
    dataclasses.replace(wanted, tokens=0)
  )


def test_sums_of_parts_are_taken_apart_again():
  """Modulo 2**128; where a part has no tokens, nothing has."""
  largest = digests.MODULUS - 1
  one, other = certifying.Sums(3, largest, 5), certifying.Sums(4, 2, largest)
  assert one + other == certifying.Sums(7, 1, 4)
  assert one + other - other == one
  assert certifying.Sums.zero(tokens=True) + one == one
  for sums in (one + certifying.NO_ROWS, one - certifying.NO_ROWS):
    assert sums == certifying.Sums(3, largest, None)


# A field of spans, its number of values and its type.
CHANGES = {
  **dict.fromkeys(("document", "start", "length", "column"), (2**31, np.int64)),
  "segment": (2**31, np.int32),
  **dict.fromkeys(("added_before", "added_after"), (6, np.int8)),
  "masked": (2, np.bool_),
}


def plan_of(seed):
  """Returns spans of two steps of three rows."""
  rng = np.random.default_rng(seed)
  row = np.sort(rng.integers(0, 6, 10))
  numbers = {name: rng.integers(0, 2**31 - 1, 10) for name in CHANGES}
  return spans_lib.Spans(
    num_rows=6,
    row=row,
    source=rng.integers(0, 2, 10).astype(np.int32),
    offset=rng.integers(0, 99, 10),
    **{
      name: (number % CHANGES[name][0]).astype(CHANGES[name][1])
      for name, number in numbers.items()
    },
  )


def sums_of(spans, steps=(4, 5), rows=(0, 1, 2, 0, 1, 2), names="ab"):
  keys = np.stack([digests.name_keys(name, 32) for name in names], 1)
  return digests.of_spans(spans, np.asarray(steps), np.asarray(rows), keys)


@laws.examples(50)
@hypothesis.given(
  seed=st.integers(0, 9), at=st.integers(0, 9), by=st.integers(1, 2**31)
)
def test_every_single_change_changes_the_sum_of_its_step_alone(seed, at, by):
  spans = plan_of(seed)
  wanted = sums_of(spans)
  step = int(spans.row[at] >= 3)
  for name in (*CHANGES, "source"):
    value = getattr(spans, name).copy()
    if name == "source":
      value[at] = 1 - value[at]
    else:
      value[at] = (int(value[at]) + by) % CHANGES[name][0]
      if value[at] == getattr(spans, name)[at]:
        continue
    found = sums_of(dataclasses.replace(spans, **{name: value}))
    assert found[step] != wanted[step], name
    assert found[1 - step] == wanted[1 - step]
  moved = sums_of(spans, steps=(4, 6))
  assert moved[0] == wanted[0]
  assert (moved[1] != wanted[1]) == bool((spans.row >= 3).any())
  renamed = sums_of(spans, names="ac")
  assert (renamed != wanted) == bool((spans.source == 1).any())


def test_the_order_of_summing_does_not_matter_but_rows_do():
  spans = plan_of(1)
  wanted = sums_of(spans)
  back = np.arange(6)[::-1]
  other = spans.of_rows(back)
  assert sums_of(other, steps=(5, 4), rows=(2, 1, 0, 2, 1, 0)) == wanted[::-1]
  assert sums_of(other, steps=(5, 4)) != wanted[::-1]


def test_values_count_all_bits_of_a_row():
  rng = np.random.default_rng(0)
  steps, rows = np.arange(2), np.asarray([0, 1, 0, 1])
  for dtype in (np.uint8, np.int32, np.float32, np.bool_):
    value = rng.integers(0, 2, (4, 3, 5)).astype(dtype)
    wanted = digests.of_values({"x": value}, steps, rows)
    for at in np.ndindex(value.shape):
      other = value.copy()
      other[at] = 1 - other[at].astype(int)
      found = digests.of_values({"x": other}, steps, rows)
      assert (found[at[0] // 2], found[1 - at[0] // 2]) == (
        found[at[0] // 2],
        wanted[1 - at[0] // 2],
      )
      assert found[at[0] // 2] != wanted[at[0] // 2]
    assert digests.of_values({"y": value}, steps, rows) != wanted


def test_sums_are_what_they_were():
  """States hold them."""

  def told(sums):
    return [f"{own:032x}" for own in sums]

  # Numbers that no generator of another version draws otherwise.
  number = np.arange(10)
  spans = dataclasses.replace(
    plan_of(0),
    row=number // 2,
    source=number.astype(np.int32) % 2,
    **{
      name: (7 * number).astype(dtype)
      for name, (values, dtype) in CHANGES.items()
      if values == 2**31
    },
    added_before=np.where(number % 3 == 0, spans_lib.BOS, 0).astype(np.int8),
    added_after=np.where(number % 3 == 0, spans_lib.EOS, 0).astype(np.int8),
    masked=number % 3 == 0,
  )
  assert told(sums_of(spans)) == [
    "8349ffc30660f035d2108156eca15cfa",
    "7457d6f795d82eb58909412f3a1fb600",
  ]
  keys = digests.name_keys("a", 8, 8)
  place = np.arange(2), np.asarray([0, 1, 0, 1])
  samples = np.asarray([5, -1, 7, 8])
  assert told(digests.of_samples(samples, *place, keys)) == [
    "f4ad23033e03fc76118e19cebbae67a2",
    "50f2ed7dc86c14d33412f91770c272f0",
  ]
  tokens = {"tokens": np.arange(12, dtype=np.int32).reshape(4, 3)}
  assert told(digests.of_values(tokens, *place)) == [
    "9d39cab0c31e251b764f9954709ed908",
    "dc8682a3ed8475de05f4a3a265e7f4f3",
  ]
