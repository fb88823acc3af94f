# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How long answers about 10**6 steps take: simulate and diff, by kind of run.

    python benchmarks/forecasting.py

A million documents of lognormal lengths (median 500 tokens, sigma 1.2), rows of
2,048 tokens, 64 a step, 10**6 steps from the start, one process. Stores are
lengths without tokens: nothing is read. Figures are CPU seconds of the first
question to a run just built, with the indexes beside the store made before.

- accounts: rows, tokens and trained tokens by source.
- reads: chunks, requests and bytes, from a sample.
- diff: the same run with another last stage at step 10**6 - 100, or with
  another seed where that matters.

Five minutes of one CPU core.
"""

import copy
import pathlib
from typing import Any
from unittest import mock

import corpora
import harness
import kinds

from chomp_data import pipeline
from chomp_data import planning
from chomp_data.audit import difference
from chomp_data.audit import forecast
from chomp_data.audit import reading
from chomp_data.plans import answers

_BATCH = 64
_NAMES = ("web", "books", "code")
_ROWS: dict[str, dict[str, Any]] = {
  "sequential": {"kind": "sequential"},
  "sequential, reshuffled": {
    "kind": "sequential",
    "shuffle_documents": "block",
  },
  "bin ffd": {"kind": "bin"},
  "bin exact": {"kind": "bin", "packing_algorithm": "exact"},
  "windows": {"kind": "windows"},
  "multi_splice": {"kind": "multi_splice", "num_docs": 1_000},
}


def runs(steps: int) -> dict[str, dict[str, Any]]:
  """Returns `config.data` by what it is called in the table."""

  def of(sources: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return kinds.of_rows(sources, harness.SEQ_LEN, _BATCH, **fields)

  out = {
    f"{name}, {shuffle}": of(
      {"web": {"store": "web", "rows": rows, "shuffle": {"kind": shuffle}}}
    )
    for name, rows in _ROWS.items()
    for shuffle in ("none", "block", "full")
    if "reshuffled" not in name or shuffle == "block"
  }
  three = {n: {"store": n, **kinds.source("bin ffd, block")} for n in _NAMES}
  for unit in ("tokens", "rows", "loss_tokens"):
    stages = kinds.stages_of((0, (5, 3, 2)), (steps // 2, (1, 1, 1)))
    out[f"mix of 3, two stages, by {unit}"] = of(
      three, mix={"unit": unit, "stages": stages}
    )
  lengths = (512, 1_024, 2_048, 4_096)
  curriculum = [
    (0, {str(own): 1 for own in lengths[:2]}),
    (steps // 2, {str(own): 1 for own in lengths}),
  ]
  for name, unit, stages in (
    ("buckets of lengths, by tokens", "tokens", None),
    ("buckets of lengths, by samples", "samples", None),
    ("buckets, a curriculum", "tokens", curriculum),
  ):
    out[name] = kinds.of_lengths(
      {own: own for own in _NAMES[:2]},
      lengths,
      _BATCH * harness.SEQ_LEN,
      stages,
      mix={"weights": {"web": 1, "books": 2}, "unit": unit},
    )
  return out


def _changed(data: dict[str, Any], steps: int) -> dict[str, Any]:
  """Returns a run with another end; without stages, with another seed."""
  data = copy.deepcopy(data)
  stages = data.get("mix", {}).get("stages")
  if stages is None:
    return {**data, "seed": 1}
  stages.append((steps - 100, {"web": 1}))
  return data


def measured(name: str, data: dict[str, Any], steps: int) -> list[str]:
  """Asks all questions of a run."""
  # Its indexes are made once, and kept beside the store.
  pipeline.build(data).accounts.at(1)
  pipe = pipeline.build(data)
  other = pipeline.build(_changed(data, steps))
  times = [
    harness.cpu_s(lambda: forecast.forecast(pipe, steps)),
    harness.cpu_s(lambda: reading.fetched(pipe, steps)),
  ]
  if not name.endswith("none"):
    times.append(
      harness.cpu_s(lambda: difference.difference(pipe, other, steps))
    )
  epochs = max(
    answers.of(pipe.run_plan).passes(source, count)
    for source, count in pipe.accounts.rows(steps).items()
  )
  cells = [f"{own:.1f}" for own in times]
  return [name, f"{epochs:.0f}", *cells, *["-"] * (3 - len(cells))]


def questions(directory: pathlib.Path) -> harness.Table:
  """Asks all questions of all kinds."""
  documents, steps = (20_000, 2_000) if harness.SMALL.value else (10**6, 10**6)
  stores = {
    name: corpora.LengthsStore(directory / name, documents, seed=i)
    for i, name in enumerate(_NAMES)
  }
  lines = [["run", "epochs", "accounts", "reads", "diff"]]
  with mock.patch.object(
    planning, "_open", lambda source: [stores[source.store]]
  ):
    for name, data in runs(steps).items():
      harness.add_line(lines, measured(name, data, steps))
  return f"answers about {steps:,} steps of {documents:,} documents", lines


if __name__ == "__main__":
  harness.run({"questions": questions})
