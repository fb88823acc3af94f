# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How windows of documents are packed into rows, from an index or on demand.

Each window of documents is packed separately, so row n needs its own window
and the number of rows before it. With 'ffd' that number is only known once all
windows are packed: one pass does that and writes an index beside the store,
with the rows of each window and the row of each piece. With 'exact' it follows
from sums of tokens, so a window is packed when one of its rows is needed, or
read from the index if there is one.

An index is memory mapped, and the pieces of a window are read by range.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from concurrent import futures
import os
import time
from typing import Any

from absl import logging
import numpy as np

from chomp_data import stores
from chomp_data.index import memo
from chomp_data.kernels import compiled
from chomp_data.pack import documents as documents_lib
from chomp_data.pack import packing
from chomp_data.pack.packing_options import BinOptions
from chomp_data.stores import background
from chomp_data.stores import heartbeat
from chomp_data.stores import side_index

# Part of the index's name: raise it when packing changes.
PACKING_VERSION = 1
# From here on packing takes longer than to load a compiled loop.
COMPILED_DOCUMENTS = 500_000
# Below this, packing everything takes under a tenth of a second.
_BAR_DOCUMENTS = 50_000
# Windows packed by a thread before it takes others.
_WINDOWS = 16
# Orders of documents whose indexes and rows stay in memory: of the epoch at
# hand and of the next one.
_ORDERS = 2

_Index = Mapping[str, side_index.SideArray]


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
    self._indexes = memo.Memo(_ORDERS)
    self._starts = memo.Memo(_ORDERS)
    self._row_sums = memo.Memo(_ORDERS)

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
      rows = self._documents.derived(
        "exact_rows",
        self.key(order),
        lambda: {"rows": self.row_starts(order)[-1:]},
      )
      return int(rows["rows"][0])
    return int(self.row_starts(order)[-1])

  def rows(self, tokens: np.ndarray, window: int, order: int) -> packing.Rows:
    """Returns the rows of a window.

    Args:
      tokens: int64[D], the tokens of its documents, at least 1 each.
      window: The number of the window.
      order: The epoch whose order of documents is meant.
    """
    return packing.filled_rows(
      *self._bins(tokens, window, order), self._seq_len
    )

  def num_spans(self, order: int) -> np.ndarray:
    """Returns int64[num_windows], the spans of each window's rows."""
    if not self.exact:
      return np.diff(self.index(order)["piece_ends"].read(), prepend=0)

    def build() -> dict[str, np.ndarray]:
      return {"piece_ends": np.cumsum(self.index(order)["spans"].read())}

    # A large store has them on disk, maybe from before there was an index.
    ends = self._documents.derived("pieces", self.key(order), build)
    return np.diff(ends["piece_ends"], prepend=0)

  def row_sums(self, order: int) -> _Index | None:
    """Returns the `tokens` and `spans` of all packed rows, if they are on disk.

    They are summed if there is an index. None for an order that is used in one
    epoch only.
    """
    if self._options.orders_differ:
      return None
    sums = self._row_sums.get(order)
    if sums is None:
      side = self._side_index(
        "row_sums", order, packing_algorithm=self._options.packing_algorithm
      )
      sums = side_index.find(*side)
      if sums is None and self.find_index(order) is not None:
        sums = side_index.load_or_build(*side, lambda: self._sum_rows(order))
      if sums is not None:
        self._row_sums.put(order, sums)
    return sums

  def index(self, order: int) -> _Index:
    """Returns the index of an order; packs all windows if there is none."""
    index = self.find_index(order)
    if index is None:
      index = self.build_index(order)
      self._indexes.put(order, index)
    return index

  def find_index(self, order: int) -> _Index | None:
    """Returns the index of an order, or None if it is not on disk."""
    index = self._indexes.get(order)
    if index is None:
      algorithm = self._options.packing_algorithm
      index = side_index.find(*self._side_index(algorithm, order))
      if index is not None:
        self._indexes.put(order, index)
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

  def _bins(
    self, tokens: np.ndarray, window: int, order: int
  ) -> tuple[packing.Pieces, np.ndarray, int]:
    """Returns a window's pieces, the row of each, and the number of rows.

    A piece that 'exact' cuts has row -1.

    Args:
      tokens: int64[D], the tokens of its documents, at least 1 each.
      window: The number of the window.
      order: The epoch whose order of documents is used, from 0.
    """
    pieces = packing.cut_pieces(tokens, self._seq_len)
    index = self.find_index(order) if self.exact else self.index(order)
    if index is None:
      return pieces, *packing.exact_bins(pieces, self._seq_len)
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
    """Returns whether pieces fit in the rows assigned to them.

    Args:
      length: int64[N], tokens of the pieces.
      bins: int64[N], the row of each, -1 where it is cut.
      num_rows: Rows of the window.
    """
    if len(bins) != len(length) or bins.max(initial=0) > num_rows:
      return False
    placed = np.flatnonzero(bins >= 0) if self.exact else slice(None)
    try:
      row_tokens = np.bincount(bins[placed], length[placed], num_rows)
    except ValueError:  # A row below 0.
      return False
    if self.exact and num_rows != -(-int(length.sum()) // self._seq_len):
      return False
    fits = (row_tokens > 0) & (row_tokens <= self._seq_len)
    return len(row_tokens) == num_rows and bool(fits.all())

  def _parts(
    self, order: int, sizes: Mapping[str, int], in_background: bool
  ) -> Iterator[dict[str, np.ndarray]]:
    """Packs windows and yields the index in parts of a few windows each.

    Args:
      order: The epoch whose order of documents is used, from 0.
      sizes: The sizes of the arrays already on disk, which hold the first
        windows.
      in_background: Whether no reader waits: one thread, and no progress bar.
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
    with side_index.progress(
      total, f"{name}: packing", "docs", shown, packed_documents
    ) as bar:
      for windows, packed in _packed_in_order(
        self._pack, self._window_tokens(first_window, order), threads
      ):
        bins, rows, spans = zip(*packed, strict=True)
        ends = num_pieces + np.cumsum([len(each) for each in bins])
        num_pieces = int(ends[-1])
        part = {
          "rows": np.asarray(rows, np.int64),
          "piece_ends": ends,
          "bins": np.concatenate(bins).astype(np.uint32),
        }
        if self.exact:
          part["spans"] = np.asarray(spans, np.int64)
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

  def _pack(self, tokens: np.ndarray) -> tuple[np.ndarray, int, int]:
    """Packs a window.

    Args:
      tokens: int64[D], the tokens of its documents, at least 1 each.

    Returns:
      (row of each piece int64[N], number of rows, number of spans).
    """
    # Packing many windows takes long: report progress after each.
    heartbeat.beat()
    pieces = packing.cut_pieces(tokens, self._seq_len)
    if not self.exact:
      bins, rows = packing.first_fit_decreasing(
        pieces.length, self._seq_len, self._options.packing_max_docs_per_bin
      )
      return bins, rows, len(bins)
    bins, rows = packing.exact_bins(pieces, self._seq_len)
    parts = packing.filled_parts(pieces, bins, rows, self._seq_len)
    return bins, rows, int(parts.sum())

  def _sum_rows(self, order: int) -> Iterator[dict[str, np.ndarray]]:
    """Yields the tokens and spans of packed rows, a few windows at a time."""
    # A row has no more spans than positions.
    dtype = np.uint16 if self._seq_len < 2**16 else np.uint32
    for windows, tokens in self._window_tokens(0, order):
      sums = [
        packing.filled_sums(*self._bins(each, window, order), self._seq_len)
        for window, each in zip(windows.tolist(), tokens, strict=True)
      ]
      row_tokens, row_spans = zip(*sums, strict=True)
      yield {
        "tokens": np.concatenate(row_tokens).astype(dtype),
        "spans": np.concatenate(row_spans).astype(dtype),
      }

  def _window_tokens(
    self, first_window: int, order: int
  ) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
    """Yields windows int64[W] and, for each, the tokens of its documents.

    Args:
      first_window: The window to begin with.
      order: The epoch whose order of documents is used, from 0.
    """
    num_windows = self._documents.order.num_windows
    for group_begin in range(first_window, num_windows, _WINDOWS):
      background.check()
      windows = np.arange(group_begin, min(group_begin + _WINDOWS, num_windows))
      contents = self._documents.contents(windows, order)
      edges = np.searchsorted(contents.window, np.arange(1, len(windows)))
      yield windows, np.split(contents.kept, edges)


def num_threads() -> int:
  """Returns how many threads may pack: the cores available to this process."""
  if hasattr(os, "sched_getaffinity"):  # Not on macOS and Windows.
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def _packed_in_order(
  pack: Callable[[np.ndarray], Any],
  groups: Iterator[tuple[np.ndarray, list[np.ndarray]]],
  threads: int,
) -> Iterator[tuple[np.ndarray, list[Any]]]:
  """Packs windows in threads and yields them in order.

  Args:
    pack: Packs a window, given the tokens of its documents. Runs in a thread.
    groups: Yields windows and the tokens of the documents of each. Runs in the
      caller's thread.
    threads: How many threads pack; 1 is the caller's thread alone.
  """

  def packed(tokens: list[np.ndarray]) -> list[Any]:
    return [pack(each) for each in tokens]

  if threads == 1:
    for windows, tokens in groups:
      yield windows, packed(tokens)
    return
  running: collections.deque[tuple[np.ndarray, futures.Future[list[Any]]]]
  running = collections.deque()
  with futures.ThreadPoolExecutor(threads, "packing") as pool:
    try:
      for windows, tokens in groups:
        running.append((windows, pool.submit(packed, tokens)))
        if len(running) > 2 * threads:
          windows, result = running.popleft()
          yield windows, result.result()
      while running:
        windows, result = running.popleft()
        yield windows, result.result()
    finally:
      for _, result in running:
        result.cancel()
