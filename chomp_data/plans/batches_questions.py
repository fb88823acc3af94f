# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Answers to questions about a run in buckets as a whole."""

from collections.abc import Iterator
from collections.abc import Mapping

import numpy as np

from chomp_data.plans import batches_plan
from chomp_data.plans import consumption
from chomp_data.plans import questions
from chomp_data.plans import summary
from chomp_data.plans import token_sums
from chomp_data.plans import trails
from chomp_data.sources import row_source


class BatchesQuestions(questions.Questions):
  """Answers of a `BatchesPlan`."""

  def __init__(self, plan: batches_plan.BatchesPlan):
    """Binds a plan."""
    self._plan = plan
    self._stages = plan.bucket_stages
    self.sources: Mapping[str, row_source.RowSource] = plan.sources

  def rows_held(self, step: int) -> dict[str, int]:
    """Returns rows by bucket before a step, padding included."""
    end = self._plan.schedule.num_steps
    batches = self._batches(self._plan.within(self._plan.steps.data_step(step)))
    for begin, after in self._plan.steps.skipped(step):
      last = after if end is None else min(after, end)
      batches -= self._batches(last) - self._batches(begin)
    return {
      bucket.name: count * bucket.batch_size
      for bucket, count in zip(
        self._plan.buckets, batches.tolist(), strict=True
      )
    }

  def _batches(self, data_step: int) -> np.ndarray:
    """Returns batches by bucket before a data step, int64[num_buckets]."""
    return self._plan.schedule.batches(data_step).sum(axis=0)

  def epoch_begins(self, source: str, epoch: int) -> int | None:
    """Returns the step of an epoch's first batch; None if never reached.

    With stages of buckets, an epoch begins after every bucket has completed the
    previous one.
    """
    data_step = self._plan.schedule.epoch_begins(source, epoch)
    return None if data_step is None else self._plan.steps.before(data_step)

  def ends(self, source: str) -> int | None:
    """Returns the step after a dataset's last batch; None if it has none."""
    data_step = self._plan.schedule.ends(source)
    return None if data_step is None else self._plan.steps.before(data_step)

  def passes(self, source: str, samples: int) -> float:
    """Returns how many epochs of a dataset so many samples are."""
    return samples / max(sum(self._plan.datasets[source].counts.values()), 1)

  def num_documents(self, source: str) -> int:
    """Returns the number of documents (samples for arrays) of a dataset."""
    return self._plan.datasets[source].num_documents

  def trail(self, source: str, document: int) -> trails.Trail:
    """Returns at which steps and rows a document, or sample, is in the run."""
    return trails.BatchesTrail(
      self._plan.schedule,
      self._plan.source_names.index(source),
      self._plan.datasets[source].samples_of(document),
    )

  def exposures(self, source: str, first: int, last: int) -> np.ndarray:
    """Returns how often each document, or sample, is in some data steps.

    Args:
      source: The name of the dataset.
      first: The first data step.
      last: The data step after the last one.

    Returns:
      int64[num_documents].
    """
    number = self._plan.source_names.index(source)
    dataset = self._plan.datasets[source]
    begins, ends = (
      self._plan.schedule.parts_at(number, self._plan.within(step))
      for step in (first, last)
    )
    exposure_counts = np.zeros(dataset.num_documents, np.int64)
    for (order, low), (_, high) in zip(begins, ends, strict=True):
      for bucket in np.flatnonzero(order.counts).tolist():
        samples = np.arange(order.counts[bucket])
        counts = order.counts_between(bucket, samples, low, high)
        np.add.at(exposure_counts, dataset.numbers_of(bucket, samples), counts)
    return exposure_counts

  def token_sums(self) -> token_sums.TokenSums | None:
    """Returns sums of tokens by dataset; None for arrays."""
    if not self.sources:
      return None
    return token_sums.BatchSums(
      self._plan.datasets, self._plan.schedule, self._plan.by_tokens
    )

  def warnings(self) -> list[str]:
    """Returns a sentence for each bucket that a stage passes very often."""
    return [
      f"{self._plan.path}.buckets.stages: {line}."
      for line in summary.repeats(self._plan, self._stages)
    ]

  def stages(self) -> list[tuple[int, str]]:
    """Returns (from_step, text) of each stage of the curriculum."""
    return [
      (step, summary.stage_text(self._plan, step, weights))
      for step, weights in self._stages or ()
    ]

  def bucket_passes(self, step: int) -> dict[str, dict[str, float]]:
    """Returns passes by dataset and bucket before a step."""
    return summary.bucket_passes(self._plan, step)

  def sample_numbers(self, step: int) -> np.ndarray:
    """Returns the store's numbers of a step's arrays, int64[R]; -1 is padding.

    Raises:
      TypeError: If the step holds text.
    """
    planned = self._plan.planned(step)
    if planned.samples is None:
      raise questions.no_numbers(step)
    numbers = np.full(len(planned.samples), -1, np.int64)
    real = planned.samples >= 0
    dataset = self._plan.datasets[self._plan.source_names[planned.dataset]]
    numbers[real] = dataset.numbers_of(planned.bucket, planned.samples[real])
    return numbers

  def _delivered(self, source: str, step: int) -> Iterator[np.ndarray]:
    """Yields the documents, or samples, of a dataset in steps before one."""
    plan, number = self._plan, self._plan.source_names.index(source)
    dataset = plan.datasets[source]
    # Samples of arrays are numbered by bucket.
    counts = [dataset.counts.get(bucket.name, 0) for bucket in plan.buckets]
    first = np.cumsum([0, *counts])
    removed = consumption.is_removed_before(plan, step)
    if not plan.steps.skipped(step) and not removed:
      for order, place in plan.schedule.parts_at(number, plan.within(step)):
        for bucket, samples in order.samples_between(0, place):
          spans = dataset.spans(bucket, samples)
          if spans is None:
            yield first[bucket] + samples
          else:
            yield spans.document[spans.stored()[0] > 0]
      return
    for delivered_step in range(step):
      if plan.at(delivered_step)[0] != number:
        continue
      planned = plan.planned(delivered_step)
      if planned.spans is None:
        assert planned.samples is not None
        real = planned.samples[planned.samples >= 0]
        yield first[planned.bucket] + real
      else:
        spans = planned.spans.live()
        yield spans.document[spans.stored()[0] > 0]
