# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Packs documents into rows: the row and column of each piece.

Each *window* of documents is packed separately, so a row depends only on its
window. Lengths, starts and columns are in tokens; a document's tokens include
an added BOS or EOS. NumPy, or compiled.
"""

import collections
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
    first: int64[num_rows + 1], row r holds pieces first[r] .. first[r + 1] - 1,
      one after the other from column 0.
    slot: int[N], the piece's document, as its position in the window.
    start: int[N], first token within the document.
    length: int[N].
  """

  first: np.ndarray
  slot: np.ndarray
  start: np.ndarray
  length: np.ndarray

  @property
  def num_rows(self) -> int:
    """Rows of the window."""
    return len(self.first) - 1

  @property
  def nbytes(self) -> int:
    """Bytes of all arrays."""
    arrays = self.first, self.slot, self.start, self.length
    return sum(array.nbytes for array in arrays)


def packed_lengths(
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
    case _:
      return np.where(lengths > seq_len, 0, lengths)


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

  `ordered` are lengths, descending. Bins with room for the current length are
  in a heap, the first one on top. The others wait by their room until lengths
  are as small. This takes a fifth of the time of array operations on all bins.
  """
  most_items = len(ordered) if max_items is None else max_items
  bins: list[int] = []
  # The tokens and the items that each bin has room for.
  room: list[int] = []
  slots: list[int] = []
  ready: list[int] = []
  waiting: dict[int, list[int]] = collections.defaultdict(list)
  edges = (np.flatnonzero(np.diff(ordered)) + 1).tolist()
  last_size = capacity
  for low, high in itertools.pairwise([0, *edges, len(ordered)]):
    size, unplaced = int(ordered[low]), high - low
    for free_room in range(size, last_size):
      for number in waiting.pop(free_room, ()):
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
      count = min(room[number] // size, unplaced, slots[number])
      bins += [number] * count
      unplaced -= count
      slots[number] -= count
      room[number] = free_room = room[number] - count * size
      if not slots[number] or free_room < size:
        heapq.heappop(ready)
        if slots[number]:
          waiting[free_room].append(number)
    bins += [-1] * unplaced
  return bins, len(room)


def _sorting_keys(values: np.ndarray, end: int) -> np.ndarray:
  """Returns values 0 .. end - 1 as uint16 if they fit: NumPy radix sorts it."""
  return values.astype(np.uint16) if end <= 2**16 else values


def rows_of_bins(pieces: Pieces, bins: np.ndarray, num_rows: int) -> Rows:
  """Sorts pieces by bin, then by document.

  Args:
    pieces: The pieces of a window.
    bins: int64[N], the bin of each piece; none of 0 .. num_rows - 1 is empty.
    num_rows: The number of bins.
  """
  order = np.argsort(_sorting_keys(bins, num_rows), kind="stable")
  first_piece = np.zeros(num_rows + 1, np.int64)
  np.cumsum(np.bincount(bins, minlength=num_rows), out=first_piece[1:])
  return Rows(
    first_piece, pieces.slot[order], pieces.start[order], pieces.length[order]
  )


def exact_bins(pieces: Pieces, seq_len: int) -> tuple[np.ndarray, int]:
  """Packs uncut pieces into exactly ceil(tokens / seq_len) rows.

  Args:
    pieces: The pieces of a window.
    seq_len: Positions of a row.

  Returns:
    (bin int64[N], rows). Pieces that do not fit have bin -1; `filled` cuts
    them.
  """
  num_rows = -(-int(pieces.length.sum()) // seq_len)
  bins, _ = first_fit_decreasing(pieces.length, seq_len, max_bins=num_rows)
  return bins, num_rows


def filled(
  pieces: Pieces, bins: np.ndarray, num_rows: int, seq_len: int
) -> tuple[Pieces, np.ndarray]:
  """Cuts the pieces without a bin to fill the gaps of rows, largest gap first.

      lengths [3, 3, 3], seq_len 5, bin [0, 1, -1]
      -> lengths [3, 3, 2, 1], bin [0, 1, 0, 1]

  Args:
    pieces: The pieces of a window.
    bins: int64[N], the row of each piece, or -1.
    num_rows: The number of rows.
    seq_len: Positions of a row.

  Returns:
    (pieces, row of each int64[M]), by document and start as before.
  """
  unplaced = np.flatnonzero(bins < 0)
  if not unplaced.size:
    return pieces, bins
  placed = np.flatnonzero(bins >= 0)
  row_tokens = np.bincount(bins[placed], pieces.length[placed], num_rows)
  gaps = seq_len - row_tokens.astype(np.int64)
  by_gap = np.argsort(-gaps, kind="stable")
  # Left-over pieces and gaps as two cuts of one line of tokens.
  piece_end = np.cumsum(pieces.length[unplaced])
  gap_end = np.cumsum(gaps[by_gap])
  part_end = np.union1d(piece_end, gap_end[gap_end < piece_end[-1]])
  part_begin = np.concatenate([[0], part_end[:-1]])
  number = np.searchsorted(piece_end, part_begin, side="right")
  part_bins = by_gap[np.searchsorted(gap_end, part_begin, side="right")]
  cut_piece = unplaced[number]
  piece_begin = piece_end[number] - pieces.length[cut_piece]
  # Parts take the place of their piece.
  place = np.searchsorted(placed, cut_piece)

  def merged(values: np.ndarray, of_parts: np.ndarray) -> np.ndarray:
    return np.insert(values[placed], place, of_parts)

  return Pieces(
    merged(pieces.slot, pieces.slot[cut_piece]),
    merged(pieces.start, pieces.start[cut_piece] + part_begin - piece_begin),
    merged(pieces.length, part_end - part_begin),
  ), merged(bins, part_bins)
