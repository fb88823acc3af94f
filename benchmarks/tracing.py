# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Tracing: one document at a far step, and all documents of many steps.

    python benchmarks/tracing.py

A store of 10**6 documents (median 60 tokens, lognormal), rows of 512, batches
of 64, for ever. By kind of rows, order, mix and bucket, in CPU seconds of one
core, so that a busy machine changes little:

- document: the next 10 visits of a document from step 10**6 on, and how often
  it was handed out before, of a run that was just built;
- exposures: how often each document is in the first 10**6 steps;
- lists: 10,000 of the documents of each of these mixes at once, in seconds.

Side indexes are built before. Ten minutes on one core.
"""

import json
import pathlib
import time
from typing import Any

from absl import flags
import corpora
import harness
import kinds

from chomp_data import pipeline
from chomp_data.audit import document_lists
from chomp_data.audit import overlap
from chomp_data.audit import visits

_KINDS = flags.DEFINE_multi_string("kind", None, "A run; by default all.")

_MEDIAN = 60  # tokens of a document
_SEQ_LEN, _BATCH = 512, 64
_LENGTHS = (64, 128, 256, 512)
_NAMES = (
  "sequential, none", "sequential, block", "sequential, full",
  "sequential, documents by block each epoch",
  "sequential, all documents each epoch", "bin ffd, block",
  "bin ffd, block in lanes", "bin exact, full",
  "bin exact, documents by block each epoch", "windows, full", "splices, era",
  "splices that roll, full",
)  # fmt: skip


def runs(path: str, step: int) -> dict[str, dict[str, Any]]:
  """Returns `config.data` of every run; stages begin at two fifths of it."""
  found = {
    name: kinds.of_rows(
      {"web": {"store": path, **kinds.source(name)}}, _SEQ_LEN, _BATCH
    )
    for name in _NAMES
  }
  three = {
    name: {"store": path, **kinds.source(own)}
    for name, own in (
      ("web", "sequential, block"),
      ("books", "bin ffd, block"),
      ("code", "bin exact, full"),
    )
  }
  stages = kinds.stages_of(
    (0, (0.5, 0.3, 0.2)), (2 * step // 5, (0.2, 0.3, 0.5))
  )
  for unit in ("rows", "tokens"):
    mix = {"kind": "weighted", "unit": unit, "stages": stages}
    found[f"mix of three by {unit}, two stages"] = kinds.of_rows(
      three, _SEQ_LEN, _BATCH, mix=mix
    )
  curriculum = (
    (0, {str(own): 1 for own in _LENGTHS}),
    (2 * step // 5, {"128": 1, "512": 3}),
  )
  for name, own in (("", None), (", two stages", curriculum)):
    found[f"buckets of lengths{name}"] = kinds.of_lengths(
      {"web": path}, _LENGTHS, 32_768, own
    )
  return found


def measured(
  name: str, data: dict[str, Any], document: int, step: int
) -> list[str]:
  """Returns a line of the table."""
  pipeline.build(data)  # Side indexes are there from then on.
  pipe = pipeline.build(data)
  source = pipe.source_names[0]
  known = overlap.documents_read(pipe.sources[source])
  if known is not None:
    document = int(known[document % len(known)])
  found = []
  took = harness.cpu_s(
    lambda: found.extend(visits.visits(pipe, source, document, step, count=10))
  )
  all_took = harness.cpu_s(
    lambda: [visits.exposures(pipe, own, 0, step) for own in pipe.source_names]
  )
  before = found[0].exposure - 1 if found else 0
  return [name, f"{before:,}", f"{took:.3g}", f"{all_took:.3g}"]


def traces(directory: pathlib.Path) -> harness.Table:
  """Measures every run."""
  small = harness.SMALL.value
  count, step = (2_000, 1_000) if small else (1_000_000, 1_000_000)
  path = directory / f"documents-{count}"
  corpora.make_corpus(path, count, median=_MEDIAN)
  lines = [["run", "handed out before", "document, s", "exposures, s"]]
  configs = runs(str(path), step)
  for name in harness.chosen(configs, _KINDS.value):
    harness.add_line(lines, measured(name, configs[name], count // 8, step))
  title = (
    f"tracing: {count:,} documents, step {step:,}, batches of {_BATCH} rows of"
    f" {_SEQ_LEN}; CPU seconds"
  )
  return title, lines


def lists(directory: pathlib.Path) -> harness.Table:
  """Measures the answer about a list of documents, of a run just built."""
  small = harness.SMALL.value
  count, step = (2_000, 1_000) if small else (1_000_000, 1_000_000)
  listed = 100 if small else 10_000
  path = directory / f"documents-{count}"
  corpora.make_corpus(path, count, median=_MEDIAN)
  lines = [["run", "documents", "exposures", "trained", "seconds", "CPU s"]]
  for name, data in runs(str(path), step).items():
    if not name.startswith("mix") or name not in (_KINDS.value or [name]):
      continue
    pipeline.build(data)  # Side indexes are there from then on.
    pipe = pipeline.build(data)
    file = directory / "list.jsonl"
    with file.open("w") as out:
      for number in range(listed):
        source = pipe.source_names[number % len(pipe.source_names)]
        document = number * count // listed
        line = {"source": source, "document": document}
        out.write(json.dumps(line) + "\n")
    answers = []
    begin = time.monotonic()
    took = harness.cpu_s(
      lambda pipe=pipe, file=file, answers=answers: answers.append(
        document_lists.answer(pipe, str(file), step, step // 2).summary
      )
    )
    seconds = time.monotonic() - begin
    (summary,) = answers
    harness.add_line(
      lines,
      [
        name,
        f"{summary['documents']:,}",
        f"{summary['exposures']:,}",
        f"{summary['trained_share']:.3%}",
        f"{seconds:.3g}",
        f"{took:.3g}",
      ],
    )
  title = f"lists: {listed:,} documents, the first {step:,} steps"
  return title, lines


if __name__ == "__main__":
  harness.run({"traces": traces, "lists": lists})
