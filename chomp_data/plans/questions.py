# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The contract of questions about a run as a whole.

A plan says what each step holds. The questions here are about sources and
documents over many steps: at which steps epochs begin and documents occur, and
what was consumed. Answers read no tokens.
"""

import abc
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

import numpy as np

from chomp_data.mix import mix_options
from chomp_data.plans import consumption
from chomp_data.plans import plan as plan_lib


class Questions(abc.ABC):
  """Answers of one plan. To be used by one thread."""

  def __init__(self, plan: plan_lib.Plan):
    """Binds a plan."""
    self.plan = plan

  # Steps.

  def rows_held(self, step: int) -> dict[str, int]:
    """Returns rows of batches by bucket before a step, padding included.

    Args:
      step: At most the number of steps of the run.
    """
    batches = consumption.minus_skipped(self.plan, step, self.batches)
    return {
      bucket.name: count * bucket.batch_size
      for bucket, count in zip(self.plan.buckets, batches.tolist(), strict=True)
    }

  @abc.abstractmethod
  def batches(self, data_step: int) -> np.ndarray:
    """Returns batches by bucket before a data step, int64[num_buckets]."""

  @abc.abstractmethod
  def epoch_begins(self, source: str, epoch: int) -> int | None:
    """Returns the first step of an epoch; None if the run does not reach it.

    With stages of buckets, an epoch begins after every bucket has completed the
    previous one.

    Args:
      source: The name of the source.
      epoch: As `epochs_consumed` counts them, from 0. If the run resumed from
        offsets, the epochs before them have no step.
    """

  @abc.abstractmethod
  def ends(self, source: str) -> int | None:
    """Returns the first step before which a source has delivered all its rows.

    None if it never ends, or not in this run.
    """

  @abc.abstractmethod
  def epochs_consumed(self, source: str, samples: int) -> float:
    """Returns a number of consumed samples in epochs of a source."""

  def _run_step(self, data_step: int | None) -> int | None:
    """Returns the step that reads a data step; None for None."""
    return None if data_step is None else self.plan.steps.before(data_step)

  # The mix.

  @property
  @abc.abstractmethod
  def stages(self) -> mix_options.ExactStages:
    """The weights of sources, by data step; empty for one source only."""

  def consumed(self, step: int) -> dict[str, consumption.Consumed]:
    """Returns what the steps before a step have consumed, by source.

    Args:
      step: At most the number of steps of the run.
    """
    samples, units = self._consumed(self.plan.steps.data_step(step))
    return {
      name: consumption.Consumed(count, sums, self.epochs_consumed(name, count))
      for name, count, sums in zip(
        self.plan.source_names, samples.tolist(), units.tolist(), strict=True
      )
    }

  @abc.abstractmethod
  def _consumed(self, data_step: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns samples and balanced units by source, int64[S] each."""

  def intended(self, step: int) -> dict[str, float]:
    """Returns the share of each source that has samples left, by weight.

    Raises:
      IndexError: If the step is not of the run.
    """
    plan_lib.check_steps(self.plan, step)
    if not self.stages:
      return dict.fromkeys(self.plan.source_names, 1.0)
    data_step = self.plan.steps.data_step(step)
    return mix_options.shares_at(self.stages, data_step, self._ended(data_step))

  @abc.abstractmethod
  def _ended(self, data_step: int) -> dict[str, bool]:
    """Returns whether each source has no samples left at a data step."""

  @abc.abstractmethod
  def unserved(self, num_steps: int) -> list[str]:
    """Returns a sentence for each weight that has almost no effect in a run.

    Args:
      num_steps: The number of steps of the run.
    """

  def repeat_warnings(
    self, num_steps: int, max_epochs: Mapping[str, int | None]
  ) -> list[str]:
    """Returns a sentence for each source that is repeated more than intended.

    Args:
      num_steps: At most the number of steps of the run.
      max_epochs: The configured epochs by source; None if without end.

    Returns:
      Sentences; none if to compute them takes long.
    """
    if self._is_long(num_steps):
      return []
    counts = consumption.consumed(self.plan, num_steps)
    lines = []
    for name, count in consumption.by_source(counts).items():
      epochs = self.epochs_consumed(name, count)
      if epochs > max(mix_options.MANY_EPOCHS, max_epochs[name] or 1):
        lines.append(
          f"{num_steps} steps give source {name!r} {epochs:.1f} times over."
          " Take fewer steps, lower its weight, or add data."
        )
    return lines

  def _is_long(self, num_steps: int) -> bool:
    """Returns whether to count samples takes longer than a second."""
    del num_steps
    return False

  # Documents.

  def num_documents(self, source: str) -> int:
    """Returns the number of documents of a source, or of its samples."""
    return self.plan.sources[source].store.num_documents

  # Tokens, as if no document were removed and no step skipped.

  @abc.abstractmethod
  def units_before(self, source: str, data_step: int, unit: str) -> int:
    """Returns the units of a source of text before a data step.

    Args:
      source: The name of the source.
      data_step: The data step.
      unit: One of `ledger.UNITS`.
    """

  @abc.abstractmethod
  def rows_to_plan(self, source: str, data_step: int, unit: str) -> int:
    """Returns how many rows `units_before` plans or sums one by one.

    Args:
      source: The name of the source.
      data_step: The data step.
      unit: One of `ledger.UNITS`.
    """

  def units_between(self, source: str, first: int, last: int, unit: str) -> int:
    """Returns the units of a source in data steps first to last - 1."""
    low, high = (self.units_before(source, at, unit) for at in (first, last))
    return high - low

  # Other.

  @abc.abstractmethod
  def examples(self, bucket: int) -> Iterator[tuple[str, plan_lib.Planned]]:
    """Yields (source name, plan of one sample) for each kind of fields.

    Args:
      bucket: The number of the bucket.
    """

  def foreign_offsets(self) -> list[dict[str, Any]] | None:
    """Returns entries of a `resume_state` that name no source of the run.

    None if a run of this kind cannot start from offsets.
    """
    return None
