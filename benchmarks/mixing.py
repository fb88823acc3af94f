# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Mixing: how even, how soon, how much memory, how fast, by which process.

    python benchmarks/mixing.py

Five parts, each a table (`--parts` runs some):

- deviation: how far a source's tokens are from its share at any position of
  20 million tokens, four sources of equal weights whose rows hold 400, 4,000,
  1,000 and 100 tokens on average (geometric), against mixes of rows: Grain's
  `MapDataset.mix` and draws at random.
- planning: a global batch of 1,024 rows of 3, 32 and 200 bin-packed,
  block-shuffled sources, one after the other, and anew at far steps.
- memory: what a mix of 8 such sources of 10**8 rows in all keeps, and of ten
  times fewer. Lengths repeat, so that the stores themselves take nothing.
- loading: three sources of 70,000, 20,000 and 10,000 documents at 0.5, 0.3 and
  0.2 of the tokens, all canonical fields through `grain.DataLoader`, no
  workers, over a raw gather timed in the same process between repeats
  (`harness.raw_gather`).
- processes: which part of a process's rows is of which source, four sources in
  a fixed turn over four processes, with and without the permutation of a batch.

Documents have lognormal lengths: median 500 tokens, sigma 1.2, 16 .. 65,536.
A minute or two on two CPU cores.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import fractions
import pathlib
import statistics
import threading
import time
import tracemalloc
from typing import Any

import corpora
import grain
import harness
import numpy as np

import chomp_data
from chomp_data import pipeline
from chomp_data.index import steps as steps_lib
from chomp_data.kernels import compiled
from chomp_data.mix import interleave
from tests.mix import unit_lists

_SEQ_LEN = harness.SEQ_LEN
_STEPS = 100  # batches between two raw gathers
_PLANNED = 1_024  # rows of a global batch that is planned
_PERIOD = 65_536  # lengths that are drawn, of which large corpora repeat
_LENGTHS = {"web": 400, "books": 4_000, "code": 1_000, "chat": 100}  # tokens
_WEIGHTS = {"web": 0.5, "code": 0.3, "wiki": 0.2}
_ROWS: dict[str, dict[str, Any]] = {
  "sequential, full": {"kind": "sequential"},
  "sequential, block": {"kind": "sequential"},
  "bin ffd, block": {"kind": "bin"},
}


@dataclasses.dataclass(frozen=True)
class Setting:
  """What is measured.

  Attributes:
    tokens: Tokens over which deviations are taken.
    planned: Numbers of sources that are planned.
    documents: Of each of these sources.
    steps: Where plans anew begin.
    rows: Rows of the mixes whose memory is measured, ascending.
    window: Documents of their packing windows.
    corpora: Documents of the sources that are read.
    repeats: Raw gathers and batches between them, by kind of rows.
    shared: Steps over which shares of processes are taken.
  """

  tokens: int = 20_000_000
  planned: tuple[int, ...] = (3, 32, 200)
  documents: int = 50_000
  steps: tuple[int, ...] = (1_000, 10_000_000)
  rows: tuple[int, int] = (10_000_000, 100_000_000)
  window: int = 5_120
  corpora: tuple[int, ...] = (70_000, 20_000, 10_000)
  repeats: int = 30
  shared: int = 1_000


def deviation(setting: Setting, directory: pathlib.Path) -> harness.Table:
  """Compares mixes by the tokens of their sources at every position."""
  del directory  # Lengths alone say it.
  rng = np.random.default_rng(0)
  means = np.asarray(list(_LENGTHS.values()))
  # Enough rows for each mix, whatever it takes most.
  lengths = [
    rng.geometric(1 / mean, 2 * setting.tokens // int(means.min()))
    for mean in means
  ]
  merge = interleave.Interleave(
    {
      name: unit_lists.ArrayUnits(own)
      for name, own in zip(_LENGTHS, lengths, strict=True)
    },
    [interleave.Stage(0, dict.fromkeys(_LENGTHS, fractions.Fraction(1)))],
    key=0,
  )
  by_mean = (1 / means) / (1 / means).sum()
  equal = np.full(len(means), 1 / len(means))
  found = {
    "token_balanced (ours)": lambda n: merge.locate(np.arange(n))[0],
    "Grain mix, equal weights": lambda n: _grain_sources(lengths, equal, n),
    "Grain mix, weights 1 / mean length": lambda n: _grain_sources(
      lengths, by_mean, n
    ),
    "drawn at random, 1 / mean length": lambda n: rng.choice(
      len(means), n, p=by_mean
    ),
  }
  lines = [["mix", "rows", "largest deviation, tokens", "of the share", "end"]]
  for name, order in found.items():
    # Until the mix has given so many tokens.
    mean = means.mean() if "equal" in name else (by_mean * means).sum()
    source = order(int(1.2 * setting.tokens / mean))
    sums = _sums(source, lengths)
    total = sums.sum(axis=1)
    count = int(np.searchsorted(total, setting.tokens)) + 1
    away = np.abs(sums[:count] - total[:count, None] / len(means))
    lines.append(
      [
        name,
        f"{count:,}",
        f"{away.max():,.0f}",
        f"{away.max() / (setting.tokens / len(means)):.3%}",
        " / ".join(f"{own:.2%}" for own in sums[count - 1] / total[count - 1]),
      ]
    )
  rows = max(int(own.max()) for own in lengths)
  title = (
    f"deviation: {setting.tokens:,} tokens, the longest row has {rows:,};"
    f" shares at the end: {' / '.join(_LENGTHS)}"
  )
  return title, lines


def _grain_sources(
  lengths: Sequence[np.ndarray], weights: np.ndarray, count: int
) -> np.ndarray:
  """Returns which source each row of Grain's mix is of."""
  parts = [
    grain.MapDataset.range(len(own)).map(lambda row, i=i: i)
    for i, own in enumerate(lengths)
  ]
  mixed = grain.MapDataset.mix(parts, weights.tolist())
  return np.fromiter((mixed[i] for i in range(count)), np.int64, count)


def _sums(source: np.ndarray, lengths: Sequence[np.ndarray]) -> np.ndarray:
  """Returns int64[N, S], what sources have given after each row."""
  sums = np.zeros((len(source), len(lengths)), np.int64)
  for i, own in enumerate(lengths):
    taken = np.flatnonzero(source == i)
    sums[taken, i] = own[: len(taken)]
  return np.cumsum(sums, axis=0)


def _mixture(
  stores: Sequence[corpora.LengthsStore], kind: str, **packing: Any
) -> chomp_data.MixtureSource:
  """Returns a token-balanced mix of one of `_ROWS`."""
  parts = {}
  for i, store in enumerate(stores):
    name = f"s{i}"
    if kind.startswith("bin"):
      options = chomp_data.BinOptions(**packing)
      rows = chomp_data.BinSource(store, options, seq_len=_SEQ_LEN, name=name)
    else:
      rows = chomp_data.SequentialSource(
        store, chomp_data.SequentialOptions(), seq_len=_SEQ_LEN, name=name
      )
    shuffle = chomp_data.ShuffleOptions(kind=kind.split(", ")[1])
    parts[name] = chomp_data.ShuffledSource(rows, shuffle, seed=0)
  return chomp_data.MixtureSource(
    parts,
    chomp_data.MixOptions(
      weights=tuple((name, 1 + i % 7) for i, name in enumerate(parts))
    ),
    seed=0,
    steps=steps_lib.Steps(((0, _PLANNED),)),
    epochs=None,
  )


def planning(setting: Setting, directory: pathlib.Path) -> harness.Table:
  """Plans global batches of many sources."""
  lines = [
    [
      "rows", "sources", "build s", "plan, ms", "mean ms", "merge alone, mean",
      *(f"anew at step {step:,}, ms" for step in setting.steps),
    ]
  ]  # fmt: skip
  for kind in ("sequential, full", "bin ffd, block"):
    for count in setting.planned:
      stores = [
        corpora.LengthsStore(directory / f"s{i}", setting.documents, seed=i)
        for i in range(count)
      ]
      _mixture(stores, kind)  # Indexes lie beside the stores from now on.
      began = time.perf_counter()
      mix = _mixture(stores, kind)
      build = time.perf_counter() - began
      plans = [_seconds(mix.plan, _rows(step)) for step in range(60)][20:]
      # What the merge adds to the plans of the sources.
      locate = _mixture(stores, kind)._merge.locate
      merges = [_seconds(locate, _rows(step)) for step in range(60)][20:]
      far = []
      for step in setting.steps:
        times = [
          _seconds(_mixture(stores, kind).plan, _rows(step)) for _ in range(5)
        ]
        far.append(f"{statistics.median(times) * 1e3:.1f}")
      lines.append(
        [
          kind,
          str(count),
          f"{build:.2f}",
          f"{statistics.median(plans) * 1e3:.2f}",
          f"{statistics.mean(plans) * 1e3:.2f}",
          f"{statistics.mean(merges) * 1e3:.2f}",
          *far,
        ]
      )
  title = (
    f"planning: {_PLANNED:,} rows of sources of {setting.documents:,} documents"
  )
  return title, lines


def _rows(step: int) -> np.ndarray:
  return np.arange(step * _PLANNED, (step + 1) * _PLANNED)


def _seconds(call: Callable[[np.ndarray], Any], rows: np.ndarray) -> float:
  began = time.perf_counter()
  call(rows)
  return time.perf_counter() - began


def memory(setting: Setting, directory: pathlib.Path) -> harness.Table:
  """Measures what a mix keeps, before and after plans."""
  lines = [
    [
      "rows", "build s", "kept, MB", "with windows in use, MB", "plan, ms",
      "mean ms",
    ]
  ]  # fmt: skip
  for rows in setting.rows:
    stores = []
    for i in range(8):
      # Indexes lie beside a store's path: one for each number of rows.
      path = directory / f"r{i}_{rows}"
      once = corpora.LengthsStore(path, _PERIOD, seed=i).num_tokens
      times = -(-int(rows / 8 * _SEQ_LEN) // once)
      stores.append(corpora.LengthsStore(path, _PERIOD, seed=i, times=times))
    # Compiled loops, and the packing of mixes measured before, may be loaded
    # or made in a thread, whose memory is not of this mix.
    compiled.wait()
    for thread in threading.enumerate():
      if thread.name == "background packer":
        thread.join()
    tracemalloc.start()
    began = time.perf_counter()
    # The fewest rows need no index beside a store, only sums.
    mix = _mixture(
      stores,
      "bin, block",
      packing_algorithm="exact",
      packing_buffer_docs=setting.window,
    )
    build = time.perf_counter() - began
    kept = tracemalloc.get_traced_memory()[0]
    mix.plan(_rows(0))
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    times = [_seconds(mix.plan, _rows(step)) for step in range(60)]
    lines.append(
      [
        f"{sum(len(part) for part in mix.parts.values()):,}",
        f"{build:.2f}",
        f"{kept / 1e6:.2f}",
        f"{used / 1e6:.2f}",
        f"{statistics.median(times[10:]) * 1e3:.3f}",
        f"{statistics.mean(times[10:]) * 1e3:.3f}",
      ]
    )
  return f"memory: 8 sources, plans of {_PLANNED:,} rows", lines


def loading(setting: Setting, directory: pathlib.Path) -> harness.Table:
  """Reads mixes, raw gathers in between."""
  lines = [
    [
      "rows", "shape", "ratio, median", "low .. high", "Mpositions/s", "gather",
      "Mtokens/CPU s",
    ]
  ]  # fmt: skip
  paths = {}
  for name, documents in zip(_WEIGHTS, setting.corpora, strict=True):
    paths[name] = directory / name
    corpora.make_corpus(paths[name], documents)
  with harness.raw_gather(directory, setting.corpora[0] // 2) as gather:
    for kind, batch_size in (
      *((kind, 8) for kind in _ROWS), ("sequential, block", 64),
      ("bin ffd, block", 64),
    ):  # fmt: skip
      config = {
        "seq_len": _SEQ_LEN,
        "global_batch_size": batch_size,
        "sources": {
          name: {
            "store": str(path),
            "rows": _ROWS[kind],
            "shuffle": {"kind": kind.split(", ")[1]},
          }
          for name, path in paths.items()
        },
        "mix": {"kind": "token_balanced", "weights": _WEIGHTS},
      }
      lines.append(
        [
          kind,
          f"[{batch_size}, {_SEQ_LEN}]",
          *throughput(config, gather, setting.repeats),
        ]
      )
  return "loading: over a raw gather", lines


def throughput(config: dict[str, Any], gather: Any, repeats: int) -> list[str]:
  """Returns the figures of one mix."""
  pipe = pipeline.build(config)
  batch_size = pipe.global_batch_size
  steps = max(1, _STEPS * 8 // batch_size)
  batches = iter(pipe.data_loader())

  gather(steps, batch_size)
  # Until every window was packed and every chunk was checked, twice over.
  rows = max(len(own) / _WEIGHTS[n] for n, own in pipe.sources.items())
  for _ in range(min(repeats, int(rows) // (steps * batch_size) + 1)):
    for _ in range(steps):
      next(batches)
  raw, own, cpu = harness.beside_gather(
    gather, batches, steps, batch_size, repeats
  )
  positions = steps * batch_size * _SEQ_LEN / 1e6
  tokens = sum(
    own.tokens or 0 for own in pipe.accounts.at(steps * repeats).values()
  )
  full = tokens / (steps * repeats * batch_size * _SEQ_LEN)
  low, median, high = np.percentile(raw / own, (10, 50, 90))
  return [
    f"{median:.3f}",
    f"{low:.3f} .. {high:.3f}",
    f"{positions / np.median(own):.0f}",
    f"{positions / np.median(raw):.0f}",
    f"{positions * full * repeats / cpu.sum():.0f}",
  ]


def processes(setting: Setting, directory: pathlib.Path) -> harness.Table:
  """Shares rows of a fixed turn of four sources over four processes."""
  lines = [["order of a batch", "rows of a process", "least", "most"]]
  names = [f"s{i}" for i in range(4)]
  store = corpora.LengthsStore(directory / "lengths", 10_000)
  batch_size = 8
  mix = chomp_data.MixtureSource(
    {
      name: chomp_data.ShuffledSource(
        chomp_data.SequentialSource(
          store, chomp_data.SequentialOptions(), seq_len=_SEQ_LEN, name=name
        ),
        chomp_data.ShuffleOptions(),
        seed=0,
      )
      for name in names
    },
    # Nearly equal, so that a turn is always the same: no tie is drawn.
    chomp_data.MixOptions(
      weights=tuple((name, 1 - i * 1e-6) for i, name in enumerate(names))
    ),
    seed=0,
    steps=steps_lib.Steps(((0, batch_size),)),
    epochs=None,
  )
  numbers = np.arange(setting.shared * batch_size)
  orders = {
    "as merged": mix._merge.locate(numbers)[0],
    "permuted": mix.plan(numbers).row_source(),
  }
  for what, order in orders.items():
    grid = order.reshape(setting.shared, batch_size)
    for layout, rows in (
      ("contiguous", np.arange(batch_size).reshape(4, 2)),
      ("every fourth", np.arange(batch_size).reshape(2, 4).T),
    ):
      shares = np.stack(
        [np.bincount(grid[:, own].reshape(-1), minlength=4) for own in rows]
      ) / (2 * setting.shared)
      lines.append([what, layout, f"{shares.min():.1%}", f"{shares.max():.1%}"])
  title = (
    f"processes: share of a source in the rows of a process, 25% in all;"
    f" {setting.shared:,} batches of {batch_size} rows"
  )
  return title, lines


_SMALL = Setting(
  tokens=200_000,
  planned=(3, 8),
  documents=10_000,
  steps=(10, 10_000_000),
  rows=(100_000, 1_000_000),
  window=500,
  corpora=(3_000, 1_000, 500),
  repeats=2,
  shared=200,
)


if __name__ == "__main__":
  harness.run(
    {
      part.__name__: lambda directory, part=part: part(
        _SMALL if harness.SMALL.value else Setting(), directory
      )
      for part in (deviation, planning, memory, loading, processes)
    }
  )
