# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Answers to questions about a run of rows as a whole."""

from collections.abc import Iterator
from collections.abc import Mapping
import itertools
from typing import Any

import numpy as np

from chomp_data.phased import source_trail
from chomp_data.plans import consumption
from chomp_data.plans import questions
from chomp_data.plans import rows_plan
from chomp_data.plans import token_sums
from chomp_data.plans import trails
from chomp_data.sources import row_source

# Rows that are planned together.
_BLOCK_ROWS = 65_536


class RowsQuestions(questions.Questions):
  """Answers of a `RowsPlan`."""

  def __init__(self, plan: rows_plan.RowsPlan):
    """Binds a plan."""
    self._plan = plan
    self._merge = plan.merge
    self.sources: Mapping[str, row_source.RowSource] = plan.sources

  def rows_held(self, step: int) -> dict[str, int]:
    """Returns rows of batches by bucket before a step, padding included."""
    num_rows = {bucket.name: 0 for bucket in self._plan.buckets}
    names = {bucket.batch_size: bucket.name for bucket in self._plan.buckets}
    steps = self._plan.steps
    ends = [first for first, _ in steps.skipped(step)]
    begins = [0, *(last for _, last in steps.skipped(step))]
    for begin, end in zip(begins, [*ends, steps.data_step(step)], strict=True):
      changes = [at for at, _ in steps.sizes if begin < at < end]
      for first, last in itertools.pairwise([begin, *changes, end]):
        rows = steps.first_row(last) - steps.first_row(first)
        num_rows[names[steps.size(first)]] += rows
    return num_rows

  def epoch_begins(self, source: str, epoch: int) -> int | None:
    """Returns the step of an epoch's first row; None if never reached."""
    epochs = self._plan.ordered[source].epochs
    step = self._step_of(source, epochs.start(epochs.ramp + epoch))
    return None if step is None else self._plan.steps.before(step)

  def ends(self, source: str) -> int | None:
    """Returns the step after a source's last row; None if it has none."""
    mix = self._merge
    last = self._plan.num_rows if mix is None else mix.num_rows(source)
    if last is None:
      return None
    step = self._step_of(source, last - 1)
    return None if step is None else self._plan.steps.before(step + 1)

  def _step_of(self, source: str, row: int) -> int | None:
    """Returns the data step of a source's row; None if never reached."""
    position = row
    if self._merge is not None:
      merged = self._merge.position_of(source, row)
      if merged is None:
        return None
      position = merged
    # Rows are permuted only within a batch, so steps follow from the merge.
    step = self._plan.steps.step_of_row(position)
    over = self._plan.num_rows is not None and step >= self._plan.data_steps_of(
      self._plan.num_rows
    )
    return None if over else step

  def passes(self, source: str, samples: int) -> float:
    """Returns how many epochs of a source so many rows are."""
    return self._plan.ordered[source].epochs.passes(samples)

  def trail(self, source: str, document: int) -> trails.Trail:
    """Returns at which steps and rows a document is in the run."""
    end = (
      None
      if self._plan.num_rows is None
      else self._plan.data_steps_of(self._plan.num_rows)
    )
    return trails.RowsTrail(
      self._plan.ordered[source],
      document,
      steps=self._plan.steps,
      num_rows=self._plan.num_rows,
      end=end,
      mix=self._merge,
      name=source,
    )

  def exposures(self, source: str, first: int, last: int) -> np.ndarray:
    """Returns the number of spans of each document in some data steps.

    Args:
      source: The name of the source.
      first: The first data step.
      last: The data step after the last one.

    Returns:
      int64[num_documents].
    """
    rows = [self._plan.rows_before(step)[source] for step in (first, last)]
    return source_trail.exposures(self._plan.ordered[source], *rows)

  def token_sums(self) -> token_sums.TokenSums:
    """Returns sums of tokens by source."""
    return token_sums.RowSums(self._plan.ordered, self._plan.rows_before)

  def foreign_offsets(self) -> list[dict[str, Any]] | None:
    """Returns entries of `resume_state` that name no source."""
    return [] if self._merge is None else self._merge.foreign_specs()

  def sample_numbers(self, step: int) -> np.ndarray:
    """Raises TypeError, because rows of text have no sample numbers."""
    raise questions.no_numbers(step)

  def _delivered(self, source: str, step: int) -> Iterator[np.ndarray]:
    """Yields the documents of a source in steps before one."""
    plan, first_removed = self._plan, step
    if consumption.is_removed_before(plan, step):
      first_removed = plan.steps.before(plan.gone.first_step or 0)
    position = consumption.positions(plan, first_removed)[source]
    first = plan.rows_before(0)[source]
    ends = (*position.skipped, (position.consumed, position.consumed))
    for low, high in ends:
      for spans in row_source.planned_blocks(plan.ordered[source], first, low):
        yield spans.document[spans.stored()[0] > 0]
      first = high
    # From here on tombstones may remove tokens, which depends on the step: plan
    # the rows of all sources.
    number = plan.source_names.index(source)
    block = max(1, _BLOCK_ROWS // max(plan.steps.distinct_sizes))
    for first in range(first_removed, step, block):
      spans = plan.spans(first, min(block, step - first)).live()
      is_delivered = (spans.source == number) & (spans.stored()[0] > 0)
      yield spans.document[is_delivered]
