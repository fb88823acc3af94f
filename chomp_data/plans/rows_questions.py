# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Answers to questions about a run of rows as a whole."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from chomp_data.index import memo
from chomp_data.mix import mix_options
from chomp_data.plans import plan as plan_lib
from chomp_data.plans import questions
from chomp_data.plans import rows_plan
from chomp_data.sources import mix_units
from chomp_data.sources import prefix_sums
from chomp_data.sources import row_source
from chomp_data.stores import side_index

# To plan this many rows takes about a second: for more, progress is shown.
MANY_ROWS = 1_000_000
# The most cached results of each kind.
_CACHED = 1_024


class RowsQuestions(questions.Questions):
  """Answers of a `RowsPlan`."""

  plan: rows_plan.RowsPlan

  def batches(self, data_step: int) -> np.ndarray:
    """Returns batches by bucket before a data step."""
    batches = np.zeros(len(self.plan.buckets), np.int64)
    for first, last in self.plan.stretches(data_step):
      batches[self.plan.bucket_of(first)] += last - first
    return batches

  def epoch_begins(self, source: str, epoch: int) -> int | None:
    """Returns the first step of an epoch."""
    epochs = self.plan.ordered[source].epochs
    row = epochs.start(epochs.ramp + epoch)
    return self._run_step(self._step_of(source, row))

  def ends(self, source: str) -> int | None:
    """Returns the step after the last one of a source."""
    mix = self.plan.merge
    num_rows = self.plan.num_rows if mix is None else mix.num_rows(source)
    if num_rows is None:
      return None
    last = self._step_of(source, num_rows - 1)
    return self._run_step(None if last is None else last + 1)

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

  def epochs_consumed(self, source: str, samples: int) -> float:
    """Returns a number of rows in epochs of a source."""
    return self.plan.ordered[source].epochs.passes(samples)

  @property
  def stages(self) -> mix_options.ExactStages:
    """The weights of sources, by stage."""
    return [] if self.plan.merge is None else self.plan.merge.stages

  def _consumed(self, data_step: int) -> tuple[np.ndarray, np.ndarray]:
    first = self.plan.steps.first_row(data_step)
    if self.plan.merge is not None:
      return self.plan.merge.consumed(first)
    rows = np.asarray(
      [first if self.plan.num_rows is None else min(first, self.plan.num_rows)]
    )
    return rows, rows

  def _ended(self, data_step: int) -> dict[str, bool]:
    merge = self.plan.merge
    assert merge is not None
    rows_before = merge.rows_before(self.plan.steps.first_row(data_step))
    limits = {name: merge.num_rows(name) for name in rows_before}
    return {
      name: limit is not None and rows_before[name] >= limit
      for name, limit in limits.items()
    }

  def unserved(self, num_steps: int) -> list[str]:
    """Returns a sentence for each weight that amounts to less than a row."""
    merge, steps = self.plan.merge, self.plan.steps
    return [] if merge is None else merge.unserved(steps.data_step(num_steps))

  def _is_long(self, num_steps: int) -> bool:
    merge, steps = self.plan.merge, self.plan.steps
    # The places of a merge are computed from whole epochs.
    rows = steps.first_row(steps.data_step(num_steps))
    return merge is not None and merge.is_long(rows)

  @memo.remembered(_CACHED)
  def _rows_before(self, data_step: int) -> dict[str, int]:
    return self.plan.rows_before(data_step)

  def _rows(self, source: str, first: int, last: int) -> tuple[int, int]:
    """Returns the range of a source's rows in some data steps."""
    low, high = (self._rows_before(step)[source] for step in (first, last))
    return low, high

  def units_before(self, source: str, data_step: int, unit: str) -> int:
    """Returns the units of a source's rows before a data step."""
    row = self._rows_before(data_step)[source]
    if not row:
      # Nothing precedes row 0. Other rows may need a pass over the source.
      return 0
    sums = self._sums(source, unit)
    planned = self.rows_to_plan(source, data_step, unit)
    name = f"{source}: {unit} of rows"
    # Sums grow a part at a time, so that progress can be shown.
    with side_index.progress(
      planned, name, "rows", planned >= MANY_ROWS
    ) as bar:
      for end in range(MANY_ROWS, planned, MANY_ROWS):
        sums.before(np.asarray([end]))
        bar.update(MANY_ROWS)
      return int(sums.before(np.asarray([row]))[0])

  @memo.remembered(_CACHED)
  def _sums(self, source: str, unit: str) -> prefix_sums.SourceUnits:
    return prefix_sums.SourceUnits(self.plan.ordered[source], unit, None)

  def rows_to_plan(self, source: str, data_step: int, unit: str) -> int:
    """Returns how many rows `units_before` plans; 0 if units are known."""
    row = self._rows_before(data_step)[source]
    if not row or self._are_known(source, unit):
      return 0
    rows = self.plan.ordered[source]
    first_epoch = rows.repeating_units.get(unit)
    if first_epoch is None:
      return row
    # Of the epochs that repeat, one is summed in full and one in part.
    return min(row, rows.epochs.start(first_epoch + 2))

  @memo.remembered(_CACHED)
  def _are_known(self, source: str, unit: str) -> bool:
    return prefix_sums.are_known(self.plan.ordered[source], unit)

  def units_between(self, source: str, first: int, last: int, unit: str) -> int:
    """Returns the units of a source in data steps first to last - 1."""
    if self._are_known(source, unit):
      return super().units_between(source, first, last, unit)
    return self._planned_units(source, unit, *self._rows(source, first, last))

  @memo.remembered(_CACHED)
  def _planned_units(
    self, source: str, unit: str, first: int, last: int
  ) -> int:
    """Returns the units of rows first to last - 1, from their plans."""
    rows = self.plan.ordered[source]
    return sum(
      int(mix_units.planned_units(spans, unit, rows.store).sum())
      for spans in row_source.planned_blocks(rows, first, last)
    )

  def examples(self, bucket: int) -> Iterator[tuple[str, plan_lib.Planned]]:
    """Yields (source name, plan of a row): all rows have the same fields."""
    first_row = {one.name: np.zeros(1, np.int64) for one in self.plan.buckets}
    spans = self.plan.planned(0, 1, first_row).spans
    yield self.plan.source_names[0], plan_lib.Planned(spans, bucket)

  def foreign_offsets(self) -> list[dict[str, Any]] | None:
    """Returns entries of `resume_state` that name no source."""
    mix = self.plan.merge
    return [] if mix is None else mix.foreign_specs()
