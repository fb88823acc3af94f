# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Whether ids of documents repeat: counted, since nothing forbids it.

Held-out sets and looking a document up go by ids, and files that each number
their documents from 0 are a common mistake.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import itertools

import numpy as np

from chomp_data.prepare import part_files

# Documents that are looked at, the first ones: a second of one process.
MOST = 2**20

_OFFSETS = np.dtype("<i8")


def repeated(
  directory: str, keys: Sequence[str], rows: Sequence[part_files.PartRow]
) -> int:
  """Returns how many of the first documents have the id of one before them.

  Args:
    directory: Where parts are.
    keys: Of all parts, in order.
    rows: What is in each.
  """
  seen, left = set(), MOST
  try:
    for key, row in zip(keys, rows, strict=True):
      if count := min(left, row.num_documents):
        seen.update(_ids(part_files.Part(directory, key), count))
        left -= count
  except (OSError, ValueError):
    return 0  # Whoever joins parts says what is wrong with this one.
  return MOST - left - len(seen)


def _ids(part: part_files.Part, count: int) -> Iterator[bytes]:
  ends = np.concatenate(list(part.read("id_offsets", _OFFSETS, 0, count)))
  data = part.read("id_bytes", np.dtype(np.uint8), 0, int(ends[-1]))
  text = b"".join(values.tobytes() for values in data)
  for begin, end in itertools.pairwise([0, *ends.tolist()]):
    yield text[begin:end]
