# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Packs documents into rows: the row and column of each piece.

Each *window* of documents is packed separately, so a row depends only on its
window. Lengths, starts and columns are in tokens; a document's tokens include
an added BOS or EOS. NumPy, or compiled.
"""

import dataclasses
import heapq
import itertools

import numpy as np

from chomp_data.index import ragged
from chomp_data.kernels import compiled

# Approximate seconds per item of first fit.
_PLACED_S = 4e-7

LONG_POLICIES = ("cut", "truncate", "drop")


@dataclasses.dataclass(frozen=True)
class Pieces:
  """Consecutive parts of documents, none longer than a row.

  Attributes:
    slot: int64[N], the document's position in its window, ascending.
    start: int64[N], first token within the document.
    length: int64[N], 1 .. seq_len.
  """

  slot: np.ndarray
  start: np.ndarray
  length: np.ndarray


@dataclasses.dataclass(frozen=True)
class Rows:
  """The rows of a packed window, as pieces sorted by (row, column).

  Attributes:
    first: int64[num_rows + 1], row r holds pieces first[r] .. first[r + 1] - 1.
    slot: int64[N], the piece's document, as its position in the window.
    start: int64[N], first token within the document.
    length: int64[N].
    column: int64[N].
    num_cut: Documents cut although the piece would fit in a row.
  """

  first: np.ndarray
  slot: np.ndarray
  start: np.ndarray
  length: np.ndarray
  column: np.ndarray
  num_cut: int = 0

  @property
  def num_rows(self) -> int:
    """Rows of the window."""
    return len(self.first) - 1


def kept_lengths(
  lengths: np.ndarray, seq_len: int, long_documents: str
) -> np.ndarray:
  """Returns int64[D], the tokens of each document that are packed.

  Args:
    lengths: int64[D], 0 or more.
    seq_len: Positions of a row.
    long_documents: The policy for documents longer than a row: 'cut' packs all
      tokens, 'truncate' the first row of them, 'drop' none.
  """
  match long_documents:
    case "cut":
      return lengths
    case "truncate":
      return np.minimum(lengths, seq_len)
    case "drop":
      return np.where(lengths > seq_len, 0, lengths)
  raise ValueError(
    f"`long_documents` must be one of {LONG_POLICIES}, got {long_documents!r}."
  )


def cut_pieces(tokens: np.ndarray, seq_len: int) -> Pieces:
  """Cuts documents into pieces of `seq_len` tokens and a remainder.

      tokens [3, 0, 9], seq_len 4
      -> slot [0, 2, 2, 2], start [0, 0, 4, 8], length [3, 4, 4, 1]

  Args:
    tokens: int64[D], tokens of each document; empty ones have no piece.
    seq_len: Positions of a row.
  """
  num = -(-tokens // seq_len)
  slot, nth = ragged.elements(num)
  start = nth * seq_len
  return Pieces(slot, start, np.minimum(tokens[slot] - start, seq_len))


def first_fit_decreasing(
  length: np.ndarray,
  capacity: int,
  max_items: int | None = None,
  max_bins: int | None = None,
) -> tuple[np.ndarray, int]:
  """Packs items longest first, each in the first bin that has room.

      length [3, 5, 2, 4, 2], capacity 8: sorted 5 4 3 2 2
      -> bin [0, 0, 1, 1, 1], 2 bins

  Items of equal length are placed together: first fit fills a bin until it has
  no room for the length.

  Args:
    length: int64[N], 1 .. capacity.
    capacity: Tokens of a bin.
    max_items: Most items of a bin, or None.
    max_bins: Most bins, or None; items that do not fit get bin -1.

  Returns:
    (bin int64[N], number of bins opened). Ties are in order of position.

  Source: D. S. Johnson, "Near-optimal bin packing algorithms", 1973.
  """
  count = len(length)
  bins = np.full(count, -1, np.int64)
  if not count:
    return bins, 0
  bin_limit = count if max_bins is None else min(max_bins, count)
  order = np.argsort(_sorting_keys(capacity - length, capacity), kind="stable")
  loop = compiled.find("first_fit", _PLACED_S * count)
  if loop is not None:
    items = count if max_items is None else max_items
    length = compiled.flat(length, np.int64)
    room = np.empty(2 << (bin_limit - 1).bit_length(), np.int64)
    scratch = room, np.empty(bin_limit, np.int64)
    return bins, loop(order, length, capacity, items, bin_limit, *scratch, bins)
  placed_bins, opened = _first_fit(
    length[order], capacity, max_items, bin_limit
  )
  bins[order] = placed_bins
  return bins, opened


def _first_fit(
  ordered: np.ndarray, capacity: int, max_items: int | None, max_bins: int
) -> tuple[list[int], int]:
  """Returns the bin of each item, or -1, and how many bins are opened.

  Bins with room for the current length are in a heap, the first one on top. The
  others wait in lists by their room, until lengths are as small. This takes a
  fifth of the time of array operations on all bins.

  Args:
    ordered: int64[N], lengths, descending.
    capacity: Tokens of a bin.
    max_items: Most items of a bin, or None.
    max_bins: Most bins.
  """
  # Two items longer than half a bin never share one.
  big = min(int(np.searchsorted(-ordered, -(capacity // 2))), max_bins)
  room = (capacity - ordered[:big]).tolist()
  most_items = len(ordered) if max_items is None else max_items
  slots = [most_items - 1] * big
  waiting: list[list[int] | None] = [None] * (capacity + 1)
  for number, free in enumerate(room if most_items > 1 else ()):
    _append(waiting, free, number)
  bins = list(range(big))
  ready: list[int] = []
  edges = np.flatnonzero(np.diff(ordered[big:])) + big + 1
  edges = [big, *edges.tolist(), len(ordered)] if big < len(ordered) else []
  last_size = capacity
  for low, high in itertools.pairwise(edges):
    size, unplaced = int(ordered[low]), high - low
    for waiting_bins in waiting[size:last_size]:
      for number in waiting_bins or ():
        heapq.heappush(ready, number)
    last_size = size
    while unplaced:
      if not ready:
        if len(room) == max_bins:
          break
        ready.append(len(room))
        room.append(capacity)
        slots.append(most_items)
      number = ready[0]
      if unplaced == 1:  # The most common case.
        count, unplaced = 1, 0
        bins.append(number)
      else:
        count = min(room[number] // size, unplaced, slots[number])
        bins += [number] * count
        unplaced -= count
      slots[number] -= count
      room[number] = free_room = room[number] - count * size
      if not slots[number] or free_room < size:
        heapq.heappop(ready)
        if slots[number]:
          _append(waiting, free_room, number)
    bins += [-1] * unplaced
  return bins, len(room)


def _append(lists: list[list[int] | None], index: int, value: int) -> None:
  """Appends to one of many lists, which are made when first used."""
  values = lists[index]
  if values is None:
    lists[index] = [value]
  else:
    values.append(value)


def _sorting_keys(values: np.ndarray, end: int) -> np.ndarray:
  """Returns values 0 .. end - 1 as uint16 if they fit: NumPy radix sorts it."""
  return values.astype(np.uint16) if end <= 2**16 else values


def rows_of_bins(
  pieces: Pieces, bins: np.ndarray, num_rows: int, num_cut: int = 0
) -> Rows:
  """Sorts pieces by bin, then by document, and stacks them from column 0.

  Args:
    pieces: The pieces of a window.
    bins: int64[N], the bin of each piece; none of 0 .. num_rows - 1 is empty.
    num_rows: The number of bins.
    num_cut: Documents cut to fill rows.
  """
  order = np.argsort(_sorting_keys(bins, num_rows), kind="stable")
  length = pieces.length[order]
  counts = np.bincount(bins, minlength=num_rows)
  first_piece = np.zeros(num_rows + 1, np.int64)
  np.cumsum(counts, out=first_piece[1:])
  before = np.cumsum(length) - length
  column = before - np.repeat(before[first_piece[:-1]], counts)
  return Rows(
    first_piece,
    pieces.slot[order],
    pieces.start[order],
    length,
    column,
    num_cut,
  )


def exact_rows(pieces: Pieces, seq_len: int) -> Rows:
  """Packs a window into exactly ceil(tokens / seq_len) rows.

  First fit decreasing into that many rows; the few pieces that do not fit are
  cut to fill the gaps, largest gap first.

      lengths [3, 3, 3], seq_len 5: 9 tokens, 2 rows
      -> row 0: [3, 2 of the third], row 1: [3, 1 of the third]

  Args:
    pieces: The pieces of a window; at least one.
    seq_len: Positions of a row.
  """
  return filled_rows(pieces, *exact_bins(pieces, seq_len), seq_len)


def exact_bins(pieces: Pieces, seq_len: int) -> tuple[np.ndarray, int]:
  """Returns the row of each uncut piece, and the number of rows.

  Args:
    pieces: The pieces of a window; at least one.
    seq_len: Positions of a row.

  Returns:
    (bin int64[N], rows). Pieces that do not fit have bin -1; `filled_rows` cuts
    them.
  """
  num_rows = -(-int(pieces.length.sum()) // seq_len)
  bins, _ = first_fit_decreasing(pieces.length, seq_len, max_bins=num_rows)
  return bins, num_rows


def filled_rows(
  pieces: Pieces, bins: np.ndarray, num_rows: int, seq_len: int
) -> Rows:
  """Cuts the pieces without a bin into the gaps of the other rows.

  Args:
    pieces: The pieces of a window.
    bins: int64[N], the row of each piece, or -1.
    num_rows: The number of rows.
    seq_len: Positions of a row.
  """
  fitted = bins >= 0
  unplaced = np.flatnonzero(~fitted)
  if not unplaced.size:
    return rows_of_bins(pieces, bins, num_rows)
  fill = _filled(pieces, bins, unplaced, seq_len, num_rows)
  cut_piece = unplaced[fill.owner]
  slot = np.concatenate([pieces.slot[fitted], pieces.slot[cut_piece]])
  start = np.concatenate(
    [pieces.start[fitted], pieces.start[cut_piece] + fill.begin]
  )
  length = np.concatenate([pieces.length[fitted], fill.length])
  bins = np.concatenate([bins[fitted], fill.bins])
  order = np.lexsort((start, slot))
  return rows_of_bins(
    Pieces(slot[order], start[order], length[order]),
    bins[order],
    num_rows,
    # No gap is as large as a piece that did not fit.
    num_cut=len(unplaced),
  )


def filled_parts(
  pieces: Pieces, bins: np.ndarray, num_rows: int, seq_len: int
) -> np.ndarray:
  """Returns int64[N], the number of parts of each piece in `filled_rows`.

  Args:
    pieces: The pieces of a window.
    bins: int64[N], the row of each piece, or -1.
    num_rows: The number of rows.
    seq_len: Positions of a row.
  """
  unplaced = np.flatnonzero(bins < 0)
  parts = np.ones(len(bins), np.int64)
  if unplaced.size:
    fill = _filled(pieces, bins, unplaced, seq_len, num_rows)
    parts[unplaced] = np.bincount(fill.owner, minlength=len(unplaced))
  return parts


def filled_sums(
  pieces: Pieces, bins: np.ndarray, num_rows: int, seq_len: int
) -> tuple[np.ndarray, np.ndarray]:
  """Counts the tokens and the spans of each row of `filled_rows`.

  Takes a tenth of the time of `filled_rows`.

  Args:
    pieces: The pieces of a window.
    bins: int64[N], the row of each piece, or -1.
    num_rows: The number of rows.
    seq_len: Positions of a row.

  Returns:
    int64[num_rows] each.
  """
  unplaced = np.flatnonzero(bins < 0)
  length = pieces.length
  if unplaced.size:
    fill = _filled(pieces, bins, unplaced, seq_len, num_rows)
    fitted = bins >= 0
    bins = np.concatenate([bins[fitted], fill.bins])
    length = np.concatenate([length[fitted], fill.length])
  # Sums below 2**53 are exact in float64.
  tokens = np.bincount(bins, length, num_rows).astype(np.int64)
  return tokens, np.bincount(bins, minlength=num_rows)


@dataclasses.dataclass(frozen=True)
class _Fill:
  """The parts of pieces that did not fit, cut to fill the gaps of rows.

  Attributes:
    owner: int64[M], the piece of each part, as its index among the pieces that
      did not fit, ascending.
    begin: int64[M], the part's first token in the piece.
    length: int64[M], the part's tokens.
    bins: int64[M], the part's row.
  """

  owner: np.ndarray
  begin: np.ndarray
  length: np.ndarray
  bins: np.ndarray


def _filled(
  pieces: Pieces,
  bins: np.ndarray,
  unplaced: np.ndarray,
  seq_len: int,
  rows: int,
) -> _Fill:
  """Cuts pieces without a row into the gaps of the other rows.

  Args:
    pieces: The pieces of a window.
    bins: int64[N], the row of each piece, or -1.
    unplaced: int64[U], the pieces whose row is -1, ascending.
    seq_len: Positions of a row.
    rows: The number of rows.
  """
  fitted = bins >= 0
  gaps = seq_len - np.bincount(
    bins[fitted], pieces.length[fitted], rows
  ).astype(np.int64)
  by_gap = np.argsort(-gaps, kind="stable")
  # Left-over pieces and gaps as two cuts of one line of tokens.
  piece_end = np.cumsum(pieces.length[unplaced])
  gap_end = np.cumsum(gaps[by_gap])
  ends = np.union1d(piece_end, gap_end[gap_end < piece_end[-1]])
  begins = np.concatenate([[0], ends[:-1]])
  owner = np.searchsorted(piece_end, begins, side="right")
  bin_of = by_gap[np.searchsorted(gap_end, begins, side="right")]
  piece_begin = piece_end - pieces.length[unplaced]
  return _Fill(owner, begins - piece_begin[owner], ends - begins, bin_of)
