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
give buckets weights (`curriculum`), a dataset's list is a
merge of its buckets by least consumed instead; only where a stage begins in it
depends on the others.

The schedule is a pure function of the step, so every process has the same
dataset, bucket and number of rows at a step, and its own rows of that batch. An
epoch of a dataset has the same batches every time, in another order, so a
distant step costs one search and the lists of a few epochs. NumPy only.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np

from chomp_data.bucket import batch_list
from chomp_data.bucket import batch_order
from chomp_data.bucket import curriculum
from chomp_data.index import hashing
from chomp_data.index import memo
from chomp_data.index import ragged
from chomp_data.mix import exhaustion as policies
from chomp_data.mix import interleave
from chomp_data.order import orders

# Steps located per search: one step costs as much as many.
_LOCATED = 1_024


class BucketSchedule:
  """Steps to batches of one (dataset, bucket), by random access.

  Attributes:
    datasets: Names of the datasets, by number.
    buckets: Names of the buckets, by number.
    batch_sizes: Samples of a global batch, padding included,
      int64[num_buckets].
  """

  def __init__(
    self,
    groups: Mapping[str, Mapping[str, int]],
    *,
    batch_sizes: Mapping[str, int],
    units: Mapping[str, int],
    stages: Sequence[interleave.Stage],
    key: int,
    remainder: str = "drop",
    exhaustion: str = "drop",
    epochs: int | None = 1,
    max_epochs: Mapping[str, int] | None = None,
    seeds: Mapping[str, int] | None = None,
    bucket_stages: Sequence[curriculum.Stage] | None = None,
    sample_units: Mapping[str, batch_list.SampleUnits] | None = None,
  ):
    """Numbers the batches of each dataset, and merges them.

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
        `mix.exhaustion`.
      epochs: Epochs of each dataset without `max_epochs`; None is without end.
      max_epochs: Epochs of single datasets. Where a policy repeats datasets,
        those left out have no end.
      seeds: Seeds of single datasets' orders, in place of `key`.
      bucket_stages: (from_step, exact weights of buckets), a curriculum; a
        dataset takes the buckets that it has, and keeps its own share.
      sample_units: Units of single samples, by dataset, in place of `units`.

    Raises:
      ValueError: If a dataset or bucket is empty, a group never fills a batch,
        or the stages fail; one message for all groups, a line each.
    """
    max_epochs, seeds = dict(max_epochs or {}), dict(seeds or {})
    problems = _group_problems(groups, batch_sizes, remainder)
    if problems:
      raise ValueError("\n".join(problems))
    self.datasets: tuple[str, ...] = tuple(groups)
    self.buckets: tuple[str, ...] = tuple(batch_sizes)
    self.batch_sizes: np.ndarray = np.asarray(
      list(batch_sizes.values()), np.int64
    )
    repeats = policies.EXHAUSTIONS[exhaustion].repeats
    num_epochs = {name: max_epochs.get(name, epochs) for name in groups}
    whole_lists = {
      name: batch_list.BatchList(
        batch_order.BatchOrder(
          self.buckets,
          [counts.get(bucket, 0) for bucket in batch_sizes],
          self.batch_sizes.tolist(),
          orders.order_key(key, name, seeds.get(name), "buckets"),
          keeps_partial=remainder == "pad",
          epochs=max_epochs.get(name) if repeats else num_epochs[name],
        ),
        (sample_units or {}).get(
          name, np.asarray([units[bucket] for bucket in batch_sizes], np.int64)
        ),
      )
      for name, counts in groups.items()
    }

    def merged(
      lists: Mapping[str, curriculum.List],
    ) -> interleave.Interleave:
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

    self._orders = [batches.order for batches in whole_lists.values()]
    if bucket_stages is None:
      lists, self._merge = whole_lists, merged(whole_lists)
    else:
      lists, self._merge = curriculum.in_stages(
        whole_lists, stages, bucket_stages, merged
      )
    self._lists: list[curriculum.List] = list(lists.values())

  @property
  def num_steps(self) -> int | None:
    """The step after the last one; None is without end."""
    return self._merge.num_positions

  @property
  def batches_per_epoch(self) -> np.ndarray:
    """Batches of an epoch, int64[num_datasets, num_buckets]."""
    return self._by_dataset(0, lambda order, _: order.batches)

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
    for number, pick in ragged.by_value(dataset):
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
    block = self._located_block(first)
    if step - first >= len(block):
      raise IndexError(
        f"`step` must be below {self.num_steps}, got {step}. The run has no"
        " other steps."
      )
    return block[step - first]

  @memo.remembered(1)
  def _located_block(self, first: int) -> list[list[int]]:
    """Returns what `_located` does, of steps from one on."""
    last = first + _LOCATED
    if self.num_steps is not None:
      last = min(last, self.num_steps)
    return np.stack(self.locate(np.arange(first, last)), axis=1).tolist()

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
    size = int(self.batch_sizes[bucket])
    if rows is None:
      rows = np.arange(size)
    else:
      rows = np.asarray(rows, np.int64)
      outside = rows[(rows < 0) | (rows >= size)]
      if outside.size:
        raise IndexError(
          f"`rows` must be in 0 .. {size - 1} at step {step}, of bucket"
          f" {self.buckets[bucket]!r}, got {outside[0]}. Take the rows of"
          " this step's batch."
        )
    return self._orders[dataset].samples(bucket, epoch, batch, rows)

  def steps_of(
    self, dataset: int, bucket: int, places: np.ndarray
  ) -> np.ndarray:
    """Returns the steps that have batches of a bucket; inverts `locate`.

    Args:
      dataset: Its number.
      bucket: Its number.
      places: int64[N], places in the order of `part_at`, ascending.

    Returns:
      int64[M], ascending; M < N where the run ends before some of them.
    """
    return self._merge.positions_of(
      self.datasets[dataset], self._lists[dataset].places_at(bucket, places)
    )

  def parts_at(
    self, dataset: int, step: int
  ) -> list[tuple[batch_order.BatchOrder, int]]:
    """Returns the orders of a dataset's batches, and the place in each.

    Args:
      dataset: Its number.
      step: At most `num_steps`.
    """
    place = int(self._merge.rows_at(step)[dataset])
    return self._lists[dataset].parts_at(place)

  def part_at(
    self, dataset: int, bucket: int, step: int
  ) -> tuple[batch_order.BatchOrder, int]:
    """Returns that of `parts_at` which has the samples of a bucket.

    Args:
      dataset: Its number.
      bucket: Its number.
      step: At most `num_steps`.
    """
    parts = self.parts_at(dataset, step)
    return next(part for part in parts if part[0].counts[bucket])

  def consumed(self, step: int) -> np.ndarray:
    """Returns the histogram of samples before a step, without padding.

    Args:
      step: At most `num_steps`.

    Returns:
      int64[num_datasets, num_buckets].

    Raises:
      IndexError: If the step is negative or beyond the end.
    """
    return self._by_dataset(step, batch_order.BatchOrder.samples_before)

  def batches(self, step: int) -> np.ndarray:
    """Returns how many batches the steps before one hold.

    Args:
      step: At most `num_steps`.

    Returns:
      int64[num_datasets, num_buckets].
    """
    return self._by_dataset(step, batch_order.BatchOrder.batches_before)

  def _by_dataset(
    self, step: int, count: Callable[[batch_order.BatchOrder, int], np.ndarray]
  ) -> np.ndarray:
    """Returns int64[num_datasets, num_buckets], counts of orders at a step."""
    places = self._merge.rows_at(step).tolist()
    counts = [
      [count(order, place) for order, place in batches.parts_at(row)]
      for batches, row in zip(self._lists, places, strict=True)
    ]
    return np.stack([np.sum(parts, axis=0) for parts in counts])

  def unit_sums(
    self, dataset: int, sample_units: batch_list.SampleUnits
  ) -> Callable[[int], int]:
    """Returns a function of a step: units of a dataset's samples before it.

    Args:
      dataset: Its number.
      sample_units: The units to sum.
    """
    sums = [
      batch_list.BatchList(order, sample_units)
      for order, _ in self.parts_at(dataset, 0)
    ]

    def before(step: int) -> int:
      rows = [row for _, row in self.parts_at(dataset, step)]
      return sum(
        int(batches.before(np.asarray([row]))[0])
        for batches, row in zip(sums, rows, strict=True)
      )

    return before

  def epoch_begins(self, dataset: str, epoch: int) -> int | None:
    """Returns the first step after a dataset's `epoch` epochs that holds it.

    None if it never begins.
    """
    place = self._lists[self.datasets.index(dataset)].passed_at(epoch)
    return None if place is None else self._step_of(dataset, place)

  def ends(self, dataset: str) -> int | None:
    """Returns the step after a dataset's last batch; None if there is none."""
    last = self._lists[self.datasets.index(dataset)].num_rows
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
    return np.asarray(
      [
        batches.num_rows is not None and place >= batches.num_rows
        for batches, place in zip(self._lists, places, strict=True)
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


def _group_problems(
  groups: Mapping[str, Mapping[str, int]],
  batch_sizes: Mapping[str, int],
  remainder: str,
) -> list[str]:
  """Returns which datasets and buckets have too few samples."""
  problems = []
  for name, counts in groups.items():
    problems += [
      f"bucket {bucket!r} of dataset {name!r} must fill a global batch of"
      f" {batch_sizes[bucket]} samples, got {count}: no batch would have them."
      " Make its batches smaller, or pad them (`remainder='pad'`)."
      for bucket, count in counts.items()
      if 0 < count < batch_sizes[bucket] and remainder == "drop"
    ]
    if not any(counts.values()):
      problems.append(
        f"dataset {name!r} must have samples in some bucket, got none. Leave it"
        " out, or correct the buckets."
      )
  problems += [
    f"bucket {bucket!r} must have a sample in some dataset, got none."
    " Leave it out."
    for bucket in batch_sizes
    if not any(counts.get(bucket, 0) for counts in groups.values())
  ]
  return problems
