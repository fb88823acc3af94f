# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Row sources that change another source: its order, its numbers, its epochs.

All that a wrapper does not change is forwarded here. `plan` and what names rows
or documents (`rows_of`, `documents_used`, `one_span_per_document`) depends on
the change.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from chomp_data import stores
from chomp_data.rows import row_layout
from chomp_data.sources import epochs as epochs_lib
from chomp_data.sources import mix_units
from chomp_data.sources import row_source


class WrappedSource(row_source.RowSource):
  """Rows of another source.

  Attributes:
    rows: The other source.
  """

  def __init__(self, rows: row_source.RowSource):
    """Takes over the attributes of a source."""
    self.rows: row_source.RowSource = rows
    self.name: str = rows.name
    self.store: stores.Store = rows.store
    self.layout: row_layout.RowLayout = rows.layout
    self.document_slots: int = rows.document_slots
    self.options: Any = rows.options
    self.documents_follow: bool = rows.documents_follow

  def source_of(self, epoch: int) -> row_source.RowSource:
    """Returns the source that gives the rows of an epoch."""
    del epoch
    return self.rows

  def __len__(self) -> int:
    return len(self.rows)

  @property
  def epochs(self) -> epochs_lib.Epochs:
    """Those of the wrapped rows."""
    return self.rows.epochs

  @property
  def repeating_units(self) -> Mapping[str, int]:
    """Those of the wrapped rows."""
    return self.rows.repeating_units

  def prepare(self, max_epochs: int | None, full_order: bool = False) -> None:
    """Announces a reader to the wrapped rows."""
    self.rows.prepare(max_epochs, full_order)

  def blocks(self, epoch: int) -> np.ndarray | None:
    """Returns the blocks of an epoch in its source."""
    return self.source_of(epoch).blocks(epoch)

  def block_units(
    self, epoch: int, unit: str, rows: int | None
  ) -> mix_units.BlockUnits | None:
    """Returns what blocks of an epoch consume in its source."""
    return self.source_of(epoch).block_units(epoch, unit, rows)

  def units(self, epoch: int, positions: np.ndarray, unit: str) -> np.ndarray:
    """Returns what rows of an epoch consume in its source, int64[N]."""
    return self.source_of(epoch).units(epoch, positions, unit)

  @property
  def fingerprint(self) -> dict[str, Any]:
    """What determines the wrapped rows, as JSON values."""
    return self.rows.fingerprint

  def describe(self) -> str:
    """Returns the summary of the wrapped rows."""
    return self.rows.describe()
