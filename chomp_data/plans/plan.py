# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The contract of a plan: which samples every step of a run holds.

There are two. In `rows_plan` sources are merged row by row: batches hold rows
of several sources and cross epochs. In `batches_plan` each batch is of one
source and of one of a few static shapes, and batches are merged. Everything
but the map from steps to samples is shared by both.
"""

import abc
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
from typing import Any

import numpy as np

from chomp_data.index import steps as steps_lib
from chomp_data.plans import mix as mix_lib
from chomp_data.plans import tombstones
from chomp_data.plans import transfer as transfer_lib
from chomp_data.rows import buckets as buckets_lib
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import row_source

# Samples by source and bucket.
Counts = dict[str, dict[str, int]]

# By bucket, int64[R], ascending rows of its global batch.
Rows = Mapping[str, np.ndarray]

# By bucket, (first, last + 1) of the columns that are read; all of others.
Columns = Mapping[str, tuple[int, int]]


@dataclasses.dataclass(frozen=True)
class Planned:
  """What reading consecutive steps needs.

  Attributes:
    spans: Of the rows of all steps; None where samples are arrays.
    bucket: The number of their static shape.
    dataset: The number of the source, where it is one.
    samples: int64[R], samples of dataset and bucket, -1 for filler; None
      where spans say everything.
    columns: (first, last + 1) of those whose tokens are read; None is all.
      Fields have all columns: tokens of others are filler.
    rows: int64[R], which row of its step each row is, where they are dealt by
      their cost; None: they stand as they were asked for.
  """

  spans: spans_lib.Spans | None = None
  bucket: int = 0
  dataset: int = -1
  samples: np.ndarray | None = None
  columns: tuple[int, int] | None = None
  rows: np.ndarray | None = None

  @property
  def fetched(self) -> spans_lib.Spans | None:
    """The spans, of the columns that are read alone."""
    if self.spans is None or self.columns is None:
      return self.spans
    return self.spans.in_columns(*self.columns)


class Plan(abc.ABC):
  """A run's batches, any of them by random access.

  Attributes:
    buckets: The static shapes of batches.
    source_names: The sources' names, by number.
    sources: The rows of each source of text, by name, in the order of their
      numbers; none where samples are arrays.
    mix: How sources share the run, or None for one alone.
    steps: Which data step each step is, and which rows it has.
    gone: Documents and spans that are gone from some steps on.
    reader_name: The name of the Grain source of this plan, which Grain's own
      states hold.
    by_bucket: Whether each step is of one source and one of several buckets,
      and checkpoints hold samples by bucket.
    merges_rows: Whether steps hold rows of several sources. To plan some rows
      of a step then takes as long as to plan all of them.
  """

  buckets: tuple[buckets_lib.Bucket, ...]
  source_names: list[str]
  sources: dict[str, row_source.RowSource]
  mix: mix_lib.Mix | None
  steps: steps_lib.Steps
  gone: tombstones.Tombstones
  reader_name: str
  by_bucket: bool = False
  merges_rows: bool = False

  @property
  @abc.abstractmethod
  def num_steps(self) -> int | None:
    """Steps of the whole run; None is without end."""

  @property
  @abc.abstractmethod
  def step_limit(self) -> int:
    """Steps below this can be read: the run's, or all that have numbers."""

  def check_steps(self, first_step: int, count: int = 1) -> None:
    """Raises IndexError unless `count` steps from `first_step` on exist."""
    if first_step < 0 or first_step + count > self.step_limit:
      raise IndexError(
        f"step must be in 0 .. {self.step_limit - 1}, got {first_step} (count"
        f" {count})."
      )

  def expect_reading(self) -> None:  # noqa: B027
    """Lets sources prepare epochs: steps will be read, not only planned."""

  @abc.abstractmethod
  def at(self, step: int) -> tuple[int | None, int]:
    """Returns the source (None in a run of rows) and bucket of a step.

    Raises:
      IndexError: If the step is not of the run.
    """

  @abc.abstractmethod
  def spans(
    self, first_step: int, count: int = 1, rows: Rows | None = None
  ) -> spans_lib.Spans:
    """Plans consecutive steps without reading a token.

    Args:
      first_step: The first step.
      count: How many steps; their rows follow each other.
      rows: Those of global batches that are meant; None is all.

    Returns:
      Spans of the steps' rows; filler rows have none.

    Raises:
      IndexError: If a step is not of the run.
      TypeError: If samples are arrays, which have no spans.
    """

  @abc.abstractmethod
  def planned(
    self,
    first_step: int,
    count: int = 1,
    rows: Rows | None = None,
    stride: int = 1,
  ) -> Planned:
    """Returns what `read` needs for steps that `group` puts together.

    Args:
      first_step: The first step.
      count: How many steps.
      rows: As in `spans`.
      stride: How far apart they are.

    Raises:
      IndexError: If a step is not of the run.
    """

  def group(self, step: int, most: int) -> tuple[int, int]:
    """Returns steps first .. last - 1 that are best planned with a step.

    Args:
      step: The step.
      most: Steps of a group, at most.
    """
    del most
    return step, step + 1

  @abc.abstractmethod
  def prefetch(self, planned: Planned) -> bool:
    """Fetches what reading planned steps will need, at once.

    Returns whether it helps to plan further ahead; see `Store.prefetch`.
    """

  @abc.abstractmethod
  def read(self, planned: Planned) -> dict[str, np.ndarray]:
    """Returns the fields of planned steps, [R, ...] each."""

  @abc.abstractmethod
  def transfer(self, bucket: int) -> transfer_lib.Transfer | None:
    """Returns how rows of a bucket travel to devices that make their fields.

    Args:
      bucket: The number of the bucket.

    Returns:
      None where samples are arrays, which have no such form.
    """

  @abc.abstractmethod
  def examples(self, bucket: int) -> Iterator[tuple[str, Planned]]:
    """Yields (source, one sample of it) of a bucket: those that may differ.

    Args:
      bucket: Its number.
    """

  @abc.abstractmethod
  def counts(self, data_step: int) -> Counts:
    """Returns samples of the data steps before one, without padding.

    Args:
      data_step: The data step; those beyond the run have none.
    """

  @property
  @abc.abstractmethod
  def fingerprint(self) -> dict[str, Any]:
    """Sources and mix as what decides batches, as JSON values."""

  @abc.abstractmethod
  def describe(self) -> list[str]:
    """Returns the summary for the log, the shapes of batches first."""
