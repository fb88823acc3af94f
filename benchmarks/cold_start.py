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

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any
import urllib.request

from absl import app
from absl import flags
import corpora
import numpy as np
import tables

from chomp_data import pipeline
from chomp_data import stores

_SOURCES = flags.DEFINE_integer("sources", 200, "Stores that are mixed.")
_DOCUMENTS = flags.DEFINE_integer("documents", 100_000, "Documents of each.")
_SMALL = flags.DEFINE_bool("small", False, "A few small stores: seconds.")
_DIRECTORY = flags.DEFINE_string(
  "directory", None, "Where the bucket is kept between runs (a new place)."
)
_OUTPUT = flags.DEFINE_string("output", None, "Markdown file to write.")
_PROBE = flags.DEFINE_string(
  "probe", None, "Measure one run here; for the benchmark itself."
)

_HOSTS = (1, 16, 256)
_HOST_ROWS = 4  # of a global batch
_SEQ_LEN = 2_048
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
  return {
    "build": built - began,
    "first": first - began,
    "sixteen": time.perf_counter() - began,
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


def _settings(server: str, delay_s: float) -> dict[str, int]:
  """Sets the delay of requests; returns those since the last setting."""
  data = json.dumps({"delay_s": delay_s}).encode()
  request = urllib.request.Request(f"{server}/settings", data, method="POST")
  with urllib.request.urlopen(request) as answer:
    return json.loads(answer.read())


def _start(kind: str, hosts: int, sources: int) -> dict[str, float]:
  """Returns what a process of its own measured."""
  with tempfile.TemporaryDirectory() as cache:
    done = subprocess.run(
      [
        sys.executable,
        __file__,
        f"--probe={kind},{hosts},{sources}",
      ],
      env={**os.environ, "XDG_CACHE_HOME": cache},
      stdout=subprocess.PIPE,
      text=True,
      check=True,
    )
  return json.loads(done.stdout.splitlines()[-1])


def _lines(server: str, sources: int, hosts: tuple[int, ...]):
  lines = [["rows", "hosts", "build, s", "first batch, s", "16 batches, s"]]
  lines[0] += ["requests", "MB"]
  for kind in _ROWS:
    _settings(server, 0.0)
    _start(kind, 1, sources)  # Makes the side indexes.
    for count in hosts:
      _settings(server, _DELAY_S)
      found = _start(kind, count, sources)
      counts = _settings(server, 0.0)
      lines.append(
        [
          kind,
          str(count),
          f"{found['build']:.2f}",
          f"{found['first']:.2f}",
          f"{found['sixteen']:.2f}",
          str(counts["requests"]),
          f"{counts['bytes'] / 1e6:.1f}",
        ]
      )
      print("  ".join(lines[-1]), flush=True)
  return lines


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f"unknown arguments: {argv[1:]}")
  if _PROBE.value:
    kind, hosts, sources = _PROBE.value.split(",")
    print(json.dumps(_probe(kind, int(hosts), int(sources))))
    return
  sources = 4 if _SMALL.value else _SOURCES.value
  documents = 2_000 if _SMALL.value else _DOCUMENTS.value
  with contextlib.ExitStack() as stack:
    root = pathlib.Path(
      _DIRECTORY.value or stack.enter_context(tempfile.TemporaryDirectory())
    )
    _make(root / "bucket", sources, documents)
    for index in root.glob("bucket/*.index"):
      shutil.rmtree(index)
    process = subprocess.Popen(
      [
        sys.executable,
        str(pathlib.Path(__file__).with_name("object_server.py")),
        str(root),
      ],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
    )
    stack.callback(process.kill)
    assert process.stdout is not None
    server = f"http://127.0.0.1:{int(process.stdout.readline())}"
    os.environ |= {
      "AWS_ENDPOINT_URL_S3": server,
      "AWS_REGION": "us-east-1",
      "AWS_ACCESS_KEY_ID": "benchmark",
      "AWS_SECRET_ACCESS_KEY": "benchmark",
      "AWS_EC2_METADATA_DISABLED": "true",
    }
    hosts = _HOSTS[:2] if _SMALL.value else _HOSTS
    lines = _lines(server, sources, hosts)
  title = (
    f"{sources} sources of {documents:,} documents in a bucket, 50 ms a"
    f" request; a host reads {_HOST_ROWS} rows of each batch"
  )
  tables.show((title, lines), _OUTPUT.value)


if __name__ == "__main__":
  app.run(main)
