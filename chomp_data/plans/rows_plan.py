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
from chomp_data.plans import mix as mix_lib
from chomp_data.plans import plan as plan_lib
from chomp_data.plans import tombstones
from chomp_data.rows import buckets as buckets_lib
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import row_source
from chomp_data.sources import row_transfer

# Row numbers stay inside int64 with room for several batches.
_MAX_ROW = 2**62


class RowsPlan(plan_lib.Plan):
  """Which rows every step of a run holds.

  Attributes:
    rows: The run's rows in order.
    ordered: The sources in their orders, by name, sorted by number.
    merge: The mix of the sources; None for a single source.
  """

  rows: source_trail.Ordered | mixture.MixtureSource

  reader_name = "BatchSource"

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
    gone: tombstones.Tombstones,
    passes: Mapping[str, int | None],
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
      gone: Documents and spans that are removed.
      passes: The most passes over each source; None if without end.
    """
    if mix is None:
      (self.rows,) = ordered.values()
    else:
      self.rows = mix
    self.steps: steps_lib.Steps = steps
    self.gone: tombstones.Tombstones = gone
    self.mix: mix_lib.Mix | None = mix
    self.merge: mixture.MixtureSource | None = mix
    self.merges_rows: bool = mix is not None and len(ordered) > 1
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
    self._remainder = remainder
    self._document_id = document_id
    self._extra = extra
    self._passes = dict(passes)

  def expect_reading(self) -> None:
    """Tells sources how many passes to expect, so that they prepare epochs."""
    for name, most in self._passes.items():
      self.ordered[name].prepare(most)

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
    """Returns the data steps that so many rows fill, with 'pad' in part too."""
    if self._remainder == "pad":
      return self.steps.first_step_at(num_rows)
    return self.steps.step_of_row(num_rows)

  @property
  def step_limit(self) -> int:
    """Steps below this can be read."""
    numbered = self.steps.before(self.steps.step_of_row(_MAX_ROW))
    return numbered if self.num_steps is None else min(self.num_steps, numbered)

  def at(self, step: int) -> tuple[int | None, int]:
    """Returns (None, number of the bucket), as rows are of any source."""
    self.check_steps(step)
    return None, self.bucket_of(self.steps.data_step(step))

  def bucket_of(self, data_step: int) -> int:
    """Returns the bucket of a data step."""
    return self._numbers[self.steps.size(data_step)]

  def spans(
    self,
    first_step: int,
    count: int = 1,
    rows: plan_lib.Rows | None = None,
  ) -> spans_lib.Spans:
    """Plans consecutive steps without reading tokens."""
    return self._spans(range(first_step, first_step + count), rows)

  def _spans(self, steps: range, rows: plan_lib.Rows | None) -> spans_lib.Spans:
    return self.gone.without(*self._whole(steps, rows))

  def _whole(
    self, steps: range, rows: plan_lib.Rows | None
  ) -> tuple[spans_lib.Spans, np.ndarray]:
    """Returns spans without tombstones, and the data step of each row."""
    self.check_steps(steps[0], steps[-1] + 1 - steps[0])
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
    """Returns what `read` needs for steps of one size."""
    steps = range(first_step, first_step + count * stride, stride)
    return plan_lib.Planned(self._spans(steps, rows), self.at(first_step)[1])

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
    limit = self.step_limit if end is None else min(end, self.step_limit)
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
    return self.rows.prefetch(fetched)

  def read(self, planned: plan_lib.Planned) -> dict[str, np.ndarray]:
    """Reads planned steps and returns their fields, [R, ...] each."""
    spans = planned.spans
    assert spans is not None
    batch = self.rows.read(spans, self._extra, planned.columns)
    batch["source_id"] = spans.row_source()
    if self._document_id:
      batch["document_id"] = spans.row_documents(self.rows.document_slots)
    return batch

  @functools.cached_property
  def _transfer(self) -> plan_lib.Transfer:
    row_format = row_transfer.format_of(
      self.ordered.values(),
      self._extra,
      self.rows.document_slots if self._document_id else 0,
      self.gone.first_step is not None,
    )
    return plan_lib.Transfer(row_format, dict(enumerate(self.ordered.values())))

  def transfer(self, bucket: int) -> plan_lib.Transfer:
    """Returns the transfer format of rows, the same for all batch sizes."""
    del bucket
    return self._transfer

  def examples(self, bucket: int) -> Iterator[tuple[str, plan_lib.Planned]]:
    """Yields (source name, plan of a row): all rows have the same fields."""
    first_rows = {bucket.name: np.zeros(1, np.int64) for bucket in self.buckets}
    planned = plan_lib.Planned(self._spans(range(1), first_rows), bucket)
    yield self.source_names[0], planned

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

  def describe(self) -> list[str]:
    """Returns the lines for the log, the shapes of batches first."""
    sizes = self.steps.sizes
    shapes = [f"[{size}, {self.rows.seq_len}]" for _, size in sizes]
    later = zip(shapes[1:], sizes[1:], strict=True)
    shape_texts = [
      shapes[0],
      *(
        f"{shape} from step {self.steps.before(at)}" for shape, (at, _) in later
      ),
    ]
    lines = [", ".join(shape_texts)]
    if self.num_rows is not None and self._remainder == "drop":
      end = self.data_steps_of(self.num_rows)
      lost = self.num_rows - self.steps.first_row(end)
      lines.append(f"  remainder drop: {lost} rows at the end fill no step")
    return [*lines, self.rows.describe()]
