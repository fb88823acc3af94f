# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The rest of an epoch that another run began, as the first epoch of this one.

    earlier run   epoch 2, rows of 512: documents 0 .. 7 and half of 8
    this run      epoch 0, rows of 8192: the rest of 8, documents 9, 10, ...
                  epoch 1: all documents

What remains is packed like a store of its own, whose documents are pieces of
documents; plans name the documents themselves.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

import numpy as np

from chomp_data import stores
from chomp_data.index import intervals
from chomp_data.order import shuffled
from chomp_data.phased import growing
from chomp_data.rows import row_layout
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import row_source
from chomp_data.sources import row_sums
from chomp_data.sources import row_tracing
from chomp_data.stores import remaining

_BLOCK = 1 << 20


class RestSource(row_source.RowSource):
  """Rows of what remains of a store."""

  def __init__(self, packed: row_source.RowSource):
    """Wraps a source.

    Args:
      packed: Rows over a `Remaining` store.
    """
    assert isinstance(packed.store, remaining.Remaining)
    self.packed: row_source.RowSource = packed
    self.rest: remaining.Remaining = packed.store
    self.name: str = packed.name
    self.store: stores.Store = self.rest.whole
    self.layout: row_layout.RowLayout = packed.layout
    self.document_slots: int = packed.document_slots
    self.options: Any = packed.options

  def __len__(self) -> int:
    return len(self.packed)

  def first_row(self, epoch: np.ndarray) -> np.ndarray:
    """Returns the number of each epoch's first row; see `RowSource`."""
    return self.packed.first_row(epoch)

  def locate(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (epoch, row of that epoch); see `RowSource`."""
    return self.packed.locate(rows)

  def block_starts(self, epoch: int) -> np.ndarray | None:
    """Returns the first row of each block; see `RowSource`."""
    return self.packed.block_starts(epoch)

  def plan(self, rows: np.ndarray) -> spans_lib.Spans:
    """Plans rows; see `RowSource.plan`."""
    spans = self.packed.plan(rows)
    document, start = self.rest.documents_of(spans.document)
    return dataclasses.replace(
      spans, document=document, start=spans.start + start
    )

  @property
  def sums(self) -> row_sums.Sums:
    """What its rows consume; see `RowSource`."""
    return self.packed.sums

  @property
  def tracing(self) -> row_tracing.RowTracing:
    """Which rows hold pieces of a document; see `RowSource`."""
    return _RestTracing(self)

  @property
  def fingerprint(self) -> dict[str, Any]:
    """That of the rows, over what remains."""
    return self.packed.fingerprint

  def describe(self) -> str:
    """Returns the summary of the rows, of pieces."""
    return self.packed.describe()


class StartedSource(growing.GrowingSource):
  """Rows in their order, of which the first epoch is the rest of another."""

  def __init__(
    self,
    phases: Sequence[shuffled.ShuffledSource],
    epochs: Sequence[int],
    path: str,
    *,
    all_of: Mapping[str, Any],
    after: Mapping[str, Any],
  ):
    """Binds phases; see `GrowingSource`.

    Args:
      phases: Of a `RestSource`, then of all documents.
      epochs: As there.
      path: As there.
      all_of: The fingerprint of the source without this start.
      after: What decides what remains, as JSON values.
    """
    super().__init__(phases, epochs, path)
    self._all_of = dict(all_of)
    self._after = dict(after)

  @property
  def fingerprint(self) -> dict[str, Any]:
    """That of the source without its start, and the start."""
    return {**self._all_of, "after": self._after}

  def describe(self) -> str:
    """Returns the summary of the phases."""
    first = self.phases[0].rows
    assert isinstance(first, RestSource)
    head = (
      f"[{self.name}] goes on after row {self._after['rows']} of an earlier"
      f" run: {first.rest.num_tokens} of {self.store.num_tokens} tokens remain"
      " of its epoch"
    )
    return "\n".join([head, super().describe()])


class _RestTracing(row_tracing.RowTracing):
  """Rows by the pieces of a document; of one row there may be several."""

  def __init__(self, source: RestSource):
    super().__init__(source)
    self._rest = source.rest
    self._packed = source.packed

  def rows_of(self, document: int, epoch: int) -> np.ndarray:
    """Returns the rows of all pieces; see `RowTracing`."""
    if document >= self._rest.whole.num_documents:
      return row_tracing.ranges([])
    tracing = self._packed.tracing
    found = [
      tracing.rows_of(piece, epoch)
      for piece in self._rest.pieces_of(document).tolist()
    ]
    rows = np.concatenate([row_tracing.ranges([]), *found])
    return np.stack(intervals.merged(rows[:, 0], rows[:, 1]), axis=1)

  def never(self, document: int) -> bool:
    """Returns whether nothing remains of a document; see `RowTracing`."""
    return not len(self._rest.pieces_of(document))

  def counts(self, epoch: int) -> np.ndarray | None:
    """Returns the spans of each document; see `RowTracing`."""
    own = self._packed.tracing.counts(epoch)
    if own is None:
      return None
    out = np.zeros(self._rest.whole.num_documents, np.int64)
    for low in range(0, len(own), _BLOCK):
      some = own[low : low + _BLOCK]
      document, _ = self._rest.documents_of(np.arange(low, low + len(some)))
      np.add.at(out, document, some)
    return out
