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
from chomp_data.plans import token_sums
from chomp_data.plans import tombstones
from chomp_data.plans import trails
from chomp_data.rows import buckets as buckets_lib
from chomp_data.rows import spans as spans_lib
from chomp_data.rows import transfer_format
from chomp_data.sources import row_source
from chomp_data.sources import row_transfer

# Row numbers stay inside int64 with room for several batches.
_MAX_ROW = 2**62

# Rows whose documents are looked at together.
_BLOCK_ROWS = 65_536


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
    self._mix = mix
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
    if self._mix is not None:
      return self._mix.end
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

  def buckets_from(self, step: int) -> list[str]:
    """Returns the sizes of the batches from a step on; see `Plan`."""
    first = self.steps.data_step(step)
    later = [size for at, size in self.steps.sizes if at > first]
    sizes = {self.steps.size(first), *later}
    return [own.name for own in self.buckets if own.batch_size in sizes]

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

  def whole_spans(self, first_step: int, count: int) -> spans_lib.Spans:
    """Plans steps as if nothing were gone; see `Plan`."""
    steps = range(first_step, first_step + count)
    return self._whole(steps, None)[0]

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

  @property
  def merges_rows(self) -> bool:
    """Whether rows of several sources are merged; see `Plan`."""
    return self._mix is not None and len(self.ordered) > 1

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
  def _wire(self) -> transfer_format.Wire:
    return row_transfer.wire_of(
      self.ordered.values(),
      self._extra,
      self.rows.document_slots if self._document_id else 0,
      self.gone.first_step is not None,
    )

  def wire(self, bucket: int) -> transfer_format.Wire:
    """Returns how rows travel to devices; see `Plan`."""
    del bucket
    return self._wire

  def on_wire(self, planned: plan_lib.Planned) -> np.ndarray:
    """Returns planned steps as they travel to devices; see `Plan`."""
    assert planned.spans is not None
    sources = dict(enumerate(self.ordered.values()))
    return row_transfer.read(
      sources, planned.spans, self._wire, planned.columns
    )

  def examples(self, bucket: int) -> Iterator[tuple[str, plan_lib.Planned]]:
    """Yields one row of the run: all have the same fields; see `Plan`."""
    first = {own.name: np.zeros(1, np.int64) for own in self.buckets}
    planned = plan_lib.Planned(self._spans(range(1), first), bucket)
    yield self.source_names[0], planned

  def in_data_steps(self, count: int) -> plan_lib.Counts:
    """Returns the rows of sources by size; see `Plan`."""
    found = {n: {b.name: 0 for b in self.buckets} for n in self.ordered}
    begin = dict.fromkeys(self.ordered, 0)
    for first, last in self._stretches(count):
      end = self._rows_before(last)
      name = self.buckets[self._number_of(first)].name
      for source, own in found.items():
        own[name] += end[source] - begin[source]
      begin = end
    return found

  def _stretches(self, count: int) -> Iterator[tuple[int, int]]:
    """Returns (first, last + 1) of the first data steps, by their size."""
    changes = [at for at, _ in self.steps.sizes[1:] if at < count]
    return itertools.pairwise([0, *changes, count])

  def _rows_before(self, data_step: int) -> dict[str, int]:
    """Returns the rows that sources have given before a data step."""
    first = self.steps.first_row(data_step)
    if self.num_rows is not None:
      # A skip may reach over the end; rows that fill no step are not taken.
      end = self.steps.first_row(self.data_steps_of(self.num_rows))
      first = min(first, end, self.num_rows)
    if self._mix is None:
      return dict.fromkeys(self.ordered, first)
    return self._mix.rows_before(first)

  def rows_held(self, step: int) -> dict[str, int]:
    """Returns rows before a step, filler included; see `Plan`."""
    held = self._held(self.steps.data_step(step))
    for first, last in self.steps.skipped(step):
      held -= self._held(last) - self._held(first)
    names = [bucket.name for bucket in self.buckets]
    return dict(zip(names, held.tolist(), strict=True))

  def _held(self, data_step: int) -> np.ndarray:
    """Returns rows before a data step by bucket, int64[num_buckets]."""
    held = np.zeros(len(self.buckets), np.int64)
    for begin, last in self._stretches(data_step):
      rows = self.steps.first_row(last) - self.steps.first_row(begin)
      held[self._number_of(begin)] += rows
    return held

  def epoch_begins(self, source: str, epoch: int) -> int | None:
    """Returns the step of an epoch's first row; see `Plan`."""
    own = self.ordered[source]
    found = self._step_of(source, own.epochs.start(own.epochs.ramp + epoch))
    return None if found is None else self.steps.before(found)

  def ends(self, source: str) -> int | None:
    """Returns the step after a source's last row; see `Plan`."""
    mix = self._mix
    last = self.num_rows if mix is None else mix.num_rows(source)
    if last is None:
      return None
    step = self._step_of(source, last - 1)
    return None if step is None else self.steps.before(step + 1)

  def _step_of(self, source: str, row: int) -> int | None:
    """Returns the data step of a source's row; None: it never comes."""
    position = row
    if self._mix is not None:
      found = self._mix.position_of(source, row)
      if found is None:
        return None
      position = found
    # A batch is permuted in itself: its rows are the merge's.
    step = self.steps.step_of_row(position)
    over = self.num_rows is not None and step >= self.data_steps_of(
      self.num_rows
    )
    return None if over else step

  def passes(self, source: str, samples: int) -> float:
    """Returns how often a source was passed; see `Plan`."""
    return self.ordered[source].epochs.passes(samples)

  def repeats(
    self, num_steps: int, max_epochs: Mapping[str, int | None]
  ) -> list[str]:
    """Returns which sources come often; nothing where to tell takes long."""
    rows = self.steps.first_row(self.steps.data_step(num_steps))
    if self._mix is not None and self._mix.is_long(rows):
      return []
    return super().repeats(num_steps, max_epochs)

  def trail(self, source: str, document: int) -> trails.Trail:
    """Returns where a document comes in the run; see `Plan`."""
    end = None if self.num_rows is None else self.data_steps_of(self.num_rows)
    return trails.RowsTrail(
      self.ordered[source],
      document,
      steps=self.steps,
      num_rows=self.num_rows,
      end=end,
      mix=self._mix,
      name=source,
    )

  def documents(self, source: str, step: int) -> np.ndarray:
    """Returns which documents a source has given; see `Plan`."""
    rows = self.ordered[source]
    seen = np.zeros(rows.store.num_documents, np.bool_)
    most = plan_lib.documents_to_see(rows)
    for spans in self._handed_out(source, step):
      seen[spans.document[spans.stored()[0] > 0]] = True
      if np.count_nonzero(seen) == most:
        break
    return seen

  def exposures(self, source: str, first: int, last: int) -> np.ndarray:
    """Returns the spans of each document; see `Plan`."""
    rows = [self._rows_before(step)[source] for step in (first, last)]
    return source_trail.exposures(self.ordered[source], *rows)

  def _handed_out(self, source: str, step: int) -> Iterator[spans_lib.Spans]:
    """Yields the live spans of a source in the steps before one."""
    whole = step
    if self.is_gone_before(step):
      whole = self.steps.before(self.gone.first_step or 0)
    place = self.places(whole)[source]
    first = sum(self.in_data_steps(0)[source].values())
    for low, high in (*place.skipped, (place.samples, place.samples)):
      for own in range(first, low, _BLOCK_ROWS):
        rows = np.arange(own, min(own + _BLOCK_ROWS, low))
        yield self.ordered[source].plan(rows)
      first = high
    # From there on what is gone goes by steps, of all sources.
    number = self.source_names.index(source)
    block = max(1, _BLOCK_ROWS // max(self.steps.distinct_sizes))
    for first in range(whole, step, block):
      spans = self.spans(first, min(block, step - first)).live()
      pick = np.flatnonzero(spans.source == number)
      yield spans.take(pick, spans.row[pick], spans.num_rows)

  def whole_sums(self) -> token_sums.TokenSums:
    """Returns sums of tokens by source; see `Plan`."""
    return token_sums.RowSums(self.ordered)

  def foreign_offsets(self) -> list[dict[str, Any]] | None:
    """Returns entries of `resume_state` that name no source; see `Plan`."""
    return [] if self._mix is None else self._mix.foreign_specs()

  @property
  def fingerprint(self) -> dict[str, Any]:
    """Sources and mix, as JSON values."""
    if self._mix is not None:
      found = self._mix.fingerprint
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
