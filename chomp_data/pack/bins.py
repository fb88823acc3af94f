# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Bin packing: whole documents in rows, packed by windows (seed 003).

Each window of documents is packed by itself, so row n needs its own window
and the rows before it. An index beside the store keeps how many rows each
window has and which piece went where, from one pass that packs everything.
With 'ffd' nothing is known before it. With 'exact' rows follow from sums of
tokens: a window is packed where the index is not there yet, and a run that goes
on makes it beside what it reads.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import dataclasses
import functools
import os
import time
from typing import Any

from absl import logging
import numpy as np

from chomp_data import schema
from chomp_data import stores
from chomp_data.index import hashing
from chomp_data.index import integers
from chomp_data.index import intervals
from chomp_data.index import memo
from chomp_data.index import permutation
from chomp_data.kernels import compiled
from chomp_data.pack import document_order
from chomp_data.pack import documents as documents_lib
from chomp_data.pack import epoch_starts
from chomp_data.pack import packed_layout
from chomp_data.pack import packed_windows
from chomp_data.pack import packing
from chomp_data.pack import packing_report
from chomp_data.pack.packing_options import BinOptions
from chomp_data.rows import row_layout
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import epochs as epochs_lib
from chomp_data.sources import row_source
from chomp_data.sources import row_units
from chomp_data.sources import shared_options as options_lib
from chomp_data.stores import background
from chomp_data.stores import heartbeat
from chomp_data.stores import remaining
from chomp_data.stores import side_index

# Part of the index's name: raise it when packing changes.
_PACKING_VERSION = 1
# Documents packed a second, on the slow side; for messages only.
_PACKING_RATE = 4e5
_SAMPLED_WINDOWS = 4
# Below this, packing everything takes under a tenth of a second.
_BAR_DOCUMENTS = 50_000
# Documents that a reader packs for itself before it packs all to keep that: a
# look at some steps is none, nor is the first shuffle window of a run.
_PACKED_HERE = 50_000
# From here on it takes longer than to load a compiled loop.
_COMPILED_DOCUMENTS = 500_000
# Documents up to which what rows hold is summed within a tenth of a second.
_SUMMED_HERE = 500_000
# Rows of an epoch whose units may all be in memory: 16 MiB.
_MOST_TABLE_ROWS = 2**22
# Windows packed by a thread before it takes others.
_WINDOWS = 16
# From this part of an epoch on the next one is packed.
_AHEAD_FROM = 0.5


class BinSource(row_source.RowSource):
  """Rows of whole documents, packed by windows."""

  @options_lib.source_arguments(BinOptions)
  def __init__(
    self,
    store: stores.Store | str | os.PathLike[str],
    options: BinOptions,
    *,
    seq_len: int,
    seed: int = 0,
    name: str = "bin",
    path: str = "rows",
  ):
    """Builds or opens what random access needs; reads no token.

    Args:
      store: Where the documents are; a path is opened with `open_store`.
      options: Algorithm, windows, added tokens and order.
      seq_len: Positions of a row, at least 2.
      seed: The run's seed, which orders documents and rows.
      name: The source's name; its seeds depend on it.
      path: Dotted path of the options, for messages.

    Raises:
      TypeError: If an argument is of a wrong type.
      ConfigError: If options do not fit the store.
      StoreError: If the index can be kept nowhere.
    """
    assert isinstance(store, stores.Store)
    options_lib.raise_problems(options, seq_len, path)
    self.name = name
    self.store = store
    self.options = options
    self._seed = seed
    self._path = path
    self.one_span: bool = True
    # First-Fit-Decreasing cuts a document every row, 'exact' where need be.
    self.spans_repeat: bool = (
      options.packing_algorithm == "ffd" or not options.orders_differ
    )
    self.layout: row_layout.RowLayout = packed_layout.packed_layout(
      store, options, seq_len, path
    )
    self.document_slots: int = min(
      options.packing_max_docs_per_bin or options.document_slots, seq_len
    )
    by_block = options.shuffle_documents == "block"
    self._order_key = hashing.fold_key(seed, name, "documents")
    self._row_key = hashing.fold_key(seed, name, "rows")
    self._documents = documents_lib.Documents(
      store,
      document_order.DocumentOrder(
        store.num_documents,
        window_docs=options.packing_buffer_docs,
        block_docs=(
          options.window_block() if by_block else options.packing_buffer_docs
        ),
        kind=options.shuffle_documents,
        key=self._order_key,
      ),
      seq_len=seq_len,
      add_bos=options.add_bos,
      add_eos=options.add_eos,
      long_documents=options.long_documents,
      name=name,
    )
    self._check(path)
    self._indexes: dict[int, dict[str, side_index.SideArray]] = {}
    self._windows = packed_windows.PackedWindows(self._documents, self._pack)
    self._row_starts: dict[int, np.ndarray] = {}
    self._units = memo.Memo(1)
    self._summed: Mapping[str, side_index.SideArray] | None = None
    self._ahead = _Ahead(self)
    self._report_cost()
    self._epochs = epoch_starts.EpochStarts(
      self._rows_of_epoch, self._most_epochs(), path
    )

  def __len__(self) -> int:
    return self._epochs.first_epoch_rows

  def __getstate__(self) -> dict[str, Any]:
    # Maps of files are opened again where they are used.
    return {**self.__dict__, "_indexes": {}, "_summed": None}

  @property
  def epochs(self) -> epochs_lib.Epochs:
    """Epochs differ in rows where documents are packed anew in each."""
    return self._epochs if self.options.orders_differ else super().epochs

  def row_starts(self, epoch: int) -> np.ndarray:
    """Returns int64[num_windows + 1], rows of an epoch before each window."""
    order = self._order_epoch(epoch)
    starts = self._row_starts.get(order)
    if starts is None:
      if self.options.packing_algorithm == "exact":
        rows = -(-self._documents.window_tokens(order) // self.seq_len)
      else:
        rows = self._index(order)["rows"].read()
      starts = np.zeros(len(rows) + 1, np.int64)
      np.cumsum(rows, out=starts[1:])
      kept = sorted(self._row_starts.items())[-1:]
      self._row_starts = {**dict(kept), order: starts}
    return starts

  def blocks(self, epoch: int) -> np.ndarray:
    """Returns the first row of each packing window; see `RowSource`."""
    return self.row_starts(integers.whole("epoch", epoch))

  @property
  def repeating_units(self) -> Collection[str]:
    """Units of which every epoch consumes the same; see `RowSource`."""
    # First-Fit-Decreasing cuts a document every row, whatever its neighbours.
    ffd = self.options.packing_algorithm == "ffd"
    if self.options.orders_differ and not ffd:
      return ("tokens",)
    return "tokens", "loss_tokens"

  @row_source.checks_document
  def rows_of(self, document: int, epoch: int) -> intervals.Intervals:
    """Returns the rows that hold pieces of a document; see `RowSource`."""
    rows = np.empty(0, np.int64)
    if self._documents.num_kept(document):
      window, row, num_rows = self._pieces_of(
        document, self._order_epoch(epoch)
      )
      if self.options.shuffle_rows:
        key = hashing.fold(self._row_key, np.asarray(epoch))
        key = hashing.fold(key, np.asarray(window))
        row = permutation.inverse(row, num_rows, key)
      rows = int(self.row_starts(epoch)[window]) + row
    return intervals.merged(rows, rows + 1)

  def _pieces_of(
    self, document: int, order: int
  ) -> tuple[int, np.ndarray, int]:
    """Returns the window of a document, its pieces' rows there, and all rows.

    Args:
      document: One of some tokens.
      order: The epoch whose order of documents is meant.
    """
    window, contents, entry = self._documents.found(document, order)
    rows = self._pack(contents.kept, window, order)
    piece = np.flatnonzero(rows.slot == entry)
    row = np.searchsorted(rows.first, piece, side="right") - 1
    return window, row, rows.num_rows

  @row_units.block_arguments
  def block_units(
    self, epoch: int, unit: str, rows: int | None
  ) -> row_units.BlockUnits | None:
    """Returns what packing windows consume; see `RowSource`.

    Trained tokens are tokens less spans, which the index counts. Where the
    store has labels they are summed as windows are packed, once for each order.
    """
    order = self._order_epoch(epoch)
    exact = self.options.packing_algorithm == "exact"
    if unit not in ("tokens", "loss_tokens") or (
      unit == "loss_tokens" and exact and self.options.orders_differ
    ):
      return super().block_units(epoch, unit, rows)
    if unit == "loss_tokens" and not self.store.trains_on_all:
      ends = self._windows.trained_ends(self._packing_key(order), order)
      units = np.diff(ends, prepend=0)
    else:
      # Rows between blocks are asked for next: not while steps are read.
      self._row_sums(order)
      units = self._documents.window_tokens(order).astype(np.int64)
      if unit == "loss_tokens":
        units -= np.diff(self._span_ends(order), prepend=0)
    return row_units.BlockUnits(self.row_starts(epoch), units)

  def _span_ends(self, order: int) -> np.ndarray:
    """Returns int64[num_windows], the spans of windows 0 .. w."""
    if self.options.packing_algorithm == "ffd":
      return self._index(order)["piece_ends"].read()

    def build() -> dict[str, np.ndarray]:
      return {"piece_ends": np.cumsum(self._index(order)["spans"].read())}

    # Of a large store they were kept before there was an index.
    key = self._packing_key(order)
    return self._documents.derived("pieces", key, build)["piece_ends"]

  @row_units.units_arguments
  def units(self, epoch: int, positions: np.ndarray, unit: str) -> np.ndarray:
    """Returns what rows consume; see `RowSource`. No span is made."""
    trained = unit == "loss_tokens" and self.store.trains_on_all
    if unit != "tokens" and not trained:
      return super().units(epoch, positions, unit)
    order = self._order_epoch(epoch)
    window, row = self._packed_at(np.asarray(epoch), positions, order)
    starts = self.row_starts(order)
    sums = self._row_sums(order)
    if sums is not None:
      row += starts[window]
      units = sums["tokens"].take(row).astype(np.int64)
      return units - sums["spans"].take(row) if trained else units
    windows = np.count_nonzero(np.bincount(window))
    if windows <= packed_windows.UNITS_CACHED or starts[-1] > _MOST_TABLE_ROWS:
      return self._windows.units(window, row, order, trained)
    # Rows of an order that mixes more windows than stay packed.
    table = self._units.get(
      (order, unit), lambda: self._packed_units(order, trained)
    )
    return table[starts[window] + row].astype(np.int64)

  def _row_sums(self, order: int) -> Mapping[str, side_index.SideArray] | None:
    """Returns the tokens and spans of packed rows; None where not kept."""
    if self.options.orders_differ:
      return None  # Each order comes once.
    if self._summed is None:
      self._summed = side_index.find(
        self.store.path, "row_sums", self._sums_key(order)
      )
    if self._summed is None and self._index_if_there(order) is not None:
      if self.store.num_documents <= _SUMMED_HERE:
        self._summed = self.summed_on_disk(order)
      else:
        self._ahead.sums_wanted(order)
    return self._summed

  def summed_on_disk(self, order: int) -> dict[str, side_index.SideArray]:
    """Opens what packed rows of an order hold, or sums it.

    Args:
      order: The epoch whose order of documents is meant; its packing is there.
    """
    # A row has no more spans than positions.
    narrow = np.uint16 if self.seq_len < 2**16 else np.uint32

    def build() -> Iterator[dict[str, np.ndarray]]:
      windows = range(self._documents.order.num_windows)
      for own, kept in self._kept_of(windows, order):
        found = [
          self._sums_of_window(each, window, order)
          for window, each in zip(own.tolist(), kept, strict=True)
        ]
        tokens, spans = map(np.concatenate, zip(*found, strict=True))
        yield {"tokens": tokens.astype(narrow), "spans": spans.astype(narrow)}
        heartbeat.beat()

    key = self._sums_key(order)
    return side_index.load_or_build(self.store.path, "row_sums", key, build)

  def _sums_key(self, order: int) -> dict[str, Any]:
    algorithm = self.options.packing_algorithm
    return {**self._index_key(order), "packing_algorithm": algorithm}

  def _packed_units(self, order: int, trained: bool) -> np.ndarray:
    """Returns the (trained) tokens of rows as they are packed, int32[R]."""
    found = []
    for window, (_, kept) in enumerate(self._documents.windows(order)):
      tokens, spans = self._sums_of_window(kept, window, order)
      found.append((tokens - spans if trained else tokens).astype(np.int32))
      heartbeat.beat()
    return np.concatenate(found)

  def _sums_of_window(
    self, kept: np.ndarray, window: int, order: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the tokens and the spans of a window's rows, int64[R] each."""
    return packing.filled_sums(*self._bins(kept, window, order), self.seq_len)

  def plan(self, rows: np.ndarray) -> spans_lib.Spans:
    """Plans rows; see `RowSource.plan`."""
    rows = row_source.checked_rows(rows)
    epoch, index = self.epochs.locate(rows)
    epochs = np.unique(epoch) if self.options.orders_differ else epoch[:1]
    if len(epochs) <= 1:
      return self._plan(epoch, index)
    picks = [np.flatnonzero(epoch == e) for e in epochs]
    parts = [self._plan(epoch[pick], index[pick]) for pick in picks]
    return spans_lib.merged(parts, picks)

  def report(self) -> packing_report.PackingReport:
    """Returns utilisation, padding and cut documents of the first epoch.

    With 'exact' a few windows are packed to see how many documents they cut.
    """
    totals = self._documents.totals
    cut = looked_at = 0
    if self.options.packing_algorithm == "exact":
      shown = np.arange(min(_SAMPLED_WINDOWS, len(self.row_starts(0)) - 1))
      looked_at = int(self._documents.order.window_sizes(shown).sum())
      for window in shown.tolist():
        contents = self._documents.contents(np.asarray([window]), 0)
        cut += self._pack(contents.kept, window, 0).num_cut
    return packing_report.PackingReport(
      rows=len(self),
      tokens=totals.tokens,
      documents=totals.documents,
      empty=totals.empty,
      long=totals.long,
      lost=totals.lost,
      cut=cut,
      looked_at=looked_at or totals.documents,
      seq_len=self.seq_len,
    )

  @property
  def fingerprint(self) -> dict[str, Any]:
    """What decides this source's rows, as JSON values."""
    return {
      "store": self.store.hash,
      "seq_len": self.seq_len,
      "seed": self._seed,
      "kind": "bin",
      "packing_version": _PACKING_VERSION,
      "rows": dataclasses.asdict(self.options),
      "filler_id": self.layout.filler_id,
      "bos_id": self.layout.bos_id,
      "eos_id": self.layout.eos_id,
    }

  def describe(self) -> str:
    """Returns the summary for the log: windows, utilisation, what was cut."""
    return "\n".join(
      [
        f"[{self.name}] bin: {self.options.packing_algorithm} over"
        f" {self._documents.order.num_windows} windows of"
        f" {self.options.packing_buffer_docs} documents, {len(self)} rows an"
        " epoch",
        *self.report().lines(self.options),
      ]
    )

  def _check(self, path: str) -> None:
    totals = self._documents.totals
    whole = not isinstance(self.store, remaining.Remaining)
    if whole and totals.tokens < self.seq_len:
      lost = f" ({totals.lost} more in long documents)" if totals.lost else ""
      raise schema.ConfigError(
        [
          "`config.data.seq_len` must be at most the tokens that"
          f" `{path}` packs, got {self.seq_len} with {totals.tokens}{lost}."
          " Lower it, or prepare more text."
        ]
      )

  def _report_cost(self) -> None:
    if not self.options.orders_differ:
      return
    ffd = self.options.packing_algorithm == "ffd"
    if ffd or self.options.shuffle_documents == "full":
      rate = (_PACKING_RATE,) if ffd else ()
      logging.warning(
        "%s: shuffle_documents=%r with packing_algorithm=%r costs %s;"
        " reshuffle_documents=False or 'block' with 'exact' does not.",
        self._path,
        self.options.shuffle_documents,
        self.options.packing_algorithm,
        documents_lib.pass_cost(self.store.num_documents, *rate),
      )
    if ffd:
      logging.warning(
        "%s: the packing of an epoch takes about %.2g GB beside the store; a"
        " reader makes the next one from half of an epoch on, and removes those"
        " it made when they are past.",
        self._path,
        5e-9 * self.store.num_documents,
      )

  def _rows_of_epoch(self, epoch: int) -> int:
    if self.options.packing_algorithm == "ffd" and epoch:
      # What is left of a packing that was removed; the first never is.
      key = self._index_key(self._order_epoch(epoch))
      kept = side_index.find(self.store.path, "ffd_rows", key)
      if kept is not None:
        return int(kept["rows"].read()[0])
    elif self.options.shuffle_documents == "full" and epoch:
      # A pass over all documents for each epoch before the one at hand.
      key = self._packing_key(self._order_epoch(epoch))
      return int(
        self._documents.derived(
          "exact_rows", key, lambda: {"rows": self.row_starts(epoch)[-1:]}
        )["rows"][0]
      )
    return int(self.row_starts(epoch)[-1])

  def _most_epochs(self) -> int:
    """Returns how many epochs of differing orders may be counted."""
    if self.options.packing_algorithm == "ffd":
      work, epochs = self.store.num_documents, 10**9
    else:
      work, epochs = self._documents.order.num_blocks, 10**10
    if self.options.shuffle_documents == "full":
      work = self.store.num_documents
    return min(max(epochs // work, 64), 10_000)

  def _order_epoch(self, epoch: int) -> int:
    return epoch if self.options.orders_differ else 0

  def _plan(self, epoch: np.ndarray, index: np.ndarray) -> spans_lib.Spans:
    """Plans rows whose epochs pack documents in one order."""
    order = self._order_epoch(int(epoch[0])) if len(epoch) else 0
    window, row = self._packed_at(epoch, index, order)
    if self.options.orders_differ and len(index):
      num_rows = int(self.row_starts(order)[-1])
      self._ahead.reached(order, int(index[-1]), num_rows)
    return self._windows.plan(window, row, order)

  def _packed_at(
    self, epoch: np.ndarray, index: np.ndarray, order: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the windows of rows, and which packed rows of them they are."""
    starts = self.row_starts(order)
    window = np.searchsorted(starts, index, side="right") - 1
    row = index - starts[window]
    size = starts[window + 1] - starts[window]
    return window, self._shuffled(row, window, epoch, size)

  def _shuffled(
    self,
    row: np.ndarray,
    window: np.ndarray | int,
    epoch: np.ndarray | int,
    num_rows: np.ndarray | int,
  ) -> np.ndarray:
    """Returns which packed rows stand at rows of their windows."""
    if not self.options.shuffle_rows:
      return row
    keys = hashing.fold(self._row_key, np.asarray(epoch))
    keys = hashing.fold(keys, np.asarray(window))
    return permutation.permute(row, num_rows, keys)

  def _pack(self, kept: np.ndarray, window: int, order: int) -> packing.Rows:
    """Packs documents of so many tokens, or takes their rows from the index."""
    return packing.filled_rows(*self._bins(kept, window, order), self.seq_len)

  def _bins(
    self, kept: np.ndarray, window: int, order: int
  ) -> tuple[packing.Pieces, np.ndarray, int]:
    """Returns pieces, the row of each (-1: it is cut), and how many there are.

    Args:
      kept: int64[D], the tokens of a window's documents.
      window: The window.
      order: The epoch whose order of documents is meant.
    """
    pieces = packing.cut_pieces(kept, self.seq_len)
    exact = self.options.packing_algorithm == "exact"
    index = self._index_if_there(order) if exact else self._index(order)
    if index is None:
      self._ahead.packed_here(order, len(kept))
      return pieces, *packing.exact_bins(pieces, self.seq_len)
    rows = int(index["rows"].read(window, window + 1)[0])
    ends = index["piece_ends"]
    first = int(ends.read(window - 1, window)[0]) if window else 0
    found = index["bins"].read(first, int(ends.read(window, window + 1)[0]))
    # What found no room is kept as 2**32 - 1.
    bins = found.view(np.int32).astype(np.int64)
    length, held = pieces.length, np.empty(0)
    if len(bins) == len(length) and bins.max(initial=0) <= rows:
      placed = np.flatnonzero(bins >= 0) if exact else slice(None)
      with contextlib.suppress(ValueError):  # Of what is below 0.
        held = np.bincount(bins[placed], length[placed], rows)
    whole = not exact or rows == -(-int(length.sum()) // self.seq_len)
    fit = np.all((held > 0) & (held <= self.seq_len))
    if len(held) != rows or not (fit and whole):
      raise stores.StoreError(
        f"{index['bins'].path}: window {window} must pack {len(length)}"
        f" pieces into {rows} rows of {self.seq_len}, but does not. Remove"
        f" {index['bins'].path.parent}: it is built again."
      )
    return pieces, bins, rows

  def _index(self, order: int) -> dict[str, side_index.SideArray]:
    """Returns the index of an order of documents, packed if it is not there."""
    found = self._indexes.get(order)
    return self._held(order, found or self.packed_on_disk(order))

  def _index_if_there(
    self, order: int
  ) -> dict[str, side_index.SideArray] | None:
    """Returns the index of an order of documents, or None."""
    found = self._indexes.get(order) or self._found(order)
    return None if found is None else self._held(order, found)

  def _held(
    self, order: int, index: dict[str, side_index.SideArray]
  ) -> dict[str, side_index.SideArray]:
    if order not in self._indexes:
      # Of the epoch at hand and the one before; maps are files held open.
      kept = sorted(self._indexes.items())[-1:]
      self._indexes = {**dict(kept), order: index}
    return index

  def packed_on_disk(
    self, order: int, ahead: bool = False
  ) -> dict[str, side_index.SideArray]:
    """Opens the index of an order of documents, or makes it.

    Args:
      order: The epoch whose order of documents is meant.
      ahead: Whether nobody waits for it: it is made by one thread, shows no
        progress, and is left to another process that makes it.
    """
    algorithm, key = self.options.packing_algorithm, self._index_key(order)
    return side_index.load_or_build(
      self.store.path,
      algorithm,
      key,
      build_from=lambda done: self._packed(order, done, ahead),
      wait=not ahead,
      # Of an order that comes once nobody else has any use.
      share=not self.options.orders_differ,
    )

  def is_packed(self, order: int) -> bool:
    """Returns whether the index of an order is there."""
    return self._found(order) is not None

  def _found(self, order: int) -> dict[str, side_index.SideArray] | None:
    """Returns the index of an order as it is on disk, or None."""
    algorithm, key = self.options.packing_algorithm, self._index_key(order)
    return side_index.find(self.store.path, algorithm, key)

  def drop_packing(self, order: int) -> None:
    """Removes an order's index from disk; its number of rows stays."""
    algorithm, key = self.options.packing_algorithm, self._index_key(order)
    if algorithm == "ffd":
      rows = self.row_starts(order)[-1:]
      side_index.load_or_build(
        self.store.path, "ffd_rows", key, lambda: [{"rows": rows}]
      )
    side_index.drop(self.store.path, algorithm, key)

  def _index_key(self, order: int) -> dict[str, Any]:
    return {**self._documents.key(), **self._packing_key(order)}

  def _packing_key(self, order: int) -> dict[str, Any]:
    """Returns what decides packing in an order, lengths apart."""
    options, documents = self.options, self._documents.order
    how = [documents.kind, documents.block_docs, f"{self._order_key:016x}"]
    return {
      "version": _PACKING_VERSION,
      "packing_buffer_docs": options.packing_buffer_docs,
      "packing_max_docs_per_bin": options.packing_max_docs_per_bin,
      "order": None if documents.kind == "none" else [*how, order],
    }

  def _packed(
    self,
    order: int,
    done: Mapping[str, int],
    ahead: bool = False,
  ) -> Iterator[dict[str, np.ndarray]]:
    """Yields the index by some windows each; see `packed_on_disk`.

    Args:
      order: The epoch whose order of documents is meant.
      done: The sizes of arrays that are there: of the first windows.
      ahead: As in `packed_on_disk`.
    """
    began = time.monotonic()
    total = self.store.num_documents
    documents = self._documents.order
    windows = range(done.get("rows", 0), documents.num_windows)
    first = windows.start * documents.window_docs
    threads = 1
    if total >= _COMPILED_DOCUMENTS and compiled.wait() and not ahead:
      threads = num_threads()
    told = not ahead and total >= _BAR_DOCUMENTS
    if told and first:
      logging.info("%s: goes on after %d packed documents", self.name, first)
    pieces = done.get("bins", 0)
    with side_index.progress(
      total, f"{self.name}: packing", "docs", told, first
    ) as bar:
      for own, packed in packed_windows.packed_ahead(
        self._packed_window, self._kept_of(windows, order), threads
      ):
        bins, rows, spans = zip(*packed, strict=True)
        ends = pieces + np.cumsum([len(each) for each in bins])
        pieces = int(ends[-1])
        part = {
          "rows": np.asarray(rows, np.int64),
          "piece_ends": ends,
          "bins": np.concatenate(bins).astype(np.uint32),
        }
        if self.options.packing_algorithm == "exact":
          part["spans"] = np.asarray(spans, np.int64)
        yield part
        bar.update(int(documents.window_sizes(own).sum()))
    if told:
      logging.info(
        "%s: packed %d documents in %.1f s, with %d threads",
        self.name,
        total - first,
        time.monotonic() - began,
        threads,
      )

  def _kept_of(
    self, windows: range, order: int
  ) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
    """Yields some windows, and the tokens of the documents of each."""
    for low in range(windows.start, windows.stop, _WINDOWS):
      background.check()
      own = np.arange(low, min(low + _WINDOWS, windows.stop))
      contents = self._documents.contents(own, order)
      edges = np.searchsorted(contents.window, np.arange(1, len(own)))
      yield own, np.split(contents.kept, edges)

  def _packed_window(self, kept: np.ndarray) -> tuple[np.ndarray, int, int]:
    """Returns the row of each piece of a window, all rows, and all spans."""
    pieces = packing.cut_pieces(kept, self.seq_len)
    if self.options.packing_algorithm == "ffd":
      bins, rows = packing.first_fit_decreasing(
        pieces.length, self.seq_len, self.options.packing_max_docs_per_bin
      )
      return bins, rows, len(bins)
    bins, rows = packing.exact_bins(pieces, self.seq_len)
    parts = packing.filled_parts(pieces, bins, rows, self.seq_len)
    return bins, rows, int(parts.sum())


def num_threads() -> int:
  """Returns how many threads may pack: the cores of this process."""
  if hasattr(os, "sched_getaffinity"):  # Not everywhere.
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


class _Ahead:
  """Packs in a thread what a reader comes to, so that none waits for it."""

  def __init__(self, source: BinSource):
    self._source = source
    self._begun = -1
    # Documents that the reader had to pack itself.
    self._here = 0
    # By this process, and not removed.
    self._packed: list[int] = []
    self._summing = False
    self._threads: list[background.Thread] = []

  def __reduce__(self) -> tuple[Any, ...]:
    return _Ahead, (self._source,)

  def reached(self, epoch: int, row: int, num_rows: int) -> None:
    """Hears where a reader is, and begins with the next epoch in time."""
    following, most = epoch + 1, self._source.expected_passes
    if (
      # Of 'exact' nobody waits for more than some windows.
      self._source.options.packing_algorithm == "ffd"
      and row >= _AHEAD_FROM * num_rows
      and (most is None or following < most)
    ):
      self._begin(following)

  def packed_here(self, order: int, documents: int) -> None:
    """Hears what a reader packed itself, and begins where it is much."""
    self._here += documents
    if self._here > _PACKED_HERE:
      self._begin(order)

  def sums_wanted(self, order: int) -> None:
    """Hears that what rows of a packing hold is not kept, and sums it."""
    if not self._summing:
      self._start(self._source.summed_on_disk, order)
      self._summing = True

  def _begin(self, order: int) -> None:
    if order <= self._begun:
      return
    self._start(self._pack, order)
    self._begun, self._here = order, 0

  def _start(self, work: Callable[[int], object], order: int) -> None:
    thread = background.Thread(
      functools.partial(self._run, work, order), "packing ahead"
    )
    self._threads = [own for own in self._threads if own.is_alive()]
    self._threads.append(thread)
    thread.start()

  def wait(self) -> None:
    """Waits for what was begun."""
    for thread in self._threads:
      thread.join()

  def _run(self, work: Callable[[int], object], order: int) -> None:
    try:
      work(order)
    except background.Stopped:
      # Another reader of this source may come to it.
      self._begun, self._summing = min(self._begun, order - 1), False
      raise
    except side_index.BusyError:
      pass
    except Exception:  # Whoever reads the epoch meets it too, and says it.
      logging.debug("epoch %d is not made ahead", order, exc_info=True)

  def _pack(self, epoch: int) -> None:
    source = self._source
    exact = source.options.packing_algorithm == "exact"
    many = source.store.num_documents >= _COMPILED_DOCUMENTS
    # Nobody waits for it, and Python would pack for minutes beside who reads
    # and who trains.
    if exact and many and not compiled.wait():
      return
    if not source.is_packed(epoch):
      source.packed_on_disk(epoch, ahead=True)
      self._packed.append(epoch)
    if self._packed and self._packed[0] < epoch - 1:
      source.drop_packing(self._packed.pop(0))
