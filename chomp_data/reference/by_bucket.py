# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How a bucketed run goes by bucket: batches, loss, and how often it came."""

from collections.abc import Mapping
import math
from typing import Any

import numpy as np

from chomp_data import pipeline
from chomp_data.plans import answers


class BucketLog:
  """Sums losses by bucket between two looks."""

  def __init__(self, pipe: pipeline.Pipeline, first_step: int = 0):
    """Starts a window.

    Args:
      pipe: The run.
      first_step: The step of the first batch to come.
    """
    self._pipe = pipe
    self._names = [bucket.name for bucket in pipe.buckets]
    self.begin(first_step)

  def begin(self, step: int) -> None:
    """Starts a window at a step."""
    self._first = self._next = step
    self._nll = dict.fromkeys(self._names, 0.0)
    self._weight = dict.fromkeys(self._names, 0.0)

  def add(self, metrics: Mapping[str, np.ndarray] | None) -> None:
    """Adds the sums of the next step.

    Args:
      metrics: On the host, with `row_nll` float[B], `row_tokens` int[B] and,
        of batches with weights, `row_weight` float[B], or without them; None
        is no step.
    """
    if metrics is None:
      return
    bucket = self._pipe.bucket_of(self._next)[1]
    self._next += 1
    if "row_nll" in metrics:
      self._nll[bucket] += float(np.sum(metrics["row_nll"], dtype=np.float64))
      weight = metrics.get("row_weight", metrics["row_tokens"])
      self._weight[bucket] += float(np.sum(weight, dtype=np.float64))

  def stages(self, step: int) -> list[str]:
    """Returns a line for each stage that began in the window up to a step."""
    return [
      f"stage {text}"
      for begins, text in answers.of(self._pipe.run_plan).bucket_stages()
      if self._first <= self._pipe.run_plan.steps.before(begins) < step
    ]

  def take(self, step: int) -> dict[str, dict[str, Any]]:
    """Returns the window up to a step, by bucket, and starts another.

    Args:
      step: The next step.

    Returns:
      For each bucket the window's `batches`, their `share` of all, its mean
      `loss` (NaN for none); and since the start `passes` by source.
    """
    batches = dict.fromkeys(self._names, 0)
    for number in range(self._first, step):
      batches[self._pipe.bucket_of(number)[1]] += 1
    passes = answers.of(self._pipe.run_plan).bucket_passes(step)
    out = {}
    for name in self._names:
      weight = self._weight[name]
      out[name] = {
        "batches": batches[name],
        "share": batches[name] / max(step - self._first, 1),
        "loss": self._nll[name] / weight if weight else math.nan,
        "passes": {
          source: by_name[name]
          for source, by_name in passes.items()
          if name in by_name
        },
      }
    self.begin(step)
    return out


def lines(buckets: Mapping[str, Mapping[str, Any]]) -> list[str]:
  """Returns one line a bucket, for the log."""
  out = []
  for name, sums in buckets.items():
    loss = "-" if math.isnan(sums["loss"]) else f"{sums['loss']:.4f}"
    passes = ", ".join(f"{n} {p:.2f}" for n, p in sums["passes"].items())
    out.append(
      f"bucket {name}: {sums['batches']} batches ({sums['share']:.1%}), loss"
      f" {loss}, passes {passes}"
    )
  return out
