# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Caches packed windows and plans rows from them."""

from collections.abc import Callable
from collections.abc import Iterator

import numpy as np

from chomp_data.index import memo
from chomp_data.index import ragged
from chomp_data.pack import documents as documents_lib
from chomp_data.pack import packing
from chomp_data.rows import spans as spans_lib
from chomp_data.stores import heartbeat

# Pieces of windows in memory, about 70 bytes each. A longer window is cached
# alone.
CACHED_PIECES = 1 << 20
# Rows of windows whose sums are in memory, 8 bytes each.
_CACHED_SUMS = 1 << 21

# Packs one window: (its documents' tokens, window, epoch of the order) -> rows.
Pack = Callable[[np.ndarray, int, int], packing.Rows]

# A window's documents, and the rows that they are packed into.
_Window = tuple[documents_lib.Contents, packing.Rows]


class PackedWindows:
  """Plans rows of packed windows; safe to call from several threads."""

  def __init__(self, documents: documents_lib.Documents, pack: Pack):
    """Stores the arguments; packs nothing yet.

    Args:
      documents: The documents whose windows are packed.
      pack: Packs one window.
    """
    self._documents = documents
    self._pack = pack
    self._cache = memo.Memo(CACHED_PIECES)
    self._sums = memo.Memo(_CACHED_SUMS)

  def plan(
    self, window: np.ndarray, row: np.ndarray, order: int
  ) -> spans_lib.Spans:
    """Plans rows.

    Args:
      window: int64[N], each row's window.
      row: int64[N], the row within its window.
      order: The epoch whose order of documents is used, from 0.
    """
    parts, picks = [], []
    # A plan without rows takes its empty arrays from window 0.
    for number in np.unique(window).tolist() or [0]:
      pick = np.flatnonzero(window == number)
      parts.append(self.spans(*self._window(number, order), row[pick]))
      picks.append(pick)
    return parts[0] if len(parts) == 1 else spans_lib.merged(parts, picks)

  def sums(
    self, window: np.ndarray, row: np.ndarray, order: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the tokens and the spans of rows, int64[N] each.

    Args:
      window: int64[N], each row's window.
      row: int64[N], the row within its window.
      order: The epoch whose order of documents is used, from 0.
    """
    tokens, spans = np.empty_like(row), np.empty_like(row)
    for number in np.unique(window).tolist():
      pick = np.flatnonzero(window == number)
      window_tokens, window_spans = self._window_sums(number, order)
      tokens[pick], spans[pick] = (
        window_tokens[row[pick]],
        window_spans[row[pick]],
      )
    return tokens, spans

  def each(self, order: int) -> Iterator[_Window]:
    """Yields all windows of an order in turn; none is cached.

    Args:
      order: The epoch whose order of documents is used, from 0.
    """
    for number in range(self._documents.order.num_windows):
      yield self._packed(number, order)

  def spans(
    self,
    contents: documents_lib.Contents,
    rows: packing.Rows,
    which: np.ndarray,
  ) -> spans_lib.Spans:
    """Plans rows of one packed window.

    Args:
      contents: The documents of the window.
      rows: Its rows.
      which: int64[N], the rows to plan.
    """
    low = rows.first[which]
    count = rows.first[which + 1] - low
    row, nth = ragged.elements(count)
    pick = low[row] + nth
    start = rows.start[pick]
    return self._documents.spans_of(
      contents,
      rows.slot[pick],
      start,
      start + rows.length[pick],
      row=row,
      column=rows.column[pick],
      segment=nth + 1,
      num_rows=len(which),
    )

  def _window(self, number: int, order: int) -> _Window:
    window = self._cache.get((order, number))
    if window is None:
      window = self._packed(number, order)
      self._cache.put((order, number), window, len(window[1].slot))
    return window

  def _window_sums(
    self, number: int, order: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the tokens and the spans of a window's rows, int32[R] each."""
    sums = self._sums.get((order, number))
    if sums is None:
      _, rows = self._window(number, order)
      # A row's tokens end where its last piece does.
      last_piece = rows.first[1:] - 1
      tokens = (rows.column[last_piece] + rows.length[last_piece]).astype(
        np.int32
      )
      sums = tokens, np.diff(rows.first).astype(np.int32)
      self._sums.put((order, number), sums, len(tokens))
    return sums

  def _packed(self, number: int, order: int) -> _Window:
    heartbeat.beat()
    contents = self._documents.contents(np.asarray([number]), order)
    return contents, self._pack(contents.kept, number, order)
