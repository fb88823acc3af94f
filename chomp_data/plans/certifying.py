# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What planned steps hold, as one digest per step (`digests`)."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

import numpy as np

from chomp_data.plans import digests
from chomp_data.plans import plan as plan_lib

# The two kinds of digests: of spans, and of the values that were read.
PLAN, TOKENS = "plan", "tokens"


@dataclasses.dataclass(frozen=True)
class Sums:
  """The digests of rows, added up.

  Attributes:
    rows: How many rows it covers, padding included.
    plan: The digest of their spans or samples, modulo 2**128.
    tokens: The digest of their values, or None; then sums with it have none.
  """

  rows: int = 0
  plan: int = 0
  tokens: int | None = None

  @classmethod
  def zero(cls, tokens: bool) -> "Sums":
    """Returns the sums of no rows, with or without tokens."""
    return cls(tokens=0 if tokens else None)

  def __add__(self, other: "Sums") -> "Sums":
    tokens = None
    if self.tokens is not None and other.tokens is not None:
      tokens = (self.tokens + other.tokens) % digests.MODULUS
    plan = (self.plan + other.plan) % digests.MODULUS
    return Sums(self.rows + other.rows, plan, tokens)

  def __sub__(self, other: "Sums") -> "Sums":
    tokens = None if other.tokens is None else -other.tokens
    return self + Sums(-other.rows, -other.plan, tokens)


NO_ROWS = Sums()


class Certifier:
  """Computes digests of planned steps, each row in one process only."""

  def __init__(
    self, plan: plan_lib.Plan, local: plan_lib.LocalRows = plan_lib.ALL_ROWS
  ):
    """Binds a plan.

    Args:
      plan: The run.
      local: The rows that are planned, and those of them that are added.
    """
    self._plan = plan
    self._local = local
    self._name_keys: dict[int, np.ndarray] = {}

  def num_rows(self, bucket: int) -> int:
    """Returns how many rows of a step of a bucket are added, with padding."""
    shape = self._plan.buckets[bucket]
    if self._local.counted is not None:
      return int(np.count_nonzero(self._local.counted[shape.name]))
    return self._local.num_rows(shape)

  def planned(
    self, planned: plan_lib.Planned, steps: Sequence[int]
  ) -> list[int]:
    """Returns the digest of the spans, or samples, of each step.

    Args:
      planned: The plan of the steps.
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
    """Returns the digest of the tokens, or arrays, of each step.

    Args:
      batch: The fields that were read, [steps * R, ...] each.
      planned: The plan of the steps.
      steps: The steps.
    """
    fields = {"tokens": batch["tokens"]} if planned.spans is not None else batch
    return digests.of_values(
      fields, *self._place(planned, steps), self._counts(planned.bucket)
    )

  def _place(
    self, planned: plan_lib.Planned, steps: Sequence[int]
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns int64[M] steps, and int64[M * R] the planned row of each row."""
    rows = planned.rows
    if rows is None:
      bucket = self._plan.buckets[planned.bucket]
      local = np.arange(bucket.batch_size)
      if self._local.rows is not None:
        local = self._local.rows[bucket.name]
      rows = np.tile(local, len(steps))
    return np.asarray(steps), rows

  def _counts(self, bucket: int) -> np.ndarray | None:
    if self._local.counted is None:
      return None
    is_counted = self._local.counted[self._plan.buckets[bucket].name]
    return None if is_counted.all() else is_counted

  def _names(self, bucket: int) -> np.ndarray:
    """Returns uint64[2, sources], keys of source names and of a row's shape."""
    if bucket not in self._name_keys:
      shape = self._plan.buckets[bucket].shape
      keys = [
        digests.name_keys(name, *shape) for name in self._plan.source_names
      ]
      self._name_keys[bucket] = np.stack(keys, 1)
    return self._name_keys[bucket]
