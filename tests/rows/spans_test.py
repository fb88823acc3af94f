# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Spans: slices, picks and joins of plans, with and without added tokens."""

import dataclasses

import hypothesis
from hypothesis import strategies as st
import numpy as np

from chomp_data.rows import spans as spans_lib

OPTIONAL = ("added_before", "added_after", "following")
VALUES = tuple(
  field.name
  for field in dataclasses.fields(spans_lib.Spans)
  if field.name not in ("num_rows", "row")
)


def plan(held, *, seed=0, optional=OPTIONAL):
  """Returns spans of distinct values, `held[r]` of them in row r."""
  random = np.random.default_rng(seed)
  row = np.repeat(np.arange(len(held)), held)
  values = {
    name: random.permutation(1_000)[: len(row)].astype(dtype)
    for name, dtype in (
      ("source", np.int32),
      ("document", np.int64),
      ("start", np.int64),
      ("offset", np.int64),
      ("length", np.int64),
      ("column", np.int64),
      ("segment", np.int32),
    )
  }
  values["length"] += 2
  for name in optional:
    values[name] = random.integers(0, 2, len(row)).astype(np.int8)
  return spans_lib.Spans(num_rows=len(held), row=row, **values)


def as_rows(spans):
  """Returns the spans of each row, as tuples of all their values."""
  rows = [[] for _ in range(spans.num_rows)]
  for i, row in enumerate(spans.row.tolist()):
    rows[row].append(
      tuple(
        None if getattr(spans, name) is None else getattr(spans, name)[i].item()
        for name in VALUES
      )
    )
  return rows


def same_types(one, other):
  for name in ("row", *VALUES):
    a, b = getattr(one, name), getattr(other, name)
    if (a is None) != (b is None) or (a is not None and a.dtype != b.dtype):
      return False
  return True


HELD = st.lists(st.integers(0, 3), max_size=6)
OPTIONALS = st.sampled_from([(), ("following",), OPTIONAL])


@hypothesis.given(
  held=HELD,
  optional=OPTIONALS,
  owner=st.lists(st.integers(0, 2), min_size=6, max_size=6),
  seed=st.integers(0, 99),
)
def test_plans_of_parts_merge_into_the_plan_of_the_whole(
  held, optional, owner, seed
):
  spans = plan(held, optional=optional)
  # Each part holds its rows in an order of its own.
  rows = np.random.default_rng(seed).permutation(len(held))
  places = [
    np.asarray([r for r in rows if owner[r] == part], np.int64)
    for part in range(3)
  ]
  parts = []
  for own in places:
    pick = [np.flatnonzero(spans.row == r) for r in own]
    counts = [len(p) for p in pick]
    parts.append(
      spans.take(
        np.concatenate([np.empty(0, np.int64), *pick]),
        np.repeat(np.arange(len(own)), counts).astype(np.int64),
        len(own),
      )
    )
  merged = spans_lib.merged(parts, places)
  assert as_rows(merged) == as_rows(spans)
  assert same_types(merged, spans)
  assert (np.diff(merged.row) >= 0).all()


def test_documents_of_rows_are_named_by_segment_and_cut_at_the_slots():
  row = np.asarray([0, 0, 0, 2, 2, 2])
  spans = dataclasses.replace(
    plan([3, 0, 3]),
    row=row,
    document=np.asarray([4, 4, 9, 9, 8, 8]),
    segment=np.asarray([1, 1, 2, 1, 2, 3], np.int32),
    source=np.asarray([1, 1, 1, 0, 0, 0], np.int32),
  )
  assert spans.row_documents(4).tolist() == [
    [4, 9, -1, -1],
    [-1, -1, -1, -1],
    [9, 8, 8, -1],
  ]
  assert spans.row_documents(1).tolist() == [[4], [-1], [9]]
  assert spans.row_source().tolist() == [1, -1, 0]


def test_plans_of_no_row_join():
  none = plan([])
  assert spans_lib.concatenated([none, none]).num_rows == 0
  both = spans_lib.merged([none, plan([1, 2])], [none.row, np.asarray([1, 0])])
  assert as_rows(both) == as_rows(plan([1, 2]))[::-1]
