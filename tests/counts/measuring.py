# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What kinds of runs cost a user, as counts that any machine gives alike.

Reads, open files, maps, and bytes of memory, states and readers. Of each kind
a run is built whose side indexes are there, and its first batches are read.
Compiled loops are off: when they are loaded, time decides.
"""

import copy
import gc
import os
import pathlib
import pickle
import threading
import tracemalloc
from typing import Any

import numpy as np

import chomp_data
from chomp_data import pipeline
from chomp_data.kernels import compiled
from chomp_data.loading import state
from chomp_data.testing import stores as testing_stores

Counts = dict[str, int]

_WARM, _STEPS = 16, 80
_FAR = 3_000

_READS = (
  "planned_examples",
  "logical_reads",
  "coalesced_ranges",
  "chunks_fetched",
  "bytes_fetched",
)

_BLOCK = {"kind": "block", "window_blocks": 4}
_ROW_BLOCK = {**_BLOCK, "io_block_size": 32}
_FULL = {"kind": "full"}
_EXACT = {"kind": "bin", "packing_algorithm": "exact"}


def write(root: pathlib.Path) -> None:
  """Writes the corpora: plain, compressed, labelled, and many small ones."""
  for seed, (name, count, options) in enumerate(
    [
      ("plain", 2_000, {}),
      ("zstd", 2_000, {"compression": "zstd"}),
      ("labelled", 1_000, {"levels": (0.0, 1.0), "weights": True}),
      *((f"small{i}", 100 + 7 * i, {}) for i in range(12)),
    ]
  ):
    rng = np.random.default_rng(seed)
    lengths = np.exp(rng.normal(4.5, 1.0, count)).astype(int)
    documents = [rng.integers(3, 250, n) for n in lengths]
    if "levels" in options:
      levels = [rng.integers(0, 2, (n + 15) // 16) for n in lengths]
      options = options | {
        "label_levels": [
          np.repeat(own, 16)[:n] for own, n in zip(levels, lengths, strict=True)
        ],
        "weights": rng.choice([0.5, 1.0], count).tolist(),
      }
    testing_stores.make_store(
      root / name, documents, chunk=8_192, chunks_per_shard=16, **options
    )


def _one(rows: dict[str, Any], shuffle: dict[str, Any], store: str = "plain"):
  return {
    "sources": {"text": {"store": store, "rows": rows, "shuffle": shuffle}}
  }


def _mix(sources: dict[str, dict[str, Any]], unit: str):
  weights = {name: 1 + i % 3 for i, name in enumerate(sources)}
  return {
    "sources": sources,
    "mix": {"kind": "weighted", "unit": unit, "weights": weights},
  }


def kinds(root: pathlib.Path) -> dict[str, dict[str, Any]]:
  """Returns `config.data` of every kind of run, over corpora of `write`."""
  bins = {"kind": "bin", "packing_buffer_docs": 400}
  exact = {**_EXACT, "packing_buffer_docs": 400}
  splice = {"kind": "multi_splice", "num_docs": 100, "content_length": 64}
  found: dict[str, dict[str, Any]] = {
    "sequential block": _one({"kind": "sequential"}, _ROW_BLOCK),
    "sequential full": _one({"kind": "sequential"}, _FULL),
    "sequential, documents reshuffled": _one(
      {"kind": "sequential", "shuffle_documents": "full"}, {}
    ),
    "sequential compressed": _one({"kind": "sequential"}, _ROW_BLOCK, "zstd"),
    "ffd block": _one(bins, _BLOCK),
    "ffd full": _one(bins, _FULL),
    "ffd, documents reshuffled": _one(
      {**bins, "shuffle_documents": "block"}, _BLOCK
    ),
    "ffd labelled": _one(bins, _BLOCK, "labelled"),
    "exact block": _one(exact, _BLOCK),
    "exact full": _one(exact, _FULL),
    "windows full": _one({"kind": "windows"}, _FULL),
    "splice full": _one(splice, _FULL),
    "mix of three": _mix(
      {
        "a": {"store": "plain", "rows": bins, "shuffle": _BLOCK},
        "b": {"store": "zstd", "rows": exact, "shuffle": _BLOCK},
        "c": {"store": "labelled", "rows": bins, "shuffle": _FULL},
      },
      "tokens",
    ),
    "mix of twelve": _mix(
      {
        f"s{i}": {"store": f"small{i}", "rows": bins, "shuffle": _BLOCK}
        for i in range(12)
      },
      "rows",
    ),
    "length buckets": {
      **_one({}, {}),
      "buckets": {
        "kind": "length",
        "lengths": (64, 128, 256),
        "tokens_per_batch": 2_048,
      },
    },
  }
  for data in found.values():
    data |= {"seed": 3, "epochs": None}
    if "buckets" in data:
      data |= {"remainder": "pad"}
      (source,) = data["sources"].values()
      del source["rows"], source["shuffle"]
    else:
      data |= {"seq_len": 256, "global_batch_size": 8}
    for source in data["sources"].values():
      source["store"] = str(root / source["store"])
  parts = copy.deepcopy(found["ffd block"])
  found["ffd block, two rows of a process"] = parts
  return found


def counts(name: str, data: dict[str, Any], root: pathlib.Path) -> Counts:
  """Returns the counts of a kind of run, by what they count.

  Args:
    name: The kind's.
    data: Its config.
    root: Where its corpora are; its path is not counted.
  """
  rows = np.arange(2) if "two rows" in name else None
  with compiled.allowed(False):
    pipe = chomp_data.build(data)  # Side indexes are there from here on.
    for step in (0, _FAR):
      pipeline.batch_source(pipe, rows)[step]
    pipe.accounts.record(_FAR)
    _wait_for_packing()
    gc.collect()
    return {**_costs(data, rows, str(root)), **_memory(data, rows)}


def _costs(data: dict[str, Any], rows: np.ndarray | None, root: str) -> Counts:
  descriptors, maps = _descriptors(), _maps()
  pipe = chomp_data.build(data)
  source = pipeline.batch_source(pipe, rows)
  for step in range(_STEPS):
    source[step]
  reads = source.reads.by_source().values()
  found = {
    f"reads: {field}": sum(getattr(own, field) for own in reads)
    for field in _READS
  }
  _wait_for_packing()
  found["descriptors"] = _descriptors() - descriptors
  found["maps"] = _maps() - maps
  record = pipe.accounts.record(_FAR)
  for what, value in (
    ("bytes of a state", state.encode(_FAR, pipe.fingerprint, {}, record)),
    ("bytes of a pickled reader", pickle.dumps(source.for_workers(2))),
  ):
    found[what] = len(value) - value.count(root.encode()) * len(root)
  return found


def _memory(data: dict[str, Any], rows: np.ndarray | None) -> Counts:
  """Returns the most bytes that reading held, and those it holds in the end."""
  source = pipeline.batch_source(chomp_data.build(data), rows)
  tracemalloc.start()
  try:
    before = tracemalloc.get_traced_memory()[0]
    for step in range(_WARM):
      source[step]
    gc.collect()
    held, most = tracemalloc.get_traced_memory()
    return {"bytes held": held - before, "most bytes held": most - before}
  finally:
    tracemalloc.stop()


def _wait_for_packing() -> None:
  """Waits for threads that have files open for a while."""
  for thread in threading.enumerate():
    if thread.name == "background packer":
      thread.join()


def _descriptors() -> int:
  return len(os.listdir("/proc/self/fd"))


def _maps() -> int:
  return sum(
    "/" in line
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines()
  )
