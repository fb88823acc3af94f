# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Do runs wait for an object store, and how long does a host for its start?

    python benchmarks/object_stores.py

Two parts (`--parts` runs one), against a bucket on loopback
(`object_server.py`) that takes 50 ms for a request. Rows of 2,048 tokens, block
shuffle.

- waits: 2 s for one request of a hundred. A store of 512 chunks of 2,048 * 128
  random tokens, uncompressed and zstd, batches of 128 rows: how long `next` of
  an iterator on one device takes, at full speed and with a consumer that takes
  20 M tokens/s, by what `shuffle_cache_bytes` allows; the first 20 batches
  left out. The cache is smaller than the store. Eight minutes.
- starts: `--sources` stores of `--documents` documents with their side indexes.
  A new process with an empty cache directory is one host of some: it builds
  the mix and reads its first batches, four rows of each global batch. Seconds
  count from the first request; imports are not in them. Twenty minutes on two
  cores, of which making the stores takes ten; 2 GB of disk.
"""

from collections.abc import Callable
from collections.abc import Iterator
import pathlib
import shutil
import tempfile
import threading
import time
from typing import Any

from absl import flags
import corpora
import harness
import kinds
import numpy as np
import object_server

from chomp_data import iterators
from chomp_data import pipeline
from chomp_data import stores

_SOURCES = flags.DEFINE_integer("sources", 200, "Stores that are mixed.")
_DOCUMENTS = flags.DEFINE_integer("documents", 100_000, "Documents of each.")

_SEQ_LEN = harness.SEQ_LEN
_BATCH = 128  # rows
_CHUNK = _SEQ_LEN * 128  # tokens, 512 KiB
_SPEED = 20e6  # tokens/s of the consumer
_WARM_UP = 20  # batches
_LATENCY = {"delay_s": 0.05, "slow_share": 0.01, "slow_s": 2.0}
_NO_LATENCY = {"delay_s": 0.0, "slow_share": 0.0, "slow_s": 0.0}
_HOSTS = (1, 16, 256)
_HOST_ROWS = 4  # of a global batch
_MEDIAN = 20  # tokens of a document
_KINDS = ("sequential, block", "bin ffd, block", "bin exact, block")


def waits(directory: pathlib.Path) -> Iterator[harness.Table]:
  """Measures both kinds of tokens."""
  rng = np.random.default_rng(0)
  num_chunks = harness.small(512, 64)
  for compression in ("none", "zstd"):
    stores.write_store(
      directory / "bucket" / compression,
      (
        rng.integers(0, 2**15, _CHUNK // 4).astype(np.uint16)
        for _ in range(4 * num_chunks)
      ),
      tokenizer_info=corpora.TOKENIZER,
      compression=compression,
      chunks_per_shard=64,
    )
  with object_server.started(str(directory)) as settings:
    for compression in ("none", "zstd"):
      lines = []
      for cache_mib in (32, 64, 128):
        for speed in (_SPEED, None):
          line = _wait(settings, compression, cache_mib, speed)
          harness.add_line(lines, line)
      yield f"Waits, tokens {compression}", lines


def _wait(
  settings: Callable[..., Any],
  compression: str,
  cache_mib: int,
  speed: float | None,
) -> harness.Line:
  """Reads for a while; returns a line of the table."""
  data = kinds.of_rows(
    {
      "text": {
        "store": f"s3://bucket/{compression}",
        **kinds.source("sequential, block", {}, {"cache_windows": 1_024}),
      }
    },
    _SEQ_LEN,
    _BATCH,
    shuffle_cache_bytes=cache_mib * 2**20,
    prefetch=4,
  )
  settings(**_LATENCY)
  with iterators.make_iterator(data) as batches:
    for _ in range(_WARM_UP):
      next(batches)
    times = []
    began = due = time.perf_counter()
    while time.perf_counter() - began < harness.small(20.0, 2.0):
      before = time.perf_counter()
      next(batches)
      times.append(time.perf_counter() - before)
      if speed is not None:
        due = max(due + _BATCH * _SEQ_LEN / speed, time.perf_counter())
        time.sleep(max(due - time.perf_counter(), 0.0))
    took = time.perf_counter() - began
    reads = batches.reads["text"]
  counts = settings(**_NO_LATENCY)
  tokens = len(times) * _BATCH * _SEQ_LEN
  return {
    "cache": f"{cache_mib} MiB",
    "consumer": "20 M/s" if speed is not None else "as fast as it can",
    "M tokens/s": f"{tokens / took / 1e6:.1f}",
    "median ms": f"{np.median(times) * 1e3:.1f}",
    "p99 ms": f"{np.quantile(times, 0.99) * 1e3:.1f}",
    "longest ms": f"{max(times) * 1e3:.1f}",
    "above 50 ms": f"{sum(wait > 0.05 for wait in times)} of {len(times)}",
    "requests a chunk": (
      f"{counts['requests'] / max(reads.chunks_fetched, 1):.2f}"
    ),
  }


def starts(directory: pathlib.Path) -> harness.Table:
  """Starts hosts of several numbers."""
  sources = harness.small(_SOURCES.value, 4)
  documents = harness.small(_DOCUMENTS.value, 2_000)
  for number in range(sources):
    path = directory / "bucket" / f"s{number}"
    if not path.exists():
      rng = np.random.default_rng(number)
      sizes = corpora.lengths(rng, documents, _MEDIAN)
      tokens = rng.integers(3, corpora.VOCAB_SIZE, int(sizes.sum()), np.uint16)
      texts = np.split(tokens, np.cumsum(sizes)[:-1])
      stores.write_store(path, texts, tokenizer_info=corpora.TOKENIZER)
  for index in directory.glob("bucket/*.index"):
    shutil.rmtree(index)
  lines = []
  with object_server.started(str(directory)) as settings:
    for kind in _KINDS:
      settings(delay_s=0.0)
      _start(kind, 1, sources)  # Makes the side indexes.
      for hosts in harness.small(_HOSTS, _HOSTS[:2]):
        settings(delay_s=0.05)
        build, first, several = _start(kind, hosts, sources)
        counts = settings(delay_s=0.0)
        harness.add_line(
          lines,
          {
            "rows": kind,
            "hosts": str(hosts),
            "build, s": f"{build:.2f}",
            "first batch, s": f"{first:.2f}",
            "16 batches, s": f"{several:.2f}",
            "requests": str(counts["requests"]),
            "MB": f"{counts['bytes'] / 1e6:.1f}",
          },
        )
  title = (
    f"{sources} sources of {documents:,} documents in a bucket, 50 ms a"
    f" request; a host reads {_HOST_ROWS} rows of each batch"
  )
  return title, lines


def _start(kind: str, hosts: int, sources: int) -> list[float]:
  """Returns what a process of its own measured."""
  with tempfile.TemporaryDirectory() as cache:
    return harness.probed(kind, hosts, sources, env={"XDG_CACHE_HOME": cache})


def _probe(kind: str, hosts: int, sources: int) -> list[float]:
  """Returns seconds until the last host's run, 1 and 16 batches are there."""
  names = [f"s{number}" for number in range(sources)]
  data = kinds.of_rows(
    {
      name: {"store": f"s3://bucket/{name}", **kinds.source(kind)}
      for name in names
    },
    _SEQ_LEN,
    _HOST_ROWS * hosts,
    mix={
      "kind": "weighted",
      "unit": "tokens",
      "weights": {name: 1.0 + number for number, name in enumerate(names)},
    },
  )
  rows = np.arange(_HOST_ROWS) + _HOST_ROWS * (hosts - 1)
  marks = [time.perf_counter()]
  pipe = pipeline.build(data)
  marks.append(time.perf_counter())
  batches = iter(pipe.data_loader(rows))
  next(batches)
  marks.append(time.perf_counter())
  for _ in range(15):
    next(batches)
  marks.append(time.perf_counter())
  # What packed rows hold is written in the background, for other hosts.
  for thread in threading.enumerate():
    if thread.name == "background packer":
      thread.join()
  return [mark - marks[0] for mark in marks[1:]]


if __name__ == "__main__":
  harness.run(waits, starts, probe=_probe)
