# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Sums of what steps hand out: which spans, or which values, in which rows.

Each span, sample or row is one number of 128 bits, a hash of what it is and of
the step and row that it is in. The sum of a step modulo 2**128 does not depend
on the order in which they are added, nor on who adds which of them; and every
single change of a number that enters a hash changes it.

    h(step, row, span), h(step, row, span), ...   their sum: one step
    sum of steps, of processes, of resumes        a certificate
"""

from collections.abc import Mapping
import functools

import numpy as np

from chomp_data.index import hashing
from chomp_data.rows import spans as spans_lib

MODULUS = 1 << 128

# So many at once stay in a cache.
_BLOCK = 1 << 12

# Two hashes of 64 bits are one of 128. Each is a sum of fields by odd keys,
# made even by a bijection: a change of one field cannot leave it as it was.
_LANES = ("high", "low")


def name_keys(*parts: int | str) -> np.ndarray:
  """Returns uint64[2], what stands for a name in both hashes."""
  return np.asarray(
    [hashing.fold_key("certificate", lane, *parts) for lane in _LANES],
    np.uint64,
  )


_FIELDS = ("step", "row", "document", "start", "length", "column", "flags")
_KEYS = {
  name: (name_keys(name) | np.uint64(1))[:, None]
  for name in (*_FIELDS, "sample")
}

# What `flags` holds besides the segment, by bit.
_FLAGS = ("bos", "eos", "gone")

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def of_spans(
  spans: spans_lib.Spans,
  steps: np.ndarray,
  rows: np.ndarray,
  names: np.ndarray,
  counts: np.ndarray | None = None,
) -> list[int]:
  """Returns the sums of steps of text.

  Args:
    spans: Of all rows, those of a step after those of the one before.
    steps: int64[M], the steps.
    rows: int64[M * R], the number in its step of each row.
    names: uint64[2, sources], `name_keys` of each source.
    counts: bool[R], which rows of a step count; None is all.

  Returns:
    One sum for each step.
  """
  size = len(rows) // len(steps)
  firsts = np.searchsorted(spans.row, np.arange(len(steps) + 1) * size)
  place = _hashed({"step": np.repeat(steps, size), "row": rows})
  kept = None if counts is None else np.tile(counts, len(steps))
  found = np.empty((2, len(spans)), np.uint64)
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
    total = _hashed(fields)
    total += place[:, row]
    total += names if names.shape[1] == 1 else names[:, spans.source[cut]]
    own = hashing.mix(total)
    found[:, cut] = own if kept is None else own * kept[row]
  return _sums(found, firsts)


def of_samples(
  samples: np.ndarray,
  steps: np.ndarray,
  rows: np.ndarray,
  name: np.ndarray,
  counts: np.ndarray | None = None,
) -> list[int]:
  """Returns the sums of steps of arrays.

  Args:
    samples: int64[M * R], numbers of samples; -1 is filler.
    steps: As in `of_spans`.
    rows: As in `of_spans`.
    name: uint64[2], `name_keys` of what the samples are of.
    counts: As in `of_spans`.
  """
  size = len(rows) // len(steps)
  fields = {"step": np.repeat(steps, size), "row": rows, "sample": samples}
  kept = samples >= 0
  if counts is not None:
    kept &= np.tile(counts, len(steps))
  found = hashing.mix(_hashed(fields) + name[:, None]) * kept
  return _sums(found, np.arange(len(steps) + 1) * size)


def of_values(
  fields: Mapping[str, np.ndarray],
  steps: np.ndarray,
  rows: np.ndarray,
  counts: np.ndarray | None = None,
) -> list[int]:
  """Returns the sums of the values that rows have.

  Args:
    fields: By name, [M * R, ...] of numbers.
    steps: As in `of_spans`.
    rows: As in `of_spans`.
    counts: As in `of_spans`.
  """
  size = len(rows) // len(steps)
  place = _hashed({"step": np.repeat(steps, size), "row": rows})
  found = np.zeros((2, len(rows)), np.uint64)
  for name, value in sorted(fields.items()):
    words = _words(value)
    own = np.stack([words @ _weights(lane, words.shape[1]) for lane in _LANES])
    own += name_keys(name, value.dtype.str, *value.shape[1:])[:, None]
    found += hashing.mix(own + place)
  if counts is not None:
    found *= np.tile(counts, len(steps))
  return _sums(found, np.arange(len(steps) + 1) * size)


def _flags(spans: spans_lib.Spans, cut: slice) -> np.ndarray:
  """Returns int64[N], the segment of spans and what is said of each."""
  found = spans.segment[cut].astype(np.int64) << len(_FLAGS)
  for bit, name in enumerate(_FLAGS):
    own = getattr(spans, name)
    if own is not None:
      found |= own[cut].astype(np.int64) << bit
  return found


def _hashed(fields: Mapping[str, np.ndarray]) -> np.ndarray:
  """Returns uint64[2, N], sums of integers [N] by their keys."""
  parts = [
    value.astype(np.uint64, copy=False) * _KEYS[name]
    for name, value in fields.items()
  ]
  total = parts[0]
  for part in parts[1:]:
    total += part
  return total


def _sums(found: np.ndarray, firsts: np.ndarray) -> list[int]:
  """Returns sums of numbers of 128 bits, one for each range.

  Args:
    found: uint64[2, N], their high and low halves.
    firsts: int64[M + 1], where ranges begin, and the last one ends.
  """
  before = np.zeros((3, found.shape[1] + 1), np.uint64)
  np.cumsum(found[0], out=before[0, 1:])
  # Halves of the low halves do not wrap, so that no carry is lost.
  np.cumsum(found[1] >> _HALF, out=before[1, 1:])
  np.cumsum(found[1] & _LOW, out=before[2, 1:])
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
  """Returns uint64[count], odd keys of the words of a row."""
  key = hashing.fold_key("certificate", lane, "words")
  return hashing.fold(key, np.arange(count)) | np.uint64(1)
