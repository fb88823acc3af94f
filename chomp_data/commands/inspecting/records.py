# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows and samples of steps as JSON values, and what all views say of spans."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from chomp_data import pipeline
from chomp_data.audit import tracing
from chomp_data.rows import spans as spans_lib

# Fields of batches that rows of text have.
FIELDS = ("tokens", "segment_ids", "positions", "loss_mask", "loss_weight")


def json_rows(
  pipe: pipeline.Pipeline, step: int, plan_only: bool = False
) -> Iterator[dict[str, Any]]:
  """Yields one JSON object for each row of a step.

  Args:
    pipe: The run.
    step: The step.
    plan_only: Whether to leave the arrays out and read no token.
  """
  spans = pipe.plan(step)
  batch = {} if plan_only else pipe.canonical(step)
  source = spans.row_source()
  in_bucket = (
    {"bucket": pipe.bucket_of(step)[1]}
    if pipe.run_options.kind != "rows"
    else {}
  )
  named = spans_by_row(pipe, spans)
  for row in range(spans.num_rows):
    record = {
      "step": step,
      **data_step(pipe, step),
      "row": row,
      "source": None if source[row] < 0 else pipe.source_names[source[row]],
      **in_bucket,
      "spans": named[row],
    }
    record.update(
      {name: batch[name][row].tolist() for name in FIELDS if name in batch}
    )
    yield record


def spans_by_row(
  pipe: pipeline.Pipeline, spans: spans_lib.Spans
) -> list[list[dict[str, Any]]]:
  """Returns the spans of each row as plain values, with documents' ids."""
  rows: list[list[dict[str, Any]]] = [[] for _ in range(spans.num_rows)]
  span_rows = spans.row.tolist()
  for i, record in enumerate(tracing.span_records(pipe, spans)):
    # Tokens that the store lacks, counted in `length`.
    for name, added, token in (
      ("bos", spans.added_before, spans_lib.BOS),
      ("eos", spans.added_after, spans_lib.EOS),
    ):
      if added is not None and added[i] == token:
        record[name] = 1
    rows[span_rows[i]].append(record)
  return rows


def data_step(pipe: pipeline.Pipeline, step: int) -> dict[str, int]:
  """Returns which data step a step reads, where some are skipped."""
  return (
    {"data_step": pipe.run_plan.steps.data_step(step)}
    if pipe.run_plan.steps.skip
    else {}
  )


def json_samples(
  pipe: pipeline.Pipeline, step: int, plan_only: bool = False
) -> Iterator[dict[str, Any]]:
  """Yields one JSON object for each row of a step of arrays.

  Args:
    pipe: A run in buckets of sizes.
    step: The step.
    plan_only: Whether to read no array: samples then have a `number` within
      their dataset and bucket, in place of `sample_id`.
  """
  source, bucket = pipe.bucket_of(step)
  samples = pipe.run_plan.planned(step).samples
  assert samples is not None
  batch = {} if plan_only else pipe.batch(step)
  for row, sample in enumerate(samples.tolist()):
    record: dict[str, Any] = {
      "step": step,
      "row": row,
      "source": None if sample < 0 else source,
      "bucket": bucket,
    }
    if plan_only:
      record["number"] = sample
    for name, value in batch.items():
      if value.ndim == 1:
        record[name] = _json_number(value[row])
      else:
        numbers = value[row].astype(np.float64)
        record[name] = {
          "dtype": str(value.dtype),
          "shape": list(value.shape[1:]),
          "min": _json_number(numbers.min()) if numbers.size else None,
          "max": _json_number(numbers.max()) if numbers.size else None,
          "mean": _json_number(numbers.mean()) if numbers.size else None,
        }
    yield record


def _json_number(value: Any) -> Any:
  """Returns a number of NumPy, None where JSON has no word for it."""
  return value.item() if np.isfinite(value) else None
