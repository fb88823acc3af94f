# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Masks removed tokens in plans, so that they are not read.

Removed tokens stay in a plan as separate spans, marked in `Spans.masked`,
because the columns, segments and order of all other spans depend on them. NumPy
only.
"""

from collections.abc import Mapping
import dataclasses

import numpy as np

from chomp_data.index import ragged
from chomp_data.rows import spans as spans_lib

# Larger than any document or position of a store.
_FAR = np.asarray([2**62])


@dataclasses.dataclass(frozen=True)
class RemovedTokens:
  """The removed tokens of one store.

  An added BOS is removed with the first token of its document, an added EOS
  with the last one.

  Attributes:
    document: int64[M], the document of each range, ascending.
    begin: int64[M], the range's first position in the store, ascending.
    end: int64[M], the position after its last; at most the next begin.
    whole: int64[W], removed documents that have no tokens, ascending.
  """

  document: np.ndarray
  begin: np.ndarray
  end: np.ndarray
  whole: np.ndarray


def masked(
  spans: spans_lib.Spans, removed: Mapping[int, RemovedTokens]
) -> spans_lib.Spans:
  """Splits spans so that each is either live or masked as a whole.

      a span of 6 tokens from position 20 on, with 22 .. 23 removed:
      -> 2 live, 2 masked, 2 live

  A segment of two parts of a document that are not consecutive, as rolled rows
  have, is masked if one of the parts is.

  Args:
    spans: A plan without masked spans.
    removed: The removed tokens of sources, by number.

  Returns:
    The plan; the same object if none of its tokens are removed.
  """
  parts, changed = [], False
  for number in np.flatnonzero(np.bincount(spans.source)).tolist():
    pick = np.flatnonzero(spans.source == number)
    part = spans
    if len(pick) < len(spans):
      part = spans.take(pick, spans.row[pick], spans.num_rows)
    live = _masked(part, removed[number]) if number in removed else part
    changed |= live is not part
    parts.append(live)
  if not changed:
    return spans
  if len(parts) == 1:
    return parts[0]
  # A row is of one source.
  row = np.concatenate([part.row for part in parts])
  order = np.argsort(row, kind="stable")
  return spans_lib.concatenated(parts).take(order, row[order], spans.num_rows)


def whole(spans: spans_lib.Spans) -> spans_lib.Spans:
  """Joins the spans that `masked` split; it is not known what follows.

  2 live, 2 masked, 2 live of one span
  -> a span of 6 tokens
  """
  if spans.masked is None or not len(spans):
    return dataclasses.replace(
      spans, masked=None, following=None, remaining=None
    )
  # Two parts of a rolled document share a segment, but are not consecutive.
  # Parts of a rearranged one may be, and have a sentinel between them.
  opens, _ = ragged.run_edges(spans.row, spans.document, spans.segment)
  end = spans.offset + spans.stored()[0]
  opens[1:] |= end[:-1] != spans.offset[1:]
  opens[1:] |= spans.ends()[:-1] != spans.column[1:]
  if spans.added_before is not None:
    opens |= spans.added_before > 0
  first_part = np.flatnonzero(opens)
  last_part = np.append(first_part[1:], len(spans)) - 1
  return dataclasses.replace(
    spans.take(first_part, spans.row[first_part], spans.num_rows),
    length=np.add.reduceat(spans.length, first_part),
    added_after=None
    if spans.added_after is None
    else spans.added_after[last_part],
    following=None,
    masked=None,
    remaining=None,
  )


def _masked(spans: spans_lib.Spans, removed: RemovedTokens) -> spans_lib.Spans:
  """Splits and masks the spans of one source; they stay if none are removed."""
  if not len(removed.begin):
    removed = dataclasses.replace(removed, document=_FAR, begin=_FAR, end=_FAR)
  spans = _in_order(spans, removed)
  length, column = spans.stored()
  begin, end = spans.offset, spans.offset + length
  first_range = np.searchsorted(removed.end, begin, side="right")
  end_range = np.searchsorted(removed.begin, end, side="left")
  count = np.where(length > 0, np.maximum(end_range - first_range, 0), 0)
  added_masked = _masked_added(spans, removed, length)
  following = _following(spans, removed, end)
  remaining = _remaining(spans, removed, end)
  if not count.any() and not added_masked.any():
    if following is spans.following and remaining is spans.remaining:
      return spans
    return dataclasses.replace(spans, following=following, remaining=remaining)
  # Pieces are alternately live and masked, the first one live; some are empty.
  owner, turn = ragged.elements(2 * count + 1)
  # The removed range in, or just before, each piece; the first has neither.
  range_index = first_range[owner] + (turn - 1) // 2
  range_index = np.clip(range_index, 0, len(removed.begin) - 1)
  low = np.where(
    turn % 2,
    np.maximum(removed.begin[range_index], begin[owner]),
    np.minimum(removed.end[range_index], end[owner]),
  )
  low = np.where(turn == 0, begin[owner], low)
  high = np.where(turn == 2 * count[owner], end[owner], np.append(low[1:], 0))
  is_masked = (turn % 2 == 1) | added_masked[owner]
  nonempty = (high > low) | (length[owner] == 0)
  owner, low, high, is_masked = (
    values[nonempty] for values in (owner, low, high, is_masked)
  )
  opens, closes = ragged.run_edges(owner)
  is_masked = is_masked | _halves(spans, end, owner, is_masked)[owner]
  before, after = spans.added_before, spans.added_after
  if before is not None:
    before = before[owner] * opens
  if after is not None:
    after = after[owner] * closes
  shift = low - begin[owner]
  added = 0 if before is None else before > 0
  if following is not None:
    # A live piece that ends within its span is followed by a masked one.
    following = following[owner] * (closes & ~is_masked)
  if remaining is not None:
    remaining = remaining[owner] * (closes & ~is_masked)
  return dataclasses.replace(
    spans.take(owner, spans.row[owner], spans.num_rows),
    start=spans.start[owner] + shift,
    offset=low,
    length=high - low + added + (0 if after is None else after > 0),
    column=column[owner] + shift - added,
    added_before=before,
    added_after=after,
    following=following,
    masked=is_masked if is_masked.any() else None,
    remaining=remaining,
  )


def _in_order(
  spans: spans_lib.Spans, removed: RemovedTokens
) -> spans_lib.Spans:
  """Returns the plan with documents that have removed tokens in their order.

  A rearranged document that has removed tokens becomes one span:

      PRE 0 1 | SUF 4 5 | MID 2 3 EOS, 2 is removed  ->  0 1 2 3 4 5 EOS
  """
  sentinels = spans.sentinels()
  if sentinels is None:
    return spans
  length, _ = spans.stored()
  end = spans.offset + length
  is_removed = np.searchsorted(removed.end, spans.offset, side="right")
  is_removed = np.searchsorted(removed.begin, end, side="left") > is_removed
  opens, _ = ragged.run_edges(spans.row, spans.segment)
  first, segment = np.flatnonzero(opens), np.cumsum(opens) - 1
  # Per segment, whether it becomes one span.
  becomes = np.bincount(segment, sentinels) > 0
  becomes &= np.bincount(segment, is_removed & (length > 0)) > 0
  if not becomes.any():
    return spans
  pick = np.flatnonzero(opens | ~becomes[segment])
  values = {}
  joined, segment = becomes[segment[pick]], segment[pick]
  for name in ("start", "offset"):
    value = np.where(length > 0, getattr(spans, name), _FAR)
    values[name] = np.minimum.reduceat(value, first)
  total = np.add.reduceat(length, first)
  for name, token in (
    ("added_before", spans_lib.BOS),
    ("added_after", spans_lib.EOS),
  ):
    added = getattr(spans, name)
    if added is not None:
      is_added = np.logical_or.reduceat(added == token, first)
      values[name] = is_added.astype(np.int8) * np.int8(token)
      total = total + is_added
  values["length"] = total
  if spans.following is not None:
    # What follows the document follows its last part.
    values["following"] = np.maximum.reduceat(spans.following, first)
  parts = spans.take(pick, spans.row[pick], spans.num_rows)
  return dataclasses.replace(
    parts,
    **{
      name: np.where(joined, value[segment], getattr(parts, name))
      for name, value in values.items()
    },
  )


def _masked_added(
  spans: spans_lib.Spans, removed: RemovedTokens, length: np.ndarray
) -> np.ndarray:
  """Returns bool[N], masked spans that have only added tokens."""
  bare = np.zeros(len(spans), np.bool_)
  is_bare, sentinels = length == 0, spans.sentinels()
  if sentinels is not None:
    # `_in_order` left no parts of a document that has removed tokens. An EOS
    # after an empty middle is not at the end of its document.
    is_bare &= sentinels == 0
  pick = np.flatnonzero(is_bare)
  if not len(pick):
    return bare
  document, position = spans.document[pick], spans.offset[pick]
  if spans.added_after is not None:
    # An EOS is removed with the document's last token, just before it.
    position = position - (spans.added_after[pick] > 0)
  bare[pick] = _holds(removed, document, position)
  bare[pick] |= np.isin(document, removed.whole)
  return bare


def _following(
  spans: spans_lib.Spans, removed: RemovedTokens, end: np.ndarray
) -> np.ndarray | None:
  """Returns `Spans.following`, 0 where the next token is removed."""
  if spans.following is None:
    return None
  pick = np.flatnonzero(spans.following == 1)
  removed_next = pick[_holds(removed, spans.document[pick], end[pick])]
  if not len(removed_next):
    return spans.following
  following = spans.following.copy()
  following[removed_next] = 0
  return following


def _remaining(
  spans: spans_lib.Spans, removed: RemovedTokens, end: np.ndarray
) -> np.ndarray | None:
  """Returns `Spans.remaining`, up to the next removed token."""
  remaining = spans.remaining
  if remaining is None:
    return None
  next_range = np.searchsorted(removed.end, end, side="right")
  at = np.minimum(next_range, len(removed.end) - 1)
  is_cut = (next_range == at) & (removed.document[at] == spans.document)
  if not is_cut.any():
    return remaining
  stored = np.abs(remaining) - (remaining < 0)
  before = np.clip(removed.begin[at] - end, 0, stored)
  return np.where(is_cut, before, remaining)


def _holds(
  removed: RemovedTokens, document: np.ndarray, position: np.ndarray
) -> np.ndarray:
  """Returns bool[N], whether the tokens at positions are removed."""
  index = np.searchsorted(removed.begin, position, side="right") - 1
  at = np.maximum(index, 0)
  # The position may be of the next document.
  inside = (index >= 0) & (removed.end[at] > position)
  return inside & (removed.document[at] == document)


def _halves(
  spans: spans_lib.Spans,
  end: np.ndarray,
  owner: np.ndarray,
  is_masked: np.ndarray,
) -> np.ndarray:
  """Marks both parts of a rolled document where either is masked, bool[N].

  A rolled document begins in the middle: its two parts follow each other in the
  row and share a segment, but are not consecutive in the store.

  Args:
    spans: The plan before it is split.
    end: int64[N], the position in the store after each span.
    owner: int64[M], the span of each piece that spans were split into.
    is_masked: bool[M], whether the piece is masked.
  """
  wholly_masked = np.ones(len(spans), np.bool_)
  wholly_masked[owner[~is_masked]] = False
  pair = end[:-1] != spans.offset[1:]
  for name in ("row", "document", "segment"):
    value = getattr(spans, name)
    pair &= value[1:] == value[:-1]
  first_half = np.flatnonzero(pair & (wholly_masked[:-1] | wholly_masked[1:]))
  halves = np.zeros(len(spans), np.bool_)
  halves[first_half] = halves[first_half + 1] = True
  return halves
