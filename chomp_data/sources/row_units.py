# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The units that rows of a source consume, without planning every row.

A mix balances the units of rows, and accounts report them. A source that knows
them without a plan overrides `RowSource.uniform` (all rows are equal) or
`RowSource.block_units` (sums of blocks). Units are those of `mix_units.UNITS`.
"""

from collections.abc import Mapping
import dataclasses

import numpy as np

from chomp_data import schema
from chomp_data import stores
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import mix_units

# Rows of a block, where the source has no blocks.
BLOCK_ROWS = 4_096

# Rules of the arguments of `uniform`, `block_units` and `units`.
UNIFORM_RULES = {
  "epoch": schema.integer(0, 2**62 - 1),
  "unit": mix_units.rule("rows"),
}
BLOCK_RULES = {**UNIFORM_RULES, "rows": schema.optional(schema.integer(1))}
UNITS_RULES = {**UNIFORM_RULES, "positions": schema.whole_numbers(1)}


@dataclasses.dataclass(frozen=True)
class Uniform:
  """The units of an epoch whose rows consume the same, except for a few.

  Attributes:
    each: Units of a row, at least 1.
    exceptions: Units of rows that consume less, by position in the epoch.
  """

  each: int
  exceptions: Mapping[int, int] = dataclasses.field(default_factory=dict)

  def blocks(self, size: int) -> "BlockUnits":
    """Returns equal rows, cut at the exceptions, as blocks.

    Args:
      size: Rows of the epoch.
    """
    positions = np.asarray(list(self.exceptions), np.int64)
    starts = np.unique(np.concatenate([[0, size], positions, positions + 1]))
    units = np.diff(starts) * self.each
    units[np.searchsorted(starts, positions)] = list(self.exceptions.values())
    return BlockUnits(starts, units)


@dataclasses.dataclass(frozen=True)
class BlockUnits:
  """The units of blocks of rows that together are an epoch.

  Attributes:
    starts: int64[n + 1], the first position of each block, and the rows of the
      epoch.
    units: int64[n], the units of the rows of each block.
  """

  starts: np.ndarray
  units: np.ndarray


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
