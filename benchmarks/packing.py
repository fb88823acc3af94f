# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Packed rows: how full, how soon, how fast, on one machine in one run.

    python benchmarks/packing.py

Six parts, each a table (`--parts` runs some):

- utilisation: positions that hold a token, documents cut and packing speed, by
  row length, window and algorithm.
- reserved: what fill in the middle costs: padding with and without the three
  positions that every piece reserves, 10**6 documents with an EOS each.
- planning: what random access needs for 10**7 documents without tokens: time,
  bytes on disk, bytes in memory by document, and the time of a plan.
- loading: over a raw gather timed in the same process between repeats
  (`harness.raw_gather`), splices too. Two epochs at [8, 2048] and [64, 2048],
  all canonical fields through `grain.DataLoader`, no workers. A ratio compares
  positions, filler counted, as the gather has no filler; tokens/s count
  tokens only. The first epoch checks every chunk and packs every window; the
  second finds both in memory, as a corpus of this size fits there.
- starts: the first batch after imports, and resuming at far steps.
- memory: anonymous memory of a fresh process after 200 batches, and with ten
  times as many documents.

Documents have lognormal lengths: median 500 tokens, sigma 1.2, 16 .. 65,536.
Two minutes on two CPU cores.
"""

import dataclasses
import pathlib
import shutil
import statistics
import time
import tracemalloc
from typing import Any

import corpora
import harness
import numpy as np

import chomp_data
from chomp_data import pipeline
from chomp_data.loading import feed
from chomp_data.pack import packing

_SEQ_LEN = harness.SEQ_LEN
_STEPS = 100  # batches between two raw gathers

_ROWS: dict[str, dict[str, Any]] = {
  "sequential, full": {"kind": "sequential"},
  "sequential, block": {"kind": "sequential"},
  "bin ffd, block": {"kind": "bin"},
  "bin exact, block": {"kind": "bin", "packing_algorithm": "exact"},
}
# What is read, not packed: seed 000's recommended options.
_READ: dict[str, dict[str, Any]] = {
  **_ROWS,
  "splices of 10, full": {
    "kind": "multi_splice",
    "num_docs": 10,
    "content_length": _SEQ_LEN,
    "alpha": 0.8,
    "balance_tau": 0.7,
    "offset_jitter": 2,
  },
}


@dataclasses.dataclass(frozen=True)
class Setting:
  """What is measured.

  Attributes:
    packed: Documents packed for utilisation.
    windows: Documents of packing windows.
    planned: Documents of the stores that are only planned, ascending.
    corpus: Documents of the corpus that is read.
    repeats: Fresh processes, or resumes, of each start.
    started: Rows of which fresh processes are started.
  """

  packed: int = 200_000
  windows: tuple[int, ...] = (1_000, 10_000, 100_000)
  planned: tuple[int, int] = (1_000_000, 10_000_000)
  corpus: int = corpora.NUM_DOCUMENTS
  repeats: int = 5
  started: tuple[str, ...] = (
    "sequential, block",
    "bin ffd, block",
    "bin exact, block",
    "splices of 10, full",
  )


def config(store: pathlib.Path, kind: str, batch_size: int) -> dict[str, Any]:
  """Returns `config.data` of one of `_READ`, all else by default."""
  return {
    "seq_len": _SEQ_LEN,
    "global_batch_size": batch_size,
    "sources": {
      "text": {
        "store": str(store),
        "rows": _READ[kind],
        "shuffle": {"kind": kind.split(", ")[1]},
      }
    },
  }


def utilisation(setting: Setting) -> harness.Table:
  """Packs windows of drawn lengths."""
  lines = [
    [
      "S", "window", "algorithm", "utilisation", "lower bound", "cut", "long",
      "documents/s",
    ]
  ]  # fmt: skip
  drawn = corpora.lengths(np.random.default_rng(1), setting.packed)
  for seq_len in (2_048, 4_096, 8_192):
    for window in setting.windows:
      parts = [
        drawn[first : first + window] for first in range(0, len(drawn), window)
      ]
      fewest = sum(-(-int(part.sum()) // seq_len) for part in parts)
      for algorithm in ("ffd", "exact"):
        rows = cut = 0
        began = time.perf_counter()
        for part in parts:
          packed, num_cut = pack(part, seq_len, algorithm)
          rows += packed.num_rows
          cut += num_cut
        seconds = time.perf_counter() - began
        lines.append(
          [
            f"{seq_len:,}",
            f"{window:,}",
            algorithm,
            f"{drawn.sum() / (rows * seq_len):.4%}",
            f"{drawn.sum() / (fewest * seq_len):.4%}",
            f"{cut / len(drawn):.4%}",
            f"{np.mean(drawn > seq_len):.2%}",
            f"{len(drawn) / seconds:,.0f}",
          ]
        )
  title = (
    f"utilisation: {setting.packed:,} documents; cut = cut though they fit a"
    " row, long = longer than a row"
  )
  return title, lines


def pack(
  lengths: np.ndarray, seq_len: int, algorithm: str
) -> tuple[packing.Rows, int]:
  """Packs one window into rows; counts documents cut though they fit a row."""
  pieces = packing.cut_pieces(lengths, seq_len)
  if algorithm == "exact":
    bins, rows = packing.exact_bins(pieces, seq_len)
  else:
    bins, rows = packing.first_fit_decreasing(pieces.length, seq_len)
  cut = int(np.count_nonzero(bins < 0))
  filled = packing.filled(pieces, bins, rows, seq_len)
  return packing.rows_of_bins(*filled, rows), cut


def reserved(setting: Setting, directory: pathlib.Path) -> harness.Table:
  """Packs documents with and without positions for sentinels."""
  lines = [
    [
      "S", "fim.rate", "rows", "pieces per row", "tokens", "sentinels",
      "padding", "more rows", "plan of 1,024 rows, ms",
    ]
  ]  # fmt: skip
  count = setting.planned[0]
  store = corpora.LengthsStore(directory / f"lengths_{count}", count)
  for seq_len in (2_048, 4_096, 8_192):
    fewest = 0
    for rate in (None, 0.0, 0.5, 1.0):
      fim = None
      if rate is not None:
        fim = chomp_data.FimOptions(
          rate=rate, prefix_id=3, suffix_id=4, middle_id=5
        )
      rows = chomp_data.BinSource(
        store, chomp_data.BinOptions(add_eos=True, fim=fim), seq_len=seq_len
      )
      fewest = fewest or len(rows)
      pieces = tokens = sentinels = 0
      for first in range(0, len(rows), 65_536):
        spans = rows.plan(np.arange(first, min(first + 65_536, len(rows))))
        pieces += len(np.unique(spans.row * seq_len + spans.segment))
        tokens += int(spans.tokens().sum())
        sentinels += int(spans.length.sum() - spans.tokens().sum())
      positions = len(rows) * seq_len
      lines.append(
        [
          f"{seq_len:,}",
          "unset" if rate is None else f"{rate:g}",
          f"{len(rows):,}",
          f"{pieces / len(rows):.2f}",
          f"{tokens / positions:.4%}",
          f"{sentinels / positions:.4%}",
          f"{1 - (tokens + sentinels) / positions:.4%}",
          f"{len(rows) / fewest - 1:.4%}",
          f"{statistics.median(_plan_times(rows)) * 1e3:.3f}",
        ]
      )
  return f"reserved: {count:,} documents", lines


def planning(setting: Setting, directory: pathlib.Path) -> harness.Table:
  """Builds what random access needs, and plans."""
  most = setting.planned[-1]
  lines = [
    [
      "rows", "build s", "CPU s", "documents/s", "open s", "bytes on disk",
      "resident B/document", "plan of 1,024 rows, ms", "mean ms",
      "at 10**9: build", "disk", "resident",
    ]
  ]  # fmt: skip
  fakes = {
    count: corpora.LengthsStore(directory / f"lengths_{count}", count)
    for count in setting.planned
  }
  for kind in _ROWS:
    disk = resident = 0
    build = cpu = opening = 0.0
    plans: list[float] = []
    held = []
    for count, store in fakes.items():
      index = directory / f"lengths_{count}.index"
      shutil.rmtree(index, ignore_errors=True)
      began, cpu_began = time.perf_counter(), time.process_time()
      _ordered(store, kind)
      build = time.perf_counter() - began
      cpu = time.process_time() - cpu_began
      disk = sum(file.stat().st_size for file in index.rglob("*.*"))
      tracemalloc.start()
      rows = _ordered(store, kind)
      rows.plan(np.arange(1_024))
      held.append(tracemalloc.get_traced_memory()[0])
      tracemalloc.stop()
      began = time.perf_counter()
      rows = _ordered(store, kind)
      opening = time.perf_counter() - began
      plans = _plan_times(rows)
      del rows
    low, high = setting.planned
    # What does not grow with the corpus (windows in use) is left out.
    resident = max(held[1] - held[0], 0) / (high - low)
    to_billion = 1e9 / most
    lines.append(
      [
        kind,
        f"{build:.2f}",
        f"{cpu:.2f}",
        f"{most / build:,.0f}",
        f"{opening:.2f}",
        f"{disk:,} ({disk / most:.2f}/doc)",
        f"{resident:.3f}",
        f"{statistics.median(plans) * 1e3:.3f}",
        f"{statistics.mean(plans) * 1e3:.3f}",
        f"{build * to_billion / 60:.0f} min",
        f"{disk * to_billion / 2**30:.2f} GiB",
        f"{resident * 1e9 / 2**20:.0f} MiB",
      ]
    )
  return f"planning: {most:,} documents, row length {_SEQ_LEN}", lines


def _ordered(
  store: corpora.LengthsStore, kind: str
) -> chomp_data.ShuffledSource:
  """Returns one of `_ROWS` over a store without tokens."""
  own = dict(_ROWS[kind])
  if own.pop("kind") == "sequential":
    rows = chomp_data.SequentialSource(
      store, chomp_data.SequentialOptions(), seq_len=_SEQ_LEN
    )
  else:
    rows = chomp_data.BinSource(
      store, chomp_data.BinOptions(**own), seq_len=_SEQ_LEN
    )
  options = chomp_data.ShuffleOptions(kind=kind.split(", ")[1])
  return chomp_data.ShuffledSource(rows, options, seed=0)


def _plan_times(rows: chomp_data.RowSource) -> list[float]:
  """Returns the seconds of plans of 1,024 rows, one after the other."""
  times = []
  for i in range(66):
    numbers = np.arange(i * 1_024, (i + 1) * 1_024)
    began = time.perf_counter()
    rows.plan(numbers)
    times.append(time.perf_counter() - began)
  return times[2:]


def loading(corpus: pathlib.Path) -> harness.Table:
  """Reads an epoch of each kind of rows, raw gathers in between."""
  lines = [
    [
      "rows", "shape", "first epoch", "second, median", "low .. high",
      "Mpositions/s", "Mtokens/s", "gather", "Mtokens/CPU s",
    ]
  ]  # fmt: skip
  with harness.raw_gather(corpus.parent) as gather:
    for kind in _READ:
      for batch_size in (8, 64):
        figures = throughput(corpus, kind, batch_size, gather)
        lines.append([kind, f"[{batch_size}, {_SEQ_LEN}]", *figures])
  return "loading: over a raw gather", lines


def throughput(
  corpus: pathlib.Path, kind: str, batch_size: int, gather: Any
) -> list[str]:
  """Returns the figures of one kind of rows and one shape."""
  pipe = pipeline.build(config(corpus, kind, batch_size))
  rows = pipe.sources["text"]
  gather(_STEPS, batch_size)
  # Of splices an epoch is every pair: as many tokens as the corpus has.
  count = min(len(rows), -(-rows.store.num_tokens // _SEQ_LEN))
  epoch = max(3, count // (batch_size * _STEPS))
  # Both epochs: raw gather, ours, and our CPU time, seconds of each repeat.
  raw, own, cpu = harness.beside_gather(
    gather, iter(pipe.data_loader()), _STEPS, batch_size, 2 * epoch
  ).reshape(3, 2, epoch)
  positions = _STEPS * batch_size * _SEQ_LEN / 1e6
  full = 1.0
  if kind in _ROWS:
    full = rows.store.num_tokens / (len(rows) * _SEQ_LEN)
  low, median, high = np.percentile(raw[1] / own[1], (10, 50, 90))
  return [
    f"{raw[0].sum() / own[0].sum():.3f}",
    f"{median:.3f}",
    f"{low:.3f} .. {high:.3f}",
    f"{positions / np.median(own[1]):.0f}",
    f"{positions * full / np.median(own[1]):.0f}",
    f"{positions / np.median(raw[1]):.0f}",
    f"{positions * full * epoch / cpu[1].sum():.0f}",
  ]


def starts(corpus: pathlib.Path, setting: Setting) -> harness.Table:
  """Times first batches of fresh processes, and resumes."""
  lines = [["rows", "what", "median ms", "low .. high"]]
  for kind in setting.started:
    for what in ("no index", "index cached"):
      times = []
      if what == "index cached":
        _keep_packing(kind, corpus)
      for _ in range(setting.repeats):
        if what == "no index":
          shutil.rmtree(
            corpus.with_name(f"{corpus.name}.index"), ignore_errors=True
          )
        times.append(harness.probed("first_batch", kind, str(corpus)))
      what = f"first batch after imports, {what}"
      lines.append([kind, what, *harness.spread(times)])
    for step in (10, 10_000, 10_000_000):
      data = config(corpus, kind, 8)
      times = harness.resume_times(data, step, setting.repeats)
      what = f"resume at step {step:,}, batch on device"
      lines.append([kind, what, *harness.spread(times)])
  return "starts: [8, 2048]", lines


def _keep_packing(kind: str, corpus: pathlib.Path) -> None:
  """Keeps what a longer run of packed rows leaves beside the store."""
  rows = pipeline.build(config(corpus, kind, 8)).sources["text"]
  if isinstance(rows, chomp_data.ShuffledSource):
    rows = rows.rows
  if isinstance(rows, chomp_data.BinSource):
    rows.packing.in_order(0).build_index()


def memory(corpus: pathlib.Path, setting: Setting) -> harness.Table:
  """Returns anonymous memory with some documents, and with ten times more."""
  lines = [["rows", "documents", "tokens", "anonymous MiB"]]
  many = corpus.with_name("corpus_many")
  # As many tokens, so that it is documents alone that differ.
  corpora.make_corpus(many, 10 * setting.corpus, median=50)
  for kind in setting.started:
    for path in (corpus, many):
      store = pipeline.build(config(path, kind, 8)).sources["text"].store
      lines.append(
        [
          kind,
          f"{store.num_documents:,}",
          f"{store.num_tokens:,}",
          f"{harness.probed('memory', kind, str(path)):.1f}",
        ]
      )
  title = "memory: after 200 batches of [8, 2048], Python and JAX included"
  return title, lines


def probe(figure: str, kind: str, corpus: str) -> float:
  """Returns 'first_batch' in ms, or 'memory' in MiB, of this process."""
  began = time.perf_counter()
  pipe = pipeline.build(config(pathlib.Path(corpus), kind, 8))
  # Not by `pipe.data_loader`, which imports jax only then.
  batches = iter(feed.data_loader(pipeline.batch_source(pipe)))
  next(batches)
  if figure == "first_batch":
    return (time.perf_counter() - began) * 1e3
  for _ in range(199):
    next(batches)
  return harness.resident() / 2**20


_SMALL = Setting(
  packed=4_000,
  windows=(100, 1_000),
  planned=(10_000, 300_000),
  corpus=4_000,
  repeats=1,
  started=("bin ffd, block",),
)


def setting_of() -> Setting:
  """Returns what is measured."""
  return _SMALL if harness.SMALL.value else Setting()


def corpus_of(directory: pathlib.Path) -> pathlib.Path:
  """Returns the corpus that is read."""
  path = directory / "corpus"
  corpora.make_corpus(path, setting_of().corpus)
  return path


if __name__ == "__main__":
  harness.run(
    {
      "utilisation": lambda directory: utilisation(setting_of()),
      "reserved": lambda directory: reserved(setting_of(), directory),
      "planning": lambda directory: planning(setting_of(), directory),
      "loading": lambda directory: loading(corpus_of(directory)),
      "starts": lambda directory: starts(corpus_of(directory), setting_of()),
      "memory": lambda directory: memory(corpus_of(directory), setting_of()),
    },
    probe,
  )
