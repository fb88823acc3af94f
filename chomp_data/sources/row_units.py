# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The units that rows of a source consume, without planning every row.

A mix balances the units of rows, and accounts report them. A source that knows
them without a plan overrides `RowSource.block_units`. Units are those of
`mix_units.UNITS`.
"""

from collections.abc import Callable
import dataclasses

import numpy as np

from chomp_data import schema
from chomp_data import stores
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import mix_units

# Rows of a block, where the source has no blocks.
BLOCK_ROWS = 4_096

# Rules of the arguments of `block_units` and `units`.
_RULES = {
  "epoch": schema.integer(0, 2**62 - 1),
  "unit": mix_units.rule("rows"),
}
BLOCK_RULES = {**_RULES, "rows": schema.optional(schema.integer(0))}
UNITS_RULES = {**_RULES, "positions": schema.whole_numbers(1)}


@dataclasses.dataclass(frozen=True)
class BlockUnits:
  """The units of blocks of rows that together are an epoch.

  Attributes:
    starts: int64[n + 1], the first position of each block, and the rows of the
      epoch.
    units: int64[n], the units of the rows of each block.
    equal: Whether the rows of each block consume the same.
  """

  starts: np.ndarray
  units: np.ndarray
  equal: bool = False

  @property
  def per_row(self) -> np.ndarray:
    """int64[n], the units of a row of each block of equal rows."""
    return self.units // np.maximum(np.diff(self.starts), 1)

  def reordered(
    self, positions: Callable[[np.ndarray], np.ndarray]
  ) -> "BlockUnits | None":
    """Returns equal rows in another order; None if more than some rows differ.

    Args:
      positions: Returns the new positions of rows, int64[N].
    """
    is_single, per_row = np.diff(self.starts) == 1, self.per_row
    common = np.unique(per_row[~is_single])
    if not self.equal or len(common) > 1:
      return None
    moved = positions(self.starts[:-1][is_single])
    starts = np.unique(np.concatenate([[0, self.starts[-1]], moved, moved + 1]))
    units = np.diff(starts) * (common if len(common) else 0)
    units[np.searchsorted(starts, moved)] = per_row[is_single]
    return BlockUnits(starts, units, equal=True)


def every(rows: int, size: int) -> np.ndarray:
  """Returns the starts of blocks of equal rows, int64[n + 1].

  Args:
    rows: Rows of a block; the last one may have fewer.
    size: Rows of the epoch.
  """
  return np.append(np.arange(0, size, rows), size)


def planned_units(
  spans: spans_lib.Spans, unit: str, store: stores.Store | None = None
) -> np.ndarray:
  """Returns the units that each planned row consumes, int64[num_rows].

  Args:
    spans: The plan, of one source.
    unit: One of `mix_units.UNITS` for rows.
    store: The source's, where it may have labels.
  """
  definition = mix_units.UNITS[unit]
  if definition.of_labelled_rows and store and not store.labels.trains_on_all:
    return definition.of_labelled_rows(spans, store)
  assert definition.of_rows is not None
  return definition.of_rows(spans)
