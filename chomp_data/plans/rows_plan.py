"""Rows merged one by one: a batch holds rows of several sources.

Step n holds rows n * B .. (n + 1) * B - 1 of the run's order of rows, whatever
their sources and epochs.
"""

from collections.abc import Iterator
import dataclasses
import functools
from typing import Any

import numpy as np

from chomp_data.ops import buckets as buckets_lib
from chomp_data.ops import spans as spans_lib
from chomp_data.plans import mix as mix_lib
from chomp_data.plans import plan as plan_lib
from chomp_data.plans import token_sums
from chomp_data.sources import row_source

# Row numbers stay inside int64 with room for several batches.
_MAX_ROW = 2**62


class RowsPlan(plan_lib.Plan):
  """Which rows every step of a run holds.

  Attributes:
    rows: The run's rows in order.
    global_batch_size: Rows of a step over all processes.
  """

  reader_name = "BatchSource"

  def __init__(
    self,
    rows: row_source.RowSource,
    global_batch_size: int,
    epochs: int | None,
    *,
    remainder: str = "drop",
    document_id: bool = False,
    extra: tuple[str, ...] = (),
    mix: mix_lib.Mix | None = None,
  ):
    """Binds rows to steps.

    Args:
      rows: The run's rows in order.
      global_batch_size: Rows of a step over all processes.
      epochs: Passes over `rows`, or None for ever.
      remainder: 'drop' the rows that fill no step, or 'pad' them with filler.
      document_id: Whether batches carry `document_id`.
      extra: Optional fields that batches carry, of `OPTIONAL_FIELDS`.
      mix: How sources share the run, or None for one alone.
    """
    self.rows = rows
    self.global_batch_size = global_batch_size
    self.mix = mix
    self.sources = rows.parts()
    self.source_names = list(self.sources)
    shape = (rows.seq_len,)
    self.buckets = (
      buckets_lib.Bucket(str(rows.seq_len), global_batch_size, shape),
    )
    self._epochs = epochs
    self._remainder = remainder
    self._document_id = document_id
    self._extra = extra

  @functools.cached_property
  def num_rows(self) -> int | None:
    """Rows of the whole run, filler excluded, or None."""
    return self.rows.total_rows(self._epochs)

  @property
  def num_steps(self) -> int | None:
    """Steps of the whole run, or None."""
    if self.num_rows is None:
      return None
    if self._remainder == "pad":
      return -(-self.num_rows // self.global_batch_size)
    return self.num_rows // self.global_batch_size

  @property
  def step_limit(self) -> int:
    """Steps below this can be read; see `Plan`."""
    numbered = _MAX_ROW // self.global_batch_size
    return numbered if self.num_steps is None else min(self.num_steps, numbered)

  def at(self, step: int) -> tuple[int | None, int]:
    """Returns (None, 0): rows of all sources, in one shape; see `Plan`."""
    self.check_steps(step)
    return None, 0

  def spans(
    self,
    first_step: int,
    count: int = 1,
    rows: plan_lib.Rows | None = None,
  ) -> spans_lib.Spans:
    """Plans consecutive steps without reading a token; see `Plan`."""
    self.check_steps(first_step, count)
    size = self.global_batch_size
    local = np.arange(size) if rows is None else rows[self.buckets[0].name]
    steps = np.arange(first_step, first_step + count)
    number = (steps[:, None] * size + local).reshape(-1)
    whole = len(number)
    if self.num_rows is not None:
      number = number[number < self.num_rows]
    planned = self.rows.plan(number)
    return dataclasses.replace(planned, num_rows=whole)

  def planned(
    self,
    first_step: int,
    count: int = 1,
    rows: plan_lib.Rows | None = None,
  ) -> plan_lib.Planned:
    """Returns what `read` needs for consecutive steps; see `Plan`."""
    return plan_lib.Planned(self.spans(first_step, count, rows))

  def group(self, step: int, most: int) -> tuple[int, int]:
    """Returns the steps planned together with a step; see `Plan`.

    A shuffle window that is longer than a group is cut from its own begin on,
    shorter ones go together: no window is split that need not be.
    """
    first, last = self._steps_of_window(step)
    if last - first > most:
      first += (step - first) // most * most
      last = min(last, first + most)
    while last < self.step_limit:
      _, end = self._steps_of_window(last)
      if end - first > most:
        break
      last = end
    return first, min(last, self.step_limit)

  def _steps_of_window(self, step: int) -> tuple[int, int]:
    """Returns the steps whose first row is of the same window."""
    size = self.global_batch_size
    low, high = self.rows.read_group(step * size)
    return -(-low // size), -(-high // size)

  def prefetch(self, planned: plan_lib.Planned) -> None:
    """Fetches what reading planned steps will need; see `Plan`."""
    assert planned.spans is not None
    self.rows.prefetch(planned.spans)

  def read(self, planned: plan_lib.Planned) -> dict[str, np.ndarray]:
    """Returns the canonical fields of planned steps; see `Plan`."""
    spans = planned.spans
    assert spans is not None
    batch = self.rows.read(spans, self._extra)
    batch["source_id"] = spans.row_source()
    if self._document_id:
      batch["document_id"] = spans.row_documents(self.rows.document_slots)
    return batch

  def examples(self, bucket: int) -> Iterator[tuple[str, plan_lib.Planned]]:
    """Yields one row of the run: all have the same fields; see `Plan`."""
    first = {self.buckets[bucket].name: np.zeros(1, np.int64)}
    yield self.source_names[0], self.planned(0, 1, first)

  def taken(self, step: int) -> dict[str, dict[str, int]]:
    """Returns the rows of sources before a step; see `Plan`."""
    if not 0 <= step <= self.step_limit:
      raise IndexError(
        f"step must be in 0 .. {self.step_limit}, got {step}. Ask before"
        " a step of the run, or at its end."
      )
    first = step * self.global_batch_size
    if self.num_rows is not None:
      first = min(first, self.num_rows)
    name = self.buckets[0].name
    return {n: {name: count} for n, count in self.rows.taken(first).items()}

  def passes(self, source: str, samples: int) -> float:
    """Returns how often a source was passed; see `Plan`."""
    return self.rows.ordered()[source].passes(samples)

  def token_sums(self) -> token_sums.TokenSums:
    """Returns sums of tokens by source; see `Plan`."""
    return token_sums.RowSums(self.rows.ordered())

  def foreign_offsets(self) -> list[dict[str, Any]] | None:
    """Returns entries of `resume_state` that name no source; see `Plan`."""
    return self.rows.foreign_specs()

  def fingerprint(self) -> dict[str, Any]:
    """Returns sources and mix, as JSON values."""
    if self.mix is not None:
      found = self.rows.fingerprint()
    else:
      (name,) = self.sources
      found = {"sources": {name: self.rows.fingerprint()}}
    # These two are the run's own.
    found["sources"] = {
      name: {k: v for k, v in own.items() if k not in ("seed", "seq_len")}
      for name, own in found["sources"].items()
    }
    return found

  def describe(self) -> list[str]:
    """Returns the summary for the log; see `Plan`."""
    lines = [f"[{self.global_batch_size}, {self.rows.seq_len}]"]
    if self.num_rows is not None and self._remainder == "drop":
      lost = self.num_rows % self.global_batch_size
      lines.append(f"  remainder drop: {lost} rows at the end fill no step")
    return [*lines, self.rows.describe()]
