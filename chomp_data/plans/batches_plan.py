# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The plan of runs in buckets: each batch is of one source and one shape."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

import numpy as np

from chomp_data.bucket import dataset as dataset_lib
from chomp_data.bucket import schedule as schedule_lib
from chomp_data.index import steps as steps_lib
from chomp_data.mix import mix_options
from chomp_data.plans import plan as plan_lib
from chomp_data.plans import tombstones as tombstones_lib
from chomp_data.rows import buckets as buckets_lib
from chomp_data.sources import column_fields
from chomp_data.sources import row_source


class BatchesPlan(plan_lib.Plan):
  """A run's batches of a few static shapes.

  Attributes:
    datasets: By name, in the order of their numbers.
    schedule: The dataset, bucket and samples of each data step.
    stages: (from_step, weights of datasets).
    bucket_stages: (from_step, weights of buckets), or None.
    fingerprints: Those of the sections `buckets` and `mix`, and under `sources`
      those of the order of each dataset.
    by_tokens: Whether the mix balances datasets of text by tokens.
    path: Dotted path of `config.data`, for messages.
  """

  by_bucket = True

  def __init__(
    self,
    datasets: Mapping[str, dataset_lib.Dataset],
    buckets: Sequence[buckets_lib.Bucket],
    schedule: schedule_lib.BucketSchedule,
    *,
    steps: steps_lib.Steps,
    stages: mix_options.ExactStages,
    bucket_stages: mix_options.ExactStages | None,
    fingerprints: Mapping[str, Mapping[str, Any]],
    by_tokens: bool,
    tombstones: tombstones_lib.Tombstones,
    columns: column_fields.ColumnFields | None = None,
    path: str,
  ):
    """Binds datasets to their schedule.

    Args:
      datasets: By name, in the order of their numbers.
      buckets: In the order of their numbers.
      schedule: The dataset, bucket and samples of each data step.
      steps: Which data step each step is.
      stages: (from_step, weights of datasets).
      bucket_stages: (from_step, weights of buckets), or None.
      fingerprints: Those of the sections `buckets` and `mix`, and under
        `sources` those of the order of each dataset.
      by_tokens: Whether the mix balances datasets of text by tokens.
      tombstones: Documents and spans that are removed.
      columns: The columns of stores that batches hold, if any.
      path: Dotted path of `config.data`, for messages.
    """
    self.datasets: dict[str, dataset_lib.Dataset] = dict(datasets)
    self.buckets: tuple[buckets_lib.Bucket, ...] = tuple(buckets)
    self.schedule = schedule
    self.steps: steps_lib.Steps = steps
    self.tombstones: tombstones_lib.Tombstones = tombstones
    self.source_names: list[str] = list(self.datasets)
    self.sources: dict[str, row_source.RowSource] = {
      name: dataset.text
      for name, dataset in self.datasets.items()
      if dataset.text is not None
    }
    self._numbered = tuple(self.datasets.values())
    self.stages: mix_options.ExactStages = stages
    self.bucket_stages: mix_options.ExactStages | None = bucket_stages
    self.fingerprints: Mapping[str, Mapping[str, Any]] = fingerprints
    self.by_tokens: bool = by_tokens
    self.path: str = path
    self.columns: column_fields.ColumnFields | None = columns

  @property
  def num_steps(self) -> int | None:
    """Steps of the whole run; None if it has no end."""
    end = self.schedule.num_steps
    return None if end is None else self.steps.before(end)

  def at(self, step: int) -> tuple[int | None, int]:
    """Returns the numbers of the dataset and of the bucket of a step."""
    plan_lib.check_steps(self, step)
    return self.schedule.at(self.steps.data_step(int(step)))

  def planned(
    self,
    first_step: int,
    count: int = 1,
    rows: plan_lib.Rows | None = None,
    stride: int = 1,
  ) -> plan_lib.Planned:
    """Plans a step without reading a token: steps differ in their shapes."""
    del stride
    if count != 1:
      raise ValueError(
        f"`count` must be 1, got {count}. Steps differ in their shapes."
      )
    plan_lib.check_steps(self, first_step)
    return self._step(first_step, rows)

  def _step(
    self, run_step: int, rows: plan_lib.Rows | None
  ) -> plan_lib.Planned:
    step = self.steps.data_step(int(run_step))
    dataset, bucket = self.schedule.at(step)
    bucket_rows = None if rows is None else rows[self.buckets[bucket].name]
    samples = self.schedule.samples(step, bucket_rows)
    planned = self.planned_samples(dataset, bucket, samples)
    if planned.spans is None:
      return planned
    steps = np.full(planned.spans.num_rows, step)
    spans = self.tombstones.mask(planned.spans, steps)
    return dataclasses.replace(planned, spans=spans)

  def planned_samples(
    self, dataset: int, bucket: int, samples: np.ndarray
  ) -> plan_lib.Planned:
    """Plans samples of one dataset and bucket, with no document removed."""
    spans = self._numbered[dataset].spans(bucket, samples)
    if spans is not None:
      source = np.full(len(spans), dataset, np.int32)
      spans = dataclasses.replace(spans, source=source)
    return plan_lib.Planned(spans, bucket, dataset, samples)

  def prefetch(self, planned: plan_lib.Planned) -> bool:
    """Fetches the data of a planned step; of arrays nothing."""
    fetched = planned.fetched
    if fetched is None:
      return False
    if self.columns is not None:
      self.columns.prefetch(fetched)
    rows = self._numbered[planned.dataset].rows
    return rows[planned.bucket].prefetch(fetched)

  def read(self, planned: plan_lib.Planned) -> dict[str, np.ndarray]:
    """Reads a planned step and returns its fields, [R, ...] each."""
    assert planned.samples is not None
    batch = self._numbered[planned.dataset].read(
      planned.bucket,
      planned.samples,
      planned.dataset,
      planned.spans,
      planned.columns,
    )
    if self.columns is not None and planned.spans is not None:
      (seq_len,) = self.buckets[planned.bucket].shape
      batch |= self.columns.read(planned.spans, seq_len, 1, planned.columns)
    return batch

  def counts(self, data_step: int) -> plan_lib.Counts:
    """Returns samples by dataset and bucket before a data step, no padding."""
    counts = self.schedule.consumed(self.within(data_step)).tolist()
    names = [bucket.name for bucket in self.buckets]
    return {
      name: dict(zip(names, by_bucket, strict=True))
      for name, by_bucket in zip(self.datasets, counts, strict=True)
    }

  def within(self, count: int) -> int:
    """Returns `count`, or the number of data steps if that is smaller."""
    end = self.schedule.num_steps
    return count if end is None else min(count, end)

  @property
  def fingerprint(self) -> dict[str, Any]:
    """What determines batches: buckets, mix and datasets, as JSON values."""
    stages = self.bucket_stages
    return {
      "buckets": {
        **self.fingerprints["buckets"],
        "batch_sizes": {
          bucket.name: bucket.batch_size for bucket in self.buckets
        },
        "stages": None if stages is None else _as_json(stages),
      },
      "mix": {**self.fingerprints["mix"], "stages": _as_json(self.stages)},
      "sources": {
        name: {**dataset.fingerprint, **self.fingerprints["sources"][name]}
        for name, dataset in self.datasets.items()
      },
    }


def _as_json(stages: mix_options.ExactStages) -> dict[str, dict[str, str]]:
  return {
    str(step): {name: str(weight) for name, weight in sorted(weights.items())}
    for step, weights in stages
  }
