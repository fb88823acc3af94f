"""The Grain source of a bucketed run: a record is a process-local batch.

The step decides dataset, bucket and rows, so every process has the same ones;
which of a bucket's rows it holds follows from the sharding.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from chomp_data.bucketed import plan as plan_lib
from chomp_data.loading import workers


class BucketBatches(workers.SentToWorkers):
  """A Grain source whose record `step` is this process's part of the batch."""

  def __init__(
    self,
    plan: plan_lib.BucketPlan,
    rows: Mapping[str, np.ndarray] | None = None,
    fingerprint: str = "",
  ):
    """Binds a plan to the rows of one process.

    Args:
      plan: The run.
      rows: For each bucket, by name, int64[R], ascending rows of its global
        batch that this process holds; None is all.
      fingerprint: Identity of the run, for `repr`.
    """
    self._plan = plan
    self._rows = None if rows is None else dict(rows)
    self._fingerprint = fingerprint
    self.reads = plan.reads()

  def __len__(self) -> int:
    return self._plan.step_limit

  def __getitem__(self, index: int) -> dict[str, np.ndarray]:
    """Returns the fields, [R, ...] each, of step `index`."""
    step = int(index)
    _, bucket = self._plan.at(step)
    rows = None
    if self._rows is not None:
      rows = self._rows[self._plan.buckets[bucket].name]
    return self._plan.read(step, rows, self.reads)

  def __repr__(self) -> str:
    return f"BucketBatches({self._fingerprint})"

  def arguments(self) -> dict[str, Any]:
    """Returns what its constructor takes; see `SentToWorkers`."""
    return {
      "plan": self._plan,
      "rows": self._rows,
      "fingerprint": self._fingerprint,
    }
