# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What do shuffles cost to read? Ranges, chunks and latency (seed 002).

    python benchmarks/read_cost.py
    python benchmarks/read_cost.py --n=8192 --strategies=full,era,block \\
      --era-length=1024 --window-blocks=8 --batch-size=128 --prefetch-batches=16

The default setting is that of seed 002: 16,384 rows of 2,048 tokens, batches of
128, 20 prefetch groups of 16 batches, eras of 1,024 rows, blocks of 128 rows (a
chunk of the store) in windows of 8; the flags, named as the seed's, change it.
Rows are `sequential`. Tokens are uncompressed, and then read through memory
maps, or zstd, and then through a cache: of two shuffle windows (16 chunks), and
once of all chunks.

A *logical read* copies tokens of a row, or of several documents of it that
follow each other; a *range* is a read that is left when those of a group are
sorted and merged; a *chunk* is fetched when it is read, checked and decoded,
and read from a memory map once for good. Every measurement opens the store
anew; files are in the page cache. Latency is of `next` on a `grain.DataLoader`
without workers.

Half a minute on two CPU cores.
"""

import pathlib
import time

from absl import flags
import corpora
import harness
import kinds
import numpy as np

from chomp_data import pipeline
from chomp_data.loading import feed

_STRATEGIES = ("none", "full", "era", "block")
_N = flags.DEFINE_integer("n", 16_384, "Rows of an epoch.", 512)
_CHOSEN = flags.DEFINE_list(
  "strategies", list(_STRATEGIES), "Shuffles to measure, some of the default."
)
_ERA_LENGTH = flags.DEFINE_integer("era_length", 1_024, "Rows of an era.", 1)
_WINDOW_BLOCKS = flags.DEFINE_integer(
  "window_blocks", 8, "Blocks of a window.", 1
)
_BATCH_SIZE = flags.DEFINE_integer("batch_size", 128, "Rows of a batch.", 2)
_PREFETCH_BATCHES = flags.DEFINE_integer(
  "prefetch_batches", 16, "Batches that are fetched together.", 1
)
for _flag in (_ERA_LENGTH, _WINDOW_BLOCKS, _BATCH_SIZE, _PREFETCH_BATCHES):
  flags.DEFINE_alias(_flag.name.replace("_", "-"), _flag.name)
flags.register_validator(
  "strategies",
  lambda names: names and set(names) <= set(_STRATEGIES),
  f"must be some of {', '.join(_STRATEGIES)}.",
)

_BLOCK = 128  # rows: a chunk
# glibc maps large arrays anew, and pays for each page, until a larger one has
# been freed: the arms that come first would take three times as long.
_FREED_BYTES = 31 * 2**20


def arms(directory: pathlib.Path) -> harness.Table:
  """Reads every shuffle through a map, a small cache and a large one."""
  examples = harness.small(_N.value, min(_N.value, 4_096))
  groups = harness.small(20, 4)
  tokens, paths = examples * harness.SEQ_LEN, {}
  for compression in ("none", "zstd"):
    paths[compression] = directory / f"rows_{examples}_{compression}"
    corpora.make_corpus(
      paths[compression],
      tokens // 800,
      num_tokens=tokens,
      compression=compression,
    )
  two_windows, everything = 2 * _WINDOW_BLOCKS.value, -(-examples // _BLOCK)
  lines = []
  for how, compression, room in (
    ("mapped", "none", None),
    (f"zstd, {two_windows} chunks", "zstd", two_windows),
    (f"zstd, {everything} chunks", "zstd", everything),
  ):
    for strategy in _CHOSEN.value:
      figures = _read(paths[compression], strategy, groups, room)
      lines.append({"store": how, "shuffle": strategy, **figures})
  group = _PREFETCH_BATCHES.value
  read = groups * group * _BATCH_SIZE.value
  return f"arms: {read:,} examples in groups of {group}", lines


def _read(
  path: pathlib.Path, strategy: str, groups: int, cache_chunks: int | None
) -> harness.Line:
  """Reads prefetch groups of a store that is opened for it."""
  options = {
    "era": {"era_length": _ERA_LENGTH.value},
    "block": {"io_block_size": _BLOCK, "window_blocks": _WINDOW_BLOCKS.value},
  }.get(strategy, {})
  source = {
    "store": str(path),
    "rows": {"kind": "sequential", "add_eos": False},
    "shuffle": {"kind": strategy, **options},
  }
  batch_size = _BATCH_SIZE.value
  pipe = pipeline.build(
    kinds.of_rows({"text": source}, harness.SEQ_LEN, batch_size)
  )
  np.empty(_FREED_BYTES, np.uint8)
  batch_source = pipeline.batch_source(
    pipe, group_steps=_PREFETCH_BATCHES.value
  )
  # The source reads through a store of its own.
  store = batch_source.sources["text"].store
  if cache_chunks is not None:
    itemsize = store.opened.token_dtype.itemsize
    store.set_cache(cache_chunks * store.opened.chunk_tokens * itemsize)
  batches = iter(feed.data_loader(batch_source))
  before = store.counters.snapshot()
  marks = [time.perf_counter()]
  for _ in range(groups * _PREFETCH_BATCHES.value):
    next(batches)
    marks.append(time.perf_counter())
  reads, seconds = store.counters - before, np.diff(marks)
  examples = len(seconds) * batch_size
  chunks = -(-store.num_tokens // store.opened.chunk_tokens)
  return {
    "logical reads": f"{reads.logical_reads:,}",
    "ranges": f"{reads.coalesced_ranges:,}",
    "ranges/example": f"{reads.coalesced_ranges / examples:.5f}",
    "chunks fetched": f"{reads.chunks_fetched:,} of {chunks}",
    "MiB": f"{reads.bytes_fetched / 2**20:,.0f}",
    "cache hits": f"{reads.cache_hits:,}",
    "examples/s": f"{examples / seconds.sum():,.0f}",
    "p50 ms": f"{np.percentile(seconds, 50) * 1e3:.2f}",
    "p95 ms": f"{np.percentile(seconds, 95) * 1e3:.2f}",
  }


if __name__ == "__main__":
  harness.run(arms)
