# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Tokens and trained tokens of a source before a data step.

They are prefix sums of a source's rows (`SourceUnits`), or of a dataset's
batches, as if no document were removed and no step skipped.
"""

import abc
import functools

import numpy as np

from chomp_data.bucket import dataset as dataset_lib
from chomp_data.index import memo
from chomp_data.plans import batches_plan
from chomp_data.plans import rows_plan
from chomp_data.sources import row_labels
from chomp_data.sources import row_source
from chomp_data.sources import row_units
from chomp_data.sources import source_units
from chomp_data.stores import side_index

# To plan so many rows takes about a second: from there on progress is shown.
MANY_ROWS = 1_000_000
# The most cached results: prefix sums by source and unit, and sums of ranges.
_CACHED = 1_024


class TokenSums(abc.ABC):
  """Sums of units of sources before data steps. To be used by one thread."""

  @abc.abstractmethod
  def before(self, source: str, data_step: int, unit: str) -> int:
    """Returns the units of the samples before a data step.

    Args:
      source: The name of the source.
      data_step: The data step.
      unit: One of `ledger.UNITS`.
    """

  @abc.abstractmethod
  def rows_to_plan(self, source: str, data_step: int, unit: str) -> int:
    """Returns how many rows `before` has to plan or sum one by one.

    Args:
      source: The name of the source.
      data_step: The data step.
      unit: One of `ledger.UNITS`.
    """

  def between(self, source: str, first: int, last: int, unit: str) -> int:
    """Returns the units of the samples of data steps first to last - 1."""
    low, high = (self.before(source, step, unit) for step in (first, last))
    return high - low


class RowSums(TokenSums):
  """Sums of units in a run of rows."""

  def __init__(self, plan: rows_plan.RowsPlan):
    """Sums nothing yet."""
    self._plan = plan
    self._cache = memo.Memo(_CACHED)

  def before(self, source: str, data_step: int, unit: str) -> int:
    """Returns the units of a source's samples before a data step."""
    row = self._row(source, data_step)
    if not row:
      # Nothing precedes row 0. Other rows may need a pass over the source.
      return 0
    prefix = self._cache.get(
      (source, unit),
      lambda: source_units.SourceUnits(self._plan.ordered[source], unit, None),
    )
    planned = self.rows_to_plan(source, data_step, unit)
    name = f"{source}: {unit} of rows"
    # Sums grow a part at a time, so that progress can be shown.
    with side_index.progress(
      planned, name, "rows", planned >= MANY_ROWS
    ) as bar:
      for end in range(MANY_ROWS, planned, MANY_ROWS):
        prefix.before(np.asarray([end]))
        bar.update(MANY_ROWS)
      return int(prefix.before(np.asarray([row]))[0])

  def rows_to_plan(self, source: str, data_step: int, unit: str) -> int:
    """Returns how many rows `before` has to plan; 0 if units are known."""
    row, rows = self._row(source, data_step), self._plan.ordered[source]
    if not row or self._is_known(source, unit):
      return 0
    first_epoch = rows.repeating_units.get(unit)
    if first_epoch is None:
      return row
    # Of the epochs that repeat, one is summed in full and one in part.
    return min(row, rows.epochs.start(first_epoch + 2))

  def between(self, source: str, first: int, last: int, unit: str) -> int:
    """Returns the units of a source in data steps first to last - 1."""
    if self._is_known(source, unit):
      return super().between(source, first, last, unit)
    rows = self._plan.ordered[source]
    low, high = (self._row(source, step) for step in (first, last))
    return self._cache.get(
      (source, unit, low, high),
      lambda: sum(
        int(row_units.planned_units(spans, unit, rows.store).sum())
        for spans in row_source.planned_blocks(rows, low, high)
      ),
    )

  def _row(self, source: str, data_step: int) -> int:
    """Returns the row of a source that comes next at a data step."""
    rows = self._cache.get(data_step, lambda: self._plan.rows_before(data_step))
    return rows[source]

  def _is_known(self, source: str, unit: str) -> bool:
    return self._cache.get(
      ("known", source, unit),
      lambda: source_units.are_known(self._plan.ordered[source], unit),
    )


class BatchSums(TokenSums):
  """Sums of units in a run of text in buckets."""

  def __init__(self, plan: batches_plan.BatchesPlan):
    """Sums nothing yet."""
    self._plan = plan
    self._cache = memo.Memo(_CACHED)

  def before(self, source: str, data_step: int, unit: str) -> int:
    """Returns the units of a source's samples before a data step."""
    schedule, data_step = self._plan.schedule, self._plan.within(data_step)
    number, dataset = self._numbered(source)
    if self._is_known(dataset, unit):
      tokens = int(schedule.consumed_units(data_step)[number])
      if unit == "tokens":
        return tokens
      # Each row is one span, whose last token has no next one.
      return tokens - int(schedule.consumed(data_step)[number].sum())
    before = self._cache.get(
      (number, unit),
      lambda: schedule.unit_sums(
        number, functools.partial(_sample_units, dataset, unit)
      ),
    )
    return before(data_step)

  def rows_to_plan(self, source: str, data_step: int, unit: str) -> int:
    """Returns how many samples `before` has to sum; 0 if units are known."""
    number, dataset = self._numbered(source)
    if self._is_known(dataset, unit):
      return 0
    # All samples once, and those of the current epoch.
    epoch = 2 * sum(dataset.counts.values())
    samples = self._plan.schedule.consumed(self._plan.within(data_step))[number]
    return min(int(samples.sum()), epoch)

  def _numbered(self, source: str) -> tuple[int, dataset_lib.Dataset]:
    return self._plan.source_names.index(source), self._plan.datasets[source]

  def _is_known(self, dataset: dataset_lib.Dataset, unit: str) -> bool:
    assert dataset.text is not None
    trains_on_all = dataset.text.store.labels.trains_on_all
    return self._plan.by_tokens and (unit == "tokens" or trains_on_all)


def _sample_units(
  dataset: dataset_lib.Dataset, unit: str, bucket: int, samples: np.ndarray
) -> np.ndarray:
  """Returns int64[N], the units of samples of text, of one span each."""
  spans = dataset.spans(bucket, samples)
  assert spans is not None
  assert dataset.text is not None
  if unit == "tokens":
    return spans.length
  if dataset.text.store.labels.trains_on_all:
    return spans.length - 1
  return row_labels.trained_targets(spans, dataset.text.store)
