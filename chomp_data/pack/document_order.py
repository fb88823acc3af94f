# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The order in which documents are packed, and the windows they form.

A window is `window_docs` consecutive positions of the order. 'none' keeps the
store's order; 'block' permutes blocks of documents and then the documents of
each window, so that a window's tokens are a sum over its blocks; 'full'
permutes all documents. The short block at the end stays last. NumPy only.
"""

import numpy as np

from chomp_data.index import hashing
from chomp_data.index import memo
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
    self._blocks = memo.Memo(1)

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

  def positions(self, windows: np.ndarray) -> np.ndarray:
    """Returns int64[M], all positions of windows int64[N], in their order."""
    return ragged.ranges(windows * self.window_docs, self.window_sizes(windows))

  def documents(self, positions: np.ndarray, epoch: int) -> np.ndarray:
    """Returns the documents at positions of an epoch.

    Args:
      positions: int64[N].
      epoch: The epoch.

    Returns:
      int64[N].
    """
    if self.kind == "none":
      return positions
    key = self._epoch_key(epoch)
    if self.kind == "full":
      return permutation.permute(positions, self.num_documents, key)
    window, local = np.divmod(positions, self.window_docs)
    local = permutation.permute(
      local, self.window_sizes(window), hashing.fold(key, window)
    )
    block, within = np.divmod(
      window * self.window_docs + local, self.block_docs
    )
    return self.blocks(epoch)[block] * self.block_docs + within

  def position(self, document: int, epoch: int) -> int:
    """Returns the position of a document in an epoch; inverts `documents`."""
    if self.kind == "none":
      return document
    epoch_key = self._epoch_key(epoch)
    if self.kind == "full":
      return int(
        permutation.inverse(
          np.asarray([document]), self.num_documents, epoch_key
        )[0]
      )
    block, within = divmod(document, self.block_docs)
    block_place = int(np.flatnonzero(self.blocks(epoch) == block)[0])
    window, local = divmod(
      block_place * self.block_docs + within, self.window_docs
    )
    windows = np.asarray([window])
    local = permutation.inverse(
      np.asarray([local]),
      self.window_sizes(windows),
      hashing.fold(epoch_key, windows),
    )
    return window * self.window_docs + int(local[0])

  def blocks(self, epoch: int) -> np.ndarray:
    """Returns int64[num_blocks], the block at each place of the order."""
    return self._blocks.get(epoch, lambda: self._permuted_blocks(epoch))

  def _permuted_blocks(self, epoch: int) -> np.ndarray:
    order = np.arange(self.num_blocks)
    full_blocks = self.num_documents // self.block_docs
    if self.kind == "block" and full_blocks:
      key = hashing.fold_key(self._key, "blocks", epoch)
      order[:full_blocks] = permutation.permute(
        order[:full_blocks], full_blocks, key
      )
    return order

  def _epoch_key(self, epoch: int) -> np.ndarray:
    return hashing.fold(self._key, np.asarray(epoch))

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
