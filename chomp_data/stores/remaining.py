# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What remains of a store: some documents, and parts of documents, as one.

    documents   0 0 0 0 1 1 1 2 2 3 3 3      remaining tokens [2, 6) [9, 12)
    pieces          0 0 1 1       2 2 2

A piece is what an interval of tokens has of a document. Nothing is copied, and
tokens have the positions that they have in the whole store.
"""

from collections.abc import Iterator
from collections.abc import Mapping
import hashlib
from typing import Any

import numpy as np

from chomp_data.index import columns
from chomp_data.stores import base


class Remaining(base.Store[base.Opened]):
  """Pieces of documents as the documents of a store, for packing.

  Tokens are read from the whole store.

  Attributes:
    whole: The store.
    digest: Of the intervals, SHA-256 as hex.
  """

  def __init__(self, whole: base.Store, kept: Mapping[str, columns.Column]):
    """Opens nothing; see `pieces`.

    Args:
      whole: The store.
      kept: What `pieces` returned.
    """
    super().__init__(whole.path)
    self.whole: base.Store = whole
    self._begin, self._end = kept["begin"], kept["end"]
    self._document, self._piece = kept["document"], kept["piece"]
    self.digest: str = bytes(kept["digest"].read().tolist()).hex()
    self._num_pieces, self._tokens = kept["totals"].read().tolist()

  def _open(self) -> base.Opened:
    return self.whole._opened

  @property
  def hash(self) -> str:
    """Of the whole store's hash and what remains of it."""
    return hashlib.sha256(
      f"{self.whole.hash} {self.digest}".encode()
    ).hexdigest()

  def __getstate__(self) -> dict[str, Any]:
    # The whole store checks that it is the same.
    return {k: v for k, v in vars(self).items() if k != "_opened"}

  @property
  def chats(self) -> dict[str, Any]:
    """How the turns of chats end in the whole store."""
    return self.whole.chats

  @property
  def num_documents(self) -> int:
    """Pieces, those of no token included."""
    return self._num_pieces

  @property
  def num_tokens(self) -> int:
    """Tokens of all pieces."""
    return self._tokens

  def intervals(self) -> tuple[np.ndarray, np.ndarray]:
    """Returns (begin, end) of what remains, token positions, int64[N]."""
    begin, end = self._begin.read(), self._end.read()
    return begin.astype(np.int64), end.astype(np.int64)

  def bounds(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns where pieces lie; see `base.Store`."""
    return self._cut(self._existing(documents))[1:3]

  def iter_lengths(
    self, batch: int = 1 << 20
  ) -> Iterator[tuple[int, np.ndarray]]:
    """Yields the lengths of all pieces; see `base.Store`."""
    for first in range(0, self._num_pieces, batch):
      last = min(first + batch, self._num_pieces)
      yield first, self._cut(np.arange(first, last))[2]

  def documents_of(self, pieces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the documents of pieces, and where in them they begin."""
    document, begin, _, first, _ = self._cut(pieces)
    return document, begin - first

  def pieces_of(self, document: int) -> np.ndarray:
    """Returns the pieces of a document that have tokens, int64[N]."""
    first, length = self.whole.bounds(np.asarray([document]))
    if not length[0]:
      return np.empty(0, np.int64)
    # The last interval that begins at or before its last token; those before
    # it in the document follow each other.
    last = int(self._begin.search(first + length - 1)[0])
    low = int(self._end.search(first)[0])
    own = np.arange(low, last)
    return self._piece.take(own) + document - self._document.take(own)

  @property
  def holds_pieces(self) -> bool:
    """True: parts of the whole store's documents."""
    return True

  def at_ends(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns whether pieces begin, and end, where their documents do."""
    _, begin, length, first, whole = self._cut(documents)
    return begin == first, begin + length == first + whole

  def trained_before(self, positions: np.ndarray) -> np.ndarray:
    """Returns trained tokens before positions of the whole store."""
    return self.whole.trained_before(positions)

  @property
  def has_labels(self) -> bool:
    """Whether some tokens may not be trained on; see `base.Store`."""
    return self.whole.has_labels

  @property
  def has_document_weights(self) -> bool:
    """Whether documents may weigh other than 1; see `base.Store`."""
    return self.whole.has_document_weights

  def document_weights(self, documents: np.ndarray) -> np.ndarray:
    """Returns the weights of the documents of pieces; see `base.Store`."""
    own = self._cut(self._existing(documents))[0]
    return self.whole.document_weights(own)

  def _cut(
    self, pieces: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns document, begin and length of pieces, and the whole's bounds."""
    interval = self._piece.search(pieces) - 1
    document = self._document.take(interval)
    document = document + pieces - self._piece.take(interval)
    first, whole = self.whole.bounds(document)
    begin = np.maximum(first, self._begin.take(interval))
    end = np.minimum(first + whole, self._end.take(interval))
    return document, begin, end - begin, first, whole


def pieces(
  store: base.Store, begin: np.ndarray, end: np.ndarray
) -> dict[str, np.ndarray]:
  """Returns which pieces of documents intervals of tokens have.

  Args:
    store: The whole.
    begin: int64[N], token positions; see `index/intervals.py`.
    end: int64[N].

  Returns:
    `begin`, `end`, and of each interval its first `document` and how many
    pieces come before it, `piece`; `digest` and `totals`, pieces and tokens.
  """
  document = _document_at(store, begin)
  count = _document_at(store, end - 1) - document + 1
  edges = np.concatenate([begin, end]).astype("<i8").tobytes()
  return {
    "begin": begin,
    "end": end,
    "document": document,
    "piece": np.cumsum(count) - count,
    "digest": np.frombuffer(hashlib.sha256(edges).digest(), np.uint8),
    "totals": np.asarray([count.sum(), (end - begin).sum()], np.int64),
  }


def _document_at(store: base.Store, positions: np.ndarray) -> np.ndarray:
  """Returns the documents that tokens int64[N] are of, by bisection."""
  low = np.zeros(len(positions), np.int64)
  high = np.full(len(positions), store.num_documents, np.int64)
  # The last document that begins at or before a token has it: those of no
  # token stand before the one that begins at the same.
  while (high - low > 1).any():
    middle = (low + high) // 2
    begins = store.bounds(middle)[0] <= positions
    low, high = np.where(begins, middle, low), np.where(begins, high, middle)
  return low
