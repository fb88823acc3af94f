# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A store's documents as packers see them: ordered, in windows, with sums.

Lengths include an added BOS and EOS. Documents of no token are skipped. What
random access needs are the tokens of each window, which follow from one pass
over the lengths, kept beside the store where it is large.
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
# Lengths of so many are kept where orders need them again and again: 64 MiB.
_IN_MEMORY = 1 << 24
# Documents of one pass a second, on the slow side; for messages only.
_FULL_PASS_RATE = 5e6
# Places permuted and looked up a second, likewise.
_PERMUTED_RATE = 2e7


@dataclasses.dataclass(frozen=True)
class Contents:
  """Documents of some windows, those of no token left out.

  Attributes:
    window: int64[N], index into the windows asked for.
    document: int64[N], in the order of packing.
    first_token: int64[N], where its tokens begin in the store.
    stored: int64[N], its tokens in the store.
    kept: int64[N], tokens that are packed, added ones included.
  """

  window: np.ndarray
  document: np.ndarray
  first_token: np.ndarray
  stored: np.ndarray
  kept: np.ndarray


@dataclasses.dataclass(frozen=True)
class Totals:
  """What a pass over all lengths found.

  Attributes:
    documents: Documents of the store.
    empty: Documents of no token, which are skipped.
    long: Documents longer than a row.
    tokens: Tokens that are packed, added ones included.
    lost: Tokens that `long_documents` leaves out.
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
    """Sums the blocks of the order, or opens the sums.

    Args:
      store: Where the documents are.
      order: Their order and windows.
      seq_len: Positions of a row.
      add_bos: Whether each gets a BOS.
      add_eos: Whether each gets an EOS.
      long_documents: As in `packing.kept_lengths`.
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
    # Another process reads and sums its own.
    return {**vars(self), "_window_tokens": None, "_starts": None}

  def key(self) -> dict[str, Any]:
    """Returns what decides lengths and sums, as JSON values."""
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
      epoch: The epoch whose order is meant.
    """
    document = self.order.documents(windows, epoch)
    first, stored = self.store.bounds(document)
    kept = self._kept(document, stored)
    window = np.repeat(
      np.arange(len(windows)), self.order.window_sizes(windows)
    )
    if self.totals.empty or self._long == "drop":
      some = np.flatnonzero(kept)
      if len(some) < len(kept):
        window, document = window[some], document[some]
        first, stored, kept = first[some], stored[some], kept[some]
    return Contents(window, document, first, stored, kept)

  def order_cost(self) -> float:
    """Returns about how many seconds finding a document in an order takes."""
    if self.order.kind == "full":
      return 1e-3 + self.order.num_documents / 4 / _PERMUTED_RATE
    return 1e-3 + self.order.num_blocks / _PERMUTED_RATE

  def num_kept(self, document: int) -> int:
    """Returns the tokens of a document that are packed, added ones included."""
    one = np.asarray([document])
    return int(self._kept(one, self.store.bounds(one)[1])[0])

  def tokens_before(self, document: int, epoch: int) -> int:
    """Returns the tokens packed before a document in an epoch's order.

    Args:
      document: One of some tokens.
      epoch: The epoch whose order is meant.
    """
    if self.order.kind != "full":
      window, contents, entry = self.found(document, epoch)
      before = int(self.window_tokens(epoch)[:window].sum())
      return before + int(contents.kept[:entry].sum())
    # No sums help: the documents on the shorter side are gathered.
    place, total = (
      self.order.position(document, epoch),
      self.order.num_documents,
    )
    if place <= total // 2:
      return self._gathered(0, place, epoch)
    return self.totals.tokens - self._gathered(place, total, epoch)

  def _gathered(self, first: int, last: int, epoch: int) -> int:
    """Returns the tokens at places of a full permutation."""
    total, lengths = 0, self._lengths()
    for low in range(first, last, _PASS_DOCUMENTS):
      own = self.order.at(
        np.arange(low, min(low + _PASS_DOCUMENTS, last)), epoch
      )
      total += int(lengths(own).sum())
    return total

  def _lengths(self) -> Callable[[np.ndarray], np.ndarray]:
    """Returns what looks kept tokens of documents up, in memory if few."""
    if self.order.num_documents > _IN_MEMORY:
      return lambda own: self._kept(own, self.store.bounds(own)[1])

    def read() -> np.ndarray:
      parts = [
        self._kept(np.arange(first, first + len(own)), own)
        for first, own in self.store.iter_lengths()
      ]
      whole = np.concatenate(parts)
      return whole.astype(np.int32) if whole.max() < 2**31 else whole

    whole = self._memory.get("lengths", read)
    return lambda own: whole[own].astype(np.int64)

  def found(self, document: int, epoch: int) -> tuple[int, Contents, int]:
    """Returns where a document of some tokens stands in the order.

    Args:
      document: The document.
      epoch: The epoch whose order is meant.

    Returns:
      Its window, what that holds, and the document's entry in that.
    """
    window = self.order.position(document, epoch) // self.order.window_docs
    contents = self.contents(np.asarray([window]), epoch)
    return window, contents, int(np.argmax(contents.document == document))

  def window_tokens(self, epoch: int) -> np.ndarray:
    """Returns int64[num_windows], the tokens that each window packs."""
    found = self._window_tokens
    if found is None or found[0] != epoch:
      if self.order.kind == "full":
        sums = self._pass_in_order(epoch)
      else:
        sums = self.order.window_sums(self._blocks.read(), epoch)
      found = self._window_tokens = (epoch, sums)
    return found[1]

  def window_starts(self, epoch: int) -> columns.Column:
    """Returns the tokens before each window of an epoch, and all of them."""
    known = self._starts
    if known is None or known[0] != epoch:
      if self.order.kind == "none" and not isinstance(
        self._blocks, columns.ArrayColumn
      ):
        # Each block is a window: in the store's own order there are many.
        found = columns.PrefixSumColumn(self._blocks)
      else:
        tokens = columns.ArrayColumn(self.window_tokens(epoch))
        found = columns.ArrayColumn(columns.PrefixSumColumn(tokens).read())
      # Read once, and set whole: threads may ask about several epochs.
      known = self._starts = (epoch, found)
    return known[1]

  def derived(
    self,
    name: str,
    key: Mapping[str, Any],
    build: Callable[[], Mapping[str, np.ndarray]],
  ) -> Mapping[str, np.ndarray]:
    """Returns arrays of all documents, kept beside a large store.

    Args:
      name: What they are.
      key: What decides them, `key()` apart, as JSON values.
      build: Makes them in one pass.
    """
    arrays = self._columns(name, key, build)
    return {name: array.read() for name, array in arrays.items()}

  def _columns(
    self,
    name: str,
    key: Mapping[str, Any],
    build: Callable[[], Mapping[str, np.ndarray]],
  ) -> Mapping[str, columns.Column]:
    """Returns what `derived` does, of a large store in files."""
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
      contents: Where the documents are.
      which: int64[N], entries of `contents`.
      begin: int64[N], first token of the part, an added BOS being token 0.
      end: int64[N], the token after its last.
      row: int64[N], as in `Spans`.
      column: int64[N], as in `Spans`.
      segment: int64[N], as in `Spans`.
      num_rows: As in `Spans`.
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
    """Returns how many BOS and EOS documents get; 0 where one is cut."""
    if not self.store.holds_pieces:
      return self._bos, self._eos
    begins, ends = self.store.at_ends(document)
    return self._bos * begins, self._eos * ends

  def _offered(self, document: np.ndarray, stored: np.ndarray) -> np.ndarray:
    """Returns the tokens of documents, added ones included."""
    if not self._bos + self._eos:
      return stored
    bos, eos = self._added(document)
    return np.where(stored > 0, stored + (bos + eos), 0)

  def _kept(self, document: np.ndarray, stored: np.ndarray) -> np.ndarray:
    lengths = self._offered(document, stored)
    return packing.kept_lengths(lengths, self._seq_len, self._long)

  def _pass(self) -> Mapping[str, np.ndarray]:
    """Returns tokens by block, and totals, from one pass over all lengths."""
    size = self.order.block_docs
    blocks = np.zeros(self.order.num_blocks, np.int64)
    empty = long = offered = 0
    total = self.order.num_documents
    batch = size * max(1, _PASS_DOCUMENTS // size)
    with progress(total, f"{self.name}: lengths") as bar:
      for first, lengths in self.store.iter_lengths(batch):
        own = np.arange(first, first + len(lengths))
        whole = self._offered(own, lengths)
        kept = packing.kept_lengths(whole, self._seq_len, self._long)
        low = first // size
        sums = np.add.reduceat(kept, np.arange(0, len(kept), size))
        blocks[low : low + len(sums)] = sums
        empty += int(np.sum(lengths == 0))
        long += int(np.sum(whole > self._seq_len))
        offered += int(whole.sum())
        bar.update(len(lengths))
    tokens = int(blocks.sum())
    totals = np.asarray([total, empty, long, tokens, offered - tokens])
    return {"blocks": blocks, "totals": totals}

  def count_begins(self, every: int, num_rows: int, epoch: int) -> np.ndarray:
    """Returns how many documents begin inside rows of one stream of tokens.

    Inside is not at a row's first column. The documents follow each other and
    are cut every `seq_len` tokens; this takes a pass over their lengths.

    Args:
      every: Rows counted together.
      num_rows: Rows of the stream; what begins beyond them is left out.
      epoch: The epoch whose order is meant.

    Returns:
      int64[ceil(num_rows / every)].
    """
    begins = np.zeros(-(-num_rows // every), np.int64)
    with progress(self.order.num_documents, f"{self.name}: begins") as bar:
      for document, begin, kept in self.stream(epoch):
        inside = (kept > 0) & (begin % self._seq_len > 0)
        row = begin[inside] // self._seq_len
        row = row[row < num_rows] // every
        begins += np.bincount(row, minlength=len(begins))
        bar.update(len(document))
    return begins

  def stream(
    self, epoch: int
  ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yields the documents of an epoch one after the other, many at once.

    Args:
      epoch: The epoch whose order is meant.

    Yields:
      int64[N] each: documents, the tokens packed before each, and its own,
      which may be none.
    """
    end = 0
    for _, document, kept in self._in_order(epoch):
      begin = end + np.cumsum(kept) - kept
      end += int(kept.sum())
      yield document, begin, kept

  def _in_order(
    self, epoch: int
  ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yields windows, their documents, and the tokens of these."""
    lengths = self._lengths()
    for windows in self._window_groups():
      document = self.order.documents(windows, epoch)
      yield windows, document, lengths(document)

  def _window_groups(self) -> Iterator[np.ndarray]:
    """Yields all windows, ascending, about a million documents at once."""
    step = max(1, _PASS_DOCUMENTS // self.order.window_docs)
    for first in range(0, self.order.num_windows, step):
      yield np.arange(first, min(first + step, self.order.num_windows))

  def _pass_in_order(self, epoch: int) -> np.ndarray:
    """Returns tokens by window of a full permutation: all lengths, gathered."""
    began = time.monotonic()
    sums = np.zeros(self.order.num_windows, np.int64)
    with progress(
      self.order.num_documents, f"{self.name}: order of epoch {epoch}"
    ) as bar:
      for windows, _, kept in self._in_order(epoch):
        sizes = self.order.window_sizes(windows)
        sums[windows] = np.add.reduceat(kept, np.cumsum(sizes) - sizes)
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
  """Returns a pass over all documents in words, for messages."""
  return (
    f"a pass over {num_documents} documents in every epoch (about"
    f" {num_documents / rate:.2g} s)"
  )


def progress(total: int, what: str) -> side_index.Bar:
  """Returns a bar over documents, shown where there are many."""
  return side_index.progress(total, what, "docs", total >= _KEPT_ON_DISK)
