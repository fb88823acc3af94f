# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Text in buckets of lengths: each row is a document, or a piece of one.

The rows of each bucket are a row source, so planning, reading and placing are
those of every other run.
"""

from collections.abc import Sequence
import dataclasses
from typing import Any

import numpy as np

from chomp_data import schema
from chomp_data import stores
from chomp_data.bucket import dataset
from chomp_data.bucket import piece_index
from chomp_data.pack import packing_options
from chomp_data.rows import buckets as buckets_lib
from chomp_data.rows import row_layout
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import row_source
from chomp_data.sources import source_opening
from chomp_data.sources import special_tokens
from chomp_data.stores import remainder


@dataclasses.dataclass(frozen=True, kw_only=True)
class DocumentOptions(packing_options.AddedTokenOptions):
  """`rows` of a source in buckets of lengths: a document (or piece) per row."""


class PieceRows(row_source.RowSource):
  """The pieces of one bucket as rows, in the order of documents."""

  document_slots = 1
  one_span_per_document = True

  def __init__(
    self,
    store: stores.Store,
    options: DocumentOptions,
    index: piece_index.PieceIndex,
    bucket: int,
    *,
    seq_len: int,
    name: str,
    path: str,
  ):
    """Binds the bucket of a number."""
    self.name = name
    self._selected: remainder.SelectedStore | None = None
    self.store: stores.Store = store
    if isinstance(store, remainder.SelectedStore):
      self._selected, self.store = store, store.whole
    self.options = options
    self._index = index
    self._bucket = bucket
    self.layout: row_layout.RowLayout = special_tokens.row_layout(
      store,
      packing_options.PackingOptions(**dataclasses.asdict(options)),
      seq_len,
      path,
    )

  def __len__(self) -> int:
    return self._index.counts[self._bucket]

  def plan(self, rows: np.ndarray) -> spans_lib.Spans:
    """Plans rows, one span each; every epoch has the same."""
    document, start = self._index.get(
      self._bucket, np.asarray(rows, np.int64) % max(len(self), 1)
    )
    first, stored = self.store.bounds(document)
    bos, eos = int(self.options.add_bos), int(self.options.add_eos)
    lengths = stored + bos + eos
    stop = np.minimum(start + self.seq_len, lengths)
    count = len(document)
    return spans_lib.of_parts(
      document=document,
      first_token=first,
      stored=stored,
      whole=lengths,
      begin=start,
      end=stop,
      bos=bos,
      eos=eos,
      row=np.arange(count),
      column=np.zeros(count, np.int64),
      segment=np.ones(count, np.int32),
      num_rows=count,
    )

  def units(self, epoch: int, positions: np.ndarray, unit: str) -> np.ndarray:
    """Returns what pieces consume, int64[N]; tokens follow from lengths."""
    if unit != "tokens":
      return super().units(epoch, positions, unit)
    document, start = self._index.get(self._bucket, positions)
    _, stored = self.store.bounds(document)
    lengths = stored + self.options.add_bos + self.options.add_eos
    return np.minimum(start + self.seq_len, lengths) - start

  @property
  def fingerprint(self) -> dict[str, Any]:
    """What determines this source's rows, as JSON values."""
    return {
      "store": self.store.hash,
      "kind": "documents",
      "rows": dataclasses.asdict(self.options),
      "filler_id": self.layout.filler_id,
      "bos_id": self.layout.bos_id,
      "eos_id": self.layout.eos_id,
      **(self._selected.fingerprint if self._selected else {}),
    }

  def documents_used(self) -> np.ndarray | None:
    """Returns the selected documents, int64[D]; None is all."""
    if self._selected is None:
      return None
    return self._selected.pieces.documents()


class DocumentDataset(dataset.Dataset):
  """A store's documents in buckets of lengths."""

  def __init__(
    self,
    store: stores.Store,
    options: DocumentOptions,
    buckets: Sequence[buckets_lib.Bucket],
    assign: str,
    *,
    document_id: bool = False,
    name: str = "documents",
    path: str = "rows",
  ):
    """Finds which documents are in which bucket; reads no token.

    Args:
      store: Where the documents are.
      options: Added tokens and padding.
      buckets: The buckets, shortest first.
      assign: How documents are cut into pieces: 'least_waste' or
        'powers_of_two'.
      document_id: Whether batches carry `document_id`.
      name: The source's name.
      path: Dotted path of the options, for messages.

    Raises:
      ConfigError: If options do not fit the store.
      StoreError: If no directory for the index is writable.
    """
    if store.opened.pairs:
      raise schema.ConfigError(
        [
          f"`{path.removesuffix('.rows')}.store` must hold documents where"
          f" there are buckets, got the preference pairs of {store.path}. Leave"
          " the section buckets out, with rows.kind='bin'."
        ]
      )
    self.name = name
    self._store = store
    self.document_slots: int = int(document_id)
    lengths = [bucket.shape[0] for bucket in buckets]
    self._index = piece_index.PieceIndex(
      store,
      lengths,
      assign=assign,
      added=options.add_bos + options.add_eos,
      name=name,
    )
    self.rows: Sequence[row_source.RowSource] = [
      PieceRows(
        store, options, self._index, i, seq_len=length, name=name, path=path
      )
      for i, length in enumerate(lengths)
    ]
    self.counts: dict[str, int] = {
      bucket.name: count
      for bucket, count in zip(buckets, self._index.counts, strict=True)
    }

  @property
  def num_documents(self) -> int:
    """Documents of the store."""
    return self.rows[-1].store.num_documents

  def numbers_of(self, bucket: int, samples: np.ndarray) -> np.ndarray:
    """Returns the documents of pieces int64[N] of a bucket."""
    return self._index.get(bucket, samples)[0]

  def samples_of(self, documents: np.ndarray) -> list[np.ndarray]:
    """Returns the pieces of documents by bucket, int64[N] each, ascending."""
    return self._index.of_documents(documents)

  def read(
    self,
    bucket: int,
    samples: np.ndarray,
    number: int,
    spans: spans_lib.Spans | None,
    columns: spans_lib.ColumnRanges | None = None,
  ) -> dict[str, np.ndarray]:
    """Returns the canonical fields of a bucket's rows, as `spans` plan them."""
    del samples, number
    assert spans is not None
    batch = self.rows[bucket].read(spans, self.extra, columns)
    batch["source_id"] = spans.row_source()
    if self.document_slots:
      batch["document_id"] = spans.row_documents(1)
    return batch

  def tokens_by_bucket(self) -> dict[str, int]:
    """Returns the tokens of each bucket, added ones included."""
    return dict(zip(self.counts, self._index.tokens, strict=True))

  @property
  def fingerprint(self) -> dict[str, Any]:
    """What determines the samples, as JSON values."""
    return self.rows[-1].fingerprint

  def describe(self) -> str:
    """Returns a summary for the log."""
    empty, store = self._index.num_empty, self._store
    is_selected = isinstance(store, remainder.SelectedStore)
    return (
      f"[{self.name}] {store.num_documents} documents"
      + f" ({empty} of them empty: in no bucket)" * bool(empty)
      + f", {sum(self.counts.values())} pieces, tokenizer"
      + f" {source_opening.tokenizer_text(store)}"
      + (f"\n  {store.describe()}" if is_selected else "")
    )
