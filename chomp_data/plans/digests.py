# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Digests of steps: which spans, or which values, are in which rows.

Each span, sample or row has a hash of 128 bits, of its content, its step and
its row. The digest of a step is the sum of these hashes modulo 2**128. It does
not depend on the order in which they are added, nor on which process adds
them, and a change of any one number that is hashed changes it.

    digest of a step    h(step, row, span) + h(step, row, span) + ...
    certificate         sum over steps, processes and resumed parts of a run

All functions take the same rows of some steps: `steps` int64[M], the steps;
`rows` int64[M * R], the number of each row in its step; `counts` bool[R], which
rows of a step are added (None is all). They return one digest for each step.
"""

from collections.abc import Mapping
import functools

import numpy as np

from chomp_data.index import hashing
from chomp_data.rows import spans as spans_lib

MODULUS = 1 << 128

# Spans that are hashed together: their arrays fit into a cache of the CPU.
_BLOCK = 1 << 12

# Two hashes of 64 bits form one of 128. Each is a sum of fields multiplied by
# odd keys, scrambled by a bijection, so a change of one field changes it.
_LANES = ("high", "low")


def name_keys(*parts: int | str) -> np.ndarray:
  """Returns uint64[2], the keys of a name, one for each half of a hash."""
  return np.asarray(
    [hashing.fold_key("certificate", lane, *parts) for lane in _LANES],
    np.uint64,
  )


_FIELDS = (
  "step",
  "row",
  "document",
  "start",
  "length",
  "column",
  "flags",
  "sentinels",
)
_KEYS = {
  name: (name_keys(name) | np.uint64(1))[:, None]
  for name in (*_FIELDS, "sample")
}

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def of_spans(
  spans: spans_lib.Spans,
  steps: np.ndarray,
  rows: np.ndarray,
  names: np.ndarray,
  counts: np.ndarray | None = None,
) -> list[int]:
  """Returns the digests of steps of text.

  Args:
    spans: The spans of all rows, sorted by step.
    names: uint64[2, sources], `name_keys` of each source.
    steps: The steps.
    rows: The rows.
    counts: The rows that are added.
  """
  size = len(rows) // len(steps)
  firsts = np.searchsorted(spans.row, np.arange(len(steps) + 1) * size)
  place = _hashed({"step": np.repeat(steps, size), "row": rows})
  is_counted = None if counts is None else np.tile(counts, len(steps))
  hashes = np.empty((2, len(spans)), np.uint64)
  for first in range(0, len(spans), _BLOCK):
    cut = slice(first, first + _BLOCK)
    row = spans.row[cut]
    fields = {
      "document": spans.document[cut],
      "start": spans.start[cut],
      "length": spans.length[cut],
      "column": spans.column[cut],
      "flags": _flags(spans, cut),
    }
    sentinels = _sentinels(spans, cut)
    if sentinels is not None:
      fields["sentinels"] = sentinels
    total = _hashed(fields)
    total += place[:, row]
    total += names if names.shape[1] == 1 else names[:, spans.source[cut]]
    block_hashes = hashing.mix(total)
    hashes[:, cut] = (
      block_hashes if is_counted is None else block_hashes * is_counted[row]
    )
  return _sums(hashes, firsts)


def of_samples(
  samples: np.ndarray,
  steps: np.ndarray,
  rows: np.ndarray,
  name: np.ndarray,
  counts: np.ndarray | None = None,
) -> list[int]:
  """Returns the digests of steps of arrays.

  Args:
    samples: int64[M * R], numbers of samples; -1 is padding.
    name: uint64[2], `name_keys` of the dataset.
    steps: The steps.
    rows: The rows.
    counts: The rows that are added.
  """
  size = len(rows) // len(steps)
  fields = {"step": np.repeat(steps, size), "row": rows, "sample": samples}
  is_counted = samples >= 0
  if counts is not None:
    is_counted &= np.tile(counts, len(steps))
  hashes = hashing.mix(_hashed(fields) + name[:, None]) * is_counted
  return _sums(hashes, np.arange(len(steps) + 1) * size)


def of_values(
  fields: Mapping[str, np.ndarray],
  steps: np.ndarray,
  rows: np.ndarray,
  counts: np.ndarray | None = None,
) -> list[int]:
  """Returns the digests of the values in rows.

  Args:
    fields: Arrays of numbers by name, [M * R, ...] each.
    steps: The steps.
    rows: The rows.
    counts: The rows that are added.
  """
  size = len(rows) // len(steps)
  place = _hashed({"step": np.repeat(steps, size), "row": rows})
  hashes = np.zeros((2, len(rows)), np.uint64)
  for name, value in sorted(fields.items()):
    words = _words(value)
    field_sums = np.stack(
      [words @ _weights(lane, words.shape[1]) for lane in _LANES]
    )
    field_sums += name_keys(name, value.dtype.str, *value.shape[1:])[:, None]
    hashes += hashing.mix(field_sums + place)
  if counts is not None:
    hashes *= np.tile(counts, len(steps))
  return _sums(hashes, np.arange(len(steps) + 1) * size)


def _flags(spans: spans_lib.Spans, cut: slice) -> np.ndarray:
  """Returns int64[N], the segment and three bits of each span in one integer.

  The bits are: an added BOS, an added EOS, masked.
  """
  flags = spans.segment[cut].astype(np.int64) << 3
  if spans.added_before is not None:
    flags |= spans.added_before[cut] == spans_lib.BOS
  if spans.added_after is not None:
    flags |= (spans.added_after[cut] == spans_lib.EOS).astype(np.int64) << 1
  if spans.masked is not None:
    flags |= spans.masked[cut].astype(np.int64) << 2
  return flags


def _sentinels(spans: spans_lib.Spans, cut: slice) -> np.ndarray | None:
  """Returns int64[N], the added tokens of which `_flags` has no bit.

  None if there are none. 0 adds nothing to the hash of a span, so it does not
  depend on whether other spans have sentinels.
  """
  numbers = None
  for bit, added, usual in (
    (0, spans.added_before, spans_lib.BOS),
    (8, spans.added_after, spans_lib.EOS),
  ):
    if added is not None:
      part = added[cut] * (added[cut] != usual)
      if part.any():
        part = part.astype(np.int64) << bit
        numbers = part if numbers is None else numbers | part
  return numbers


def _hashed(fields: Mapping[str, np.ndarray]) -> np.ndarray:
  """Returns uint64[2, N], the sum of fields [N] multiplied by their keys."""
  parts = [
    value.astype(np.uint64, copy=False) * _KEYS[name]
    for name, value in fields.items()
  ]
  total = parts[0]
  for part in parts[1:]:
    total += part
  return total


def _sums(hashes: np.ndarray, firsts: np.ndarray) -> list[int]:
  """Returns the sum of 128-bit hashes in each range, modulo 2**128.

  Args:
    hashes: uint64[2, N], their high and low halves.
    firsts: int64[M + 1], where ranges begin, and the last one ends.
  """
  before = np.zeros((3, hashes.shape[1] + 1), np.uint64)
  np.cumsum(hashes[0], out=before[0, 1:])
  # Sums of 32-bit parts do not overflow 64 bits, so no carry is lost.
  np.cumsum(hashes[1] >> _HALF, out=before[1, 1:])
  np.cumsum(hashes[1] & _LOW, out=before[2, 1:])
  ends = before[:, firsts]
  return [
    ((high << 64) + (middle << 32) + low) % MODULUS
    for high, middle, low in (ends[:, 1:] - ends[:, :-1]).T.tolist()
  ]


def _words(value: np.ndarray) -> np.ndarray:
  """Returns the bytes of rows as uint64[N, W], 32 bits in each."""
  flat = np.ascontiguousarray(value).reshape(len(value), -1).view(np.uint8)
  flat = np.pad(flat, [(0, 0), (0, -flat.shape[1] % 4)])
  return flat.view(np.uint32).astype(np.uint64)


@functools.lru_cache(maxsize=32)
def _weights(lane: str, count: int) -> np.ndarray:
  """Returns uint64[count], an odd key for each word of a row."""
  key = hashing.fold_key("certificate", lane, "words")
  return hashing.fold(key, np.arange(count)) | np.uint64(1)
