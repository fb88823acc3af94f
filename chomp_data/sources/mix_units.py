# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What a mix may balance, `mix.unit`: one entry each.

To add one, put a `Unit` under its name; nothing else names units.
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
  """One unit.

  Attributes:
    of_rows: Returns what each planned row consumes, int64[num_rows]; None
      where no run of rows may balance it. At most the positions of a row.
    of_labelled_rows: The same where the store has labels and the unit asks
      for them: a function of planned spans and the store.
    of_bucket: By kind of buckets that may balance it, what one sample of a
      bucket consumes: a function of the bucket and the section `buckets`.
    each: What every row consumes, where that is one number.
  """

  of_rows: Callable[[spans_lib.Spans], np.ndarray] | None = None
  of_labelled_rows: (
    Callable[[spans_lib.Spans, base.Store], np.ndarray] | None
  ) = None
  of_bucket: dict[str, Callable[[buckets_lib.Bucket, Any], int]] = (
    dataclasses.field(default_factory=dict)
  )
  each: int | None = None


def _patches(bucket: buckets_lib.Bucket, section: Any) -> int:
  height, width = bucket.shape
  patch = section.patch_size
  return -(-height // patch) * -(-width // patch)


UNITS: dict[str, Unit] = {
  "tokens": Unit(
    lambda spans: spans.row_sums(spans.length),
    of_bucket={
      "length": lambda bucket, _: bucket.shape[0],
      "resolution": _patches,
    },
  ),
  "rows": Unit(lambda spans: np.ones(spans.num_rows, np.int64), each=1),
  # Positions whose next token is of the same span, and trained on.
  "loss_tokens": Unit(
    lambda spans: spans.row_sums(spans.length - 1),
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
  """Accepts what a run of one of some kinds may balance."""

  def convert(value: Any) -> str:
    # Not at import: one that is added later counts too.
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
    return tuple(n for n, own in UNITS.items() if own.of_rows is not None)
  return tuple(n for n, own in UNITS.items() if kind in own.of_bucket)
