# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""When a run hands out a document: next, last, and how often before.

The plan is inverted, not replayed: from the document to its pieces, to rows of
its source, to places in the mix, to steps; only the steps found are planned.
"""

from collections.abc import Iterator
import dataclasses
import itertools
from typing import Any

from absl import logging
import numpy as np

from chomp_data import pipeline
from chomp_data import schema
from chomp_data.kernels import compiled
from chomp_data.pack import fill_in_the_middle
from chomp_data.plans import answers
from chomp_data.plans import occurrences
from chomp_data.plans import plan as plan_lib
from chomp_data.plans import trails

# Counting that takes longer is said before it begins.
_LONG_S = 1.0


@dataclasses.dataclass(frozen=True)
class Visit:
  """A span of a document, or a sample, that a step hands out.

  Attributes:
    step: The step.
    data_step: Which step of the data that is.
    row: The row of its batch.
    document: The document's number.
    start: The span's first token in the document; None of a sample.
    length: Its positions, added tokens included; None of a sample.
    column: Where it begins in the row; None of a sample.
    exposure: 1 + the spans (samples) of the document handed out before.
    sentinels: How many of its positions are sentinels.
    part: The part of a rearranged document that it begins, or None.
  """

  step: int
  data_step: int
  row: int
  document: int
  start: int | None
  length: int | None
  column: int | None
  exposure: int
  sentinels: int = 0
  part: str | None = None


def places(pipe: pipeline.Pipeline, source: str, document: int) -> trails.Trail:
  """Returns the places of a document: the data steps and rows that hold it.

  Args:
    pipe: The run.
    source: The source's name.
    document: Its number; for arrays, the number of a sample.

  Raises:
    ConfigError: If there is no such source.
    IndexError: If there is no document of that number.
  """
  schema.name_among("source", source, pipe.source_names)
  count = answers.of(pipe.run_plan).num_documents(source)
  if not 0 <= document < count:
    raise IndexError(
      f"`document` must be in 0 .. {count - 1} of source {source!r}, got"
      f" {document}. Correct it."
    )
  return trails.of(pipe.run_plan, source, document)


def exposures(
  pipe: pipeline.Pipeline, source: str, first: int, last: int
) -> np.ndarray:
  """Counts the spans of each document, or the visits of each sample.

  Args:
    pipe: The run.
    source: The source's name.
    first: The first step.
    last: The step after the last, at most those of the run.

  Returns:
    int64[num_documents].

  Raises:
    ConfigError: If there is no such source.
    IndexError: If a step is not of the run.
  """
  plan = pipe.run_plan
  schema.name_among("source", source, pipe.source_names)
  plan_lib.check_boundary(plan, first, "first")
  if last < first:
    raise IndexError(
      f"`last` must be at least `first`, got {last} and {first}. Swap them."
    )
  plan_lib.check_boundary(plan, last, "last")
  count = answers.of(plan).num_documents(source)
  parts = occurrences.whole(np.arange(count))
  return occurrences.Occurrences(plan, source, parts).exposures(first, last)


class Visits:
  """The visits of one document in a run."""

  def __init__(self, pipe: pipeline.Pipeline, source: str, document: int):
    """Finds the places of the document in the plan.

    Args:
      pipe: The run.
      source: The source's name.
      document: Its number, as `naming.find_document` returns both.
    """
    self._pipe = pipe
    self._source = source
    self._document = document
    self._trail = places(pipe, source, document)
    number = pipe.source_names.index(source)
    _, self._removed_at = pipe.run_plan.tombstones.times(number, document)
    self._occurrences = occurrences.Occurrences(
      pipe.run_plan, source, occurrences.whole(np.asarray([document]))
    )
    self._counted: dict[int, int] = {}

  def cost(self, step: int) -> float:
    """Returns about how many seconds `count_before` takes.

    Args:
      step: At most the steps of the run.
    """
    return self._occurrences.cost(step)

  def count_before(self, step: int) -> int:
    """Returns how many spans (samples) the steps before one hand out.

    What is removed is not counted. Where every epoch must be looked at, what
    that costs is logged before.

    Args:
      step: At most the steps of the run.
    """
    if step not in self._counted:
      cost = self.cost(step)
      if cost > _LONG_S:
        logging.warning(
          "%s/#%d: documents are in another order in every epoch, and each of"
          " those before step %d is looked at to count it: about %.2g s.",
          self._source,
          self._document,
          step,
          cost,
        )
        compiled.wait()
      self._counted[step] = int(self._occurrences.exposures(0, step)[0])
    return self._counted[step]

  def next_visits(self, step: int) -> Iterator[Visit]:
    """Yields the visits from a step on, in order; maybe for ever.

    Args:
      step: At most the steps of the run.
    """
    yield from self._from(step, None)

  def _from(self, step: int, exposure: int | None) -> Iterator[Visit]:
    """Yields visits from a step on, after so many; None counts them."""
    steps, end = self._pipe.run_plan.steps, self._pipe.num_steps
    places_of_steps = self._trail.next_visits(steps.data_step(step))
    for data_step, places in itertools.groupby(
      places_of_steps, lambda place: place[0]
    ):
      run_step = steps.run_step(data_step)
      if end is not None and steps.before(data_step) >= end:
        return
      if self._removed_at is not None and data_step >= self._removed_at:
        return
      if run_step is None:
        continue
      if exposure is None:
        exposure = self.count_before(step)
      for visit in self._of_step(run_step, places, exposure):
        exposure = visit.exposure
        yield visit

  def previous_visits(self, step: int) -> Iterator[Visit]:
    """Yields the visits before a step, the latest first.

    Args:
      step: At most the steps of the run.
    """
    steps = self._pipe.run_plan.steps
    exposure = self.count_before(step)
    if not exposure:
      return
    end = steps.data_step(step)
    if self._removed_at is not None:
      end = min(end, self._removed_at)
    places_of_steps = self._trail.previous_visits(end)
    for data_step, places in itertools.groupby(
      places_of_steps, lambda place: place[0]
    ):
      run_step = steps.run_step(data_step)
      if run_step is not None:
        step_visits = list(self._of_step(run_step, places, 0))
        exposure -= len(step_visits)
        for visit in reversed(step_visits):
          yield dataclasses.replace(visit, exposure=visit.exposure + exposure)

  def _of_step(
    self, step: int, places: Iterator[tuple[int, int]], exposure: int
  ) -> Iterator[Visit]:
    """Yields the visits of a step in order, after so many others."""
    rows = np.unique([row for _, row in places])
    plan = self._pipe.run_plan
    bucket = plan.buckets[plan.at(step)[1]]
    planned = plan.planned(step, 1, {bucket.name: rows})
    for row, span in self._of_document(planned, rows):
      exposure += 1
      yield Visit(
        step=step,
        data_step=self._pipe.run_plan.steps.data_step(step),
        row=row,
        document=self._document,
        exposure=exposure,
        **span,
      )

  def _of_document(
    self, planned: plan_lib.Planned, rows: np.ndarray
  ) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (row, fields of `Visit`) of what is of the document."""
    spans = planned.spans
    if spans is None:
      for row in rows.tolist():
        yield row, {"start": None, "length": None, "column": None}
      return
    spans = spans.live()
    number = self._pipe.source_names.index(self._source)
    mine = (spans.source == number) & (spans.document == self._document)
    selected = np.flatnonzero(mine)
    spans = spans.take(selected, rows[spans.row[selected]], spans.num_rows)
    sentinels, parts = spans.sentinels(), fill_in_the_middle.parts(spans)
    for i, row in enumerate(spans.row.tolist()):
      yield (
        row,
        {
          "start": int(spans.start[i]),
          "length": int(spans.length[i]),
          "column": int(spans.column[i]),
          "sentinels": 0 if sentinels is None else int(sentinels[i]),
          "part": parts[i],
        },
      )
