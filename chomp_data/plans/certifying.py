# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What planned steps hold, as one digest per step (`digests`)."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from chomp_data.plans import digests
from chomp_data.plans import plan as plan_lib

# What sums are of: spans, and the values that were read.
PLAN, TOKENS = "plan", "tokens"


class Sums(NamedTuple):
  """What this process counts of a step.

  Attributes:
    rows: How many rows, filler included.
    plan: The sum of their spans or samples.
    tokens: The sum of their values, or None.
  """

  rows: int
  plan: int
  tokens: int | None = None


class Certifier:
  """Sums what planned steps hand out, each row once over all processes."""

  def __init__(
    self,
    plan: plan_lib.Plan,
    rows: plan_lib.Rows | None = None,
    counted: Mapping[str, np.ndarray] | None = None,
  ):
    """Binds a plan.

    Args:
      plan: The run.
      rows: By bucket, int64[R], rows of its global batch that are planned, as
        they stand on devices; None is all.
      counted: By bucket, bool[R], those that this process counts; None is all.
    """
    self._plan = plan
    self._rows = rows
    self._counted = counted
    self._known_names: dict[int, np.ndarray] = {}

  def num_rows(self, bucket: int) -> int:
    """Returns the rows of a step of a bucket that count, filler included."""
    own = self._plan.buckets[bucket]
    if self._counted is not None:
      return int(np.count_nonzero(self._counted[own.name]))
    return own.batch_size if self._rows is None else len(self._rows[own.name])

  def planned(
    self, planned: plan_lib.Planned, steps: Sequence[int]
  ) -> list[int]:
    """Returns the sum of each of some steps that are planned.

    Args:
      planned: The plan of them.
      steps: The steps.
    """
    bucket = planned.bucket
    place = self._place(planned, steps)
    if planned.spans is not None:
      return digests.of_spans(
        planned.spans, *place, self._names(bucket), self._counts(bucket)
      )
    assert planned.samples is not None
    name = self._names(bucket)[:, planned.dataset]
    return digests.of_samples(
      planned.samples, *place, name, self._counts(bucket)
    )

  def values(
    self,
    batch: Mapping[str, np.ndarray],
    planned: plan_lib.Planned,
    steps: Sequence[int],
  ) -> list[int]:
    """Returns the sum of the tokens, or arrays, of each of some steps.

    Args:
      batch: Canonical fields, [steps * R, ...].
      planned: As in `planned`.
      steps: As in `planned`.
    """
    fields = {"tokens": batch["tokens"]} if planned.spans is not None else batch
    return digests.of_values(
      fields, *self._place(planned, steps), self._counts(planned.bucket)
    )

  def _place(
    self, planned: plan_lib.Planned, steps: Sequence[int]
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns steps, and the canonical row of each planned row."""
    rows = planned.rows
    if rows is None:
      own = self._plan.buckets[planned.bucket]
      local = np.arange(own.batch_size)
      if self._rows is not None:
        local = self._rows[own.name]
      rows = np.tile(local, len(steps))
    return np.asarray(steps), rows

  def _counts(self, bucket: int) -> np.ndarray | None:
    if self._counted is None:
      return None
    found = self._counted[self._plan.buckets[bucket].name]
    return None if found.all() else found

  def _names(self, bucket: int) -> np.ndarray:
    """Returns uint64[2, sources]: a name and the shape of rows."""
    if bucket not in self._known_names:
      shape = self._plan.buckets[bucket].shape
      keys = [
        digests.name_keys(name, *shape) for name in self._plan.source_names
      ]
      self._known_names[bucket] = np.stack(keys, 1)
    return self._known_names[bucket]
