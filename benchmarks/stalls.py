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

import pathlib
import statistics
import time
from typing import Any

import corpora
import harness
import kinds

from chomp_data import pipeline

_MEDIAN = 60  # tokens of a document
_BATCH, _SEQ_LEN = 64, 512
_EPOCHS, _MOST_STEPS = 3, 40_000
_NAMES = (
  "sequential, block", "sequential, all documents each epoch",
  "bin ffd, block", "bin ffd, documents by block each epoch",
  "bin ffd, all documents each epoch", "bin exact, block", "bin exact, full",
  "bin exact, documents by block each epoch", "windows, full",
  "splices of 1,000, full",
)  # fmt: skip
_MIX = "mix of three by tokens"


def config(name: str, store: str) -> dict[str, Any]:
  """Returns `config.data` of a run."""
  if name != _MIX:
    sources = {"web": {"store": store, **kinds.source(name)}}
    return kinds.of_rows(sources, _SEQ_LEN, _BATCH)
  three = ("sequential, block", "bin ffd, block", "bin exact, block")
  sources = {
    f"s{i}": {"store": store, **kinds.source(kind)}
    for i, kind in enumerate(three)
  }
  weights = {"s0": 0.5, "s1": 0.3, "s2": 0.2}
  mix = {"kind": "weighted", "unit": "tokens", "weights": weights}
  return kinds.of_rows(sources, _SEQ_LEN, _BATCH, mix=mix)


def measured(name: str, data: dict[str, Any]) -> harness.Line:
  """Returns a line of the table."""
  pipeline.build(data)  # Side indexes are there from then on.
  pipe = pipeline.build(data)
  rows = sum(len(source) for source in pipe.sources.values())
  batches, times = iter(pipe.data_loader()), []
  for _ in range(min(_EPOCHS * rows // _BATCH + 2, _MOST_STEPS)):
    began = time.thread_time()
    next(batches)
    times.append((time.thread_time() - began) * 1e3)
  first, *others = times
  return {
    "run": name,
    "batches": f"{len(times):,}",
    "first, ms": f"{first:.1f}",
    "median, ms": f"{statistics.median(others):.2g}",
    "longest, ms": f"{max(others):.1f}",
  }


def waits(directory: pathlib.Path) -> harness.Table:
  """Measures every run."""
  count = harness.small(1_000_000, 2_000)
  path = directory / f"documents-{count}"
  corpora.make_corpus(path, count, median=_MEDIAN)
  lines = []
  for name in harness.chosen([*_NAMES, _MIX]):
    harness.add_line(lines, measured(name, config(name, str(path))))
  title = (
    f"stalls: {count:,} documents, {_EPOCHS} epochs, batches of {_BATCH} rows"
    f" of {_SEQ_LEN}; CPU milliseconds"
  )
  return title, lines


if __name__ == "__main__":
  harness.run(waits)
