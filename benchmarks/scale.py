# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Scale: packing very many documents, and mixing very large stores.

    python benchmarks/scale.py

Parts, each a table (`--parts` runs some):

- packed: First-Fit-Decreasing over `--documents` lengths that are drawn to a
  file of 8 bytes each, in a process of its own: on one core and on all; killed
  at half of its time and started again; opened by another process.
- memory: `--sources` stores of `--each` documents, hard links of one, as one
  mix of First-Fit-Decreasing rows, shuffled in blocks, in a process of its own:
  anonymous memory, file pages and waits of the first batches.
- virtual: 16 stores of `--virtual` documents together, whose lengths repeat in
  no file, as one mix: to build it first, which passes over all lengths, and
  again; a plan and a state far on; what the process holds. The first such state
  passes over all documents; of `exact` it packs them (6.4 bytes each), and
  is left out where the disk has no room.

Three minutes on two CPU cores. For a billion, ten minutes and 16 GB of disk:
`--parts=packed --documents=1000000000`; 16 stores of ten billion:
`--parts=virtual --virtual=10000000000`.
"""

import hashlib
import os
import pathlib
import shutil
import threading
import time
from typing import Any

from absl import app
from absl import flags
import corpora
import harness
import kinds
import numpy as np

from chomp_data import pipeline
from chomp_data.loading import feed
from chomp_data.pack import bins as bin_source
from chomp_data.stores import kinds as store_kinds

_DOCUMENTS = flags.DEFINE_integer(
  "documents", 10**7, "Documents that are packed."
)
_SOURCES = flags.DEFINE_integer("sources", 200, "Sources of `memory`.")
_EACH = flags.DEFINE_integer("each", 10**6, "Documents of each of them.")
_VIRTUAL = flags.DEFINE_integer(
  "virtual", 10**8, "Documents of 16 stores without files."
)
_ROWS = 1_024  # of a global batch
_SEQ_LEN = harness.SEQ_LEN
_STEPS = 64  # batches
_PACKED_BYTES = 8  # kept of a document, at most


def packed(directory: pathlib.Path) -> harness.Table:
  """Measures packing and opening what is packed."""
  documents = harness.small(_DOCUMENTS.value, 600_000)
  path = directory / "packed"
  path.mkdir(parents=True)
  free, needed = shutil.disk_usage(path).free, 15 * documents + 2**30
  if free < needed:
    raise app.UsageError(
      f"--documents={documents} needs {needed / 1e9:.0f} GB of disk, got"
      f" {free / 1e9:.0f}. Take fewer, or another --directory."
    )
  index = directory / "packed.index"
  lines = []

  def add(name: str, measured: dict[str, float]) -> None:
    size = sum(file.stat().st_size for file in index.rglob("*.bin"))
    digests.append(_digest(index))
    lines.append(
      {
        "packed": name,
        "minutes": f"{measured['wall'] / 60:.2f}",
        "CPU min": f"{measured['cpu'] / 60:.2f}",
        "M documents/s": f"{documents / measured['wall'] / 1e6:.1f}",
        "bytes": f"{size:,}",
        "B/document": f"{size / documents:.2f}",
        "peak MB": f"{measured['peak'] / 2**20:.0f}",
        "the same bytes": "yes" if digests[-1] == digests[0] else "NO",
      }
    )

  digests: list[str] = []
  try:
    corpora.write_lengths(path / corpora.FILE, documents)
    for cores in (1, len(os.sched_getaffinity(0))):
      shutil.rmtree(index, ignore_errors=True)
      measured = harness.probed("pack", str(path), cores)
      add(f"on {cores} cores", measured)
    whole = measured["wall"]
    shutil.rmtree(index)
    harness.probed("pack", str(path), cores, kill_after=0.5 * whole)
    measured = harness.probed("pack", str(path), cores)
    add(f"killed after {whole / 2:.0f} s, and then", measured)
    measured = harness.probed("pack", str(path), cores)
    lines.append(
      {
        "packed": f"opened again: {measured['open']:.2g} s, a plan of {_ROWS}"
        f" rows {1e3 * measured['plan']:.2g} ms",
        "peak MB": f"{measured['peak'] / 2**20:.0f}",
      }
    )
  finally:
    shutil.rmtree(path)
    shutil.rmtree(index, ignore_errors=True)
  return f"Packing {documents:,} documents into rows of {_SEQ_LEN}", lines


def memory(directory: pathlib.Path) -> harness.Table:
  """Measures what a process holds that reads many packed sources."""
  count = harness.small(_SOURCES.value, 3)
  documents = harness.small(_EACH.value, 20_000)
  first = directory / "memory" / "0"
  corpora.make_corpus(first, documents, median=50)
  # Builds the index, which lies beside the store.
  bin_source.BinSource(first, bin_source.BinOptions(), seq_len=_SEQ_LEN)
  for number in range(1, count):
    for kind in ("", ".index"):
      shutil.copytree(
        f"{first}{kind}",
        first.with_name(f"{number}{kind}"),
        copy_function=os.link,
      )
  measured = harness.probed("memory", str(first.parent), count)
  shutil.rmtree(first.parent)
  line = {
    "sources": str(count),
    "batches": str(_STEPS),
    "anonymous MB": f"{measured['anonymous'] / 2**20:.0f}",
    "of files MB": f"{measured['file'] / 2**20:.0f}",
    "first batch, s": f"{measured['first']:.2f}",
    "longest, s": f"{measured['longest']:.2f}",
  }
  title = f"Packed sources of {documents:,} documents, batches of {_ROWS} rows"
  return title, [line]


def virtual(directory: pathlib.Path) -> harness.Table:
  """Measures mixes of 16 stores without files."""
  documents = harness.small(_VIRTUAL.value, 1_600_000)
  lines = []
  for kind in ("sequential", "exact"):
    path = directory / f"virtual-{kind}"
    path.mkdir(parents=True)
    first = harness.probed(kind, str(path), documents)
    again = harness.probed(kind, str(path), documents)
    size = sum(file.stat().st_size for file in path.rglob("*.bin"))
    lines.append(
      {
        "rows": kind,
        "first build, s": f"{first['build']:.1f}",
        "again, s": f"{again['build']:.2f}",
        "plan far on, ms": f"{1e3 * again['plan']:.1f}",
        "first state far on, s": (
          f"{first['state']:.1f}" if "state" in first else "-"
        ),
        "again, ms": f"{1e3 * again['state']:.1f}" if "state" in again else "-",
        "anonymous MB": f"{again['anonymous'] / 2**20:.0f}",
        "beside the stores": f"{size:,} B",
      }
    )
  title = f"16 stores of {documents:,} documents together, rows of {_SEQ_LEN}"
  return f"{title}, batches of {_ROWS} rows, CPU s and ms", lines


def _probe(figure: str, directory: str, *of: int) -> dict[str, float]:
  """Measures what `packed`, `memory` and `virtual` ask for."""
  path = pathlib.Path(directory)
  began, cpu = time.perf_counter(), time.process_time()
  if figure == "memory":
    return _read(path, *of)
  if figure == "pack":
    (cores,) = of
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    held = [harness.resident()]

    def look() -> None:
      while True:
        held.append(harness.resident())
        time.sleep(0.2)

    threading.Thread(target=look, daemon=True).start()
    rows = bin_source.BinSource(
      corpora.KeptLengthsStore(path),
      bin_source.BinOptions(),
      seq_len=_SEQ_LEN,
    )
    wall, used = time.perf_counter() - began, time.process_time() - cpu
    plan, _ = harness.cpu_s(
      lambda: rows.plan(np.arange(_ROWS) * 997 % len(rows))
    )
    return {
      "wall": wall, "cpu": used, "open": used, "plan": plan, "peak": max(held),
    }  # fmt: skip
  (documents,) = of
  per_store = documents // 16
  drawn = min(per_store, 100_000)
  source = kinds.source(
    "bin exact, block" if figure == "exact" else "sequential, block"
  )
  store_kinds.STORE_KINDS["lengths"] = store_kinds.StoreKind(
    lambda store_path, cache_bytes: corpora.LengthsStore(
      store_path, drawn, int(pathlib.Path(store_path).name), per_store // drawn
    ),
    lambda store_path: store_path.parent == path,
  )
  data = _config(path, 16, source)
  build, pipe = harness.cpu_s(lambda: pipeline.build(data))
  far = 10**6
  measured = {"build": build, "plan": harness.cpu_s(lambda: pipe.plan(far))[0]}
  packs = _PACKED_BYTES * documents if figure == "exact" else 0
  if shutil.disk_usage(path).free > packs + 2**30:
    measured["state"] = harness.cpu_s(lambda: pipe.accounts.record(far))[0]
  return {**measured, "anonymous": harness.resident()}


def _read(directory: pathlib.Path, count: int) -> dict[str, float]:
  """Reads batches of a mix; returns memory in bytes and times in seconds."""
  seconds = [time.perf_counter()]
  pipe = pipeline.build(
    _config(directory, count, kinds.source("bin ffd, block"))
  )
  reader = iter(feed.data_loader(pipeline.batch_source(pipe)))
  for _ in range(_STEPS):
    next(reader)
    seconds.append(time.perf_counter())
  waits = np.diff(seconds)
  return {
    "anonymous": harness.resident(),
    "file": harness.resident("RssFile"),
    "first": waits[0],
    "longest": max(waits[1:]),
  }


def _digest(index: pathlib.Path) -> str:
  """Returns the SHA-256 of the arrays of an index."""
  digest = hashlib.sha256()
  for file in sorted(index.rglob("*.bin")):
    with open(file, "rb") as opened:
      digest.update(hashlib.file_digest(opened, "sha256").digest())
  return digest.hexdigest()


def _config(
  directory: pathlib.Path, count: int, source: dict[str, Any]
) -> dict[str, Any]:
  """Returns a mix of the stores 0, 1, ... of a directory."""
  sources = {
    str(i): {
      "store": str(directory / str(i)),
      **source,
      "weight": round(0.1 + i * 31 % 100 / 100, 2),
    }
    for i in range(count)
  }
  return kinds.of_rows(sources, _SEQ_LEN, _ROWS, mix={"kind": "token_balanced"})


if __name__ == "__main__":
  harness.run(packed, memory, virtual, probe=_probe)
