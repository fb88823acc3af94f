# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The order in which documents are packed, and the windows they form.

A window is `window_docs` consecutive positions of the order. 'none' keeps the
store's order; 'block' permutes blocks of documents and then the documents of
each window, so that a window's tokens are a sum over its blocks; 'full'
permutes all documents. The short block at the end stays last. NumPy only.
"""

from typing import Any

import numpy as np

from chomp_data.index import hashing
from chomp_data.index import permutation
from chomp_data.index import ragged


class DocumentOrder:
  """Maps positions of an epoch to documents."""

  def __init__(
    self,
    num_documents: int,
    *,
    window_docs: int,
    block_docs: int,
    kind: str,
    key: int,
  ):
    """Stores the options of the order; computes nothing.

    Args:
      num_documents: Documents of the store, at least 1.
      window_docs: Documents of a window.
      block_docs: Documents of a block; divides `window_docs`.
      kind: 'none', 'block' or 'full'.
      key: The key of the order.
    """
    self.num_documents = num_documents
    self.window_docs = window_docs
    self.block_docs = block_docs
    self.kind = kind
    self._key = key
    self._blocks: tuple[int, np.ndarray] | None = None

  def __getstate__(self) -> dict[str, Any]:
    # Another process computes the order of blocks again.
    return {**vars(self), "_blocks": None}

  @property
  def num_windows(self) -> int:
    """Windows of an epoch."""
    return -(-self.num_documents // self.window_docs)

  @property
  def num_blocks(self) -> int:
    """Blocks of an epoch, with the short one at the end."""
    return -(-self.num_documents // self.block_docs)

  def window_sizes(self, windows: np.ndarray) -> np.ndarray:
    """Returns int64[N], the number of documents of each window."""
    remaining = self.num_documents - windows * self.window_docs
    return np.minimum(remaining, self.window_docs)

  def documents(self, windows: np.ndarray, epoch: int) -> np.ndarray:
    """Returns the documents of windows in order, int64[M].

    Args:
      windows: int64[N].
      epoch: The epoch.
    """
    sizes = self.window_sizes(windows)
    window = np.repeat(windows, sizes)
    local = ragged.places(sizes)
    window_begin = window * self.window_docs
    if self.kind == "none":
      return window_begin + local
    if self.kind == "full":
      return self.at(window_begin + local, epoch)
    keys = hashing.fold(hashing.fold(self._key, np.asarray(epoch)), windows)
    local = permutation.permute(
      local, np.repeat(sizes, sizes), np.repeat(keys, sizes)
    )
    position = window_begin + local
    block, within = np.divmod(position, self.block_docs)
    return self.blocks(epoch)[block] * self.block_docs + within

  def at(self, places: np.ndarray, epoch: int) -> np.ndarray:
    """Returns the documents at places int64[N] of a full permutation."""
    key = int(hashing.fold(self._key, np.asarray(epoch))[0])
    return permutation.permute(places, self.num_documents, key)

  def position(self, document: int, epoch: int) -> int:
    """Returns the position of a document in an epoch; inverts `documents`."""
    if self.kind == "none":
      return document
    documents = np.asarray([document])
    if self.kind == "full":
      key = int(hashing.fold(self._key, np.asarray(epoch))[0])
      return int(permutation.inverse(documents, self.num_documents, key)[0])
    block, within = divmod(document, self.block_docs)
    place = int(np.flatnonzero(self.blocks(epoch) == block)[0])
    place = place * self.block_docs + within
    window = np.asarray([place // self.window_docs])
    window_begin = int(window[0]) * self.window_docs
    key = hashing.fold(hashing.fold(self._key, np.asarray(epoch)), window)
    size = int(self.window_sizes(window)[0])
    local = permutation.inverse(np.asarray([place - window_begin]), size, key)
    return window_begin + int(local[0])

  def blocks(self, epoch: int) -> np.ndarray:
    """Returns int64[num_blocks], the block at each place of the order."""
    cached = self._blocks
    if cached is None or cached[0] != epoch:
      order = np.arange(self.num_blocks)
      full_blocks = self.num_documents // self.block_docs
      if self.kind == "block" and full_blocks:
        key = hashing.fold_key(self._key, "blocks", epoch)
        order[:full_blocks] = permutation.permute(
          order[:full_blocks], full_blocks, key
        )
      cached = self._blocks = (epoch, order)
    return cached[1]

  def window_sums(self, sums: np.ndarray, epoch: int) -> np.ndarray:
    """Returns int64[num_windows], sums over windows of sums over blocks.

    Args:
      sums: int64[num_blocks], sums over the store's blocks. Kind 'full' has no
        such sums, because its windows hold no whole blocks.
      epoch: The epoch.
    """
    per_window = self.window_docs // self.block_docs
    if self.kind == "none" and per_window == 1:
      return sums  # No copy: there may be one sum per 16 documents.
    ordered = sums[self.blocks(epoch)]
    return np.add.reduceat(ordered, np.arange(0, len(ordered), per_window))
