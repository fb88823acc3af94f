# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The log lines that describe a run in buckets."""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

from chomp_data.bucket import dataset as dataset_lib
from chomp_data.bucket import schedule as schedule_lib
from chomp_data.mix import mix_options
from chomp_data.plans import mix as mix_lib
from chomp_data.plans import plan as plan_lib
from chomp_data.rows import buckets as buckets_lib

# The datasets of a run by name.
Datasets = Mapping[str, dataset_lib.Dataset]


def bucket_lines(
  datasets: Datasets,
  buckets: Sequence[buckets_lib.Bucket],
  schedule: schedule_lib.BucketSchedule,
) -> list[str]:
  """Returns a line for each bucket: its shape, and its batches in an epoch."""
  batches = schedule.batches_per_epoch
  lines = []
  for number, bucket in enumerate(buckets):
    parts = []
    for i, (name, dataset) in enumerate(datasets.items()):
      count = dataset.counts.get(bucket.name, 0)
      num_batches = int(batches[i, number])
      text = f"{name} {count} samples in {num_batches} batches"
      tokens = (dataset.tokens_by_bucket() or {}).get(bucket.name)
      if tokens is not None and num_batches:
        # Padding rows of an incomplete last batch count as padding too.
        delivered_share = min(1.0, num_batches * bucket.batch_size / count)
        positions = num_batches * bucket.batch_size * bucket.shape[0]
        text += f" ({1 - tokens * delivered_share / positions:.1%} padding)"
      parts.append(text)
    lines.append(f"  bucket {bucket}, an epoch: {', '.join(parts)}")
  num_samples = sum(sum(data.counts.values()) for data in datasets.values())
  sizes = [bucket.batch_size for bucket in buckets]
  lost = num_samples - int((batches * sizes).sum())
  if lost > 0:
    lines.append(
      f"  remainder drop: {lost} of {num_samples} samples of an epoch fill no"
      " batch"
    )
  return lines


def stage_lines(
  plan: plan_lib.Plan, datasets: Datasets, stages: mix_lib.Stages | None
) -> list[str]:
  """Returns a line for each stage of a curriculum, with passes over buckets.

  Args:
    plan: The run.
    datasets: Its datasets.
    stages: (from_step, weights of buckets), or None.
  """
  lines = []
  for begins, _, last, weights in _spans(plan, stages):
    text = f"  {stage_text(plan, begins, weights)}"
    if last is not None:
      passes = bucket_passes(plan, datasets, last)
      by_name = [
        f"{name} " + ", ".join(f"{b} {n:.2f}" for b, n in by_bucket.items())
        for name, by_bucket in passes.items()
      ]
      text += f"; passes by step {last}: {'; '.join(by_name)}"
    lines.append(text)
  return lines


def stage_text(
  plan: plan_lib.Plan, first: int, weights: mix_lib.Weights
) -> str:
  """Returns where a stage begins, and the shares of its buckets."""
  total_weight = sum(weights.values())
  shares = ", ".join(
    f"{bucket.name} {float(weights[bucket.name] / total_weight):.3g}"
    for bucket in plan.buckets
    if bucket.name in weights
  )
  return f"from step {first}: {shares}"


def repeats(
  plan: plan_lib.Plan, datasets: Datasets, stages: mix_lib.Stages | None
) -> list[str]:
  """Returns a warning for each bucket that a stage passes very often.

  Args:
    plan: The run.
    datasets: Its datasets.
    stages: As in `stage_lines`.
  """
  lines = []
  for begins, first, last, _ in _spans(plan, stages):
    if last is None:
      continue
    before = bucket_passes(plan, datasets, first)
    for name, by_bucket in bucket_passes(plan, datasets, last).items():
      for bucket, number in by_bucket.items():
        times = number - before[name][bucket]
        if times > mix_options.MANY_PASSES:
          lines.append(
            f"the stage from step {begins} gives bucket {bucket} of {name}"
            f" {times:.1f} times over until step {last}: it has"
            f" {datasets[name].counts[bucket]} samples. Lower its weight,"
            " shorten the stage, or add data"
          )
  return lines


def _spans(
  plan: plan_lib.Plan, stages: mix_lib.Stages | None
) -> Iterator[tuple[int, int, int | None, mix_lib.Weights]]:
  """Yields (from_step, first, last, weights) of each stage that a run reaches.

  `from_step` is a data step. The steps first to last - 1 read the stage; last
  is None if the run has no end.
  """
  known_stages = list(stages or ())
  begins = [plan.steps.before(at) for at, _ in known_stages]
  end = plan.num_steps
  ends = [*begins[1:], end][: len(begins)]
  for (at, weights), first, last in zip(
    known_stages, begins, ends, strict=True
  ):
    if end is not None:
      last = end if last is None else min(last, end)
    if end is None or first < end:
      yield at, first, last, weights


def bucket_passes(
  plan: plan_lib.Plan, datasets: Datasets, step: int
) -> dict[str, dict[str, float]]:
  """Returns how often each bucket of each dataset was passed before a step.

  Args:
    plan: The run.
    datasets: Its datasets.
    step: At most the number of steps of the run.
  """
  return {
    name: {
      bucket: count / datasets[name].counts[bucket]
      for bucket, count in by_bucket.items()
      if datasets[name].counts.get(bucket)
    }
    for name, by_bucket in plan.counts(plan.steps.data_step(step)).items()
  }
