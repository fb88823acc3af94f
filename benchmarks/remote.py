# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What do runs from an object store cost, and do they wait for it?

    python benchmarks/remote.py

A store of 2,048 * 128 random tokens a chunk is put into a bucket on loopback
(`object_server.py`) that takes 50 ms for a request and 2 s for one of a
hundred. Rows of 2,048 tokens, block shuffle, batches of 128. Two tables, of
tokens uncompressed and zstd: how long `next` of an iterator on one device
takes, at full speed and with a consumer that takes 20 M tokens/s, by what
`shuffle_cache_bytes` allows; the first 20 batches left out. The cache is
smaller than the store.
"""

from collections.abc import Callable
from collections.abc import Iterator
import pathlib
import tempfile
import time
from typing import Any

import harness
import numpy as np
import object_server

from chomp_data import iterators
from chomp_data.storage import opening
from chomp_data.stores import vocabulary
from chomp_data.stores.zarr import store_writer

_SEQ_LEN = harness.SEQ_LEN
_BATCH = 128  # rows
_CHUNK = _SEQ_LEN * 128  # tokens, 512 KiB
_SPEED = 20e6  # tokens/s of the consumer
_WARM_UP = 20  # batches
_LATENCY = {"delay_s": 0.05, "slow_share": 0.01, "slow_s": 2.0}
_NO_LATENCY = {"delay_s": 0.0, "slow_share": 0.0, "slow_s": 0.0}


def _upload(num_chunks: int, compression: str) -> str:
  rng = np.random.default_rng(0)
  documents = (
    rng.integers(0, 2**15, _CHUNK // 4).astype(np.uint16)
    for _ in range(4 * num_chunks)
  )
  url = f"s3://bucket/{compression}-{num_chunks}"
  with tempfile.TemporaryDirectory() as directory:
    path = pathlib.Path(directory, "store")
    info = vocabulary.TokenizerInfo("byte", "0" * 64, 2**15, None, None, None)
    store_writer.write_store(
      path,
      documents,
      tokenizer_info=info,
      compression=compression,
      chunks_per_shard=64,
    )
    for file in path.rglob("*"):
      if file.is_file():
        name = file.relative_to(path).as_posix()
        opening.open_storage(url).put(name, file.read_bytes())
  return url


def _config(url: str, cache_bytes: int, **shuffle) -> dict:
  return {
    "seq_len": _SEQ_LEN,
    "global_batch_size": _BATCH,
    "seed": 0,
    "shuffle_cache_bytes": cache_bytes,
    "prefetch": 4,
    "sources": {
      "text": {
        "store": url,
        "rows": {"kind": "sequential", "pad_token_id": 0},
        "shuffle": {"kind": "block", "cache_windows": 1_024, **shuffle},
      }
    },
  }


def _waits(
  settings: Callable[..., Any], url: str, seconds: float
) -> list[list[str]]:
  rows = []
  for cache_mib in (32, 64, 128):
    for speed in (_SPEED, None):
      settings(**_LATENCY)
      with iterators.make_iterator(_config(url, cache_mib * 2**20)) as batches:
        waits = []
        for _ in range(_WARM_UP):
          next(batches)
        began = due = time.perf_counter()
        while time.perf_counter() - began < seconds:
          before = time.perf_counter()
          next(batches)
          waits.append(time.perf_counter() - before)
          if speed is not None:
            due = max(due + _BATCH * _SEQ_LEN / speed, time.perf_counter())
            time.sleep(max(due - time.perf_counter(), 0.0))
        took = time.perf_counter() - began
        reads = batches.reads["text"]
      counts = settings(**_NO_LATENCY)
      tokens = len(waits) * _BATCH * _SEQ_LEN
      rows.append(
        [
          f"{cache_mib} MiB",
          "20 M/s" if speed is not None else "as fast as it can",
          f"{tokens / took / 1e6:.1f}",
          f"{np.median(waits) * 1e3:.1f}",
          f"{np.quantile(waits, 0.99) * 1e3:.1f}",
          f"{max(waits) * 1e3:.1f}",
          f"{sum(wait > 0.05 for wait in waits)} of {len(waits)}",
          f"{counts['requests'] / max(reads.chunks_fetched, 1):.2f}",
        ]
      )
  return rows


_HEAD = [
  "cache", "consumer", "M tokens/s", "median ms", "p99 ms", "longest ms",
  "above 50 ms", "requests a chunk",
]  # fmt: skip


def waits(_: pathlib.Path) -> Iterator[harness.Table]:
  """Measures both kinds of tokens."""
  small = harness.SMALL.value
  with object_server.started() as settings:
    for compression in ("none", "zstd"):
      url = _upload(64 if small else 512, compression)
      found = _waits(settings, url, 2.0 if small else 20.0)
      yield f"Waits, tokens {compression}", [_HEAD, *found]


if __name__ == "__main__":
  harness.run({"waits": waits})
