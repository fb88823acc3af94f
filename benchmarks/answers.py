# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How long answers about 10**6 steps take, by kind of run.

    python benchmarks/answers.py

Runs that never end, in CPU seconds of one core, so that a busy machine changes
little. Side indexes are built before; each answer is of a run just built.

- visits: a store of 10**6 documents (median 60 tokens), rows of 512, batches of
  64. *document* is the next 10 visits of a document from step 10**6 on, and how
  often it was read before; *exposures* is how often each document is in the
  first 10**6 steps.
- lists: 10,000 of the documents of each of these mixes at once.
- forecasts: 10**6 documents (median 500 tokens) without tokens, rows of 2,048.
  *accounts* are rows, tokens and trained tokens by source; *reads* are chunks
  and requests, from a sample; *diff* compares with a run whose last stage at
  step 10**6 - 100 is another, or its seed where there are no stages.

15 minutes on one core.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import copy
import itertools
import json
import pathlib
import time
from typing import Any
from unittest import mock

import corpora
import harness
import kinds

from chomp_data import pipeline
from chomp_data import planning
from chomp_data.audit import difference
from chomp_data.audit import document_lists
from chomp_data.audit import forecast
from chomp_data.audit import reading
from chomp_data.audit import visits as visits_lib
from chomp_data.plans import answers

_BATCH = 64
_SOURCES = ("web", "books", "code")
_VISITED = (
  "sequential, none", "sequential, block", "sequential, full",
  "sequential, documents by block each epoch",
  "sequential, all documents each epoch", "bin ffd, block",
  "bin ffd, block in lanes", "bin exact, full",
  "bin exact, documents by block each epoch", "windows, full", "splices, era",
  "splices that roll, full",
)  # fmt: skip
_FORECAST = (
  "sequential, none", "sequential, block", "sequential, full",
  "sequential, documents by block each epoch", "bin ffd, block",
  "bin ffd, documents by block each epoch", "bin exact, block",
  "bin exact, full", "windows, full", "splices of 1,000, full",
)  # fmt: skip


def runs(
  stores: Mapping[str, str],
  seq_len: int,
  step: int,
  names: Iterable[str],
  mixed: tuple[str, str, str],
  lengths: tuple[int, ...],
) -> dict[str, dict[str, Any]]:
  """Returns `config.data` of every run; stages begin at two fifths of `step`.

  Args:
    stores: Paths by source.
    seq_len: Tokens of a row.
    step: A step far on.
    names: Of `kinds.SOURCES`, runs of one source.
    mixed: Of these, what mixes of three are of.
    lengths: Of buckets.
  """
  configs = {
    name: kinds.of_rows(
      {"web": {"store": stores["web"], **kinds.source(name)}}, seq_len, _BATCH
    )
    for name in names
  }
  three = {
    source: {"store": stores[source], **kinds.source(kind)}
    for source, kind in zip(_SOURCES, mixed, strict=True)
  }
  later = 2 * step // 5
  stages = kinds.stages_of((0, (0.5, 0.3, 0.2)), (later, (0.2, 0.3, 0.5)))
  for unit in ("rows", "tokens", "loss_tokens"):
    mix = {"kind": "weighted", "unit": unit, "stages": stages}
    configs[f"mix of three by {unit}, two stages"] = kinds.of_rows(
      three, seq_len, _BATCH, mix=copy.deepcopy(mix)
    )
  curriculum = (
    (0, {str(length): 1 for length in lengths}),
    (later, {str(lengths[1]): 1, str(lengths[-1]): 3}),
  )
  for name, bucket_stages in (("", None), (", two stages", curriculum)):
    configs[f"buckets of lengths{name}"] = kinds.of_lengths(
      {"web": stores["web"]}, lengths, _BATCH * seq_len, bucket_stages
    )
  return {name: configs[name] for name in harness.chosen(configs)}


def _visited(directory: pathlib.Path) -> tuple[int, int, dict[str, Any]]:
  """Returns the documents of a store, a step far on, and runs over it."""
  count = step = harness.small(1_000_000, 2_000)
  path = directory / f"documents-{count}"
  corpora.make_corpus(path, count, median=60)
  stores = {source: str(path) for source in _SOURCES}
  mixed = ("sequential, block", "bin ffd, block", "bin exact, full")
  lengths = (64, 128, 256, 512)
  return count, step, runs(stores, 512, step, _VISITED, mixed, lengths)


def _built(data: dict[str, Any]) -> pipeline.Pipeline:
  """Returns a run that was just built, with its side indexes on disk."""
  pipeline.build(data).accounts.at(1)
  return pipeline.build(data)


def visits(directory: pathlib.Path) -> harness.Table:
  """Asks for one document, and for all."""
  count, step, configs = _visited(directory)
  lines = []
  for name, data in configs.items():
    pipe, document = _built(data), count // 8
    source = pipe.source_names[0]
    known = pipe.sources[source].documents_used()
    if known is not None:
      document = int(known[document % len(known)])
    took, next_visits = harness.cpu_s(
      lambda pipe=pipe, source=source, document=document: list(
        itertools.islice(
          visits_lib.Visits(pipe, source, document).next_visits(step), 10
        )
      )
    )
    all_took, _ = harness.cpu_s(
      lambda pipe=pipe: [
        visits_lib.exposures(pipe, source, 0, step)
        for source in pipe.source_names
      ]
    )
    before = next_visits[0].exposure - 1 if next_visits else 0
    line = {
      "run": name,
      "read before": f"{before:,}",
      "document, s": f"{took:.3g}",
      "exposures, s": f"{all_took:.3g}",
    }
    harness.add_line(lines, line)
  return f"visits: {count:,} documents, step {step:,}; CPU seconds", lines


def lists(directory: pathlib.Path) -> harness.Table:
  """Asks about a list of documents."""
  count, step, configs = _visited(directory)
  listed, file = harness.small(10_000, 100), directory / "list.jsonl"
  lines = []
  for name, data in configs.items():
    if not name.startswith("mix"):
      continue
    pipe = _built(data)
    with file.open("w") as out:
      for number in range(listed):
        source = pipe.source_names[number % len(pipe.source_names)]
        document = number * count // listed
        line = {"source": source, "document": document}
        out.write(json.dumps(line) + "\n")
    began = time.monotonic()
    took, answer = harness.cpu_s(
      lambda pipe=pipe: document_lists.answer(pipe, str(file), step, step // 2)
    )
    summary = answer.summary
    harness.add_line(
      lines,
      {
        "run": name,
        "documents": f"{summary['documents']:,}",
        "exposures": f"{summary['exposures']:,}",
        "trained": f"{summary['trained_share']:.3%}",
        "seconds": f"{time.monotonic() - began:.3g}",
        "CPU s": f"{took:.3g}",
      },
    )
  return f"lists: {listed:,} documents, the first {step:,} steps", lines


def _changed(data: dict[str, Any], step: int) -> dict[str, Any]:
  """Returns a run with another end; without stages, with another seed."""
  data = copy.deepcopy(data)
  if "stages" not in data.get("mix", {}):
    return {**data, "seed": 1}
  data["mix"]["stages"].append((step - 100, {"web": 1}))
  return data


def forecasts(directory: pathlib.Path) -> harness.Table:
  """Asks what runs will consume and read, and where two differ."""
  documents = harness.small(10**6, 20_000)
  step = harness.small(10**6, 2_000)
  stores = {
    name: corpora.LengthsStore(directory / name, documents, seed=i)
    for i, name in enumerate(_SOURCES)
  }
  configs = runs(
    {name: name for name in _SOURCES},
    harness.SEQ_LEN,
    step,
    _FORECAST,
    ("bin ffd, block", "bin ffd, block", "bin ffd, block"),
    (512, 1_024, 2_048, 4_096),
  )
  lines = []
  with mock.patch.object(
    planning, "_open", lambda source: [stores[source.store]]
  ):
    for name, data in configs.items():
      pipe, other = _built(data), pipeline.build(_changed(data, step))
      epochs = max(
        answers.of(pipe.run_plan).epochs_consumed(source, count)
        for source, count in pipe.accounts.rows(step).items()
      )
      line = {"run": name, "epochs": f"{epochs:.0f}"}
      for column, ask in {
        "accounts": lambda pipe=pipe: forecast.forecast(pipe, step),
        "reads": lambda pipe=pipe: reading.fetched(pipe, step),
        "diff": lambda pipe=pipe, other=other: difference.difference(
          pipe, other, step
        ),
      }.items():
        # Without a shuffle another seed changes nothing.
        asked = column != "diff" or not name.endswith("none")
        line[column] = f"{harness.cpu_s(ask)[0]:.1f}" if asked else "-"
      harness.add_line(lines, line)
  return f"forecasts: {step:,} steps of {documents:,} documents", lines


if __name__ == "__main__":
  harness.run(visits, lists, forecasts)
