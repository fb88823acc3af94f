# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Cuts documents into pieces for buckets of a few lengths.

Lengths are in tokens. Both methods keep every token, and every piece of a
document except the last fills its bucket:

    buckets 4, 8, 16      'least_waste'       'powers_of_two'
    a document of 13      13 of 16            8, 4, 1 of 4
    of 37                 16, 16, 5 of 8      16, 16, 4, 1 of 4

NumPy only.
"""

from collections.abc import Sequence

import numpy as np

from chomp_data.index import ragged

ASSIGNS = ("least_waste", "powers_of_two")


def cut(
  lengths: np.ndarray, buckets: Sequence[int], assign: str
) -> list[tuple[np.ndarray, np.ndarray]]:
  """Cuts documents into pieces.

  Args:
    lengths: int64[N], tokens of each document; a document of 0 has no pieces.
    buckets: Lengths of the buckets, at least one, ascending.
    assign: 'least_waste' cuts off pieces that fill the longest bucket, and puts
      the rest into the smallest bucket that holds it. 'powers_of_two' cuts off
      the longest pieces that fill a bucket, until less than the smallest
      bucket is left.

  Returns:
    For each bucket (document int64[M], first token int64[M]) of its pieces,
    sorted by document and token. A piece has the bucket's length, or ends with
    its document.
  """
  ends = np.asarray(buckets, np.int64)
  remaining = np.asarray(lengths, np.int64).copy()
  num_cut = np.zeros_like(remaining)
  pieces: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in ends]
  whole_buckets = (
    range(len(ends)) if assign == "powers_of_two" else [len(ends) - 1]
  )
  for number in reversed(whole_buckets):
    size = int(ends[number])
    count = remaining // size
    document, part_number = ragged.elements(count)
    pieces[number].append((document, num_cut[document] + part_number * size))
    num_cut += count * size
    remaining -= count * size
  tails = np.flatnonzero(remaining)
  bucket = np.searchsorted(ends, remaining[tails], side="left")
  for number in range(len(ends)):
    documents = tails[bucket == number]
    pieces[number].append((documents, num_cut[documents]))
  return [_in_order(parts) for parts in pieces]


def _in_order(
  parts: list[tuple[np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray]:
  document = np.concatenate([piece for piece, _ in parts])
  start = np.concatenate([piece for _, piece in parts])
  # The rest of a document comes after its other pieces, so a stable sort by
  # document is enough.
  order = np.argsort(document, kind="stable")
  return document[order], start[order]
