# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""One run of each kind, over a store or over some, for several benchmarks."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

_EXACT = {"kind": "bin", "packing_algorithm": "exact"}
_BLOCK, _FULL = {"kind": "block"}, {"kind": "full"}
_EACH_EPOCH = "documents by block each epoch"
_SPLICES = {"kind": "multi_splice", "num_docs": 1_000, "content_length": 64}

# `rows` and `shuffle` of a source, by name.
SOURCES: dict[str, dict[str, Any]] = {
  "sequential, none": {"rows": {"kind": "sequential"}},
  "sequential, block": {"rows": {"kind": "sequential"}, "shuffle": _BLOCK},
  "sequential, full": {"rows": {"kind": "sequential"}, "shuffle": _FULL},
  f"sequential, {_EACH_EPOCH}": {
    "rows": {"kind": "sequential", "shuffle_documents": "block"},
    "shuffle": _FULL,
  },
  "sequential, all documents each epoch": {
    "rows": {"kind": "sequential", "shuffle_documents": "full"},
  },
  "bin ffd, block": {"rows": {"kind": "bin"}, "shuffle": _BLOCK},
  "bin ffd, block in lanes": {
    "rows": {"kind": "bin"}, "shuffle": {**_BLOCK, "lanes": 8},
  },
  f"bin ffd, {_EACH_EPOCH}": {
    "rows": {"kind": "bin", "shuffle_documents": "block"}, "shuffle": _BLOCK,
  },
  "bin ffd, all documents each epoch": {
    "rows": {"kind": "bin", "shuffle_documents": "full"}, "shuffle": _BLOCK,
  },
  "bin exact, block": {"rows": _EXACT, "shuffle": _BLOCK},
  "bin exact, full": {"rows": _EXACT, "shuffle": _FULL},
  f"bin exact, {_EACH_EPOCH}": {
    "rows": {**_EXACT, "shuffle_documents": "block"}, "shuffle": _BLOCK,
  },
  "windows, full": {"rows": {"kind": "windows"}, "shuffle": _FULL},
  "splices of 1,000, full": {"rows": _SPLICES, "shuffle": _FULL},
  "splices, era": {
    "rows": _SPLICES, "shuffle": {"kind": "era", "era_length": 1_000},
  },
  "splices that roll, full": {
    "rows": {
      **_SPLICES, "content_start_mode": "cyclic_roll", "offset_stride": 64,
    },
    "shuffle": _FULL,
  },
}  # fmt: skip


def source(
  name: str, rows: Mapping[str, Any] = {}, shuffle: Mapping[str, Any] = {}
) -> dict[str, Any]:
  """Returns one of `SOURCES` with other options of its rows and shuffle."""
  options = SOURCES[name]
  return {
    "rows": {**options["rows"], **rows},
    "shuffle": {**options.get("shuffle", {"kind": "none"}), **shuffle},
  }


def of_rows(
  sources: Mapping[str, Mapping[str, Any]],
  seq_len: int,
  batch_size: int,
  **fields: Any,
) -> dict[str, Any]:
  """Returns `config.data` of a run without end."""
  return {
    "seq_len": seq_len,
    "global_batch_size": batch_size,
    "epochs": None,
    "sources": {name: dict(options) for name, options in sources.items()},
    **fields,
  }


def of_lengths(
  stores: Mapping[str, str],
  lengths: Sequence[int],
  tokens_per_batch: int,
  stages: Sequence[tuple[int, Mapping[str, float]]] | None = None,
  **fields: Any,
) -> dict[str, Any]:
  """Returns `config.data` of a run without end, in buckets of lengths."""
  buckets: dict[str, Any] = {
    "kind": "length",
    "lengths": tuple(lengths),
    "tokens_per_batch": tokens_per_batch,
  }
  if stages:
    buckets["stages"] = stages
  return {
    "epochs": None,
    "buckets": buckets,
    "sources": {name: {"store": store} for name, store in stores.items()},
    **fields,
  }


def stages_of(*stages: tuple[int, Sequence[float]]) -> list[Any]:
  """Returns the stages of three sources, 'web', 'books' and 'code'."""
  names = ("web", "books", "code")
  return [
    (step, dict(zip(names, weights, strict=True))) for step, weights in stages
  ]
