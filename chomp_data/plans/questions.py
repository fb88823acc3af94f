# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The contract of questions about a run as a whole.

A plan says what each step holds. The questions here are about sources and
documents over many steps: at which steps epochs begin and documents occur, and
what was consumed. Answers read no tokens.
"""

import abc
from collections.abc import Iterator
from typing import Any

import numpy as np

from chomp_data.plans import consumption
from chomp_data.plans import ledger
from chomp_data.plans import plan as plan_lib
from chomp_data.plans import token_sums
from chomp_data.plans import trails


class Questions(abc.ABC):
  """Answers of one plan."""

  def __init__(self, plan: plan_lib.Plan):
    """Binds a plan."""
    self.plan = plan

  # Steps.

  def rows_held(self, step: int) -> dict[str, int]:
    """Returns rows of batches by bucket before a step, padding included.

    Args:
      step: At most the number of steps of the run.
    """
    batches = consumption.without_skipped(self.plan, step, self._batches)
    return {
      bucket.name: count * bucket.batch_size
      for bucket, count in zip(self.plan.buckets, batches.tolist(), strict=True)
    }

  @abc.abstractmethod
  def _batches(self, data_step: int) -> np.ndarray:
    """Returns batches by bucket before a data step, int64[num_buckets]."""

  def epoch_begins(self, source: str, epoch: int) -> int | None:
    """Returns the first step of an epoch; None if the run does not reach it.

    With stages of buckets, an epoch begins after every bucket has completed the
    previous one.

    Args:
      source: The name of the source.
      epoch: As `passes` counts them, from 0. If the run resumed from offsets,
        the epochs before them have no step.
    """
    data_step = self._epoch_begins(source, epoch)
    return None if data_step is None else self.plan.steps.before(data_step)

  @abc.abstractmethod
  def _epoch_begins(self, source: str, epoch: int) -> int | None:
    """Returns the first data step of an epoch; None if never reached."""

  def ends(self, source: str) -> int | None:
    """Returns the first step before which a source has delivered all its rows.

    None if it never ends, or not in this run.
    """
    data_step = self._ends(source)
    return None if data_step is None else self.plan.steps.before(data_step)

  @abc.abstractmethod
  def _ends(self, source: str) -> int | None:
    """Returns the data step after the last one of a source, or None."""

  @abc.abstractmethod
  def passes(self, source: str, samples: int) -> float:
    """Returns how many epochs of a source so many consumed samples are."""

  # Documents.

  def num_documents(self, source: str) -> int:
    """Returns the number of documents of a source, or of its samples."""
    return self.plan.sources[source].store.num_documents

  @abc.abstractmethod
  def trail(self, source: str, document: int) -> trails.Trail:
    """Returns at which steps and rows a document is in the run.

    Args:
      source: The name of the source.
      document: The number of the document, below `num_documents`.
    """

  @abc.abstractmethod
  def exposures(self, source: str, first: int, last: int) -> np.ndarray:
    """Returns the number of spans of each document in some data steps.

    For arrays: how often each sample is in them.

    Args:
      source: The name of the source.
      first: The first data step.
      last: The data step after the last one, at most the run's.

    Returns:
      int64[num_documents].
    """

  def documents(self, source: str, step: int) -> np.ndarray:
    """Returns which documents a source has delivered before a step.

    Rows are planned until all documents were seen, or the step is reached.

    Args:
      source: The name of the source.
      step: At most the number of steps of the run.

    Returns:
      bool[num_documents], whether a token of the document was in a batch. For
      arrays: whether the sample was, with samples numbered by bucket.
    """
    seen = np.zeros(self.num_documents(source), np.bool_)
    count = len(seen)
    if source in self.plan.sources:
      # Documents without tokens are never seen.
      lengths = self.plan.sources[source].store.iter_lengths()
      count = sum(int(np.count_nonzero(part)) for _, part in lengths)
    for numbers in self._delivered(source, step):
      seen[numbers] = True
      if np.count_nonzero(seen) == count:
        break
    return seen

  def _delivered(self, source: str, step: int) -> Iterator[np.ndarray]:
    """Yields the documents, or samples, of a source in steps before one."""
    plan, first_removed = self.plan, step
    number = plan.source_names.index(source)
    if plan.sources and consumption.is_removed_before(plan, step):
      first_removed = plan.steps.before(plan.gone.first_step or 0)
    for first, last in consumption.data_steps(plan, first_removed):
      yield from self._documents(source, first, last)
    # From here on tombstones may remove tokens, which depends on the step: plan
    # the rows of all sources.
    for steps in ledger.groups(plan, first_removed, step):
      if plan.at(steps.start)[0] in (None, number):
        spans = plan.spans(steps.start, len(steps)).live()
        is_delivered = (spans.source == number) & (spans.stored()[0] > 0)
        yield spans.document[is_delivered]

  @abc.abstractmethod
  def _documents(
    self, source: str, first: int, last: int
  ) -> Iterator[np.ndarray]:
    """Yields the documents, or samples, of a source in some data steps."""

  # Other.

  def sample_numbers(self, step: int) -> np.ndarray:
    """Returns the numbers in their store of a step's samples of arrays.

    Args:
      step: The step.

    Returns:
      int64[R], -1 for padding.

    Raises:
      TypeError: If samples are text.
    """
    raise TypeError(
      f"samples of step {step} must be arrays to have numbers, got text. Ask"
      " for `plan(step)`."
    )

  @abc.abstractmethod
  def token_sums(self) -> token_sums.TokenSums | None:
    """Returns sums of tokens by source; None for arrays."""

  def foreign_offsets(self) -> list[dict[str, Any]] | None:
    """Returns entries of a `resume_state` that name no source of the run.

    None if a run of this kind cannot start from offsets.
    """
    return None

  def bucket_passes(self, step: int) -> dict[str, dict[str, float]]:
    """Returns how often each bucket was passed before a step.

    Args:
      step: At most the number of steps of the run.

    Returns:
      By source and bucket; empty for runs without buckets.
    """
    del step
    return {}

  def stages(self) -> list[tuple[int, str]]:
    """Returns (from_step, text) of each stage of a curriculum over buckets."""
    return []

  def warnings(self) -> list[str]:
    """Returns a sentence for each thing that a user may not have intended."""
    return []
