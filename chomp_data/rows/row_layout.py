# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Makes the canonical fields of a batch from spans.

Every field is a run-length pattern over the flattened [rows, seq_len] grid, so
each is one `np.repeat` over a few runs per span. With numba, a compiled loop
makes all fields in one pass.
"""

import dataclasses
from typing import Any

import numpy as np

from chomp_data.index import ragged
from chomp_data.kernels import compiled
from chomp_data.rows import aligned
from chomp_data.rows.spans import SENTINEL
from chomp_data.rows.spans import Spans

# Approximate seconds per position of all fields.
_POSITION_S = 1e-9

_NO_SPANS = {
  np.bool_: np.empty(0, np.bool_),
  np.int8: np.empty(0, np.int8),
}

# Clearing a gap costs 0.15 us, making runs about 8 us.
_MOST_GAPS = 32


@dataclasses.dataclass(frozen=True)
class RowLayout:
  """How the rows of a source are laid out around their spans.

  Attributes:
    seq_len: Positions of a row.
    filler_id: Token id of positions that hold no document's token.
    trailing_filler_in_segment: Whether padding right of a row's last span
      has that span's segment id (otherwise it is 0).
    token_before_document: Token id put just left of a row's first span where
      that span does not start at column 0, or None for padding. It is
      outside the segment and is never trained on.
    positions: 'column', the absolute column, or 'segment', counted from each
      segment's first column.
    bos_id: Token id of an added BOS, or None.
    eos_id: Token id of an added EOS, or None.
    sentinel_ids: Token ids of sentinels, which mark the parts of rearranged
      documents.
    pair_slots: The most preference pairs of a row; 0 if rows hold documents.
    train_sentinels: Whether sentinels are trained on as labels.
  """

  seq_len: int
  filler_id: int
  trailing_filler_in_segment: bool = True
  token_before_document: int | None = None
  positions: str = "column"
  bos_id: int | None = None
  eos_id: int | None = None
  sentinel_ids: tuple[int, ...] = ()
  pair_slots: int = 0
  train_sentinels: bool = True

  @property
  def special_ids(self) -> tuple[int | None, ...]:
    """Ids of padding, left of a shifted document, BOS, EOS and sentinels."""
    return (
      self.filler_id,
      self.token_before_document,
      self.bos_id,
      self.eos_id,
      *self.sentinel_ids,
    )


def placed(spans: Spans, layout: RowLayout) -> dict[str, np.ndarray]:
  """Returns the canonical fields, without the tokens of the store.

  Args:
    spans: The plan of the rows.
    layout: The rows' layout.

  Returns:
    New arrays: `tokens` of `token_grid` and the fields of `span_fields`. Where
    tokens of the store go, `tokens` may be uninitialised, so that each of its
    positions is written once.
  """
  shape = (spans.num_rows, layout.seq_len)
  loop = compiled.find("placed", _POSITION_S * spans.num_rows * layout.seq_len)
  if loop is None:
    tokens = token_grid(spans, layout)
    return {"tokens": tokens, **span_fields(spans, layout)}
  fields = {
    "tokens": aligned.empty(shape, np.int32),
    "segment_ids": aligned.empty(shape, np.int32),
    "positions": aligned.empty(shape, np.int32),
    "loss_mask": aligned.empty(shape, np.bool_),
  }
  ids = [layout.filler_id if i is None else i for i in layout.special_ids]
  loop(
    compiled.flat(spans.row, np.int64),
    compiled.flat(spans.column, np.int64),
    compiled.flat(spans.length, np.int64),
    compiled.flat(spans.segment, np.int32),
    _per_span(spans.masked, np.bool_),
    _per_span(spans.joined(), np.bool_),
    _per_span(spans.added_before, np.int8),
    _per_span(spans.added_after, np.int8),
    layout.trailing_filler_in_segment,
    layout.positions == "segment",
    np.asarray(ids, np.int32),
    *fields.values(),
  )
  return fields


def _per_span(values: np.ndarray | None, dtype: Any) -> np.ndarray:
  """Returns values of spans as an array for loops; None becomes empty."""
  return _NO_SPANS[dtype] if values is None else compiled.flat(values, dtype)


def token_grid(spans: Spans, layout: RowLayout) -> np.ndarray:
  """Returns int32[num_rows, seq_len] of padding and added tokens.

      filler_id 9, token_before_document 1, one span at column 2:
      [9, 1, 9, 9, 9]

  Args:
    spans: The plan of the rows.
    layout: The rows' layout.

  Returns:
    A new array: JAX may alias its buffer, so it is never reused.
  """
  grid = aligned.empty((spans.num_rows, layout.seq_len), np.int32)
  grid.fill(layout.filler_id)
  if layout.token_before_document is not None and len(spans):
    opens_row, _ = ragged.run_edges(spans.row)
    row, column = spans.row[opens_row], spans.column[opens_row]
    shifted = column > 0
    grid[row[shifted], column[shifted] - 1] = layout.token_before_document
  spans = spans.live()
  ids = [layout.filler_id if i is None else i for i in layout.special_ids]
  for added, column in (
    (spans.added_before, spans.column),
    (spans.added_after, spans.ends() - 1),
  ):
    if added is not None:
      pick = np.flatnonzero(added)
      grid[spans.row[pick], column[pick]] = np.asarray(ids)[added[pick] + 1]
  return grid


def joined_copies(
  start: np.ndarray, length: np.ndarray, position: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Joins copies that are adjacent in both source and destination.

      start [5, 8, 20], length [3, 2, 4], position [0, 3, 5]
      -> start [5, 20], length [5, 4], position [0, 5]

  Args:
    start: int64[N], where copies begin.
    length: int64[N], their tokens.
    position: int64[N], their destinations.

  Returns:
    The same copies as fewer ranges.
  """
  if not len(start):
    return start, length, position
  opens = np.ones(len(start), np.bool_)
  # Both ends advance by the length: one comparison of differences does.
  shift = start - position
  np.not_equal(shift[1:], shift[:-1], out=opens[1:])
  opens[1:] |= position[1:] != position[:-1] + length[:-1]
  first_copy = np.flatnonzero(opens)
  return (
    start[first_copy],
    np.add.reduceat(length, first_copy),
    position[first_copy],
  )


def copies(
  spans: Spans, seq_len: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns the copies from stores to the flattened `tokens`.

  Args:
    spans: The plan of rows, without masked spans.
    seq_len: Positions of a row.

  Returns:
    (start in the span's store, length, position in `tokens`), int64[N] each.
  """
  length, column = spans.stored()
  return spans.offset, length, spans.row * seq_len + column


def span_fields(spans: Spans, layout: RowLayout) -> dict[str, np.ndarray]:
  """Returns the fields that depend only on the plan.

      seq_len 6, a span of 3 tokens at column 1, segment 1:
      segment_ids  [0, 1, 1, 1, 1, 1]
      positions    [0, 1, 2, 3, 4, 5]
      loss_mask    [0, 1, 1, 0, 0, 0]

  Args:
    spans: The plan of the rows.
    layout: The rows' layout.

  Returns:
    `segment_ids` int32[num_rows, seq_len], `positions` int32 of the same
    shape and `loss_mask` bool of the same shape: True where the next column
    holds the next token of the same span, or of one that is joined to it.
  """
  seq_len, num_rows = layout.seq_len, spans.num_rows
  shape, size = (num_rows, seq_len), num_rows * layout.seq_len
  begin = spans.row * seq_len + spans.column
  end = begin + spans.length
  segment_end, segments = end, spans.segment
  if layout.trailing_filler_in_segment:
    _, is_last = ragged.run_edges(spans.row)
    segment_end = np.where(is_last, (spans.row + 1) * seq_len, end)
  segment_begin = begin
  if spans.masked is not None:
    segments = segments * ~spans.masked
    live = np.flatnonzero(~spans.masked)
    begin, end = begin[live], end[live]
  columns = np.arange(seq_len, dtype=np.int32)
  if layout.positions == "segment":
    opens, _ = ragged.run_edges(spans.row, spans.segment)
    origin = spans.column[np.flatnonzero(opens)[np.cumsum(opens) - 1]]
    origin = origin.astype(np.int32)
    positions = filled(segment_begin, segment_end, origin, size).reshape(shape)
    np.subtract(columns, positions, out=positions)
  else:
    positions = aligned.empty(shape, np.int32)
    positions[:] = columns
  return {
    "segment_ids": filled(segment_begin, segment_end, segments, size).reshape(
      shape
    ),
    "positions": positions,
    "loss_mask": targets(spans, begin, end, size).reshape(shape),
  }


def targets(
  spans: Spans, begin: np.ndarray, end: np.ndarray, size: int
) -> np.ndarray:
  """Returns bool[size], which positions have a target in their sequence.

  Args:
    spans: The plan.
    begin: int64[N], where the spans that are not masked begin.
    end: int64[N], where they end.
    size: Positions of all rows.
  """
  mask = covered(begin, end, size, inner=True)
  joined = spans.live().joined()
  if joined is not None:
    mask[begin[joined] - 1] = True
  return mask


def real_tokens(spans: Spans, seq_len: int) -> np.ndarray:
  """Returns bool[num_rows, seq_len]: which positions are not padding."""
  spans = spans.live()
  begin = spans.row * seq_len + spans.column
  mask = covered(begin, begin + spans.length, spans.num_rows * seq_len)
  return mask.reshape(spans.num_rows, seq_len)


def pair_mask(spans: Spans, pair_slots: int) -> np.ndarray:
  """Returns bool[num_rows, pair_slots]: which pairs rows hold.

  Args:
    spans: The plan, without masked spans; pair p has segments 2p + 1 and
      2p + 2.
    pair_slots: The most pairs of a row.
  """
  mask = np.zeros((spans.num_rows, pair_slots), np.bool_)
  mask[spans.row, (spans.segment - 1) // 2] = True
  return mask


def without_sentinels(spans: Spans, seq_len: int) -> np.ndarray:
  """Returns bool[num_rows, seq_len]: which positions hold no sentinel.

  Args:
    spans: The plan of rows, without masked spans.
    seq_len: Positions of a row.
  """
  mask = np.ones((spans.num_rows, seq_len), np.bool_)
  for added, column in (
    (spans.added_before, spans.column),
    (spans.added_after, spans.ends() - 1),
  ):
    if added is not None:
      pick = np.flatnonzero(added >= SENTINEL)
      mask[spans.row[pick], column[pick]] = False
  return mask


def filled(
  begin: np.ndarray, end: np.ndarray, values: np.ndarray, size: int
) -> np.ndarray:
  """Returns [size], values[i] on [begin[i], end[i]) and zeros elsewhere.

  Args:
    begin: int64[M], ascending.
    end: int64[M], at most the next begin.
    values: [M], of the result's dtype.
    size: Length of the result.
  """
  edges = np.empty(2 * len(begin) + 2, np.int64)
  edges[0], edges[-1] = 0, size
  edges[1:-1:2], edges[2:-1:2] = begin, end
  between = np.zeros(2 * len(begin) + 1, values.dtype)
  between[1::2] = values
  return np.repeat(between, edges[1:] - edges[:-1])


def covered(
  begin: np.ndarray, end: np.ndarray, size: int, inner: bool = False
) -> np.ndarray:
  """Returns bool[size], True on [begin[i], end[i] - inner).

  Packed rows have few gaps: these are cleared in an array of True.

  Args:
    begin: int64[N], ascending.
    end: int64[N], at most the next begin.
    size: Length of the result.
    inner: Whether to leave out the last position of each range.
  """
  gap_begin = np.empty(len(begin) + 1, np.int64)
  gap_begin[0], gap_begin[1:] = 0, end
  gap_end = np.empty(len(begin) + 1, np.int64)
  gap_end[:-1], gap_end[-1] = begin, size
  gaps = np.flatnonzero(gap_end > gap_begin)
  if len(gaps) > _MOST_GAPS:
    mask = filled(begin, end, np.ones(len(begin), np.bool_), size)
  else:
    mask = np.ones(size, np.bool_)
    for low, high in zip(
      gap_begin[gaps].tolist(), gap_end[gaps].tolist(), strict=True
    ):
      mask[low:high] = False
  if inner:
    mask[end - 1] = False
  return mask
