# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How fast and how soon batches come, over a raw gather, and in what memory.

    python benchmarks/loading.py

All canonical fields, [8, 2048] and [64, 2048], through `grain.DataLoader`, no
workers. Three parts, each a table (`--parts` runs some):

- rows: two epochs of one source of 120,000 documents, by kind of rows. A ratio
  compares positions, padding counted, with a raw gather timed in the same
  process between repeats (`harness.raw_gather`); tokens/s leave padding out.
  The first epoch checks every chunk and packs every window; the second finds
  both in memory, as a corpus of this size fits there.
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
_ROWS = (
  "sequential, full", "sequential, block", "bin ffd, block", "bin exact, block"
)  # fmt: skip
_STARTED = _ROWS[1:]


def _config(corpus: str, kind: str, batch_size: int) -> dict[str, Any]:
  """Returns `config.data` of a run of one source."""
  source = {"store": corpus, **kinds.source(kind)}
  return kinds.of_rows({"text": source}, _SEQ_LEN, batch_size)


def _corpus(directory: pathlib.Path) -> str:
  path = directory / "corpus"
  corpora.make_corpus(path, harness.small(corpora.NUM_DOCUMENTS, 4_000))
  return str(path)


def rows(directory: pathlib.Path) -> harness.Table:
  """Reads two epochs of each kind of rows, raw gathers in between."""
  lines = []
  corpus = _corpus(directory)
  with harness.raw_gather(directory) as gather:
    for kind in _ROWS:
      for batch_size in (8, 64):
        pipe = pipeline.build(_config(corpus, kind, batch_size))
        source = pipe.sources["text"]
        epoch = max(3, len(source) // (batch_size * _STEPS))
        full = source.store.num_tokens / (len(source) * _SEQ_LEN)
        gather(_STEPS, batch_size)
        raw, took, cpu = harness.beside_gather(
          gather, iter(pipe.data_loader()), _STEPS, batch_size, 2 * epoch
        ).reshape(3, 2, epoch)
        positions = _STEPS * batch_size * _SEQ_LEN / 1e6
        low, median, high = np.percentile(raw[1] / took[1], (10, 50, 90))
        speed = positions / np.median(took[1])
        lines.append(
          {
            "rows": kind,
            "shape": f"[{batch_size}, {_SEQ_LEN}]",
            "first epoch": f"{raw[0].sum() / took[0].sum():.3f}",
            "second, median": f"{median:.3f}",
            "low .. high": f"{low:.3f} .. {high:.3f}",
            "Mpositions/s": f"{speed:.0f}",
            "Mtokens/s": f"{speed * full:.0f}",
            "gather": f"{positions / np.median(raw[1]):.0f}",
            "Mtokens/CPU s": f"{positions * full * epoch / cpu[1].sum():.0f}",
          }
        )
  return "rows: over a raw gather", lines


def starts(directory: pathlib.Path) -> harness.Table:
  """Times first batches of fresh processes, and resumes."""
  lines = []
  corpus, repeats = _corpus(directory), harness.small(5, 1)
  index = pathlib.Path(f"{corpus}.index")
  for kind in harness.small(_STARTED, _STARTED[1:2]):
    data = _config(corpus, kind, 8)
    for what in ("no index", "index cached"):
      if what == "index cached":
        _build_index(data)
      times = []
      for _ in range(repeats):
        if what == "no index":
          shutil.rmtree(index, ignore_errors=True)
        times.append(harness.probed("first_batch", kind, corpus))
      what = f"first batch after imports, {what}"
      lines.append({"rows": kind, "what": what, **harness.spread(times, "ms")})
    for step in (10, 10_000, 10_000_000):
      # The first resume loads what JAX needs to place a batch.
      times = [_resume_ms(data, step) for _ in range(repeats + 1)][1:]
      what = f"resume at step {step:,}, batch on device"
      lines.append({"rows": kind, "what": what, **harness.spread(times, "ms")})
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
  lines = []
  few, many = _corpus(directory), directory / "corpus_many"
  # As many tokens, so that it is documents alone that differ.
  corpora.make_corpus(
    many, harness.small(10 * corpora.NUM_DOCUMENTS, 40_000), median=50
  )
  for kind in harness.small(_STARTED, _STARTED[1:2]):
    for path in (few, str(many)):
      store = pipeline.build(_config(path, kind, 8)).sources["text"]
      lines.append(
        {
          "rows": kind,
          "documents": f"{store.store.num_documents:,}",
          "tokens": f"{store.store.num_tokens:,}",
          "anonymous MiB": f"{harness.probed('memory', kind, path):.1f}",
        }
      )
  title = "memory: after 200 batches of [8, 2048], Python and JAX included"
  return title, lines


def probe(figure: str, kind: str, corpus: str) -> float:
  """Returns 'first_batch' in ms, or 'memory' in MiB, of this process."""
  began = time.perf_counter()
  pipe = pipeline.build(_config(corpus, kind, 8))
  # Not by `pipe.data_loader`, which imports jax only then.
  batches = iter(feed.data_loader(pipeline.batch_source(pipe)))
  next(batches)
  if figure == "first_batch":
    return (time.perf_counter() - began) * 1e3
  for _ in range(199):
    next(batches)
  return harness.resident() / 2**20


if __name__ == "__main__":
  harness.run(rows, starts, memory, probe=probe)
