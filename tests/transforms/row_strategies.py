# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Packed rows of every shape, for property tests of what reads batches.

Needs hypothesis, which the package does not depend on.
"""

import dataclasses

from hypothesis import strategies as st
import numpy as np

from chomp_data.rows import row_layout
from chomp_data.rows import spans as spans_lib

VOCAB_SIZE = 6

# By source; the ids are among the tokens and the fillers.
EOS_IDS = (1, 2)


@dataclasses.dataclass(frozen=True)
class PackedRows:
  """Rows as canonical fields, and where each position comes from.

  Attributes:
    batch: Canonical fields with `attention_mask` and, with lookahead,
      `next_token`. The arrays are read-only.
    span: int64[N, seq_len], the index of the span at each position; -1 is
      padding.
  """

  batch: dict[str, np.ndarray]
  span: np.ndarray


def packed_rows(
  *,
  num_rows: int | None = None,
  seq_len: int | None = None,
  lookahead: bool | None = None,
) -> st.SearchStrategy[PackedRows]:
  """Draws rows of documents of one or two spans, with and without gaps.

  Two spans of one segment are what a rolled copy has: no token of the first
  is followed by one of the second.

  Args:
    num_rows: Number of rows, or None to draw it.
    seq_len: Positions of a row, or None to draw it.
    lookahead: Whether rows have `next_token`, or None to draw it.
  """
  return _packed_rows(num_rows, seq_len, lookahead)


@st.composite
def _packed_rows(
  draw: st.DrawFn,
  num_rows: int | None,
  seq_len: int | None,
  lookahead: bool | None,
) -> PackedRows:
  if num_rows is None:
    num_rows = draw(st.integers(1, 3))
  if seq_len is None:
    seq_len = draw(st.integers(2, 10))
  if lookahead is None:
    lookahead = draw(st.booleans())
  flat: list[tuple[int, int, int, int]] = []
  for row in range(num_rows):
    column, segment = draw(st.integers(0, 2)), 0
    while column < seq_len and draw(st.integers(0, 4)):
      segment += 1
      for _ in range(draw(st.integers(1, 2))):
        if column < seq_len:
          length = draw(st.integers(1, min(seq_len - column, 4)))
          flat.append((row, column, length, segment))
          column += length
      column += draw(st.sampled_from((0, 0, 1)))
  sources = np.asarray(
    draw(st.lists(st.integers(0, 1), min_size=num_rows, max_size=num_rows))
  )
  row, column, length, segment = (
    np.asarray([f[i] for f in flat], np.int64) for i in range(4)
  )
  spans = spans_lib.Spans(
    num_rows=num_rows,
    row=row,
    source=sources[row].astype(np.int32),
    document=np.arange(len(flat)),
    start=row * 0,
    offset=row * 0,
    length=length,
    column=column,
    segment=segment.astype(np.int32),
  )
  layout = row_layout.RowLayout(
    seq_len=seq_len,
    filler_id=draw(st.sampled_from((0, *EOS_IDS))),
    trailing_filler_in_segment=draw(st.booleans()),
    positions=draw(st.sampled_from(("column", "segment"))),
  )
  span = np.full((num_rows, seq_len), -1)
  for index, (at_row, begin, size, _) in enumerate(flat):
    span[at_row, begin : begin + size] = index
  random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
  real = row_layout.real_tokens(spans, seq_len)
  tokens = row_layout.token_grid(spans, layout)
  tokens[real] = random.integers(0, VOCAB_SIZE, real.sum())
  batch = {
    "tokens": tokens,
    **row_layout.span_fields(spans, layout),
    "source_id": spans.row_source(),
    "attention_mask": real,
  }
  if lookahead:
    continues = real[:, -1] & (random.random(num_rows) < 0.5)
    following = random.integers(0, VOCAB_SIZE, num_rows)
    batch["next_token"] = np.where(
      continues, following, layout.filler_id
    ).astype(np.int32)
    batch["loss_mask"][:, -1] = continues
  for field in batch.values():
    field.flags.writeable = False
  return PackedRows(batch, span)
