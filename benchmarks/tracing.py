# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Tracing: one document at a far step, and all documents of many steps.

    python benchmarks/tracing.py

A store of 10**6 documents (median 60 tokens, lognormal), rows of 512, batches
of 64, for ever. By kind of rows, order, mix and bucket, in CPU seconds of one
core, so that a busy machine changes little:

- document: the next 10 visits of a document from step 10**6 on, and how often
  it was handed out before, of a run that was just built;
- exposures: how often each document is in the first 10**6 steps.

Side indexes are built before. Ten minutes on one core.
"""

from collections.abc import Sequence
import pathlib
import tempfile
import time
from typing import Any

from absl import app
from absl import flags
from absl import logging
import corpora
import tables

from chomp_data import pipeline
from chomp_data.audit import overlap
from chomp_data.audit import visits

_SMALL = flags.DEFINE_bool("small", False, "Fewer documents: seconds.")
_DIRECTORY = flags.DEFINE_string(
  "directory", None, "Where the store is kept between runs (a new one)."
)
_KINDS = flags.DEFINE_list("kinds", None, "Which runs; by default all.")
_OUTPUT = flags.DEFINE_string("output", None, "Markdown file to write.")

_MEDIAN = 60  # tokens of a document

_BLOCKS: dict[str, Any] = {"shuffle_documents": "block"}
_EXACT: dict[str, Any] = {"kind": "bin", "packing_algorithm": "exact"}
_SPLICES = {"kind": "multi_splice", "num_docs": 1_000, "content_length": 64}
_SOURCES: dict[str, dict[str, Any]] = {
  "sequential, none": {"rows": {"kind": "sequential"}},
  "sequential, block": {
    "rows": {"kind": "sequential"},
    "shuffle": {"kind": "block"},
  },
  "sequential, full": {
    "rows": {"kind": "sequential"},
    "shuffle": {"kind": "full"},
  },
  "sequential, documents by block each epoch": {
    "rows": {"kind": "sequential", **_BLOCKS},
    "shuffle": {"kind": "full"},
  },
  "sequential, all documents each epoch": {
    "rows": {"kind": "sequential", "shuffle_documents": "full"},
  },
  "bin ffd, block": {"rows": {"kind": "bin"}, "shuffle": {"kind": "block"}},
  "bin ffd, block in lanes": {
    "rows": {"kind": "bin"},
    "shuffle": {"kind": "block", "lanes": 8},
  },
  "bin exact, full": {"rows": _EXACT, "shuffle": {"kind": "full"}},
  "bin exact, documents by block each epoch": {
    "rows": {**_EXACT, **_BLOCKS},
    "shuffle": {"kind": "block"},
  },
  "windows, full": {"rows": {"kind": "windows"}, "shuffle": {"kind": "full"}},
  "splices, era": {
    "rows": _SPLICES,
    "shuffle": {"kind": "era", "era_length": 1_000},
  },
  "splices that roll, full": {
    "rows": {
      **_SPLICES, "content_start_mode": "cyclic_roll", "offset_stride": 64,
    },
    "shuffle": {"kind": "full"},
  },
}  # fmt: skip


def runs(path: str, step: int) -> dict[str, dict[str, Any]]:
  """Returns `config.data` of every run; stages begin at two fifths of it."""
  one = {"seq_len": 512, "global_batch_size": 64, "epochs": None}
  found = {
    name: {**one, "sources": {"web": {"store": path, **own}}}
    for name, own in _SOURCES.items()
  }
  three = {
    "web": _SOURCES["sequential, block"],
    "books": _SOURCES["bin ffd, block"],
    "code": _SOURCES["bin exact, full"],
  }
  for unit in ("rows", "tokens"):
    found[f"mix of three by {unit}, two stages"] = {
      **one,
      "sources": {n: {"store": path, **own} for n, own in three.items()},
      "mix": {
        "kind": "weighted",
        "unit": unit,
        "stages": (
          (0, {"web": 0.5, "books": 0.3, "code": 0.2}),
          (2 * step // 5, {"web": 0.2, "books": 0.3, "code": 0.5}),
        ),
      },
    }
  lengths = (64, 128, 256, 512)
  buckets: dict[str, Any] = {
    "epochs": None,
    "sources": {"web": {"store": path}},
    "buckets": {
      "kind": "length", "lengths": lengths, "tokens_per_batch": 32_768,
    },
  }  # fmt: skip
  found["buckets of lengths"] = buckets
  stages = (
    (0, {str(own): 1 for own in lengths}),
    (2 * step // 5, {"128": 1, "512": 3}),
  )
  found["buckets of lengths, two stages"] = {
    **buckets, "buckets": {**buckets["buckets"], "stages": stages},
  }  # fmt: skip
  return found


def measured(
  name: str, data: dict[str, Any], document: int, step: int
) -> list[str]:
  """Returns a line of the table."""
  pipe = pipeline.build(data)
  source = pipe.source_names[0]
  known = overlap.documents_read(pipe.sources[source])
  if known is not None:
    document = int(known[document % len(known)])
  began = time.process_time()
  found = visits.visits(pipe, source, document, step, count=10)
  took = time.process_time() - began
  began = time.process_time()
  for own in pipe.source_names:
    visits.exposures(pipe, own, 0, step)
  all_took = time.process_time() - began
  before = found[0].exposure - 1 if found else 0
  line = [name, f"{before:,}", f"{took:.3g}", f"{all_took:.3g}"]
  print("  ".join(line), flush=True)
  return line


def main(argv: Sequence[str]) -> None:
  """Measures every run."""
  if len(argv) > 1:
    raise app.UsageError(f"Unexpected arguments: {' '.join(argv[1:])}")
  logging.set_verbosity(logging.ERROR)
  count, step = (2_000, 1_000) if _SMALL.value else (1_000_000, 1_000_000)
  with tempfile.TemporaryDirectory() as temporary:
    path = pathlib.Path(_DIRECTORY.value or temporary) / f"documents-{count}"
    if not path.exists():
      corpora.make_corpus(path, count, median=_MEDIAN)
    lines = [["run", "handed out before", "document, s", "exposures, s"]]
    for name, data in runs(str(path), step).items():
      if _KINDS.value is None or name in _KINDS.value:
        pipeline.build(data)  # Side indexes are there from then on.
        lines.append(measured(name, data, count // 8, step))
  title = (
    f"tracing: {count:,} documents, step {step:,}, batches of 64 rows of 512;"
    " CPU seconds"
  )
  tables.show((title, lines), _OUTPUT.value)


if __name__ == "__main__":
  app.run(main)
