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
import time
from typing import Any

from absl import logging
import numpy as np

from chomp_data import stores
from chomp_data.index import columns
from chomp_data.index import memo
from chomp_data.pack import document_order
from chomp_data.pack import packing
from chomp_data.rows import spans as spans_lib
from chomp_data.stores import side_index

# Below this a pass over all lengths takes a few milliseconds.
_KEPT_ON_DISK = 1 << 18
_PASS_DOCUMENTS = 1 << 20
# Up to this many lengths (64 MiB) stay in memory, for orders that reuse them.
_IN_MEMORY = 1 << 24
# Documents per second of one pass, a low estimate; for messages only.
_FULL_PASS_RATE = 5e6


@dataclasses.dataclass(frozen=True)
class Contents:
  """The documents of some windows, without those that have no tokens.

  Attributes:
    window: int64[N], index into the requested windows.
    document: int64[N], in the order of packing.
    first_token: int64[N], index of its first token in the store.
    stored: int64[N], the number of its tokens in the store.
    kept: int64[N], the number of its tokens that are packed, with an added BOS
      and EOS.
  """

  window: np.ndarray
  document: np.ndarray
  first_token: np.ndarray
  stored: np.ndarray
  kept: np.ndarray


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
    self._window_tokens: tuple[int, np.ndarray] | None = None
    self._starts: tuple[int, columns.Column] | None = None
    self._memory = memo.Memo(1)
    key = {"block_docs": order.block_docs}
    arrays = self._columns("sums", key, self._pass)
    self._blocks = arrays["blocks"]
    self.totals: Totals = Totals(*arrays["totals"].read().tolist())

  def __getstate__(self) -> dict[str, Any]:
    # Another process reads the sums again.
    return {**vars(self), "_window_tokens": None, "_starts": None}

  def key(self) -> dict[str, Any]:
    """Returns what determines lengths and sums, as JSON values."""
    return {
      "store": self.store.hash,
      "seq_len": self._seq_len,
      "added": [self._bos, self._eos],
      "long_documents": self._long,
    }

  def contents(self, windows: np.ndarray, epoch: int) -> Contents:
    """Returns the documents of windows.

    Args:
      windows: int64[N], ascending.
      epoch: The epoch whose order of documents is used, from 0.
    """
    document = self.order.documents(windows, epoch)
    first_token, stored = self.store.bounds(document)
    num_packed = self._kept(document, stored)
    window = np.repeat(
      np.arange(len(windows)), self.order.window_sizes(windows)
    )
    if self.totals.empty or self._long == "drop":
      nonempty = np.flatnonzero(num_packed)
      if len(nonempty) < len(num_packed):
        window, document = window[nonempty], document[nonempty]
        first_token, stored, num_packed = (
          first_token[nonempty],
          stored[nonempty],
          num_packed[nonempty],
        )
    return Contents(window, document, first_token, stored, num_packed)

  def num_kept(self, document: int) -> int:
    """Counts a document's packed tokens, with an added BOS and EOS."""
    documents = np.asarray([document])
    return int(self._kept(documents, self.store.bounds(documents)[1])[0])

  def tokens_before(self, document: int, epoch: int) -> int:
    """Returns the tokens packed before a document in an epoch's order.

    Args:
      document: A document with at least one token.
      epoch: The epoch whose order of documents is used, from 0.
    """
    if self.order.kind != "full":
      window, contents, entry = self.found(document, epoch)
      before = int(self.window_tokens(epoch)[:window].sum())
      return before + int(contents.kept[:entry].sum())
    # A full permutation has no sums: look up the lengths on the shorter side.
    place, total = (
      self.order.position(document, epoch),
      self.order.num_documents,
    )
    if place <= total // 2:
      return self._gathered(0, place, epoch)
    return self.totals.tokens - self._gathered(place, total, epoch)

  def _gathered(self, first_place: int, end_place: int, epoch: int) -> int:
    """Counts the packed tokens of a range of places of a full permutation.

    Args:
      first_place: The first place of the range.
      end_place: The place after its last.
      epoch: The epoch whose order of documents is used, from 0.
    """
    total, lengths = 0, self._lengths()
    for low in range(first_place, end_place, _PASS_DOCUMENTS):
      documents = self.order.at(
        np.arange(low, min(low + _PASS_DOCUMENTS, end_place)), epoch
      )
      total += int(lengths(documents).sum())
    return total

  def _lengths(self) -> Callable[[np.ndarray], np.ndarray]:
    """Returns a function from documents to the tokens that are packed of each.

    The lengths of at most `_IN_MEMORY` documents are read once and cached.
    """
    if self.order.num_documents > _IN_MEMORY:
      return lambda documents: self._kept(
        documents, self.store.bounds(documents)[1]
      )

    def read() -> np.ndarray:
      parts = [
        self._kept(
          np.arange(first_document, first_document + len(lengths)), lengths
        )
        for first_document, lengths in self.store.iter_lengths()
      ]
      packed = np.concatenate(parts)
      return packed.astype(np.int32) if packed.max() < 2**31 else packed

    packed_lengths = self._memory.get("lengths", read)
    return lambda documents: packed_lengths[documents].astype(np.int64)

  def found(self, document: int, epoch: int) -> tuple[int, Contents, int]:
    """Finds a document in the order.

    Args:
      document: A document with at least one token.
      epoch: The epoch whose order of documents is used, from 0.

    Returns:
      (its window, the documents of that window, the document's index there).
    """
    window = self.order.position(document, epoch) // self.order.window_docs
    contents = self.contents(np.asarray([window]), epoch)
    return window, contents, int(np.argmax(contents.document == document))

  def window_tokens(self, epoch: int) -> np.ndarray:
    """Returns int64[num_windows], the tokens packed from each window."""
    cached = self._window_tokens
    if cached is None or cached[0] != epoch:
      if self.order.kind == "full":
        sums = self._pass_in_order(epoch)
      else:
        sums = self.order.window_sums(self._blocks.read(), epoch)
      cached = self._window_tokens = (epoch, sums)
    return cached[1]

  def window_starts(self, epoch: int) -> columns.Column:
    """Returns the tokens before each window of an epoch, and then their sum."""
    cached = self._starts
    if cached is None or cached[0] != epoch:
      if self.order.kind == "none" and not isinstance(
        self._blocks, columns.ArrayColumn
      ):
        # Each block is a window: in the store's own order there are many.
        starts = columns.PrefixSumColumn(self._blocks)
      else:
        tokens = columns.ArrayColumn(self.window_tokens(epoch))
        starts = columns.ArrayColumn(columns.PrefixSumColumn(tokens).read())
      # Assigned as one tuple: threads may use several epochs at once.
      cached = self._starts = (epoch, starts)
    return cached[1]

  def derived(
    self,
    name: str,
    key: Mapping[str, Any],
    build: Callable[[], Mapping[str, np.ndarray]],
  ) -> Mapping[str, np.ndarray]:
    """Returns arrays computed from all documents.

    For a large store they are written to files beside it and read from there.

    Args:
      name: The name of the files.
      key: What determines the arrays besides `key()`, as JSON values.
      build: Computes the arrays by name.
    """
    arrays = self._columns(name, key, build)
    return {name: array.read() for name, array in arrays.items()}

  def _columns(
    self,
    name: str,
    key: Mapping[str, Any],
    build: Callable[[], Mapping[str, np.ndarray]],
  ) -> Mapping[str, columns.Column]:
    """Returns arrays by name, from files if the store is large.

    Args:
      name: The name of the files.
      key: What determines the arrays besides `key()`, as JSON values.
      build: Computes the arrays by name.
    """
    if self.order.num_documents < _KEPT_ON_DISK:
      return {n: columns.ArrayColumn(array) for n, array in build().items()}
    return side_index.load_or_build(
      self.store.path, name, {**self.key(), **key}, lambda: [build()]
    )

  def spans_of(
    self,
    contents: Contents,
    which: np.ndarray,
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
      contents: The documents of some windows.
      which: int64[N], index of each part's document in `contents`.
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
      whole=contents.kept[which],
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
    if not self.store.holds_pieces:
      return self._bos, self._eos
    begins, ends = self.store.at_ends(document)
    return self._bos * begins, self._eos * ends

  def _offered(self, document: np.ndarray, stored: np.ndarray) -> np.ndarray:
    """Returns the tokens of documents with an added BOS and EOS."""
    if not self._bos + self._eos:
      return stored
    bos, eos = self._added(document)
    return np.where(stored > 0, stored + (bos + eos), 0)

  def _kept(self, document: np.ndarray, stored: np.ndarray) -> np.ndarray:
    """Returns the tokens of documents that are packed, int64[N].

    Args:
      document: int64[N].
      stored: int64[N], the tokens of each in the store.
    """
    lengths = self._offered(document, stored)
    return packing.kept_lengths(lengths, self._seq_len, self._long)

  def _pass(self) -> Mapping[str, np.ndarray]:
    """Returns tokens per block, and totals, from one pass over lengths."""
    size = self.order.block_docs
    blocks = np.zeros(self.order.num_blocks, np.int64)
    empty = long = offered = 0
    total = self.order.num_documents
    batch = size * max(1, _PASS_DOCUMENTS // size)
    with progress(total, f"{self.name}: lengths") as bar:
      for first_document, lengths in self.store.iter_lengths(batch):
        documents = np.arange(first_document, first_document + len(lengths))
        offered_lengths = self._offered(documents, lengths)
        packed_lengths = packing.kept_lengths(
          offered_lengths, self._seq_len, self._long
        )
        first_block = first_document // size
        sums = np.add.reduceat(
          packed_lengths, np.arange(0, len(packed_lengths), size)
        )
        blocks[first_block : first_block + len(sums)] = sums
        empty += int(np.sum(lengths == 0))
        long += int(np.sum(offered_lengths > self._seq_len))
        offered += int(offered_lengths.sum())
        bar.update(len(lengths))
    tokens = int(blocks.sum())
    totals = np.asarray([total, empty, long, tokens, offered - tokens])
    return {"blocks": blocks, "totals": totals}

  def count_begins(self, every: int, num_rows: int, epoch: int) -> np.ndarray:
    """Counts documents that begin in a row after its first column.

    The documents form one stream of tokens that is cut every `seq_len` tokens.
    Takes a pass over their lengths.

    Args:
      every: Rows counted together.
      num_rows: Rows of the stream; later documents are not counted.
      epoch: The epoch whose order of documents is used, from 0.

    Returns:
      int64[ceil(num_rows / every)].
    """
    begins = np.zeros(-(-num_rows // every), np.int64)
    with progress(self.order.num_documents, f"{self.name}: begins") as bar:
      for document, begin, num_packed in self.stream(epoch):
        inside = (num_packed > 0) & (begin % self._seq_len > 0)
        row = begin[inside] // self._seq_len
        row = row[row < num_rows] // every
        begins += np.bincount(row, minlength=len(begins))
        bar.update(len(document))
    return begins

  def stream(
    self, epoch: int
  ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yields the documents of an epoch in order, about a million at a time.

    Args:
      epoch: The epoch whose order of documents is used, from 0.

    Yields:
      int64[N] each: documents, the tokens packed before each, and the tokens
      packed of each, 0 or more.
    """
    end = 0
    for _, document, num_packed in self._in_order(epoch):
      begin = end + np.cumsum(num_packed) - num_packed
      end += int(num_packed.sum())
      yield document, begin, num_packed

  def _in_order(
    self, epoch: int
  ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yields windows, their documents, and the packed tokens of these."""
    lengths = self._lengths()
    for windows in self._window_groups():
      document = self.order.documents(windows, epoch)
      yield windows, document, lengths(document)

  def _window_groups(self) -> Iterator[np.ndarray]:
    """Yields all windows, ascending, about a million documents at a time."""
    step = max(1, _PASS_DOCUMENTS // self.order.window_docs)
    for first_window in range(0, self.order.num_windows, step):
      yield np.arange(
        first_window, min(first_window + step, self.order.num_windows)
      )

  def _pass_in_order(self, epoch: int) -> np.ndarray:
    """Returns int64[num_windows], tokens per window of a full permutation."""
    began = time.monotonic()
    sums = np.zeros(self.order.num_windows, np.int64)
    with progress(
      self.order.num_documents, f"{self.name}: order of epoch {epoch}"
    ) as bar:
      for windows, _, num_packed in self._in_order(epoch):
        sizes = self.order.window_sizes(windows)
        sums[windows] = np.add.reduceat(num_packed, np.cumsum(sizes) - sizes)
        bar.update(int(sizes.sum()))
    if self.order.num_documents >= _KEPT_ON_DISK:
      logging.info(
        "%s: epoch %d's order of %d documents took %.1f s",
        self.name,
        epoch,
        self.order.num_documents,
        time.monotonic() - began,
      )
    return sums


def pass_cost(num_documents: int, rate: float = _FULL_PASS_RATE) -> str:
  """Describes the cost of a pass over all documents, for messages.

  Args:
    num_documents: Documents of the store.
    rate: Documents per second.
  """
  return (
    f"a pass over {num_documents} documents in every epoch (about"
    f" {num_documents / rate:.2g} s)"
  )


def progress(total: int, what: str) -> side_index.Bar:
  """Returns a progress bar over documents, shown for many of them only."""
  return side_index.progress(total, what, "docs", total >= _KEPT_ON_DISK)
