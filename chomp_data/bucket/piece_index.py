# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Which pieces of a store's documents are in which bucket of lengths.

The index is built in one pass over the lengths of documents. For large stores
it is saved beside the store and read through memory maps, 8 to 16 bytes per
piece.
"""

from collections.abc import Iterator
from collections.abc import Sequence

import numpy as np

from chomp_data import stores
from chomp_data.bucket import pieces
from chomp_data.index import ragged
from chomp_data.sources import document_columns
from chomp_data.stores import remainder
from chomp_data.stores import side_index

# Documents whose lengths are read at once.
PASS_DOCUMENTS = 1 << 20
# Part of the name of the index: increase it when pieces change.
_VERSION = 2


class PieceIndex:
  """Pieces by bucket, in the order of documents.

  Attributes:
    counts: Pieces of each bucket.
    tokens: Tokens of each bucket, added ones included.
    num_empty: Documents without tokens, which are in no bucket.
  """

  def __init__(
    self,
    store: stores.Store,
    lengths: Sequence[int],
    *,
    assign: str,
    added: int,
    name: str,
  ):
    """Builds the index, or opens it from disk.

    Args:
      store: The store of the documents. Numbers of documents are those of the
        whole store for a `SelectedStore`.
      lengths: Lengths of the buckets in tokens, ascending.
      assign: One of `pieces.ASSIGNS`.
      added: Number of tokens (BOS, EOS) added to each document, 0 to 2.
      name: The name of the source, for messages.

    Raises:
      StoreError: If the index cannot be saved.
    """
    self._store = store
    self._lengths = tuple(lengths)
    self._assign = assign
    self._added = added
    self._name = name
    arrays = document_columns.load_or_build_parts(
      store,
      "pieces",
      {
        "version": _VERSION,
        "lengths": list(self._lengths),
        "assign": assign,
        "added": added,
      },
      self._pass,
      store.num_documents,
    )
    # By bucket: the document of each piece, and its first token.
    self._documents = [arrays[_document(n)] for n in self._lengths]
    self._begins = [arrays[_begin(n)] for n in self._lengths]
    self.counts: list[int] = [len(documents) for documents in self._documents]
    self.num_empty: int
    self.tokens: list[int]
    self.num_empty, *self.tokens = arrays["totals"].read().tolist()

  def get(
    self, bucket: int, index: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns pieces of a bucket.

    Args:
      bucket: The number of the bucket.
      index: int64[N], numbers of pieces, below `counts[bucket]`.

    Returns:
      Documents int64[N], and the first token of each piece int64[N]; an added
      BOS is token 0.
    """
    return self._documents[bucket].take(index), self._begins[bucket].take(index)

  def of_documents(self, documents: np.ndarray) -> list[np.ndarray]:
    """Returns the pieces of documents in each bucket; inverts `get`.

    Args:
      documents: int64[D], ascending.

    Returns:
      int64[N] for each bucket, ascending.
    """
    pieces = [np.empty(0, np.int64)] * len(self._documents)
    for bucket, column in enumerate(self._documents):
      if len(column):
        # Pieces of all documents before each one, and of those up to it.
        first = column.search(np.maximum(documents - 1, 0))
        first[documents == 0] = 0
        counts = column.search(documents) - first
        pieces[bucket] = ragged.ranges(first, counts)
    return pieces

  def _pass(self) -> Iterator[dict[str, np.ndarray]]:
    """Yields the pieces of parts of the store in order, then totals."""
    store, total = self._store, self._store.num_documents
    selected = None
    if isinstance(store, remainder.SelectedStore):
      store, selected = store.whole, store.pieces
    document_type = np.min_scalar_type(max(store.num_documents - 1, 0))
    # Empty arrays first, so that buckets without pieces have arrays too.
    yield {
      name(length): np.empty(0, dtype)
      for length in self._lengths
      for name, dtype in ((_document, document_type), (_begin, np.int64))
    }
    totals = np.zeros(1 + len(self._lengths), np.int64)
    with side_index.progress(
      total,
      f"{self._name}: lengths",
      "docs",
      total >= document_columns.MIN_ON_DISK,
    ) as bar:
      for first, stored in self._store.iter_lengths(PASS_DOCUMENTS):
        lengths = np.where(stored > 0, stored + self._added, 0)
        by_bucket = pieces.cut(lengths, self._lengths, self._assign)
        for i, length in enumerate(self._lengths):
          document, start = by_bucket[i]
          ends = np.minimum(start + length, lengths[document])
          totals[i + 1] += int((ends - start).sum())
          document = document + first
          if selected is not None:
            document, _ = selected.documents_of(document)
          yield {
            _document(length): document.astype(document_type),
            _begin(length): start,
          }
        totals[0] += int(np.sum(stored == 0))
        bar.update(len(stored))
    yield {"totals": totals}


def _document(length: int) -> str:
  return f"document-{length}"


def _begin(length: int) -> str:
  return f"begin-{length}"
