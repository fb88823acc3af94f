# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The plan of runs of rows: a batch may hold rows of several sources.

Rows of all sources are merged into one sequence, and each step holds
consecutive rows of it, of any source and epoch. `index/steps.py` maps steps to
rows.
"""

from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import functools
import itertools
from typing import Any

import numpy as np

from chomp_data.index import steps as steps_lib
from chomp_data.mix import mixture
from chomp_data.order import shuffled
from chomp_data.phased import source_trail
from chomp_data.plans import plan as plan_lib
from chomp_data.plans import tombstones as tombstones_lib
from chomp_data.rows import buckets as buckets_lib
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import column_fields
from chomp_data.sources import row_source


class RowsPlan(plan_lib.Plan):
  """Which rows every step of a run holds.

  Attributes:
    rows: The run's rows in order.
    ordered: The sources in their orders, by name, sorted by number.
    merge: The mix of the sources; None for a single source.
    remainder: 'drop' the rows that fill no step, or 'pad' the last step.
  """

  rows: source_trail.Ordered | mixture.MixtureSource

  def __init__(
    self,
    ordered: Mapping[str, source_trail.Ordered],
    steps: steps_lib.Steps,
    epochs: int | None,
    *,
    remainder: str,
    document_id: bool,
    extra: tuple[str, ...],
    mix: mixture.MixtureSource | None,
    tombstones: tombstones_lib.Tombstones,
    columns: column_fields.ColumnFields | None = None,
  ):
    """Binds rows to steps.

    Args:
      ordered: The run's sources in their orders, by name, sorted by number.
      steps: Which rows each step has, over all processes.
      epochs: Passes over a single source; None if without end.
      remainder: 'drop' the rows that fill no step, or 'pad' the last step.
      document_id: Whether batches have the field `document_id`.
      extra: Optional fields of batches, of `OPTIONAL_FIELDS`.
      mix: The mix of the sources; None for a single source.
      tombstones: Documents and spans that are removed.
      columns: The columns of stores that batches hold, if any.
    """
    if mix is None:
      (self.rows,) = ordered.values()
    else:
      self.rows = mix
    self.steps: steps_lib.Steps = steps
    self.tombstones: tombstones_lib.Tombstones = tombstones
    self.merge: mixture.MixtureSource | None = mix
    self.ordered: dict[str, source_trail.Ordered] = dict(ordered)
    self.sources: dict[str, row_source.RowSource] = {
      n: shuffled.unordered(source) for n, source in ordered.items()
    }
    self.source_names: list[str] = list(self.sources)
    seq_len = self.rows.seq_len
    sizes = steps.distinct_sizes
    self.buckets: tuple[buckets_lib.Bucket, ...] = tuple(
      buckets_lib.Bucket(
        f"{size}x{seq_len}" if len(sizes) > 1 else str(seq_len),
        size,
        (seq_len,),
      )
      for size in sizes
    )
    self._numbers = {size: number for number, size in enumerate(sizes)}
    self._epochs = epochs
    self.remainder = remainder
    self._document_id = document_id
    self._extra = extra
    self.columns: column_fields.ColumnFields | None = columns

  @functools.cached_property
  def num_rows(self) -> int | None:
    """Rows of the whole run, without padding; None if it has no end."""
    if self.merge is not None:
      return self.merge.end
    (source,) = self.ordered.values()
    return source.epochs.total(self._epochs)

  @property
  def num_steps(self) -> int | None:
    """Steps of the whole run; None if it has no end."""
    end = self.num_data_steps
    return None if end is None else self.steps.before(end)

  @property
  def num_data_steps(self) -> int | None:
    """Data steps of the whole run; None if it has no end."""
    return None if self.num_rows is None else self.data_steps_of(self.num_rows)

  def data_steps_of(self, num_rows: int) -> int:
    """Returns the data steps that a number of rows fills; 'pad' rounds up."""
    if self.remainder == "pad":
      return self.steps.first_step_at(num_rows)
    return self.steps.step_of_row(num_rows)

  def at(self, step: int) -> tuple[int | None, int]:
    """Returns (None, number of the bucket), as rows are of any source."""
    plan_lib.check_steps(self, step)
    return None, self.bucket_of(self.steps.data_step(step))

  def bucket_of(self, data_step: int) -> int:
    """Returns the bucket of a data step."""
    return self._numbers[self.steps.size(data_step)]

  def _whole(
    self, steps: range, rows: plan_lib.Rows | None
  ) -> tuple[spans_lib.Spans, np.ndarray]:
    """Returns spans without tombstones, and the data step of each row."""
    plan_lib.check_steps(self, steps[0], steps[-1] + 1 - steps[0])
    data_steps = self.steps.data_steps(np.asarray(steps))
    first = self.steps.first_rows(data_steps)
    sizes = self.steps.sizes_of(data_steps)
    edges = [0, *(np.flatnonzero(np.diff(sizes)) + 1).tolist(), len(first)]
    numbers, local_rows = [], np.empty(len(first), np.int64)
    for low, high in itertools.pairwise(edges):
      bucket = self.buckets[self._numbers[int(sizes[low])]]
      local = np.arange(sizes[low]) if rows is None else rows[bucket.name]
      numbers.append((first[low:high, None] + local).reshape(-1))
      local_rows[low:high] = len(local)
    number = numbers[0] if len(numbers) == 1 else np.concatenate(numbers)
    num_rows = len(number)
    if self.num_rows is not None:
      number = number[number < self.num_rows]
    planned = dataclasses.replace(self.rows.plan(number), num_rows=num_rows)
    return planned, np.repeat(data_steps, local_rows)

  def planned(
    self,
    first_step: int,
    count: int = 1,
    rows: plan_lib.Rows | None = None,
    stride: int = 1,
  ) -> plan_lib.Planned:
    """Plans steps without reading a token; `read` needs no more."""
    steps = range(first_step, first_step + count * stride, stride)
    spans = self.tombstones.mask(*self._whole(steps, rows))
    return plan_lib.Planned(spans, self.at(first_step)[1])

  def group(self, step: int, most: int) -> tuple[int, int]:
    """Returns (first, last + 1) of the steps to plan together with a step.

    A group holds as many whole shuffle windows as fit. A window with more than
    `most` steps is cut into groups of `most` steps from its start on. All steps
    of a group have the same number of rows, and none between them is skipped.

    Args:
      step: The step.
      most: The most steps of a group.
    """
    same_size_start, end = self.steps.alike(step)
    limit = plan_lib.step_limit(self)
    if end is not None:
      limit = min(end, limit)
    first, last = self._steps_of_window(step)
    first = max(first, same_size_start)
    if last - first > most:
      first += (step - first) // most * most
      last = min(last, first + most)
    while last < limit:
      _, end = self._steps_of_window(last)
      if end - first > most:
        break
      last = end
    return first, min(last, limit)

  def _steps_of_window(self, step: int) -> tuple[int, int]:
    """Returns (first, last + 1) of the steps that begin in the same window."""
    steps = self.steps
    window = self.rows.read_group(steps.first_row(steps.data_step(step)))
    first, last = (steps.before(steps.first_step_at(row)) for row in window)
    return first, last

  def prefetch(self, planned: plan_lib.Planned) -> bool:
    """Fetches the data of planned steps ahead of reading them."""
    fetched = planned.fetched
    assert fetched is not None
    wants_more = self.rows.prefetch(fetched)
    if self.columns is not None:
      self.columns.prefetch(fetched)
    return wants_more

  def read(self, planned: plan_lib.Planned) -> dict[str, np.ndarray]:
    """Reads planned steps and returns their fields, [R, ...] each."""
    spans = planned.spans
    assert spans is not None
    batch = self.rows.read(spans, self._extra, planned.columns)
    batch["source_id"] = spans.row_source()
    if self._document_id:
      batch["document_id"] = spans.row_documents(self.rows.document_slots)
    if self.columns is not None:
      batch |= self.columns.read(
        spans, self.rows.seq_len, self.rows.document_slots, planned.columns
      )
    return batch

  def counts(self, data_step: int) -> plan_lib.Counts:
    """Returns rows by source and bucket before a data step, no padding."""
    counts = {n: {b.name: 0 for b in self.buckets} for n in self.ordered}
    rows_at_first = dict.fromkeys(self.ordered, 0)
    for first, last in self.stretches(data_step):
      rows_at_last = self.rows_before(last)
      name = self.buckets[self.bucket_of(first)].name
      for source, by_bucket in counts.items():
        by_bucket[name] += rows_at_last[source] - rows_at_first[source]
      rows_at_first = rows_at_last
    return counts

  def stretches(self, count: int) -> Iterator[tuple[int, int]]:
    """Yields (first, last + 1) of ranges of data steps that have one size."""
    changes = [at for at, _ in self.steps.sizes[1:] if at < count]
    return itertools.pairwise([0, *changes, count])

  def rows_before(self, data_step: int) -> dict[str, int]:
    """Returns the rows that sources have consumed before a data step."""
    first = self.steps.first_row(data_step)
    if self.num_rows is not None:
      # A skip may reach beyond the end. Rows that fill no step are left over.
      end = self.steps.first_row(self.data_steps_of(self.num_rows))
      first = min(first, end, self.num_rows)
    if self.merge is None:
      return dict.fromkeys(self.ordered, first)
    return self.merge.rows_before(first)

  @property
  def fingerprint(self) -> dict[str, Any]:
    """What determines batches: sources and mix, as JSON values."""
    if self.merge is not None:
      fields = self.merge.fingerprint
    else:
      fields = {
        "sources": {n: source.fingerprint for n, source in self.ordered.items()}
      }
    # These two are fields of the run's fingerprint.
    fields["sources"] = {
      name: {
        k: v for k, v in source_fields.items() if k not in ("seed", "seq_len")
      }
      for name, source_fields in fields["sources"].items()
    }
    return fields
