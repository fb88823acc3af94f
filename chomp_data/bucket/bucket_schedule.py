# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Maps each step to the samples of its batch, where samples differ in shape.

A batch holds samples of one (dataset, bucket), so each bucket is one static
shape. Two datasets, global batches of two, equal weights, counted in samples:

    groups   a, 32x32: 5 samples    a, 48x32: 2    b, 32x32: 3
    batches  (1 4) (3 2), 0 left    (1 0)          (2 1), 0 left
    lists    a: 32x32 #0, 48x32 #0, 32x32 #1       b: 32x32 #0
    steps    a 32x32 #0, b 32x32 #0, a 48x32 #0, a 32x32 #1

In every epoch of a dataset each of its groups is permuted and cut into global
batches, and the list of all these batches is permuted. The lists are merged by
least consumed (`interleave`), in samples, pixels or tokens. A dataset's list
depends on its own name, groups and seed, never on other datasets. Where stages
give buckets weights (a curriculum, `bucket_stages`), a dataset's list is a
merge of its buckets by least consumed instead; only where a stage begins in it
depends on the others.

The schedule is a pure function of the step, so every process has the same
dataset, bucket and number of rows at a step, and its own rows of that batch. An
epoch of a dataset has the same batches every time, in another order, so a
distant step costs one search and the lists of a few epochs. NumPy only.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np

from chomp_data.bucket import bucket_checks
from chomp_data.bucket import bucket_curriculum
from chomp_data.bucket import bucket_lists
from chomp_data.index import hashing
from chomp_data.mix import exhaustion as policies
from chomp_data.mix import interleave

REMAINDERS = bucket_checks.REMAINDERS

# Steps located per search: one step costs as much as many.
_LOCATED = 1_024

# The name of a bucket.
Bucket = bucket_checks.Bucket


BucketStage = bucket_curriculum.Stage


class BucketSchedule:
  """Steps to batches of one (dataset, bucket), by random access."""

  def __init__(
    self,
    groups: Mapping[str, Mapping[Bucket, int]],
    *,
    batch_sizes: Mapping[Bucket, int],
    units: Mapping[Bucket, int],
    stages: Sequence[interleave.Stage],
    key: int,
    remainder: str = "drop",
    exhaustion: str = "drop",
    epochs: int | None = 1,
    max_epochs: Mapping[str, int] | None = None,
    seeds: Mapping[str, int] | None = None,
    bucket_stages: Sequence[BucketStage] | None = None,
    sample_units: Mapping[str, bucket_lists.SampleUnits] | None = None,
  ):
    """Checks and keeps the arguments.

    Args:
      groups: Samples by dataset and bucket; buckets without samples may be
        left out. The order only numbers the datasets.
      batch_sizes: Samples of a global batch by bucket, padding included; the
        order only numbers the buckets.
      units: Units of one sample, by bucket: 1, its pixels or its tokens.
      stages: Weights of datasets; `from_position` counts steps.
      key: A 64-bit key; all orders and ties derive from it.
      remainder: 'drop' leaves out the samples of an epoch that fill no whole
        batch, 'pad' fills the last batch of a group with padding.
      exhaustion: What happens when a dataset ends, one of the policies of
        `index.mix.exhaustion`.
      epochs: Epochs of each dataset without `max_epochs`; None is without end.
      max_epochs: Epochs of single datasets. Where a policy repeats datasets,
        those left out have no end.
      seeds: Seeds of single datasets' orders, in place of `key`.
      bucket_stages: (from_step, exact weights of buckets), a curriculum; a
        dataset takes the buckets that it has, and keeps its own share.
      sample_units: Units of single samples, by dataset, in place of `units`.

    Raises:
      ValueError: If names are unknown, numbers not positive, a dataset or
        bucket is empty, a group never fills a batch, or the stages fail; all
        that is wrong with groups in one message.
      TypeError: If a weight is not exact.
    """
    bucket_checks.check_policies(remainder, epochs)
    max_epochs, seeds = dict(max_epochs or {}), dict(seeds or {})
    bucket_checks.check_names(groups, max_epochs=max_epochs, seeds=seeds)
    bucket_checks.check_groups(groups, batch_sizes, units, remainder)
    self._names = tuple(groups)
    self._buckets = tuple(batch_sizes)
    self._batch_sizes = np.asarray(list(batch_sizes.values()), np.int64)
    self._lists: list[bucket_curriculum.List] = []
    repeats = policies.named(exhaustion).repeats
    num_epochs = {name: max_epochs.get(name, epochs) for name in groups}
    makers = {
      name: bucket_curriculum.ListMaker(
        self._buckets,
        [counts.get(bucket, 0) for bucket in batch_sizes],
        self._batch_sizes.tolist(),
        [units[bucket] for bucket in batch_sizes],
        _dataset_key(key, name, seeds.get(name)),
        remainder == "pad",
        max_epochs.get(name) if repeats else num_epochs[name],
        (sample_units or {}).get(name),
      )
      for name, counts in groups.items()
    }

    def merged(
      lists: Mapping[str, bucket_curriculum.List],
    ) -> interleave.Interleave:
      self._lists = list(lists.values())
      return interleave.Interleave(
        lists,
        stages,
        hashing.fold_key(key, "mix"),
        exhaustion=exhaustion,
        exhausted_at={
          name: batches.passed_at(num_epochs[name] or 1) if repeats else None
          for name, batches in lists.items()
        },
      )

    # The first step of a located block, and (dataset, bucket, epoch, batch) of
    # each of its steps.
    self._block: tuple[int, list[list[int]]] | None = None
    if bucket_stages is None:
      self._merge = merged(
        {name: maker.whole() for name, maker in makers.items()}
      )
    else:
      self._merge = bucket_curriculum.in_stages(
        makers, stages, bucket_stages, merged
      )

  @property
  def datasets(self) -> tuple[str, ...]:
    """The datasets, by number."""
    return self._names

  @property
  def buckets(self) -> tuple[Bucket, ...]:
    """The buckets, by number."""
    return self._buckets

  @property
  def batch_sizes(self) -> np.ndarray:
    """Samples of a global batch, padding included, int64[num_buckets]."""
    return self._batch_sizes.copy()

  @property
  def num_steps(self) -> int | None:
    """The step after the last one; None is without end."""
    return self._merge.num_positions

  @property
  def batches_per_epoch(self) -> np.ndarray:
    """Batches of an epoch, int64[num_datasets, num_buckets]."""
    return np.stack([batches.batches_by_bucket for batches in self._lists])

  def locate(
    self, steps: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns which batch each step has.

    Args:
      steps: int64[N], in any order, each below `num_steps`.

    Returns:
      Datasets int32[N] and buckets int32[N], by number, epochs of the dataset
      int64[N], and the batches' numbers int64[N] in that epoch of the group.

    Raises:
      IndexError: If a step is negative or beyond the end.
    """
    dataset, place = self._merge.locate(steps)
    bucket = np.empty(len(place), np.int32)
    epoch, batch = np.empty_like(place), np.empty_like(place)
    for number in np.flatnonzero(np.bincount(dataset)).tolist():
      pick = np.flatnonzero(dataset == number)
      bucket[pick], epoch[pick], batch[pick] = self._lists[number].locate(
        place[pick]
      )
    return dataset, bucket, epoch, batch

  def at(self, step: int) -> tuple[int, int]:
    """Returns the dataset and the bucket of a step, by number.

    Raises:
      IndexError: If the step is not of the run.
    """
    dataset, bucket, _, _ = self._located(step)
    return dataset, bucket

  def _located(self, step: int) -> list[int]:
    """Returns the dataset, bucket, epoch and batch of a step."""
    first = step // _LOCATED * _LOCATED
    if self._block is None or self._block[0] != first:
      last = first + _LOCATED
      if self.num_steps is not None:
        # A step beyond the run is looked up too, to raise the error.
        last = max(min(last, self.num_steps), step + 1)
      columns = self.locate(np.arange(first, last))
      self._block = (first, np.stack(columns, axis=1).tolist())
    return self._block[1][step - first]

  def samples(self, step: int, rows: np.ndarray | None = None) -> np.ndarray:
    """Returns the samples of a step's batch.

    Args:
      step: Below `num_steps`.
      rows: int64[R] of the global batch, 0 <= row < its size; None is all.

    Returns:
      int64[R], numbers of samples within their (dataset, bucket), -1 = padding.

    Raises:
      IndexError: If there is no such step or row.
    """
    dataset, bucket, epoch, batch = self._located(int(step))
    size = int(self._batch_sizes[bucket])
    if rows is None:
      rows = np.arange(size)
    else:
      rows = np.asarray(rows, np.int64)
      outside = rows[(rows < 0) | (rows >= size)]
      if outside.size:
        raise IndexError(
          f"`rows` must be in 0 .. {size - 1} at step {step}, of bucket"
          f" {self._buckets[bucket]!r}, got {outside[0]}. Take the rows of"
          " this step's batch."
        )
    return self._lists[dataset].samples(bucket, epoch, batch, rows)

  def list_of(self, dataset: int) -> bucket_curriculum.List:
    """Returns the list of the batches of a dataset, given by number."""
    return self._lists[dataset]

  def place_at(self, dataset: int, step: int) -> int:
    """Returns how many batches of a dataset come before a step.

    Args:
      dataset: Its number.
      step: At most `num_steps`.
    """
    return int(self._merge.rows_at(step)[dataset])

  def steps_of(self, dataset: int, places: np.ndarray) -> np.ndarray:
    """Returns the steps that have batches of a dataset: `locate` back.

    Args:
      dataset: Its number.
      places: int64[N], of its list, ascending.

    Returns:
      int64[M], ascending; M < N where places from one on never come.
    """
    return self._merge.positions_of(self._names[dataset], places)

  def consumed(self, step: int) -> np.ndarray:
    """Returns the histogram of samples before a step, without padding.

    Args:
      step: At most `num_steps`.

    Returns:
      int64[num_datasets, num_buckets].

    Raises:
      IndexError: If the step is negative or beyond the end.
    """
    places = self._merge.rows_at(step).tolist()
    return np.stack(
      [
        batches.samples_before(place)
        for batches, place in zip(self._lists, places, strict=True)
      ]
    )

  def batches(self, step: int) -> np.ndarray:
    """Returns how many batches the steps before one hold.

    Args:
      step: At most `num_steps`.

    Returns:
      int64[num_datasets, num_buckets].
    """
    places = self._merge.rows_at(step).tolist()
    return np.stack(
      [
        batches.batches_before(place)
        for batches, place in zip(self._lists, places, strict=True)
      ]
    )

  def given(self, dataset: int, step: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yields (bucket, samples int64[M]) before a step, in no order.

    A sample is yielded once per time it was read.

    Args:
      dataset: Its number.
      step: At most `num_steps`.
    """
    place = int(self._merge.consumed(step)[0][dataset])
    yield from self._lists[dataset].given(0, place)

  def units_before(
    self, dataset: int, step: int, totals: bucket_lists.Totals
  ) -> int:
    """Returns the units of a dataset's samples before a step.

    Looks up every sample of the current epoch.

    Args:
      dataset: Its number.
      step: At most `num_steps`.
      totals: The units to sum.
    """
    place = int(self._merge.consumed(step)[0][dataset])
    return self._lists[dataset].units_before(place, totals)

  def epoch_begins(self, dataset: str, epoch: int) -> int | None:
    """Returns the first step after a dataset's `epoch` epochs that holds it.

    None if it never begins.
    """
    place = self._lists[self._names.index(dataset)].passed_at(epoch)
    return None if place is None else self._step_of(dataset, place)

  def ends(self, dataset: str) -> int | None:
    """Returns the step after a dataset's last batch; None if there is none."""
    last = self._lists[self._names.index(dataset)].num_rows
    step = None if not last else self._step_of(dataset, last - 1)
    return None if step is None else step + 1

  def _step_of(self, dataset: str, place: int) -> int | None:
    step, end = self._merge.position_of(dataset, place), self.num_steps
    if step is None or (end is not None and step >= end):
      return None
    return step

  def ended(self, step: int) -> np.ndarray:
    """Returns whether each dataset has no batch left, bool[num_datasets]."""
    places = self._merge.rows_at(step).tolist()
    limits = [batch_list.num_rows for batch_list in self._lists]
    return np.asarray(
      [
        limit is not None and place >= limit
        for place, limit in zip(places, limits, strict=True)
      ]
    )

  def consumed_units(self, step: int) -> np.ndarray:
    """Returns the units before a step, int64[num_datasets]."""
    return self._merge.consumed(step)[1]

  def unserved(self, num_steps: int) -> Iterator[interleave.Unserved]:
    """Yields the weights of datasets that amount to less than a batch.

    Args:
      num_steps: Steps of the run.
    """
    return self._merge.unserved(num_steps)


def _dataset_key(key: int, name: str, own_seed: int | None) -> int:
  if own_seed is None:
    return hashing.fold_key(key, name, "buckets")
  return hashing.fold_key("own", own_seed, name, "buckets")
