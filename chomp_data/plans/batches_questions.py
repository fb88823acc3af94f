# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Answers to questions about a run in buckets as a whole."""

from collections.abc import Iterator

import numpy as np

from chomp_data.bucket import batch_order
from chomp_data.plans import batches_plan
from chomp_data.plans import questions
from chomp_data.plans import summary
from chomp_data.plans import token_sums
from chomp_data.plans import trails


class BatchesQuestions(questions.Questions):
  """Answers of a `BatchesPlan`."""

  plan: batches_plan.BatchesPlan

  def _batches(self, data_step: int) -> np.ndarray:
    plan = self.plan
    return plan.schedule.batches(plan.within(data_step)).sum(axis=0)

  def _epoch_begins(self, source: str, epoch: int) -> int | None:
    return self.plan.schedule.epoch_begins(source, epoch)

  def _ends(self, source: str) -> int | None:
    return self.plan.schedule.ends(source)

  def passes(self, source: str, samples: int) -> float:
    """Returns how many epochs of a dataset so many samples are."""
    return samples / max(sum(self.plan.datasets[source].counts.values()), 1)

  def num_documents(self, source: str) -> int:
    """Returns the number of documents (samples for arrays) of a dataset."""
    return self.plan.datasets[source].num_documents

  def trail(self, source: str, document: int) -> trails.Trail:
    """Returns at which steps and rows a document, or sample, is in the run."""
    return trails.BatchesTrail(self.plan, source, document)

  def exposures(self, source: str, first: int, last: int) -> np.ndarray:
    """Returns how often each document, or sample, is in some data steps."""
    dataset = self.plan.datasets[source]
    exposure_counts = np.zeros(dataset.num_documents, np.int64)
    for order, low, high in self._places(source, first, last):
      for bucket in np.flatnonzero(order.counts).tolist():
        samples = np.arange(order.counts[bucket])
        counts = order.counts_between(bucket, samples, low, high)
        np.add.at(exposure_counts, dataset.numbers_of(bucket, samples), counts)
    return exposure_counts

  def _places(
    self, source: str, first: int, last: int
  ) -> Iterator[tuple[batch_order.BatchOrder, int, int]]:
    """Yields each order of a dataset, and its places in some data steps."""
    number, plan = self.plan.source_names.index(source), self.plan
    begins, ends = (
      plan.schedule.parts_at(number, plan.within(step))
      for step in (first, last)
    )
    for (order, low), (_, high) in zip(begins, ends, strict=True):
      yield order, low, high

  def _documents(
    self, source: str, first: int, last: int
  ) -> Iterator[np.ndarray]:
    dataset = self.plan.datasets[source]
    # Samples of arrays are numbered by bucket.
    counts = [dataset.counts.get(own.name, 0) for own in self.plan.buckets]
    first_numbers = np.cumsum([0, *counts])
    for order, low, high in self._places(source, first, last):
      for bucket, samples in order.samples_between(low, high):
        spans = dataset.spans(bucket, samples)
        if spans is None:
          yield first_numbers[bucket] + samples
        else:
          yield spans.document[spans.stored()[0] > 0]

  def sample_numbers(self, step: int) -> np.ndarray:
    """Returns the store's numbers of a step's arrays, int64[R]; -1 is padding.

    Raises:
      TypeError: If the step holds text.
    """
    planned = self.plan.planned(step)
    if planned.samples is None:
      return super().sample_numbers(step)
    numbers = np.full(len(planned.samples), -1, np.int64)
    real = planned.samples >= 0
    dataset = self.plan.datasets[self.plan.source_names[planned.dataset]]
    numbers[real] = dataset.numbers_of(planned.bucket, planned.samples[real])
    return numbers

  def token_sums(self) -> token_sums.TokenSums | None:
    """Returns sums of tokens by dataset; None for arrays."""
    return token_sums.BatchSums(self.plan) if self.plan.sources else None

  def bucket_passes(self, step: int) -> dict[str, dict[str, float]]:
    """Returns passes by dataset and bucket before a step."""
    return summary.bucket_passes(self.plan, self.plan.datasets, step)

  def stages(self) -> list[tuple[int, str]]:
    """Returns (from_step, text) of each stage of the curriculum."""
    return [
      (step, summary.stage_text(self.plan, step, weights))
      for step, weights in self.plan.bucket_stages or ()
    ]

  def warnings(self) -> list[str]:
    """Returns a sentence for each bucket that a stage passes very often."""
    plan = self.plan
    lines = summary.repeats(plan, plan.datasets, plan.bucket_stages)
    return [f"{plan.path}.buckets.stages: {line}." for line in lines]
