# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Places the rows of a batch so that rows with a preferred part are in it.

    parts 2, preferred part of each row  1 0 1 1 - 0      -: any
    slots                                3 0 4 5 1 2

A reader of one part of the batch then reads the same lanes of a source at every
step, although the merge decides which rows a step has. NumPy only.
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

  Rows go to the first free slots of their preferred part, in their order. Rows
  without a preference, and those whose part is full, fill the slots that are
  left. If no row has a preference, rows keep their places.

  Args:
    batch: int64[N], the number of each row's batch, ascending from 0.
    sizes: int64[M], rows of the batches.
    wanted: int64[N], the preferred part, 0 .. parts - 1, or -1 for any.
    parts: Into how many parts of about the same size batches are divided.
    late: int64[N], rows with a lower value are placed first.
  """
  batch_starts = np.cumsum(sizes) - sizes
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
  slot += batch_starts[batch]
  taken = np.zeros(len(slot), np.bool_)
  taken[slot[fits]] = True
  slot[~fits] = np.flatnonzero(~taken)
  return slot - batch_starts[batch]
