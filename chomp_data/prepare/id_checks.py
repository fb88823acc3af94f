# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Counts ids of documents that repeat, which is allowed.

Held-out sets and lookups use ids, and files that each number their documents
from 0 are a common mistake.
"""

from collections.abc import Sequence
import itertools

import numpy as np

from chomp_data.prepare import part_files
from chomp_data.prepare import scratch

# The first documents are checked, which takes one process a second.
MOST = 2**20

_OFFSETS = np.dtype("<i8")


def repeated(
  directory: str, keys: Sequence[str], rows: Sequence[part_files.PartRow]
) -> int:
  """Returns how many of the first documents have the id of one before them."""
  wanted: list[tuple[str, int]] = []
  left = MOST
  for key, row in zip(keys, rows, strict=True):
    if count := min(left, row.num_documents):
      wanted.append((key, count))
      left -= count

  def ids(part_and_count: tuple[str, int]) -> list[bytes]:
    key, count = part_and_count
    part = part_files.Part(directory, key)
    ends = np.concatenate(list(part.read("id_offsets", _OFFSETS, 0, count)))
    data = part.read("id_bytes", np.dtype(np.uint8), 0, int(ends[-1]))
    text = b"".join(values.tobytes() for values in data)
    edges = itertools.pairwise([0, *ends.tolist()])
    return [text[begin:end] for begin, end in edges]

  seen: set[bytes] = set()
  try:
    for part_ids in scratch.mapped(ids, wanted):
      seen.update(part_ids)
  except (OSError, ValueError):
    return 0  # `shards.write_shard` raises the error of a damaged part.
  return MOST - left - len(seen)
