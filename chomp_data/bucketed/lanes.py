"""Steps to (dataset, bucket, batch), with a curriculum over buckets or not.

Without one, each dataset gives its buckets as often as they fill batches. With
one, each (dataset, bucket) is a lane of the merge of its own: its weight is
that of the dataset times the bucket's share of the dataset in that stage.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import fractions

import numpy as np

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

    Raises:
      ValueError: As `BucketSchedule`.
    """
    self.datasets = tuple(groups)
    self.buckets = tuple(batch_sizes)
    self.batch_sizes = tuple(batch_sizes.values())
    lanes: dict[str, dict[buckets_lib.Bucket, int]] = {}
    dataset_of: list[str] = []
    for name, counts in groups.items():
      own: dict[str, dict[buckets_lib.Bucket, int]] = {name: {**counts}}
      if bucket_stages is not None:
        own = {_lane(name, b): {b: n} for b, n in counts.items() if n}
      lanes |= own
      dataset_of += [name] * len(own)
    merged = list(stages)
    if bucket_stages is not None:
      merged = _joined_stages(groups, stages, bucket_stages)
    self._names = list(lanes)
    self._dataset = np.asarray(
      [self.datasets.index(name) for name in dataset_of], np.int32
    )

    def by_lane(values: Mapping[str, int]) -> dict[str, int]:
      pairs = zip(lanes, dataset_of, strict=True)
      return {lane: values[name] for lane, name in pairs if name in values}

    self._schedule = buckets_lib.BucketSchedule(
      lanes,
      batch_sizes={**batch_sizes},
      units={**units},
      stages=[interleave.Stage(step, weights) for step, weights in merged],
      key=hashing.fold_key(seed, "buckets"),
      remainder=remainder,
      exhaustion=exhaustion,
      epochs=epochs,
      max_epochs=by_lane(max_epochs),
      seeds=by_lane(seeds),
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
    lane, bucket, _, _ = self._schedule.locate(steps)
    return self._dataset[lane], bucket

  def at(self, step: int) -> tuple[int, int]:
    """Returns the dataset and the bucket of a step, by number.

    Raises:
      IndexError: If the step is not of the run.
    """
    lane, bucket, _, _ = self._located(step)
    return int(self._dataset[lane]), bucket

  def samples(self, step: int, rows: np.ndarray | None = None) -> np.ndarray:
    """Returns int64[R], samples of the step's group; -1 is filler.

    Args:
      step: Of the run.
      rows: int64[R] of the global batch, in range; None is all.

    Raises:
      IndexError: If the step is not of the run.
    """
    lane, bucket, epoch, batch = self._located(step)
    return self._schedule.batch_samples(lane, bucket, epoch, batch, rows)

  def _located(self, step: int) -> list[int]:
    """Returns the lane, bucket, epoch and batch of a step."""
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
    return self._by_dataset(self._schedule.batches_per_epoch)

  def consumed(self, step: int) -> np.ndarray:
    """Returns int64[num_datasets, num_buckets], samples before a step."""
    return self._by_dataset(self._schedule.consumed(step))

  def consumed_units(self, step: int) -> np.ndarray:
    """Returns int64[num_datasets], units before a step."""
    return self._by_dataset(self._schedule.consumed_units(step))

  def first_step(self, dataset: str, count: int = 1) -> int | None:
    """Returns the step of a dataset's `count`-th batch, None where never."""
    number = self.datasets.index(dataset)
    steps = sorted(
      step
      for lane in np.flatnonzero(self._dataset == number).tolist()
      for nth in range(1, count + 1)
      for step in [self._schedule.first_step(self._names[lane], nth)]
      if step is not None
    )
    return steps[count - 1] if len(steps) >= count else None

  def _by_dataset(self, values: np.ndarray) -> np.ndarray:
    out = np.zeros((len(self.datasets), *values.shape[1:]), np.int64)
    np.add.at(out, self._dataset, values)
    return out


def _lane(dataset: str, bucket: str) -> str:
  return f"{dataset}/{bucket}"


def _joined_stages(
  groups: Mapping[str, Mapping[str, int]],
  stages: Stages,
  bucket_stages: Stages,
) -> list[tuple[int, dict[str, fractions.Fraction]]]:
  """Returns stages of lanes: a step of either begins one."""
  out = []
  for step in sorted({at for at, _ in [*stages, *bucket_stages]}):
    weights = _latest(stages, step)
    of_buckets = _latest(bucket_stages, step)
    joined: dict[str, fractions.Fraction] = {}
    for name, weight in weights.items():
      own = {
        bucket: share
        for bucket, share in of_buckets.items()
        if groups[name].get(bucket)
      }
      whole = sum(own.values(), fractions.Fraction(0))
      for bucket, share in own.items():
        joined[_lane(name, bucket)] = weight * share / whole
    if not joined:
      raise ValueError(
        f"`stages` from step {step} must weigh a bucket that some of its"
        f" datasets fill, got {', '.join(of_buckets)} for"
        f" {', '.join(weights)}. Add a bucket."
      )
    out.append((step, joined))
  return out


def _latest(stages: Stages, step: int) -> Weights:
  """Returns the weights of the stage that a step lies in."""
  return max(
    (stage for stage in stages if stage[0] <= step), key=lambda own: own[0]
  )[1]
