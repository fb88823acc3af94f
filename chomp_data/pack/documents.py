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

_PASS_DOCUMENTS = 1 << 20

# The packed lengths of documents in a full order, of all sources of this
# process, in bytes: in a store a lookup out of order takes twice as long.
_LENGTHS = memo.Memo(32 << 20)


@dataclasses.dataclass(frozen=True)
class Contents:
  """Documents in the order of packing.

  Attributes:
    position: int64[N], their positions in the order.
    document: int64[N].
    first_token: int64[N], index of its first token in the store.
    stored: int64[N], the number of its tokens in the store.
    packed_lengths: int64[N], the number of its tokens that are packed, with an
      added BOS and EOS.
  """

  position: np.ndarray
  document: np.ndarray
  first_token: np.ndarray
  stored: np.ndarray
  packed_lengths: np.ndarray


@dataclasses.dataclass(frozen=True)
class Totals:
  """Counts from a pass over all lengths.

  Attributes:
    documents: Documents of the store.
    empty: Documents without tokens, which are skipped.
    long: Documents longer than a row.
    tokens: Tokens that are packed, with added BOS and EOS.
    lost: Tokens that `long_documents` truncates or drops.
  """

  documents: int
  empty: int
  long: int
  tokens: int
  lost: int


class Documents:
  """The documents of a store in the order of packing."""

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
    # Tells these lengths from others in `_LENGTHS`.
    self._lengths_key = object()
    self._window_tokens = memo.Memo(1)
    self._window_starts = memo.Memo(1)
    arrays = self.load_or_build(
      "sums", {"block_docs": order.block_docs}, self._block_sums
    )
    self._blocks = arrays["blocks"]
    self.totals: Totals = Totals(*arrays["totals"].read().tolist())

  def key(self) -> dict[str, Any]:
    """Returns what determines lengths and sums, as JSON values."""
    return {
      "store": self.store.hash,
      "seq_len": self._seq_len,
      "added": [self._bos, self._eos],
      "long_documents": self._long,
    }

  def contents(self, windows: np.ndarray, epoch: int) -> Contents:
    """Returns the documents of windows, without those that have no tokens.

    Args:
      windows: int64[N], ascending.
      epoch: The epoch whose order of documents is used, from 0.
    """
    contents = self.at(self.order.positions(windows), epoch)
    if contents.packed_lengths.all():
      return contents
    values = dataclasses.astuple(contents)
    nonempty = np.flatnonzero(contents.packed_lengths)
    return Contents(*(value[nonempty] for value in values))

  def at(self, positions: np.ndarray, epoch: int) -> Contents:
    """Returns the documents at positions int64[N] of an epoch's order."""
    document = self.order.documents(positions, epoch)
    first_token, stored = self.store.bounds(document)
    packed_lengths = self._packed_lengths(document, stored)
    return Contents(positions, document, first_token, stored, packed_lengths)

  def window_tokens(self, epoch: int) -> np.ndarray:
    """Returns int64[num_windows], the tokens packed from each window."""

    def sums() -> np.ndarray:
      if self.order.kind != "full":
        return self.order.window_sums(self._blocks.read(), epoch)
      parts: list[np.ndarray] = []
      for windows, tokens in self.in_order(epoch, f"order of epoch {epoch}"):
        sizes = self.order.window_sizes(windows)
        parts.append(np.add.reduceat(tokens, np.cumsum(sizes) - sizes))
      return np.concatenate(parts)

    return self._window_tokens.get(epoch, sums)

  def window_starts(self, epoch: int) -> columns.Column:
    """Returns the tokens before each window of an epoch, and then their sum."""

    def starts() -> columns.Column:
      if self.order.kind == "none" and not isinstance(
        self._blocks, columns.ArrayColumn
      ):
        # Each block is a window: in the store's own order there are many.
        return columns.PrefixSumColumn(self._blocks)
      tokens = columns.ArrayColumn(self.window_tokens(epoch))
      return columns.ArrayColumn(columns.PrefixSumColumn(tokens).read())

    return self._window_starts.get(epoch, starts)

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
    if self.order.num_documents < document_columns.MIN_ON_DISK:
      return {n: columns.ArrayColumn(array) for n, array in build().items()}
    return side_index.load_or_build(
      self.store.path, name, {**self.key(), **key}, lambda: [build()]
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
    document = contents.document[which]
    bos, eos = self._added(document)
    return spans_lib.of_parts(
      document=document,
      first_token=contents.first_token[which],
      stored=contents.stored[which],
      whole=contents.packed_lengths[which],
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
    if not isinstance(self.store, remainder.RemainderStore):
      return self._bos, self._eos
    begins, ends = self.store.pieces.at_ends(document)
    return self._bos * begins, self._eos * ends

  def _offered(self, document: np.ndarray, stored: np.ndarray) -> np.ndarray:
    """Returns the tokens of documents with an added BOS and EOS."""
    if not self._bos + self._eos:
      return stored
    bos, eos = self._added(document)
    return np.where(stored > 0, stored + (bos + eos), 0)

  def _packed_lengths(
    self, document: np.ndarray, stored: np.ndarray
  ) -> np.ndarray:
    """Returns the packed tokens of documents with `stored` tokens, int64[N]."""
    lengths = self._offered(document, stored)
    return packing.packed_lengths(lengths, self._seq_len, self._long)

  def _lengths(self) -> np.ndarray | None:
    """Returns the packed tokens of all documents, for lookups out of order.

    None if the order is not 'full', or the store is large.
    """
    # Half of the cache, so that two sources that alternate both stay in it.
    is_large = 8 * self.order.num_documents > _LENGTHS.most // 2
    if self.order.kind != "full" or is_large:
      return None
    lengths = _LENGTHS.get(self._lengths_key)
    if lengths is None:
      lengths = np.concatenate(
        [
          self._packed_lengths(np.arange(first, first + len(stored)), stored)
          for first, stored in self.store.iter_lengths(_PASS_DOCUMENTS)
        ]
      )
      if lengths.max(initial=0) < 2**31:
        lengths = lengths.astype(np.int32)
      _LENGTHS.put(self._lengths_key, lengths, lengths.nbytes)
    return lengths

  def in_order(
    self, epoch: int, what: str
  ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields all windows, about a million documents at a time.

    Args:
      epoch: The epoch whose order of documents is used, from 0.
      what: What the pass is for, for the progress bar.

    Yields:
      int64[W], consecutive windows, and int64[D], the packed tokens of all
      their documents, 0 or more.
    """
    step = max(1, _PASS_DOCUMENTS // self.order.window_docs)
    lengths = self._lengths()
    with self._progress(what) as bar:
      for first_window in range(0, self.order.num_windows, step):
        windows = np.arange(
          first_window, min(first_window + step, self.order.num_windows)
        )
        document = self.order.documents(self.order.positions(windows), epoch)
        if lengths is None:
          tokens = self._packed_lengths(
            document, self.store.bounds(document)[1]
          )
        else:
          tokens = lengths[document].astype(np.int64)
        yield windows, tokens
        bar.update(len(document))

  def _block_sums(self) -> Mapping[str, np.ndarray]:
    """Returns tokens per block, and totals, from one pass over lengths."""
    size = self.order.block_docs
    blocks: list[np.ndarray] = []
    empty = long = offered = 0
    batch = size * max(1, _PASS_DOCUMENTS // size)
    with self._progress("lengths") as bar:
      for first_document, stored in self.store.iter_lengths(batch):
        document = np.arange(first_document, first_document + len(stored))
        lengths = self._offered(document, stored)
        packed_lengths = packing.packed_lengths(
          lengths, self._seq_len, self._long
        )
        blocks.append(
          np.add.reduceat(
            packed_lengths, np.arange(0, len(packed_lengths), size)
          )
        )
        empty += int(np.sum(stored == 0))
        long += int(np.sum(lengths > self._seq_len))
        offered += int(lengths.sum())
        bar.update(len(stored))
    sums = np.concatenate(blocks)
    tokens = int(sums.sum())
    totals = self.order.num_documents, empty, long, tokens, offered - tokens
    return {"blocks": sums, "totals": np.asarray(totals)}

  def _progress(self, what: str) -> side_index.Bar:
    """Returns a progress bar over documents, shown for many of them only."""
    total = self.order.num_documents
    return side_index.progress(
      total,
      f"{self.name}: {what}",
      "docs",
      total >= document_columns.MIN_ON_DISK,
    )
