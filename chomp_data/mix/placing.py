# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Where the rows of a batch stand, if some of them belong to a part of it.

    parts 2, rows that want parts  1 0 1 1 - 0      -: any
    slots                          3 0 4 5 1 2      the last 0 came too late

A reader of some columns then meets the same lanes of a source at every step,
though the merge of sources decides which rows a step has. NumPy only.
"""

import numpy as np


def slots(
  batch: np.ndarray,
  sizes: np.ndarray,
  wanted: np.ndarray,
  parts: int,
  late: np.ndarray | int = 0,
) -> np.ndarray:
  """Returns the slot of each row in its batch, int64[N].

  Rows go to the part that they want as long as it has room, those that come
  first to its first slots; all others fill what is left, in their order. So
  where nobody wants anything, rows stay where they are.

  Args:
    batch: int64[N], the number of each row's batch, ascending from 0.
    sizes: int64[M], rows of the batches.
    wanted: int64[N], 0 .. parts - 1, or -1 for any.
    parts: Into how many parts batches are cut, as nearly alike as can be.
    late: int64[N], rows of a lower one come first.
  """
  begin = np.cumsum(sizes) - sizes
  edges = -(-np.arange(parts + 1) * sizes[:, None] // parts)
  group = batch * (parts + 1) + np.where(wanted < 0, parts, wanted)
  order = np.lexsort((np.broadcast_to(late, group.shape), group))
  counts = np.bincount(group, minlength=len(sizes) * (parts + 1))
  rank = np.empty_like(group)
  rank[order] = (
    np.arange(len(group)) - (np.cumsum(counts) - counts)[group[order]]
  )
  slot = edges[batch, wanted] + rank
  fits = (wanted >= 0) & (slot < edges[batch, wanted + 1])
  slot += begin[batch]
  taken = np.zeros(len(slot), np.bool_)
  taken[slot[fits]] = True
  slot[~fits] = np.flatnonzero(~taken)
  return slot - begin[batch]
