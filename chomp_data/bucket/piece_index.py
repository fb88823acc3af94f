# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Which pieces of a store's documents are in which bucket of lengths.

Found by one pass over the lengths; kept beside a large store, and read from
there through memory maps: 8 to 16 bytes a piece, none of them in memory.
"""

from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import numpy as np

from chomp_data import stores
from chomp_data.bucket import pieces
from chomp_data.stores import side_index

# Below this a pass over all lengths takes a few milliseconds.
_KEPT_ON_DISK = 1 << 18
_PASS_DOCUMENTS = 1 << 20
# Part of the index's name: raise it when pieces change.
_VERSION = 2
# Values of a side array looked at together, within one checked page.
_BLOCK_BITS = 16


class PieceIndex:
  """Pieces by bucket, in the order of documents."""

  def __init__(
    self,
    store: stores.Store,
    lengths: Sequence[int],
    *,
    assign: str,
    added: int,
    name: str,
  ):
    """Passes over the lengths, or opens what a pass has found.

    Args:
      store: Where the documents are.
      lengths: Tokens of the buckets, rising.
      assign: As in `pieces.cut`.
      added: BOS and EOS that each document gets, 0 to 2.
      name: The source's name, for messages.

    Raises:
      StoreError: If the index can be kept nowhere.
    """
    self._store = store
    self._lengths = tuple(lengths)
    self._assign = assign
    self._added = added
    self._name = name
    self._on_disk = store.num_documents >= _KEPT_ON_DISK
    self._arrays: dict[str, Any] | None = None
    self._open()

  def __getstate__(self) -> dict[str, Any]:
    # Maps of files are opened again where they are used.
    kept = None if self._on_disk else self._arrays
    return {**self.__dict__, "_arrays": kept}

  @property
  def counts(self) -> list[int]:
    """Pieces of each bucket."""
    arrays = self._open()
    return [len(arrays[_document(n)]) for n in self._lengths]

  @property
  def tokens(self) -> list[int]:
    """Tokens of each bucket, added ones included."""
    return self._open()["totals"][1:].tolist()

  @property
  def num_empty(self) -> int:
    """Documents without a token, which are in no bucket."""
    return int(self._open()["totals"][0])

  def get(
    self, bucket: int, index: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns pieces of a bucket.

    Args:
      bucket: Its number.
      index: int64[N], pieces, below `counts[bucket]`.

    Returns:
      Documents int64[N], and the first token of each piece int64[N], an added
      BOS being token 0.
    """
    arrays, length = self._open(), self._lengths[bucket]
    return (
      _gathered(arrays[_document(length)], index),
      _gathered(arrays[_begin(length)], index),
    )

  def of_document(self, document: int) -> list[np.ndarray]:
    """Returns the pieces of a document in each bucket: `get` back.

    Args:
      document: Its number.

    Returns:
      int64[N] for each bucket, ascending.
    """
    arrays, found = self._open(), []
    for length in self._lengths:
      own = arrays[_document(length)]
      values = own if isinstance(own, np.ndarray) else own.read()
      low = int(np.searchsorted(values, document, side="left"))
      high = int(np.searchsorted(values, document, side="right"))
      found.append(np.arange(low, high))
    return found

  def _open(self) -> dict[str, Any]:
    if self._arrays is None and self._on_disk:
      arrays = side_index.load_or_build(
        self._store.path,
        "pieces",
        {
          "version": _VERSION,
          "store": self._store.hash,
          "lengths": list(self._lengths),
          "assign": self._assign,
          "added": self._added,
        },
        self._pass,
      )
      self._arrays = {**arrays, "totals": arrays["totals"].read()}
    elif self._arrays is None:
      parts = list(self._pass())
      self._arrays = {
        name: np.concatenate([part[name] for part in parts if name in part])
        for name in dict.fromkeys(key for part in parts for key in part)
      }
    return self._arrays

  def _pass(self) -> Iterator[dict[str, np.ndarray]]:
    """Yields the pieces of parts of the store, and at last the totals."""
    total = self._store.num_documents
    document_type = np.min_scalar_type(max(total - 1, 0))
    # So that every array is there, whatever comes.
    yield {
      name(length): np.empty(0, dtype)
      for length in self._lengths
      for name, dtype in ((_document, document_type), (_begin, np.int64))
    }
    totals = np.zeros(1 + len(self._lengths), np.int64)
    with side_index.progress(
      total, f"{self._name}: lengths", "docs", self._on_disk
    ) as bar:
      for first, stored in self._store.iter_lengths(_PASS_DOCUMENTS):
        lengths = np.where(stored > 0, stored + self._added, 0)
        found = pieces.cut(lengths, self._lengths, self._assign)
        for i, length in enumerate(self._lengths):
          document, begin = found[i]
          ends = np.minimum(begin + length, lengths[document])
          totals[i + 1] += int((ends - begin).sum())
          yield {
            _document(length): (document + first).astype(document_type),
            _begin(length): begin,
          }
        totals[0] += int(np.sum(stored == 0))
        bar.update(len(stored))
    yield {"totals": totals}


def _document(length: int) -> str:
  return f"document-{length}"


def _begin(length: int) -> str:
  return f"begin-{length}"


def _gathered(
  array: np.ndarray | side_index.SideArray, index: np.ndarray
) -> np.ndarray:
  """Returns int64[N], values of an array in memory or on disk."""
  if isinstance(array, np.ndarray):
    return array[index].astype(np.int64)
  out = np.empty(len(index), np.int64)
  block = index >> _BLOCK_BITS
  order = np.argsort(block, kind="stable")
  cuts = np.flatnonzero(np.diff(block[order])) + 1
  for own in np.split(order, cuts) if len(index) else ():
    first = int(block[own[0]]) << _BLOCK_BITS
    values = array.read(first, min(first + (1 << _BLOCK_BITS), len(array)))
    out[own] = values[index[own] - first]
  return out
