# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The longest wait for a batch, over three epochs of a million documents.

    python benchmarks/stalls.py

By kind of rows and order, in CPU milliseconds of the thread that reads, so that
a busy machine changes little: the first batch of a run just built (side indexes
are there), the median, and the longest of all others. Batches of 64 rows of
512 tokens through `grain.DataLoader`, no workers. What another thread prepares
meanwhile does not count. Five minutes on one core.
"""

from collections.abc import Sequence
import itertools
import pathlib
import statistics
import tempfile
import time
from typing import Any

from absl import app
from absl import flags
from absl import logging
import corpora
import tables

from chomp_data import pipeline

_SMALL = flags.DEFINE_bool("small", False, "Fewer documents: seconds.")
_DIRECTORY = flags.DEFINE_string(
  "directory", None, "Where the store is kept between runs (a new one)."
)
_KINDS = flags.DEFINE_multi_string(
  "kind", [], "Only these runs ('bin exact, full'), repeated; by default all."
)
_OUTPUT = flags.DEFINE_string("output", None, "Markdown file to write.")

_MEDIAN = 60  # tokens of a document
_BATCH, _SEQ_LEN = 64, 512
_EPOCHS = 3

_EXACT = {"kind": "bin", "packing_algorithm": "exact"}
_SOURCES: dict[str, dict[str, Any]] = {
  "sequential, block": {
    "rows": {"kind": "sequential"}, "shuffle": {"kind": "block"},
  },
  "sequential, all documents each epoch": {
    "rows": {"kind": "sequential", "shuffle_documents": "full"},
  },
  "bin ffd, block": {"rows": {"kind": "bin"}, "shuffle": {"kind": "block"}},
  "bin ffd, documents by block each epoch": {
    "rows": {"kind": "bin", "shuffle_documents": "block"},
    "shuffle": {"kind": "block"},
  },
  "bin ffd, all documents each epoch": {
    "rows": {"kind": "bin", "shuffle_documents": "full"},
    "shuffle": {"kind": "block"},
  },
  "bin exact, block": {"rows": _EXACT, "shuffle": {"kind": "block"}},
  "bin exact, full": {"rows": _EXACT, "shuffle": {"kind": "full"}},
  "bin exact, documents by block each epoch": {
    "rows": {**_EXACT, "shuffle_documents": "block"},
    "shuffle": {"kind": "block"},
  },
  "windows, full": {"rows": {"kind": "windows"}, "shuffle": {"kind": "full"}},
  "splices of 1,000, full": {
    "rows": {"kind": "multi_splice", "num_docs": 1_000, "content_length": 64},
    "shuffle": {"kind": "full"},
  },
}  # fmt: skip


def runs(path: str) -> dict[str, dict[str, Any]]:
  """Returns `config.data` of every run."""
  one = {"seq_len": _SEQ_LEN, "global_batch_size": _BATCH, "epochs": None}
  found = {
    name: {**one, "sources": {"web": {"store": path, **own}}}
    for name, own in _SOURCES.items()
  }
  three = ("sequential, block", "bin ffd, block", "bin exact, block")
  found["mix of three by tokens"] = {
    **one,
    "sources": {
      f"s{i}": {"store": path, **_SOURCES[own]} for i, own in enumerate(three)
    },
    "mix": {
      "kind": "weighted", "unit": "tokens",
      "weights": {"s0": 0.5, "s1": 0.3, "s2": 0.2},
    },
  }  # fmt: skip
  return found


def measured(name: str, data: dict[str, Any], most_steps: int) -> list[str]:
  """Returns a line of the table."""
  pipe = pipeline.build(data)
  rows = sum(len(own) for own in pipe.sources.values())
  steps = min(_EPOCHS * rows // _BATCH + 2, most_steps)
  batches = iter(pipe.data_loader())
  times = []
  for _ in itertools.repeat(None, steps):
    began = time.thread_time()
    next(batches)
    times.append((time.thread_time() - began) * 1e3)
  first, *others = times
  longest = max(others)
  line = [
    name,
    f"{steps:,}",
    f"{first:.1f}",
    f"{statistics.median(others):.2g}",
    f"{longest:.1f}",
  ]
  print("  ".join([*line, f"at {1 + others.index(longest)}"]), flush=True)
  return line


def main(argv: Sequence[str]) -> None:
  """Measures every run."""
  if len(argv) > 1:
    raise app.UsageError(f"Unexpected arguments: {' '.join(argv[1:])}")
  logging.set_verbosity(logging.ERROR)
  count = 2_000 if _SMALL.value else 1_000_000
  with tempfile.TemporaryDirectory() as temporary:
    path = pathlib.Path(_DIRECTORY.value or temporary) / f"documents-{count}"
    if not path.exists():
      corpora.make_corpus(path, count, median=_MEDIAN)
    lines = [["run", "batches", "first, ms", "median, ms", "longest, ms"]]
    for name, data in runs(str(path)).items():
      if not _KINDS.value or name in _KINDS.value:
        pipeline.build(data)  # Side indexes are there from then on.
        lines.append(measured(name, data, 40_000))
  title = (
    f"stalls: {count:,} documents, {_EPOCHS} epochs, batches of {_BATCH} rows"
    f" of {_SEQ_LEN}; CPU milliseconds"
  )
  tables.show((title, lines), _OUTPUT.value)


if __name__ == "__main__":
  app.run(main)
