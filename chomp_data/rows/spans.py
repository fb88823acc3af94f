# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Spans: consecutive tokens of a document, and their place in a batch.

A batch of rows is planned as a structure of arrays, one entry per span, in
row-major order (by row, then by column). Lengths, starts and columns are in
tokens. NumPy only.
"""

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
from typing import Any
from typing import NoReturn

import numpy as np

from chomp_data.index import integers
from chomp_data.index import ragged

# Tokens that are added before or after spans, as numbers; 0 is none. Sentinels,
# which mark the parts of rearranged documents, are numbered from `SENTINEL` on.
BOS, EOS, SENTINEL = 1, 2, 3

# (first, last + 1) of columns: int each, or int64[K] of ranges, ascending.
ColumnRanges = tuple[int | np.ndarray, int | np.ndarray]


@dataclasses.dataclass(frozen=True)
class Spans:
  """The spans of `num_rows` rows, sorted by (row, column).

  Attributes:
    num_rows: How many rows are planned; a row without spans is all padding.
    row: int64[N], 0 .. num_rows - 1, the row within the request.
    source: int32[N], index of the source in the pipeline.
    document: int64[N], document index within its store.
    start: int64[N], first token within the document.
    offset: int64[N], the same token within the store's tokens.
    length: int64[N], number of positions, at least 1, added tokens included.
    column: int64[N], where the first token goes in the row.
    segment: int32[N], the segment id of the span's positions: the number of its
      segment in the row, from 1.
    added_before: int8[N], the token that is added before the span's tokens of
      the store: 0 (none), 1 (BOS), 2 (EOS), or 3 + i for `sentinel_ids[i]` of
      the row layout. It counts in `length`. None if no span has one.
    added_after: int8[N], the token that is added after them, likewise.
    following: int8[N], what follows the span in its document: nothing (0), a
      token of the store (1) or an added EOS (2); None if unknown.
    masked: bool[N], whether the span is masked: padding takes its place and its
      tokens are not read. None if none is masked.
    remaining: int64[N], how many tokens follow the span in its document, up to
      the first removed one; negative if the last of them is an added EOS. None
      if unknown.
  """

  num_rows: int
  row: np.ndarray
  source: np.ndarray
  document: np.ndarray
  start: np.ndarray
  offset: np.ndarray
  length: np.ndarray
  column: np.ndarray
  segment: np.ndarray
  added_before: np.ndarray | None = None
  added_after: np.ndarray | None = None
  following: np.ndarray | None = None
  masked: np.ndarray | None = None
  remaining: np.ndarray | None = None

  def __post_init__(self) -> None:
    """Checks that all arrays have one shape; takes about a microsecond.

    Raises:
      TypeError: If a field is not an array of the shape of `row`.
    """
    try:
      shapes = {
        self.row.shape,
        self.source.shape,
        self.document.shape,
        self.start.shape,
        self.offset.shape,
        self.length.shape,
        self.column.shape,
        self.segment.shape,
      }
      for name in _OPTIONAL:
        values = getattr(self, name)
        if values is not None:
          shapes.add(values.shape)
    except AttributeError:
      shapes = set()
    if self.num_rows.__class__ is not int:
      object.__setattr__(
        self, "num_rows", integers.whole("num_rows", self.num_rows)
      )
    if len(shapes) != 1:
      self._raise_wrong()

  def _raise_wrong(self) -> NoReturn:
    """Raises a TypeError that names the first wrong field."""
    shape = getattr(self.row, "shape", (0,))
    for name in ("row", *_VALUES):
      value = getattr(self, name)
      optional = value is None and name in _OPTIONAL
      if not optional and getattr(value, "shape", None) != shape:
        raise TypeError(
          f"`{name}` must be an array of one value per span, as `row` is, got"
          f" {str(value)!r:.400}. Correct it."
        )
    raise AssertionError(self)

  def __len__(self) -> int:
    return len(self.row)

  def rows(self, first: int, last: int) -> "Spans":
    """Returns the spans of rows first .. last - 1, renumbered from 0."""
    first, last = integers.whole("first", first), integers.whole("last", last)
    if not 0 <= first <= last:
      raise IndexError(
        f"`first` and `last` must be rows 0 <= first <= last, got {first} and"
        f" {last}. Correct them."
      )
    low, high = np.searchsorted(self.row, (first, last))
    cut = slice(low, high)
    return self._selected(cut, self.row[cut] - first, last - first)

  def take(self, pick: np.ndarray, row: np.ndarray, num_rows: int) -> "Spans":
    """Returns chosen spans in other rows.

    Args:
      pick: int64[M], which spans, in row-major order of their new rows.
      row: int64[M], the new row of each.
      num_rows: Rows of the result.
    """
    pick, row = integers.array("pick", pick), integers.array("row", row)
    num_rows = integers.whole("num_rows", num_rows)
    return self._selected(pick, row, num_rows)

  def _selected(
    self, pick: np.ndarray | slice, row: np.ndarray, num_rows: int
  ) -> "Spans":
    """Returns chosen spans in rows int64[M]."""
    values: dict[str, Any] = {}
    for name in _VALUES:
      value = getattr(self, name)
      values[name] = None if value is None else value[pick]
    return Spans(num_rows=num_rows, row=row, **values)

  def of_rows(self, rows: np.ndarray) -> "Spans":
    """Returns the spans of chosen rows.

    Args:
      rows: int64[R], the rows, in their new order.
    """
    rows = integers.array("rows", rows)
    counts = np.bincount(self.row, minlength=self.num_rows)
    first_span = (np.cumsum(counts) - counts)[rows]
    counts = counts[rows]
    pick = ragged.ranges(first_span, counts)
    return self.take(pick, np.repeat(np.arange(len(rows)), counts), len(rows))

  def live(self) -> "Spans":
    """Returns the spans that are not masked."""
    if self.masked is None:
      return self
    pick = np.flatnonzero(~self.masked)
    live = self.take(pick, self.row[pick], self.num_rows)
    return dataclasses.replace(live, masked=None)

  def in_columns(
    self, low: int | np.ndarray, high: int | np.ndarray
  ) -> "Spans":
    """Returns the parts of spans in columns low .. high - 1.

    Spans keep their columns; `following` and `remaining` become None.

        a span of 6 from token 20 on at column 1, columns 3 .. 4:
        -> a span of 2 from token 22 on at column 3

    Args:
      low: The first column, or int64[K] of several ranges, ascending.
      high: The column after the last; of ranges at most the next `low`.
    """
    low = np.atleast_1d(integers.array("low", low, (0, 1)))
    high = np.atleast_1d(integers.array("high", high, (0, 1)))
    first_range = np.searchsorted(high, self.column, side="right")
    end_range = np.searchsorted(low, self.ends(), side="left")
    pick, turn = ragged.elements(np.maximum(end_range - first_range, 0))
    in_range = first_range[pick] + turn
    begin = np.maximum(self.column[pick], low[in_range])
    end = np.minimum(self.ends()[pick], high[in_range])
    nonempty = begin < end
    pick, begin, end = pick[nonempty], begin[nonempty], end[nonempty]
    spans = self.take(pick, self.row[pick], self.num_rows)
    cut, before, after = (
      begin - spans.column,
      spans.added_before,
      spans.added_after,
    )
    skip = cut
    if before is not None:
      # It comes before the first token, and is not in the store.
      skip = cut - ((before > 0) & (cut > 0))
      before = before * (cut == 0)
    if after is not None:
      after = after * (spans.ends() == end)
    return dataclasses.replace(
      spans,
      start=spans.start + skip,
      offset=spans.offset + skip,
      length=end - begin,
      column=begin,
      added_before=before,
      added_after=after,
      following=None,
      remaining=None,
    )

  def ends(self) -> np.ndarray:
    """Returns int64[N], the column right of each span."""
    return self.column + self.length

  def stored(self) -> tuple[np.ndarray, np.ndarray]:
    """Returns (length, column) without added tokens, int64[N] each."""
    length, column = self.length, self.column
    if self.added_before is not None:
      is_added = self.added_before > 0
      length, column = length - is_added, column + is_added
    if self.added_after is not None:
      length = length - (self.added_after > 0)
    return length, column

  def sentinels(self) -> np.ndarray | None:
    """Returns int64[N], the sentinels of each span; None if none has one."""
    counts = None
    for added in (self.added_before, self.added_after):
      if added is not None and (is_sentinel := added >= SENTINEL).any():
        counts = is_sentinel + (0 if counts is None else counts)
    return None if counts is None else counts.astype(np.int64)

  def joined(self) -> np.ndarray | None:
    """Returns which spans continue the sequence of the span before them.

    In a segment with sentinels the spans are one sequence, in any order of
    `start`: the first position of a span is the target of the position before
    it. In other segments, no first position of a span is a target.

        PRE 0 1 | SUF 4 5 | MID 2 3 EOS  -> [0, 1, 1]

    Returns:
      bool[N], or None if there are no sentinels.
    """
    sentinels = self.sentinels()
    if sentinels is None:
      return None
    opens, _ = ragged.run_edges(self.row, self.segment)
    segment = np.cumsum(opens) - 1
    joined = (np.bincount(segment, sentinels) > 0)[segment] & ~opens
    joined[1:] &= self.ends()[:-1] == self.column[1:]
    if self.masked is not None:
      joined &= ~self.masked
      joined[1:] &= ~self.masked[:-1]
    return joined

  def tokens(self) -> np.ndarray:
    """Returns int64[N], the positions of each span without its sentinels."""
    sentinels = self.sentinels()
    return self.length if sentinels is None else self.length - sentinels

  def targets(self) -> np.ndarray:
    """Returns int64[N], how many tokens of each span follow one of theirs.

    All but the first one of a span, or of a segment with sentinels, which are
    not counted.
    """
    joined = self.joined()
    return self.length - 1 if joined is None else self.tokens() - ~joined

  def row_sums(self, values: np.ndarray) -> np.ndarray:
    """Returns int64[num_rows], values of spans summed by row.

    Args:
      values: int64[N], one per span.
    """
    values = integers.array("values", values)
    # Sums of a row stay far below 2**53, where float64 is exact.
    sums = np.bincount(self.row, values, self.num_rows)
    return sums.astype(np.int64)

  def row_source(self) -> np.ndarray:
    """Returns int32[num_rows], each row's source; -1 for rows of padding."""
    sources = np.full(self.num_rows, -1, np.int32)
    sources[self.row] = self.source
    return sources

  def row_documents(self, num_slots: int) -> np.ndarray:
    """Returns int64[num_rows, num_slots], documents by segment; -1 = none.

    Segments of one document have a slot each: of what an earlier run left of
    it, two pieces may be neighbours. The slot of a masked document is -1.
    """
    num_slots = integers.whole("num_slots", num_slots)
    documents = np.full((self.num_rows, num_slots), -1, np.int64)
    if not len(self):
      return documents
    first_of_segment, _ = ragged.run_edges(self.row, self.segment)
    document = self.document[first_of_segment]
    if self.masked is not None:
      number = np.cumsum(first_of_segment) - 1
      live = np.bincount(number, ~self.masked)
      document = np.where(live > 0, document, -1)
    row = self.row[first_of_segment]
    starts = np.searchsorted(row, row, side="left")
    slot = np.arange(len(row)) - starts
    fits = slot < num_slots
    documents[row[fits], slot[fits]] = document[fits]
    return documents


# The fields of one value per span, except `row`.
_VALUES = tuple(
  field.name
  for field in dataclasses.fields(Spans)
  if field.name not in ("num_rows", "row")
)
_OPTIONAL = (
  "added_before",
  "added_after",
  "following",
  "masked",
  "remaining",
)


def of_parts(
  *,
  document: np.ndarray,
  first_token: np.ndarray,
  stored: np.ndarray,
  whole: np.ndarray,
  begin: np.ndarray,
  end: np.ndarray,
  bos: np.ndarray | int,
  eos: np.ndarray | int,
  row: np.ndarray,
  column: np.ndarray,
  segment: np.ndarray,
  num_rows: int,
) -> Spans:
  """Returns the spans of parts of documents, which may get a BOS and an EOS.

  Args:
    document: int64[N], document index within its store.
    first_token: int64[N], position of the document in the store.
    stored: int64[N], tokens of the document in the store.
    whole: int64[N], tokens of the document that are used, with added ones.
    begin: int64[N], first token of the part; an added BOS is token 0.
    end: int64[N], the token after the last one of the part.
    bos: 1 if each document gets a BOS, else 0; or int64[N], by span.
    eos: 1 if each document gets an EOS, else 0; or int64[N], by span.
    row: int64[N], the row of each part, ascending.
    column: int64[N], the column of its first token.
    segment: int[N], its segment in the row, from 1.
    num_rows: Rows of the plan.
  """
  before_eos = bos + stored
  remaining = whole - end
  following = (remaining > 0).astype(np.int8)
  if np.any(eos):
    following[(following > 0) & (end == before_eos)] = 2
    remaining = np.where(whole > before_eos, -remaining, remaining)
  # A part of only an EOS begins at the end of the document's tokens.
  start = np.maximum(begin - bos, 0)
  return Spans(
    num_rows=num_rows,
    row=row,
    source=np.zeros(len(row), np.int32),
    document=document,
    start=start,
    offset=first_token + start,
    length=end - begin,
    column=column,
    segment=segment.astype(np.int32),
    added_before=_where((begin == 0) & (bos > 0), BOS) if np.any(bos) else None,
    added_after=_where(end > before_eos, EOS) if np.any(eos) else None,
    following=following,
    remaining=remaining,
  )


def of_samples(
  numbers: np.ndarray, source: int, row: np.ndarray, num_rows: int
) -> Spans:
  """Returns samples of arrays as spans of one position.

  Args:
    numbers: int64[N], the number of each sample in its store.
    source: The number of their source.
    row: int64[N], the row of the plan, ascending.
    num_rows: Rows of the plan.
  """
  zeros, ones = np.zeros(len(row), np.int64), np.ones(len(row), np.int64)
  return Spans(
    num_rows=num_rows,
    row=row,
    source=np.full(len(row), source, np.int32),
    document=numbers,
    start=zeros,
    offset=zeros,
    length=ones,
    column=zeros,
    segment=ones.astype(np.int32),
  )


def _where(is_added: np.ndarray, token: int) -> np.ndarray:
  """Returns int8[N], the number of an added token, or 0."""
  return is_added.view(np.int8) * np.int8(token)


def picks(
  spans: Spans, numbers: Collection[int]
) -> Iterator[tuple[int, np.ndarray | slice]]:
  """Yields the spans of each source, as an index into the arrays of a plan.

  Args:
    spans: A plan.
    numbers: The numbers of all sources of the spans; a single one takes all
      spans, whatever their source.
  """
  for number in numbers:
    if len(numbers) == 1:
      yield number, slice(None)
    else:
      yield number, np.flatnonzero(spans.source == number)


def concatenated(parts: Sequence[Spans]) -> Spans:
  """Concatenates plans of consecutive rows.

  Args:
    parts: At least one plan.
  """
  num_rows, rows = 0, []
  for part in parts:
    rows.append(part.row + num_rows)
    num_rows += part.num_rows
  values: dict[str, Any] = {}
  for name in _VALUES:
    plan_columns = [getattr(part, name) for part in parts]
    example = next(
      (column for column in plan_columns if column is not None), None
    )
    if example is not None:
      # None in one plan means False or 0: no added tokens, nothing follows.
      example = np.concatenate(
        [
          np.zeros(len(part), example.dtype) if column is None else column
          for part, column in zip(parts, plan_columns, strict=True)
        ]
      )
    values[name] = example
  return Spans(num_rows=num_rows, row=np.concatenate(rows), **values)


def merged(parts: Sequence[Spans], rows: Sequence[np.ndarray]) -> Spans:
  """Merges plans of disjoint rows into one plan.

  Args:
    parts: At least one plan.
    rows: int64[part.num_rows] for each part, the new numbers of its rows;
      together a permutation of all rows.
  """
  plan = concatenated(parts)
  row = np.concatenate(rows)[plan.row]
  order = np.argsort(row, kind="stable")
  return plan.take(order, row[order], plan.num_rows)
