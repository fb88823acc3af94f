# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The units that a mix may balance, `mix.unit`: one entry each.

To add a unit, put a `Unit` under its name into `UNITS`; no other module has a
list of units.
"""

from collections.abc import Callable
import dataclasses
from typing import Any

import numpy as np

from chomp_data import schema
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
