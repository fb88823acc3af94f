"""Steps to (dataset, bucket, batch) of a run, some thousand steps at once."""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import fractions

import numpy as np

from chomp_data.index import bucket_lists
from chomp_data.index import buckets as buckets_lib
from chomp_data.index import hashing
from chomp_data.index import interleave

Weights = Mapping[str, fractions.Fraction]
Stages = Sequence[tuple[int, Weights]]

# Steps located at once: a search costs as much for one as for many.
_LOCATED = 1_024


class Lanes:
  """A run's schedule: which batch of which dataset and bucket each step has."""

  def __init__(
    self,
    groups: Mapping[str, Mapping[str, int]],
    *,
    batch_sizes: Mapping[str, int],
    units: Mapping[str, int],
    stages: Stages,
    bucket_stages: Stages | None,
    seed: int,
    remainder: str,
    exhaustion: str,
    epochs: int | None,
    max_epochs: Mapping[str, int],
    seeds: Mapping[str, int],
    sample_units: Mapping[str, bucket_lists.SampleUnits] | None = None,
  ):
    """Merges the batches.

    Args:
      groups: Samples by dataset and bucket; its order numbers datasets.
      batch_sizes: Samples of a global batch by bucket; its order numbers
        buckets.
      units: What one sample consumes, by bucket.
      stages: (from_step, weights of datasets).
      bucket_stages: (from_step, weights of buckets), or None.
      seed: The run's seed.
      remainder: 'drop' or 'pad'.
      exhaustion: See `interleave`.
      epochs: Passes over each dataset; None is for ever.
      max_epochs: Passes over single datasets.
      seeds: Seeds of single datasets' orders.
      sample_units: What single samples consume, by dataset, in place of
        `units`.

    Raises:
      ValueError: As `BucketSchedule`.
    """
    self.datasets = tuple(groups)
    self.buckets = tuple(batch_sizes)
    self.batch_sizes = tuple(batch_sizes.values())
    self._schedule = buckets_lib.BucketSchedule(
      {name: {**counts} for name, counts in groups.items()},
      batch_sizes={**batch_sizes},
      units={**units},
      stages=[interleave.Stage(step, weights) for step, weights in stages],
      key=hashing.fold_key(seed, "buckets"),
      remainder=remainder,
      exhaustion=exhaustion,
      epochs=epochs,
      max_epochs=max_epochs,
      seeds=seeds,
      bucket_stages=(
        None
        if bucket_stages is None
        else [(step, {**weights}) for step, weights in bucket_stages]
      ),
      sample_units=sample_units,
    )
    self._block: tuple[int, list[list[int]]] | None = None

  @property
  def num_steps(self) -> int | None:
    """Steps of the run; None is without end."""
    return self._schedule.num_steps

  def locate(self, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the datasets and buckets of steps, int32[N] each, by number.

    Args:
      steps: int64[N], of the run.

    Raises:
      IndexError: If a step is not of the run.
    """
    dataset, bucket, _, _ = self._schedule.locate(steps)
    return dataset, bucket

  def at(self, step: int) -> tuple[int, int]:
    """Returns the dataset and the bucket of a step, by number.

    Raises:
      IndexError: If the step is not of the run.
    """
    dataset, bucket, _, _ = self._located(step)
    return dataset, bucket

  def samples(self, step: int, rows: np.ndarray | None = None) -> np.ndarray:
    """Returns int64[R], samples of the step's group; -1 is filler.

    Args:
      step: Of the run.
      rows: int64[R] of the global batch, in range; None is all.

    Raises:
      IndexError: If the step is not of the run.
    """
    dataset, bucket, epoch, batch = self._located(step)
    return self._schedule.batch_samples(dataset, bucket, epoch, batch, rows)

  def _located(self, step: int) -> list[int]:
    """Returns the dataset, bucket, epoch and batch of a step."""
    first = step // _LOCATED * _LOCATED
    if self._block is None or self._block[0] != first:
      last = first + _LOCATED
      if self.num_steps is not None:
        # A step beyond the run is asked for too: that is the error.
        last = max(min(last, self.num_steps), step + 1)
      found = self._schedule.locate(np.arange(first, last))
      self._block = (first, np.stack(found, axis=1).tolist())
    return self._block[1][step - first]

  @property
  def batches_per_epoch(self) -> np.ndarray:
    """Batches of an epoch, int64[num_datasets, num_buckets]."""
    return self._schedule.batches_per_epoch

  def consumed(self, step: int) -> np.ndarray:
    """Returns int64[num_datasets, num_buckets], samples before a step."""
    return self._schedule.consumed(step)

  def consumed_units(self, step: int) -> np.ndarray:
    """Returns int64[num_datasets], units before a step."""
    return self._schedule.consumed_units(step)

  def ended(self, step: int) -> np.ndarray:
    """Returns which datasets have no batch left, bool[num_datasets]."""
    return self._schedule.ended(step)

  def unserved(self, num_steps: int) -> Iterator[interleave.Unserved]:
    """Yields weights of datasets that amount to less than a batch."""
    return self._schedule.unserved(num_steps)

  def first_step(self, dataset: str, count: int = 1) -> int | None:
    """Returns the step of a dataset's `count`-th batch, None where never."""
    return self._schedule.first_step(dataset, count)
