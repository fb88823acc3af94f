# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What rows of splices consume, from the quotas of documents.

quotas      3  2     rows of documents
each        6  4     units of a row of each

row         0  1  2  3  4
units       6  6  6  4  4

rows = 2: blocks of rows 0 to 1, 2, and 3 to 4, of 12, 6 and 8 units
"""

import numpy as np

from chomp_data.sources import row_units

# Blocks whose units are in memory.
_MAX_BLOCKS = 2**20


def document_blocks(
  quotas: np.ndarray, each: np.ndarray, rows: int | None
) -> row_units.BlockUnits | None:
  """Returns what documents' rows consume, one document after the other.

  Args:
    quotas: int64[D], rows of each document.
    each: int64[D], what each row of a document consumes.
    rows: The most rows of a block, or None for any number.

  Returns:
    Blocks of the rows of one document; None where they would be too many.
  """
  rows = rows or int(quotas.max())
  blocks = -(-quotas // rows)
  count = int(blocks.sum())
  if count > _MAX_BLOCKS:
    return None
  sizes = np.full(count, rows, np.int64)
  present = np.flatnonzero(quotas)
  # The last block of a document is what is left of its rows.
  last_block = np.cumsum(blocks[present]) - 1
  sizes[last_block] -= blocks[present] * rows - quotas[present]
  starts = np.zeros(count + 1, np.int64)
  np.cumsum(sizes, out=starts[1:])
  return row_units.BlockUnits(starts, sizes * np.repeat(each, blocks))
