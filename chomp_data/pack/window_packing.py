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
from chomp_data.stores import side_index
from chomp_data.threads import background
from chomp_data.threads import heartbeat

# Part of the index's name: raise it when packing changes.
PACKING_VERSION = 1
# From here on packing takes longer than to load a compiled loop.
COMPILED_DOCUMENTS = 500_000
# Below this, packing everything takes under a tenth of a second.
_BAR_DOCUMENTS = 50_000
# Windows packed by a thread before it takes others.
WINDOWS = 16

# The packed windows in use, of all sources of this process, in bytes: about 6
# per piece. A longer window is not cached.
CACHE = memo.Memo(64 << 20)
# Bytes of the Python objects of a window in the cache.
_WINDOW_BYTES = 1_000

# Names of side indexes: the rows of an order whose index was removed, and the
# tokens and spans of rows.
_FFD_ROWS, _ROW_SUMS = "ffd_rows", "row_sums"

_Index = Mapping[str, side_index.SideArray]
_Group = tuple[np.ndarray, list[np.ndarray]]
_T = TypeVar("_T")


class WindowPacking:
  """Packs windows of documents; safe to use from several threads.

  Attributes:
    documents: The documents whose windows are packed.
    options: The algorithm and its limits.
    seq_len: Positions of a row.
    exact: Whether the algorithm is 'exact', which needs no index.
    reserved: Positions that each piece has after its tokens.
    cache_key: Distinguishes its windows from others in `CACHE`.
  """

  def __init__(
    self,
    documents: documents_lib.Documents,
    options: BinOptions,
    *,
    seq_len: int,
    order_key: int,
  ):
    """Stores the arguments; opens and packs nothing.

    Args:
      documents: The documents whose windows are packed.
      options: The algorithm and its limits.
      seq_len: Positions of a row.
      order_key: The key of the order of documents.
    """
    self.documents = documents
    self.options = options
    self.seq_len = seq_len
    self._order_key = order_key
    self.exact: bool = options.packing_algorithm == "exact"
    self.reserved: int = options.reserved
    self.cache_key: object = object()

  @memo.remembered(documents_lib.ORDERS)
  def in_order(self, epoch: int) -> "PackedOrder":
    """Returns the rows of the order of documents of an epoch, from 0."""
    return PackedOrder(self, epoch)

  def key(self, epoch: int) -> dict[str, Any]:
    """Returns what determines an order's rows besides lengths, as JSON values.

    Args:
      epoch: The epoch whose order of documents is used, from 0.
    """
    documents = self.documents.order
    order = [documents.kind, documents.block_docs, f"{self._order_key:016x}"]
    return {
      **({"reserved": self.reserved} if self.reserved else {}),
      "version": PACKING_VERSION,
      "packing_buffer_docs": self.options.packing_buffer_docs,
      "packing_max_docs_per_bin": self.options.packing_max_docs_per_bin,
      "order": None if documents.kind == "none" else [*order, epoch],
    }

  def num_rows(self, epoch: int) -> int:
    """Returns the rows of all windows of an order.

    Those of an order after the first one are written to disk where they take
    a pass over all documents, so that later epochs need no such pass.
    """
    packed = PackedOrder(self, epoch)
    if epoch and not self.exact:
      # `drop_index` leaves the number of rows on disk.
      rows = packed.find(_FFD_ROWS)
      if rows is not None:
        return int(rows["rows"].read()[0])
    elif epoch and self.documents.order.kind == "full":
      rows = self.documents.load_or_build(
        "exact_rows",
        self.key(epoch),
        lambda: {"rows": self.in_order(epoch).row_starts[-1:]},
      )
      return int(rows["rows"].read()[0])
    return int(self.in_order(epoch).row_starts[-1])

  def packed(
    self, tokens: np.ndarray
  ) -> tuple[packing.Pieces, np.ndarray, int]:
    """Packs a window.

    Args:
      tokens: int64[N], the tokens of its documents, at least 1 each.

    Returns:
      Its pieces, the row of each, and the number of rows. A piece that 'exact'
      cuts has row -1.
    """
    pieces = self.pieces(tokens)
    if self.exact:
      return pieces, *packing.exact_bins(pieces, self.seq_len)
    max_items = self.options.packing_max_docs_per_bin
    return pieces, *packing.first_fit_decreasing(
      pieces.length + self.reserved, self.seq_len, max_items
    )

  def pieces(self, tokens: np.ndarray) -> packing.Pieces:
    """Cuts documents of int64[N] tokens into pieces that fit in a row."""
    return packing.cut_pieces(tokens, self.seq_len - self.reserved)


class PackedOrder:
  """The packed windows of the documents in the order of one epoch.

  Attributes:
    documents: The documents in this order.
  """

  def __init__(self, packing: WindowPacking, epoch: int):
    """Stores the arguments; opens and packs nothing.

    Args:
      packing: Packs windows.
      epoch: The epoch whose order of documents is used, from 0.
    """
    self._packing = packing
    self._epoch = epoch
    self.documents: documents_lib.OrderedDocuments = (
      documents_lib.OrderedDocuments(packing.documents, epoch)
    )
    # Open side indexes by name.
    self._indexes = memo.Memo(3)

  @property
  @memo.remembered(1)
  def row_starts(self) -> np.ndarray:
    """int64[num_windows + 1], the rows before each window."""
    if self._packing.exact:
      rows = -(-self.documents.window_tokens // self._packing.seq_len)
    else:
      rows = self.index()["rows"].read()
    return np.concatenate([[0], np.cumsum(rows)])

  def num_spans(self) -> np.ndarray:
    """Returns int64[num_windows], the spans of each window's rows."""
    if self._packing.exact:
      # A large store has them on disk, maybe from before there was an index.
      # Of the same name as the pieces of text in buckets, with other keys.
      ends = self._packing.documents.load_or_build(
        "pieces",
        self._packing.key(self._epoch),
        lambda: {"piece_ends": np.cumsum(self.index()["spans"].read())},
      )
    else:
      ends = self.index()
    pieces = np.diff(ends["piece_ends"].read(), prepend=0)
    return pieces * self._packing.documents.spans_per_piece

  def stored_sums(self) -> _Index | None:
    """Returns the `tokens` and `spans` of all packed rows, if they are on disk.

    They are summed if there is an index. None for an order that is used in one
    epoch only.
    """
    if self._packing.options.orders_differ:
      return None
    sums = self.find(_ROW_SUMS)
    if sums is None and self.find_index() is not None:
      sums = self.build_sums()
    return sums

  def build_sums(self, in_background: bool = False) -> _Index:
    """Sums all packed rows and writes the sums, or opens them.

    Args:
      in_background: Whether no reader waits for them.

    Raises:
      BusyError: If `in_background` and another process sums them.
    """
    sums = side_index.load_or_build(
      *self._side_index(_ROW_SUMS), self._sum_rows, wait=not in_background
    )
    self._indexes.put(_ROW_SUMS, sums)
    return sums

  def find_shared_sums(self) -> None:
    """Opens the sums of rows that another host left beside the store."""
    side_index.find(*self._side_index(_ROW_SUMS), in_bucket=True)

  def row_sums(
    self, window: np.ndarray, row: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the tokens and the spans of rows, int64[N] each.

    Args:
      window: int64[N], each row's window.
      row: int64[N], the row within its window.
    """
    sums = self.stored_sums()
    per_piece = self._packing.documents.spans_per_piece
    if sums is not None:
      row = row + self.row_starts[window]
      return sums["tokens"].take(row), per_piece * sums["spans"].take(row)
    tokens, spans = np.empty_like(row), np.empty_like(row)
    for number, pick in ragged.by_value(window):
      packed = self._window(number)
      lengths = packed.length.astype(np.int64)
      tokens[pick] = np.add.reduceat(lengths, packed.first[:-1])[row[pick]]
      spans[pick] = np.diff(packed.first)[row[pick]] * per_piece
    return tokens, spans

  def plan(self, window: np.ndarray, row: np.ndarray) -> spans_lib.Spans:
    """Plans rows.

    Args:
      window: int64[N], each row's window.
      row: int64[N], the row within its window.
    """
    window_docs = self._packing.documents.order.window_docs
    parts = [(np.empty(0, np.int64),) * 4]
    for number in np.unique(window).tolist():
      pick = np.flatnonzero(window == number)
      packed = self._window(number)
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
    room = length + self._packing.reserved
    before = np.cumsum(room) - room
    first = (np.cumsum(counts) - counts)[rows]
    return self._packing.documents.spans_of(
      self.documents.at(position),
      slice(None),
      start,
      start + length,
      row=rows,
      column=before - before[first],
      segment=np.arange(1, len(rows) + 1) - first,
      num_rows=len(row),
    )

  def rows_with(self, slots: np.ndarray, window: int) -> np.ndarray:
    """Returns int64[N], the rows of a window that hold pieces of documents.

    Args:
      slots: int64[D], the positions of the documents in the window.
      window: The number of the window.
    """
    packed = self._window(window)
    piece = np.flatnonzero(np.isin(packed.slot, slots))
    return np.searchsorted(packed.first, piece, side="right") - 1

  def num_cut(self, window: int) -> int:
    """Counts pieces of a window that fit in a row but are cut to fill rows."""
    _, tokens = self.documents.contents(np.asarray([window]))
    return int(np.count_nonzero(self._bins(tokens, window)[1] < 0))

  def index(self) -> _Index:
    """Returns the index; packs all windows if there is none."""
    return self.find_index() or self.build_index()

  def find_index(self) -> _Index | None:
    """Returns the index, or None if it is not on disk."""
    return self.find(self._packing.options.packing_algorithm)

  def find(self, name: str) -> _Index | None:
    """Returns a side index of this order, or None if it is not on disk."""
    index = self._indexes.get(name)
    if index is None:
      index = side_index.find(*self._side_index(name))
      if index is not None:
        self._indexes.put(name, index)
    return index

  def build_index(self, in_background: bool = False) -> _Index:
    """Packs all windows and writes the index, or opens it.

    Args:
      in_background: Whether no reader waits for it. It is then built by one
        thread and shows no progress.

    Raises:
      BusyError: If `in_background` and another process builds the index.
    """
    options = self._packing.options
    return side_index.load_or_build(
      *self._side_index(options.packing_algorithm),
      build_from=lambda sizes: self._parts(sizes, in_background),
      wait=not in_background,
      # No other run needs an order that is used in one epoch only.
      share=not options.orders_differ,
    )

  def drop_index(self) -> None:
    """Removes the index from disk; its number of rows stays."""
    if not self._packing.exact:
      rows = self.row_starts[-1:]
      side_index.load_or_build(
        *self._side_index(_FFD_ROWS), lambda: [{"rows": rows}]
      )
    side_index.drop(*self._side_index(self._packing.options.packing_algorithm))

  def _side_index(self, name: str) -> tuple[str, str, dict[str, Any]]:
    """Returns path, name and key of a side index of this order."""
    documents = self._packing.documents
    key = {**documents.key(), **self._packing.key(self._epoch)}
    if name == _ROW_SUMS:
      key["packing_algorithm"] = self._packing.options.packing_algorithm
    return os.fspath(documents.store.path), name, key

  def _window(self, window: int) -> packing.Rows:
    """Returns a packed window, from memory if it is in use.

    Slots are positions in the window, and integers as narrow as they can be.
    """
    key = self._packing.cache_key, self._epoch, window
    packed = CACHE.get(key)
    if packed is None:
      heartbeat.beat()
      contents, tokens = self.documents.contents(np.asarray([window]))
      pieces, bins, num_rows = self._filled(tokens, window)
      rows = packing.rows_of_bins(pieces, bins, num_rows)
      slot = contents.position % self._packing.documents.order.window_docs
      packed = packing.Rows(
        rows.first,
        _narrowed(slot[rows.slot]),
        _narrowed(rows.start),
        _narrowed(rows.length),
      )
      CACHE.put(key, packed, packed.nbytes + _WINDOW_BYTES)
    return packed

  def _filled(
    self, tokens: np.ndarray, window: int
  ) -> tuple[packing.Pieces, np.ndarray, int]:
    """Returns what `_bins` does, with pieces cut so that each has a row."""
    pieces, bins, num_rows = self._bins(tokens, window)
    seq_len = self._packing.seq_len
    return *packing.filled(pieces, bins, num_rows, seq_len), num_rows

  def _bins(
    self, tokens: np.ndarray, window: int
  ) -> tuple[packing.Pieces, np.ndarray, int]:
    """Returns `WindowPacking.packed` of a window, from the index if it can."""
    index = self.find_index() if self._packing.exact else self.index()
    if index is None:
      return self._packing.packed(tokens)
    pieces = self._packing.pieces(tokens)
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
        f" {num_rows} rows of {self._packing.seq_len}, but does not. Remove"
        f" {path.parent}: it is built again."
      )
    return pieces, bins, num_rows

  def _fits(self, length: np.ndarray, bins: np.ndarray, num_rows: int) -> bool:
    """Returns whether pieces of these lengths fit in rows `bins`, -1 if cut."""
    if len(bins) != len(length) or bins.max(initial=0) > num_rows:
      return False
    placed = bins >= 0
    room = length[placed] + self._packing.reserved
    row_tokens = np.bincount(bins[placed], room, num_rows)
    if self._packing.exact:
      right = num_rows == -(-int(length.sum()) // self._packing.seq_len)
    else:
      right = bool(placed.all())
    fits = (row_tokens > 0) & (row_tokens <= self._packing.seq_len)
    return right and len(row_tokens) == num_rows and bool(fits.all())

  def _parts(
    self, sizes: Mapping[str, int], in_background: bool
  ) -> Iterator[dict[str, np.ndarray]]:
    """Packs windows and yields the index in parts of a few windows each.

    `sizes` are those of the arrays on disk, which hold the first windows.
    """
    began = time.monotonic()
    name = self._packing.documents.name
    documents = self._packing.documents.order
    total = documents.num_documents
    first_window = sizes.get("rows", 0)
    packed_documents = min(first_window * documents.window_docs, total)
    threads = 1
    if total >= COMPILED_DOCUMENTS and not in_background and compiled.wait():
      threads = num_threads()
    shows_progress = not in_background and total >= _BAR_DOCUMENTS
    if shows_progress and packed_documents:
      logging.info(
        "%s: continues after %d packed documents", name, packed_documents
      )
    num_pieces = sizes.get("bins", 0)
    groups = self._window_tokens(first_window)
    with side_index.progress(
      total, f"{name}: packing", "docs", shows_progress, packed_documents
    ) as bar:
      for windows, part in _in_threads(self._packed_group, groups, threads):
        part["piece_ends"] += num_pieces
        num_pieces += len(part["bins"])
        yield part
        bar.update(int(documents.window_sizes(windows).sum()))
    if shows_progress:
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
    for window_tokens in tokens:
      # Packing many windows takes long: report progress after each.
      heartbeat.beat()
      pieces, bins, num_rows = self._packing.packed(window_tokens)
      window_bins.append(bins)
      rows.append(num_rows)
      if self._packing.exact:
        _, filled = packing.filled(
          pieces, bins, num_rows, self._packing.seq_len
        )
        spans.append(len(filled))
    part = {
      "rows": np.asarray(rows, np.int64),
      "piece_ends": np.cumsum([len(bins) for bins in window_bins]),
      "bins": np.concatenate(window_bins).astype(np.uint32),
    }
    if self._packing.exact:
      part["spans"] = np.asarray(spans, np.int64)
    return windows, part

  def _sum_rows(self) -> Iterator[dict[str, np.ndarray]]:
    """Yields the tokens and spans of packed rows, a few windows at a time."""
    # A row has no more spans than positions.
    dtype = np.uint16 if self._packing.seq_len < 2**16 else np.uint32
    for windows, tokens_by_window in self._window_tokens(0):
      tokens: list[np.ndarray] = []
      spans: list[np.ndarray] = []
      for window, lengths in zip(
        windows.tolist(), tokens_by_window, strict=True
      ):
        pieces, bins, num_rows = self._filled(lengths, window)
        # Sums below 2**53 are exact in float64.
        tokens.append(np.bincount(bins, pieces.length, num_rows))
        spans.append(np.bincount(bins, minlength=num_rows))
      yield {
        "tokens": np.concatenate(tokens).astype(dtype),
        "spans": np.concatenate(spans).astype(dtype),
      }

  def _window_tokens(self, first_window: int) -> Iterator[_Group]:
    """Yields a few windows and, for each, the tokens of its documents."""
    order = self._packing.documents.order
    for group_begin in range(first_window, order.num_windows, WINDOWS):
      background.check()
      end = min(group_begin + WINDOWS, order.num_windows)
      windows = np.arange(group_begin, end)
      contents, tokens = self.documents.contents(windows)
      begins = windows * order.window_docs
      edges = np.searchsorted(contents.position, begins[1:])
      yield windows, np.split(tokens, edges)


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
