# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How fast is a Megatron corpus read in place, against a plain copy?

    python benchmarks/megatron.py

A corpus of 64 Mi tokens of two bytes is read through a memory map: spans at
random places, as many as fill a batch of 2,048 rows of 2,048 tokens, by a loop
of NumPy slices and by `Store.copy_tokens`, which also compares every id with
the vocabulary size. Medians of the repeats, which measure both in turn. Ten
seconds on two CPU cores.
"""

import pathlib
import statistics
import struct
import time

import harness
import numpy as np

from chomp_data import stores

_VOCAB_SIZE = 50_257
_DOCUMENT = 1_024  # tokens
_REPEATS = 15


def _write(prefix: pathlib.Path, num_tokens: int) -> None:
  rng = np.random.default_rng(0)
  tokens = rng.integers(0, _VOCAB_SIZE, num_tokens).astype("<u2")
  tokens.tofile(f"{prefix}.bin")
  lengths = np.full(num_tokens // _DOCUMENT, _DOCUMENT, "<i4")
  begins = np.cumsum(lengths, dtype="<i8") - lengths
  head = struct.pack("<QBQQ", 1, 8, len(lengths), len(lengths) + 1)
  documents = np.arange(len(lengths) + 1, dtype="<i8")
  pathlib.Path(f"{prefix}.idx").write_bytes(
    b"MMIDIDX\x00\x00"
    + head
    + lengths.tobytes()
    + (begins * tokens.itemsize).tobytes()
    + documents.tobytes()
  )


def reading(directory: pathlib.Path) -> harness.Table:
  """Copies random spans."""
  num_tokens = 2**20 if harness.SMALL.value else 2**26
  prefix = directory / "megatron"
  _write(prefix, num_tokens)
  store = stores.open_store(
    f"{prefix}.bin", megatron={"vocab_size": _VOCAB_SIZE}
  )
  values = np.memmap(f"{prefix}.bin", "<u2", "r")
  batch = harness.SEQ_LEN * (64 if harness.SMALL.value else 2_048)
  rng = np.random.default_rng(1)
  lines = [
    ["tokens of a span", "NumPy slices, M tokens/s", "copy_tokens", "range"]
  ]
  for length in (2_048, 256):
    starts = rng.integers(0, num_tokens - length, batch // length)
    lengths = np.full_like(starts, length)
    positions = np.arange(len(starts)) * length
    out = np.empty((2, batch), np.int32)

    def slices(starts=starts, positions=positions, length=length, out=out):
      for start, at in zip(starts.tolist(), positions.tolist(), strict=True):
        out[0, at : at + length] = values[start : start + length]

    def in_place(starts=starts, lengths=lengths, positions=positions, out=out):
      store.copy_tokens(starts, lengths, out[1], positions)

    seconds = [
      [_seconds(function) for function in (slices, in_place)]
      for _ in range(1 + _REPEATS)
    ][1:]
    np.testing.assert_array_equal(out[0], out[1])
    plain, ours = (
      [batch / s / 1e6 for s in of] for of in zip(*seconds, strict=True)
    )
    lines.append(
      [
        f"{length:,}",
        f"{statistics.median(plain):,.0f}",
        f"{statistics.median(ours):,.0f}",
        f"{min(ours):,.0f} .. {max(ours):,.0f}",
      ]
    )
  return f"Reading {num_tokens:,} tokens in place", lines


def _seconds(function) -> float:
  begin = time.perf_counter()
  function()
  return time.perf_counter() - begin


if __name__ == "__main__":
  harness.run({"reading": reading})
