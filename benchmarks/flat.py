# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Memory over many batches: does it stay what it was?

    python benchmarks/flat.py

By kind of rows, each in a process of its own: anonymous memory of the process
and of its workers after a hundredth of the batches, and how much more it is
after a tenth, from there to the half, and in the second half. Batches of 4 rows
of 64 tokens, some thousand epochs of a tiny corpus: whatever is kept of an
epoch, a window or a batch adds up. Tables of windows may fill 4 MiB. Through
`grain.DataLoader`, without workers and (a tenth of the batches: they take ten
times as long) with one, over a compressed store; `iterator` is the one that
feeds devices.

Ten minutes on two CPU cores.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import gc
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import Any

from absl import app
from absl import flags
from absl import logging
import corpora
import tables

from chomp_data import iterators
from chomp_data import pipeline
from chomp_data.kernels import compiled

_BATCHES = flags.DEFINE_integer("batches", 100_000, "Batches of a run.")
_SMALL = flags.DEFINE_bool("small", False, "A tenth of the batches.")
_KINDS = flags.DEFINE_multi_string("kind", None, "A run; by default all.")
_DIRECTORY = flags.DEFINE_string(
  "directory", None, "Where the store is kept between runs (a new one)."
)
_OUTPUT = flags.DEFINE_string("output", None, "Markdown file to write.")
_COUNTS = flags.DEFINE_multi_integer("of", [0, 1], "Workers of runs.", 0, 1)
_PROBE = flags.DEFINE_string(
  "probe", None, "Measure one run here; for the benchmark itself."
)
_WORKERS = flags.DEFINE_integer("workers", 0, "Workers of a probe.")

_DOCUMENTS, _MEDIAN = 200, 60  # tokens
_SEQ_LEN, _ROWS = 64, 4
# Parts of the batches in hundredths, after which memory is looked at.
_LOOKS = [*range(1, 10), *range(10, 101, 5)]

_BLOCK = {"kind": "block", "window_blocks": 4}
_FULL = {"kind": "full"}
_BIN = {"kind": "bin", "packing_buffer_docs": 50}
_EXACT = {**_BIN, "packing_algorithm": "exact"}
_SOURCES: dict[str, dict[str, Any]] = {
  "sequential, block": {
    "rows": {"kind": "sequential"},
    "shuffle": {**_BLOCK, "io_block_size": 64},
  },
  "sequential, all documents each epoch": {
    "rows": {"kind": "sequential", "shuffle_documents": "full"}
  },
  "bin ffd, block": {"rows": _BIN, "shuffle": _BLOCK},
  "bin ffd, documents by block each epoch": {
    "rows": {**_BIN, "shuffle_documents": "block"},
    "shuffle": _BLOCK,
  },
  "bin exact, full": {"rows": _EXACT, "shuffle": _FULL},
  "windows, full": {"rows": {"kind": "windows"}, "shuffle": _FULL},
  "splices of 4, full": {
    "rows": {"kind": "multi_splice", "num_docs": 4, "content_length": 32},
    "shuffle": _FULL,
  },
}
# Whose memory lies elsewhere: in buckets, in several sources, on devices.
_BUCKETS, _MIX, _ITERATOR = "length buckets", "mix of three", "iterator"
_SLOWER = 10  # times as long takes a batch of a worker, or one on devices


def names() -> list[str]:
  """Returns the names of all runs."""
  return [*_SOURCES, _BUCKETS, _MIX, _ITERATOR]


def config(name: str, store: str) -> dict[str, Any]:
  """Returns `config.data` of a run."""
  shape: dict[str, Any] = {"seq_len": _SEQ_LEN, "global_batch_size": _ROWS}
  if name == _BUCKETS:
    shape = {
      "remainder": "pad",
      "buckets": {
        "kind": "length",
        "lengths": (16, 32, _SEQ_LEN),
        "tokens_per_batch": _ROWS * _SEQ_LEN,
      },
    }
    sources = {"a": {"store": store}}
  elif name == _MIX:
    own = ["sequential, block", "bin ffd, block", "bin exact, full"]
    sources = {n: {"store": store, **_SOURCES[n]} for n in own}
    shape["mix"] = {"weights": dict(zip(own, (3, 2, 1), strict=True))}
  else:
    own = _SOURCES.get(name, _SOURCES["bin ffd, block"])
    sources = {"a": {"store": store, **own}}
  return {"epochs": None, "sources": sources, **shape}


def probe(name: str, store: str, workers: int, batches: int) -> list[int]:
  """Returns bytes of anonymous memory, looked at while batches are read."""
  data = config(name, store)
  with _batches(name, data, workers) as own:
    found = []
    done = 0
    for part in _LOOKS:
      for _ in range(done, batches * part // 100):
        next(own)
      done = batches * part // 100
      gc.collect()
      found.append(_anonymous())
  return found


class _batches:
  """The batches of a run, closed in the end."""

  def __init__(self, name: str, data: dict[str, Any], workers: int):
    if name == _ITERATOR:
      self._own: Any = iterators.make_iterator(
        {**data, "worker_count": workers}
      )
    else:
      pipe = pipeline.build(data)
      self._own = iter(pipe.data_loader(worker_count=workers))

  def __enter__(self) -> Iterator[Any]:
    return self._own

  def __exit__(self, *_: object) -> None:
    if hasattr(self._own, "close"):
      self._own.close()


def _anonymous() -> int:
  """Returns the bytes of this process and of its children, of no file."""
  # Whatever thread has started them.
  children = [
    pid
    for own in pathlib.Path("/proc/self/task").glob("*/children")
    for pid in own.read_text().split()
  ]
  found = 0
  for pid in ["self", *children]:
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    size = re.search(r"RssAnon:\s*(\d+) kB", status)
    found += 1024 * int(size[1]) if size else 0
  return found


def measured(name: str, store: str, workers: int, batches: int) -> list[str]:
  """Returns a line of the table."""
  # Loaded by itself it comes when it pays, somewhere on the way.
  env = {**os.environ, compiled.VARIABLE: "now", "JAX_PLATFORMS": "cpu"}
  command = [
    sys.executable, __file__, f"--probe={name}", f"--directory={store}",
    f"--workers={workers}", f"--batches={batches}",
  ]  # fmt: skip
  found = subprocess.run(
    command, stdout=subprocess.PIPE, text=True, check=True, env=env
  )
  looks = json.loads(found.stdout.splitlines()[-1])
  at = dict(zip(_LOOKS, looks, strict=True))
  # Allocators take pages and give them back: the larger of neighbours.
  first, tenth, half, end = (
    max(at[part] for part in near)
    for near in ((1, 2), (9, 10), (50, 55), (95, 100))
  )
  line = [
    name,
    str(workers),
    f"{batches:,}",
    f"{first / 2**20:.1f}",
    f"{100 * (tenth / first - 1):+.2f} %",
    f"{100 * (half / tenth - 1):+.2f} %",
    f"{100 * (end / half - 1):+.2f} %",
    f"{(end - half) / (batches / 2):+.1f}",
  ]
  print("  ".join(line), flush=True)
  return line


def main(argv: Sequence[str]) -> None:
  """Measures every run."""
  if len(argv) > 1:
    raise app.UsageError(f"Unexpected arguments: {' '.join(argv[1:])}")
  logging.set_verbosity(logging.ERROR)
  count = _BATCHES.value
  if _PROBE.value:
    store = _DIRECTORY.value or "."
    print(json.dumps(probe(_PROBE.value, store, _WORKERS.value, count)))
    return
  if _SMALL.value:
    count //= 10
  wanted = _KINDS.value or names()
  unknown = set(wanted) - set(names())
  if unknown:
    raise app.UsageError(
      f"--kind must be one of {'; '.join(names())}, got {'; '.join(unknown)}."
    )
  with tempfile.TemporaryDirectory() as temporary:
    root = pathlib.Path(_DIRECTORY.value or temporary)
    # Workers are started where they help: chunks are to be decoded.
    paths = [root / "flat", root / "flat-zstd"]
    for path, how in zip(paths, ("none", "zstd"), strict=True):
      if not path.exists():
        corpora.make_corpus(
          path, _DOCUMENTS, median=_MEDIAN, compression=how, chunk=65_536
        )
    lines = [["run", "workers", "batches", "MB after 1 %", "to a tenth"]]
    lines[0] += ["to the half", "second half", "its bytes a batch"]
    for workers, name in itertools.product(_COUNTS.value, wanted):
      slow = workers or name == _ITERATOR
      own = count // _SLOWER if slow else count
      lines.append(measured(name, str(paths[workers]), workers, own))
  title = (
    f"Anonymous memory over batches of {_ROWS} rows of {_SEQ_LEN}, by kind;"
    " workers' memory is added"
  )
  tables.show((title, lines), _OUTPUT.value)


if __name__ == "__main__":
  app.run(main)
