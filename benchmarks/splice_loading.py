# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Splice batches: speed, resume time and memory, on one machine in one run.

    python benchmarks/splice_loading.py

Speed is a ratio to a raw gather timed in the same process between repeats:
`big[idx].astype(np.int32)`, big a page-cached uint16 memory map viewed as rows
of S, idx random rows. Medians; [8, 2048] and [64, 2048]; all canonical fields
through `grain.DataLoader`, no workers. Memory is the anonymous resident memory
of a fresh process after 200 batches.
"""

from collections.abc import Sequence
import hashlib
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from absl import app
from absl import flags
import numpy as np
import resuming
import rich.console
import rich.table

from chomp_data import pipeline
from chomp_data import stores

_DIRECTORY = flags.DEFINE_string(
  "directory", None, "Where the corpus is kept between runs (a new one)."
)
_REPEATS = flags.DEFINE_integer("repeats", 9, "Repeats of each timing.", 3)
_MEMORY_OF = flags.DEFINE_integer(
  "memory_of", None, "Only print the memory with so many documents."
)

_SEQ_LEN = 2_048  # tokens
_NUM_DOCUMENTS = 120_000
_STEPS = 100  # batches of a repeat


def make_corpus(path: pathlib.Path) -> None:
  """Writes documents of lognormal lengths: median 500, 16 .. 65,536 tokens."""
  rng = np.random.default_rng(0)
  lengths = np.clip(
    np.exp(rng.normal(np.log(500), 1.2, _NUM_DOCUMENTS)), 16, 65_536
  ).astype(np.int64)
  stores.write_store(
    path,
    (rng.integers(3, 50_000, size=n, dtype=np.int64) for n in lengths),
    tokenizer_info=stores.TokenizerInfo(
      kind="custom",
      sha256=hashlib.sha256(b"synthetic").hexdigest(),
      vocab_size=50_000,
      pad_id=0,
      eos_id=1,
      bos_id=2,
      adds_bos=False,
      adds_eos=False,
    ),
  )


def config(path: pathlib.Path, num_docs: int, batch_size: int) -> dict:
  """Returns seed 000's recommended options at seq_len 2,048."""
  return {
    "seq_len": _SEQ_LEN,
    "global_batch_size": batch_size,
    "sources": {
      "text": {
        "store": str(path),
        "rows": {
          "kind": "multi_splice",
          "num_docs": num_docs,
          "content_length": _SEQ_LEN,
          "alpha": 0.8,
          "balance_tau": 0.7,
          "offset_jitter": 2,
        },
        "shuffle": {"kind": "full"},
      }
    },
  }


def throughput(path: pathlib.Path, batch_size: int) -> dict[str, float]:
  """Returns medians of one shape: ratio to the raw gather, Mtok/s."""
  rng = np.random.default_rng(0)
  with tempfile.NamedTemporaryFile(dir=path.parent) as file:
    rows = 20_000
    rng.integers(0, 50_000, rows * _SEQ_LEN, dtype=np.uint16).tofile(file)
    file.flush()
    big = np.memmap(file.name, np.uint16, "r", shape=(rows, _SEQ_LEN))
    int(big.astype(np.int64).sum())  # In the page cache.
    batches = iter(pipeline.build(config(path, 10, batch_size)).data_loader())

    def gather() -> float:
      index = rng.integers(0, rows, size=(_STEPS, batch_size))
      began = time.perf_counter()
      for own in index:
        big[own].astype(np.int32)
      return time.perf_counter() - began

    def ours() -> float:
      began = time.perf_counter()
      for _ in range(_STEPS):
        next(batches)
      return time.perf_counter() - began

    gather()
    ours()
    pairs = [(gather(), ours()) for _ in range(_REPEATS.value)]
    cpu = time.process_time()
    ours()
    cpu = time.process_time() - cpu
  tokens = _STEPS * batch_size * _SEQ_LEN / 1e6
  ratios = [a / b for a, b in pairs]
  return {
    "ratio": statistics.median(ratios),
    "ratio_low": min(ratios),
    "ratio_high": max(ratios),
    "mtok_s": tokens / statistics.median(b for _, b in pairs),
    "gather_mtok_s": tokens / statistics.median(a for a, _ in pairs),
    "mtok_cpu_s": tokens / cpu,
  }


def anonymous_mib() -> float:
  """Returns this process's anonymous resident memory, MiB (Linux)."""
  for line in pathlib.Path("/proc/self/status").read_text().splitlines():
    if line.startswith("RssAnon:"):
      return int(line.split()[1]) / 1024
  raise OSError("no RssAnon in /proc/self/status")


def print_memory(path: pathlib.Path, num_docs: int) -> None:
  """Prints the memory of this process after 200 batches."""
  batches = iter(pipeline.build(config(path, num_docs, 8)).data_loader())
  for _ in range(200):
    next(batches)
  print(f"{anonymous_mib():.1f}")


def main(argv: Sequence[str]) -> None:
  """Prints the table."""
  if len(argv) > 1:
    raise app.UsageError(f"Unexpected arguments: {' '.join(argv[1:])}")
  with tempfile.TemporaryDirectory() as temporary:
    directory = pathlib.Path(_DIRECTORY.value or temporary)
    path = directory / "corpus"
    if not path.exists():
      make_corpus(path)
    if _MEMORY_OF.value is not None:
      print_memory(path, _MEMORY_OF.value)
      return
    table = rich.table.Table("figure", "value", title="splice loading")
    for batch_size in (8, 64):
      found = throughput(path, batch_size)
      table.add_row(
        f"[{batch_size}, {_SEQ_LEN}] over the raw gather",
        f"{found['ratio']:.3f} ({found['ratio_low']:.3f} .."
        f" {found['ratio_high']:.3f}), {found['mtok_s']:.0f} of"
        f" {found['gather_mtok_s']:.0f} Mtok/s,"
        f" {found['mtok_cpu_s']:.0f} Mtok per CPU second",
      )
    for step in (10, 100_000, 10_000_000):
      times = resuming.first_visits(config(path, 10, 8), step, _REPEATS.value)
      table.add_row(
        f"resume at step {step}, to the first batch on the device",
        f"{statistics.median(times):.1f} ms"
        f" ({min(times):.1f} .. {max(times):.1f})",
      )
    for num_docs in (10, 100_000):
      found = subprocess.run(
          [
              sys.executable, __file__, f"--memory_of={num_docs}",
              f"--directory={directory}",
          ],
          check=True, capture_output=True, text=True,
      )  # fmt: skip
      table.add_row(
        f"anonymous memory with {num_docs} selected documents",
        f"{found.stdout.strip()} MiB",
      )
    rich.console.Console(width=110).print(table)


if __name__ == "__main__":
  app.run(main)
