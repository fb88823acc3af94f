# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Answers to questions about a run of rows as a whole."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from chomp_data.phased import source_trail
from chomp_data.plans import questions
from chomp_data.plans import rows_plan
from chomp_data.plans import token_sums
from chomp_data.plans import trails
from chomp_data.sources import row_source


class RowsQuestions(questions.Questions):
  """Answers of a `RowsPlan`."""

  plan: rows_plan.RowsPlan

  def _batches(self, data_step: int) -> np.ndarray:
    batches = np.zeros(len(self.plan.buckets), np.int64)
    for first, last in self.plan.stretches(data_step):
      batches[self.plan.bucket_of(first)] += last - first
    return batches

  def _epoch_begins(self, source: str, epoch: int) -> int | None:
    epochs = self.plan.ordered[source].epochs
    return self._step_of(source, epochs.start(epochs.ramp + epoch))

  def _ends(self, source: str) -> int | None:
    mix = self.plan.merge
    num_rows = self.plan.num_rows if mix is None else mix.num_rows(source)
    if num_rows is None:
      return None
    last = self._step_of(source, num_rows - 1)
    return None if last is None else last + 1

  def _step_of(self, source: str, row: int) -> int | None:
    """Returns the data step of a source's row; None if never reached."""
    position: int | None = row
    if self.plan.merge is not None:
      position = self.plan.merge.position_of(source, row)
    if position is None:
      return None
    # Rows are permuted only within a batch, so steps follow from the merge.
    step, end = self.plan.steps.step_of_row(position), self.plan.num_data_steps
    return None if end is not None and step >= end else step

  def passes(self, source: str, samples: int) -> float:
    """Returns how many epochs of a source so many rows are."""
    return self.plan.ordered[source].epochs.passes(samples)

  def trail(self, source: str, document: int) -> trails.Trail:
    """Returns at which steps and rows a document is in the run."""
    return trails.RowsTrail(self.plan, source, document)

  def exposures(self, source: str, first: int, last: int) -> np.ndarray:
    """Returns the number of spans of each document in some data steps."""
    rows = self._rows(source, first, last)
    return source_trail.exposures(self.plan.ordered[source], *rows)

  def _rows(self, source: str, first: int, last: int) -> tuple[int, int]:
    """Returns the range of a source's rows in some data steps."""
    low, high = (self.plan.rows_before(step)[source] for step in (first, last))
    return low, high

  def _documents(
    self, source: str, first: int, last: int
  ) -> Iterator[np.ndarray]:
    rows = self._rows(source, first, last)
    for spans in row_source.planned_blocks(self.plan.ordered[source], *rows):
      yield spans.document[spans.stored()[0] > 0]

  def token_sums(self) -> token_sums.TokenSums:
    """Returns sums of tokens by source."""
    return token_sums.RowSums(self.plan)

  def foreign_offsets(self) -> list[dict[str, Any]] | None:
    """Returns entries of `resume_state` that name no source."""
    mix = self.plan.merge
    return [] if mix is None else mix.foreign_specs()
