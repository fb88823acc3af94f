"""Which samples every step of a bucketed run holds, and reading them."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

import numpy as np

from chomp_data.bucketed import dataset as dataset_lib
from chomp_data.bucketed import documents
from chomp_data.bucketed import lanes as lanes_lib
from chomp_data.bucketed import sections
from chomp_data.loading import reads as reads_lib
from chomp_data.ops import spans as spans_lib

# Steps of a run without an end have numbers below this.
_ENDLESS = 2**40


class BucketPlan:
  """A run's batches, any of them by random access."""

  def __init__(
    self,
    datasets: Mapping[str, dataset_lib.Dataset],
    buckets: Sequence[sections.Bucket],
    lanes: lanes_lib.Lanes,
  ):
    """Binds datasets to their schedule.

    Args:
      datasets: By name, in the order of their numbers.
      buckets: In the order of their numbers.
      lanes: Which of them each step has.
    """
    self.datasets = dict(datasets)
    self.buckets = tuple(buckets)
    self.lanes = lanes
    self._by_number = tuple(self.datasets.values())

  @property
  def num_steps(self) -> int | None:
    """Steps of the whole run, or None."""
    return self.lanes.num_steps

  @property
  def step_limit(self) -> int:
    """Steps below this can be read."""
    return _ENDLESS if self.num_steps is None else self.num_steps

  def check_steps(self, first_step: int, count: int = 1) -> None:
    """Raises IndexError unless `count` steps from `first_step` on exist."""
    if first_step < 0 or first_step + count > self.step_limit:
      raise IndexError(
        f"step must be in 0 .. {self.step_limit - 1}, got {first_step} (count"
        f" {count})."
      )

  def at(self, step: int) -> tuple[int, int]:
    """Returns the dataset and the bucket of a step, by number.

    Raises:
      IndexError: If the step is not of the run.
    """
    self.check_steps(step)
    return self.lanes.at(int(step))

  def reads(self) -> reads_lib.Reads:
    """Returns counts of what one reader reads, none of them yet."""
    return reads_lib.Reads({})

  def read(
    self,
    step: int,
    rows: np.ndarray | None,
    reads: reads_lib.Reads | None = None,
  ) -> dict[str, np.ndarray]:
    """Returns a step's fields, [R, ...] each.

    Args:
      step: Of the run.
      rows: int64[R], ascending rows of the global batch; None is all.
      reads: Counts to add to, of `reads`.
    """
    del reads
    dataset, bucket = self.at(step)
    samples = self.lanes.samples(step, rows)
    return self._by_number[dataset].read(bucket, samples, dataset)


class LengthPlan(BucketPlan):
  """Batches of documents: they have spans."""

  def reads(self) -> reads_lib.Reads:
    """Returns counts of what one reader reads; see `BucketPlan`."""
    return reads_lib.Reads(
      {name: own.longest for name, own in self._documents().items()}
    )

  def read(
    self,
    step: int,
    rows: np.ndarray | None,
    reads: reads_lib.Reads | None = None,
  ) -> dict[str, np.ndarray]:
    """Returns a step's canonical fields; see `BucketPlan`."""
    dataset, bucket = self.at(step)
    own = list(self._documents().values())[dataset]
    spans = self.plan(step, 1, rows)
    if reads is not None:
      reads.add_group(spans)
      reads.add_batch(spans)
    own.rows[bucket].prefetch(spans)
    return own.read_spans(bucket, spans)

  def plan(
    self, first_step: int, count: int = 1, rows: np.ndarray | None = None
  ) -> spans_lib.Spans:
    """Plans consecutive steps without reading a token.

    Args:
      first_step: The first step.
      count: How many steps.
      rows: int64[R], ascending rows of the global batch, or None for all;
        only with one step.

    Returns:
      Spans of the steps' rows; filler rows have none.

    Raises:
      IndexError: If a step is not of the run.
    """
    self.check_steps(first_step, count)
    own = list(self._documents().values())
    parts = []
    for step in range(first_step, first_step + count):
      dataset, bucket = self.at(step)
      spans = own[dataset].plan(bucket, self.lanes.samples(step, rows))
      source = np.full(len(spans), dataset, np.int32)
      parts.append(dataclasses.replace(spans, source=source))
    return parts[0] if count == 1 else spans_lib.concatenated(parts)

  def _documents(self) -> dict[str, documents.DocumentDataset]:
    return self.datasets  # pyright: ignore[reportReturnType]
