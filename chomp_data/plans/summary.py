# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The log lines that describe a run."""

from collections.abc import Iterator
from collections.abc import Mapping
import fractions

from chomp_data.mix import mix_options
from chomp_data.plans import batches_plan
from chomp_data.plans import plan as plan_lib
from chomp_data.plans import rows_plan

_Weights = Mapping[str, fractions.Fraction]


def describe(plan: plan_lib.Plan) -> list[str]:
  """Returns the lines for the log, the shapes of batches first."""
  if isinstance(plan, batches_plan.BatchesPlan):
    return [
      f"in {len(plan.buckets)} static shapes"
      f" ({plan.fingerprints['buckets']['kind']}), by"
      f" {plan.fingerprints['mix']['unit']}",
      *_bucket_lines(plan),
      *_stage_lines(plan),
      *(dataset.describe() for dataset in plan.datasets.values()),
    ]
  assert isinstance(plan, rows_plan.RowsPlan)
  steps = plan.steps
  shapes = [f"[{size}, {plan.rows.seq_len}]" for _, size in steps.sizes]
  later = zip(shapes[1:], steps.sizes[1:], strict=True)
  lines = [
    ", ".join(
      [
        shapes[0],
        *(f"{shape} from step {steps.before(at)}" for shape, (at, _) in later),
      ]
    )
  ]
  if plan.num_rows is not None and plan.remainder == "drop":
    end = plan.data_steps_of(plan.num_rows)
    lost = plan.num_rows - steps.first_row(end)
    lines.append(f"  remainder drop: {lost} rows at the end fill no step")
  return [*lines, plan.rows.describe()]


def _bucket_lines(plan: batches_plan.BatchesPlan) -> list[str]:
  """Returns a line for each bucket: its shape, and its batches in an epoch."""
  datasets, batches = plan.datasets, plan.schedule.batches_per_epoch
  lines = []
  for number, bucket in enumerate(plan.buckets):
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
  sizes = [bucket.batch_size for bucket in plan.buckets]
  lost = num_samples - int((batches * sizes).sum())
  if lost > 0:
    lines.append(
      f"  remainder drop: {lost} of {num_samples} samples of an epoch fill no"
      " batch"
    )
  return lines


def _stage_lines(plan: batches_plan.BatchesPlan) -> list[str]:
  """Returns a line for each stage of a curriculum, with epochs of buckets."""
  lines = []
  for begins, _, last, weights in _spans(plan):
    text = f"  {_stage_text(plan, begins, weights)}"
    if last is not None:
      by_name = [
        f"{name} " + ", ".join(f"{b} {n:.2f}" for b, n in by_bucket.items())
        for name, by_bucket in bucket_epochs(plan, last).items()
      ]
      text += f"; passes by step {last}: {'; '.join(by_name)}"
    lines.append(text)
  return lines


def bucket_stages(plan: plan_lib.Plan) -> list[tuple[int, str]]:
  """Returns (from data step, text) of each stage of a curriculum."""
  if not isinstance(plan, batches_plan.BatchesPlan):
    return []
  stages = plan.bucket_stages or ()
  return [(at, _stage_text(plan, at, weights)) for at, weights in stages]


def _stage_text(
  plan: batches_plan.BatchesPlan, first: int, weights: _Weights
) -> str:
  """Returns where a stage begins, and the shares of its buckets."""
  total_weight = sum(weights.values())
  shares = ", ".join(
    f"{bucket.name} {float(weights[bucket.name] / total_weight):.3g}"
    for bucket in plan.buckets
    if bucket.name in weights
  )
  return f"from step {first}: {shares}"


def repeat_warnings(plan: plan_lib.Plan) -> list[str]:
  """Returns a sentence for each bucket that a stage repeats very often."""
  lines: list[str] = []
  if not isinstance(plan, batches_plan.BatchesPlan):
    return lines
  for begins, first, last, _ in _spans(plan):
    if last is None:
      continue
    epochs_before = bucket_epochs(plan, first)
    for name, by_bucket in bucket_epochs(plan, last).items():
      for bucket, number in by_bucket.items():
        times = number - epochs_before[name][bucket]
        if times > mix_options.MANY_EPOCHS:
          lines.append(
            f"{plan.path}.buckets.stages: the stage from step {begins} gives"
            f" bucket {bucket} of {name}"
            f" {times:.1f} times over until step {last}: it has"
            f" {plan.datasets[name].counts[bucket]} samples. Lower its weight,"
            " shorten the stage, or add data."
          )
  return lines


def _spans(
  plan: batches_plan.BatchesPlan,
) -> Iterator[tuple[int, int, int | None, _Weights]]:
  """Yields (from_step, first, last, weights) of each stage that a run reaches.

  `from_step` is a data step. The steps first to last - 1 read the stage; last
  is None if the run has no end.
  """
  stages = list(plan.bucket_stages or ())
  begins = [plan.steps.before(at) for at, _ in stages]
  end = plan.num_steps
  ends = [*begins[1:], end][: len(begins)]
  for (at, weights), first, last in zip(stages, begins, ends, strict=True):
    if end is not None:
      last = end if last is None else min(last, end)
    if end is None or first < end:
      yield at, first, last, weights


def bucket_epochs(
  plan: plan_lib.Plan, step: int
) -> dict[str, dict[str, float]]:
  """Returns how many epochs of each bucket a run has consumed before a step.

  Args:
    plan: The run.
    step: At most the number of steps of the run.

  Returns:
    By source and bucket; empty for runs without buckets.
  """
  if not isinstance(plan, batches_plan.BatchesPlan):
    return {}
  return {
    name: {
      bucket: count / plan.datasets[name].counts[bucket]
      for bucket, count in by_bucket.items()
      if plan.datasets[name].counts.get(bucket)
    }
    for name, by_bucket in plan.counts(plan.steps.data_step(step)).items()
  }
