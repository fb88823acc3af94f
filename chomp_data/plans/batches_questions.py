# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Answers to questions about a run in buckets as a whole."""

from collections.abc import Callable
from collections.abc import Iterator
import functools

import numpy as np

from chomp_data.bucket import dataset as dataset_lib
from chomp_data.index import memo
from chomp_data.mix import mix_options
from chomp_data.plans import batches_plan
from chomp_data.plans import plan as plan_lib
from chomp_data.plans import questions
from chomp_data.sources import mix_units

# The most cached prefix sums.
_CACHED = 1_024


class BatchesQuestions(questions.Questions):
  """Answers of a `BatchesPlan`."""

  plan: batches_plan.BatchesPlan

  def batches(self, data_step: int) -> np.ndarray:
    """Returns batches by bucket before a data step."""
    plan = self.plan
    return plan.schedule.batches(plan.within(data_step)).sum(axis=0)

  def epoch_begins(self, source: str, epoch: int) -> int | None:
    """Returns the first step of an epoch."""
    return self._run_step(self.plan.schedule.epoch_begins(source, epoch))

  def ends(self, source: str) -> int | None:
    """Returns the step after the last one of a dataset."""
    return self._run_step(self.plan.schedule.ends(source))

  def epochs_consumed(self, source: str, samples: int) -> float:
    """Returns a number of samples in epochs of a dataset."""
    return samples / max(sum(self.plan.datasets[source].counts.values()), 1)

  @property
  def stages(self) -> mix_options.ExactStages:
    """The weights of datasets, by stage."""
    return self.plan.stages if len(self.plan.datasets) > 1 else []

  def _consumed(self, data_step: int) -> tuple[np.ndarray, np.ndarray]:
    schedule, place = self.plan.schedule, self.plan.within(data_step)
    return schedule.consumed(place).sum(axis=1), schedule.consumed_units(place)

  def _ended(self, data_step: int) -> dict[str, bool]:
    ended = self.plan.schedule.ended(data_step).tolist()
    return dict(zip(self.plan.datasets, ended, strict=True))

  def unserved(self, num_steps: int) -> list[str]:
    """Returns a sentence for each weight that amounts to less than a batch."""
    if not self.stages:
      return []
    plan = self.plan
    place = plan.within(plan.steps.data_step(num_steps))
    return mix_options.unserved_lines(
      f"{plan.path}.mix", self.stages, plan.schedule.unserved(place), place
    )

  def num_documents(self, source: str) -> int:
    """Returns the number of documents (samples for arrays) of a dataset."""
    return self.plan.datasets[source].num_documents

  @property
  def _bucket_names(self) -> list[str]:
    return [bucket.name for bucket in self.plan.buckets]

  def units_before(self, source: str, data_step: int, unit: str) -> int:
    """Returns the units of a dataset's samples before a data step."""
    schedule, data_step = self.plan.schedule, self.plan.within(data_step)
    number = self.plan.source_names.index(source)
    if not self._is_known(source, unit):
      return self._sums(number, unit)(data_step)
    tokens = int(schedule.consumed_units(data_step)[number])
    if unit == "tokens":
      return tokens
    # Each row is one span, whose last token has no next one.
    return tokens - int(schedule.consumed(data_step)[number].sum())

  @memo.remembered(_CACHED)
  def _sums(self, number: int, unit: str) -> Callable[[int], int]:
    dataset = self.plan.datasets[self.plan.source_names[number]]
    return self.plan.schedule.unit_sums(
      number, functools.partial(_sample_units, dataset, unit)
    )

  def rows_to_plan(self, source: str, data_step: int, unit: str) -> int:
    """Returns how many samples are summed one by one; 0 if units are known."""
    if self._is_known(source, unit):
      return 0
    plan, number = self.plan, self.plan.source_names.index(source)
    # All samples once, and those of the current epoch.
    epoch = 2 * sum(plan.datasets[source].counts.values())
    samples = plan.schedule.consumed(plan.within(data_step))[number]
    return min(int(samples.sum()), epoch)

  def _is_known(self, source: str, unit: str) -> bool:
    trains_on_all = self.plan.sources[source].store.labels.trains_on_all
    return self.plan.by_tokens and (unit == "tokens" or trains_on_all)

  def examples(self, bucket: int) -> Iterator[tuple[str, plan_lib.Planned]]:
    """Yields (dataset name, plan of its first sample in a bucket)."""
    first, bucket_name = np.zeros(1, np.int64), self._bucket_names[bucket]
    for number, (name, dataset) in enumerate(self.plan.datasets.items()):
      if dataset.counts.get(bucket_name):
        yield name, self.plan.planned_samples(number, bucket, first)


def _sample_units(
  dataset: dataset_lib.Dataset, unit: str, bucket: int, samples: np.ndarray
) -> np.ndarray:
  """Returns int64[N], the units of samples of text, of one span each."""
  spans = dataset.spans(bucket, samples)
  assert spans is not None
  assert dataset.text is not None
  return mix_units.planned_units(spans, unit, dataset.text.store)
