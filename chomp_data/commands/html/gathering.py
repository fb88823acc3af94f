# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What a page shows of a run's steps, as JSON values.

Everything that is not of single tokens comes from plans: with `plan_only` no
token is read.
"""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from chomp_data import pipeline
from chomp_data import schema
from chomp_data.audit import steps as steps_lib
from chomp_data.audit import visits
from chomp_data.commands import pictures
from chomp_data.commands.html import packing
from chomp_data.commands.html import texts as texts_lib
from chomp_data.commands.inspecting import records
from chomp_data.loading import state as state_lib
from chomp_data.rows import spans as spans_lib

# Positions of all steps: pages of more are slow to open (30 MB).
MOST_POSITIONS = 1 << 23
# Pictures of a step.
MOST_PICTURES = 64
# Where a page has more documents they are not looked for in the whole run,
# nor those of which that takes long.
_MOST_TRACED = 64
_MOST_TRACE_S = 0.05
# Bits of the flags of a span; above them is the number of its sentinel, from 1.
_BOS, _EOS, _MASKED, _SENTINEL = 1, 2, 4, 3


def gathered(
  pipe: pipeline.Pipeline,
  steps: range,
  *,
  num_rows: int | None = None,
  history: int = 0,
  plan_only: bool = False,
  decoders: Mapping[str, Any] | None = None,
  document: tuple[str, int] | None = None,
) -> dict[str, Any]:
  """Returns all that a page shows.

  Args:
    pipe: The run.
    steps: The steps shown.
    num_rows: Rows shown of each step, at most; None is all.
    history: Steps before whose shares of sources are shown too.
    plan_only: Whether to read no token.
    decoders: The sources' tokenizers by name; None where a store has none.
    document: A source and the number of a document, or of a sample, that is
      lit at first; None is none.

  Raises:
    ConfigError: If the page would be too large.
  """
  values: dict[str, Any] = {
    "steps": [],
    "run": {
      "summary": pipe.describe(),
      "fingerprint": state_lib.digest(pipe.fingerprint)[:16],
      "num_steps": pipe.num_steps,
    },
    "sources": pipe.source_names,
    "plan_only": plan_only,
    "kind": "text" if pipe.sources else "arrays",
    # Such a page opens on what is trained on.
    "labelled": any(
      source.store.opened.labels is not None for source in pipe.sources.values()
    ),
    "lit": None,
  }
  if not pipe.sources:
    values["steps"] = [
      _pictures(pipe, step, num_rows or MOST_PICTURES, plan_only, document)
      for step in steps
    ]
    return values
  documents = _Documents(pipe)
  tables, table_of = _tables(pipe, decoders or {})
  for step, spans in zip(steps, _planned(pipe, steps, num_rows), strict=True):
    batch = {} if plan_only else pipe.canonical(step)
    batch = {name: value[: spans.num_rows] for name, value in batch.items()}
    values["steps"].append(
      {
        "step": step,
        **records.data_step(pipe, step),
        "rows": spans.num_rows,
        "length": _row_length(pipe, step),
        "bucket": pipe.bucket_of(step)[1]
        if pipe.run_options.kind != "rows"
        else None,
        "spans": _spans(spans, documents),
        **_layers(spans, batch, _row_length(pipe, step), tables, table_of),
      }
    )
  values["documents"] = documents.values()
  values["tables"] = [table.table() for table in tables]
  values["table_of"] = table_of
  values["history"] = _history(pipe, steps, history)
  values["visits"] = _visits(pipe, steps, documents.pairs, document)
  if document in documents.pairs:
    values["lit"] = documents.pairs.index(document)
  return values


def _row_length(pipe: pipeline.Pipeline, step: int) -> int:
  """Returns the positions of the rows of a step of text."""
  return pipe.buckets[pipe.run_plan.planned(step).bucket].shape[0]


def _planned(
  pipe: pipeline.Pipeline, steps: range, num_rows: int | None
) -> list[spans_lib.Spans]:
  """Returns the spans of what is shown; raises where it is too much."""
  planned = []
  for step in steps:
    spans = pipe.plan(step)
    if num_rows is not None and num_rows < spans.num_rows:
      spans = spans.rows(0, num_rows)
    planned.append(spans)
  positions = sum(
    spans.num_rows * _row_length(pipe, step)
    for step, spans in zip(steps, planned, strict=True)
  )
  if positions > MOST_POSITIONS:
    raise schema.ConfigError(
      [
        f"`--html` must be of at most {MOST_POSITIONS:,} positions, got"
        f" {positions:,} in {len(steps)} steps. Lower `--count`, or say how"
        " many `--rows`."
      ]
    )
  return planned


class _Documents:
  """The documents of a page, each with a number of its own."""

  def __init__(self, pipe: pipeline.Pipeline):
    self._names = pipe.source_names
    self._stores = [source.store for source in pipe.sources.values()]
    self._numbers: dict[tuple[int, int], int] = {}

  def numbers(self, source: np.ndarray, document: np.ndarray) -> np.ndarray:
    """Returns the numbers of documents, new ones included."""
    known = self._numbers
    pairs = zip(source.tolist(), document.tolist(), strict=True)
    return np.asarray(
      [known.setdefault(pair, len(known)) for pair in pairs], np.int64
    )

  @property
  def pairs(self) -> list[tuple[str, int]]:
    """The source and the number in it of each."""
    return [(self._names[name], number) for name, number in self._numbers]

  def values(self) -> dict[str, Any]:
    """Returns source, number, id and length of each."""
    pairs = np.asarray([*self._numbers], np.int64).reshape(-1, 2)
    ids = np.empty(len(pairs), object)
    lengths = np.empty(len(pairs), np.int64)
    for number, store in enumerate(self._stores):
      of_source = np.flatnonzero(pairs[:, 0] == number)
      ids[of_source] = store.document_ids(pairs[of_source, 1])
      lengths[of_source] = store.bounds(pairs[of_source, 1])[1]
    return {
      "source": packing.packed(pairs[:, 0]),
      "number": packing.packed(pairs[:, 1]),
      "length": packing.packed(lengths),
      "id": ids.tolist(),
    }


def _tables(
  pipe: pipeline.Pipeline, decoders: Mapping[str, Any]
) -> tuple[list[texts_lib.Texts], list[int]]:
  """Returns texts by tokenizer, and the tokenizer of each source, -1 = none."""
  tables: dict[str, texts_lib.Texts] = {}
  table_of = []
  for name, source in pipe.sources.items():
    decoder = decoders.get(name)
    if decoder is None:
      table_of.append(-1)
      continue
    key = source.store.opened.tokenizer.sha256
    if key not in tables:
      tables[key] = texts_lib.Texts(decoder.decode)
    table_of.append(list(tables).index(key))
  return list(tables.values()), table_of


def _spans(spans: spans_lib.Spans, documents: _Documents) -> dict[str, Any]:
  flags = np.zeros(len(spans), np.int64)
  for added in (spans.added_before, spans.added_after):
    if added is not None:
      flags += _BOS * (added == spans_lib.BOS) + _EOS * (added == spans_lib.EOS)
      sentinel = added.astype(np.int64) - spans_lib.SENTINEL + 1
      flags |= np.maximum(sentinel, 0) << _SENTINEL
  if spans.masked is not None:
    flags += _MASKED * spans.masked
  return {
    "row": packing.packed(spans.row),
    "source": packing.packed(spans.source),
    "document": packing.packed(documents.numbers(spans.source, spans.document)),
    "start": packing.packed(spans.start),
    "size": packing.packed(spans.length),
    "column": packing.packed(spans.column),
    "segment": packing.packed(spans.segment),
    "flags": packing.packed(flags),
  }


def _layers(
  spans: spans_lib.Spans,
  batch: Mapping[str, np.ndarray],
  row_length: int,
  tables: list[texts_lib.Texts],
  table_of: list[int],
) -> dict[str, Any]:
  """Returns what there is of single tokens: ids, texts, mask, positions."""
  if not batch:
    return {}
  tokens = batch["tokens"].reshape(-1)
  joins: list[tuple[int, int, int]] = []
  for number, table in enumerate(tables):
    of_source = np.flatnonzero(np.asarray(table_of)[spans.source] == number)
    begin = (spans.row * row_length + spans.column)[of_source]
    joins += table.add(tokens, begin, begin + spans.length[of_source])
  joins.sort()
  columns = np.asarray(joins, np.int64).reshape(-1, 3).T
  layers = {
    "tokens": packing.packed(tokens),
    "joins": {
      name: packing.packed(column)
      for name, column in zip(("at", "count", "text"), columns, strict=True)
    },
    "loss_mask": packing.packed(batch["loss_mask"]),
    "positions": packing.lines(batch["positions"], row_length),
  }
  if "loss_weight" in batch:
    layers["loss_weight"] = packing.levels(batch["loss_weight"], row_length)
  return layers


def _history(
  pipe: pipeline.Pipeline, steps: range, before: int
) -> dict[str, Any]:
  """Returns the tokens of each source at steps up to the last one shown."""
  first = max(0, steps.start - before)
  tokens = np.zeros((steps.stop - first, len(pipe.source_names)), np.int64)
  for i, step in enumerate(range(first, steps.stop)):
    live = pipe.plan(step).live()
    np.add.at(tokens[i], live.source, live.tokens())
  return {"first": first, "tokens": packing.packed(tokens)}


def _visits(
  pipe: pipeline.Pipeline,
  steps: range,
  documents: Sequence[tuple[str, int]],
  lit: tuple[str, int] | None,
) -> dict[int, dict[str, int | None]]:
  """Returns when documents come before and after what is shown, by number."""
  records = {}
  for number, document in enumerate(documents):
    if document != lit and len(documents) > _MOST_TRACED:
      continue
    trail = visits.Visits(pipe, *document)
    if document != lit and trail.cost(steps.stop) > _MOST_TRACE_S:
      continue
    before = next(trail.previous_visits(steps.start), None)
    after = next(trail.next_visits(steps.stop), None)
    records[number] = {
      "before": before.exposure if before else 0,
      "last": before.step if before else None,
      "next": after.step if after else None,
    }
  return records


def _pictures(
  pipe: pipeline.Pipeline,
  step: int,
  num_rows: int,
  plan_only: bool,
  lit: tuple[str, int] | None,
) -> dict[str, Any]:
  """Returns the samples of a step of arrays, and their pictures."""
  source, bucket = pipe.bucket_of(step)
  all_samples = pipe.run_plan.planned(step).samples
  assert all_samples is not None
  samples = all_samples[:num_rows]
  batch = {} if plan_only else pipe.batch(step)
  rows: list[dict[str, Any]] = [{} for _ in samples]
  for name, value in batch.items():
    for row, item in zip(rows, value[: len(samples)], strict=True):
      if value.ndim == 1:
        row[name] = item.item() if np.isfinite(item) else None
      else:
        row[name] = f"{item.dtype}{list(item.shape)}"
  samples_record: dict[str, Any] = {
    "step": step,
    "source": source,
    "bucket": bucket,
    "rows": len(all_samples),
    "samples": rows,
    "filler": [sample < 0 for sample in samples.tolist()],
    "lit": [
      (source, number) == lit
      for number in steps_lib.sample_numbers(pipe, step)[:num_rows].tolist()
    ],
  }
  value = next((field for field in batch.values() if field.ndim > 1), None)
  if value is not None:
    size = int(batch["height"][0]), int(batch["width"][0])
    drawn = [pictures.picture(sample, size) for sample in value[: len(samples)]]
    samples_record["height"], samples_record["width"] = drawn[0].shape[:2]
    samples_record["pictures"] = [packing.packed(picture) for picture in drawn]
  return samples_record
