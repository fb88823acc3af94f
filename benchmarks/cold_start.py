# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How long does a host of a pod wait for its first batch from a bucket?

    python benchmarks/cold_start.py

200 stores of 100,000 documents are put into a bucket on loopback
(`object_server.py`), with their side indexes. Then a new process with an empty
cache directory is one host of some: it builds the mix and reads its first
batches, four rows of 2,048 tokens of each global batch, while each request
takes 50 ms. Seconds count from the first request; imports are not in them.
Twenty minutes on two cores, of which making the stores takes ten; 2 GB of disk.
"""

from collections.abc import Callable
import pathlib
import shutil
import tempfile
import threading
import time
from typing import Any

from absl import flags
import corpora
import harness
import numpy as np
import object_server

from chomp_data import pipeline
from chomp_data import stores

_SOURCES = flags.DEFINE_integer("sources", 200, "Stores that are mixed.")
_DOCUMENTS = flags.DEFINE_integer("documents", 100_000, "Documents of each.")

_HOSTS = (1, 16, 256)
_HOST_ROWS = 4  # of a global batch
_SEQ_LEN = harness.SEQ_LEN
_DELAY_S = 0.05
_MEDIAN = 20  # tokens of a document
_ROWS: dict[str, dict[str, Any]] = {
  "sequential": {"kind": "sequential"},
  "bin ffd": {"kind": "bin"},
  "bin exact": {"kind": "bin", "packing_algorithm": "exact"},
}


def _config(kind: str, hosts: int, sources: int) -> dict[str, Any]:
  names = [f"s{number}" for number in range(sources)]
  return {
    "seq_len": _SEQ_LEN,
    "global_batch_size": _HOST_ROWS * hosts,
    "sources": {
      name: {
        "store": f"s3://bucket/{name}",
        "rows": _ROWS[kind],
        "shuffle": {"kind": "block"},
      }
      for name in names
    },
    "mix": {
      "kind": "weighted",
      "unit": "tokens",
      "weights": {name: 1.0 + number for number, name in enumerate(names)},
    },
  }


def _probe(kind: str, hosts: int, sources: int) -> dict[str, float]:
  """Measures the start of the last host in this process."""
  rows = np.arange(_HOST_ROWS) + _HOST_ROWS * (hosts - 1)
  began = time.perf_counter()
  pipe = pipeline.build(_config(kind, hosts, sources))
  built = time.perf_counter()
  batches = iter(pipe.data_loader(rows))
  next(batches)
  first = time.perf_counter()
  for _ in range(15):
    next(batches)
  sixteen = time.perf_counter()
  # What packed rows hold is written in the background, for other hosts.
  for thread in threading.enumerate():
    if thread.name == "background packer":
      thread.join()
  return {
    "build": built - began,
    "first": first - began,
    "sixteen": sixteen - began,
  }


def _make(directory: pathlib.Path, sources: int, documents: int) -> None:
  """Writes stores that differ."""
  for number in range(sources):
    path = directory / f"s{number}"
    if path.exists():
      continue
    rng = np.random.default_rng(number)
    sizes = corpora.lengths(rng, documents, _MEDIAN)
    tokens = rng.integers(3, corpora.VOCAB_SIZE, int(sizes.sum()), np.uint16)
    stores.write_store(
      path,
      np.split(tokens, np.cumsum(sizes)[:-1]),
      tokenizer_info=corpora.TOKENIZER,
    )


def _start(kind: str, hosts: int, sources: int) -> dict[str, float]:
  """Returns what a process of its own measured."""
  with tempfile.TemporaryDirectory() as cache:
    return harness.probed(kind, hosts, sources, env={"XDG_CACHE_HOME": cache})


def _lines(
  settings: Callable[..., Any], sources: int, hosts: tuple[int, ...]
) -> list[list[str]]:
  lines = [["rows", "hosts", "build, s", "first batch, s", "16 batches, s"]]
  lines[0] += ["requests", "MB"]
  for kind in _ROWS:
    settings(delay_s=0.0)
    _start(kind, 1, sources)  # Makes the side indexes.
    for count in hosts:
      settings(delay_s=_DELAY_S)
      found = _start(kind, count, sources)
      counts = settings(delay_s=0.0)
      times = [f"{found[name]:.2f}" for name in ("build", "first", "sixteen")]
      size = f"{counts['bytes'] / 1e6:.1f}"
      harness.add_line(
        lines, [kind, str(count), *times, str(counts["requests"]), size]
      )
  return lines


def starts(directory: pathlib.Path) -> harness.Table:
  """Starts hosts of several numbers."""
  small = harness.SMALL.value
  sources = 4 if small else _SOURCES.value
  documents = 2_000 if small else _DOCUMENTS.value
  _make(directory / "bucket", sources, documents)
  for index in directory.glob("bucket/*.index"):
    shutil.rmtree(index)
  with object_server.started(str(directory)) as settings:
    lines = _lines(settings, sources, _HOSTS[:2] if small else _HOSTS)
  title = (
    f"{sources} sources of {documents:,} documents in a bucket, 50 ms a"
    f" request; a host reads {_HOST_ROWS} rows of each batch"
  )
  return title, lines


if __name__ == "__main__":
  harness.run({"starts": starts}, _probe)
