# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Scale: what a mix of many sources, or of many stages, costs.

    python benchmarks/scale.py

Parts, each a table (`--parts` runs some); the first two in CPU seconds:

- sources: tiny stores of different sizes, `bin` rows of 2,048, shuffled in
  blocks, balanced in tokens, batches of 1,024 rows: to build the run, its first
  plan and a later one, its first batch; descriptors and anonymous memory on top
  of a run of one source. Indexes are built before and lie beside the stores.
- stages: a chain in which weights change every 1,000 or 64,000 rows: to build
  it, and the first rows of its last stage; of numbers in memory, and of rows
  packed by 'exact' without an index, whose sums need windows to be packed.
- packed: First-Fit-Decreasing over `--documents` lengths that are drawn to a
  file of 8 bytes each, in a process of its own: on one core and on all; killed
  at half of its time and started again; opened by another process.
- memory: `--sources` stores of `--each` documents, hard links of one, as one
  mix of First-Fit-Decreasing rows, shuffled in blocks, in a process of its own:
  anonymous memory, file pages and the longest batch of the first batches.
- virtual: 16 stores of `--virtual` documents together, whose lengths repeat in
  no file, as one mix: to build it first, which passes over all lengths, and
  again; a plan and a state far on; what the process holds. The first such state
  passes over all documents; of `exact` it packs them (6.4 bytes each), and
  is left out where the disk has no room.

Three minutes on two CPU cores, most of it to write 200 stores. For a billion,
ten minutes and 16 GB of disk: `--parts=packed --documents=1000000000`; 16
stores of ten billion: `--parts=virtual --virtual=10000000000`.
"""

from collections.abc import Callable
from collections.abc import Mapping
import fractions
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
import numpy as np

import chomp_data
from chomp_data import pipeline
from chomp_data.loading import feed
from chomp_data.mix import interleave
from chomp_data.pack import bins as bin_source
from chomp_data.sources import source_units
from chomp_data.stores import kinds
from chomp_data.testing import stores as testing_stores
from tests.mix import unit_lists

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
_STEPS = 64  # batches over which a later plan is measured
_PERIODS = (1_000, 64_000)  # rows of a stage
_PACKED_BYTES = 8  # kept of a document, at most


def sources(counts: tuple[int, ...], directory: pathlib.Path) -> harness.Table:
  """Measures mixes of some numbers of sources."""
  for number in range(max(counts)):
    rng = np.random.default_rng(number)
    sizes = rng.geometric(1 / 600, 300 + number * 37 % 2_000)
    testing_stores.make_store(
      directory / str(number),
      (rng.integers(2, 250, size) for size in sizes.tolist()),
      chunk=65_536,
    )
  pipeline.build(_config(directory, 1)).batch(0)
  lines = [["sources", "build, ms", "first plan", "later plan", "first batch"]]
  lines[0] += ["descriptors", "MB"]
  for count in counts:
    data = _config(directory, count)
    pipeline.build(data).plan(0)  # Indexes are built here.
    descriptors, memory = _descriptors(), harness.resident()
    made: list[pipeline.Pipeline] = []
    cells = [
      _ms(lambda made=made, data=data: made.append(pipeline.build(data)))
    ]
    pipe = made[0]
    cells.append(_ms(lambda pipe=pipe: pipe.plan(0)))
    cells.append(
      _ms(lambda pipe=pipe: [pipe.plan(1 + i) for i in range(_STEPS)]) / _STEPS
    )
    cells.append(_ms(lambda pipe=pipe: pipe.batch(0)))
    lines.append(
      [
        str(count),
        *(f"{cell:.3g}" for cell in cells),
        str(_descriptors() - descriptors),
        f"{(harness.resident() - memory) / 2**20:.3g}",
      ]
    )
  return f"Mixes of many sources, batches of {_ROWS} rows, CPU ms", lines


def stages(
  counts: tuple[int, ...], packed_stages: int, directory: pathlib.Path
) -> harness.Table:
  """Measures chains of some numbers of stages."""
  rng = np.random.default_rng(0)
  in_memory = {
    name: unit_lists.ArrayUnits(rng.integers(1, 2_048, 5_000), None)
    for name in "abc"
  }
  lines = [["stages", "rows of a stage", "units"]]
  lines[0] += ["build, ms", "first rows of the last stage, ms"]
  for period in _PERIODS:
    for count in counts:
      lines.append(_chain("in memory", in_memory, count, period))
  exact = {name: _exact_units(directory, name) for name in "abc"}
  lines.append(_chain("exact rows", exact, packed_stages, _PERIODS[-1]))
  return "Chains of stages, three sources, CPU ms", lines


def _exact_units(
  directory: pathlib.Path, name: str
) -> source_units.SourceUnits:
  """Returns the tokens of rows that are packed when they are asked for."""
  store = corpora.LengthsStore(directory / f"lengths_{name}", 100_000)
  options = chomp_data.BinOptions(packing_algorithm="exact")
  rows = chomp_data.BinSource(store, options, seq_len=_SEQ_LEN, name=name)
  shuffle = chomp_data.ShuffleOptions(kind="block")
  ordered = chomp_data.ShuffledSource(rows, shuffle, seed=0)
  return source_units.SourceUnits(ordered, "tokens", None)


def _chain(
  units: str, sequences: Mapping[str, Any], count: int, period: int
) -> list[str]:
  """Returns a line about one chain of stages."""
  chain = [
    interleave.Stage(
      period * i,
      {
        name: fractions.Fraction(100 + 800 * (i * step % 97) // 97, 1_000)
        for step, name in enumerate(sequences, 1)
      },
    )
    for i in range(count)
  ]
  merges: list[interleave.Interleave] = []
  build = _ms(lambda: merges.append(interleave.Interleave(sequences, chain, 0)))
  rows = period * (count - 1) + np.arange(_ROWS)
  last = _ms(lambda: merges[0].locate(rows))
  return [str(count), f"{period:,}", units, f"{build:.3g}", f"{last:.3g}"]


def packed(documents: int, directory: pathlib.Path) -> harness.Table:
  """Measures packing and opening what is packed."""
  path = directory / "packed"
  path.mkdir(parents=True)
  free, needed = shutil.disk_usage(path).free, 15 * documents + 2**30
  if free < needed:
    raise app.UsageError(
      f"--documents={documents} needs {needed / 1e9:.0f} GB of disk, got"
      f" {free / 1e9:.0f}. Take fewer, or another --directory."
    )
  index = directory / "packed.index"
  lines = [
    ["packed", "minutes", "CPU min", "M documents/s", "bytes", "B/document"]
  ]
  lines[0] += ["peak MB", "the same bytes"]

  def told(name: str, found: dict[str, float]) -> None:
    size = sum(file.stat().st_size for file in index.rglob("*.bin"))
    digests.append(_digest(index))
    lines.append(
      [
        name,
        f"{found['wall'] / 60:.2f}",
        f"{found['cpu'] / 60:.2f}",
        f"{documents / found['wall'] / 1e6:.1f}",
        f"{size:,}",
        f"{size / documents:.2f}",
        f"{found['peak'] / 2**20:.0f}",
        "yes" if digests[-1] == digests[0] else "NO",
      ]
    )

  digests: list[str] = []
  try:
    corpora.write_lengths(path / corpora.FILE, documents)
    for cores in (1, len(os.sched_getaffinity(0))):
      shutil.rmtree(index, ignore_errors=True)
      found = harness.probed("pack", str(path), cores)
      told(f"on {cores} cores", found)
    whole = found["wall"]
    shutil.rmtree(index)
    harness.probed("pack", str(path), cores, kill_after=0.5 * whole)
    found = harness.probed("pack", str(path), cores)
    told(f"killed after {whole / 2:.0f} s, and then", found)
    found = harness.probed("pack", str(path), cores)
    lines.append(
      [
        f"opened again: {found['open']:.2g} s, a plan of {_ROWS} rows"
        f" {1e3 * found['plan']:.2g} ms",
        *([""] * 5),
        f"{found['peak'] / 2**20:.0f}",
        "",
      ]
    )  # fmt: skip
  finally:
    shutil.rmtree(path)
    shutil.rmtree(index, ignore_errors=True)
  return f"Packing {documents:,} documents into rows of {_SEQ_LEN}", lines


def memory(
  count: int, documents: int, directory: pathlib.Path
) -> harness.Table:
  """Measures what a process holds that reads many packed sources."""
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
  lines = [["sources", "batches", "anonymous MB", "of files MB"]]
  lines[0] += ["first batch, s", "longest, s", "mean, ms"]
  for batches in (1, _STEPS, 4 * _STEPS):
    found = harness.probed("memory", str(first.parent), count, batches)
    lines.append(
      [
        str(count),
        str(batches),
        f"{found['anonymous'] / 2**20:.0f}",
        f"{found['file'] / 2**20:.0f}",
        f"{found['first']:.2f}",
        f"{found['longest']:.2f}",
        f"{1e3 * found['mean']:.1f}",
      ]
    )
  shutil.rmtree(first.parent)
  title = f"Packed sources of {documents:,} documents, batches of {_ROWS} rows"
  return title, lines


def virtual(documents: int, directory: pathlib.Path) -> harness.Table:
  """Measures mixes of 16 stores without files."""
  lines = [["rows", "first build, s", "again, s", "plan far on, ms"]]
  lines[0] += ["first state far on, s", "again, ms"]
  lines[0] += ["anonymous MB", "beside the stores"]
  for kind in ("sequential", "exact"):
    path = directory / f"virtual-{kind}"
    path.mkdir(parents=True)
    first = harness.probed(kind, str(path), documents)
    again = harness.probed(kind, str(path), documents)
    size = sum(file.stat().st_size for file in path.rglob("*.bin"))
    lines.append(
      [
        kind,
        f"{first['build']:.1f}",
        f"{again['build']:.2f}",
        f"{1e3 * again['plan']:.1f}",
        f"{first['state']:.1f}" if "state" in first else "-",
        f"{1e3 * again['state']:.1f}" if "state" in again else "-",
        f"{again['anonymous'] / 2**20:.0f}",
        f"{size:,} B",
      ]
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
    plan = _ms(lambda: rows.plan(np.arange(_ROWS) * 997 % len(rows)))
    return {
      "wall": wall, "cpu": used, "open": used, "plan": plan / 1e3,
      "peak": max(held),
    }  # fmt: skip
  (documents,) = of
  per_store = documents // 16
  drawn = min(per_store, 100_000)
  algorithm = {"packing_algorithm": "exact"} if figure == "exact" else {}
  kind = "bin" if figure == "exact" else "sequential"
  kinds.STORE_KINDS["lengths"] = kinds.StoreKind(
    lambda own, cache_bytes: corpora.LengthsStore(
      own, drawn, int(pathlib.Path(own).name), per_store // drawn
    ),
    lambda own: own.parent == path,
  )
  data = {
    "seq_len": _SEQ_LEN,
    "global_batch_size": _ROWS,
    "sources": {
      f"s{i}": {
        "store": str(path / str(i)),
        "rows": {"kind": kind, **algorithm},
        "shuffle": {"kind": "block"},
        "weight": 1 + i,
      }
      for i in range(16)
    },
    "mix": {"kind": "token_balanced"},
  }
  made: list[pipeline.Pipeline] = []
  build = _ms(lambda: made.append(pipeline.build(data)))
  far = 10**6
  found = {
    "build": build / 1e3,
    "plan": _ms(lambda: made[0].plan(far)) / 1e3,
  }
  packs = _PACKED_BYTES * documents if figure == "exact" else 0
  if shutil.disk_usage(path).free > packs + 2**30:
    found["state"] = _ms(lambda: made[0].accounts.record(far)) / 1e3
  return {**found, "anonymous": harness.resident()}


def _read(
  directory: pathlib.Path, count: int, batches: int
) -> dict[str, float]:
  """Reads batches of a mix; returns memory in bytes and times in seconds."""
  began = time.perf_counter()
  pipe = pipeline.build(_config(directory, count))
  reader = iter(feed.data_loader(pipeline.batch_source(pipe)))
  next(reader)
  times = [time.perf_counter() - began]
  for _ in range(batches - 1):
    begun = time.perf_counter()
    next(reader)
    times.append(time.perf_counter() - begun)
  return {
    "anonymous": harness.resident(),
    "file": harness.resident("RssFile"),
    "first": times[0],
    "longest": max(times[1:], default=0),
    "mean": sum(times[1:]) / max(len(times) - 1, 1),
  }


def _digest(index: pathlib.Path) -> str:
  """Returns the SHA-256 of the arrays of an index."""
  found = hashlib.sha256()
  for file in sorted(index.rglob("*.bin")):
    with open(file, "rb") as opened:
      found.update(hashlib.file_digest(opened, "sha256").digest())
  return found.hexdigest()


def _config(directory: pathlib.Path, count: int) -> dict[str, Any]:
  return {
    "seq_len": _SEQ_LEN,
    "global_batch_size": _ROWS,
    "sources": {
      str(i): {
        "store": str(directory / str(i)),
        "rows": {"kind": "bin"},
        "shuffle": {"kind": "block"},
        "weight": round(0.1 + i * 31 % 100 / 100, 2),
      }
      for i in range(count)
    },
    "mix": {"kind": "token_balanced"},
  }


def _ms(call: Callable[[], Any]) -> float:
  """Returns the CPU time of a call."""
  return 1e3 * harness.cpu_s(call)


def _descriptors() -> int:
  return len(os.listdir("/proc/self/fd"))


def _small(value: Any, small: Any) -> Any:
  return small if harness.SMALL.value else value


if __name__ == "__main__":
  harness.run(
    {
      "sources": lambda directory: sources(
        _small((3, 32, 200), (2, 5)), directory / "scale"
      ),
      "stages": lambda directory: stages(
        _small((1, 500, 5_000), (1, 50)), _small(1_000, 2), directory / "scale"
      ),
      "packed": lambda directory: packed(
        _small(_DOCUMENTS.value, 600_000), directory / "scale"
      ),
      "memory": lambda directory: memory(
        _small(_SOURCES.value, 3),
        _small(_EACH.value, 20_000),
        directory / "scale",
      ),
      "virtual": lambda directory: virtual(
        _small(_VIRTUAL.value, 1_600_000), directory / "scale"
      ),
    },
    _probe,
  )
