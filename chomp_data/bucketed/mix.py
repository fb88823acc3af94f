"""How datasets share a bucketed run, for the log and for checks."""

from collections.abc import Mapping

from chomp_data.bucketed import lanes as lanes_lib
from chomp_data.sources import mix_options
from chomp_data.sources import mixture


class BucketMix:
  """The face of a mix: what was meant, and what came of it."""

  def __init__(
    self,
    lanes: lanes_lib.Lanes,
    stages: lanes_lib.Stages,
    samples: Mapping[str, int],
    path: str,
  ):
    """Binds a schedule.

    Args:
      lanes: The schedule.
      stages: (from_step, weights of datasets).
      samples: Samples of each dataset.
      path: Dotted path of the mix, for messages.
    """
    self._lanes = lanes
    self.stages = list(stages)
    self._samples = dict(samples)
    self._path = path

  def consumed(self, step: int) -> dict[str, mixture.Consumed]:
    """Returns what the steps before `step` have taken, by source.

    Args:
      step: At most the steps of the run.
    """
    rows = self._lanes.consumed(step).sum(axis=1).tolist()
    units = self._lanes.consumed_units(step).tolist()
    return {
      name: mixture.Consumed(own, used, own / max(self._samples[name], 1))
      for name, own, used in zip(self._lanes.datasets, rows, units, strict=True)
    }

  def intended(self, step: int) -> dict[str, float]:
    """Returns shares by weight at a step, of sources that have samples left.

    Raises:
      IndexError: If the step is not of the run.
    """
    end = self._lanes.num_steps
    if step < 0 or (end is not None and step >= end):
      raise IndexError(
        f"step must be in 0 .. {'' if end is None else end - 1}, got {step}."
        " Ask for a step of the run."
      )
    ended = self._lanes.ended(step).tolist()
    by_name = dict(zip(self._lanes.datasets, ended, strict=True))
    return mix_options.shares_at(self.stages, step, by_name)

  def unserved(self, num_steps: int) -> list[str]:
    """Returns one sentence for each weight that a run would hardly see.

    Args:
      num_steps: Steps of the run.
    """
    return mix_options.unserved_lines(
      self._path, self.stages, self._lanes.unserved(num_steps), num_steps
    )
