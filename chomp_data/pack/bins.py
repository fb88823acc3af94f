# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Bin packing: whole documents in rows, packed by windows.

`window_packing` assigns the documents of each window to rows, `packed_windows`
caches the windows in use, and this module makes a row source of them.
"""

from collections.abc import Collection
import dataclasses
import itertools
import os
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
from chomp_data.pack import background_packer
from chomp_data.pack import document_order
from chomp_data.pack import documents as documents_lib
from chomp_data.pack import epoch_starts
from chomp_data.pack import packed_layout
from chomp_data.pack import packed_windows
from chomp_data.pack import packing_report
from chomp_data.pack import window_packing
from chomp_data.pack.packing_options import BinOptions
from chomp_data.rows import row_layout
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import epochs as epochs_lib
from chomp_data.sources import row_labels
from chomp_data.sources import row_source
from chomp_data.sources import row_units
from chomp_data.sources import shared_options as options_lib

# Documents packed per second, a low estimate; for messages only.
_PACKING_RATE = 4e5
_SAMPLED_WINDOWS = 4
# Orders whose trained tokens are in memory.
_TRAINED_ORDERS = 4
# Part of an epoch after which the next one is packed in the background.
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
    """Builds or opens the sums that random access needs; reads no token.

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
      StoreError: If no directory for the index is writable.
    """
    assert isinstance(store, stores.Store)
    options_lib.raise_problems(options, seq_len, path)
    self.name = name
    self.store = store
    self.options = options
    self._seed = seed
    self._path = path
    self.one_span: bool = True
    # 'ffd' cuts a document at multiples of seq_len in every epoch; where
    # 'exact' cuts it depends on the other documents of its window.
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
    self.packing: window_packing.WindowPacking = window_packing.WindowPacking(
      self._documents, options, seq_len=seq_len, order_key=self._order_key
    )
    self.background: background_packer.BackgroundPacker = (
      background_packer.BackgroundPacker(self.packing)
    )
    self._windows = packed_windows.PackedWindows(
      self._documents, self.packing.rows
    )
    self._trained = memo.Memo(_TRAINED_ORDERS)
    self._report_cost()
    self._epochs = epoch_starts.EpochStarts(
      self.packing.num_rows, self._most_epochs(), path
    )

  def __len__(self) -> int:
    return self._epochs.first_epoch_rows

  @property
  def epochs(self) -> epochs_lib.Epochs:
    """The rows of epochs; they differ where each packs documents again."""
    return self._epochs if self.options.orders_differ else super().epochs

  def blocks(self, epoch: int) -> np.ndarray:
    """Returns int64[num_windows + 1], the first row of each packing window.

    Args:
      epoch: The epoch, from 0.
    """
    epoch = integers.whole("epoch", epoch)
    return self.packing.row_starts(self._order_epoch(epoch))

  @property
  def repeating_units(self) -> Collection[str]:
    """Units of which every epoch consumes the same number."""
    # 'ffd' cuts a document at the same tokens in every epoch.
    if self.options.orders_differ and self.packing.exact:
      return ("tokens",)
    return "tokens", "loss_tokens"

  @row_source.checks_document
  def rows_of(self, document: int, epoch: int) -> intervals.Intervals:
    """Returns the rows of an epoch that hold pieces of a document.

    Args:
      document: The document.
      epoch: The epoch, from 0.
    """
    if not self._documents.num_kept(document):
      return intervals.merged(np.empty(0, np.int64), np.empty(0, np.int64))
    order = self._order_epoch(epoch)
    window, contents, entry = self._documents.found(document, order)
    packed = self.packing.rows(contents.kept, window, order)
    piece = np.flatnonzero(packed.slot == entry)
    row = np.searchsorted(packed.first, piece, side="right") - 1
    if self.options.shuffle_rows:
      key = self._row_keys(epoch, window)
      row = permutation.inverse(row, packed.num_rows, key)
    rows = int(self.packing.row_starts(order)[window]) + row
    return intervals.merged(rows, rows + 1)

  @row_units.block_arguments
  def block_units(
    self, epoch: int, unit: str, rows: int | None
  ) -> row_units.BlockUnits | None:
    """Returns the units that the rows of each packing window consume.

    Trained tokens are tokens minus spans; where the store has labels, they are
    counted once for each order of documents.

    Args:
      epoch: The epoch, from 0.
      unit: What is counted, such as "tokens".
      rows: Not used, because packing windows are the blocks.

    Returns:
      The units of each block, or None if they are not known.
    """
    order = self._order_epoch(epoch)
    trained = unit == "loss_tokens"
    if unit not in ("tokens", "loss_tokens") or (
      trained and self.packing.exact and self.options.orders_differ
    ):
      return super().block_units(epoch, unit, rows)
    if trained and not self.store.trains_on_all:
      units = self._trained.get(order, lambda: self._trained_tokens(order))
    else:
      # Rows within a block are needed next. Building their sums here keeps it
      # out of the time in which steps are read.
      self.packing.row_sums(order)
      units = self._documents.window_tokens(order).astype(np.int64)
      if trained:
        units -= self.packing.num_spans(order)
    return row_units.BlockUnits(self.packing.row_starts(order), units)

  @row_units.units_arguments
  def units(self, epoch: int, positions: np.ndarray, unit: str) -> np.ndarray:
    """Returns the units that rows of an epoch consume, without their spans.

    Args:
      epoch: The epoch, from 0.
      positions: int64[N], rows of the epoch.
      unit: What is counted, such as "tokens".
    """
    trained = unit == "loss_tokens" and self.store.trains_on_all
    if unit != "tokens" and not trained:
      return super().units(epoch, positions, unit)
    order = self._order_epoch(epoch)
    window, row = self._packed_at(np.asarray(epoch), positions, order)
    sums = self.packing.row_sums(order)
    if sums is None:
      tokens, spans = self._windows.sums(window, row, order)
    else:
      row += self.packing.row_starts(order)[window]
      tokens, spans = sums["tokens"].take(row), sums["spans"].take(row)
    return tokens - spans if trained else tokens

  def _trained_tokens(self, order: int) -> np.ndarray:
    """Returns int64[num_windows], the trained tokens of each window."""
    documents = self._documents

    def build() -> dict[str, np.ndarray]:
      counts = np.zeros(documents.order.num_windows, np.int64)
      sizes = documents.order.window_sizes(np.arange(len(counts)))
      with documents_lib.progress(
        documents.order.num_documents, f"{self.name}: trained"
      ) as bar:
        for window, (contents, rows) in enumerate(self._windows.each(order)):
          spans = self._windows.spans(contents, rows, np.arange(rows.num_rows))
          trained = row_labels.trained_targets(spans, self.store)
          counts[window] = trained.sum()
          bar.update(int(sizes[window]))
      return {"trained_ends": np.cumsum(counts)}

    key = self.packing.key(order)
    ends = documents.derived("trained", key, build)["trained_ends"]
    return np.diff(ends, prepend=0)

  def plan(self, rows: np.ndarray) -> spans_lib.Spans:
    """Returns the spans of rows.

    Args:
      rows: int64[N], row numbers over all epochs.
    """
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
    if self.packing.exact:
      num_windows = self._documents.order.num_windows
      shown = np.arange(min(_SAMPLED_WINDOWS, num_windows))
      looked_at = int(self._documents.order.window_sizes(shown).sum())
      for _, rows in itertools.islice(self._windows.each(0), len(shown)):
        cut += rows.num_cut
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
    """What determines this source's rows, as JSON values."""
    return {
      "store": self.store.hash,
      "seq_len": self.seq_len,
      "seed": self._seed,
      "kind": "bin",
      "packing_version": window_packing.PACKING_VERSION,
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
    """Raises `ConfigError` if a row is longer than all packed tokens."""
    totals = self._documents.totals
    whole_documents = not self.store.holds_pieces
    if whole_documents and totals.tokens < self.seq_len:
      lost = f" ({totals.lost} more in long documents)" if totals.lost else ""
      raise schema.ConfigError(
        [
          "`config.data.seq_len` must be at most the tokens that"
          f" `{path}` packs, got {self.seq_len} with {totals.tokens}{lost}."
          " Lower it, or prepare more text."
        ]
      )

  def _report_cost(self) -> None:
    """Warns about options that take a pass over all documents per epoch."""
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

  def _most_epochs(self) -> int:
    """Returns the most epochs to count where each has its own order."""
    if self.options.packing_algorithm == "ffd":
      documents_per_epoch, countable_documents = self.store.num_documents, 10**9
    else:
      documents_per_epoch, countable_documents = (
        self._documents.order.num_blocks,
        10**10,
      )
    if self.options.shuffle_documents == "full":
      documents_per_epoch = self.store.num_documents
    return min(max(countable_documents // documents_per_epoch, 64), 10_000)

  def _order_epoch(self, epoch: int) -> int:
    """Returns the epoch whose order of documents an epoch uses."""
    return epoch if self.options.orders_differ else 0

  def _plan(self, epoch: np.ndarray, index: np.ndarray) -> spans_lib.Spans:
    """Returns the spans of rows whose epochs use one order of documents.

    Args:
      epoch: int64[N], the epoch of each row.
      index: int64[N], the row of that epoch.
    """
    order = self._order_epoch(int(epoch[0])) if len(epoch) else 0
    window, row = self._packed_at(epoch, index, order)
    if len(index) and self.expected_passes != 0:
      self._pack_ahead(order, int(index[-1]))
    return self._windows.plan(window, row, order)

  def _pack_ahead(self, order: int, row: int) -> None:
    """Starts to pack in the background what a reader needs next.

    Args:
      order: The epoch whose order of documents is read.
      row: A row of the epoch that is read.
    """
    if self.packing.exact:
      # Rows are read in random order, from more windows than are cached.
      if (
        self.full_order
        and self.store.num_documents > packed_windows.CACHED_PIECES
      ):
        self.background.request(order)
    elif self.options.orders_differ:
      num_rows = int(self.packing.row_starts(order)[-1])
      max_epochs = self.expected_passes
      if row >= _AHEAD_FROM * num_rows and (
        max_epochs is None or order + 1 < max_epochs
      ):
        self.background.request(order + 1)

  def _packed_at(
    self, epoch: np.ndarray, index: np.ndarray, order: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns (window, packed row of that window), int64[N] each.

    Args:
      epoch: int64[N], the epoch of each row; it determines the order of rows.
      index: int64[N], the row of that epoch.
      order: The epoch whose order of documents is used, from 0.
    """
    starts = self.packing.row_starts(order)
    window = np.searchsorted(starts, index, side="right") - 1
    row = index - starts[window]
    if self.options.shuffle_rows:
      size = starts[window + 1] - starts[window]
      row = permutation.permute(row, size, self._row_keys(epoch, window))
    return window, row

  def _row_keys(
    self, epoch: np.ndarray | int, window: np.ndarray | int
  ) -> np.ndarray:
    """Returns the keys of the orders of windows' rows, uint64[N]."""
    keys = hashing.fold(self._row_key, np.asarray(epoch))
    return hashing.fold(keys, np.asarray(window))
