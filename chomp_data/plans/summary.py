# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What a run in buckets will do, in lines for its log."""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import fractions
from typing import Protocol

from chomp_data.bucket import dataset as dataset_lib
from chomp_data.bucket import schedule as schedule_lib
from chomp_data.index import steps as steps_lib
from chomp_data.mix import mix_options
from chomp_data.plans import plan as plan_lib
from chomp_data.rows import buckets as buckets_lib

Weights = Mapping[str, fractions.Fraction]
Stages = Sequence[tuple[int, Weights]]


class Batches(Protocol):
  """What these lines ask of a plan."""

  datasets: dict[str, dataset_lib.Dataset]
  buckets: tuple[buckets_lib.Bucket, ...]
  steps: steps_lib.Steps

  @property
  def num_steps(self) -> int | None: ...

  def counts(self, data_step: int) -> plan_lib.Counts: ...


def bucket_lines(
  datasets: Mapping[str, dataset_lib.Dataset],
  buckets: Sequence[buckets_lib.Bucket],
  schedule: schedule_lib.BucketSchedule,
) -> list[str]:
  """Returns a line for each bucket: its shape, and what an epoch has of it."""
  batches = schedule.batches_per_epoch
  lines = []
  for number, bucket in enumerate(buckets):
    parts = []
    for i, (name, dataset) in enumerate(datasets.items()):
      count = dataset.counts.get(bucket.name, 0)
      given = int(batches[i, number])
      text = f"{name} {count} samples in {given} batches"
      tokens = (dataset.tokens_by_bucket() or {}).get(bucket.name)
      if tokens is not None and given:
        # Filler rows of a padded last batch are padding too.
        kept = min(1.0, given * bucket.batch_size / count)
        positions = given * bucket.batch_size * bucket.shape[0]
        text += f" ({1 - tokens * kept / positions:.1%} padding)"
      parts.append(text)
    lines.append(f"  bucket {bucket}, an epoch: {', '.join(parts)}")
  whole = sum(sum(own.counts.values()) for own in datasets.values())
  sizes = [bucket.batch_size for bucket in buckets]
  lost = whole - int((batches * sizes).sum())
  if lost > 0:
    lines.append(
      f"  remainder drop: {lost} of {whole} samples of an epoch fill no batch"
    )
  return lines


def stage_lines(plan: Batches, stages: Stages | None) -> list[str]:
  """Returns a line for each stage of a curriculum, and how often buckets come.

  Args:
    plan: The run.
    stages: (from_step, weights of buckets), or None.
  """
  lines = []
  for begins, _, last, weights in _spans(plan, stages):
    text = f"  {stage_text(plan, begins, weights)}"
    if last is not None:
      given = bucket_passes(plan, last)
      by_name = [
        f"{name} " + ", ".join(f"{b} {n:.2f}" for b, n in own.items())
        for name, own in given.items()
      ]
      text += f"; passes by step {last}: {'; '.join(by_name)}"
    lines.append(text)
  return lines


def stage_text(plan: Batches, first: int, weights: Weights) -> str:
  """Returns where a stage begins, and the shares of its buckets."""
  whole = sum(weights.values())
  shares = ", ".join(
    f"{own.name} {float(weights[own.name] / whole):.3g}"
    for own in plan.buckets
    if own.name in weights
  )
  return f"from step {first}: {shares}"


def repeats(plan: Batches, stages: Stages | None) -> list[str]:
  """Returns a sentence for each bucket that a stage gives again and again.

  Args:
    plan: The run.
    stages: As in `stage_lines`.
  """
  found = []
  for begins, first, last, _ in _spans(plan, stages):
    if last is None:
      continue
    before = bucket_passes(plan, first)
    for name, own in bucket_passes(plan, last).items():
      for bucket, number in own.items():
        times = number - before[name][bucket]
        if times > mix_options.MANY_PASSES:
          found.append(
            f"the stage from step {begins} gives bucket {bucket} of {name}"
            f" {times:.1f} times over until step {last}: it has"
            f" {plan.datasets[name].counts[bucket]} samples. Lower its weight,"
            " shorten the stage, or add data"
          )
  return found


def _spans(
  plan: Batches, stages: Stages | None
) -> Iterator[tuple[int, int, int | None, Weights]]:
  """Yields stages of a run, with weights.

  Each with its own first step, which is a data step, the first step that reads
  it, and the step after the last that does, or None.
  """
  known = list(stages or ())
  begins = [plan.steps.before(at) for at, _ in known]
  end = plan.num_steps
  ends = [*begins[1:], end][: len(begins)]
  for (at, weights), first, last in zip(known, begins, ends, strict=True):
    if end is not None:
      last = end if last is None else min(last, end)
    if end is None or first < end:
      yield at, first, last, weights


def bucket_passes(plan: Batches, step: int) -> dict[str, dict[str, float]]:
  """Returns how often each bucket of each dataset was passed before a step.

  Args:
    plan: The run.
    step: At most the number of steps of the run.
  """
  return {
    name: {
      bucket: count / plan.datasets[name].counts[bucket]
      for bucket, count in own.items()
      if plan.datasets[name].counts.get(bucket)
    }
    for name, own in plan.counts(plan.steps.data_step(step)).items()
  }
