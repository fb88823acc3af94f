# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""One Grain record = one process-local batch, and its key the global step.

The stream of global batches is then the same for every number of processes
and workers, and Grain's own state is index arithmetic over steps. `read` is the
same for several steps at once, for records that hold a few
(`loading/step_records.py`).
"""

import collections
from collections.abc import Mapping
import dataclasses
import functools
import math
import threading
import time
from typing import Any

from absl import logging
import grain
import numpy as np

from chomp_data import schema
from chomp_data.index import hashing
from chomp_data.index import integers
from chomp_data.index import steps as steps_lib
from chomp_data.loading import reads as reads_lib
from chomp_data.loading import workers
from chomp_data.plans import balance
from chomp_data.plans import certifying
from chomp_data.plans import consumption
from chomp_data.plans import ledger as ledger_lib
from chomp_data.plans import plan as plan_lib
from chomp_data.sources import row_source

# Rows planned at once: NumPy's cost by call is shared by all of them. A reader
# begins with fewer, each time twice as many, for its first batch to be there
# soon.
_PLANNED_ROWS = 4_096
_FIRST_ROWS = 8
# A source of a mix costs as much for twenty rows as for one: where there are
# many, so many rows of each are planned at once, on average. Whole batches are
# counted: a merge takes time for the rows of other processes, too.
_SOURCE_ROWS = 64
_MOST_ROWS = 16_384
_MAX_GROUPS = 4

# Groups planned before their turn, where a store is far away, and how many of
# them with one that is read: a first batch does not wait for all of them.
_GROUPS_AHEAD = 64
_PLANNED_WITH_ONE = 2

# The most steps that are read at once, and the most positions: 32 steps of
# [8, 2048], whose fields take 6.8 MB, four of [64, 2048], one of [512, 8192].
# What Python does for a record costs about 0.4 ms where the record before it
# has replaced what the processor's caches held: half a batch's time with eight
# steps in a record, an eighth with 32. With 64, nothing more is gained.
READ_STEPS = 32
_READ_POSITIONS = 2**19

# Sums are asked for after a step was read, by a reader that may be some steps
# behind it.
_MAX_SUMS = 1_024

# Just below the most that glibc's threshold for mapped arrays grows to.
_FREED_BYTES = 31 * 2**20

# Seconds between log lines of what was read.
_LOG_S = 60.0


@dataclasses.dataclass(frozen=True)
class _Group:
  """Steps that are planned, and their chunks fetched, together.

  Attributes:
    steps: Of one reader.
    planned: The plan of them.
    sums: Of what each step hands out.
    wants_more: Whether it helped to plan further ahead.
  """

  steps: range
  planned: plan_lib.Planned
  sums: list[int]
  wants_more: bool


class BatchSource:
  """A Grain source whose record `step` is this process's part of the batch.

  Steps are planned in the plan's groups, wherever reading begins, and what a
  group needs is fetched at once. The step decides what a batch holds, so every
  process has the same source and static shape at a step.

  Attributes:
    local: What this process reads of each batch.
  """

  def __init__(
    self,
    plan: plan_lib.Plan,
    local: plan_lib.LocalRows = plan_lib.ALL_ROWS,
    fingerprint: str = "",
    group_steps: int | None = None,
    stride: int = 1,
    certificate: str = certifying.PLAN,
  ):
    """Binds a plan to the rows of one process.

    Args:
      plan: The run.
      local: What this process reads of each batch.
      fingerprint: Identity of the run, for `repr`: the rows are left out, so
        that Grain's state does not depend on the process.
      group_steps: Most steps of a group, or None for about 4,096 rows.
      stride: A reader asks for every n-th step only; others ask for the rest.
      certificate: Whether `certificate_sums` sums the tokens too.
    """
    self._arguments = {
      "plan": plan,
      "local": local,
      "fingerprint": fingerprint,
      "group_steps": group_steps,
      "stride": stride,
      "certificate": certificate,
    }
    self._plan = plan
    self.local: plan_lib.LocalRows = local
    # To plan some rows of a mix takes as long as to plan all of them.
    self._merges_rows = not plan.by_bucket and len(plan.source_names) > 1
    self._fingerprint = fingerprint
    self._group_steps = group_steps
    self._lock = threading.Lock()
    self._groups: collections.deque[_Group] = collections.deque(
      maxlen=_MAX_GROUPS
    )
    self._stride = stride
    self._certificate = certificate
    self._certifier = certifying.Certifier(plan, local)
    # Of the steps that were read last.
    self._sums: collections.OrderedDict[int, certifying.Sums] = (
      collections.OrderedDict()
    )
    # Rows of the group that was planned last.
    self._grown = 0
    # Planned before their turn, in order.
    self._ahead: collections.deque[_Group] = collections.deque()
    # Where steps are counted as they are read, and the last group counted.
    self._ledger: ledger_lib.Ledger | None = None
    self._in_ledger: _Group | None = None
    self._logged = time.monotonic()
    self.reads: reads_lib.Reads = reads_lib.Reads(plan.sources)
    # Until a larger array was freed once, glibc gives the pages of each batch
    # of 1 MiB and more back, and the next one pays for them again: 3.6 times
    # the time at [128, 2048]. The pages of this one are never touched.
    np.empty(_FREED_BYTES, np.uint8)

  @property
  def sources(self) -> dict[str, row_source.RowSource]:
    """The sources that this reader reads through, by name."""
    return self._plan.sources

  @property
  def steps(self) -> steps_lib.Steps:
    """Which data step each step is."""
    return self._plan.steps

  def __len__(self) -> int:
    return plan_lib.step_limit(self._plan)

  def __getitem__(self, index: int) -> dict[str, np.ndarray]:
    """Returns the canonical fields, [R, ...] each, of step `index`."""
    step = integers.whole("index", index, "Iterate over the steps.")
    plan_lib.check_steps(self._plan, step)
    (batch,) = self.read(range(step, step + 1))
    return batch

  def together(self, step: int, most: int = READ_STEPS) -> range:
    """Returns steps, from one on, that `read` takes at once.

    Their batches have one shape and one plan, and take few bytes: reading them
    at once shares NumPy's cost by call.

    Args:
      step: The first of them.
      most: How many, at most.
    """
    plan_lib.check_steps(self._plan, step)
    with self._lock:
      group = self._group_of(step)
      count = 1
      if len(group.steps) > 1 and group.planned.spans is not None:
        bucket = group.planned.bucket
        row = math.prod(self._plan.buckets[bucket].shape)
        positions = max(self._local(bucket) * row, 1)
        count = max(1, min(most, READ_STEPS, _READ_POSITIONS // positions))
      return range(step, min(step + count, group.steps.stop))

  def read(self, steps: range) -> list[dict[str, np.ndarray]]:
    """Reads steps at once.

    Args:
      steps: One step, or some of those that `together` returned.

    Returns:
      The canonical fields of each, [R, ...]: parts of arrays of all of them.
    """
    # Stock Grain reads with 16 threads, and they share what is planned.
    with self._lock:
      group = self._group_of(steps[0])
      if self._ledger is not None and group is not self._in_ledger:
        self._in_ledger = group
        self._ledger.add(group.steps, group.planned)
      planned = self._planned_of(steps, group)
      self.reads.add_batch(planned.spans)
      batch = self._plan.read(planned)
      self._sum(steps, group, planned, batch)
      if len(steps) == 1:
        return [batch]
      size = self._local(planned.bucket)
      return [
        {
          name: value[i * size : (i + 1) * size]
          for name, value in batch.items()
        }
        for i in range(len(steps))
      ]

  def rows_of(self, steps: range) -> list[np.ndarray]:
    """Returns which planned rows of its global batch each step's rows are.

    Args:
      steps: As in `read`.

    Returns:
      int64[R] of each step.
    """
    with self._lock:
      group = self._group_of(steps[0])
    planned = group.planned
    if planned.rows is not None:
      rows_of_steps = planned.rows.reshape(len(group.steps), -1)
      return [rows_of_steps[group.steps.index(step)] for step in steps]
    bucket = self._plan.buckets[planned.bucket]
    rows = np.arange(bucket.batch_size)
    if self.local.rows is not None:
      rows = np.asarray(self.local.rows[bucket.name])
    return [rows] * len(steps)

  def __repr__(self) -> str:
    # Grain's own states hold these names.
    name = "BucketBatches" if self._plan.by_bucket else "BatchSource"
    return f"{name}({self._fingerprint})"

  def __getstate__(self) -> dict[str, Any]:
    # Grain sends it to workers, each of which makes it anew. Of most runs rows
    # and steps of a group are unset: those are left out.
    state = {**self._arguments, "verbosity": logging.get_verbosity()}
    if self.local is plan_lib.ALL_ROWS:
      del state["local"]
    return {name: value for name, value in state.items() if value is not None}

  def __setstate__(self, state: dict[str, Any]) -> None:
    logging.set_verbosity(state.pop("verbosity"))
    logging.use_absl_handler()
    with workers.errors_arrive():
      self.__init__(**state)
    workers.end_with_parent()

  def for_rows(self, local: plan_lib.LocalRows) -> "BatchSource":
    """Returns a source of other rows, over the same plan and open stores."""
    source = BatchSource(**{**self._arguments, "local": local})
    source.reads = self.reads
    # A thread that reads through this one may still be at it.
    source._lock = self._lock
    return source

  def for_workers(self, count: int) -> "BatchSource":
    """Returns the same batches for `count` processes that take them by turns.

    Each plans, and fetches what is needed for, the steps that it is asked for.
    """
    if count <= 1:
      return self
    return BatchSource(**{**self._arguments, "stride": count})

  def certificate_sums(self, step: int) -> certifying.Sums:
    """Returns what a step holds that was read a moment ago, as sums."""
    with self._lock:
      return self._sums[step]

  def bucket_of(self, step: int) -> str:
    """Returns the name of a step's bucket."""
    with self._lock:
      for group in self._groups:
        # Reading is ahead of who asks: to locate the step anew takes longer.
        if step in group.steps:
          return self._plan.buckets[group.planned.bucket].name
      return self._plan.buckets[self._plan.at(step)[1]].name

  def positions(self, step: int) -> dict[str, consumption.Position] | None:
    """Returns where sources are before a step; see `consumption`.

    What is found of a mix on the way there, the first batch needs too.

    Args:
      step: The step.

    Returns:
      None while it is read from.
    """
    if not self._lock.acquire(blocking=False):
      return None
    try:
      return consumption.positions(self._plan, step)
    finally:
      self._lock.release()

  def count_into(self, ledger: ledger_lib.Ledger) -> bool:
    """Counts what is read from here on, if all rows of all steps are.

    Args:
      ledger: Where it is counted.

    Returns:
      Whether it is.
    """
    whole = all(
      self._local(number) == bucket.batch_size
      for number, bucket in enumerate(self._plan.buckets)
      if self.local.rows is None or bucket.name in self.local.rows
    )
    with self._lock:
      self._ledger = ledger if whole else None
      self._in_ledger = None
    return whole

  def _sum(
    self,
    steps: range,
    group: _Group,
    planned: plan_lib.Planned,
    batch: Mapping[str, np.ndarray],
  ) -> None:
    """Remembers the sums of steps that are read."""
    sums = [group.sums[group.steps.index(step)] for step in steps]
    values: list[int | None] = [None] * len(steps)
    if self._certificate == certifying.TOKENS:
      values[:] = self._certifier.values(batch, planned, steps)
    rows = self._certifier.num_rows(planned.bucket)
    for step, plan_sum, of_values in zip(steps, sums, values, strict=True):
      self._sums[step] = certifying.Sums(rows, plan_sum, of_values)
    while len(self._sums) > _MAX_SUMS:
      self._sums.popitem(last=False)

  def _planned_of(self, steps: range, group: _Group) -> plan_lib.Planned:
    """Returns the plan of some steps of a group that follow each other."""
    if steps[-1] not in group.steps:
      raise ValueError(
        f"`steps` must be some of {group.steps}, which are planned together,"
        f" got {steps}. Ask `together` before."
      )
    planned = group.planned
    if planned.spans is None or len(group.steps) == 1:
      return planned
    size, first = self._local(planned.bucket), group.steps.index(steps[0])
    rows = slice(first * size, (first + len(steps)) * size)
    return dataclasses.replace(
      planned,
      spans=planned.spans.rows(rows.start, rows.stop),
      rows=None if planned.rows is None else planned.rows[rows],
    )

  def _group_of(self, step: int) -> _Group:
    """Returns the group of a step; plans further ones where that helps."""
    for group in self._groups:
      if step in group.steps:
        return group
    while self._ahead and step not in self._ahead[0].steps:
      self._ahead.popleft()
    known = bool(self._ahead)
    group = self._ahead.popleft() if known else self._planned(step)
    self._groups.append(group)
    if known or group.wants_more:
      last = self._ahead[-1] if self._ahead else group
      most = min(len(self._ahead) + _PLANNED_WITH_ONE, _GROUPS_AHEAD)
      while len(self._ahead) < most:
        step = last.steps[-1] + self._stride
        if step >= plan_lib.step_limit(self._plan):
          break
        last = self._planned(step)
        self._ahead.append(last)
        if not last.wants_more:
          break
    return group

  def _local(self, bucket: int) -> int:
    """Returns the rows of a batch of a bucket that this process holds."""
    chosen, rows = self._plan.buckets[bucket], self.local.rows
    if rows is not None and chosen.name not in rows:
      raise schema.ConfigError(
        [
          "`sharding` must divide batches of all steps that are read, got a"
          f" step of {chosen.batch_size} rows, which it does not. Go on from a"
          " later step, or use a smaller mesh."
        ]
      )
    return self.local.num_rows(chosen)

  @functools.cached_property
  def is_mapped(self) -> bool:
    """Whether no store gains by fetching for many steps at once.

    Arrays, which are no sources of text, are read by the record.
    """
    sources = self._plan.sources.values()
    return bool(sources) and all(
      source.store.opened.is_mapped for source in sources
    )

  def _rows_at(self, step: int) -> int:
    """Returns the rows to be planned with a step."""
    most = _PLANNED_ROWS
    if self._merges_rows:
      most = max(most, min(_SOURCE_ROWS * len(self._plan.sources), _MOST_ROWS))
    last = range(0)
    if self._ahead or self._groups:
      last = (self._ahead or self._groups)[-1].steps
    # Threads that share a reader ask out of order, a few steps apart.
    near = _FIRST_ROWS * self._stride
    goes_on = last.start <= step < last.stop + near
    rows = 2 * self._grown if goes_on else _FIRST_ROWS
    self._grown = min(max(rows, _FIRST_ROWS), most)
    return self._grown

  def _steps_from(self, step: int) -> range:
    """Returns the steps that are planned with a step, from it on."""
    stride = self._stride
    # From here on: what a run that was resumed has behind it is not fetched.
    bucket = self._plan.at(step)[1]
    rows = self._local(bucket)
    if self._merges_rows:
      rows = self._plan.buckets[bucket].batch_size * stride
    elif balance.shards_of(self._plan, step, self.local.shards) > 1:
      # Which of them are this process's, their costs decide.
      rows = self._plan.buckets[bucket].batch_size
    most = self._group_steps or max(1, self._rows_at(step) // max(rows, 1))
    _, last = self._plan.group(step, most * stride)
    return range(step, last, stride)

  def _planned(self, step: int) -> _Group:
    steps = self._steps_from(step)
    local = self.local
    planned = balance.planned(self._plan, steps, local.rows, local.shards)
    columns = local.columns.get(self._plan.buckets[planned.bucket].name)
    planned = dataclasses.replace(planned, columns=columns)
    self.reads.add_group(planned.spans)
    wants_more = self._plan.prefetch(planned)
    sums = self._certifier.planned(planned, steps)
    group = _Group(steps, planned, sums, wants_more)
    if time.monotonic() - self._logged > _LOG_S:
      self._logged = time.monotonic()
      for line in reads_lib.lines(self.reads.by_source()):
        logging.info("%s", line)
    return group


class StepSampler:
  """A Grain sampler that hands out steps in order, from any step on."""

  def __init__(
    self,
    first_step: int,
    num_steps: int,
    seed: int | None = None,
    steps: steps_lib.Steps | None = None,
  ):
    """Covers the steps first_step .. num_steps - 1.

    Args:
      first_step: The first step handed out.
      num_steps: Steps of the run.
      seed: Seeds the generators for random transforms, or None where there are
        none: making one costs more than planning a row.
      steps: Which data step each step is: its generators are of that one. None
        is the same.
    """
    self._first_step = first_step
    self._num_steps = num_steps
    self._seed = seed
    self._steps = steps or steps_lib.Steps()

  @property
  def first_step(self) -> int:
    """The first step handed out."""
    return self._first_step

  def __len__(self) -> int:
    return max(self._num_steps - self._first_step, 0)

  def __getitem__(self, index: int) -> grain.RecordMetadata:
    if not 0 <= index < len(self):
      raise IndexError(f"index must be below {len(self)}, got {index}.")
    return grain.RecordMetadata(
      index=index, record_key=self._first_step + index
    )

  @property
  def has_generators(self) -> bool:
    """Whether rows have generators for random transforms."""
    return self._seed is not None

  def generators(
    self, step: int, rows: np.ndarray
  ) -> list[np.random.Generator]:
    """Returns the generators of rows of a step, in their first state.

    Args:
      step: The step.
      rows: int64[R], the planned rows of its global batch.
    """
    assert self._seed is not None
    data_step = self._steps.data_step(step)
    key = hashing.fold_key(self._seed, "step", data_step)
    # Each has 2**192 blocks of the step's stream to itself.
    return [
      np.random.Generator(np.random.Philox(key=key, counter=row << 192))
      for row in rows.tolist()
    ]

  def __repr__(self) -> str:
    return f"StepSampler({self._first_step}, seed={self._seed})"
