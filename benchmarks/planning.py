# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What plans cost: to build a run, to plan its batches, and in memory.

    python benchmarks/planning.py

Batches of 1,024 rows of 2,048 tokens. Two parts, each a table (`--parts` runs
some):

- packed: what random access needs for 10**7 documents without tokens: time,
  bytes on disk, bytes in memory by document, and the time of a plan.
- mixes: balanced mixes of 3, 32 and 200 such sources of 50,000 documents, one
  batch after the other, and anew at far steps.

A minute or two on two CPU cores.
"""

from collections.abc import Callable
from collections.abc import Iterable
import functools
import gc
import pathlib
import shutil
import statistics
import threading
import time
import tracemalloc
from typing import Any
from unittest import mock

import corpora
import harness
import kinds

from chomp_data import pipeline
from chomp_data import planning

_SEQ_LEN = harness.SEQ_LEN
_PLANNED = 1_024  # rows of a global batch
_KINDS = (
  "sequential, full", "sequential, block", "bin ffd, block", "bin exact, block"
)  # fmt: skip


def _build(
  stores: Iterable[corpora.LengthsStore], source: dict[str, Any]
) -> pipeline.Pipeline:
  """Returns a run over stores without tokens, a mix where there are several."""
  by_name = {f"s{i}": store for i, store in enumerate(stores)}
  sources = {name: {"store": name, **source} for name in by_name}
  fields = {}
  if len(sources) > 1:
    weights = {name: 1 + i % 7 for i, name in enumerate(sources)}
    fields["mix"] = {"kind": "token_balanced", "weights": weights}
  with mock.patch.object(
    planning, "_open", lambda source: [by_name[source.store]]
  ):
    return pipeline.build(kinds.of_rows(sources, _SEQ_LEN, _PLANNED, **fields))


def _plan_ms(pipe: pipeline.Pipeline, first: int = 0, count: int = 60):
  """Returns the milliseconds of plans of steps that follow each other."""
  return [
    _seconds(lambda step=step: pipe.plan(step)) * 1e3
    for step in range(first, first + count)
  ]


def _seconds(call: Callable[[], Any]) -> float:
  began = time.perf_counter()
  call()
  return time.perf_counter() - began


def _wait_for_threads() -> None:
  """Waits for those that pack a next epoch, and import and compile loops."""
  for thread in threading.enumerate():
    if thread.name in ("background packer", "kernels"):
      thread.join()


def _held(stores: list[corpora.LengthsStore], source: dict[str, Any]) -> int:
  """Returns the bytes that a run and its first plan allocate and keep."""
  _build(stores, source).plan(0)
  # What those allocate is no part of it.
  _wait_for_threads()
  tracemalloc.start()
  try:
    pipe = _build(stores, source)
    pipe.plan(0)
    _wait_for_threads()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
  finally:
    tracemalloc.stop()


def packed(directory: pathlib.Path) -> harness.Table:
  """Builds what random access needs, and plans."""
  few, most = counts = harness.small((10**6, 10**7), (100_000, 300_000))
  lines = []
  stores = [
    corpora.LengthsStore(directory / f"lengths_{count}", count)
    for count in counts
  ]
  to_billion = 1e9 / most
  store = stores[1]
  index = pathlib.Path(f"{store.path}.index")
  for kind in _KINDS:
    source = kinds.source(kind)
    shutil.rmtree(index, ignore_errors=True)
    began, cpu_began = time.perf_counter(), time.process_time()
    _build([store], source)
    build = time.perf_counter() - began
    cpu = time.process_time() - cpu_began
    disk = sum(file.stat().st_size for file in index.rglob("*.*"))
    opening = _seconds(lambda source=source: _build([store], source))
    plans = _plan_ms(_build([store], source))[2:]
    # What does not grow with the corpus (windows in use) is left out.
    held = _held([store], source) - _held([stores[0]], source)
    resident = max(held, 0) / (most - few)
    lines.append(
      {
        "rows": kind,
        "build s": f"{build:.2f}",
        "CPU s": f"{cpu:.2f}",
        "documents/s": f"{most / build:,.0f}",
        "open s": f"{opening:.2f}",
        "bytes on disk": f"{disk:,} ({disk / most:.2f}/doc)",
        "resident B/document": f"{resident:.3f}",
        "plan of 1,024 rows, ms": f"{statistics.median(plans):.3f}",
        "mean ms": f"{statistics.mean(plans):.3f}",
        "at 10**9: build": f"{build * to_billion / 60:.0f} min",
        "disk": f"{disk * to_billion / 2**30:.2f} GiB",
        "resident": f"{resident * 1e9 / 2**20:.0f} MiB",
      }
    )
  return f"packed: {most:,} documents, row length {_SEQ_LEN}", lines


def mixes(directory: pathlib.Path) -> harness.Table:
  """Plans global batches of many sources."""
  documents = harness.small(50_000, 10_000)
  far = (1_000, 10_000_000)
  lines = []
  for kind in ("sequential, full", "bin ffd, block"):
    for count in harness.small((3, 32, 200), (3, 8)):
      stores = [
        corpora.LengthsStore(directory / f"s{i}", documents, seed=i)
        for i in range(count)
      ]
      source = kinds.source(kind)
      _build(stores, source)  # Indexes lie beside the stores from now on.
      build = _seconds(functools.partial(_build, stores, source))
      plans = _plan_ms(_build(stores, source))[20:]
      line = {
        "rows": kind,
        "sources": str(count),
        "build s": f"{build:.2f}",
        "plan, ms": f"{statistics.median(plans):.2f}",
        "mean ms": f"{statistics.mean(plans):.2f}",
      }
      for step in far:
        times = [_plan_ms(_build(stores, source), step, 1)[0] for _ in range(5)]
        line[f"anew at step {step:,}, ms"] = f"{statistics.median(times):.1f}"
      lines.append(line)
  return f"mixes of sources of {documents:,} documents", lines


if __name__ == "__main__":
  harness.run(packed, mixes)
