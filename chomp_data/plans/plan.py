# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The contract of a plan: which samples every step of a run holds.

There are two kinds. `rows_plan` merges sources row by row: a batch holds rows
of several sources and may cross epochs. `batches_plan` merges batches, each of
one source and one of a few static shapes. They differ only in the map from
steps to samples.
"""

import abc
from collections.abc import Mapping
import dataclasses
from typing import Any

import numpy as np

from chomp_data.index import steps as steps_lib
from chomp_data.plans import tombstones as tombstones_lib
from chomp_data.rows import buckets as buckets_lib
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import column_fields
from chomp_data.sources import row_source

# Row numbers stay inside int64 with room for several batches.
_MAX_ROW = 2**62

# The limit of step numbers in a run in buckets without an end.
_ENDLESS = 2**40

# Samples by source and bucket.
Counts = dict[str, dict[str, int]]

# int64[R] by bucket: rows of its global batch, ascending.
Rows = Mapping[str, np.ndarray]

# (first, last + 1) by bucket: the columns that are read. Buckets without an
# entry are read in full.
Columns = Mapping[str, spans_lib.ColumnRanges]


# Slots make it smaller where readers are pickled for workers.
@dataclasses.dataclass(frozen=True, slots=True)
class LocalRows:
  """The part of each batch that one process reads, by bucket name.

  Attributes:
    rows: int64[R], ascending rows of the global batch; None is all.
    shards: Over how many shards the rows of a batch are dealt by their cost;
      None leaves them where they are planned.
    columns: The columns of text whose tokens are read; tokens of others are
      padding.
    counted: bool[R], which of the rows a certificate counts in this process;
      None is all.
  """

  rows: Rows | None = None
  shards: Mapping[str, int] | None = None
  columns: Columns = dataclasses.field(default_factory=dict)
  counted: Mapping[str, np.ndarray] | None = None

  def num_rows(self, bucket: buckets_lib.Bucket) -> int:
    """Returns the rows of a batch of a bucket that the process reads."""
    if self.rows is None:
      return bucket.batch_size
    return len(self.rows[bucket.name])


ALL_ROWS = LocalRows()


@dataclasses.dataclass(frozen=True)
class Planned:
  """What is needed to read planned steps.

  Attributes:
    spans: The spans of the rows of all steps; None for arrays.
    bucket: The number of their bucket.
    dataset: The number of their source; -1 if rows are of several.
    samples: int64[R], sample numbers in dataset and bucket, -1 for padding;
      None in a run of rows, which spans describe in full.
    columns: (first, last + 1) of the columns whose tokens are read; None is
      all. Fields have all columns, with padding in the others.
    rows: int64[R], the planned row of its step that each row is, if rows are
      balanced by cost; None if they are in the order that was asked for.
  """

  spans: spans_lib.Spans | None = None
  bucket: int = 0
  dataset: int = -1
  samples: np.ndarray | None = None
  columns: spans_lib.ColumnRanges | None = None
  rows: np.ndarray | None = None

  @property
  def fetched(self) -> spans_lib.Spans | None:
    """The spans, limited to the columns that are read."""
    if self.spans is None or self.columns is None:
      return self.spans
    return self.spans.in_columns(*self.columns)


class Plan(abc.ABC):
  """A run's batches, any of them by random access.

  Attributes:
    buckets: The static shapes of batches.
    source_names: The sources' names, by number.
    sources: The rows of each source of text, by name, in the order of their
      numbers; empty for arrays.
    steps: Which data step each step is, and which rows it has.
    tombstones: Documents and spans that are removed from some data steps on.
    columns: The columns of stores that batches hold; None if there are none.
    by_bucket: Whether each step is of one source and one bucket; checkpoints
      then hold samples by bucket. Otherwise rows of a step are of any source.
  """

  buckets: tuple[buckets_lib.Bucket, ...]
  source_names: list[str]
  sources: dict[str, row_source.RowSource]
  steps: steps_lib.Steps
  tombstones: tombstones_lib.Tombstones
  columns: column_fields.ColumnFields | None = None
  by_bucket: bool = False

  @property
  @abc.abstractmethod
  def num_steps(self) -> int | None:
    """Steps of the whole run; None if it has no end."""

  @abc.abstractmethod
  def at(self, step: int) -> tuple[int | None, int]:
    """Returns the source (None in a run of rows) and bucket of a step.

    Raises:
      IndexError: If the step is not of the run.
    """

  @abc.abstractmethod
  def planned(
    self,
    first_step: int,
    count: int = 1,
    rows: Rows | None = None,
    stride: int = 1,
  ) -> Planned:
    """Plans steps without reading a token; `read` needs no more.

    Args:
      first_step: The first step.
      count: How many steps, all of one group of `group`; their rows follow each
        other. Padding rows have no spans.
      rows: By bucket, the rows of global batches that are planned; None is all.
      stride: The distance between steps.

    Raises:
      IndexError: If a step is not of the run.
    """

  def group(self, step: int, most: int) -> tuple[int, int]:
    """Returns (first, last + 1) of the steps to plan together with a step.

    Args:
      step: The step.
      most: The most steps of a group.
    """
    del most
    return step, step + 1

  @abc.abstractmethod
  def prefetch(self, planned: Planned) -> bool:
    """Fetches the data of planned steps ahead of reading them.

    Returns whether it helps to plan further ahead, which is so if the store
    still fetches while planning continues.
    """

  @abc.abstractmethod
  def read(self, planned: Planned) -> dict[str, np.ndarray]:
    """Reads planned steps and returns their fields, [R, ...] each."""

  @abc.abstractmethod
  def counts(self, data_step: int) -> Counts:
    """Returns samples by source and bucket before a data step, no padding.

    Args:
      data_step: The data step; data steps beyond the run have no samples.
    """

  @property
  @abc.abstractmethod
  def fingerprint(self) -> dict[str, Any]:
    """What determines batches: sources and mix, as JSON values."""


def step_limit(plan: Plan) -> int:
  """Returns the number of steps that can be read: all, or as int64 allows."""
  if plan.by_bucket:
    return _ENDLESS if plan.num_steps is None else plan.num_steps
  numbered = plan.steps.before(plan.steps.step_of_row(_MAX_ROW))
  return numbered if plan.num_steps is None else min(plan.num_steps, numbered)


def check_steps(plan: Plan, first_step: int, count: int = 1) -> None:
  """Raises IndexError unless `count` steps from `first_step` on exist."""
  limit = step_limit(plan)
  if first_step < 0 or first_step + count > limit:
    several = f" (count {count})" if count > 1 else ""
    raise IndexError(
      f"step must be in 0 .. {limit - 1}, got {first_step}{several}. Ask for"
      " steps of the run."
    )


def check_boundary(plan: Plan, step: int, name: str = "step") -> None:
  """Raises IndexError unless a step is one of the run, or its end."""
  limit = step_limit(plan)
  if not 0 <= step <= limit:
    bound = "at least 0" if plan.num_steps is None else f"in 0 .. {limit}"
    raise IndexError(
      f"`{name}` must be {bound}, got {step}. Ask before a step of the run, or"
      " at its end."
    )


def spans_of(plan: Plan, first_step: int, count: int = 1) -> spans_lib.Spans:
  """Plans consecutive steps of any size without reading a token.

  Args:
    plan: The run.
    first_step: The first step.
    count: How many steps; their rows follow each other.

  Raises:
    IndexError: If a step is not of the run.
    TypeError: If samples are arrays, which have no spans.
  """
  check_steps(plan, first_step, count)
  if not plan.by_bucket:
    spans = plan.planned(first_step, count).spans
    assert spans is not None
    return spans
  parts = []
  for step in range(first_step, first_step + count):
    spans = plan.planned(step).spans
    if spans is None:
      raise TypeError(
        f"steps must hold text to have spans, got arrays at step {step}. Ask"
        " for its samples."
      )
    parts.append(spans)
  return parts[0] if count == 1 else spans_lib.concatenated(parts)
