# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How windows of documents are packed into rows, from an index or on demand.

Each window of documents is packed separately, so row n needs its own window
and the number of rows before it. With 'ffd' that number is only known once all
windows are packed: one pass does that and writes an index beside the store,
with the rows of each window and the row of each piece. With 'exact' it follows
from sums of tokens, so a window is packed when one of its rows is needed, or
read from the index if there is one.

An index is memory mapped, and the pieces of a window are read by range. The
windows in use stay in memory, those of all sources of a process together.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from concurrent import futures
import os
import time
from typing import Any
from typing import TypeVar

from absl import logging
import numpy as np

from chomp_data import stores
from chomp_data.index import memo
from chomp_data.index import ragged
from chomp_data.kernels import compiled
from chomp_data.pack import documents as documents_lib
from chomp_data.pack import packing
from chomp_data.pack.packing_options import BinOptions
from chomp_data.rows import spans as spans_lib
from chomp_data.storage import background
from chomp_data.storage import heartbeat
from chomp_data.stores import side_index

# Part of the index's name: raise it when packing changes.
PACKING_VERSION = 1
# From here on packing takes longer than to load a compiled loop.
COMPILED_DOCUMENTS = 500_000
# Below this, packing everything takes under a tenth of a second.
_BAR_DOCUMENTS = 50_000
# Windows packed by a thread before it takes others.
WINDOWS = 16
# Orders of documents whose indexes and rows stay in memory: of the epoch at
# hand and of the next one.
_ORDERS = 2

# The packed windows in use, of all sources of this process, in bytes: about 6
# per piece. A longer window is not cached.
CACHE = memo.Memo(64 << 20)
# Bytes of the Python objects of a window in the cache.
_WINDOW_BYTES = 1_000

_Index = Mapping[str, side_index.SideArray]
_Group = tuple[np.ndarray, list[np.ndarray]]
_T = TypeVar("_T")


class WindowPacking:
  """The rows of each window of documents; safe to use from several threads.

  Attributes:
    exact: Whether the algorithm is 'exact', which needs no index.
  """

  def __init__(
    self,
    documents: documents_lib.Documents,
    options: BinOptions,
    *,
    seq_len: int,
    order_key: int,
  ):
    """Stores the arguments; opens and packs nothing yet.

    Args:
      documents: The documents whose windows are packed.
      options: The algorithm and its limits.
      seq_len: Positions of a row.
      order_key: The key of the order of documents.
    """
    self._documents = documents
    self._options = options
    self._seq_len = seq_len
    self._order_key = order_key
    self.exact: bool = options.packing_algorithm == "exact"
    # Indexes and sums of rows that are open, by name and order.
    self._indexes = memo.Memo(2 * _ORDERS)
    self._starts = memo.Memo(_ORDERS)
    # Tells this packing's windows from others in `CACHE`.
    self._cache_key = object()

  def key(self, order: int) -> dict[str, Any]:
    """Returns what determines packing besides lengths, as JSON values.

    Args:
      order: The epoch whose order of documents is used, from 0; the same in all
        methods.
    """
    documents = self._documents.order
    order_key = [
      documents.kind,
      documents.block_docs,
      f"{self._order_key:016x}",
    ]
    return {
      "version": PACKING_VERSION,
      "packing_buffer_docs": self._options.packing_buffer_docs,
      "packing_max_docs_per_bin": self._options.packing_max_docs_per_bin,
      "order": None if documents.kind == "none" else [*order_key, order],
    }

  def row_starts(self, order: int) -> np.ndarray:
    """Returns int64[num_windows + 1], the rows before each window."""

    def sums() -> np.ndarray:
      if self.exact:
        rows = -(-self._documents.window_tokens(order) // self._seq_len)
      else:
        rows = self.index(order)["rows"].read()
      return np.concatenate([[0], np.cumsum(rows)])

    return self._starts.get(order, sums)

  def num_rows(self, order: int) -> int:
    """Returns the rows of all windows.

    Those of an order after the first one are written to disk where they take
    a pass over all documents, so that later epochs need no such pass.
    """
    if order and not self.exact:
      # `drop_index` leaves the number of rows on disk.
      rows = side_index.find(*self._side_index("ffd_rows", order))
      if rows is not None:
        return int(rows["rows"].read()[0])
    elif order and self._documents.order.kind == "full":
      rows = self._documents.load_or_build(
        "exact_rows",
        self.key(order),
        lambda: {"rows": self.row_starts(order)[-1:]},
      )
      return int(rows["rows"].read()[0])
    return int(self.row_starts(order)[-1])

  def num_spans(self, order: int) -> np.ndarray:
    """Returns int64[num_windows], the spans of each window's rows."""
    if self.exact:
      # A large store has them on disk, maybe from before there was an index.
      ends = self._documents.load_or_build(
        "pieces",
        self.key(order),
        lambda: {"piece_ends": np.cumsum(self.index(order)["spans"].read())},
      )
    else:
      ends = self.index(order)
    return np.diff(ends["piece_ends"].read(), prepend=0)

  def row_sums(self, order: int) -> _Index | None:
    """Returns the `tokens` and `spans` of all packed rows, if they are on disk.

    They are summed if there is an index. None for an order that is used in one
    epoch only.
    """
    if self._options.orders_differ:
      return None
    algorithm = self._options.packing_algorithm
    side = self._side_index("row_sums", order, packing_algorithm=algorithm)
    sums = self._find(order, side)
    if sums is None and self.find_index(order) is not None:
      side_index.load_or_build(*side, lambda: self._sum_rows(order))
      sums = self._find(order, side)
    return sums

  def plan(
    self, window: np.ndarray, row: np.ndarray, order: int
  ) -> spans_lib.Spans:
    """Plans rows.

    Args:
      window: int64[N], each row's window.
      row: int64[N], the row within its window.
      order: The epoch whose order of documents is used, from 0.
    """
    window_docs = self._documents.order.window_docs
    parts = [(np.empty(0, np.int64),) * 4]
    for number in np.unique(window).tolist():
      pick = np.flatnonzero(window == number)
      packed = self._window(number, order)
      first_piece = packed.first[row[pick]]
      count = packed.first[row[pick] + 1] - first_piece
      piece = ragged.ranges(first_piece, count)
      slot, start, length = (
        narrow[piece].astype(np.int64)
        for narrow in (packed.slot, packed.start, packed.length)
      )
      position = number * window_docs + slot
      parts.append((np.repeat(pick, count), position, start, length))
    values = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
    ascending = np.argsort(values[0], kind="stable")
    rows, position, start, length = (array[ascending] for array in values)
    counts = np.bincount(rows, minlength=len(row))
    before = np.cumsum(length) - length
    first = (np.cumsum(counts) - counts)[rows]
    return self._documents.spans_of(
      self._documents.at(position, order),
      slice(None),
      start,
      start + length,
      row=rows,
      column=before - before[first],
      segment=np.arange(1, len(rows) + 1) - first,
      num_rows=len(row),
    )

  def rows_of(self, slot: int, window: int, order: int) -> np.ndarray:
    """Returns int64[N], the rows of a window that hold pieces of a document.

    Args:
      slot: The document's position in the window.
      window: The number of the window.
      order: The epoch whose order of documents is used, from 0.
    """
    packed = self._window(window, order)
    piece = np.flatnonzero(packed.slot == slot)
    return np.searchsorted(packed.first, piece, side="right") - 1

  def num_cut(self, window: int, order: int) -> int:
    """Counts pieces of a window that fit in a row but are cut to fill rows."""
    tokens = self._documents.contents(
      np.asarray([window]), order
    ).packed_lengths
    return int(np.count_nonzero(self._bins(tokens, window, order)[1] < 0))

  def index(self, order: int) -> _Index:
    """Returns the index of an order; packs all windows if there is none."""
    return self.find_index(order) or self.build_index(order)

  def find_index(self, order: int) -> _Index | None:
    """Returns the index of an order, or None if it is not on disk."""
    algorithm = self._options.packing_algorithm
    return self._find(order, self._side_index(algorithm, order))

  def _find(
    self, order: int, side: tuple[str, str, dict[str, Any]]
  ) -> _Index | None:
    """Opens a side index, as `_side_index` names it, if it is on disk."""
    name = side[1]
    index = self._indexes.get((name, order))
    if index is None:
      index = side_index.find(*side)
      if index is not None:
        self._indexes.put((name, order), index)
    return index

  def build_index(self, order: int, in_background: bool = False) -> _Index:
    """Packs all windows of an order and writes the index, or opens it.

    Args:
      order: The epoch whose order of documents is used, from 0.
      in_background: Whether no reader waits for it. It is then built by one
        thread and shows no progress.

    Raises:
      BusyError: If `in_background` and another process builds the index.
    """
    return side_index.load_or_build(
      *self._side_index(self._options.packing_algorithm, order),
      build_from=lambda sizes: self._parts(order, sizes, in_background),
      wait=not in_background,
      # No other run needs an order that is used in one epoch only.
      share=not self._options.orders_differ,
    )

  def drop_index(self, order: int) -> None:
    """Removes an order's index from disk; its number of rows stays."""
    if not self.exact:
      rows = self.row_starts(order)[-1:]
      side_index.load_or_build(
        *self._side_index("ffd_rows", order), lambda: [{"rows": rows}]
      )
    side_index.drop(*self._side_index(self._options.packing_algorithm, order))

  def _side_index(
    self, name: str, order: int, **more: str
  ) -> tuple[str, str, dict[str, Any]]:
    """Returns path, name and key of an index of an order."""
    key = {**self._documents.key(), **self.key(order), **more}
    return os.fspath(self._documents.store.path), name, key

  def _window(self, window: int, order: int) -> packing.Rows:
    """Returns a packed window, from memory if it is in use.

    Slots are positions in the window, and integers as narrow as they can be.
    """
    key = self._cache_key, order, window
    packed = CACHE.get(key)
    if packed is None:
      heartbeat.beat()
      contents = self._documents.contents(np.asarray([window]), order)
      pieces, bins, num_rows = self._bins(
        contents.packed_lengths, window, order
      )
      rows = packing.rows_of_bins(
        *packing.filled(pieces, bins, num_rows, self._seq_len), num_rows
      )
      slot = contents.position % self._documents.order.window_docs
      packed = packing.Rows(
        rows.first,
        _narrowed(slot[rows.slot]),
        _narrowed(rows.start),
        _narrowed(rows.length),
      )
      CACHE.put(key, packed, packed.nbytes + _WINDOW_BYTES)
    return packed

  def _bins(
    self, tokens: np.ndarray, window: int, order: int
  ) -> tuple[packing.Pieces, np.ndarray, int]:
    """Returns a window's pieces, the row of each, and the number of rows.

    `tokens` are those of its documents, at least 1 each. A piece that 'exact'
    cuts has row -1.
    """
    index = self.find_index(order) if self.exact else self.index(order)
    if index is None:
      return self._packed(tokens)
    pieces = packing.cut_pieces(tokens, self._seq_len)
    num_rows = int(index["rows"].read(window, window + 1)[0])
    ends = index["piece_ends"]
    first_piece = int(ends.read(window - 1, window)[0]) if window else 0
    end_piece = int(ends.read(window, window + 1)[0])
    # -1 is stored as 2**32 - 1.
    bins = (
      index["bins"].read(first_piece, end_piece).view(np.int32).astype(np.int64)
    )
    if not self._fits(pieces.length, bins, num_rows):
      path = index["bins"].path
      raise stores.StoreError(
        f"{path}: window {window} must pack {len(pieces.length)} pieces into"
        f" {num_rows} rows of {self._seq_len}, but does not. Remove"
        f" {path.parent}: it is built again."
      )
    return pieces, bins, num_rows

  def _fits(self, length: np.ndarray, bins: np.ndarray, num_rows: int) -> bool:
    """Returns whether pieces of these lengths fit in rows `bins`, -1 if cut."""
    if len(bins) != len(length) or bins.max(initial=0) > num_rows:
      return False
    placed = bins >= 0
    row_tokens = np.bincount(bins[placed], length[placed], num_rows)
    if self.exact:
      right = num_rows == -(-int(length.sum()) // self._seq_len)
    else:
      right = bool(placed.all())
    fits = (row_tokens > 0) & (row_tokens <= self._seq_len)
    return right and len(row_tokens) == num_rows and bool(fits.all())

  def _packed(
    self, tokens: np.ndarray
  ) -> tuple[packing.Pieces, np.ndarray, int]:
    """Packs a window; returns what `_bins` returns."""
    pieces = packing.cut_pieces(tokens, self._seq_len)
    if self.exact:
      return pieces, *packing.exact_bins(pieces, self._seq_len)
    max_items = self._options.packing_max_docs_per_bin
    return pieces, *packing.first_fit_decreasing(
      pieces.length, self._seq_len, max_items
    )

  def _parts(
    self, order: int, sizes: Mapping[str, int], in_background: bool
  ) -> Iterator[dict[str, np.ndarray]]:
    """Packs windows and yields the index in parts of a few windows each.

    `sizes` are those of the arrays on disk, which hold the first windows.
    """
    began = time.monotonic()
    name, documents = self._documents.name, self._documents.order
    total = documents.num_documents
    first_window = sizes.get("rows", 0)
    packed_documents = min(first_window * documents.window_docs, total)
    threads = 1
    if total >= COMPILED_DOCUMENTS and not in_background and compiled.wait():
      threads = num_threads()
    shown = not in_background and total >= _BAR_DOCUMENTS
    if shown and packed_documents:
      logging.info(
        "%s: goes on after %d packed documents", name, packed_documents
      )
    num_pieces = sizes.get("bins", 0)
    groups = self._window_tokens(first_window, order)
    with side_index.progress(
      total, f"{name}: packing", "docs", shown, packed_documents
    ) as bar:
      for windows, part in _in_threads(self._packed_group, groups, threads):
        part["piece_ends"] += num_pieces
        num_pieces += len(part["bins"])
        yield part
        bar.update(int(documents.window_sizes(windows).sum()))
    if shown:
      logging.info(
        "%s: packed %d documents in %.1f s, with %d threads",
        name,
        total - packed_documents,
        time.monotonic() - began,
        threads,
      )

  def _packed_group(
    self, group: _Group
  ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Packs windows; returns them and their part of an index."""
    windows, tokens = group
    window_bins: list[np.ndarray] = []
    rows: list[int] = []
    spans: list[int] = []
    for each in tokens:
      # Packing many windows takes long: report progress after each.
      heartbeat.beat()
      pieces, bins, num_rows = self._packed(each)
      window_bins.append(bins)
      rows.append(num_rows)
      if self.exact:
        _, filled = packing.filled(pieces, bins, num_rows, self._seq_len)
        spans.append(len(filled))
    part = {
      "rows": np.asarray(rows, np.int64),
      "piece_ends": np.cumsum([len(bins) for bins in window_bins]),
      "bins": np.concatenate(window_bins).astype(np.uint32),
    }
    if self.exact:
      part["spans"] = np.asarray(spans, np.int64)
    return windows, part

  def _sum_rows(self, order: int) -> Iterator[dict[str, np.ndarray]]:
    """Yields the tokens and spans of packed rows, a few windows at a time."""
    # A row has no more spans than positions.
    dtype = np.uint16 if self._seq_len < 2**16 else np.uint32
    for windows, window_tokens in self._window_tokens(0, order):
      tokens: list[np.ndarray] = []
      spans: list[np.ndarray] = []
      for window, each in zip(windows.tolist(), window_tokens, strict=True):
        pieces, bins, num_rows = self._bins(each, window, order)
        pieces, bins = packing.filled(pieces, bins, num_rows, self._seq_len)
        # Sums below 2**53 are exact in float64.
        tokens.append(np.bincount(bins, pieces.length, num_rows))
        spans.append(np.bincount(bins, minlength=num_rows))
      yield {
        "tokens": np.concatenate(tokens).astype(dtype),
        "spans": np.concatenate(spans).astype(dtype),
      }

  def _window_tokens(self, first_window: int, order: int) -> Iterator[_Group]:
    """Yields a few windows and, for each, the tokens of its documents."""
    num_windows = self._documents.order.num_windows
    for group_begin in range(first_window, num_windows, WINDOWS):
      background.check()
      windows = np.arange(group_begin, min(group_begin + WINDOWS, num_windows))
      contents = self._documents.contents(windows, order)
      begins = windows * self._documents.order.window_docs
      edges = np.searchsorted(contents.position, begins[1:])
      yield windows, np.split(contents.packed_lengths, edges)


def _narrowed(values: np.ndarray) -> np.ndarray:
  """Returns values of at least 0 in the narrowest integers that hold them."""
  return values.astype(np.min_scalar_type(int(values.max(initial=0))))


def num_threads() -> int:
  """Returns how many threads may pack: the cores available to this process."""
  if hasattr(os, "sched_getaffinity"):  # Not on macOS and Windows.
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def _in_threads(
  work: Callable[[_Group], _T], groups: Iterable[_Group], threads: int
) -> Iterator[_T]:
  """Yields `work(group)` of groups in order, from some threads.

  Groups are iterated in the caller's thread; one thread is the caller's.
  """
  if threads == 1:
    yield from map(work, groups)
    return
  running: collections.deque[futures.Future[_T]] = collections.deque()
  with futures.ThreadPoolExecutor(threads, "packing") as pool:
    try:
      for group in groups:
        running.append(pool.submit(work, group))
        if len(running) > 2 * threads:
          yield running.popleft().result()
      while running:
        yield running.popleft().result()
    finally:
      for future in running:
        future.cancel()
