# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A store's documents as packers see them: ordered, in windows, with sums.

Lengths include an added BOS and EOS. Documents without tokens are skipped.
Random access needs the number of tokens of each window. One pass over the
lengths counts them; for a large store the counts are written beside it.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
from typing import Any
from typing import ClassVar

import numpy as np

from chomp_data import stores
from chomp_data.index import columns
from chomp_data.index import memo
from chomp_data.pack import document_order
from chomp_data.pack import packing
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import document_columns
from chomp_data.stores import remainder
from chomp_data.stores import side_index

# Documents whose lengths are read at once.
_PASS_DOCUMENTS = 1 << 20
# Orders of documents whose sums are in memory: of the epoch at hand, of the
# next one, and one that is removed from disk.
ORDERS = 3


@dataclasses.dataclass(frozen=True)
class Contents:
  """Documents in the order of packing.

  Attributes:
    position: int64[N], their positions in the order.
    document: int64[N].
    first_token: int64[N], index of its first token in the store.
    stored: int64[N], the number of its tokens in the store.
  """

  position: np.ndarray
  document: np.ndarray
  first_token: np.ndarray
  stored: np.ndarray


@dataclasses.dataclass(frozen=True)
class Totals:
  """Counts from a pass over all lengths.

  Attributes:
    documents: Documents of the store.
    empty: Documents without tokens, which are skipped.
    long: Documents longer than a row.
    tokens: Tokens that are packed, with added BOS and EOS.
    lost: Tokens that `long_documents` truncates or drops.
    dropped: Documents that it drops, where they are counted.
  """

  documents: int
  empty: int
  long: int
  tokens: int
  lost: int
  dropped: int = 0


class Documents:
  """The documents of a store, in the orders in which they are packed.

  A subclass may pack other units than documents, which it numbers from 0.

  Attributes:
    spans_per_piece: The spans of each piece that is packed.
    counts_dropped: Whether units that `long_documents` drops are counted.
  """

  spans_per_piece: ClassVar[int] = 1
  counts_dropped: ClassVar[bool] = False

  def __init__(
    self,
    store: stores.Store,
    order: document_order.DocumentOrder,
    *,
    seq_len: int,
    add_bos: bool,
    add_eos: bool,
    long_documents: str = "cut",
    name: str = "documents",
  ):
    """Sums the lengths of each block, or opens the stored sums.

    Args:
      store: Where the documents are.
      order: Their order and windows.
      seq_len: Positions of a row.
      add_bos: Whether each gets a BOS.
      add_eos: Whether each gets an EOS.
      long_documents: What happens to documents longer than a row: 'cut' packs
        all tokens, 'truncate' the first `seq_len` of them, 'drop' none.
      name: The source's name, for messages.
    """
    self.store = store
    self.order = order
    self.name = name
    self._seq_len = seq_len
    self._bos, self._eos = int(add_bos), int(add_eos)
    self._long = long_documents
    arrays = self.load_or_build(
      "sums", {"block_docs": order.block_docs}, self._block_sums
    )
    self.block_sums: columns.Column = arrays["blocks"]
    self.totals: Totals = Totals(*arrays["totals"].read().tolist())

  def key(self) -> dict[str, Any]:
    """Returns what determines lengths and sums, as JSON values."""
    return {
      "store": self.store.hash,
      "seq_len": self._seq_len,
      "added": [self._bos, self._eos],
      "long_documents": self._long,
    }

  def units(self, documents: np.ndarray) -> np.ndarray:
    """Returns the units that documents int64[N] of the store are of."""
    return documents

  def bounds(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first token of units int64[N], and how many they have."""
    return self.store.bounds(documents)

  def iter_lengths(self, batch: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yields (first unit, lengths), at most `batch` units at a time."""
    return self.store.iter_lengths(batch)

  @memo.remembered(ORDERS)
  def in_order(self, epoch: int) -> "OrderedDocuments":
    """Returns the documents in the order of an epoch, from 0."""
    return OrderedDocuments(self, epoch)

  def load_or_build(
    self,
    name: str,
    key: Mapping[str, Any],
    build: Callable[[], Mapping[str, np.ndarray]],
  ) -> Mapping[str, columns.Column]:
    """Returns arrays computed from all documents, for a large store from disk.

    Args:
      name: The name of the files.
      key: What determines the arrays besides `key()`, as JSON values.
      build: Computes the arrays by name.
    """
    return document_columns.load_or_build_parts(
      self.store,
      name,
      {**self.key(), **key},
      lambda: [build()],
      self.order.num_documents,
      most_in_memory=0,
    )

  def spans_of(
    self,
    contents: Contents,
    which: np.ndarray | slice,
    begin: np.ndarray,
    end: np.ndarray,
    *,
    row: np.ndarray,
    column: np.ndarray,
    segment: np.ndarray,
    num_rows: int,
  ) -> spans_lib.Spans:
    """Returns parts of documents as spans.

    Args:
      contents: Documents.
      which: int64[N] or a slice, index of each part's document in `contents`.
      begin: int64[N], first token of the part; an added BOS is token 0.
      end: int64[N], the token after its last.
      row: int64[N], the row of the plan, ascending.
      column: int64[N], the part's first position in the row.
      segment: int64[N], the part's segment in the row, from 1.
      num_rows: Rows of the plan.
    """
    document, stored = contents.document[which], contents.stored[which]
    bos, eos = self._added(document)
    return spans_lib.of_parts(
      document=document,
      first_token=contents.first_token[which],
      stored=stored,
      whole=self.packed_lengths(document, stored),
      begin=begin,
      end=end,
      bos=bos,
      eos=eos,
      row=row,
      column=column,
      segment=segment,
      num_rows=num_rows,
    )

  def _added(
    self, document: np.ndarray
  ) -> tuple[np.ndarray | int, np.ndarray | int]:
    """Returns how many BOS and EOS tokens each document gets, 0 or 1.

    A stored piece of a document gets a BOS only if it begins the document, and
    an EOS only if it ends it.
    """
    begins, ends = self.at_ends(document)
    return self._bos * begins, self._eos * ends

  def at_ends(
    self, document: np.ndarray
  ) -> tuple[np.ndarray | bool, np.ndarray | bool]:
    """Returns whether they begin and end documents, not pieces of them."""
    if not isinstance(self.store, remainder.RemainderStore):
      return True, True
    return self.store.pieces.at_ends(document)

  def _offered(self, document: np.ndarray, stored: np.ndarray) -> np.ndarray:
    """Returns the tokens of documents with an added BOS and EOS."""
    if not self._bos + self._eos:
      return stored
    bos, eos = self._added(document)
    return np.where(stored > 0, stored + (bos + eos), 0)

  def packed_lengths(
    self, document: np.ndarray, stored: np.ndarray
  ) -> np.ndarray:
    """Returns the packed tokens of documents with `stored` tokens, int64[N]."""
    return self._fitted(document, self._offered(document, stored))

  def _fitted(self, document: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns how many of the tokens that documents offer are packed."""
    del document
    return packing.packed_lengths(lengths, self._seq_len, self._long)

  def _block_sums(self) -> Mapping[str, np.ndarray]:
    """Returns tokens per block, and totals, from one pass over lengths."""
    size = self.order.block_docs
    blocks: list[np.ndarray] = []
    empty = long = offered = dropped = 0
    batch = size * max(1, _PASS_DOCUMENTS // size)
    with self.progress("lengths") as bar:
      for first_document, stored in self.iter_lengths(batch):
        document = np.arange(first_document, first_document + len(stored))
        lengths = self._offered(document, stored)
        packed_lengths = self._fitted(document, lengths)
        blocks.append(
          np.add.reduceat(
            packed_lengths, np.arange(0, len(packed_lengths), size)
          )
        )
        empty += int(np.sum(stored == 0))
        long += int(np.sum(lengths > self._seq_len))
        offered += int(lengths.sum())
        dropped += int(np.sum(packed_lengths < np.minimum(lengths, 1)))
        bar.update(len(stored))
    sums = np.concatenate(blocks)
    tokens = int(sums.sum())
    totals = [self.order.num_documents, empty, long, tokens, offered - tokens]
    if self.counts_dropped:
      totals.append(dropped)
    return {"blocks": sums, "totals": np.asarray(totals)}

  def progress(self, what: str) -> side_index.Bar:
    """Returns a progress bar over documents, shown for many of them only."""
    total = self.order.num_documents
    return side_index.progress(
      total,
      f"{self.name}: {what}",
      "docs",
      total >= document_columns.MIN_ON_DISK,
    )


class OrderedDocuments:
  """The documents of a store in the order of one epoch."""

  def __init__(self, documents: Documents, epoch: int):
    """Stores the arguments; computes nothing.

    Args:
      documents: The documents.
      epoch: The epoch whose order is used, from 0.
    """
    self._documents = documents
    self._order = documents.order
    self._epoch = epoch

  def positions(self, documents: np.ndarray) -> np.ndarray:
    """Returns int64[N], the positions of documents int64[N]."""
    return self._order.positions_of(documents, self._epoch)

  def at(self, positions: np.ndarray) -> Contents:
    """Returns the documents at positions int64[N]."""
    document = self._order.documents(positions, self._epoch)
    return Contents(positions, document, *self._documents.bounds(document))

  def contents(self, windows: np.ndarray) -> tuple[Contents, np.ndarray]:
    """Returns the documents of windows, without those that have no tokens.

    Args:
      windows: int64[N], ascending.

    Returns:
      The documents, and int64[M], how many tokens of each are packed, with an
      added BOS and EOS.
    """
    contents = self.at(self._order.positions(windows))
    packed_lengths = self._documents.packed_lengths(
      contents.document, contents.stored
    )
    if packed_lengths.all():
      return contents, packed_lengths
    nonempty = np.flatnonzero(packed_lengths)
    values = dataclasses.astuple(contents)
    contents = Contents(*(value[nonempty] for value in values))
    return contents, packed_lengths[nonempty]

  def lengths(self, what: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields all windows, about a million documents at a time.

    Args:
      what: What the pass is for, for the progress bar.

    Yields:
      int64[W], consecutive windows, and int64[D], the packed tokens of all
      their documents, 0 or more.
    """
    order, documents = self._order, self._documents
    step = max(1, _PASS_DOCUMENTS // order.window_docs)
    with documents.progress(what) as bar:
      for first_window in range(0, order.num_windows, step):
        windows = np.arange(
          first_window, min(first_window + step, order.num_windows)
        )
        document = order.documents(order.positions(windows), self._epoch)
        _, stored = documents.bounds(document)
        yield windows, documents.packed_lengths(document, stored)
        bar.update(len(document))

  @property
  @memo.remembered(1)
  def window_tokens(self) -> np.ndarray:
    """int64[num_windows], the tokens packed from each window."""
    order = self._order
    if order.kind != "full":
      sums = self._documents.block_sums.read()
      return order.window_sums(sums, self._epoch).astype(np.int64, copy=False)
    parts: list[np.ndarray] = []
    for windows, tokens in self.lengths(f"order of epoch {self._epoch}"):
      sizes = order.window_sizes(windows)
      parts.append(np.add.reduceat(tokens, np.cumsum(sizes) - sizes))
    return np.concatenate(parts)

  @property
  @memo.remembered(1)
  def window_starts(self) -> columns.Column:
    """The tokens before each window, and then their sum."""
    block_sums = self._documents.block_sums
    if self._order.kind == "none" and not isinstance(
      block_sums, columns.ArrayColumn
    ):
      # Each block is a window: in the store's own order there are many.
      return columns.PrefixSumColumn(block_sums)
    return columns.ArrayColumn(np.append(0, np.cumsum(self.window_tokens)))
