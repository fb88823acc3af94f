# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Tokens and trained tokens of a source before a data step.

They are prefix sums of a source's rows (`SourceUnits`), or of a dataset's
batches, as if no document were removed and no step skipped.
"""

from collections.abc import Callable
from collections.abc import Mapping
import functools
from typing import Protocol

import numpy as np

from chomp_data.bucket import dataset as dataset_lib
from chomp_data.bucket import schedule as schedule_lib
from chomp_data.index import memo
from chomp_data.sources import row_labels
from chomp_data.sources import row_source
from chomp_data.sources import row_units
from chomp_data.sources import source_units
from chomp_data.stores import side_index

# To plan so many rows takes about a second: from there on progress is shown.
_MANY_ROWS = 1_000_000
# The most cached results: prefix sums by source and unit, and sums of ranges.
_CACHED = 1_024


class TokenSums(Protocol):
  """Sums of units of sources before data steps. To be used by one thread."""

  def before(self, source: str, data_step: int, unit: str) -> int:
    """Returns the units of the samples before a data step.

    Args:
      source: The name of the source.
      data_step: The data step.
      unit: One of `ledger.UNITS`.
    """
    ...

  def rows_to_plan(self, source: str, data_step: int, unit: str) -> int:
    """Returns how many rows `before` has to plan or sum one by one.

    Args:
      source: The name of the source.
      data_step: The data step.
      unit: One of `ledger.UNITS`.
    """
    ...

  def between(self, source: str, first: int, last: int, unit: str) -> int:
    """Returns the units of the samples of data steps first to last - 1."""
    ...


class RowSums:
  """Sums of units in a run of rows."""

  def __init__(
    self,
    sources: Mapping[str, row_source.RowSource],
    rows_before: Callable[[int], Mapping[str, int]],
  ):
    """Sums nothing yet.

    Args:
      sources: The sources in their orders, by name.
      rows_before: Returns the rows of each source before a data step.
    """
    self._sources = sources
    self._rows_before = rows_before
    self._cache = memo.Memo(_CACHED)

  def before(self, source: str, data_step: int, unit: str) -> int:
    """Returns the units of a source's samples before a data step."""
    return self._before_row(source, self._row(source, data_step), unit)

  def rows_to_plan(self, source: str, data_step: int, unit: str) -> int:
    """Returns how many rows `before` has to plan; 0 if units are known."""
    return self._rows_to_plan(source, self._row(source, data_step), unit)

  def _rows_to_plan(self, source: str, row: int, unit: str) -> int:
    if not row or self._is_known(source, unit):
      return 0
    rows = self._sources[source]
    if unit not in rows.repeating_units:
      return row
    # Of the epochs that repeat, one is summed in full and one in part.
    return min(row, rows.epochs.start(rows.epochs.ramp + 2))

  def between(self, source: str, first: int, last: int, unit: str) -> int:
    """Returns the units of a source in data steps first to last - 1."""
    low, high = (self._row(source, step) for step in (first, last))

    def units() -> int:
      if self._is_known(source, unit):
        before = (self._before_row(source, row, unit) for row in (high, low))
        return next(before) - next(before)
      rows = self._sources[source]
      return sum(
        int(row_units.planned_units(spans, unit, rows.store).sum())
        for spans in row_source.planned_blocks(rows, low, high)
      )

    return self._cache.get((source, unit, low, high), units)

  def _row(self, source: str, data_step: int) -> int:
    """Returns the row of a source that comes next at a data step."""
    return self._cache.get(data_step, lambda: self._rows_before(data_step))[
      source
    ]

  def _is_known(self, source: str, unit: str) -> bool:
    return self._cache.get(
      ("known", source, unit),
      lambda: source_units.are_known(self._sources[source], unit),
    )

  def _before_row(self, source: str, row: int, unit: str) -> int:
    if not row:
      # Nothing precedes row 0. Other rows may need a pass over the source.
      return 0
    prefix = self._cache.get(
      (source, unit),
      lambda: source_units.SourceUnits(self._sources[source], unit, None),
    )
    planned = self._rows_to_plan(source, row, unit)
    name = f"{source}: {unit} of rows"
    # Sums grow a part at a time, so that progress can be shown.
    with side_index.progress(
      planned, name, "rows", planned >= _MANY_ROWS
    ) as bar:
      for end in range(_MANY_ROWS, planned, _MANY_ROWS):
        prefix.before(np.asarray([end]))
        bar.update(_MANY_ROWS)
      return int(prefix.before(np.asarray([row]))[0])


class BatchSums:
  """Sums of units in a run of text in buckets."""

  def __init__(
    self,
    datasets: Mapping[str, dataset_lib.Dataset],
    schedule: schedule_lib.BucketSchedule,
    by_tokens: bool,
  ):
    """Sums nothing yet.

    Args:
      datasets: The datasets by name, sorted by number.
      schedule: Which batch each data step has.
      by_tokens: Whether the schedule balances datasets by tokens.
    """
    self._datasets = tuple(datasets.values())
    self._numbers = {name: number for number, name in enumerate(datasets)}
    self._schedule = schedule
    self._by_tokens = by_tokens
    self._cache = memo.Memo(_CACHED)

  def before(self, source: str, data_step: int, unit: str) -> int:
    """Returns the units of a source's samples before a data step."""
    number, data_step = self._numbers[source], self._within(data_step)
    if self._is_known(number, unit):
      tokens = int(self._schedule.consumed_units(data_step)[number])
      if unit == "tokens":
        return tokens
      # Each row is one span, whose last token has no next one.
      return tokens - int(self._schedule.consumed(data_step)[number].sum())
    dataset = self._datasets[number]
    before = self._cache.get(
      (number, unit),
      lambda: self._schedule.unit_sums(
        number, functools.partial(_sample_units, dataset, unit)
      ),
    )
    return before(data_step)

  def rows_to_plan(self, source: str, data_step: int, unit: str) -> int:
    """Returns how many samples `before` has to sum; 0 if units are known."""
    number = self._numbers[source]
    if self._is_known(number, unit):
      return 0
    # All samples once, and those of the current epoch.
    epoch = 2 * sum(self._datasets[number].counts.values())
    samples = self._schedule.consumed(self._within(data_step))[number]
    return min(int(samples.sum()), epoch)

  def between(self, source: str, first: int, last: int, unit: str) -> int:
    """Returns the units of a source in data steps first to last - 1."""
    before = (self.before(source, step, unit) for step in (last, first))
    return next(before) - next(before)

  def _within(self, data_step: int) -> int:
    """Returns a data step, or the end of the run if that is earlier."""
    end = self._schedule.num_steps
    return data_step if end is None else min(data_step, end)

  def _is_known(self, number: int, unit: str) -> bool:
    text = self._datasets[number].text
    assert text is not None
    return self._by_tokens and (unit == "tokens" or text.store.trains_on_all)


def _sample_units(
  dataset: dataset_lib.Dataset, unit: str, bucket: int, samples: np.ndarray
) -> np.ndarray:
  """Returns int64[N], the units of samples of text, of one span each."""
  spans = dataset.spans(bucket, samples)
  assert spans is not None
  assert dataset.text is not None
  if unit == "tokens":
    return spans.length
  if dataset.text.store.trains_on_all:
    return spans.length - 1
  return row_labels.trained_targets(spans, dataset.text.store)
