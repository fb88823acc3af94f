# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What does a batch cost the host, with its fields made there and on devices?

    python benchmarks/device_fields.py

Packed rows and splices, [8, 2048] and [64, 2048]. `host` is `grain.DataLoader`
over all canonical fields, `arrays` the same and then put on the device,
`device` with `device_fields='always'`: the same narrowed, put, and the program
that widens fields launched. CPU microseconds a batch, medians of repeats by
turns; bytes are of what is put, and are exact.

On the CPU backend the program's own work is CPU time of this process too, in
threads of XLA: it is told by itself, for on an accelerator it is not there.
Where there is one, wall microseconds a batch come too, read and made ready.

A minute on one CPU core.
"""

from collections.abc import Callable
import pathlib
import statistics
import time
from typing import Any

import corpora
import harness
import jax
import numpy as np

from chomp_data import pipeline
from chomp_data import process_input
from chomp_data.loading import device_fields
from chomp_data.loading import placement

_SEQ_LEN = harness.SEQ_LEN
_ROWS = 8, 64
_STEPS = 50  # batches of a repeat
_REPEATS = 9

_KINDS = {
  "packed": {"kind": "bin"},
  "splice": {
    "kind": "multi_splice",
    "num_docs": 10,
    "content_length": _SEQ_LEN,
    "offset_jitter": 2,
  },
}


def config(path: str, kind: str, rows: int) -> dict[str, Any]:
  """Returns `config.data` of a run that never ends."""
  source = {"store": path, "rows": _KINDS[kind], "shuffle": {"kind": "full"}}
  return {
    "seq_len": _SEQ_LEN,
    "global_batch_size": rows,
    "epochs": None,
    "device_fields": "always",
    "sources": {"text": source},
  }


def spent_us(batches: int, do: Callable[[], object]) -> tuple[float, float]:
  """Returns microseconds a batch: CPU of this process, and wall."""
  began = time.process_time(), time.perf_counter()
  do()
  ended = time.process_time(), time.perf_counter()
  cpu, wall = (b - a for a, b in zip(began, ended, strict=True))
  return cpu / batches * 1e6, wall / batches * 1e6


def measured(path: str, kind: str, rows: int) -> dict[str, float]:
  """Returns medians of one shape, by what was measured."""
  pipe = pipeline.build(config(path, kind, rows))
  own = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
  held = placement.Placement(process_input.batch_specs(pipe), own).rows
  put = placement.Placer(own, held, pipe.buckets)
  make = device_fields.placer(
    pipe.run_plan,
    pipe.run_options.data.device_fields,
    put,
    own,
    pipe.operations,
  )
  assert isinstance(make, device_fields.Placer)
  whole = iter(pipe.data_loader())
  steps = 5 if harness.SMALL.value else _STEPS
  batches: list[dict[str, np.ndarray]] = []

  def read() -> None:
    batches[:] = [next(whole) for _ in range(steps)]

  def placed(place: Callable[[Any], Any]) -> None:
    for batch in batches:
      jax.block_until_ready(place(batch))

  parts: dict[str, Callable[[], object]] = {
    "read": read,
    "put": lambda: placed(put),
    "put narrow": lambda: placed(lambda batch: put(make.narrowed(batch))),
    "all of it": lambda: placed(make),
  }
  found: dict[str, list[tuple[float, float]]] = {name: [] for name in parts}
  for repeat in range(3 if harness.SMALL.value else _REPEATS + 1):
    for name, do in parts.items():
      spent = spent_us(steps, do)
      if repeat:  # The first one compiles.
        found[name].append(spent)
  bytes_of = {
    name: sum(value.nbytes for value in batch.values()) / rows / _SEQ_LEN
    for name, batch in (
      ("whole", batches[0]),
      ("narrow", make.narrowed(batches[0])),
    )
  }
  return {
    **{
      f"{kind}{name}": statistics.median(own[i] for own in found[name])
      for name in found
      for i, kind in enumerate(("", "wall "))
    },
    **{f"bytes {name}": own for name, own in bytes_of.items()},
  }


def table(path: str) -> harness.Table:
  """Returns what all kinds and shapes cost."""
  backend = jax.default_backend()
  lines = [
    [
      "rows",
      "batch",
      "host",
      "arrays",
      "arrays / host",
      "device",
      "device / arrays",
      "program",
      "bytes a token, arrays",
      "bytes a token, device",
      *(("wall, arrays", "wall, device") if backend != "cpu" else ()),
    ]
  ]
  for kind in _KINDS:
    for rows in _ROWS:
      got = measured(path, kind, rows)
      arrays = got["read"] + got["put"]
      device = got["read"] + got["put narrow"]
      lines.append(
        [
          kind,
          f"[{rows}, {_SEQ_LEN}]",
          f"{got['read']:.0f}",
          f"{arrays:.0f}",
          f"{arrays / got['read']:.2f}",
          f"{device:.0f}",
          f"{device / arrays:.2f}",
          f"{got['all of it'] - got['put narrow']:.0f}",
          f"{got['bytes whole']:.2f}",
          f"{got['bytes narrow']:.2f}",
        ]
        + [
          f"{got[f'wall {first}'] + got[f'wall {then}']:.0f}"
          for first, then in (("read", "put"), ("read", "all of it"))
          if backend != "cpu"
        ]
      )
  return f"CPU us a batch (JAX's {backend} backend)", lines


def costs(directory: pathlib.Path) -> harness.Table:
  """Measures over a corpus."""
  count = 500 if harness.SMALL.value else 20_000
  path = directory / f"corpus_{count}"
  corpora.make_corpus(path, count)
  return table(str(path))


if __name__ == "__main__":
  harness.run({"costs": costs})
