# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What both packers share: documents in an order, and rows made of them."""

import abc
import dataclasses
from typing import Any

import numpy as np

from chomp_data import schema
from chomp_data.index import hashing
from chomp_data.pack import document_order
from chomp_data.pack import documents as documents_lib
from chomp_data.pack import pairs
from chomp_data.rows import row_layout
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import mix_units
from chomp_data.sources import row_source
from chomp_data.sources import special_tokens
from chomp_data.sources import store_source
from chomp_data.stores import remainder
from chomp_data.stores import side_index

# Below this a pass over all rows takes under a tenth of a second.
_MANY_ROWS = 100_000
# Orders of documents, and sizes of blocks, whose counts are in memory.
COUNTS_CACHED = 4


class PackedSource(store_source.StoreSource):
  """Rows packed from the documents of a store, in some order."""

  one_span_per_document = True

  @abc.abstractmethod
  def _windows(self) -> tuple[int, int]:
    """Returns the documents of a window of the order, and of a block."""

  def _open(self, seq_len: int, path: str) -> None:
    store, options = self.store, self.options
    self.layout: row_layout.RowLayout = special_tokens.row_layout(
      store, options, seq_len, path
    )
    self.document_slots: int = min(options.document_slots, seq_len)
    self._order_key = hashing.fold_key(self._seed, self.name, "documents")
    window_docs, block_docs = self._windows()
    # Units that are packed: documents, or pairs of them.
    packed_type, num_units = documents_lib.Documents, store.num_documents
    long_units = getattr(options, "long_documents", "cut")
    if store.opened.pairs:
      packed_type, num_units = pairs.PairDocuments, store.num_documents // 2
      long_units = options.long_pairs
      self.layout = dataclasses.replace(
        self.layout, pair_slots=options.pair_slots
      )
    order = document_order.DocumentOrder(
      num_units,
      window_docs=window_docs,
      block_docs=block_docs,
      kind=options.shuffle_documents,
      key=self._order_key,
    )
    self._documents = packed_type(
      store,
      order,
      seq_len=seq_len - getattr(options, "reserved", 0),
      add_bos=options.add_bos,
      add_eos=options.add_eos,
      long_documents=long_units,
      name=self.name,
    )
    totals = self._documents.totals
    is_remainder = isinstance(store, remainder.RemainderStore)
    if not is_remainder and totals.tokens < seq_len:
      lost = f" ({totals.lost} more in long documents)" if totals.lost else ""
      raise schema.ConfigError(
        [
          f"`config.data.seq_len` must be at most the tokens that `{path}`"
          f" packs of {store.path}, got {seq_len} with {totals.tokens}"
          f" tokens{lost}. Lower it, or prepare more text."
        ]
      )

  @abc.abstractmethod
  def _plan(
    self, epoch: np.ndarray, index: np.ndarray, order: int
  ) -> spans_lib.Spans:
    """Returns the spans of rows of epochs that use the documents of `order`."""

  def plan(self, rows: np.ndarray) -> spans_lib.Spans:
    """Plans rows, those with one order of documents together."""
    rows = row_source.checked_rows(rows)
    epoch, index = self.epochs.locate(rows)
    orders = np.unique(epoch).tolist() if self.options.orders_differ else [0]
    if len(orders) <= 1:
      return self._plan(epoch, index, *(orders or [0]))
    picks = [np.flatnonzero(epoch == order) for order in orders]
    parts = [
      self._plan(epoch[pick], index[pick], order)
      for order, pick in zip(orders, picks, strict=True)
    ]
    return spans_lib.merged(parts, picks)

  @property
  def fingerprint(self) -> dict[str, Any]:
    """What determines this source's rows, as JSON values."""
    rows = dataclasses.asdict(self.options)
    if not self.store.opened.pairs:
      rows = {n: value for n, value in rows.items() if n not in pairs.FIELDS}
    if rows.get("fim") is None:
      rows.pop("fim", None)  # As in states of earlier versions.
    return {
      "store": self.store.hash,
      "seq_len": self.seq_len,
      "seed": self._seed,
      "kind": self.kind,
      "rows": rows,
      "filler_id": self.layout.filler_id,
      "bos_id": self.layout.bos_id,
      "eos_id": self.layout.eos_id,
    }

  def _order_epoch(self, epoch: int) -> int:
    """Returns the epoch whose order of documents an epoch uses."""
    return epoch if self.options.orders_differ else 0

  def _pass_cost(self, rate: float) -> str:
    """Describes a pass over all documents at a rate of documents per second."""
    num_documents = self.store.num_documents
    return (
      f"a pass over {num_documents} documents in every epoch (about"
      f" {num_documents / rate:.2g} s)"
    )

  def _trained_tokens(self, starts: np.ndarray, order: int) -> np.ndarray:
    """Returns int64[N], trained tokens of blocks of rows, from all plans.

    `starts` int64[N + 1] are the first row of each block, and all rows.
    """
    trained = np.zeros(len(starts) - 1, np.int64)
    num_rows = int(starts[-1])
    with side_index.progress(
      num_rows, f"{self.name}: labels", "rows", num_rows >= _MANY_ROWS
    ) as bar:
      first_row, row = self.epochs.start(order), 0
      for spans in row_source.planned_blocks(
        self, first_row, first_row + num_rows
      ):
        units = mix_units.planned_units(spans, "loss_tokens", self.store)
        rows = np.arange(row, row + len(units))
        block = np.searchsorted(starts, rows, side="right") - 1
        np.add.at(trained, block, units)
        row += len(units)
        bar.update(len(units))
    return trained
