# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The order in which documents are packed, and the windows they form.

A window is `window_docs` consecutive positions of the order. 'none' keeps the
store's order; 'block' permutes blocks of documents and then the documents of
each window, so that a window's tokens are a sum over its blocks; 'full'
permutes all documents. The short block at the end stays last. NumPy only.
"""

import dataclasses

import numpy as np

from chomp_data.index import hashing
from chomp_data.index import memo
from chomp_data.index import ragged
from chomp_data.order import orders


@dataclasses.dataclass(frozen=True)
class DocumentBlocks(orders.WindowOrder):
  """Blocks of documents permuted, then the documents of each window.

  Attributes:
    window_docs: Documents of a window.
    block_docs: Documents of a block; divides `window_docs`.
    key: The key of the order.
    perm_type: 'feistel'.
  """

  window_docs: int
  block_docs: int
  key: int
  perm_type: str = "feistel"

  def rows(self, place: np.ndarray, epoch: int, size: int) -> np.ndarray:
    """Returns the documents at places of permuted blocks, int64[N]."""
    block, within = np.divmod(place, self.block_docs)
    return self.blocks(epoch, size)[block] * self.block_docs + within

  def places(self, rows: np.ndarray, epoch: int, size: int) -> np.ndarray:
    """Returns the places of documents in permuted blocks, int64[N]."""
    block, within = np.divmod(rows, self.block_docs)
    blocks = self.blocks(epoch, size)
    place = np.empty_like(blocks)
    place[blocks] = np.arange(len(blocks))
    return place[block] * self.block_docs + within

  # A table, which takes a tenth of the time of permuting numbers of blocks.
  @memo.remembered(1)
  def blocks(self, epoch: int, size: int) -> np.ndarray:
    """Returns the block at each place of an epoch, int64[num_blocks]."""
    order = np.arange(-(-size // self.block_docs))
    full_blocks = size // self.block_docs
    key = np.asarray([hashing.fold_key(self.key, "blocks", epoch)], np.uint64)
    if full_blocks:
      order[:full_blocks] = self.permuted(order[:full_blocks], full_blocks, key)
    return order

  def _windows(
    self, index: np.ndarray, epoch: int, size: int
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    window = index // self.window_docs
    begin = window * self.window_docs
    key = hashing.fold(hashing.fold(self.key, np.asarray(epoch)), window)
    return begin, np.minimum(begin + self.window_docs, size), key


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
    self._order: orders.Order = {
      "none": orders.NoneOrder(),
      "block": DocumentBlocks(window_docs, block_docs, key),
      "full": orders.FullOrder(key),
    }[kind]

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
    """Returns the documents at positions int64[N] of an epoch, int64[N]."""
    return self._order.permute(positions, epoch, self.num_documents)

  def positions_of(self, documents: np.ndarray, epoch: int) -> np.ndarray:
    """Returns the positions of documents in an epoch; inverts `documents`."""
    return self._order.positions(documents, epoch, self.num_documents)

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
    if isinstance(self._order, DocumentBlocks):
      sums = sums[self._order.blocks(epoch, self.num_documents)]
    return np.add.reduceat(sums, np.arange(0, len(sums), per_window))
