# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How long do shards wait for the slowest, with `balance` and without?

    python benchmarks/balance.py

Attention over packed rows costs the sum of squared segment lengths. Documents
of lognormal lengths are packed, and the slowest shard of a batch is compared
with the mean of all; means over batches. No token is read: counts are exact
and the same on any machine, times are CPU time.

Half a minute on one CPU core.
"""

import pathlib

import corpora
import harness
import numpy as np

import chomp_data
from chomp_data.plans import dealing
from chomp_data.rows import row_costs
from chomp_data.rows import spans as spans_lib

_LENGTHS = 2_048, 4_096, 8_192, 32_768  # tokens
_SHARDS = 8, 64
_ROWS = 1, 2, 4, 8, 16  # of a shard
_DOCUMENTS = 120_000

# As many as are planned at once.
_PLANNED = 4_096  # rows

# Rows of a shard, and shards, that times are measured at.
_TIMED = ((4, 8), (4, 64), (4, 256), (16, 64))
_REPEATS = 15


def planned(
  kind: str, seq_len: int, directory: str, num_documents: int
) -> spans_lib.Spans:
  """Returns an epoch of rows, in random order."""
  store = corpora.LengthsStore(
    pathlib.Path(directory, str(num_documents)), num_documents
  )
  if kind == "sequential":
    rows = chomp_data.SequentialSource(
      store, chomp_data.SequentialOptions(), seq_len=seq_len
    )
  else:
    rows = chomp_data.BinSource(store, chomp_data.BinOptions(), seq_len=seq_len)
  return rows.plan(np.random.default_rng(0).permutation(len(rows)))


def attention(spans: spans_lib.Spans, seq_len: int) -> np.ndarray:
  """Returns what rows cost, int64[num_rows]."""
  return row_costs.attention(spans, seq_len, np.zeros(len(spans), np.bool_))


def slowest(costs: np.ndarray, shards: int) -> float:
  """Returns slowest over mean, of batches [M, B], in the mean."""
  sums = costs.reshape(len(costs), shards, -1).sum(axis=2)
  return float((sums.max(axis=1) / sums.mean(axis=1)).mean())


def ratios(directory: str, small: bool) -> harness.Table:
  """Returns slowest over mean by kind, row length and rows of a shard."""
  lines = [["rows", "S", "shards", *(f"{num} a shard" for num in _ROWS)]]
  documents = 12_000 if small else _DOCUMENTS
  for kind in ("bin ffd", "sequential"):
    for seq_len in _LENGTHS[2:3] if small else _LENGTHS:
      costs = attention(planned(kind, seq_len, directory, documents), seq_len)
      for shards in _SHARDS:
        cells = []
        for num in _ROWS:
          size = shards * num
          batches = min(len(costs) // size, 4 * _PLANNED // size)
          if not batches:
            cells.append("-")
            continue
          own = costs[: batches * size].reshape(-1, size)
          dealt = np.take_along_axis(own, dealing.deal(own, shards), 1)
          mean = own.sum(axis=1) / shards
          least = float((dealing.bound(own, shards) / mean).mean())
          cells.append(
            f"{slowest(own, shards):.3f} > {slowest(dealt, shards):.3f}"
            f" ({least:.3f})"
          )
        lines.append([kind, f"{seq_len:,}", str(shards), *cells])
  title = "slowest over mean shard: as planned > dealt (no deal is below)"
  return title, lines


def cpu_ms(function, rows: int) -> float:
  """Returns the median CPU time of 1,024 rows of a call that has `rows`."""
  seconds = [harness.cpu_s(function) for _ in range(_REPEATS)]
  return float(np.median(seconds)) * 1e3 * 1_024 / rows


def times(directory: str, small: bool) -> harness.Table:
  """Returns what costs, dealing and choosing own rows take."""
  lines = [
    ["S", "shards", "rows a shard", "costs ms", "deal ms", "own rows ms", "sum"]
  ]
  for seq_len in _LENGTHS[2:3] if small else _LENGTHS[:3]:
    spans = planned("bin ffd", seq_len, directory, 60_000).rows(0, _PLANNED)
    for num, shards in _TIMED:
      size = num * shards
      costs = attention(spans, seq_len).reshape(-1, size)
      # A process of eight shards.
      places = np.arange(min(size, 8 * num))
      rows = dealing.deal(costs, shards)[:, places]
      rows = (rows + np.arange(len(rows))[:, None] * size).reshape(-1)
      found = [
        cpu_ms(function, _PLANNED)
        for function in (
          lambda own=spans, length=seq_len: attention(own, length),
          lambda costs=costs, shards=shards: dealing.deal(costs, shards),
          lambda own=spans, rows=rows: own.of_rows(rows),
        )
      ]
      cells = [f"{each:.2f}" for each in (*found, sum(found))]
      lines.append([f"{seq_len:,}", str(shards), str(num), *cells])
  return "CPU time by 1,024 rows of global batches", lines


def planning(directory: str, small: bool) -> harness.Table:
  """Returns what a process of many plans, by 1,024 own rows."""
  lines = [["processes", "plan of own rows ms", "of all rows, dealt ms"]]
  store = corpora.LengthsStore(pathlib.Path(directory, "60000"), 60_000)
  seq_len, own = 8_192, 32
  rows = chomp_data.BinSource(store, chomp_data.BinOptions(), seq_len=seq_len)
  for processes in (1, 8) if small else (1, 8, 32):
    size, steps = own * processes, max(1, _PLANNED // (own * processes))
    every = np.arange(size * steps) % len(rows)
    mine = every.reshape(steps, size)[:, :own].reshape(-1)

    def dealt(every=every, size=size, processes=processes):
      spans = rows.plan(every)
      costs = attention(spans, seq_len).reshape(-1, size)
      found = dealing.deal(costs, 8 * processes)[:, :own]
      at = found + np.arange(len(found))[:, None] * size
      return spans.of_rows(at.reshape(-1))

    _ = rows.plan(every)
    found = [
      cpu_ms(function, own * steps)
      for function in (lambda mine=mine: rows.plan(mine), dealt)
    ]
    lines.append([str(processes), *(f"{each:.2f}" for each in found)])
  return "CPU time of planning by 1,024 own rows, 8 shards a process", lines


if __name__ == "__main__":
  harness.run(
    {
      name: lambda directory, part=part: part(
        str(directory), harness.SMALL.value
      )
      for name, part in (
        ("ratios", ratios), ("times", times), ("planning", planning),
      )
    }
  )  # fmt: skip
