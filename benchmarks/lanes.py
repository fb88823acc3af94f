# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How many chunks do P processes x W workers fetch of a block shuffle?

    python benchmarks/lanes.py

One reader after the other reads its rows of an epoch of a cold store, or of
what is left of it from a step in the middle of a window on; chunks that all of
them fetched, over the chunks there are (or the share of them that is left).
Counts are exact, and depend on how many chunks and blocks there are only: rows
and chunks are small, 16 and 128 tokens. Blocks of sequential rows are 128 rows,
packing windows about as many in 20 chunks.

Ten minutes on two CPU cores.
"""

from collections.abc import Mapping
import pathlib
from typing import Any

import harness
import numpy as np

from chomp_data import pipeline
from chomp_data import stores
from chomp_data.testing import stores as testing_stores

_SEQ_LEN = 16  # tokens
_CHUNK = 128  # tokens
_BATCH = 256  # rows
_BLOCK = 128  # rows
_DOCUMENTS = 160_000
_MOST_TOKENS = 2_000  # of a document

_BINS = {"kind": "bin", "packing_buffer_docs": 128}
_ROWS = {
  "sequential": {"kind": "sequential"},
  "bin, ffd": _BINS,
  "bin, exact": {**_BINS, "packing_algorithm": "exact"},
}
_READERS = {
  None: ((4, 4),),
  4: ((1, 1), (4, 4)),
  16: ((1, 1), (4, 4), (16, 1), (1, 16)),
}


def make_store(path: pathlib.Path, documents: int) -> None:
  """Writes documents of lognormal lengths, 20 tokens in the mean."""
  rng = np.random.default_rng(0)
  lengths = np.exp(rng.normal(np.log(20) - 0.5, 1.0, documents))
  lengths = np.clip(lengths, 2, _MOST_TOKENS).astype(np.int64)
  tokens = rng.integers(3, 250, int(lengths.sum()))
  texts = np.split(tokens, np.cumsum(lengths)[:-1])
  testing_stores.make_store(path, texts, compression="zstd", chunk=_CHUNK)


def config(
  path: pathlib.Path, rows: Mapping[str, Any], lanes: int | None
) -> dict[str, Any]:
  """Returns a run of one epoch."""
  return {
    "seq_len": _SEQ_LEN,
    "global_batch_size": _BATCH,
    "seed": 1,
    "epochs": 1,
    "sources": {
      "text": {
        "store": str(path),
        "rows": rows,
        "shuffle": {
          "kind": "block",
          "lanes": lanes,
          "io_block_size": None if rows["kind"] == "bin" else _BLOCK,
        },
      }
    },
  }


def fetched(
  pipe: pipeline.Pipeline, processes: int, workers: int, first: int
) -> int:
  """Returns the chunks that all readers fetch from a step on."""
  chunks, columns = 0, _BATCH // processes
  for process in range(processes):
    rows = np.arange(process * columns, (process + 1) * columns)
    for worker in range(workers):
      source = pipeline.batch_source(pipe, rows).for_workers(workers)
      for step in range(first + worker, pipe.num_steps or 0, workers):
        source[step]
      chunks += sum(
        own.chunks_fetched for own in source.reads.by_source().values()
      )
  return chunks


def readers(directory: pathlib.Path) -> harness.Table:
  """Counts the chunks of all readers."""
  path, small = directory / "store", harness.SMALL.value
  make_store(path, 12_000 if small else _DOCUMENTS)
  lines = [["rows", "lanes", "readers P x W", "chunks", "resumed"]]
  chunks = -(-stores.open_store(path).num_tokens // _CHUNK)
  for name, rows in _ROWS.items():
    for lanes, shapes in _READERS.items():
      if small and lanes == 16:
        continue
      pipe = pipeline.build(config(path, rows, lanes))
      steps = pipe.num_steps or 0
      # In the middle of turns and windows.
      first = steps // 3 + 5
      left = chunks * (1 - first / steps)
      for processes, workers in shapes:
        lines.append(
          [
            name,
            str(lanes or "none"),
            f"{processes} x {workers}",
            f"{fetched(pipe, processes, workers, 0) / chunks:.3f}",
            f"{fetched(pipe, processes, workers, first) / left:.3f}",
          ]
        )
  return f"readers of {chunks:,} chunks", lines


if __name__ == "__main__":
  harness.run({"readers": readers})
