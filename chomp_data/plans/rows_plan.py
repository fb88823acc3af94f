# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows merged one by one: a batch holds rows of several sources.

A step holds rows that follow each other in the run's order of rows, whatever
their sources and epochs; `index/steps.py` says which.
"""

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import functools
import itertools
from typing import Any
from typing import Protocol

import numpy as np

from chomp_data.index import steps as steps_lib
from chomp_data.mix import mixture
from chomp_data.order import shuffled
from chomp_data.phased import source_trail
from chomp_data.plans import mix as mix_lib
from chomp_data.plans import plan as plan_lib
from chomp_data.plans import tombstones
from chomp_data.plans import transfer as transfer_lib
from chomp_data.rows import buckets as buckets_lib
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import row_source
from chomp_data.sources import row_transfer

# Row numbers stay inside int64 with room for several batches.
_MAX_ROW = 2**62


class RunRows(Protocol):
  """The rows of a run: of one source in its order, or of a mix."""

  @property
  def seq_len(self) -> int:
    """Positions of a row."""
    ...

  @property
  def document_slots(self) -> int:
    """Most documents a row can hold."""
    ...

  def plan(self, rows: np.ndarray) -> spans_lib.Spans:
    """Plans rows; `source` is their source's number; see `RowSource`."""
    ...

  def read_group(self, row: int) -> tuple[int, int]:
    """Returns rows first .. last - 1 that are best read together."""
    ...

  def prefetch(self, spans: spans_lib.Spans) -> bool:
    """Fetches what a plan will need; see `RowSource`."""
    ...

  def read(
    self,
    spans: spans_lib.Spans,
    extra: Collection[str] = (),
    columns: tuple[int, int] | None = None,
  ) -> dict[str, np.ndarray]:
    """Reads and places planned rows; see `RowSource`."""
    ...

  def describe(self) -> str:
    """Returns a summary for the log."""
    ...


class RowsPlan(plan_lib.Plan):
  """Which rows every step of a run holds.

  Attributes:
    rows: The run's rows in order.
    ordered: The sources in their orders, by name, in that of their numbers.
    merge: The mix of the sources, or None for one alone.
  """

  rows: RunRows

  reader_name = "BatchSource"

  def __init__(
    self,
    ordered: Mapping[str, source_trail.Ordered],
    steps: steps_lib.Steps,
    epochs: int | None,
    *,
    remainder: str = "drop",
    document_id: bool = False,
    extra: tuple[str, ...] = (),
    mix: mixture.MixtureSource | None = None,
    gone: tombstones.Tombstones | None = None,
    passes: Mapping[str, int | None] | None = None,
  ):
    """Binds rows to steps.

    Args:
      ordered: The run's sources in their orders, in that of their numbers.
      steps: Which rows each step has, over all processes.
      epochs: Passes over one source alone, or None for ever.
      remainder: 'drop' the rows that fill no step, or 'pad' them with filler.
      document_id: Whether batches carry `document_id`.
      extra: Optional fields that batches carry, of `OPTIONAL_FIELDS`.
      mix: Of the sources, or None for one alone.
      gone: Documents and spans that are gone.
      passes: How often each source is passed at most, None for ever.
    """
    if mix is None:
      (self.rows,) = ordered.values()
    else:
      self.rows = mix
    self.steps: steps_lib.Steps = steps
    self.gone: tombstones.Tombstones = gone or tombstones.Tombstones()
    self.mix: mix_lib.Mix | None = mix
    self.merge: mixture.MixtureSource | None = mix
    self.merges_rows: bool = mix is not None and len(ordered) > 1
    self.ordered: dict[str, source_trail.Ordered] = dict(ordered)
    self.sources: dict[str, row_source.RowSource] = {
      n: shuffled.unordered(own) for n, own in ordered.items()
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
    self._passes = dict(passes or {})

  def expect_reading(self) -> None:
    """Lets sources prepare epochs before they come; see `Plan`."""
    for name, most in self._passes.items():
      for _, phase in self.ordered[name].phases:
        phase.rows.expected_passes = most

  @functools.cached_property
  def num_rows(self) -> int | None:
    """Rows of the whole run, filler excluded, or None."""
    if self.merge is not None:
      return self.merge.end
    (source,) = self.ordered.values()
    return source.epochs.total(self._epochs)

  @property
  def num_steps(self) -> int | None:
    """Steps of the whole run, or None."""
    if self.num_rows is None:
      return None
    return self.steps.before(self.data_steps_of(self.num_rows))

  def data_steps_of(self, num_rows: int) -> int:
    """Returns the data steps that so many rows fill, or begin."""
    if self._remainder == "pad":
      return self.steps.first_step_at(num_rows)
    return self.steps.step_of_row(num_rows)

  @property
  def step_limit(self) -> int:
    """Steps below this can be read; see `Plan`."""
    numbered = self.steps.before(self.steps.step_of_row(_MAX_ROW))
    return numbered if self.num_steps is None else min(self.num_steps, numbered)

  def at(self, step: int) -> tuple[int | None, int]:
    """Returns (None, the size): rows are of any source; see `Plan`."""
    self.check_steps(step)
    return None, self._number_of(self.steps.data_step(step))

  def _number_of(self, data_step: int) -> int:
    """Returns the bucket of a data step."""
    return self._numbers[self.steps.size(data_step)]

  def spans(
    self,
    first_step: int,
    count: int = 1,
    rows: plan_lib.Rows | None = None,
  ) -> spans_lib.Spans:
    """Plans consecutive steps without reading a token; see `Plan`."""
    return self._spans(range(first_step, first_step + count), rows)

  def _spans(self, steps: range, rows: plan_lib.Rows | None) -> spans_lib.Spans:
    return self.gone.without(*self._whole(steps, rows))

  def _whole(
    self, steps: range, rows: plan_lib.Rows | None
  ) -> tuple[spans_lib.Spans, np.ndarray]:
    """Returns spans as if nothing were gone, and each row's data step."""
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
    whole = len(number)
    if self.num_rows is not None:
      number = number[number < self.num_rows]
    planned = dataclasses.replace(self.rows.plan(number), num_rows=whole)
    return planned, np.repeat(data_steps, local_rows)

  def planned(
    self,
    first_step: int,
    count: int = 1,
    rows: plan_lib.Rows | None = None,
    stride: int = 1,
  ) -> plan_lib.Planned:
    """Returns what `read` needs for steps of one size; see `Plan`."""
    steps = range(first_step, first_step + count * stride, stride)
    return plan_lib.Planned(self._spans(steps, rows), self.at(first_step)[1])

  def group(self, step: int, most: int) -> tuple[int, int]:
    """Returns the steps planned together with a step; see `Plan`.

    A shuffle window that is longer than a group is cut from its own begin on,
    shorter ones go together: no window is split that need not be. All steps
    of a group have as many rows, and between them none is skipped.
    """
    begin, end = self.steps.alike(step)
    limit = self.step_limit if end is None else min(end, self.step_limit)
    first, last = self._steps_of_window(step)
    first = max(first, begin)
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
    """Returns the steps whose first row is of the same window."""
    steps = self.steps
    window = self.rows.read_group(steps.first_row(steps.data_step(step)))
    first, last = (steps.before(steps.first_step_at(row)) for row in window)
    return first, last

  def prefetch(self, planned: plan_lib.Planned) -> bool:
    """Fetches what reading planned steps will need; see `Plan`."""
    fetched = planned.fetched
    assert fetched is not None
    return self.rows.prefetch(fetched)

  def read(self, planned: plan_lib.Planned) -> dict[str, np.ndarray]:
    """Returns the canonical fields of planned steps; see `Plan`."""
    spans = planned.spans
    assert spans is not None
    batch = self.rows.read(spans, self._extra, planned.columns)
    batch["source_id"] = spans.row_source()
    if self._document_id:
      batch["document_id"] = spans.row_documents(self.rows.document_slots)
    return batch

  @functools.cached_property
  def _transfer(self) -> transfer_lib.Transfer:
    wire = row_transfer.wire_of(
      self.ordered.values(),
      self._extra,
      self.rows.document_slots if self._document_id else 0,
      self.gone.first_step is not None,
    )
    return transfer_lib.Transfer(wire, dict(enumerate(self.ordered.values())))

  def transfer(self, bucket: int) -> transfer_lib.Transfer:
    """Returns how rows travel to devices, the same for all sizes."""
    del bucket
    return self._transfer

  def examples(self, bucket: int) -> Iterator[tuple[str, plan_lib.Planned]]:
    """Yields one row of the run: all have the same fields; see `Plan`."""
    first = {own.name: np.zeros(1, np.int64) for own in self.buckets}
    planned = plan_lib.Planned(self._spans(range(1), first), bucket)
    yield self.source_names[0], planned

  def counts(self, data_step: int) -> plan_lib.Counts:
    """Returns the rows of sources by size; see `Plan`."""
    found = {n: {b.name: 0 for b in self.buckets} for n in self.ordered}
    begin = dict.fromkeys(self.ordered, 0)
    for first, last in self._stretches(data_step):
      end = self.rows_before(last)
      name = self.buckets[self._number_of(first)].name
      for source, own in found.items():
        own[name] += end[source] - begin[source]
      begin = end
    return found

  def _stretches(self, count: int) -> Iterator[tuple[int, int]]:
    """Returns (first, last + 1) of the first data steps, by their size."""
    changes = [at for at, _ in self.steps.sizes[1:] if at < count]
    return itertools.pairwise([0, *changes, count])

  def rows_before(self, data_step: int) -> dict[str, int]:
    """Returns the rows that sources have consumed before a data step."""
    first = self.steps.first_row(data_step)
    if self.num_rows is not None:
      # A skip may reach over the end; rows that fill no step are not taken.
      end = self.steps.first_row(self.data_steps_of(self.num_rows))
      first = min(first, end, self.num_rows)
    if self.merge is None:
      return dict.fromkeys(self.ordered, first)
    return self.merge.rows_before(first)

  @property
  def fingerprint(self) -> dict[str, Any]:
    """Sources and mix, as JSON values."""
    if self.merge is not None:
      found = self.merge.fingerprint
    else:
      found = {"sources": {n: s.fingerprint for n, s in self.ordered.items()}}
    # These two are the run's own.
    found["sources"] = {
      name: {k: v for k, v in own.items() if k not in ("seed", "seq_len")}
      for name, own in found["sources"].items()
    }
    return found

  def describe(self) -> list[str]:
    """Returns the summary for the log; see `Plan`."""
    sizes = self.steps.sizes
    shapes = [f"[{size}, {self.rows.seq_len}]" for _, size in sizes]
    later = zip(shapes[1:], sizes[1:], strict=True)
    told = [
      shapes[0],
      *(f"{own} from step {self.steps.before(at)}" for own, (at, _) in later),
    ]
    lines = [", ".join(told)]
    if self.num_rows is not None and self._remainder == "drop":
      end = self.data_steps_of(self.num_rows)
      lost = self.num_rows - self.steps.first_row(end)
      lines.append(f"  remainder drop: {lost} rows at the end fill no step")
    return [*lines, self.rows.describe()]
