# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Spans of which some tokens are gone: where they were, nothing is read.

What is gone stays in a plan, as spans of its own that are marked: columns,
segments and order of all else follow from it. NumPy only.
"""

from collections.abc import Mapping
import dataclasses

import numpy as np

from chomp_data.ops import spans as spans_lib

# Beyond all tokens of a store.
_FAR = np.asarray([2**62])


@dataclasses.dataclass(frozen=True)
class Gone:
  """Tokens of one store that are gone.

  An added BOS goes with the first token of its document, an EOS with the last.

  Attributes:
    document: int64[M], whose they are, ascending.
    begin: int64[M], the first one's position in the store, ascending.
    end: int64[M], the position after the last; at most the next begin.
    whole: int64[W], documents without a token that are gone, ascending.
  """

  document: np.ndarray
  begin: np.ndarray
  end: np.ndarray
  whole: np.ndarray


def without(
  spans: spans_lib.Spans, gone: Mapping[int, Gone]
) -> spans_lib.Spans:
  """Returns a plan in which each span is wholly live or wholly gone.

      a span of 6 tokens from position 20 on, of which 22 .. 23 are gone:
      -> 2 live, 2 gone, 2 live

  Of a document's two parts in one segment that do not follow each other, as
  rolled rows have them, one that is gone takes the other with it.

  Args:
    spans: A plan in which nothing is gone.
    gone: By number of the source.

  Returns:
    The same plan where nothing of it is gone.
  """
  parts, changed = [], False
  for number in np.flatnonzero(np.bincount(spans.source)).tolist():
    pick = np.flatnonzero(spans.source == number)
    own = spans
    if len(pick) < len(spans):
      own = spans.take(pick, spans.row[pick], spans.num_rows)
    found = own if number not in gone else _without(own, gone[number])
    changed |= found is not own
    parts.append(found)
  if not changed:
    return spans
  if len(parts) == 1:
    return parts[0]
  # A row is of one source.
  row = np.concatenate([own.row for own in parts])
  order = np.argsort(row, kind="stable")
  return spans_lib.concatenated(parts).take(order, row[order], spans.num_rows)


def whole(spans: spans_lib.Spans) -> spans_lib.Spans:
  """Returns the plan that `without` was given, but for what follows spans.

  2 live, 2 gone, 2 live of one span
  -> a span of 6 tokens
  """
  if spans.gone is None or not len(spans):
    return dataclasses.replace(spans, gone=None, following=None)
  # Halves of a pair are of one segment too, and do not follow each other.
  opens = np.ones(len(spans), np.bool_)
  end = spans.offset + spans.stored()[0]
  opens[1:] = (end[:-1] != spans.offset[1:]) | (
    spans.ends()[:-1] != spans.column[1:]
  )
  for name in ("row", "document", "segment"):
    value = getattr(spans, name)
    opens[1:] |= value[1:] != value[:-1]
  first = np.flatnonzero(opens)
  last = np.append(first[1:], len(spans)) - 1
  return dataclasses.replace(
    spans.take(first, spans.row[first], spans.num_rows),
    length=np.add.reduceat(spans.length, first),
    eos=None if spans.eos is None else spans.eos[last],
    following=None,
    gone=None,
  )


def _without(spans: spans_lib.Spans, gone: Gone) -> spans_lib.Spans:
  if not len(gone.begin):
    gone = dataclasses.replace(gone, document=_FAR, begin=_FAR, end=_FAR)
  length, column = spans.stored()
  begin, end = spans.offset, spans.offset + length
  first = np.searchsorted(gone.end, begin, side="right")
  last = np.searchsorted(gone.begin, end, side="left")
  count = np.where(length > 0, np.maximum(last - first, 0), 0)
  bare = _bare(spans, gone, length)
  following = _following(spans, gone, end)
  if not count.any() and not bare.any():
    if following is spans.following:
      return spans
    return dataclasses.replace(spans, following=following)
  # Pieces are live and gone by turns, the first one live; some are empty.
  pieces = 2 * count + 1
  owner = np.repeat(np.arange(len(spans)), pieces)
  turn = np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
  # What is gone in, or just before, each piece; the first one has neither.
  where = first[owner] + (turn - 1) // 2
  where = np.clip(where, 0, len(gone.begin) - 1)
  low = np.where(
    turn % 2,
    np.maximum(gone.begin[where], begin[owner]),
    np.minimum(gone.end[where], end[owner]),
  )
  low = np.where(turn == 0, begin[owner], low)
  high = np.where(turn == 2 * count[owner], end[owner], np.append(low[1:], 0))
  is_gone = (turn % 2 == 1) | bare[owner]
  kept = (high > low) | (length[owner] == 0)
  owner, low, high, is_gone = (own[kept] for own in (owner, low, high, is_gone))
  opens, closes = np.ones((2, len(owner)), np.bool_)
  opens[1:] = closes[:-1] = owner[1:] != owner[:-1]
  is_gone = is_gone | _halves(spans, end, owner, is_gone)[owner]
  bos = None if spans.bos is None else spans.bos[owner] & opens
  eos = None if spans.eos is None else spans.eos[owner] & closes
  shift = low - begin[owner]
  added = 0 if bos is None else bos
  if following is not None:
    # A live piece that ends within its span ends before what is gone.
    following = following[owner] * (closes & ~is_gone)
  return dataclasses.replace(
    spans.take(owner, spans.row[owner], spans.num_rows),
    start=spans.start[owner] + shift,
    offset=low,
    length=high - low + added + (0 if eos is None else eos),
    column=column[owner] + shift - added,
    bos=bos,
    eos=eos,
    following=following,
    gone=is_gone if is_gone.any() else None,
  )


def _bare(spans: spans_lib.Spans, gone: Gone, length: np.ndarray) -> np.ndarray:
  """Returns bool[N]: spans of added tokens alone that are gone."""
  bare = np.zeros(len(spans), np.bool_)
  pick = np.flatnonzero(length == 0)
  if not len(pick):
    return bare
  document, position = spans.document[pick], spans.offset[pick]
  if spans.eos is not None:
    # It goes with the last token, which stands before it.
    position = position - spans.eos[pick]
  bare[pick] = _holds(gone, document, position) | np.isin(document, gone.whole)
  return bare


def _following(
  spans: spans_lib.Spans, gone: Gone, end: np.ndarray
) -> np.ndarray | None:
  """Returns what follows spans, nothing where that is gone."""
  if spans.following is None:
    return None
  pick = np.flatnonzero(spans.following == 1)
  lost = pick[_holds(gone, spans.document[pick], end[pick])]
  if not len(lost):
    return spans.following
  following = spans.following.copy()
  following[lost] = 0
  return following


def _holds(
  gone: Gone, document: np.ndarray, position: np.ndarray
) -> np.ndarray:
  """Returns whether tokens of documents, by their position, are gone."""
  k = np.searchsorted(gone.begin, position, side="right") - 1
  at = np.maximum(k, 0)
  # The position of a neighbour is of another document.
  return (k >= 0) & (gone.end[at] > position) & (gone.document[at] == document)


def _halves(
  spans: spans_lib.Spans,
  end: np.ndarray,
  owner: np.ndarray,
  is_gone: np.ndarray,
) -> np.ndarray:
  """Returns bool[N]: halves of a pair of which one is wholly gone."""
  whole = np.ones(len(spans), np.bool_)
  whole[owner[~is_gone]] = False
  pair = end[:-1] != spans.offset[1:]
  for name in ("row", "document", "segment"):
    value = getattr(spans, name)
    pair &= value[1:] == value[:-1]
  first = np.flatnonzero(pair & (whole[:-1] | whole[1:]))
  lost = np.zeros(len(spans), np.bool_)
  lost[first] = lost[first + 1] = True
  return lost
