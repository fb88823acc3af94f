# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Places the rows of a batch so that rows with a preferred part are in it.

    parts 2, preferred part of each row  1 0 1 1 - 0      -: any
    slots                                3 0 4 5 1 2

A reader of one part of the batch then reads the same lanes of a source at every
step, although the merge decides which rows a step has. NumPy only.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import fractions

import numpy as np

from chomp_data import schema
from chomp_data.phased import phased_source
from chomp_data.sources import row_source


class Lanes:
  """The lanes of the sources of a mix.

  Attributes:
    parts: Into how many parts batches are divided; 1 if no source has lanes.
  """

  def __init__(self, sources: Mapping[str, row_source.RowSource], path: str):
    """Collects the sources that have lanes.

    Args:
      sources: The sources by name, in the order of their numbers.
      path: Dotted path of the mix, for messages.

    Raises:
      ConfigError: If sources have different numbers of lanes.
    """
    self._sources: dict[int, phased_source.Ordered] = {}
    lanes: dict[str, int] = {}
    for number, (name, source) in enumerate(sources.items()):
      if isinstance(source, phased_source.Ordered) and source.lanes > 1:
        self._sources[number] = source
        lanes[name] = source.lanes
    if len(set(lanes.values())) > 1:
      shown = ", ".join(f"{name} {count}" for name, count in lanes.items())
      raise schema.ConfigError(
        [
          f"`{path}` must be of sources with the same shuffle.lanes, got"
          f" parts of a batch: {shown}. Set the same, or None."
        ]
      )
    self.parts: int = max(lanes.values(), default=1)

  def wanted(self, sources: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Returns the preferred part of each row, int64[N]; -1 for any.

    Every second source numbers its lanes in reverse, so that if one of two
    sources has an additional row in some parts, the other has one less there.

    Args:
      sources: int32[N], the number of each row's source.
      rows: int64[N], the rows in their sources' orders.
    """
    wanted = np.full(len(sources), -1)
    for number, source in self._sources.items():
      pick = np.flatnonzero(sources == number)
      lane = source.lane_of(rows[pick])
      wanted[pick] = self.parts - 1 - lane if number % 2 else lane
    return wanted


def ranks(
  stages: Sequence[Mapping[str, fractions.Fraction]], names: Sequence[str]
) -> np.ndarray:
  """Returns the rank of each source by descending weight, int64[stages, S]."""
  by_stage = np.empty((len(stages), len(names)), np.int64)
  for stage_ranks, weights in zip(by_stage, stages, strict=True):
    order = sorted(
      range(len(names)),
      key=lambda i, weights=weights: (-weights.get(names[i], 0), i),
    )
    stage_ranks[order] = np.arange(len(names))
  return by_stage


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
