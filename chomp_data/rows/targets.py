# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Targets at several depths: for each column, tokens later in its document.

    tokens     [5, 6, 7, 8, 9]    rows [5, 6, 7] and [8, 9] of two documents;
    targets    [6, 7, 0, 9, 4]    the second goes on with 4, 3
    targets_2  [7, 0, 0, 4, 3]

A target is in the same span as its column: rows are read with more columns, to
which the last span of a row extends, and shifted. Padding is 0 above.
"""

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses

import numpy as np

from chomp_data.rows import row_layout
from chomp_data.rows import spans as spans_lib

# More than any model predicts; each depth adds two fields.
MAX_TARGETS = 64


def names(depth: int) -> tuple[str, str, str]:
  """Returns the names of targets, mask and weight at a depth from 1."""
  end = "" if depth == 1 else f"_{depth}"
  return f"targets{end}", f"target_mask{end}", f"target_weight{end}"


# Targets at depth 1, 2, ...
FIELDS = tuple(names(depth)[0] for depth in range(1, MAX_TARGETS + 1))


def names_in(batch: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
  """Yields the names of the targets, mask and weight of each depth."""
  depth = 1
  while names(depth)[1] in batch:
    yield names(depth)
    depth += 1


def depth_of(extra: Collection[str]) -> int:
  """Returns the largest depth of the targets among optional fields, or 0."""
  return max((FIELDS.index(n) + 1 for n in extra if n in FIELDS), default=0)


def extended(
  spans: spans_lib.Spans, layout: row_layout.RowLayout, depth: int
) -> tuple[spans_lib.Spans, row_layout.RowLayout]:
  """Extends spans that end with their row into their documents.

      seq_len 5, depth 2, a span of 3 at column 2 of a document with 9 more:
      -> seq_len 7, a span of 5 at column 2

  Args:
    spans: The plan, without masked spans.
    layout: The layout of its rows.
    depth: The most tokens that a span gets.

  Returns:
    The spans, and the layout of rows with `depth` more columns.
  """
  seq_len = layout.seq_len
  remaining = spans.remaining
  if spans.following is not None:
    # What a source does not say more of: the next token alone.
    next_token = np.where(spans.following == 2, -1, spans.following)
    if remaining is None:
      remaining = next_token
    remaining = np.where(remaining == 0, next_token, remaining)
  if remaining is not None:
    remaining = remaining * (spans.ends() == seq_len)
    more = np.minimum(np.abs(remaining), depth)
    ends_document = (remaining < 0) & (more == -remaining)
    after = np.int8(0) if spans.added_after is None else spans.added_after
    spans = dataclasses.replace(
      spans,
      length=spans.length + more,
      added_after=np.where(ends_document, np.int8(spans_lib.EOS), after),
    )
  return spans, dataclasses.replace(layout, seq_len=seq_len + depth)


def batch_fields(
  spans: spans_lib.Spans,
  tokens: np.ndarray,
  depth: int,
  padding_id: int,
  trained: np.ndarray | None,
  weight: np.ndarray | None,
) -> dict[str, np.ndarray]:
  """Returns the targets of rows, and which of them are trained on.

  Args:
    spans: The plan, as `extended` returns it.
    tokens: int32[R, S + depth], its tokens.
    depth: The number of targets of a column.
    padding_id: The value of targets that do not exist.
    trained: bool[R, S + depth], the tokens that are trained on; None is all.
    weight: float32[R, S + depth], weights of tokens as targets; None if the
      run has none.

  Returns:
    `targets` int32[R, S], `target_mask` bool[R, S] and with weights
    `target_weight` float32[R, S], 0 where the mask is False; of each depth.
  """
  width = tokens.shape[1]
  begin = spans.row * width + spans.column
  joined = spans.joined()
  opens = np.ones(len(spans), np.int32) if joined is None else ~joined
  # Spans that are one sequence have one number.
  number = np.cumsum(opens, dtype=np.int32)
  number = row_layout.filled(begin, begin + spans.length, number, tokens.size)
  number = number.reshape(tokens.shape)
  here = number[:, : width - depth]
  batch = {}
  for d in range(1, depth + 1):
    columns = slice(d, d + here.shape[1])
    targets, target_mask, target_weight = names(d)
    mask = (here == number[:, columns]) & (here > 0)
    batch[targets] = np.where(mask, tokens[:, columns], padding_id)
    if trained is not None:
      mask &= trained[:, columns]
    batch[target_mask] = mask
    if weight is not None:
      batch[target_weight] = weight[:, columns] * mask
  return batch
