# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How fast and how soon batches come, over a raw gather, and in what memory.

    python benchmarks/loading.py

All canonical fields, [8, 2048] and [64, 2048], through `grain.DataLoader`, no
workers. Four parts, each a table (`--parts` runs some):

- rows: two epochs of one source of 120,000 documents, by kind of rows. A ratio
  compares positions, padding counted, with a raw gather timed in the same
  process between repeats (`harness.raw_gather`); tokens/s leave padding out.
  The first epoch checks every chunk and packs every window; the second finds
  both in memory, as a corpus of this size fits there.
- mixes: likewise three sources of 70,000, 20,000 and 10,000 documents at 0.5,
  0.3 and 0.2 of the tokens.
- starts: the first batch after imports, and resuming at far steps.
- memory: anonymous memory of a fresh process after 200 batches, and with ten
  times as many documents.

Documents have lognormal lengths: median 500 tokens, sigma 1.2, 16 .. 65,536.
Three minutes on two CPU cores.
"""

from collections.abc import Mapping
import json
import pathlib
import shutil
import time
from typing import Any

import corpora
import harness
import kinds
import numpy as np

import chomp_data
from chomp_data import iterators
from chomp_data import pipeline
from chomp_data.loading import feed
from chomp_data.loading import state

_SEQ_LEN = harness.SEQ_LEN
_STEPS = 100  # batches between two raw gathers
_WEIGHTS = {"web": 0.5, "code": 0.3, "wiki": 0.2}
_DOCUMENTS = {"web": 70_000, "code": 20_000, "wiki": 10_000}
_ROWS = (
  "sequential, full", "sequential, block", "bin ffd, block", "bin exact, block"
)  # fmt: skip
_SPLICES = "splices of 10, full"
_SOURCES = {
  **{name: kinds.source(name) for name in _ROWS},
  _SPLICES: {
    "rows": {
      "kind": "multi_splice", "num_docs": 10, "content_length": _SEQ_LEN,
      "alpha": 0.8, "balance_tau": 0.7, "offset_jitter": 2,
    },
    "shuffle": {"kind": "full"},
  },
}  # fmt: skip
_STARTED = ("sequential, block", *_ROWS[2:], _SPLICES)


def _config(
  stores: Mapping[str, str], kind: str, batch_size: int
) -> dict[str, Any]:
  """Returns `config.data` of one of `_SOURCES`, of a mix where several."""
  sources = {
    name: {"store": path, **_SOURCES[kind]} for name, path in stores.items()
  }
  fields = {}
  if len(stores) > 1:
    fields["mix"] = {"kind": "token_balanced", "weights": _WEIGHTS}
  return kinds.of_rows(sources, _SEQ_LEN, batch_size, **fields)


def _corpus(directory: pathlib.Path) -> str:
  path = directory / "corpus"
  corpora.make_corpus(path, harness.small(corpora.NUM_DOCUMENTS, 4_000))
  return str(path)


def rows(directory: pathlib.Path) -> harness.Table:
  """Reads two epochs of each kind of rows, raw gathers in between."""
  lines = [
    [
      "rows", "shape", "first epoch", "second, median", "low .. high",
      "Mpositions/s", "Mtokens/s", "gather", "Mtokens/CPU s",
    ]
  ]  # fmt: skip
  corpus = _corpus(directory)
  with harness.raw_gather(directory) as gather:
    for kind in _SOURCES:
      for batch_size in (8, 64):
        pipe = pipeline.build(_config({"text": corpus}, kind, batch_size))
        own = pipe.sources["text"]
        # Of splices an epoch is every pair: as many tokens as the corpus has.
        count = min(len(own), -(-own.store.num_tokens // _SEQ_LEN))
        epoch = max(3, count // (batch_size * _STEPS))
        full = own.store.num_tokens / (len(own) * _SEQ_LEN)
        gather(_STEPS, batch_size)
        raw, took, cpu = harness.beside_gather(
          gather, iter(pipe.data_loader()), _STEPS, batch_size, 2 * epoch
        ).reshape(3, 2, epoch)
        lines.append(
          [
            kind,
            f"[{batch_size}, {_SEQ_LEN}]",
            f"{raw[0].sum() / took[0].sum():.3f}",
            *_figures(
              raw[1],
              took[1],
              cpu[1],
              _STEPS * batch_size,
              1.0 if kind == _SPLICES else full,
            ),
          ]
        )
  return "rows: over a raw gather", lines


def mixes(directory: pathlib.Path) -> harness.Table:
  """Reads mixes, raw gathers in between."""
  lines = [
    [
      "rows", "shape", "ratio, median", "low .. high", "Mpositions/s",
      "Mtokens/s", "gather", "Mtokens/CPU s",
    ]
  ]  # fmt: skip
  paths = {}
  for name, documents in _DOCUMENTS.items():
    paths[name] = str(directory / name)
    corpora.make_corpus(directory / name, documents // harness.small(1, 20))
  repeats = harness.small(30, 2)
  with harness.raw_gather(directory) as gather:
    for kind in _ROWS[:3]:
      for batch_size in (8, 64):
        pipe = pipeline.build(_config(paths, kind, batch_size))
        steps = max(1, _STEPS * 8 // batch_size)
        batches = iter(pipe.data_loader())
        gather(steps, batch_size)
        # Until every window was packed and every chunk was checked.
        longest = max(
          len(own) / _WEIGHTS[name] for name, own in pipe.sources.items()
        )
        for _ in range(min(steps * repeats, int(longest) // batch_size)):
          next(batches)
        raw, took, cpu = harness.beside_gather(
          gather, batches, steps, batch_size, repeats
        )
        read = steps * repeats
        tokens = sum(own.tokens or 0 for own in pipe.accounts.at(read).values())
        full = tokens / (read * batch_size * _SEQ_LEN)
        lines.append(
          [
            kind,
            f"[{batch_size}, {_SEQ_LEN}]",
            *_figures(raw, took, cpu, steps * batch_size, full),
          ]
        )
  return "mixes: over a raw gather", lines


def _figures(
  raw: np.ndarray, took: np.ndarray, cpu: np.ndarray, rows: int, full: float
) -> list[str]:
  """Returns cells from seconds of repeats of so many rows, as full as that."""
  positions = rows * _SEQ_LEN / 1e6
  low, median, high = np.percentile(raw / took, (10, 50, 90))
  return [
    f"{median:.3f}",
    f"{low:.3f} .. {high:.3f}",
    f"{positions / np.median(took):.0f}",
    f"{positions * full / np.median(took):.0f}",
    f"{positions / np.median(raw):.0f}",
    f"{positions * full * len(cpu) / cpu.sum():.0f}",
  ]


def starts(directory: pathlib.Path) -> harness.Table:
  """Times first batches of fresh processes, and resumes."""
  lines = [["rows", "what", "median ms", "low .. high"]]
  corpus, repeats = _corpus(directory), harness.small(5, 1)
  index = pathlib.Path(f"{corpus}.index")
  for kind in harness.small(_STARTED, _STARTED[1:2]):
    data = _config({"text": corpus}, kind, 8)
    for what in ("no index", "index cached"):
      if what == "index cached":
        _build_index(data)
      times = []
      for _ in range(repeats):
        if what == "no index":
          shutil.rmtree(index, ignore_errors=True)
        times.append(harness.probed("first_batch", kind, corpus))
      what = f"first batch after imports, {what}"
      lines.append([kind, what, *harness.spread(times)])
    for step in (10, 10_000, 10_000_000):
      # The first resume loads what JAX needs to place a batch.
      times = [_resume_ms(data, step) for _ in range(repeats + 1)][1:]
      what = f"resume at step {step:,}, batch on device"
      lines.append([kind, what, *harness.spread(times)])
  return "starts: [8, 2048]", lines


def _resume_ms(data: Mapping[str, Any], step: int) -> float:
  """Returns the time from a state to its first batch, of a run just built."""
  with iterators.make_iterator(data) as batches:
    fingerprint = json.loads(batches.get_state())["fingerprint"]
    saved = state.encode(step, fingerprint, {})
    began = time.perf_counter()
    batches.set_state(saved)
    next(batches)["tokens"].block_until_ready()
    return (time.perf_counter() - began) * 1e3


def _build_index(data: Mapping[str, Any]) -> None:
  """Keeps what a longer run of packed rows leaves beside the store."""
  source = pipeline.build(data).sources["text"]
  if isinstance(source, chomp_data.ShuffledSource):
    source = source.rows
  if isinstance(source, chomp_data.BinSource):
    source.packing.in_order(0).build_index()


def memory(directory: pathlib.Path) -> harness.Table:
  """Returns anonymous memory with some documents, and with ten times more."""
  lines = [["rows", "documents", "tokens", "anonymous MiB"]]
  few, many = _corpus(directory), directory / "corpus_many"
  # As many tokens, so that it is documents alone that differ.
  corpora.make_corpus(
    many, harness.small(10 * corpora.NUM_DOCUMENTS, 40_000), median=50
  )
  for kind in harness.small(_STARTED, _STARTED[1:2]):
    for path in (few, str(many)):
      store = pipeline.build(_config({"text": path}, kind, 8)).sources["text"]
      lines.append(
        [
          kind,
          f"{store.store.num_documents:,}",
          f"{store.store.num_tokens:,}",
          f"{harness.probed('memory', kind, path):.1f}",
        ]
      )
  title = "memory: after 200 batches of [8, 2048], Python and JAX included"
  return title, lines


def probe(figure: str, kind: str, corpus: str) -> float:
  """Returns 'first_batch' in ms, or 'memory' in MiB, of this process."""
  began = time.perf_counter()
  pipe = pipeline.build(_config({"text": corpus}, kind, 8))
  # Not by `pipe.data_loader`, which imports jax only then.
  batches = iter(feed.data_loader(pipeline.batch_source(pipe)))
  next(batches)
  if figure == "first_batch":
    return (time.perf_counter() - began) * 1e3
  for _ in range(199):
    next(batches)
  return harness.resident() / 2**20


if __name__ == "__main__":
  harness.run(rows, mixes, starts, memory, probe=probe)
