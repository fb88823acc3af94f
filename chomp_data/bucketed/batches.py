"""The Grain source of a bucketed run: a record is a process-local batch.

The step decides dataset, bucket and rows, so every process has the same ones;
which of a bucket's rows it holds follows from the sharding.
"""

from collections.abc import Mapping
from typing import Any

from absl import logging
import numpy as np

from chomp_data.bucketed import plan as plan_lib
from chomp_data.loading import workers


class BucketBatches:
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

  def __getstate__(self) -> dict[str, Any]:
    return {
      "plan": self._plan,
      "rows": self._rows,
      "fingerprint": self._fingerprint,
      "verbosity": logging.get_verbosity(),
    }

  def __setstate__(self, state: dict[str, Any]) -> None:
    logging.set_verbosity(state.pop("verbosity"))
    logging.use_absl_handler()
    self.__init__(**state)
    workers.end_with_parent()
