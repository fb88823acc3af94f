# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of what remains of a store after another run has read a part of it.

    previous run   epoch 2, rows of 512: documents 0 .. 7 and half of 8
    this run       epoch 0, rows of 8192: the rest of 8, documents 9, 10, ...

What remains is packed like a store of its own, whose documents are pieces of
documents; plans name the documents themselves.
"""

from collections.abc import Collection
import dataclasses
from typing import Any

import numpy as np

from chomp_data import stores
from chomp_data.index import intervals
from chomp_data.rows import row_layout
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import epochs as epochs_lib
from chomp_data.sources import row_source
from chomp_data.sources import row_units
from chomp_data.stores import remaining


class RemainderSource(row_source.RowSource):
  """Rows of pieces of documents, as rows of these documents.

  Attributes:
    remaining: The pieces, as a store.
  """

  def __init__(self, pieces: row_source.RowSource):
    """Wraps a source.

    Args:
      pieces: Rows over a `Remaining` store.
    """
    assert isinstance(pieces.store, remaining.Remaining)
    self._pieces = pieces
    self.remaining: remaining.Remaining = pieces.store
    self.name: str = pieces.name
    self.store: stores.Store = self.remaining.whole
    self.layout: row_layout.RowLayout = pieces.layout
    self.document_slots: int = pieces.document_slots
    self.options: Any = pieces.options

  def __len__(self) -> int:
    return len(self._pieces)

  @property
  def epochs(self) -> epochs_lib.Epochs:
    """Those of the rows over the remaining pieces."""
    return self._pieces.epochs

  def blocks(self, epoch: int) -> np.ndarray | None:
    """Returns the first row of each block that is read together, or None."""
    return self._pieces.blocks(epoch)

  def plan(self, rows: np.ndarray) -> spans_lib.Spans:
    """Plans rows; spans name whole documents.

    Args:
      rows: int64[N], of any epoch, in any order.
    """
    spans = self._pieces.plan(rows)
    document, start = self.remaining.documents_of(spans.document)
    return dataclasses.replace(
      spans, document=document, start=spans.start + start
    )

  @property
  def repeating_units(self) -> Collection[str]:
    """Units of which every epoch consumes the same."""
    return self._pieces.repeating_units

  def uniform(self, epoch: int, unit: str) -> row_units.Uniform | None:
    """Returns what every row consumes, or None."""
    return self._pieces.uniform(epoch, unit)

  def block_units(
    self, epoch: int, unit: str, rows: int | None
  ) -> row_units.BlockUnits | None:
    """Returns what blocks of rows consume, or None."""
    return self._pieces.block_units(epoch, unit, rows)

  def units(self, epoch: int, positions: np.ndarray, unit: str) -> np.ndarray:
    """Returns what rows of an epoch consume, int64[N]."""
    return self._pieces.units(epoch, positions, unit)

  def rows_of(self, document: int, epoch: int) -> intervals.Intervals:
    """Returns the rows that hold pieces of a document, as ranges."""
    ranges = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    if document < self.remaining.whole.num_documents:
      ranges += [
        self._pieces.rows_of(piece, epoch)
        for piece in self.remaining.pieces_of(document).tolist()
      ]
    first, last = zip(*ranges, strict=True)
    return intervals.merged(np.concatenate(first), np.concatenate(last))

  @property
  def fingerprint(self) -> dict[str, Any]:
    """What decides the rows over what remains, as JSON values."""
    return self._pieces.fingerprint

  def describe(self) -> str:
    """Returns the summary of the rows of pieces."""
    return self._pieces.describe()
