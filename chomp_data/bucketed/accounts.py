"""What a bucketed run has consumed before a step: the histogram, and tokens.

Samples by dataset and bucket follow from the step by random access, and so do
tokens of text where datasets are balanced by them. Else they are summed from
plans as far as the run has come, and go on from what a checkpoint says.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

import numpy as np

from chomp_data.bucketed import plan as plan_lib
from chomp_data.loading import accounts as accounts_lib

# Steps planned at once.
_BLOCK = 256


class Histogram:
  """Samples by dataset and bucket, kept in every checkpoint."""

  def __init__(self, plan: plan_lib.BucketPlan):
    """Sums nothing yet.

    Args:
      plan: The run.
    """
    self._plan = plan

  def histogram(self, step: int) -> dict[str, dict[str, int]]:
    """Returns samples by dataset and bucket before a step, filler left out.

    Args:
      step: At most the steps of the run.
    """
    counts = self._plan.lanes.consumed(step).tolist()
    return {
      name: {
        bucket.name: count
        for bucket, count in zip(self._plan.buckets, own, strict=True)
        if count
      }
      for name, own in zip(self._plan.datasets, counts, strict=True)
    }

  def rows(self, step: int) -> dict[str, int]:
    """Returns the samples of each dataset before a step."""
    return {n: sum(own.values()) for n, own in self.histogram(step).items()}

  def record(self, step: int) -> dict[str, Any]:
    """Returns what a checkpoint keeps, as JSON values."""
    return {"histogram": self.histogram(step)}

  def restore(self, record: Mapping[str, Any], step: int) -> list[str]:
    """Compares a checkpoint's histogram with the plan.

    Args:
      record: Of `record`, at that step.
      step: The step.

    Returns:
      One line for each dataset and bucket that does not agree.
    """
    saved = record.get("histogram") or {}
    problems = []
    planned = self.histogram(step)
    for name in dict.fromkeys([*planned, *saved]):
      own, other = planned.get(name, {}), saved.get(name, {})
      for bucket in dict.fromkeys([*own, *other]):
        plan, state = own.get(bucket, 0), other.get(bucket, 0)
        if plan != state:
          problems.append(
            f"histogram.{name}.{bucket}: state has {state} samples, plan {plan}"
          )
    return problems


class LengthAccounts(Histogram):
  """The histogram, and rows, tokens and epochs by source."""

  def __init__(self, plan: plan_lib.LengthPlan, by_tokens: bool):
    """Sums nothing yet.

    Args:
      plan: The run.
      by_tokens: Whether tokens are what datasets are balanced by.
    """
    super().__init__(plan)
    self._spans = plan
    self._by_tokens = by_tokens
    # Step, tokens and trained tokens by dataset before it: the latest.
    self._sums = (0, np.zeros((2, len(plan.datasets)), np.int64))

  def at(self, step: int) -> dict[str, accounts_lib.Account]:
    """Returns every source's account before a step.

    Args:
      step: At most the steps of the run.
    """
    tokens = self._tokens(step)
    out = {}
    for i, (name, rows) in enumerate(self.rows(step).items()):
      whole = sum(self._spans.datasets[name].counts.values())
      out[name] = accounts_lib.Account(
        rows=rows,
        tokens=int(tokens[0, i]),
        loss_tokens=int(tokens[1, i]),
        epochs=rows / max(whole, 1),
      )
    return out

  def record(self, step: int) -> dict[str, Any]:
    """Returns what a checkpoint keeps; see `Histogram`."""
    accounts = {
      name: dataclasses.asdict(own) for name, own in self.at(step).items()
    }
    return {**super().record(step), "accounts": accounts}

  def restore(self, record: Mapping[str, Any], step: int) -> list[str]:
    """Compares the histogram, and goes on from the sums; see `Histogram`."""
    problems = super().restore(record, step)
    saved = record.get("accounts") or {}
    if not problems and set(saved) >= set(self._spans.datasets):
      sums = [
        [int(saved[name][unit]) for name in self._spans.datasets]
        for unit in ("tokens", "loss_tokens")
      ]
      self._sums = (step, np.asarray(sums, np.int64))
    return problems

  def _tokens(self, step: int) -> np.ndarray:
    """Returns int64[2, num_datasets], tokens and trained ones before a step."""
    if self._by_tokens:
      tokens = self._spans.lanes.consumed_units(step)
      # Each row is one span, whose last token has no next one.
      rows = self._spans.lanes.consumed(step).sum(axis=1)
      return np.stack([tokens, tokens - rows])
    done, sums = self._sums
    if done > step:
      done, sums = 0, np.zeros_like(sums)
    count = sums.shape[1]
    for first in range(done, step, _BLOCK):
      spans = self._spans.plan(first, min(_BLOCK, step - first))
      own = spans.length, spans.length - 1
      # Sums of a block stay far below 2**53, where float64 is exact.
      sums = sums + [np.bincount(spans.source, v, count) for v in own]
      sums = sums.astype(np.int64)
    self._sums = (step, sums)
    return sums
