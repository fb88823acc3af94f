# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What is in steps, span by span, and when a document comes: as JSON values."""

from collections.abc import Iterator
import itertools
from typing import Any

import numpy as np

from chomp_data import pipeline
from chomp_data.audit import naming
from chomp_data.audit import steps as steps_lib
from chomp_data.audit import visits
from chomp_data.pack import fill_in_the_middle
from chomp_data.rows import spans as spans_lib

# Documents whose ids are looked up together.
_DOCUMENTS = 1 << 16


def step_records(
  pipe: pipeline.Pipeline, first: int, last: int
) -> Iterator[dict[str, Any]]:
  """Yields one object a span of steps first .. last - 1, in order.

  A sample of arrays has a number as its `document`, and no span.
  """
  for step in range(first, last):
    about = {"step": step, "data_step": pipe.run_plan.steps.data_step(step)}
    spans = steps_lib.spans_of(pipe, step)
    for row, record in zip(
      spans.row.tolist(), span_records(pipe, spans), strict=True
    ):
      yield {**about, "row": row, **record}


def span_records(
  pipe: pipeline.Pipeline, spans: spans_lib.Spans
) -> Iterator[dict[str, Any]]:
  """Yields one object a span: its document, and which part of it is where."""
  columns = [spans.source, spans.document, naming.ids_of(pipe, spans)]
  columns += [spans.start, spans.length, spans.column]
  masked, sentinels = spans.masked, spans.sentinels()
  parts = fill_in_the_middle.parts(spans)
  for i, (source, document, identity, start, length, column) in enumerate(
    zip(*(values.tolist() for values in columns), strict=True)
  ):
    if not pipe.sources:
      yield _sample(pipe.source_names[source], document)
      continue
    yield {
      "source": pipe.source_names[source],
      "document": document,
      "id": identity,
      "start": start,
      "length": length,
      "column": column,
      # Padding now: not read, and no visit.
      **({"gone": True} if masked is not None and masked[i] else {}),
      **_rearranged(0 if sentinels is None else int(sentinels[i]), parts[i]),
    }


def visit_records(
  pipe: pipeline.Pipeline,
  source: str,
  document: int,
  from_step: int,
  count: int,
) -> Iterator[dict[str, Any]]:
  """Yields one object a visit of a document, from a step on.

  Args:
    pipe: The run.
    source: The source's name.
    document: Its number.
    from_step: The first step that is looked at.
    count: How many visits, at most.
  """
  later = visits.Visits(pipe, source, document).next_visits(from_step)
  about = _sample(source, document)
  if source in pipe.sources:
    about["id"] = pipe.sources[source].store.document_ids([document])[0]
  for visit in itertools.islice(later, count):
    yield {
      "step": visit.step,
      "data_step": visit.data_step,
      "row": visit.row,
      **about,
      "start": visit.start,
      "length": visit.length,
      "column": visit.column,
      "exposure": visit.exposure,
      **_rearranged(visit.sentinels, visit.part),
    }


def exposure_records(
  pipe: pipeline.Pipeline, source: str, counts: np.ndarray
) -> Iterator[dict[str, Any]]:
  """Yields one object a document that comes at all.

  Args:
    pipe: The run.
    source: The source's name.
    counts: int64[num_documents], as `visits.exposures` returns them.
  """
  seen = np.flatnonzero(counts)
  for low in range(0, len(seen), _DOCUMENTS):
    documents = seen[low : low + _DOCUMENTS]
    ids: list[str | None] = [None] * len(documents)
    if source in pipe.sources:
      ids = list(pipe.sources[source].store.document_ids(documents))
    for document, identity, count in zip(
      documents.tolist(), ids, counts[documents].tolist(), strict=True
    ):
      yield {
        "source": source,
        "document": document,
        "id": identity,
        "exposures": count,
      }


def _rearranged(sentinels: int, part: str | None) -> dict[str, Any]:
  """Returns what there is to tell of a span of a rearranged document."""
  record: dict[str, Any] = {}
  if sentinels:
    # Counted in `length`.
    record["sentinels"] = sentinels
  if part is not None:
    record["part"] = part
  return record


def _sample(source: str, number: int) -> dict[str, Any]:
  """Returns what there is to tell of a sample of arrays."""
  return {
    "source": source,
    "document": number,
    "id": None,
    "start": None,
    "length": None,
    "column": None,
  }
