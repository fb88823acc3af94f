# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The contract of questions about a run as a whole.

A plan says what each step holds. The questions here are about sources and
documents over many steps: at which steps epochs begin and documents occur, and
what was consumed. Answers read no tokens.
"""

import abc
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from typing import final

import numpy as np

from chomp_data.plans import token_sums
from chomp_data.plans import trails
from chomp_data.sources import row_source


class Questions(abc.ABC):
  """Answers of one plan.

  Attributes:
    sources: The rows of each source of text, by name; none for arrays.
  """

  sources: Mapping[str, row_source.RowSource]

  @abc.abstractmethod
  def rows_held(self, step: int) -> dict[str, int]:
    """Returns rows of batches by bucket before a step, padding included.

    Args:
      step: At most the number of steps of the run.
    """

  @abc.abstractmethod
  def epoch_begins(self, source: str, epoch: int) -> int | None:
    """Returns the first step of an epoch; None if the run does not reach it.

    Args:
      source: The name of the source.
      epoch: As `passes` counts them, from 0. If the run resumed from offsets,
        the epochs before them have no step.
    """

  @abc.abstractmethod
  def ends(self, source: str) -> int | None:
    """Returns the first step before which a source has delivered all its rows.

    None if it never ends, or not in this run.
    """

  @abc.abstractmethod
  def passes(self, source: str, samples: int) -> float:
    """Returns how many epochs of a source so many consumed samples are."""

  def bucket_passes(self, step: int) -> dict[str, dict[str, float]]:
    """Returns how often each bucket was passed before a step.

    Args:
      step: At most the number of steps of the run.

    Returns:
      By source and bucket; empty for runs without buckets.
    """
    del step
    return {}

  def num_documents(self, source: str) -> int:
    """Returns the number of documents of a source, or of its samples."""
    return self.sources[source].store.num_documents

  @abc.abstractmethod
  def sample_numbers(self, step: int) -> np.ndarray:
    """Returns the numbers in their store of a step's samples of arrays.

    Args:
      step: The step.

    Returns:
      int64[R], -1 for padding.

    Raises:
      TypeError: If samples are text.
    """

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

  @final
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
    if source in self.sources:
      # Documents without tokens are never seen.
      lengths = self.sources[source].store.iter_lengths()
      count = sum(int(np.count_nonzero(part)) for _, part in lengths)
    for numbers in self._delivered(source, step):
      seen[numbers] = True
      if np.count_nonzero(seen) == count:
        break
    return seen

  @abc.abstractmethod
  def _delivered(self, source: str, step: int) -> Iterator[np.ndarray]:
    """Yields the documents, or samples, of a source in steps before one."""

  @abc.abstractmethod
  def token_sums(self) -> token_sums.TokenSums | None:
    """Returns sums of tokens by source; None for arrays."""

  def foreign_offsets(self) -> list[dict[str, Any]] | None:
    """Returns entries of a `resume_state` that name no source of the run.

    None if a run of this kind cannot start from offsets.
    """
    return None

  def stages(self) -> list[tuple[int, str]]:
    """Returns (from_step, text) of each stage of a curriculum over buckets."""
    return []

  def warnings(self) -> list[str]:
    """Returns a sentence for each thing that a user may not have intended."""
    return []


def no_numbers(step: int) -> TypeError:
  """Returns the error for a step of text, whose samples have no numbers."""
  return TypeError(
    f"samples of step {step} must be arrays to have numbers, got text. Ask"
    " for `plan(step)`."
  )
