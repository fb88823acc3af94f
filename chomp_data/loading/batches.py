"""One Grain record = one process-local batch, and its key the global step.

The stream of global batches is then the same for every number of processes
and workers, and Grain's own state is index arithmetic over steps.
"""

import collections
import dataclasses
import functools
import time
from typing import Any

from absl import logging
import grain
import numpy as np

from chomp_data.index import hashing
from chomp_data.loading import reads as reads_lib
from chomp_data.loading import workers
from chomp_data.ops import spans as spans_lib
from chomp_data.sources import row_source

# Rows planned at once: NumPy's cost by call is shared by all of them.
_PLANNED_ROWS = 4_096
_GROUPS_KEPT = 4

# Rows read and placed at once.
_READ_ROWS = 64

# Just below the most that glibc's threshold for mapped arrays grows to.
_FREED_BYTES = 31 * 2**20

# Seconds between log lines of what was read.
_LOG_S = 60.0

# Row numbers stay inside int64 with room for several batches.
_MAX_ROW = 2**62


@dataclasses.dataclass(frozen=True)
class BatchPlan:
  """Which rows every step of a run holds.

  Attributes:
    rows: The run's rows in order.
    global_batch_size: Rows of a step over all processes.
    epochs: Passes over `rows`, or None for ever.
    remainder: 'drop' the rows that fill no step, or 'pad' them with filler.
    document_id: Whether batches carry `document_id`.
    extra: Optional fields that batches carry, of `OPTIONAL_FIELDS`.
  """

  rows: row_source.RowSource
  global_batch_size: int
  epochs: int | None
  remainder: str = "drop"
  document_id: bool = False
  extra: tuple[str, ...] = ()

  @property
  def sources(self) -> dict[str, row_source.RowSource]:
    """The sources of the rows by name, in the order of `source_id`."""
    return self.rows.parts()

  @functools.cached_property
  def num_rows(self) -> int | None:
    """Rows of the whole run, filler excluded, or None."""
    return self.rows.total_rows(self.epochs)

  @property
  def num_steps(self) -> int | None:
    """Steps of the whole run, or None."""
    if self.num_rows is None:
      return None
    if self.remainder == "pad":
      return -(-self.num_rows // self.global_batch_size)
    return self.num_rows // self.global_batch_size

  @property
  def step_limit(self) -> int:
    """Steps below this can be read: the run's, or all that have numbers."""
    numbered = _MAX_ROW // self.global_batch_size
    return numbered if self.num_steps is None else min(self.num_steps, numbered)

  def check_steps(self, first_step: int, count: int = 1) -> None:
    """Raises IndexError unless `count` steps from `first_step` on exist."""
    if first_step < 0 or first_step + count > self.step_limit:
      raise IndexError(
        f"step must be in 0 .. {self.step_limit - 1}, got {first_step} (count"
        f" {count})."
      )

  def plan(
    self, first_step: int, count: int = 1, rows: np.ndarray | None = None
  ) -> spans_lib.Spans:
    """Plans consecutive steps without reading a token.

    Args:
      first_step: The first step.
      count: How many steps.
      rows: int64[R], ascending rows of the global batch, or None for all.

    Returns:
      Spans of count * R rows; filler rows at the run's end have none.

    Raises:
      IndexError: If a step is not of the run.
    """
    self.check_steps(first_step, count)
    size = self.global_batch_size
    local = np.arange(size) if rows is None else rows
    steps = np.arange(first_step, first_step + count)
    number = (steps[:, None] * size + local).reshape(-1)
    whole = len(number)
    if self.num_rows is not None:
      number = number[number < self.num_rows]
    planned = self.rows.plan(number)
    return dataclasses.replace(planned, num_rows=whole)

  def read(self, spans: spans_lib.Spans) -> dict[str, np.ndarray]:
    """Reads and places planned rows: the canonical fields of a batch."""
    batch = self.rows.read(spans, self.extra)
    batch["source_id"] = spans.row_source()
    if self.document_id:
      batch["document_id"] = spans.row_documents(self.rows.document_slots)
    return batch


@dataclasses.dataclass(frozen=True)
class _Group:
  """Steps that are planned, and their chunks fetched, together."""

  first: int
  last: int
  spans: spans_lib.Spans


class BatchSource(workers.SentToWorkers):
  """A Grain source whose record `step` is this process's part of the batch.

  Steps are planned in groups that follow the windows of the shuffle, wherever
  reading begins, and what a group needs is fetched at once.
  """

  def __init__(
    self,
    plan: BatchPlan,
    rows: np.ndarray | None = None,
    fingerprint: str = "",
    group_steps: int | None = None,
  ):
    """Binds a plan to the rows of one process.

    Args:
      plan: The run.
      rows: int64[R], ascending rows of the global batch that this process
        holds, or None for all.
      fingerprint: Identity of the run, for `repr`: the rows are left out, so
        that Grain's state does not depend on the process.
      group_steps: Most steps of a group, or None for about 4,096 rows.
    """
    self._plan = plan
    self._rows = rows
    self._fingerprint = fingerprint
    local = plan.global_batch_size if rows is None else len(rows)
    self._local = local
    self._group_steps = group_steps or max(1, _PLANNED_ROWS // max(local, 1))
    self._groups: collections.deque[_Group] = collections.deque(
      maxlen=_GROUPS_KEPT
    )
    # Batches read ahead, and the last two steps asked for.
    self._ready: dict[int, dict[str, np.ndarray]] = {}
    self._step, self._stride = -1, 0
    self._logged = time.monotonic()
    self.reads = reads_lib.Reads(plan.sources)
    # Until a larger array was freed once, glibc gives the pages of each batch
    # of 1 MiB and more back, and the next one pays for them again: 3.6 times
    # the time at [128, 2048]. The pages of this one are never touched.
    np.empty(_FREED_BYTES, np.uint8)

  @property
  def sources(self) -> dict[str, row_source.RowSource]:
    """The sources that this reader reads through, by name."""
    return self._plan.sources

  def __len__(self) -> int:
    return self._plan.step_limit

  def __getitem__(self, index: int) -> dict[str, np.ndarray]:
    """Returns the canonical fields, [R, ...] each, of step `index`."""
    # Before the step is looked up among planned groups.
    self._plan.check_steps(index)
    step = int(index)
    if step not in self._ready:
      self._read(step)
    self._stride, self._step = step - self._step, step
    return self._ready.pop(step)

  def __repr__(self) -> str:
    return f"BatchSource({self._fingerprint})"

  def arguments(self) -> dict[str, Any]:
    """Returns what its constructor takes; see `SentToWorkers`."""
    return {
      "plan": self._plan,
      "rows": self._rows,
      "fingerprint": self._fingerprint,
      "group_steps": self._group_steps,
    }

  def _read(self, step: int) -> None:
    """Reads a step, and those that the last two steps say will follow.

    NumPy's cost by call, half of that of a batch of 8 rows, is then shared.
    A worker is asked for every n-th step only: the stride tells.
    """
    for group in self._groups:
      if group.first <= step < group.last:
        break
    else:
      group = self._planned(step)
    self._ready.clear()
    count = 1
    if step - self._step == self._stride and self._stride > 0:
      left = -(-(group.last - step) // self._stride)
      count = max(1, min(_READ_ROWS // max(self._local, 1), left))
    steps = [step + i * self._stride for i in range(count)]
    size, first = self._local, (step - group.first) * self._local
    if count == 1 or self._stride == 1:
      spans = group.spans.rows(first, first + count * size)
    else:
      starts = range(
        first, first + count * self._stride * size, self._stride * size
      )
      spans = spans_lib.concatenated(
        [group.spans.rows(low, low + size) for low in starts]
      )
    self.reads.add_batch(spans)
    batch = self._plan.read(spans)
    for i, own in enumerate(steps):
      rows = slice(i * self._local, (i + 1) * self._local)
      self._ready[own] = {name: value[rows] for name, value in batch.items()}

  def _planned(self, step: int) -> _Group:
    first, last = self._group_of(step)
    spans = self._plan.plan(first, last - first, self._rows)
    self.reads.add_group(spans)
    self._plan.rows.prefetch(spans)
    group = _Group(first, last, spans)
    self._groups.append(group)
    if time.monotonic() - self._logged > _LOG_S:
      self._logged = time.monotonic()
      for line in reads_lib.lines(self.reads.by_source()):
        logging.info("%s", line)
    return group

  def _group_of(self, step: int) -> tuple[int, int]:
    """Returns the steps planned together with a step.

    A shuffle window that is longer than a group is cut from its own begin on,
    shorter ones go together: no window is split that need not be.
    """
    most = self._group_steps
    first, last = self._steps_of_window(step)
    if last - first > most:
      first += (step - first) // most * most
      last = min(last, first + most)
    while last < len(self):
      _, end = self._steps_of_window(last)
      if end - first > most:
        break
      last = end
    return first, min(last, len(self))

  def _steps_of_window(self, step: int) -> tuple[int, int]:
    """Returns the steps whose first row is of the same window."""
    size = self._plan.global_batch_size
    low, high = self._plan.rows.read_group(step * size)
    return -(-low // size), -(-high // size)


class StepSampler:
  """A Grain sampler that hands out steps in order, from any step on."""

  def __init__(self, first_step: int, num_steps: int, seed: int | None = None):
    """Covers the steps first_step .. num_steps - 1.

    Args:
      first_step: The first step handed out.
      num_steps: Steps of the run.
      seed: Seeds each step's generator for random transforms, or None where
        there are none: making one costs more than planning a row.
    """
    self._first_step = first_step
    self._num_steps = num_steps
    self._seed = seed

  def __len__(self) -> int:
    return max(self._num_steps - self._first_step, 0)

  def __getitem__(self, index: int) -> grain.RecordMetadata:
    if not 0 <= index < len(self):
      raise IndexError(f"index must be below {len(self)}, got {index}.")
    step = self._first_step + index
    rng = None
    if self._seed is not None:
      rng = np.random.Generator(
        np.random.Philox(key=hashing.fold_key(self._seed, "step", step))
      )
    return grain.RecordMetadata(index=index, record_key=step, rng=rng)

  def __repr__(self) -> str:
    return f"StepSampler({self._first_step}, seed={self._seed})"
