# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Sequential packing: one stream of documents, cut every seq_len tokens.

Row n of an epoch holds tokens n * seq_len .. (n + 1) * seq_len - 1 of the
stream, wherever documents begin, so that a binary search in prefix sums of
lengths finds the documents of any row.
"""

from collections.abc import Mapping
from typing import ClassVar

from absl import logging
import numpy as np

from chomp_data import schema
from chomp_data.index import intervals
from chomp_data.index import memo
from chomp_data.index import ragged
from chomp_data.pack import documents as documents_lib
from chomp_data.pack import packed_source
from chomp_data.pack import packing_options
from chomp_data.pack.packing_options import SequentialOptions
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import mix_units
from chomp_data.sources import row_source

# Documents per window in the store's order; the first one of a row is searched
# for in them. There is one sum of 8 bytes per window.
_STORED_WINDOW = 16
_WINDOW_BLOCKS = 8
# Documents per second of a pass, a low estimate; for messages only.
_PASS_RATE = 5e6


class SequentialSource(packed_source.PackedSource):
  """Rows cut from one stream of tokens."""

  kind: str = "sequential"

  option_classes: ClassVar[tuple[type[schema.Options], ...]] = (
    SequentialOptions,
  )

  def _windows(self) -> tuple[int, int]:
    if self.options.in_stored_order:
      return _STORED_WINDOW, _STORED_WINDOW
    block = self.options.document_block or packing_options.DEFAULT_BLOCK
    return _WINDOW_BLOCKS * block, block

  def _open(self, seq_len: int, path: str) -> None:
    super()._open(seq_len, path)
    options = self.options
    self.documents_follow: bool = options.in_stored_order and not (
      options.add_bos or options.add_eos
    )
    self._num_tokens = self._documents.totals.tokens
    if options.orders_differ and options.shuffle_documents == "full":
      logging.warning(
        "%s: shuffle_documents='full' costs %s; 'block' does not.",
        path,
        self._pass_cost(_PASS_RATE),
      )

  def __len__(self) -> int:
    whole_rows, tail_tokens = divmod(self._num_tokens, self.seq_len)
    return whole_rows + (tail_tokens > 0 and self.options.tail == "pad")

  @property
  def repeating_units(self) -> Mapping[str, int]:
    """The first epoch from which on all consume the same, by unit."""
    if self.options.orders_differ:
      return {"tokens": 0}
    return {"tokens": 0, "loss_tokens": 0, "spans": 0, "cuts": 0}

  @schema.arguments(**mix_units.BLOCK_RULES)
  def block_units(
    self, epoch: int, unit: str, rows: int | None
  ) -> mix_units.BlockUnits | None:
    """Returns the units of blocks of rows.

    Of tokens, all rows but a padded last one consume the same. Trained tokens:
    a row has one span at its first column, and one for each document that
    begins inside it; the first token of a span is not trained on. Spans are
    counted in a pass over lengths; where the store has labels, trained tokens
    are counted in a pass over these. Where each epoch has its own order of
    documents, only the sum of a whole epoch is counted.
    """
    if unit == "tokens":
      whole_rows = self._num_tokens // self.seq_len
      starts = np.unique([0, whole_rows, len(self)])
      tokens = np.minimum(starts * self.seq_len, self._num_tokens)
      return mix_units.BlockUnits(starts, np.diff(tokens), equal=True)
    labelled = not self.store.labels.trains_on_all
    differ = self.options.orders_differ
    if unit != "loss_tokens" or (
      rows == 0 or (differ and (labelled or rows is not None))
    ):
      return super().block_units(epoch, unit, rows)
    rows = rows or (len(self) if differ else mix_units.BLOCK_ROWS)
    order = self._order_epoch(epoch)
    counts = self._count(rows, order)
    starts = mix_units.every(rows, len(self))
    if labelled:
      return mix_units.BlockUnits(starts, counts)
    tokens = np.minimum(starts * self.seq_len, self._num_tokens)
    return mix_units.BlockUnits(starts, np.diff(tokens - starts) - counts)

  @row_source.checks_documents
  def rows_of(
    self, documents: np.ndarray | int, epoch: int
  ) -> intervals.Intervals:
    """Returns the rows of an epoch that hold tokens of some documents."""
    in_order = self._documents.in_order(self._order_epoch(epoch))
    position = in_order.positions(documents)
    windows = np.unique(position // self._documents.order.window_docs)
    contents, stream_begin, stream_end = self._located(in_order, windows)
    entry = np.flatnonzero(np.isin(contents.position, position))
    begin, end = stream_begin[entry], stream_end[entry]
    end_row = np.minimum(-(-end // self.seq_len), len(self))
    first_row = np.minimum(begin // self.seq_len, end_row)
    return intervals.merged(first_row, end_row)

  def _located(
    self, documents: documents_lib.OrderedDocuments, windows: np.ndarray
  ) -> tuple[documents_lib.Contents, np.ndarray, np.ndarray]:
    """Returns the documents of windows, and where in the stream each is."""
    contents, lengths = documents.contents(windows)
    within = np.cumsum(lengths)
    opens = np.searchsorted(
      contents.position, windows * self._documents.order.window_docs
    )
    before = np.concatenate([[0], within])[opens]
    stream_end = within + np.repeat(
      documents.window_starts.take(windows) - before,
      np.diff(np.append(opens, len(within))),
    )
    return contents, stream_end - lengths, stream_end

  @memo.remembered(packed_source.COUNTS_CACHED)
  def _count(self, every: int, order: int) -> np.ndarray:
    """Counts trained tokens of blocks of rows where the store has labels.

    Where all are, counts documents that begin in a row after its first column.
    """
    if self.options.orders_differ:
      # Each order is used in one epoch: nothing is written to disk.
      return self._count_begins(every, order)
    documents = self._documents.order
    order_key = None
    if documents.kind != "none":
      order_key = [
        documents.kind,
        documents.block_docs,
        documents.window_docs,
        f"{self._order_key:016x}",
      ]
    key = {"every": every, "num_rows": len(self), "order": order_key}
    name = "begins" if self.store.labels.trains_on_all else "trained"

    def build() -> dict[str, np.ndarray]:
      if self.store.labels.trains_on_all:
        return {name: self._count_begins(every, order)}
      starts = mix_units.every(every, len(self))
      return {name: self._trained_tokens(starts, order)}

    return self._documents.load_or_build(name, key, build)[name].read()

  def _count_begins(self, every: int, order: int) -> np.ndarray:
    """Counts documents that begin in a row after its first column, by block."""
    counts = np.zeros(-(-len(self) // every), np.int64)
    stream_end = 0
    for _, num_tokens in self._documents.in_order(order).lengths("begins"):
      begin = stream_end + np.cumsum(num_tokens) - num_tokens
      stream_end += int(num_tokens.sum())
      inside = (num_tokens > 0) & (begin % self.seq_len > 0)
      row = begin[inside] // self.seq_len
      # The rows that `tail` leaves out are not counted.
      block = row[row < len(self)] // every
      counts += np.bincount(block, minlength=len(counts))
    return counts

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
      f" {len(self)} rows per epoch, tail {tail}\n"
      f"  seq_len={self.seq_len} add_bos={self.options.add_bos}"
      f" add_eos={self.options.add_eos}"
      f" shuffle_documents={self.options.shuffle_documents}"
    )

  def _plan(
    self, epoch: np.ndarray, index: np.ndarray, order: int
  ) -> spans_lib.Spans:
    del epoch
    begin = index * self.seq_len
    end = np.minimum(begin + self.seq_len, self._num_tokens)
    documents = self._documents.in_order(order)
    starts = documents.window_starts
    # Searching ascending keys takes a quarter of the time.
    ascending = np.argsort(begin)
    first_window, end_window = np.empty_like(begin), np.empty_like(begin)
    first_window[ascending] = starts.search(begin[ascending]) - 1
    # One more than the last window that begins before the row's end.
    end_window[ascending] = starts.search(end[ascending] - 1)
    # Sorting takes a tenth of the time of `np.unique`, which hashes.
    windows = np.sort(ragged.ranges(first_window, end_window - first_window))
    windows = windows[np.flatnonzero(np.diff(windows, prepend=-1))]
    contents, stream_begin, stream_end = self._located(documents, windows)
    first_document, end_document = np.empty_like(begin), np.empty_like(begin)
    first_document[ascending] = np.searchsorted(
      stream_end, begin[ascending], side="right"
    )
    end_document[ascending] = (
      np.searchsorted(stream_end, end[ascending], side="left") + 1
    )
    count = end_document - first_document
    row, nth = ragged.elements(count)
    document_index = first_document[row] + nth
    opening = stream_begin[document_index]
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
