# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How fast are arrays read from buckets of resolutions?

    python benchmarks/buckets.py

Samples of 64 x 64 x 3 and three smaller sizes a second from page cache, as
batches through the pipeline, and by plain loops over the same files: every
record in file order, decoded and stacked by size, and samples one by one in the
order of training. Medians; ways alternate within one process.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import json
import pathlib
import statistics
import struct
import time
from typing import Any

from array_record.python import array_record_module  # pyright: ignore
import datasets
import harness
import numpy as np
import pyarrow as pa

from chomp_data import pipeline
from chomp_data.stores import samples
from chomp_data.stores import samples_array_record

_SIZES = ((32, 32), (32, 48), (48, 32), (64, 64))
_BATCH = 64  # samples
_REPEATS = 5


def _pictures(count: int) -> Iterator[Any]:
  """Yields noise of four sizes: what it shows does not matter here."""
  rng = np.random.default_rng(0)
  for number in range(count):
    height, width = _SIZES[number % len(_SIZES)]
    pixels = rng.integers(0, 256, (height, width, 3), np.uint8)
    yield {"pixels": pixels}, {"height": height, "width": width, "label": 1}


def _records(directory: pathlib.Path) -> Iterator[np.ndarray]:
  """Yields the arrays of ArrayRecord files in file order."""
  for file in sorted(directory.glob("*.array_record")):
    reader = array_record_module.ArrayRecordReader(str(file))
    for record in reader.read_all():
      (size,) = struct.unpack_from("<I", record)
      (entry,) = json.loads(record[4 : 4 + size])["arrays"]
      pixels = np.frombuffer(record, entry["dtype"], offset=4 + size)
      yield pixels.reshape(entry["shape"])
    reader.close()


def _rows(directory: pathlib.Path) -> Iterator[np.ndarray]:
  """Yields the arrays of `save_to_disk` in file order."""
  for file in sorted(directory.glob("*.arrow")):
    with pa.memory_map(str(file)) as mapped:
      for batch in pa.ipc.open_stream(mapped):
        pixels = batch.column("pixels")
        heights = batch.column("height").to_numpy()
        widths = batch.column("width").to_numpy()
        for i in range(batch.num_rows):
          values = pixels[i].values
          while not pa.types.is_primitive(values.type):
            values = values.flatten()
          yield values.to_numpy().reshape(int(heights[i]), int(widths[i]), -1)


def _stacked(arrays: Iterable[np.ndarray]) -> int:
  """Stacks arrays by size; returns how many."""
  stacks: dict[tuple[int, ...], list[np.ndarray]] = {}
  count = 0
  for array in arrays:
    stack = stacks.setdefault(array.shape, [])
    stack.append(array)
    count += 1
    if len(stack) == _BATCH:
      np.stack(stack)
      stack.clear()
  return count


def _rates(ways: dict[str, Callable[[], int]]) -> dict[str, float]:
  """Returns the median of samples a second of each way, taken in turn."""
  rates: dict[str, list[float]] = {name: [] for name in ways}
  for repeat in range(_REPEATS + 1):
    for name, way in ways.items():
      began = time.perf_counter()
      count = way()
      if repeat:  # The first one warms caches.
        rates[name].append(count / (time.perf_counter() - began))
  return {name: statistics.median(values) for name, values in rates.items()}


def arrays(directory: pathlib.Path) -> harness.Table:
  """Samples a second, from ArrayRecord files and from save_to_disk."""
  count = harness.small(12_000, 1_600)
  lines = []
  for kind, plain in (("ArrayRecord", _records), ("save_to_disk", _rows)):
    path = directory / kind
    if kind == "ArrayRecord":
      samples_array_record.write_samples(path, _pictures(count))
    else:
      rows = ({**pixels, **values} for pixels, values in _pictures(count))
      datasets.Dataset.from_list(list(rows)).save_to_disk(path)
    pipe = pipeline.build(
      {
        "global_batch_size": _BATCH,
        "epochs": 1,
        "buckets": {
          "kind": "resolution",
          "sizes": _SIZES,
          "fields": ("pixels",),
          "metadata": ("label",),
        },
        "sources": {"pictures": {"store": str(path)}},
      }
    )
    store = samples.open_samples(path, fields=("pixels",))
    source = pipeline.batch_source(pipe)

    def bucketed(source=source, steps=pipe.num_steps or 0) -> int:
      for step in range(steps):
        source[step]
      return steps * _BATCH

    def single(store=store) -> int:
      for index in np.random.default_rng(0).permutation(count).tolist():
        store.read([index])
      return count

    rates = _rates(
      {
        "buckets, shuffled": bucketed,
        "plain loop, file order": lambda path=path, plain=plain: _stacked(
          plain(path)
        ),
        "one sample at a time, shuffled": single,
      }
    )
    base = rates["plain loop, file order"]
    lines += [
      {
        "files": kind,
        "way": name,
        "samples/s": f"{rate:,.0f}",
        "of a plain loop": f"{rate / base:.2f}",
      }
      for name, rate in rates.items()
    ]
  return "arrays: samples a second", lines


if __name__ == "__main__":
  harness.run(arrays)
