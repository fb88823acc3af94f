# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What do shuffles cost to read? Ranges, chunks and latency (seed 002).

    python benchmarks/read_cost.py
    python benchmarks/read_cost.py --n=8192 --strategies=full,era,block \\
      --era-length=1024 --window-blocks=8 --batch-size=128 --prefetch-batches=16

The default setting is that of seed 002: 16,384 rows of 2,048 tokens, batches of
128, 20 prefetch groups of 16 batches, eras of 1,024 rows, blocks of 128 rows (a
chunk of the store) in windows of 8; the flags, named as the seed's, change it.
Rows are `sequential`. Three tables, the last two where `block` is measured:

- arms: no shuffle, full, era and block. Tokens are uncompressed, and then
  read through memory maps, or zstd, and then through a cache, here of two
  shuffle windows for all arms (16 chunks), and once of all chunks.
- prefetch: block shuffle over an epoch in groups of 1, 4, 8 and 16 batches (a
  quarter, a half and all of --prefetch-batches), from batch 0 and resumed at
  batch 3.
- epochs: chunks that one reader fetches in an epoch over the chunks there
  are, sequential rows and bin-packed ones by documents of a packing window.
  Chunks of the packed store are of 32 Ki tokens, an eighth of the default, so
  that there are as many windows as in a corpus of a thousand million tokens.

A *logical read* copies tokens of a row, or of several documents of it that
follow each other; a *range* is a read that is left when those of a group are
sorted and merged; a *chunk* is fetched when it is read, checked and decoded,
and read from a memory map once for good. Every
measurement opens the store anew; files are in the page cache. Latency is of
`next` on a `grain.DataLoader` without workers.

A minute on two CPU cores.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import pathlib
import time
from typing import Any

from absl import app
from absl import flags
import corpora
import harness
import numpy as np

from chomp_data import pipeline
from chomp_data import stores as stores_lib
from chomp_data.loading import feed

_STRATEGIES = ("none", "full", "era", "block")
_N = flags.DEFINE_integer("n", None, "Rows of an epoch (16,384).", 512)
_CHOSEN = flags.DEFINE_list(
  "strategies", None, f"Shuffles to measure, of {', '.join(_STRATEGIES)} (all)."
)
_ERA_LENGTH = flags.DEFINE_integer("era_length", None, "Rows (1,024).", 1)
_WINDOW_BLOCKS = flags.DEFINE_integer(
  "window_blocks", None, "Blocks of a window (8).", 1
)
_BATCH_SIZE = flags.DEFINE_integer("batch_size", None, "Rows (128).", 2)
_PREFETCH_BATCHES = flags.DEFINE_integer(
  "prefetch_batches", None, "Batches that are fetched together (16).", 1
)
for _flag in (_ERA_LENGTH, _WINDOW_BLOCKS, _BATCH_SIZE, _PREFETCH_BATCHES):
  flags.DEFINE_alias(_flag.name.replace("_", "-"), _flag.name)
flags.register_validator(
  "strategies",
  lambda names: names is None or (names and set(names) <= set(_STRATEGIES)),
  f"must be some of {', '.join(_STRATEGIES)}.",
)

_SEQ_LEN = harness.SEQ_LEN
_BLOCK = 128  # rows: a chunk
_RESUMED_AT = 3  # batches: in the middle of a window
_MOST_REFETCHED = 1.05
# glibc maps large arrays anew, and pays for each page, until a larger one has
# been freed: the arms that come first would take three times as long.
_FREED_BYTES = 31 * 2**20
_CHUNK_SHARE = 8  # of the default chunk, for packed rows

_SEQUENTIAL = {"kind": "sequential", "add_eos": False}

# `reads_issued` of 40,960 examples that seed 002 publishes.
_SEED_READS = {"full": 35_650, "era": 20, "block": 287}


@dataclasses.dataclass(frozen=True)
class Setting:
  """What is measured.

  Attributes:
    examples: Rows of an epoch.
    groups: Prefetch groups read of each arm.
    strategies: Shuffles that are measured.
    era_length: Rows of an era.
    window_blocks: Blocks of a window of the block shuffle.
    batch_size: Rows of a batch.
    prefetch_batches: Batches of a prefetch group.
    packed_documents: Documents of the corpus that is bin-packed.
    packing_windows: Documents of its packing windows, one after the other;
      with chunks of the default size, eight times as many fill as many chunks.
  """

  examples: int = 16_384
  groups: int = 20
  strategies: tuple[str, ...] = _STRATEGIES
  era_length: int = 1_024
  window_blocks: int = 8
  batch_size: int = 128
  prefetch_batches: int = 16
  packed_documents: int = corpora.NUM_DOCUMENTS
  packing_windows: tuple[int, ...] = (64, 128, 256, 512, 1_024)

  @property
  def published(self) -> bool:
    """Whether this is the seed's setting, whichever shuffles are measured."""
    return dataclasses.replace(self, strategies=_STRATEGIES) == Setting()

  @property
  def two_windows(self) -> int:
    """Chunks of two windows, and so a cache's."""
    return 2 * self.window_blocks

  @property
  def group_sizes(self) -> list[int]:
    """Batches of the prefetch groups that are compared."""
    most = self.prefetch_batches
    return sorted({1, max(most // 4, 1), max(most // 2, 1), most})

  def shuffle(self, strategy: str) -> dict[str, Any]:
    """Returns `shuffle` of the config."""
    match strategy:
      case "era":
        return {"kind": "era", "era_length": self.era_length}
      case "block":
        return {
          "kind": "block",
          "io_block_size": _BLOCK,
          "window_blocks": self.window_blocks,
        }
      case _:
        return {"kind": strategy}


@dataclasses.dataclass(frozen=True)
class Reading:
  """What reading some batches cost.

  Attributes:
    examples: Rows read.
    reads: The store's counts.
    chunks: Chunks of the store.
    seconds: Of each batch.
  """

  examples: int
  reads: stores_lib.Counters
  chunks: int
  seconds: np.ndarray

  @property
  def examples_per_s(self) -> float:
    """Rows a second."""
    return self.examples / float(self.seconds.sum())

  @property
  def reads_per_example(self) -> float:
    """Ranges for each row."""
    return self.reads.coalesced_ranges / self.examples

  @property
  def refetched(self) -> float:
    """Chunks fetched over the chunks of the store."""
    return self.reads.chunks_fetched / self.chunks

  def milliseconds(self, percentile: float) -> float:
    """Returns a percentile of a batch's latency."""
    return float(np.percentile(self.seconds, percentile)) * 1e3


def read(
  store: pathlib.Path,
  rows: Mapping[str, Any],
  shuffle: Mapping[str, Any],
  *,
  batch_size: int,
  steps: int | None = None,
  first_step: int = 0,
  group_steps: int | None = None,
  cache_chunks: int | None = None,
  own_rows: np.ndarray | None = None,
) -> Reading:
  """Reads batches of a store that is opened for it.

  Args:
    store: Its path.
    rows: `rows` of the config.
    shuffle: `shuffle` of the config.
    batch_size: Rows of a batch.
    steps: How many batches, or None for the rest of one epoch.
    first_step: The first of them.
    group_steps: Batches of a prefetch group, or None for the default.
    cache_chunks: Chunks that the cache holds, or None for the default.
    own_rows: Rows of each batch that are read, or None for all.
  """
  pipe = pipeline.build(
    {
      "seq_len": _SEQ_LEN,
      "global_batch_size": batch_size,
      "epochs": 1 if steps is None else None,
      "remainder": "pad",
      "sources": {
        "text": {"store": str(store), "rows": rows, "shuffle": shuffle}
      },
    }
  )
  np.empty(_FREED_BYTES, np.uint8)
  source = pipeline.batch_source(pipe, own_rows, group_steps=group_steps)
  # The source reads through a store of its own.
  text = source.sources["text"].store
  if cache_chunks is not None:
    text.set_cache(
      cache_chunks * text.opened.chunk_tokens * text.opened.token_dtype.itemsize
    )
  loader = feed.data_loader(source, first_step=first_step)
  batches = iter(loader)
  count = steps or (pipe.num_steps or 0) - first_step
  before = text.counters.snapshot()
  marks = np.empty(count + 1)
  marks[0] = time.perf_counter()
  for step in range(count):
    next(batches)
    marks[step + 1] = time.perf_counter()
  return Reading(
    count * (batch_size if own_rows is None else len(own_rows)),
    text.counters - before,
    -(-text.num_tokens // text.opened.chunk_tokens),
    np.diff(marks),
  )


def arms(
  stores: Mapping[str, pathlib.Path], setting: Setting
) -> dict[tuple[str, str], Reading]:
  """Reads every arm, by (how the store is read, shuffle)."""
  everything = -(-setting.examples // _BLOCK)
  found = {}
  for how, store, room in (
    ("mapped", "none", None),
    (f"zstd, {setting.two_windows} chunks", "zstd", setting.two_windows),
    (f"zstd, {everything} chunks", "zstd", everything),
  ):
    for name in setting.strategies:
      found[how, name] = read(
        stores[store],
        _SEQUENTIAL,
        setting.shuffle(name),
        batch_size=setting.batch_size,
        steps=setting.groups * setting.prefetch_batches,
        group_steps=setting.prefetch_batches,
        cache_chunks=room,
      )
  return found


def prefetches(
  stores: Mapping[str, pathlib.Path], setting: Setting
) -> dict[tuple[str, int, int], Reading]:
  """Reads an epoch of block shuffle, by (store, first step, group's steps)."""
  return {
    (how, first, group): read(
      stores[store],
      _SEQUENTIAL,
      setting.shuffle("block"),
      batch_size=setting.batch_size,
      first_step=first,
      group_steps=group,
      cache_chunks=setting.two_windows,
    )
    for how, store in (
      ("mapped", "none"),
      (f"zstd, {setting.two_windows} chunks", "zstd"),
    )
    for group in setting.group_sizes
    for first in (0, _RESUMED_AT)
  }


@dataclasses.dataclass(frozen=True)
class Epoch:
  """Chunks of an epoch.

  Attributes:
    rows: What the rows are.
    kept: Which shuffle windows the cache keeps.
    window_chunks: Chunks that the tokens of a packing window or block fill.
    expected: The chunks that windows touch over the store's, at most.
    reading: What was counted.
  """

  rows: str
  kept: str
  window_chunks: float
  expected: float
  reading: Reading


def epochs(stores: Mapping[str, pathlib.Path], setting: Setting) -> list[Epoch]:
  """Reads epochs of sequential and of bin-packed rows, cold."""
  block = {**setting.shuffle("block"), "cache_windows": 1}
  size = setting.batch_size

  def sequential(name: str, **how: Any) -> Epoch:
    reading = read(stores["zstd"], _SEQUENTIAL, block, batch_size=size, **how)
    return Epoch(name, "1", 1, 1, reading)

  half = size // 2
  found = [
    sequential("sequential"),
    sequential(
      f"sequential, resumed at batch {_RESUMED_AT}", first_step=_RESUMED_AT
    ),
    *(
      sequential(
        f"sequential, reader {reader + 1} of 2",
        own_rows=np.arange(reader * half, (reader + 1) * half),
      )
      for reader in range(2)
    ),
  ]
  for windows in (1, 2):
    shuffle = {
      "kind": "block",
      "window_blocks": setting.window_blocks,
      "cache_windows": windows,
    }
    for documents in setting.packing_windows:
      rows = {
        "kind": "bin",
        "packing_buffer_docs": documents,
        "add_eos": False,
      }
      reading = read(stores["packed"], rows, shuffle, batch_size=size)
      chunks = reading.chunks * min(documents / setting.packed_documents, 1)
      found.append(
        Epoch(
          f"bin, windows of {documents}",
          str(windows),
          chunks,
          (chunks + 1) / chunks,
          reading,
        )
      )
  return found


def arms_table(
  found: Mapping[tuple[str, str], Reading], setting: Setting
) -> harness.Table:
  """Returns the title and the lines of the arms, the head first."""
  lines = [
    [
      "store", "shuffle", "logical reads", "ranges", "published",
      "ranges/example", "chunks fetched", "MiB", "cache hits", "examples/s",
      "p50 ms", "p95 ms",
    ]
  ]  # fmt: skip
  for (how, name), one in found.items():
    seed = _SEED_READS.get(name) if setting.published else None
    lines.append(
      [
        how,
        name,
        f"{one.reads.logical_reads:,}",
        f"{one.reads.coalesced_ranges:,}",
        "" if seed is None else f"{seed:,}",
        f"{one.reads_per_example:.5f}",
        f"{one.reads.chunks_fetched:,} of {one.chunks}",
        f"{one.reads.bytes_fetched / 2**20:,.0f}",
        f"{one.reads.cache_hits:,}",
        f"{one.examples_per_s:,.0f}",
        f"{one.milliseconds(50):.2f}",
        f"{one.milliseconds(95):.2f}",
      ]
    )
  group = setting.prefetch_batches
  examples = setting.groups * group * setting.batch_size
  return f"arms: {examples:,} examples in groups of {group}", lines


def prefetch_table(
  found: Mapping[tuple[str, int, int], Reading],
) -> harness.Table:
  """Returns the title and the lines of the prefetch groups, the head first."""
  lines = [
    [
      "store", "group", "from batch", "ranges", "ranges/example",
      "chunks fetched", "over chunks", "p50 ms", "p95 ms",
    ]
  ]  # fmt: skip
  lines += [
    [
      how,
      str(group),
      str(first),
      f"{one.reads.coalesced_ranges:,}",
      f"{one.reads_per_example:.5f}",
      f"{one.reads.chunks_fetched:,}",
      f"{one.refetched:.3f}",
      f"{one.milliseconds(50):.2f}",
      f"{one.milliseconds(95):.2f}",
    ]
    for (how, first, group), one in found.items()
  ]
  return "prefetch: block shuffle over an epoch", lines


def epochs_table(found: Sequence[Epoch]) -> harness.Table:
  """Returns the title and the lines of whole epochs, the head first."""
  lines = [
    [
      "rows", "windows kept", "chunks of a block", "chunks fetched",
      "over chunks", "touched at most", f"<= {_MOST_REFETCHED}",
    ]
  ]  # fmt: skip
  lines += [
    [
      one.rows,
      one.kept,
      f"{one.window_chunks:.1f}",
      f"{one.reading.reads.chunks_fetched:,} of {one.reading.chunks:,}",
      f"{one.reading.refetched:.3f}",
      f"{one.expected:.3f}",
      "yes" if one.reading.refetched <= _MOST_REFETCHED else "no",
    ]
    for one in found
  ]
  return "epochs: block shuffle, zstd, one reader, cold", lines


def make_stores(
  directory: pathlib.Path, setting: Setting
) -> dict[str, pathlib.Path]:
  """Writes the stores that are not there."""
  tokens = setting.examples * _SEQ_LEN
  paths = {
    name: directory / f"rows_{setting.examples}_{name}"
    for name in ("none", "zstd")
  }
  for compression, path in paths.items():
    corpora.make_corpus(
      path, tokens // 800, num_tokens=tokens, compression=compression
    )
  paths["packed"] = directory / f"packed_{setting.packed_documents}"
  corpora.make_corpus(
    paths["packed"],
    setting.packed_documents,
    compression="zstd",
    chunk=corpora.CHUNK // _CHUNK_SHARE,
  )
  return paths


def chosen_setting() -> Setting:
  """Returns the setting that the flags ask for."""
  setting = Setting()
  if harness.SMALL.value:
    setting = Setting(
      4_096, 4, packed_documents=12_000, packing_windows=(64, 256)
    )
  chosen = {
    "examples": _N.value,
    "strategies": None if _CHOSEN.value is None else tuple(_CHOSEN.value),
    "era_length": _ERA_LENGTH.value,
    "window_blocks": _WINDOW_BLOCKS.value,
    "batch_size": _BATCH_SIZE.value,
    "prefetch_batches": _PREFETCH_BATCHES.value,
  }
  setting = dataclasses.replace(
    setting, **{n: value for n, value in chosen.items() if value is not None}
  )
  batches = setting.examples // setting.batch_size
  if batches <= _RESUMED_AT:
    raise app.UsageError(
      f"`--n` must be of more than {_RESUMED_AT} batches, got"
      f" {setting.examples} rows in batches of {setting.batch_size}."
    )
  return setting


def costs(directory: pathlib.Path) -> Iterator[harness.Table]:
  """Makes the tables."""
  setting = chosen_setting()
  paths = make_stores(directory, setting)
  yield arms_table(arms(paths, setting), setting)
  if "block" in setting.strategies:
    yield prefetch_table(prefetches(paths, setting))
    yield epochs_table(epochs(paths, setting))


if __name__ == "__main__":
  harness.run({"costs": costs})
