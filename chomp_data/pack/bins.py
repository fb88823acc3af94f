# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Bin packing: whole documents in rows, packed by windows.

`window_packing` assigns the documents of each window to rows; this module makes
a row source of them.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any
from typing import ClassVar

from absl import logging
import numpy as np

from chomp_data import schema
from chomp_data.index import hashing
from chomp_data.index import integers
from chomp_data.index import intervals
from chomp_data.index import memo
from chomp_data.index import permutation
from chomp_data.index import ragged
from chomp_data.pack import background_packer
from chomp_data.pack import epoch_starts
from chomp_data.pack import fill_in_the_middle
from chomp_data.pack import packed_source
from chomp_data.pack import pairs
from chomp_data.pack import window_packing
from chomp_data.pack.packing_options import BinOptions
from chomp_data.rows import row_layout
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import epochs as epochs_lib
from chomp_data.sources import mix_units
from chomp_data.sources import row_source

# Documents per second that are packed, and of which only lengths are summed;
# low estimates, for messages only.
_PACKING_RATE = 4e5
_PASS_RATE = 5e6
_SAMPLED_WINDOWS = 4
# Part of an epoch after which the next one is packed in the background.
_AHEAD_FROM = 0.5
# From here on, 'exact' packings are indexed where rows are read in a full
# order: windows of smaller stores can be expected to stay in memory.
INDEXED_DOCUMENTS = 1 << 16


@dataclasses.dataclass(frozen=True)
class PackingReport:
  """The result of packing an epoch.

  Attributes:
    rows: Rows of the first epoch.
    tokens: Tokens in them, added ones included.
    documents: Documents of the store.
    empty: Documents without tokens, which are skipped.
    long: Documents longer than a row.
    lost: Tokens that `long_documents` truncates or drops.
    cut: Documents with a piece that fits in a row but was cut, counted in a
      few windows (always 0 for 'ffd').
    looked_at: Documents of those windows.
    seq_len: Positions of a row.
    dropped: Pairs that `long_pairs` drops, where documents are pairs.
    pairs: Whether documents are preference pairs.
  """

  rows: int
  tokens: int
  documents: int
  empty: int
  long: int
  lost: int
  cut: int
  looked_at: int
  seq_len: int
  dropped: int = 0
  pairs: bool = False

  @property
  def utilisation(self) -> float:
    """Share of positions that hold a token."""
    return self.tokens / (self.rows * self.seq_len)

  @property
  def padding(self) -> float:
    """Share of positions that are padding."""
    return 1 - self.utilisation

  def lines(self, options: BinOptions) -> list[str]:
    """Returns the report as two indented lines of text."""
    cut = ""
    if options.packing_algorithm == "exact":
      cut = (
        f", {self.cut} of the first {self.looked_at} documents cut to fill rows"
      )
    lost = f", {self.lost} tokens lost" if self.lost else ""
    what, policy = "documents", options.long_documents
    if self.pairs:
      what, policy = "pairs", options.long_pairs
      lost = f", {self.dropped} dropped{lost}" if self.long else ""
    return [
      f"  {self.documents} {what} ({self.empty} empty, skipped; {self.long}"
      f" longer than a row: {policy}{lost}), {self.tokens} tokens{cut}",
      f"  utilisation {self.utilisation:.4%}, padding {self.padding:.4%}",
    ]


class BinSource(packed_source.PackedSource):
  """Rows of whole documents, packed by windows."""

  kind: str = "bin"

  option_classes: ClassVar[tuple[type[schema.Options], ...]] = (BinOptions,)
  takes_pairs = True

  def _windows(self) -> tuple[int, int]:
    window_docs = self.options.packing_buffer_docs
    if self.options.shuffle_documents == "block":
      return window_docs, self.options.window_block()
    return window_docs, window_docs

  def _open(self, seq_len: int, path: str) -> None:
    options = self.options
    problems = pairs.problems(options, self.store, path)
    if problems:
      raise schema.ConfigError(problems)
    super()._open(seq_len, path)
    if self.store.opened.pairs:
      options = dataclasses.replace(
        options, packing_max_docs_per_bin=pairs.most_pairs(options)
      )
    self.packing: window_packing.WindowPacking = window_packing.WindowPacking(
      self._documents, options, seq_len=seq_len, order_key=self._order_key
    )
    limit = self.options.packing_max_docs_per_bin
    # Of pairs each has two slots, whatever their limit.
    if limit is not None and not self.store.opened.pairs:
      self.document_slots: int = min(limit, seq_len)
    self._row_key = hashing.fold_key(self._seed, self.name, "rows")
    self._middles = None
    if options.fim is not None:
      self.layout: row_layout.RowLayout = dataclasses.replace(
        self.layout,
        sentinel_ids=options.fim.sentinel_ids,
        train_sentinels=options.fim.train_sentinels,
      )
      # Parts of a rearranged document are spans of one row.
      self.one_span_per_document: bool = False
      self._middles = fill_in_the_middle.FillInTheMiddle(
        options.fim,
        self._documents,
        self.layout,
        key=hashing.fold_key(self._seed, self.name, "fim"),
        path=f"{path}.fim",
      )
    self.background: background_packer.BackgroundPacker = (
      background_packer.BackgroundPacker(self.packing)
    )
    self._warn_of_cost(path)
    if self._shares_row_sums:
      self.packing.in_order(0).find_shared_sums()
    # The arguments of `prepare`; None while rows are only planned.
    self._reader: tuple[int | None, bool] | None = None
    self._num_rows = self.packing.num_rows(0)
    self._epochs: epochs_lib.Epochs = epochs_lib.EqualEpochs(self._num_rows)
    if options.orders_differ:
      self._epochs = epoch_starts.EpochStarts(
        self.packing.num_rows, self._most_epochs(), path
      )

  def __len__(self) -> int:
    return self._num_rows

  @property
  def epochs(self) -> epochs_lib.Epochs:
    """The rows of epochs; they differ where each packs documents again."""
    return self._epochs

  @schema.arguments(**row_source.PREPARE_RULES)
  def prepare(self, max_epochs: int | None, full_order: bool = False) -> None:
    """Packs in the background what a reader needs next, while it plans."""
    self._reader = max_epochs, full_order

  def blocks(self, epoch: int) -> np.ndarray:
    """Returns int64[num_windows + 1], the first row of each packing window."""
    epoch = integers.whole("epoch", epoch)
    return self._packed(epoch).row_starts

  @property
  def repeating_units(self) -> Mapping[str, int]:
    """The first epoch from which on all consume the same, by unit."""
    # 'ffd' cuts a document at multiples of seq_len in every epoch; where
    # 'exact' cuts it depends on the other documents of its window.
    if self.options.orders_differ and self.packing.exact:
      return {"tokens": 0}
    units = {"tokens": 0, "loss_tokens": 0}
    # Rearranged pieces are several spans, and others in each epoch.
    return units if self.options.fim else {**units, "spans": 0, "cuts": 0}

  @row_source.checks_documents
  def rows_of(
    self, documents: np.ndarray | int, epoch: int
  ) -> intervals.Intervals:
    """Returns the rows of an epoch that hold pieces of some documents."""
    packed, parts = self._packed(epoch), [np.empty(0, np.int64)]
    windows, slots = np.divmod(
      packed.documents.positions(self._documents.units(np.asarray(documents))),
      self._documents.order.window_docs,
    )
    for window, pick in ragged.by_value(windows):
      row = packed.rows_with(slots[pick], window)
      first_row, end_row = packed.row_starts[window : window + 2]
      if self.options.shuffle_rows:
        key = self._row_keys(epoch, window)
        row = permutation.inverse(row, int(end_row - first_row), key)
      parts.append(first_row + row)
    rows = np.concatenate(parts)
    return intervals.merged(rows, rows + 1)

  @schema.arguments(**mix_units.BLOCK_RULES)
  def block_units(
    self, epoch: int, unit: str, rows: int | None
  ) -> mix_units.BlockUnits | None:
    """Returns the units that the rows of each packing window consume.

    Trained tokens are tokens minus spans; where the store has labels, they are
    counted once for each order of documents.
    """
    trained = unit == "loss_tokens"
    if (
      rows == 0
      or unit not in ("tokens", "loss_tokens")
      or (trained and self.packing.exact and self.options.orders_differ)
    ):
      return super().block_units(epoch, unit, rows)
    packed = self._packed(epoch)
    if trained and not self.store.labels.trains_on_all:
      units = self._labelled_tokens(self._order_epoch(epoch))
      return mix_units.BlockUnits(packed.row_starts, units)
    # Rows within a block are needed next. Building their sums here keeps it
    # out of the time in which steps are read.
    packed.stored_sums()
    units = packed.documents.window_tokens
    if trained:
      units = units - packed.num_spans()
    return mix_units.BlockUnits(packed.row_starts, units)

  @memo.remembered(packed_source.COUNTS_CACHED)
  def _labelled_tokens(self, order: int) -> np.ndarray:
    """Returns int64[num_windows], the trained tokens of each window."""
    starts = self.packing.in_order(order).row_starts
    arrays = self._documents.load_or_build(
      "trained",
      self.packing.key(order),
      lambda: {"trained_ends": np.cumsum(self._trained_tokens(starts, order))},
    )
    return np.diff(arrays["trained_ends"].read(), prepend=0)

  @schema.arguments(**mix_units.UNITS_RULES)
  def units(self, epoch: int, positions: np.ndarray, unit: str) -> np.ndarray:
    """Returns the units that rows of an epoch consume, without their spans."""
    trained = unit == "loss_tokens" and self.store.labels.trains_on_all
    if unit != "tokens" and not trained:
      return super().units(epoch, positions, unit)
    packed = self._packed(epoch)
    window, row = self._packed_at(np.asarray(epoch), positions, packed)
    tokens, spans = packed.row_sums(window, row)
    return tokens - spans if trained else tokens

  def report(self) -> PackingReport:
    """Returns utilisation, padding and cut documents of the first epoch.

    With 'exact' a few windows are packed to see how many documents they cut.
    """
    totals = self._documents.totals
    cut, looked_at = 0, totals.documents
    if self.packing.exact:
      order = self._documents.order
      windows = np.arange(min(_SAMPLED_WINDOWS, order.num_windows))
      looked_at = int(order.window_sizes(windows).sum())
      packed = self._packed(0)
      cut = sum(packed.num_cut(window) for window in windows.tolist())
    return PackingReport(
      rows=len(self),
      tokens=totals.tokens,
      documents=totals.documents,
      empty=totals.empty,
      long=totals.long,
      lost=totals.lost,
      cut=cut,
      looked_at=looked_at,
      seq_len=self.seq_len,
      dropped=totals.dropped,
      pairs=self.store.opened.pairs,
    )

  @property
  def fingerprint(self) -> dict[str, Any]:
    """What determines this source's rows, as JSON values."""
    version = window_packing.PACKING_VERSION
    return {**super().fingerprint, "packing_version": version}

  def describe(self) -> str:
    """Returns the summary for the log: windows, utilisation, what was cut."""
    return "\n".join(
      [
        f"[{self.name}] bin: {self.options.packing_algorithm} over"
        f" {self._documents.order.num_windows} windows of"
        f" {self.options.packing_buffer_docs}"
        f" {'pairs' if self.store.opened.pairs else 'documents'}, {len(self)}"
        " rows per epoch",
        *self.report().lines(self.options),
        *self._middle_lines(),
      ]
    )

  def _middle_lines(self) -> list[str]:
    """Returns a line on how much fill in the middle can rearrange."""
    options, totals = self.options, self._documents.totals
    if options.fim is None:
      return []
    # Of documents longer than a row, those that are cut have one piece or more
    # as long as a row allows and then their end, which may be as long; those
    # that are truncated have one such piece, and those that are dropped none.
    most, policy = self.seq_len - options.reserved, options.long_documents
    tokens = totals.tokens
    if policy != "drop":
      tokens -= totals.long * most
    is_bound = policy == "cut" and totals.long > 0
    if is_bound:
      tokens = min(tokens, (totals.documents - totals.empty) * most)
    share = tokens / max(1, totals.tokens)
    return [
      f"  fim: rate {options.fim.rate} of the pieces with their document's end,"
      f" which hold {'at most ' * is_bound}{share:.1%} of the tokens"
    ]

  def _warn_of_cost(self, path: str) -> None:
    """Warns about options that take a pass over all documents per epoch."""
    if not self.options.orders_differ:
      return
    ffd = self.options.packing_algorithm == "ffd"
    if ffd or self.options.shuffle_documents == "full":
      logging.warning(
        "%s: shuffle_documents=%r with packing_algorithm=%r costs %s;"
        " reshuffle_documents=False or 'block' with 'exact' does not.",
        path,
        self.options.shuffle_documents,
        self.options.packing_algorithm,
        self._pass_cost(_PACKING_RATE if ffd else _PASS_RATE),
      )
    if ffd:
      logging.warning(
        "%s: the packing of an epoch takes about %.2g GB beside the store; a"
        " reader packs the next epoch from half of one on, and removes the"
        " packings that it wrote once their epochs are over.",
        path,
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

  def _plan(
    self, epoch: np.ndarray, index: np.ndarray, order: int
  ) -> spans_lib.Spans:
    packed = self.packing.in_order(order)
    window, row = self._packed_at(epoch, index, packed)
    if len(index) and self._reader is not None:
      self._pack_ahead(order, int(index[-1]), *self._reader)
    spans = packed.plan(window, row)
    if self._middles is None:
      return spans
    return self._middles.rearranged(spans, epoch)

  def _pack_ahead(
    self, order: int, row: int, max_epochs: int | None, full_order: bool
  ) -> None:
    """Starts to pack in the background what the reader of a row needs next."""
    if self.packing.exact:
      if full_order and self.store.num_documents >= INDEXED_DOCUMENTS:
        self.background.request(order)
      elif self._shares_row_sums:
        self.background.request(order, sums_only=True)
    elif self.options.orders_differ:
      num_rows = int(self.packing.in_order(order).row_starts[-1])
      if row >= _AHEAD_FROM * num_rows and (
        max_epochs is None or order + 1 < max_epochs
      ):
        self.background.request(order + 1)

  def _packed(self, epoch: int) -> window_packing.PackedOrder:
    """Returns the packed windows of the order that an epoch uses."""
    return self.packing.in_order(self._order_epoch(epoch))

  @property
  def _shares_row_sums(self) -> bool:
    """Whether what packed rows hold is kept for other hosts of the run.

    A mix asks what the rows of all hosts hold, and each host would pack their
    windows: with 200 sources in a bucket, 12 of each before the first batch.
    """
    return (
      self.packing.exact
      and not self.options.orders_differ
      and self.store.opened.is_remote
      and self.store.num_documents >= INDEXED_DOCUMENTS
    )

  def _packed_at(
    self,
    epoch: np.ndarray,
    index: np.ndarray,
    packed: window_packing.PackedOrder,
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns each row's window and packed row there, int64[N] each."""
    starts = packed.row_starts
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
