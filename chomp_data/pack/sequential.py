# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Sequential packing: one stream of documents, cut every seq_len tokens.

Row n of an epoch holds tokens n * seq_len .. (n + 1) * seq_len - 1 of the
stream, wherever documents begin, so that a binary search in prefix sums of
lengths finds the documents of any row.
"""

from collections.abc import Collection
import dataclasses
import os
from typing import Any

from absl import logging
import numpy as np

from chomp_data import schema
from chomp_data import stores
from chomp_data.index import hashing
from chomp_data.index import intervals
from chomp_data.index import memo
from chomp_data.index import ragged
from chomp_data.pack import document_order
from chomp_data.pack import documents as documents_lib
from chomp_data.pack import packed_layout
from chomp_data.pack import packing_options
from chomp_data.pack.packing_options import SequentialOptions
from chomp_data.rows import row_layout
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import row_source
from chomp_data.sources import row_units
from chomp_data.sources import shared_options as options_lib
from chomp_data.stores import side_index

_PASS_ROWS = 4_096
# Below this a pass over all rows takes under a tenth of a second.
_MANY_ROWS = 100_000
# Epochs and sizes of blocks whose counts are in memory.
_COUNTS_CACHED = 2
# Documents per window in the store's own order: those searched for the first
# one of a row. There is one sum of 8 bytes per window.
_STORED_WINDOW = 16
_WINDOW_BLOCKS = 8


class SequentialSource(row_source.RowSource):
  """Rows cut from one stream of tokens."""

  @options_lib.source_arguments(SequentialOptions)
  def __init__(
    self,
    store: stores.Store | str | os.PathLike[str],
    options: SequentialOptions,
    *,
    seq_len: int,
    seed: int = 0,
    name: str = "sequential",
    path: str = "rows",
  ):
    """Sums document lengths, or opens stored sums; reads no token.

    Args:
      store: Where the documents are; a path is opened with `open_store`.
      options: Added tokens, order and tail.
      seq_len: Positions of a row, at least 2.
      seed: The run's seed, which orders documents.
      name: The source's name; its seeds depend on it.
      path: Dotted path of the options, for messages.

    Raises:
      TypeError: If an argument is of a wrong type.
      ConfigError: If options do not fit the store.
    """
    assert isinstance(store, stores.Store)
    options_lib.raise_problems(options, seq_len, path)
    self.name = name
    self.store = store
    self.options = options
    self._seed = seed
    self.one_span: bool = True
    self.spans_repeat: bool = not options.orders_differ
    self.layout: row_layout.RowLayout = packed_layout.packed_layout(
      store, options, seq_len, path
    )
    self.document_slots: int = min(options.document_slots, seq_len)
    self.documents_follow: bool = not (
      options.add_bos or options.add_eos or options.shuffle_documents != "none"
    )
    block = options.document_block or packing_options.DEFAULT_BLOCK
    stored = options.shuffle_documents == "none"
    self._order_key = hashing.fold_key(seed, name, "documents")
    self._documents = documents_lib.Documents(
      store,
      document_order.DocumentOrder(
        store.num_documents,
        window_docs=_STORED_WINDOW if stored else _WINDOW_BLOCKS * block,
        block_docs=_STORED_WINDOW if stored else block,
        kind=options.shuffle_documents,
        key=self._order_key,
      ),
      seq_len=seq_len,
      add_bos=options.add_bos,
      add_eos=options.add_eos,
      name=name,
    )
    self._num_tokens = self._documents.totals.tokens
    whole_documents = not store.holds_pieces
    if whole_documents and self._num_tokens < seq_len:
      raise schema.ConfigError(
        [
          "`config.data.seq_len` must be at most the tokens of"
          f" {store.path}, got {seq_len} with {self._num_tokens} tokens. Lower"
          " it, or prepare more text."
        ]
      )
    if options.orders_differ and options.shuffle_documents == "full":
      logging.warning(
        "%s: shuffle_documents='full' costs %s; 'block' does not.",
        path,
        documents_lib.pass_cost(store.num_documents),
      )
    self._counts = memo.Memo(_COUNTS_CACHED)

  def __len__(self) -> int:
    whole_rows, tail_tokens = divmod(self._num_tokens, self.seq_len)
    return whole_rows + (tail_tokens > 0 and self.options.tail == "pad")

  @property
  def tail_tokens(self) -> int:
    """Tokens of the last row if it holds filler as well, else 0."""
    num_tokens = self._num_tokens % self.seq_len
    return num_tokens if self.options.tail == "pad" else 0

  @property
  def repeating_units(self) -> Collection[str]:
    """Units of which every epoch consumes the same number."""
    if self.options.orders_differ:
      return ("tokens",)
    return "tokens", "loss_tokens"

  @row_units.uniform_arguments
  def uniform(self, epoch: int, unit: str) -> row_units.Uniform | None:
    """Returns the tokens of full rows and of the tail; None of other units.

    Args:
      epoch: The epoch, from 0.
      unit: What is counted, such as "tokens".
    """
    if unit != "tokens":
      return super().uniform(epoch, unit)
    tail = self.tail_tokens
    return row_units.Uniform(
      self.seq_len, {len(self) - 1: tail} if tail else {}
    )

  @row_units.block_arguments
  def block_units(
    self, epoch: int, unit: str, rows: int | None
  ) -> row_units.BlockUnits | None:
    """Returns the trained tokens of blocks of rows.

    A row has one span at its first column, and one for each document that
    begins inside it; the first token of a span is not trained on. Spans are
    counted in a pass over lengths; where the store has labels, trained tokens
    are counted in a pass over these. Where each epoch has its own order of
    documents, only the sum of a whole epoch is counted.

    Args:
      epoch: The epoch, from 0.
      unit: What is counted.
      rows: Rows of a block; None if only the sum of all blocks is needed.

    Returns:
      The units of each block, or None if they are not known.
    """
    labelled = not self.store.trains_on_all
    differ = self.options.orders_differ
    if unit != "loss_tokens" or (differ and (labelled or rows is not None)):
      return super().block_units(epoch, unit, rows)
    order = epoch if differ else 0
    rows = rows or (len(self) if differ else row_units.BLOCK_ROWS)
    counts = self._counts.get(
      (order, rows), lambda: self._count(rows, order, labelled)
    )
    starts = row_units.every(rows, len(self))
    if labelled:
      return row_units.BlockUnits(starts, counts)
    tokens = np.minimum(starts * self.seq_len, self._num_tokens)
    return row_units.BlockUnits(starts, np.diff(tokens - starts) - counts)

  @row_source.checks_document
  def rows_of(self, document: int, epoch: int) -> intervals.Intervals:
    """Returns the rows of an epoch that hold tokens of a document.

    Args:
      document: The document.
      epoch: The epoch, from 0.
    """
    num_tokens = self._documents.num_kept(document)
    first_row = end_row = 0
    if num_tokens:
      order = epoch if self.options.orders_differ else 0
      begin = self._documents.tokens_before(document, order)
      first_row = begin // self.seq_len
      end_row = min((begin + num_tokens - 1) // self.seq_len + 1, len(self))
    return intervals.merged(
      np.asarray([first_row]), np.asarray([max(first_row, end_row)])
    )

  def _count(self, every: int, epoch: int, labelled: bool) -> np.ndarray:
    """Counts the trained tokens of blocks, or the documents that begin in them.

    Args:
      every: Rows of a block.
      epoch: The epoch whose order of documents is used, from 0.
      labelled: Whether labels say which tokens are trained on. If not, all
        are, and the documents that begin inside rows are counted.
    """
    options, documents = self.options, self._documents.order
    stored = options.shuffle_documents == "none"
    order_options = [
      documents.kind,
      documents.block_docs,
      documents.window_docs,
    ]
    order = None if stored else [*order_options, f"{self._order_key:016x}"]
    key = {"every": every, "num_rows": len(self), "order": order}
    if labelled:
      return self._documents.derived(
        "trained", key, lambda: self._count_trained(every)
      )["trained"]
    if options.orders_differ:
      # Each order is used in one epoch: nothing is written to disk.
      return self._documents.count_begins(every, len(self), epoch)
    return self._documents.derived(
      "begins",
      key,
      lambda: {"begins": self._documents.count_begins(every, len(self), epoch)},
    )["begins"]

  def _count_trained(self, every: int) -> dict[str, np.ndarray]:
    """Counts the trained tokens of blocks of `every` rows."""
    trained = np.zeros(-(-len(self) // every), np.int64)
    with side_index.progress(
      len(self), f"{self.name}: labels", "rows", len(self) >= _MANY_ROWS
    ) as bar:
      for first_row in range(0, len(self), _PASS_ROWS):
        row = np.arange(first_row, min(first_row + _PASS_ROWS, len(self)))
        spans = self._plan(row, 0)
        units = row_units.planned_units(spans, "loss_tokens", self.store)
        np.add.at(trained, row // every, units)
        bar.update(len(row))
    return {"trained": trained}

  def plan(self, rows: np.ndarray) -> spans_lib.Spans:
    """Returns the spans of rows.

    Args:
      rows: int64[N], row numbers over all epochs.
    """
    rows = row_source.checked_rows(rows)
    epoch, index = self.epochs.locate(rows)
    if not self.options.orders_differ:
      return self._plan(index, 0)
    epochs, epoch_index = np.unique(epoch, return_inverse=True)
    if len(epochs) <= 1:
      return self._plan(index, int(epochs[0]) if len(epochs) else 0)
    picks = [np.flatnonzero(epoch_index == i) for i in range(len(epochs))]
    parts = [
      self._plan(index[pick], int(e))
      for e, pick in zip(epochs, picks, strict=True)
    ]
    return spans_lib.merged(parts, picks)

  @property
  def fingerprint(self) -> dict[str, Any]:
    """What determines this source's rows, as JSON values."""
    return {
      "store": self.store.hash,
      "seq_len": self.seq_len,
      "seed": self._seed,
      "kind": "sequential",
      "rows": dataclasses.asdict(self.options),
      "filler_id": self.layout.filler_id,
      "bos_id": self.layout.bos_id,
      "eos_id": self.layout.eos_id,
    }

  def describe(self) -> str:
    """Returns the summary for the log: documents, tokens, tail."""
    totals = self._documents.totals
    tail_tokens = self._num_tokens % self.seq_len
    tail = (
      "none"
      if not tail_tokens
      else f"{tail_tokens} tokens ({self.options.tail})"
    )
    return (
      f"[{self.name}] sequential: {totals.documents} documents"
      f" ({totals.empty} empty, skipped), {self._num_tokens} tokens,"
      f" {len(self)} rows an epoch, tail {tail}\n"
      f"  seq_len={self.seq_len} add_bos={self.options.add_bos}"
      f" add_eos={self.options.add_eos}"
      f" shuffle_documents={self.options.shuffle_documents}"
    )

  def _plan(self, index: np.ndarray, epoch: int) -> spans_lib.Spans:
    """Returns the spans of rows of one epoch.

    Args:
      index: int64[N], rows of the epoch.
      epoch: The epoch whose order of documents is used, from 0.
    """
    begin = index * self.seq_len
    end = np.minimum(begin + self.seq_len, self._num_tokens)
    starts = self._documents.window_starts(epoch)
    # Searching ascending keys takes a quarter of the time.
    order = np.argsort(begin)
    first_window, end_window = np.empty_like(begin), np.empty_like(begin)
    first_window[order] = starts.search(begin[order]) - 1
    # One more than the last window that begins before the row's end.
    end_window[order] = starts.search(end[order] - 1)
    # Sorting takes a tenth of the time of `np.unique`, which hashes.
    windows = np.sort(ragged.ranges(first_window, end_window - first_window))
    windows = windows[np.flatnonzero(np.diff(windows, prepend=-1))]
    contents = self._documents.contents(windows, epoch)
    # Where each document ends in the stream, from sums within its window.
    within = np.cumsum(contents.kept)
    opens = np.searchsorted(contents.window, np.arange(len(windows)))
    base = np.concatenate([[0], within])[opens]
    stream_end = within + np.repeat(
      starts.take(windows) - base, np.diff(np.append(opens, len(within)))
    )
    first_document, end_document = np.empty_like(begin), np.empty_like(begin)
    first_document[order] = np.searchsorted(
      stream_end, begin[order], side="right"
    )
    end_document[order] = (
      np.searchsorted(stream_end, end[order], side="left") + 1
    )
    count = end_document - first_document
    row, nth = ragged.elements(count)
    document_index = first_document[row] + nth
    opening = (stream_end - contents.kept)[document_index]
    part_begin = np.maximum(begin[row], opening)
    part_end = np.minimum(end[row], stream_end[document_index])
    return self._documents.spans_of(
      contents,
      document_index,
      part_begin - opening,
      part_end - opening,
      row=row,
      column=part_begin - begin[row],
      segment=nth + 1,
      num_rows=len(index),
    )
