# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Memory over many batches: does it stay what it was?

    python benchmarks/flat.py

By kind of rows, each in a process of its own: anonymous memory of the process
and of its workers after a hundredth of the batches, and how much more it is
after a tenth, from there to the half, and in the second half. Batches of 4 rows
of 64 tokens, some thousand epochs of a tiny corpus: whatever is kept of an
epoch, a window or a batch adds up. Tables of windows may fill 4 MiB. Through
`grain.DataLoader`, without workers and (a tenth of the batches: they take ten
times as long) with one, over a compressed store; `iterator` is the one that
feeds devices.

Ten minutes on two CPU cores.
"""

import gc
import itertools
import pathlib
from typing import Any

from absl import flags
import corpora
import harness
import kinds

from chomp_data import iterators
from chomp_data import pipeline
from chomp_data.kernels import compiled

_BATCHES = flags.DEFINE_integer("batches", 100_000, "Batches of a run.")
_COUNTS = flags.DEFINE_multi_integer("of", [0, 1], "Workers of runs.", 0, 1)

_DOCUMENTS, _MEDIAN = 200, 60  # tokens
_SEQ_LEN, _ROWS = 64, 4
# Parts of the batches in hundredths, after which memory is looked at.
_LOOKS = [*range(1, 10), *range(10, 101, 5)]
_SLOWER = 10  # times as long takes a batch of a worker

_WINDOWS, _BIN = {"window_blocks": 4}, {"packing_buffer_docs": 50}
_SOURCES: dict[str, dict[str, Any]] = {
  "sequential, block": kinds.source(
    "sequential, block", {}, {**_WINDOWS, "io_block_size": 64}
  ),
  "sequential, all documents each epoch": kinds.source(
    "sequential, all documents each epoch"
  ),
  **{
    name: kinds.source(name, _BIN, _WINDOWS)
    for name in ("bin ffd, block", "bin ffd, documents by block each epoch")
  },
  "bin exact, full": kinds.source("bin exact, full", _BIN),
  "windows, full": kinds.source("windows, full"),
  "splices of 4, full": kinds.source(
    "splices of 1,000, full", {"num_docs": 4, "content_length": 32}
  ),
}
# Whose memory lies elsewhere: in buckets, in several sources, on devices.
_BUCKETS, _MIX, _ITERATOR = "length buckets", "mix of three", "iterator"


def config(name: str, store: str) -> dict[str, Any]:
  """Returns `config.data` of a run."""
  if name == _BUCKETS:
    return kinds.of_lengths(
      {"a": store}, (16, 32, _SEQ_LEN), _ROWS * _SEQ_LEN, remainder="pad"
    )
  names = [name if name in _SOURCES else "bin ffd, block"]
  fields = {}
  if name == _MIX:
    names = ["sequential, block", "bin ffd, block", "bin exact, full"]
    fields["mix"] = {"weights": dict(zip(names, (3, 2, 1), strict=True))}
  sources = {n: {"store": store, **_SOURCES[n]} for n in names}
  return kinds.of_rows(sources, _SEQ_LEN, _ROWS, **fields)


def probe(name: str, store: str, workers: int, batches: int) -> list[int]:
  """Returns bytes of anonymous memory, looked at while batches are read."""
  data = {**config(name, store), "worker_count": workers}
  if name == _ITERATOR:
    reader: Any = iterators.make_iterator(data)
  else:
    reader = iter(pipeline.build(data).data_loader(worker_count=workers))
  resident, done = [], 0
  for part in _LOOKS:
    for _ in range(done, batches * part // 100):
      next(reader)
    done = batches * part // 100
    gc.collect()
    resident.append(harness.resident(children=True))
  if hasattr(reader, "close"):
    reader.close()
  return resident


def measured(name: str, store: str, workers: int, batches: int) -> harness.Line:
  """Returns a line of the table."""
  # Loaded by itself it comes when it pays, somewhere on the way.
  env = {compiled.VARIABLE: "now", "JAX_PLATFORMS": "cpu"}
  looks = harness.probed(name, store, workers, batches, env=env)
  at = dict(zip(_LOOKS, looks, strict=True))
  # Allocators take pages and give them back: the larger of neighbours.
  first, tenth, half, end = (
    max(at[part] for part in near)
    for near in ((1, 2), (9, 10), (50, 55), (95, 100))
  )
  return {
    "run": name,
    "workers": str(workers),
    "batches": f"{batches:,}",
    "MB after 1 %": f"{first / 2**20:.1f}",
    "to a tenth": f"{100 * (tenth / first - 1):+.2f} %",
    "to the half": f"{100 * (half / tenth - 1):+.2f} %",
    "second half": f"{100 * (end / half - 1):+.2f} %",
    "its bytes a batch": f"{(end - half) / (batches / 2):+.1f}",
  }


def memory(directory: pathlib.Path) -> harness.Table:
  """Measures every run."""
  count = _BATCHES.value // harness.small(1, 10)
  names = harness.chosen([*_SOURCES, _BUCKETS, _MIX, _ITERATOR])
  # Workers are started where they help: chunks are to be decoded.
  paths = [directory / "flat", directory / "flat-zstd"]
  for path, compression in zip(paths, ("none", "zstd"), strict=True):
    corpora.make_corpus(
      path, _DOCUMENTS, median=_MEDIAN, compression=compression, chunk=65_536
    )
  lines = []
  for workers, name in itertools.product(_COUNTS.value, names):
    num_batches = count // _SLOWER if workers else count
    line = measured(name, str(paths[workers]), workers, num_batches)
    harness.add_line(lines, line)
  title = (
    f"Anonymous memory over batches of {_ROWS} rows of {_SEQ_LEN}, by kind;"
    " workers' memory is added"
  )
  return title, lines


if __name__ == "__main__":
  harness.run(memory, probe=probe)
