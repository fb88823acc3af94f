# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What rows cost is what their fields cost; chosen rows of a plan."""

import dataclasses

import hypothesis
from hypothesis import strategies as st
import numpy as np

from chomp_data.rows import row_costs
from chomp_data.rows import row_layout
from tests.rows import row_layout_test


def test_the_example_of_the_docstring():
  spans = row_layout_test.plan([[(0, 3, 1), (3, 2, 2)]])
  assert row_costs.attention(spans, 6, np.zeros(2, bool)).tolist() == [13]
  assert row_costs.attention(spans, 6, np.ones(2, bool)).tolist() == [18]


@hypothesis.given(
  case=row_layout_test.rows_of_spans(), trailing=st.booleans(), data=st.data()
)
def test_attention_costs_the_squared_segments_of_the_mask(case, trailing, data):
  seq_len, rows = case
  spans = row_layout_test.plan(rows)
  if data.draw(st.booleans()):
    gone = data.draw(
      st.lists(st.booleans(), min_size=len(spans), max_size=len(spans))
    )
    spans = dataclasses.replace(spans, masked=np.asarray(gone, np.bool_))
  layout = row_layout.RowLayout(seq_len, 9, trailing)
  segment_ids = row_layout.span_fields(spans, layout)["segment_ids"]
  wanted = [
    sum(int(n) ** 2 for n in np.unique(own[own > 0], return_counts=True)[1])
    for own in segment_ids
  ]
  found = row_costs.attention(spans, seq_len, np.full(len(spans), trailing))
  assert found.tolist() == wanted
  assert found.dtype == np.int64


@hypothesis.given(case=row_layout_test.rows_of_spans(), data=st.data())
def test_rows_of_a_plan_can_be_chosen_in_any_order(case, data):
  _, rows = case
  whole = row_layout_test.plan(rows)
  pick = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=6))
  found = whole.of_rows(np.asarray(pick, np.int64))
  assert found.num_rows == len(pick)
  for at, row in enumerate(pick):
    own, one = found.rows(at, at + 1), whole.rows(row, row + 1)
    for name in ("row", "column", "length", "document", "segment", "offset"):
      np.testing.assert_array_equal(getattr(own, name), getattr(one, name))
