# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""At which steps a document is in a run: inverses of the map to samples.

A trail uses data steps, so samples of skipped steps have places in it too.
"""

from collections.abc import Iterator
import heapq
import itertools

import numpy as np

from chomp_data.bucket import batch_order
from chomp_data.phased import source_trail
from chomp_data.plans import batches_plan
from chomp_data.plans import plan as plan_lib
from chomp_data.plans import rows_plan

# (data step, row of its batch).
Place = tuple[int, int]


class RowsTrail:
  """The trail of a document in a run of rows."""

  def __init__(self, plan: rows_plan.RowsPlan, source: str, document: int):
    """Prepares the search, which begins with the first call."""
    self._trail = source_trail.SourceTrail(plan.ordered[source], document)
    self._plan = plan
    self._source = source
    self._first = 0 if plan.merge is None else plan.merge.start_row(source)

  def next_visits(self, data_step: int) -> Iterator[Place]:
    """Yields places from a data step on, ascending; may never end."""
    end = self._plan.num_data_steps
    for rows in self._trail.next_rows(self._row_at(data_step)):
      run_rows = self._run_rows(rows)
      for step, row in self._places(run_rows):
        if end is not None and step >= end:
          return
        yield step, row
      if len(run_rows) < len(rows):
        return

  def previous_visits(self, data_step: int) -> Iterator[Place]:
    """Yields places before a data step, descending."""
    for rows in self._trail.previous_rows(self._row_at(data_step)):
      source_rows = rows[rows >= self._first]
      yield from self._places(self._run_rows(source_rows[::-1])[::-1])
      if len(source_rows) < len(rows):
        return

  def _row_at(self, data_step: int) -> int:
    """Returns the source's next row at a data step."""
    return self._plan.rows_before(data_step)[self._source]

  def _run_rows(self, rows: np.ndarray) -> np.ndarray:
    """Returns rows of the run; fewer if the others are beyond its end."""
    if self._plan.merge is not None:
      return self._plan.merge.rows_of(self._source, rows)
    end = self._plan.num_rows
    return rows if end is None else rows[rows < end]

  def _places(self, rows: np.ndarray) -> Iterator[Place]:
    step = self._plan.steps.steps_of_rows(rows)
    index = rows - self._plan.steps.first_rows(step)
    return zip(step.tolist(), index.tolist(), strict=True)


class BatchesTrail:
  """The trail of a document, or a sample, in a run in buckets."""

  def __init__(
    self, plan: batches_plan.BatchesPlan, source: str, document: int
  ):
    """Looks up the samples of the document in each bucket."""
    self._plan = plan
    self._dataset = plan.source_names.index(source)
    samples = plan.datasets[source].samples_of(np.asarray([document]))
    self._samples = {
      i: bucket_samples
      for i, bucket_samples in enumerate(samples)
      if len(bucket_samples)
    }

  def next_visits(self, data_step: int) -> Iterator[Place]:
    """Yields places from a data step on, ascending; may never end."""
    return heapq.merge(*(self._in_bucket(b, data_step) for b in self._samples))

  def previous_visits(self, data_step: int) -> Iterator[Place]:
    """Yields places before a data step, descending."""
    return heapq.merge(
      *(self._back_in_bucket(b, data_step) for b in self._samples), reverse=True
    )

  def _in_bucket(self, bucket: int, data_step: int) -> Iterator[Place]:
    order, first = self._part_at(bucket, data_step)
    for number in itertools.count(first // order.num_batches):
      places, rows = self._epoch(order, bucket, number)
      low = int(np.searchsorted(places, first))
      data_steps = self._plan.schedule.steps_of(
        self._dataset, bucket, places[low:]
      )
      # `rows` is longer if the run ends within the epoch.
      yield from zip(data_steps.tolist(), rows[low:].tolist(), strict=False)
      if len(data_steps) < len(places) - low:
        return

  def _back_in_bucket(self, bucket: int, data_step: int) -> Iterator[Place]:
    order, last = self._part_at(bucket, data_step)
    for number in range(last // order.num_batches, -1, -1):
      places, rows = self._epoch(order, bucket, number)
      high = int(np.searchsorted(places, last))
      data_steps = self._plan.schedule.steps_of(
        self._dataset, bucket, places[:high]
      )
      yield from zip(
        data_steps[::-1].tolist(), rows[:high][::-1].tolist(), strict=True
      )

  def _part_at(
    self, bucket: int, data_step: int
  ) -> tuple[batch_order.BatchOrder, int]:
    """Returns the order of a bucket's samples, and the place in it."""
    # The step after the last one may lie behind a skip that passes the end.
    step = self._plan.within(data_step)
    return self._plan.schedule.part_at(self._dataset, bucket, step)

  def _epoch(
    self, order: batch_order.BatchOrder, bucket: int, epoch: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns places and rows of the samples in an epoch, sorted by both."""
    samples = self._samples[bucket]
    _, places, rows = order.places_of(
      bucket, samples, np.full(len(samples), epoch, np.int64)
    )
    by_place = np.lexsort((rows, places))
    return places[by_place], rows[by_place]


Trail = RowsTrail | BatchesTrail


def of(plan: plan_lib.Plan, source: str, document: int) -> Trail:
  """Returns at which steps and rows a document is in a run.

  Args:
    plan: The run.
    source: The name of the source.
    document: The number of the document, or of a sample of arrays.
  """
  if isinstance(plan, rows_plan.RowsPlan):
    return RowsTrail(plan, source, document)
  assert isinstance(plan, batches_plan.BatchesPlan)
  return BatchesTrail(plan, source, document)
