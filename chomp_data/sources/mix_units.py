# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The units that a mix may balance, `mix.unit`, and how rows are counted.

To add a unit, put a `Unit` under its name into `UNITS`; no other module has a
list of units. A source that knows the units of its rows without a plan
overrides `RowSource.block_units`.
"""

from collections.abc import Callable
import dataclasses
from typing import Any

import numpy as np

from chomp_data import schema
from chomp_data import stores
from chomp_data.rows import buckets as buckets_lib
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import row_labels
from chomp_data.stores import base


@dataclasses.dataclass(frozen=True)
class Unit:
  """How one unit is counted.

  Attributes:
    of_rows: Returns the units of each planned row, int64[num_rows], at most the
      positions of a row; None where a run of rows cannot balance the unit.
    of_labelled_rows: The same for a store with labels, if labels matter to the
      unit: a function of planned spans and the store.
    of_bucket: Units of one sample of a bucket, for each kind of buckets that
      can balance the unit: a function of the bucket and the section `buckets`.
    per_row: Units of every row if that is one number, or None.
  """

  of_rows: Callable[[spans_lib.Spans], np.ndarray] | None = None
  of_labelled_rows: (
    Callable[[spans_lib.Spans, base.Store], np.ndarray] | None
  ) = None
  of_bucket: dict[str, Callable[[buckets_lib.Bucket, Any], int]] = (
    dataclasses.field(default_factory=dict)
  )
  per_row: int | None = None


def _patches(bucket: buckets_lib.Bucket, section: Any) -> int:
  height, width = bucket.shape
  patch = section.patch_size
  return -(-height // patch) * -(-width // patch)


UNITS: dict[str, Unit] = {
  "tokens": Unit(
    lambda spans: spans.row_sums(spans.tokens()),
    of_bucket={
      "length": lambda bucket, _: bucket.shape[0],
      "resolution": _patches,
    },
  ),
  "rows": Unit(lambda spans: np.ones(spans.num_rows, np.int64), per_row=1),
  # Positions whose next token is of the same span, and trained on.
  "loss_tokens": Unit(
    lambda spans: spans.row_sums(spans.targets()),
    lambda spans, store: spans.row_sums(
      row_labels.trained_targets(spans, store)
    ),
  ),
  "samples": Unit(
    of_bucket={"length": lambda *_: 1, "resolution": lambda *_: 1}
  ),
  "pixels": Unit(
    of_bucket={
      "resolution": lambda bucket, _: bucket.shape[0] * bucket.shape[1]
    }
  ),
}


def rule(*kinds: str) -> schema.Rule:
  """Returns a rule that accepts the units of some kinds of runs."""

  def convert(value: Any) -> str:
    # Looked up here and not at import, so that units added later count.
    if not isinstance(value, str):
      raise TypeError
    if not any(value in of_kind(kind) for kind in kinds):
      raise ValueError
    return value

  names = dict.fromkeys(name for kind in kinds for name in of_kind(kind))
  text = "one of " + ", ".join(map(repr, names))
  return schema.Rule(text, convert, tuple(names))


def of_kind(kind: str) -> tuple[str, ...]:
  """Returns the units that a kind of run may balance.

  Args:
    kind: 'rows', or a kind of buckets.
  """
  if kind == "rows":
    return tuple(
      name for name, unit in UNITS.items() if unit.of_rows is not None
    )
  return tuple(name for name, unit in UNITS.items() if kind in unit.of_bucket)


# Rows of a block, where the source has no blocks.
BLOCK_ROWS = 4_096

# Rules of the arguments of `block_units` and `units`.
_RULES = {
  "epoch": schema.integer(0, 2**62 - 1),
  "unit": rule("rows"),
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
    unit: One of `UNITS` for rows.
    store: The source's, where it may have labels.
  """
  definition = UNITS[unit]
  if definition.of_labelled_rows and store and not store.labels.trains_on_all:
    return definition.of_labelled_rows(spans, store)
  assert definition.of_rows is not None
  return definition.of_rows(spans)
