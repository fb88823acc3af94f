# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows on their way: what is made of them equals what the host makes."""

import dataclasses

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data.rows import row_layout
from chomp_data.rows import row_masks
from chomp_data.rows import transfer_format
from tests import numpy_namespace
from tests.rows import row_layout_test


@st.composite
def planned_rows(draw):
  """Rows of spans over several words, of which some may be gone."""
  seq_len = draw(st.integers(2, 70))
  rows = []
  for _ in range(draw(st.integers(1, 4))):
    row, column, segment = [], draw(st.sampled_from((0, 0, 1, 17))), 1
    while column < seq_len and draw(st.integers(0, 4)):
      length = draw(st.integers(1, seq_len - column))
      row.append((column, length, segment))
      column += length + draw(st.sampled_from((0, 0, 1, 15)))
      segment += draw(st.integers(0, 1))
    rows.append(row)
  spans = row_layout_test.plan(rows)
  gone = draw(st.lists(st.booleans(), min_size=len(spans), max_size=len(spans)))
  if any(gone):
    spans = dataclasses.replace(spans, masked=np.asarray(gone))
  return seq_len, spans


def written(row_format, spans, layout, random):
  """Returns rows as they travel, and the fields that the host makes."""
  shape = (spans.num_rows, row_format.seq_len)
  out = transfer_format.Writer(row_format, spans.num_rows)
  out.patterns(spans, layout.trailing_filler_in_segment)
  restarts = layout.positions == "segment"
  host = row_layout.span_fields(spans, layout)
  host["source_id"] = random.integers(-1, 9, shape[0], np.int32)
  out.of_run(host["source_id"], restarts)
  most = 2**31 if row_format.wide else 2**16
  host["tokens"] = random.integers(0, most, shape).astype(np.int32)
  out.tokens(host["tokens"])
  trained = random.random(shape) < 0.7
  out.labels(trained)
  host["loss_mask"][:, :-1] &= trained[:, 1:]
  after = np.zeros(shape[0], np.float32)
  if "next_token" in row_format.extra:
    host["next_token"] = random.integers(-1, 2**31, shape[0], np.int32)
    after = random.choice(np.float32([0, 0.5, 2]), shape[0])
    out.following(host["next_token"], after)
    host["loss_mask"][:, -1] |= after > 0
  if row_format.weighs:
    weight = random.random(shape, np.float32)
    out.weights(weight)
    if "label_weight" in row_format.extra:
      host["label_weight"] = weight
    if "loss_weight" in row_format.extra:
      host["loss_weight"] = (
        row_masks.before_end(weight[:, 1:], after) * host["loss_mask"]
      )
  if "attention_mask" in row_format.extra:
    host["attention_mask"] = row_layout.real_tokens(spans, row_format.seq_len)
  if row_format.document_slots:
    slots = (shape[0], row_format.document_slots)
    host["document_id"] = random.integers(-1, 2**31 - 1, slots)
    out.documents(host["document_id"])
  return out.rows, host


EXTRA = ("attention_mask", "next_token", "loss_weight", "label_weight")


@hypothesis.given(
  case=planned_rows(),
  trailing=st.booleans(),
  positions=st.sampled_from(["column", "segment"]),
  extra=st.frozensets(st.sampled_from(EXTRA)),
  wide=st.booleans(),
  slots=st.integers(0, 3),
  data=st.data(),
)
def test_fields_are_those_of_the_host(
  case, trailing, positions, extra, wide, slots, data
):
  seq_len, spans = case
  layout = row_layout.RowLayout(seq_len, 9, trailing, None, positions)
  row_format = transfer_format.TransferFormat(
    seq_len,
    wide=wide,
    restarts=positions == "segment" or data.draw(st.booleans()),
    masks_spans=spans.masked is not None or data.draw(st.booleans()),
    extra=extra,
    document_slots=slots,
  )
  rows, host = written(row_format, spans, layout, np.random.default_rng(0))
  assert rows.shape == (spans.num_rows, row_format.words)
  made = transfer_format.decode(row_format, rows, numpy_namespace.NUMPY)
  assert set(made) == set(host)
  for name, value in host.items():
    np.testing.assert_array_equal(made[name], value, name)
    assert made[name].dtype == value.dtype, name
  # A window holds its own columns, and may be wrong at its edges.
  start = data.draw(st.integers(0, seq_len - 1))
  width = data.draw(st.integers(1, seq_len - start))
  part = transfer_format.window(row_format, rows, start, width)
  for name, value in transfer_format.decode(
    row_format, part, numpy_namespace.NUMPY, start
  ).items():
    if value.ndim == 2 and name != "document_id":
      last = width - (start + width < seq_len)
      want = host[name][:, start : start + last]
      np.testing.assert_array_equal(value[:, :last], want, name)


def test_segments_that_do_not_count_are_refused():
  spans = row_layout_test.plan([[(0, 2, 1), (2, 3, 3)]])
  out = transfer_format.Writer(transfer_format.TransferFormat(8), 1)
  with pytest.raises(ValueError, match="got 3 at column 2"):
    out.patterns(spans, False)


def test_a_run_of_tokens_that_fit_takes_two_bytes_and_some_bits():
  """Of splices at 2,048: three bits a position, and two numbers a row."""
  row_format = transfer_format.TransferFormat(2_048)
  assert 2 * row_format.words == 2 * 2_048 + 3 * 2_048 // 8 + 2 * 4
