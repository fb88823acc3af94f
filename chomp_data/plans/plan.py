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
from typing import final

import numpy as np

from chomp_data.index import steps as steps_lib
from chomp_data.mix import mix_options
from chomp_data.plans import mix as mix_lib
from chomp_data.plans import token_sums
from chomp_data.plans import tombstones
from chomp_data.plans import trails
from chomp_data.rows import buckets as buckets_lib
from chomp_data.rows import spans as spans_lib
from chomp_data.rows import transfer_format
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
    reader_name: How the Grain source of this plan calls itself: Grain's own
      states hold it.
  """

  buckets: tuple[buckets_lib.Bucket, ...]
  source_names: list[str]
  sources: dict[str, row_source.RowSource]
  mix: mix_lib.Mix | None
  steps: steps_lib.Steps
  gone: tombstones.Tombstones
  reader_name: str

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
    """Hears that steps are about to be read, and not only asked about."""

  @abc.abstractmethod
  def at(self, step: int) -> tuple[int | None, int]:
    """Returns the source (None in a run of rows) and bucket of a step.

    Raises:
      IndexError: If the step is not of the run.
    """

  def buckets_from(self, step: int) -> list[str] | None:
    """Returns the buckets of the batches from a step on; None is all."""
    del step
    return None

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
  def whole_spans(self, first_step: int, count: int) -> spans_lib.Spans:
    """Returns `spans` of consecutive steps as if nothing were gone."""

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

  @property
  def merges_rows(self) -> bool:
    """Whether rows of several sources are merged, which `planned` then does.

    It then takes time for all rows of its steps, also where it plans a few.
    """
    return False

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

  def wire(self, bucket: int) -> transfer_format.Wire | None:
    """Returns how rows of a bucket travel to devices that make their fields.

    Args:
      bucket: Its number.

    Returns:
      None where samples are arrays, which have no such form.
    """
    del bucket
    return None

  def on_wire(self, planned: Planned) -> np.ndarray:
    """Returns planned steps of text as they travel, uint16[R, words].

    On devices `wire_rows.decode` makes of it what `read` returns.
    """
    raise TypeError(
      f"bucket {self.buckets[planned.bucket].name} must hold text to have"
      " fields made on devices. Use `read`."
    )

  @final
  def tokens_on_wire(self, planned: Planned, rows: np.ndarray) -> np.ndarray:
    """Returns the tokens of what `on_wire` returned, int32[R, seq_len]."""
    wire = self.wire(planned.bucket)
    assert wire is not None
    return transfer_format.tokens_of(wire, rows, np)

  @abc.abstractmethod
  def examples(self, bucket: int) -> Iterator[tuple[str, Planned]]:
    """Yields (source, one sample of it) of a bucket: those that may differ.

    Args:
      bucket: Its number.
    """

  @abc.abstractmethod
  def in_data_steps(self, count: int) -> Counts:
    """Returns samples of the first data steps, filler left out.

    Args:
      count: How many; those beyond the run have none.
    """

  @final
  def taken(self, step: int) -> Counts:
    """Returns samples before a step, filler left out, skipped ones not.

    Args:
      step: At most the steps of the run.

    Raises:
      IndexError: If the step lies beyond the run.
    """
    if not 0 <= step <= self.step_limit:
      raise IndexError(
        f"step must be in 0 .. {self.step_limit}, got {step}. Ask before"
        " a step of the run, or at its end."
      )
    return self.in_data_steps(self.steps.data_step(step))

  @final
  def given(self, step: int) -> Counts:
    """Returns the samples of `taken` that were handed out, none skipped."""
    found = self.taken(step)
    for first, last in self.steps.skipped(step):
      low, high = self.in_data_steps(first), self.in_data_steps(last)
      found = {
        name: {b: n - (high[name][b] - low[name][b]) for b, n in own.items()}
        for name, own in found.items()
      }
    return found

  @final
  def places(self, step: int) -> dict[str, token_sums.Place]:
    """Returns where sources are before a step; see `taken`."""
    taken = _by_source(self.taken(step))
    skipped: dict[str, list[tuple[int, int]]] = {name: [] for name in taken}
    for first, last in self.steps.skipped(step):
      low, high = (_by_source(self.in_data_steps(at)) for at in (first, last))
      for name, own in skipped.items():
        if low[name] < high[name]:
          own.append((low[name], high[name]))
    return {
      name: token_sums.Place(rows, tuple(skipped[name]))
      for name, rows in taken.items()
    }

  @abc.abstractmethod
  def rows_held(self, step: int) -> dict[str, int]:
    """Returns rows of batches by bucket before a step, filler included.

    Args:
      step: At most the steps of the run.
    """

  @abc.abstractmethod
  def epoch_begins(self, source: str, epoch: int) -> int | None:
    """Returns the first step of an epoch; None: the run never comes there.

    Args:
      source: Its name.
      epoch: As `passes` counts them, from 0. Where the run goes on from
        offsets, earlier ones have no step.
    """

  @abc.abstractmethod
  def ends(self, source: str) -> int | None:
    """Returns the first step before which a source has given all it will.

    None: it never ends, or not in this run.
    """

  @abc.abstractmethod
  def passes(self, source: str, samples: int) -> float:
    """Returns how often a source was passed when it gave so many samples."""

  def num_documents(self, source: str) -> int:
    """Returns the documents of a source, or its samples.

    Args:
      source: Its name.
    """
    return self.sources[source].store.num_documents

  def sample_numbers(self, step: int) -> np.ndarray:
    """Returns the numbers in their store of a step's samples of arrays.

    Args:
      step: The step.

    Returns:
      int64[R], -1 for filler.

    Raises:
      TypeError: If samples are no arrays.
    """
    raise TypeError(
      f"samples of step {step} must be arrays to have numbers, got text. Ask"
      " for `plan(step)`."
    )

  @abc.abstractmethod
  def trail(self, source: str, document: int) -> trails.Trail:
    """Returns where a document comes in the run.

    Args:
      source: The source's name.
      document: Its number, below `num_documents`.
    """

  @abc.abstractmethod
  def documents(self, source: str, step: int) -> np.ndarray:
    """Returns which documents a source has given before a step.

    Rows are planned until all documents were seen, or the step comes.

    Args:
      source: Its name.
      step: At most the steps of the run.

    Returns:
      bool[num_documents], of which a token was in a batch; of arrays samples,
      by bucket.
    """

  @abc.abstractmethod
  def exposures(self, source: str, first: int, last: int) -> np.ndarray:
    """Returns the spans of each document, or how often each sample comes.

    Args:
      source: The source's name.
      first: The first data step.
      last: The data step after the last, at most those of the run.

    Returns:
      int64[num_documents].
    """

  @abc.abstractmethod
  def whole_sums(self) -> token_sums.TokenSums | None:
    """Returns `token_sums` as if nothing were gone."""

  @final
  def is_gone_before(self, step: int) -> bool:
    """Returns whether something may be gone in steps before one."""
    first = self.gone.first_step
    return first is not None and self.steps.before(first) < step

  @final
  def token_sums(self) -> token_sums.TokenSums | None:
    """Returns sums of tokens by source, or None where samples are arrays."""
    found, first = self.whole_sums(), self.gone.first_step
    if found is None or first is None:
      return found
    return token_sums.LiveSums(
      found,
      {name: own.store for name, own in self.sources.items()},
      self.steps.before(first),
      self.spans,
      self.whole_spans,
    )

  def foreign_offsets(self) -> list[dict[str, Any]] | None:
    """Returns entries of a `resume_state` that name no source of the run.

    None where a run cannot start from offsets.
    """
    return None

  @property
  def by_bucket(self) -> bool:
    """Whether checkpoints tell samples by bucket."""
    return False

  def bucket_passes(self, step: int) -> dict[str, dict[str, float]]:
    """Returns how often each bucket of each source was given before a step."""
    del step
    return {}

  @property
  @abc.abstractmethod
  def fingerprint(self) -> dict[str, Any]:
    """Sources and mix as what decides batches, as JSON values."""

  @abc.abstractmethod
  def describe(self) -> list[str]:
    """Returns the summary for the log, the shapes of batches first."""

  def warnings(self) -> list[str]:
    """Returns what a user may not have meant, a sentence each."""
    return []

  def repeats(
    self, num_steps: int, max_epochs: Mapping[str, int | None]
  ) -> list[str]:
    """Returns a sentence for each source that comes more often than asked.

    Args:
      num_steps: At most the steps of the run.
      max_epochs: Passes that were asked for by source; None is for ever.
    """
    found = []
    for name, counts in self.taken(num_steps).items():
      passes = self.passes(name, sum(counts.values()))
      asked = max_epochs[name] or 1
      if passes > max(mix_options.MANY_PASSES, asked):
        found.append(
          f"{num_steps} steps give source {name!r} {passes:.1f} times over."
          " Take fewer steps, lower its weight, or add data."
        )
    return found

  def stages(self) -> list[tuple[int, str]]:
    """Returns where each stage of a curriculum begins, and what it weighs."""
    return []


def documents_to_see(source: row_source.RowSource) -> int:
  """Returns how many documents of a source have a token."""
  return sum(
    int(np.count_nonzero(own)) for _, own in source.store.iter_lengths()
  )


def _by_source(counts: Counts) -> dict[str, int]:
  return {name: sum(own.values()) for name, own in counts.items()}
