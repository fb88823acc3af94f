# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Where the sources of a mix stand as its stages begin, as far as it is known.

Rows and units are kept of each stage. The numbers that tell how far a source
is ahead gain digits with each stage, 2.5 KiB after 5,000 of them, so these are
kept of every 64th; others follow from rows and units (`merge_stages`).
"""

from collections.abc import Mapping
import dataclasses
from typing import Any
from typing import Self

import numpy as np

# Stages from one whose overshoots are kept to the next.
EVERY = 64

_LEAST_ROOM = 16


@dataclasses.dataclass(frozen=True)
class Overshoots:
  """By how much sources are beyond the least level of them.

  Attributes:
    ahead: Parts of units by source; 0 of sources left out.
    parts: The parts of a unit.
  """

  ahead: Mapping[int, int]
  parts: int


class Standings:
  """The begins of stages 0 .. n - 1; immutable.

  Attributes:
    rows: int64[n, S], each source's next row.
    units: int64[n, S], what each has consumed in this run; of one that has
      ended less, as nobody asks.
    overshoots: By stage: of every 64th, and of others as it happens.
  """

  def __init__(
    self,
    rows: np.ndarray,
    units: np.ndarray,
    overshoots: Mapping[int, Overshoots],
  ):
    """Binds what is known."""
    self.rows: np.ndarray = rows
    self.units: np.ndarray = units
    self.overshoots: Mapping[int, Overshoots] = overshoots
    # Arrays that begin with those, and have room for more.
    self._rooms = rows, units

  def __reduce__(self) -> tuple[Any, ...]:
    return Standings, (self.rows, self.units, self.overshoots)

  def __len__(self) -> int:
    return len(self.rows)

  def followed(
    self, rows: np.ndarray, units: np.ndarray, overshoots: Overshoots
  ) -> Self:
    """Returns these and the begin of the next stage.

    What follows is always the same, so that two threads may write it at once
    where both have room for it.

    Args:
      rows: int64[S].
      units: int64[S].
      overshoots: There.
    """
    count = len(self)
    rooms = tuple(
      room
      if count < len(room)
      else np.concatenate([room, np.empty_like(room, shape=_more(room.shape))])
      for room in self._rooms
    )
    for room, own in zip(rooms, (rows, units), strict=True):
      room[count] = own
    kept = {**self.overshoots, count: overshoots}
    if (count - 1) % EVERY:
      kept.pop(count - 1, None)
    found = type(self)(rooms[0][: count + 1], rooms[1][: count + 1], kept)
    found._rooms = rooms
    return found


def _more(shape: tuple[int, ...]) -> tuple[int, ...]:
  return max(shape[0], _LEAST_ROOM), *shape[1:]
