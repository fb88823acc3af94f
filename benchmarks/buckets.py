# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Buckets: how fast, how often compiled, how much padding, how even.

    python benchmarks/buckets.py

Four parts, each a table (`--parts` runs some):

- arrays: samples of 64 x 64 x 3 and three smaller sizes a second from page
  cache, as batches through the pipeline, and by plain loops over the same
  files: every record in file order, decoded and stacked by size, and samples
  one by one in the order of training. Times alternate within one process.
- text: tokens a second of all canonical fields from buckets of lengths, and
  from bin-packed rows of the same store, no workers.
- padding: positions without a token over all documents of a store, by buckets
  of lengths, by packing, and by padding each batch to its longest document.
  Documents have lognormal lengths: median 500 tokens, sigma 1.2,
  16 .. 65,536.
- shares: by dataset, how far its units are from its share at any step, in
  global batches, without and with a curriculum over buckets, and what planning
  costs near step 0 and at step 10**7.
"""

from collections.abc import Callable
from collections.abc import Iterator
import json
import pathlib
import statistics
import struct
import time
from typing import Any

from array_record.python import array_record_module  # pyright: ignore
import corpora
import datasets
import harness
import numpy as np
import pyarrow as pa

from chomp_data import pipeline
from chomp_data.bucket import pieces
from chomp_data.pack import packing
from chomp_data.stores import samples
from chomp_data.stores import samples_array_record

_SIZES = ((32, 32), (32, 48), (48, 32), (64, 64))
_LENGTHS = (512, 1_024, 2_048, 4_096, 8_192)  # tokens
_TOKENS = 32_768  # of a batch
_BATCH = 64  # samples
_SAMPLES = 12_000
_DOCUMENTS = 40_000
_REPEATS = 5

Lines = list[list[str]]


def _pictures(count: int) -> Iterator[Any]:
  """Yields noise of four sizes: what it shows does not matter here."""
  rng = np.random.default_rng(0)
  for number in range(count):
    height, width = _SIZES[number % len(_SIZES)]
    pixels = rng.integers(0, 256, (height, width, 3), np.uint8)
    yield {"pixels": pixels}, {"height": height, "width": width, "label": 1}


def _resolution(paths: dict[str, pathlib.Path], **fields: Any) -> Any:
  return pipeline.build(
    {
      "global_batch_size": _BATCH,
      "epochs": 1,
      "buckets": {
        "kind": "resolution",
        "sizes": _SIZES,
        "fields": ("pixels",),
        "metadata": ("label",),
      },
      "sources": {name: {"store": str(path)} for name, path in paths.items()},
      **fields,
    }
  )


def _length(path: pathlib.Path, **buckets: Any) -> Any:
  return pipeline.build(
    {
      "epochs": 1,
      "remainder": "pad",
      "buckets": {
        "kind": "length",
        "lengths": _LENGTHS,
        "tokens_per_batch": _TOKENS,
        **buckets,
      },
      "sources": {"web": {"store": str(path)}},
    }
  )


def _records(directory: pathlib.Path) -> int:
  """Reads every record in file order, stacked by size; returns how many."""
  stacks: dict[tuple[int, ...], list[np.ndarray]] = {}
  count = 0
  for file in sorted(directory.glob("*.array_record")):
    reader = array_record_module.ArrayRecordReader(str(file))
    for record in reader.read_all():
      (size,) = struct.unpack_from("<I", record)
      header = json.loads(record[4 : 4 + size])
      (entry,) = header["arrays"]
      pixels = np.frombuffer(record, entry["dtype"], offset=4 + size)
      pixels = pixels.reshape(entry["shape"])
      stack = stacks.setdefault(pixels.shape, [])
      stack.append(pixels)
      count += 1
      if len(stack) == _BATCH:
        np.stack(stack)
        stack.clear()
    reader.close()
  return count


def _rows(directory: pathlib.Path) -> int:
  """Reads every row of `save_to_disk` in file order, stacked by size."""
  stacks: dict[tuple[int, ...], list[np.ndarray]] = {}
  count = 0
  for file in sorted(directory.glob("*.arrow")):
    with pa.memory_map(str(file)) as mapped:
      for batch in pa.ipc.open_stream(mapped):
        pixels = batch.column("pixels")
        heights = batch.column("height").to_numpy()
        widths = batch.column("width").to_numpy()
        for i in range(batch.num_rows):
          own = pixels[i].values
          while not pa.types.is_primitive(own.type):
            own = own.flatten()
          shape = (int(heights[i]), int(widths[i]), -1)
          stack = stacks.setdefault(shape, [])
          stack.append(own.to_numpy().reshape(shape))
          count += 1
          if len(stack) == _BATCH:
            np.stack(stack)
            stack.clear()
  return count


def _rates(ways: dict[str, Callable[[], int]]) -> dict[str, float]:
  """Returns the median of units a second of each way, taken in turn."""
  found: dict[str, list[float]] = {name: [] for name in ways}
  for repeat in range(_REPEATS + 1):
    for name, way in ways.items():
      began = time.perf_counter()
      count = way()
      if repeat:  # The first one warms caches.
        found[name].append(count / (time.perf_counter() - began))
  return {name: statistics.median(own) for name, own in found.items()}


def arrays(directory: pathlib.Path) -> Lines:
  """Samples a second, from ArrayRecord files and from save_to_disk."""
  count = 1_600 if harness.SMALL.value else _SAMPLES
  lines = [["files", "way", "samples/s", "of a plain loop"]]
  for kind in ("ArrayRecord", "save_to_disk"):
    path = directory / kind
    if kind == "ArrayRecord":
      samples_array_record.write_samples(path, _pictures(count))
    else:
      rows = ({**own, **values} for own, values in _pictures(count))
      datasets.Dataset.from_list(list(rows)).save_to_disk(path)
    pipe = _resolution({"own": path})
    store = samples.open_samples(path, fields=("pixels",))
    order = np.random.default_rng(0).permutation(count)
    source = pipeline.batch_source(pipe)

    def piped(source=source, pipe=pipe) -> int:
      for step in range(pipe.num_steps):
        source[step]
      return pipe.num_steps * _BATCH

    def single(store=store, order=order) -> int:
      for index in order.tolist():
        store.read([index])
      return len(order)

    ways: dict[str, Callable[[], int]] = {"buckets, shuffled": piped}
    plain = _records if kind == "ArrayRecord" else _rows
    ways["plain loop, file order"] = lambda path=path, plain=plain: plain(path)
    ways["one sample at a time, shuffled"] = single
    rates = _rates(ways)
    base = rates["plain loop, file order"]
    lines += [
      [kind, name, f"{rate:,.0f}", f"{rate / base:.2f}"]
      for name, rate in rates.items()
    ]
  return lines


def text(directory: pathlib.Path) -> Lines:
  """Tokens a second from buckets and from packed rows."""
  count = 4_000 if harness.SMALL.value else _DOCUMENTS
  store = corpora.make_corpus(directory / "web", count)
  steps = 20 if harness.SMALL.value else 200
  buckets = pipeline.batch_source(_length(pathlib.Path(store.path)))
  packed = pipeline.build(
    {
      "seq_len": 2_048,
      "global_batch_size": _TOKENS // 2_048,
      "sources": {
        "web": {
          "store": str(store.path),
          "rows": {"kind": "bin"},
          "shuffle": {"kind": "block"},
        }
      },
    }
  )
  packed_rows = pipeline.batch_source(packed)

  def read(source: Any) -> int:
    for step in range(steps):
      source[step]
    return steps * _TOKENS

  rates = _rates(
    {
      "buckets of lengths": lambda: read(buckets),
      "bin-packed rows of 2,048": lambda: read(packed_rows),
    }
  )
  lines = [["rows", "million positions/s"]]
  return lines + [[n, f"{rate / 1e6:.1f}"] for n, rate in rates.items()]


def _padded_to_longest(sizes: np.ndarray, rows: int) -> float:
  """Returns the padding of random batches padded to their longest document."""
  cut = np.minimum(sizes, _LENGTHS[-1])
  cut = np.random.default_rng(0).permutation(cut)
  cut = cut[: len(cut) // rows * rows].reshape(-1, rows)
  return 1 - cut.sum() / (cut.max(axis=1).sum() * rows)


def padding(directory: pathlib.Path) -> Lines:
  """Padding over all documents, by way of making rows."""
  count = 20_000 if harness.SMALL.value else 1_000_000
  del directory  # Lengths alone say it.
  sizes = corpora.lengths(np.random.default_rng(0), count)
  total = int(sizes.sum())
  lines = [["way", "padding", "documents cut"]]
  for assign in pieces.ASSIGNS:
    found = pieces.cut(sizes, _LENGTHS, assign)
    whole = sum(
      len(own) * length
      for (own, _), length in zip(found, _LENGTHS, strict=True)
    )
    extra = np.bincount(np.concatenate([own for own, _ in found])) > 1
    lines.append(
      [
        f"buckets of 512 .. 8,192, {assign}",
        f"{1 - total / whole:.2%}",
        f"{extra.mean():.1%}",
      ]
    )
  for seq_len in (2_048, 8_192):
    used = 0
    for first in range(0, count, 5_120):
      own = packing.packed_lengths(sizes[first : first + 5_120], seq_len, "cut")
      cut = packing.cut_pieces(own, seq_len)
      used += int(packing.first_fit_decreasing(cut.length, seq_len)[1])
    lines.append(
      [
        f"packed into {seq_len:,} by First-Fit-Decreasing",
        f"{1 - total / (used * seq_len):.2%}",
        f"{(sizes > seq_len).mean():.1%}",
      ]
    )
  for rows in (8, 32):
    lines.append(
      [
        f"padded to the longest of {rows} documents, at most 8,192",
        f"{_padded_to_longest(sizes, rows):.2%}",
        f"{(sizes > _LENGTHS[-1]).mean():.1%} truncated",
      ]
    )
  single = np.minimum(sizes, _LENGTHS[-1])
  lines.append(
    [
      "one document a row of 8,192",
      f"{1 - single.sum() / (len(single) * _LENGTHS[-1]):.2%}",
      f"{(sizes > _LENGTHS[-1]).mean():.1%} truncated",
    ]
  )
  return lines


def shares(directory: pathlib.Path) -> Lines:
  """Deviation from the weights at any step, and planning time."""
  count = 4_000 if harness.SMALL.value else 40_000
  weights = {"a": 0.6, "b": 0.3, "c": 0.1}
  pictures, texts = {}, {}
  for name in weights:
    pictures[name] = directory / f"share-{name}"
    samples_array_record.write_samples(pictures[name], _pictures(800))
    store = corpora.make_corpus(directory / f"share-web-{name}", count // 10)
    texts[name] = {"store": str(store.path)}
  stages = [(0, {"512": 3, "1024": 1}), (300, {"1024": 1, "4096": 2})]
  runs = {
    "pictures by samples": _resolution(
      pictures, epochs=None, mix={"unit": "samples", "weights": weights}
    ),
    "pictures by pixels": _resolution(
      pictures, epochs=None, mix={"unit": "pixels", "weights": weights}
    ),
    "text by tokens": _texts(texts, weights, None),
    "text by tokens, curriculum": _texts(
      texts,
      weights,
      [*stages, (900, dict.fromkeys(map(str, _LENGTHS), 1))],
    ),
  }
  steps = 1_500 if harness.SMALL.value else 10_000
  head = ["run", "steps", *(f"{n} {w:.0%}" for n, w in weights.items())]
  lines = [[*head, "us a step", "at 10**7"]]
  for what, pipe in runs.items():
    used = np.stack(
      [
        [own.units for own in pipe.accounts.questions.consumed(step).values()]
        for step in range(steps + 1)
      ]
    )
    names = list(pipe.accounts.questions.consumed(0))
    share = np.asarray([weights[name] for name in names])
    batch = np.diff(used.sum(axis=1)).max()
    apart = np.abs(used - share * used.sum(axis=1, keepdims=True)).max(axis=0)
    by_name = dict(zip(names, (apart / batch).tolist(), strict=True))
    times = []
    for first in (0, 10**7):
      pipe.run_plan.planned(first)
      began = time.perf_counter()
      for step in range(first, first + 500):
        pipe.run_plan.planned(step)
      times.append((time.perf_counter() - began) / 500 * 1e6)
    lines.append(
      [
        what,
        f"{steps:,}",
        *(f"{by_name[name]:.2f}" for name in weights),
        *(f"{own:.0f}" for own in times),
      ]
    )
  return lines


def _texts(sources: Any, weights: dict[str, float], stages: Any) -> Any:
  return pipeline.build(
    {
      "remainder": "pad",
      "buckets": {
        "kind": "length",
        "lengths": _LENGTHS,
        "tokens_per_batch": _TOKENS,
        "assign": "powers_of_two",
        "stages": stages,
      },
      "sources": sources,
      "mix": {"weights": weights},
    }
  )


if __name__ == "__main__":
  harness.run(
    {
      part.__name__: lambda directory, part=part: (
        part.__name__, part(directory),
      )
      for part in (arrays, text, padding, shares)
    }
  )  # fmt: skip
