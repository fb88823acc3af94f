# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What remains of a store: some documents, and parts of documents, as one.

    documents   0 0 0 0 1 1 1 2 2 3 3 3      remaining tokens [2, 6) [9, 12)
    pieces          0 0 1 1       2 2 2

A piece is what an interval of tokens has of a document. Nothing is copied, and
tokens have the positions that they have in the whole store.
"""

from collections.abc import Mapping
import dataclasses
import hashlib
from typing import Any

import numpy as np

from chomp_data.index import columns
from chomp_data.stores import base
from chomp_data.stores import labels as labels_lib
from chomp_data.stores import texts


class RemainderStore(base.Store):
  """Pieces of documents as the documents of a store, for packing.

  Tokens and labels are those of the whole store, at the same positions.

  Attributes:
    whole: The store.
    pieces: The pieces of its documents.
  """

  def __init__(self, whole: base.Store, table: Mapping[str, columns.Column]):
    """Opens nothing.

    Args:
      whole: The store.
      table: What `pieces` returned.
    """
    super().__init__(whole.path)
    self.whole: base.Store = whole
    self.pieces: Pieces = Pieces(whole, table)

  def _open(self) -> base.Opened:
    whole, pieces = self.whole.opened, self.pieces
    weights = whole.weights
    identity = f"{self.whole.hash} {pieces.digest}"
    return dataclasses.replace(
      whole,
      hash=hashlib.sha256(identity.encode()).hexdigest(),
      documents=pieces,
      num_tokens=pieces.num_tokens,
      ids=_Texts(whole.ids, pieces),
      meta=None if whole.meta is None else _Texts(whole.meta, pieces),
      labels=whole.labels or labels_lib.AllTrained(whole.num_tokens),
      weights=None if weights is None else _Weights(weights, pieces),
      # Rows of pieces are read as rows of the whole store.
      columns={},
    )


class SelectedStore(RemainderStore):
  """The documents of a store whose hash is at most a threshold.

  Attributes:
    fingerprint: What determines them, as fields of a source's fingerprint.
  """

  def __init__(self, whole: base.Store, table: Mapping[str, columns.Column]):
    """Opens nothing.

    Args:
      whole: The store.
      table: What `pieces` returned of intervals of whole documents, with the
        `threshold` of their hashes, uint8[8].
    """
    super().__init__(whole, table)
    threshold = bytes(table["threshold"].read().tolist()).hex()
    self.fingerprint: dict[str, Any] = {
      "store": whole.hash,
      "simulated_epochs": {"threshold": threshold},
    }

  def describe(self) -> str:
    """Returns a line for the log."""
    return (
      f"simulated epochs: {self.num_documents} of"
      f" {self.whole.num_documents} documents,"
      f" {self.num_tokens} of {self.whole.num_tokens} tokens"
    )


class Pieces:
  """Where pieces of documents are; see `documents.Documents`.

  Attributes:
    num_tokens: Tokens of all pieces.
    digest: Of the intervals, SHA-256 as hex.
  """

  def __init__(self, whole: base.Store, table: Mapping[str, columns.Column]):
    """See `RemainderStore`."""
    self._whole = whole
    self._begin, self._end = table["begin"], table["end"]
    self._document, self._piece = table["document"], table["piece"]
    self.digest: str = bytes(table["digest"].read().tolist()).hex()
    num_pieces, num_tokens = table["totals"].read().tolist()
    self._num_pieces: int = num_pieces
    self.num_tokens: int = num_tokens

  def __len__(self) -> int:
    return self._num_pieces

  def intervals(self) -> tuple[np.ndarray, np.ndarray]:
    """Returns (begin, end) of what remains, token positions, int64[N]."""
    begin, end = self._begin.read(), self._end.read()
    return begin.astype(np.int64), end.astype(np.int64)

  def bounds(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (first token, length) of pieces int64[N]."""
    return self._cut(documents)[1:3]

  def lengths(self, first: int, stop: int) -> np.ndarray:
    """Returns the lengths of consecutive pieces."""
    return self._cut(np.arange(first, stop))[2]

  def documents_of(self, pieces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the documents of pieces, and where in them they begin."""
    document, begin, _, first, _ = self._cut(pieces)
    return document, begin - first

  def documents(self) -> np.ndarray:
    """Returns the documents that have pieces, int64[N], ascending."""
    return np.unique(self.documents_of(np.arange(len(self)))[0])

  def of_document(self, document: int) -> np.ndarray:
    """Returns the pieces of a document that have tokens, int64[N]."""
    first, length = self._whole.bounds(np.asarray([document]))
    if not length[0]:
      return np.empty(0, np.int64)
    # The last interval that begins at or before its last token; those before
    # it in the document follow each other.
    last = int(self._begin.search(first + length - 1)[0])
    low = int(self._end.search(first)[0])
    intervals = np.arange(low, last)
    return (
      self._piece.take(intervals) + document - self._document.take(intervals)
    )

  def at_ends(self, pieces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns whether pieces begin, and end, where their documents do."""
    _, begin, length, first, whole = self._cut(pieces)
    return begin == first, begin + length == first + whole

  def _cut(
    self, pieces: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns document, begin and length of pieces, and the whole's bounds."""
    interval = self._piece.search(pieces) - 1
    document = self._document.take(interval)
    document = document + pieces - self._piece.take(interval)
    first, whole = self._whole.bounds(document)
    begin = np.maximum(first, self._begin.take(interval))
    end = np.minimum(first + whole, self._end.take(interval))
    return document, begin, end - begin, first, whole


class _Texts(texts.Texts):
  """The strings of the documents of pieces."""

  def __init__(self, whole: texts.Texts, pieces: Pieces):
    self._whole = whole
    self._pieces = pieces

  def __len__(self) -> int:
    return len(self._pieces)

  def take(self, documents: np.ndarray) -> list[str]:
    """Returns the strings of the documents of pieces int64[N]."""
    return self._whole.take(self._pieces.documents_of(documents)[0])


class _Weights:
  """The weights of the documents of pieces; see `labels.Values`."""

  def __init__(self, whole: labels_lib.Values, pieces: Pieces):
    self._whole = whole
    self._pieces = pieces

  def gather(self, positions: np.ndarray) -> np.ndarray:
    """Returns the weights of the documents of pieces int64[N]."""
    return self._whole.gather(self._pieces.documents_of(positions)[0])

  def prefetch(self, starts: np.ndarray, lengths: np.ndarray) -> None:
    """Requests the weights of the documents of pieces."""
    self._whole.prefetch(self._pieces.documents_of(starts)[0], lengths)


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
  # The last document that begins at or before a token has it: those of no
  # token stand before the one that begins at the same.
  low = np.zeros(len(positions), np.int64)
  high = np.full(len(positions), store.num_documents, np.int64)
  return columns.last_at_most(
    lambda documents: store.bounds(documents)[0], positions, low, high
  )
