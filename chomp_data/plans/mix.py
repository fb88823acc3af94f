# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How sources share a run: the intended shares, and the consumed samples."""

from collections.abc import Mapping
from collections.abc import Sequence
import fractions

from chomp_data.bucket import schedule as schedule_lib
from chomp_data.index import steps as steps_lib
from chomp_data.mix import mix_options
from chomp_data.mix import mixture

Weights = Mapping[str, fractions.Fraction]
# (from_step, weights by name).
Stages = Sequence[tuple[int, Weights]]


class BatchMix:
  """A mix of sources whose batches are merged."""

  def __init__(
    self,
    schedule: schedule_lib.BucketSchedule,
    steps: steps_lib.Steps,
    stages: Stages,
    samples: Mapping[str, int],
    path: str,
  ):
    """Binds a schedule.

    Args:
      schedule: Which batch each data step has.
      steps: Which data step each step is.
      stages: (from_step, weights of datasets).
      samples: Samples of each dataset.
      path: Dotted path of the mix, for messages.
    """
    self._schedule = schedule
    self._steps = steps
    self.stages: list[tuple[int, dict[str, fractions.Fraction]]] = [
      (step, dict(stage_weights)) for step, stage_weights in stages
    ]
    self._samples = dict(samples)
    self._path = path

  def consumed(self, step: int) -> dict[str, mixture.Consumed]:
    """Returns what the steps before `step` have consumed, by source."""
    place = self._within(self._steps.data_step(step))
    rows = self._schedule.consumed(place).sum(axis=1).tolist()
    units = self._schedule.consumed_units(place).tolist()
    return {
      name: mixture.Consumed(
        num_samples, num_units, num_samples / max(self._samples[name], 1)
      )
      for name, num_samples, num_units in zip(
        self._schedule.datasets, rows, units, strict=True
      )
    }

  def intended(self, step: int) -> dict[str, float]:
    """Returns the share of each source that has samples left, by weight."""
    end = self._schedule.num_steps
    end = None if end is None else self._steps.before(end)
    if step < 0 or (end is not None and step >= end):
      raise IndexError(
        f"step must be in 0 .. {'' if end is None else end - 1}, got {step}."
        " Ask for a step of the run."
      )
    step = self._steps.data_step(step)
    ended = self._schedule.ended(step).tolist()
    by_name = dict(zip(self._schedule.datasets, ended, strict=True))
    return mix_options.shares_at(self.stages, step, by_name)

  def unserved(self, num_steps: int) -> list[str]:
    """Returns a sentence for each weight that has almost no effect in a run."""
    steps = self._within(self._steps.data_step(num_steps))
    return mix_options.unserved_lines(
      self._path, self.stages, self._schedule.unserved(steps), steps
    )

  def _within(self, count: int) -> int:
    """Returns `count`, or the number of data steps if that is smaller."""
    end = self._schedule.num_steps
    return count if end is None else min(count, end)


# How the sources of a run of rows, or in buckets, share it.
Mix = mixture.MixtureSource | BatchMix
