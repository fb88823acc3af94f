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

from collections.abc import Mapping
import copy
import pathlib
import tempfile
import time
from typing import Any
from unittest import mock

from absl import app
from absl import flags
import corpora
import tables

from chomp_data import pipeline
from chomp_data import planning
from chomp_data.audit import difference
from chomp_data.audit import forecast
from chomp_data.audit import reading
from chomp_data.plans import answers

_SMALL = flags.DEFINE_bool(
  "small", False, "Fewer documents and steps: seconds."
)
_OUTPUT = flags.DEFINE_string("output", None, "Markdown file to write.")

_SEQ_LEN, _BATCH = 2_048, 64
_NAMES = ("web", "books", "code")
_SHUFFLES = ({"kind": "none"}, {"kind": "block"}, {"kind": "full"})
_ROWS: Mapping[str, dict[str, Any]] = {
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


def _rows(rows: dict[str, Any], shuffle: dict[str, Any]) -> dict[str, Any]:
  source = {"store": "web", "rows": rows, "shuffle": shuffle}
  return {
    "seq_len": _SEQ_LEN,
    "global_batch_size": _BATCH,
    "epochs": None,
    "sources": {"web": source},
  }


def _mix(unit: str, steps: int) -> dict[str, Any]:
  data = _rows({"kind": "bin"}, {"kind": "block"})
  source = data["sources"]["web"]
  data["sources"] = {name: {**source, "store": name} for name in _NAMES}
  weights = dict(zip(_NAMES, (5, 3, 2), strict=True))
  last = dict(zip(_NAMES, (1, 1, 1), strict=True))
  data["mix"] = {"unit": unit, "stages": [(0, weights), (steps // 2, last)]}
  return data


def _buckets(unit: str, steps: int, staged: bool) -> dict[str, Any]:
  lengths = (512, 1_024, 2_048, 4_096)
  buckets: dict[str, Any] = {
    "kind": "length",
    "lengths": lengths,
    "tokens_per_batch": _BATCH * _SEQ_LEN,
  }
  if staged:
    first = {str(own): 1 for own in lengths[:2]}
    last = {str(own): 1 for own in lengths}
    buckets["stages"] = [(0, first), (steps // 2, last)]
  return {
    "epochs": None,
    "buckets": buckets,
    "sources": {name: {"store": name} for name in _NAMES[:2]},
    "mix": {"weights": {"web": 1, "books": 2}, "unit": unit},
  }


def kinds(steps: int) -> dict[str, dict[str, Any]]:
  """Returns `config.data` by what it is called in the table."""
  out = {
    f"{name}, {shuffle['kind']}": _rows(rows, shuffle)
    for name, rows in _ROWS.items()
    for shuffle in _SHUFFLES
    if "reshuffled" not in name or shuffle["kind"] == "block"
  }
  for unit in ("tokens", "rows", "loss_tokens"):
    out[f"mix of 3, two stages, by {unit}"] = _mix(unit, steps)
  for unit in ("tokens", "samples"):
    out[f"buckets of lengths, by {unit}"] = _buckets(unit, steps, False)
  out["buckets, a curriculum"] = _buckets("tokens", steps, True)
  return out


def _changed(data: dict[str, Any], steps: int) -> dict[str, Any]:
  """Returns a run with another end; without stages, with another seed."""
  data = copy.deepcopy(data)
  stages = data.get("mix", {}).get("stages")
  if stages is None:
    return {**data, "seed": 1}
  stages.append((steps - 100, {"web": 1}))
  return data


def _seconds(question: Any) -> str:
  began = time.process_time()
  question()
  return f"{time.process_time() - began:.1f}"


def measured(
  directory: pathlib.Path, documents: int, steps: int
) -> tables.Table:
  """Asks all questions of all kinds."""
  stores = {
    name: corpora.LengthsStore(directory / name, documents, seed=i)
    for i, name in enumerate(_NAMES)
  }
  lines = [["run", "epochs", "accounts", "reads", "diff"]]
  with mock.patch.object(
    planning, "_open", lambda source: [stores[source.store]]
  ):
    for name, data in kinds(steps).items():
      # Its indexes are made once, and kept beside the store.
      pipeline.build(data).accounts.at(1)
      pipe = pipeline.build(data)
      other = pipeline.build(_changed(data, steps))
      cells = [
        _seconds(lambda pipe=pipe: forecast.forecast(pipe, steps)),
        _seconds(lambda pipe=pipe: reading.fetched(pipe, steps)),
        "-"
        if name.endswith("none")
        else _seconds(
          lambda pipe=pipe, other=other: difference.difference(
            pipe, other, steps
          )
        ),
      ]
      rows = pipe.accounts.rows(steps)
      epochs = max(
        answers.of(pipe.run_plan).passes(source, count)
        for source, count in rows.items()
      )
      lines.append([name, f"{epochs:.0f}", *cells])
      print(*lines[-1], sep=" | ", flush=True)
  return f"answers about {steps:,} steps of {documents:,} documents", lines


def main(argv: list[str]) -> None:
  """Prints the table."""
  if len(argv) > 1:
    raise app.UsageError(f"Unexpected arguments: {' '.join(argv[1:])}")
  documents, steps = (20_000, 2_000) if _SMALL.value else (10**6, 10**6)
  with tempfile.TemporaryDirectory() as directory:
    found = measured(pathlib.Path(directory), documents, steps)
  tables.show(found, _OUTPUT.value)


if __name__ == "__main__":
  app.run(main)
