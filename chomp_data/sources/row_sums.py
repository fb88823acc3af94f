# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What rows of a source consume, where it knows that without planning them.

A mix balances what sources consume, and accounts report it. Sources without
sums keep the defaults: their rows are then planned, each epoch once.
Units are 'tokens' and 'loss_tokens'; see `mix_units`.
"""

from collections.abc import Mapping
import dataclasses
from typing import final

import numpy as np


@dataclasses.dataclass(frozen=True)
class Uniform:
  """An epoch whose rows all consume the same, but for a few.

  Attributes:
    each: Units of a row.
    exceptions: Units of rows that consume less, by position in the epoch.
  """

  each: int
  exceptions: Mapping[int, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Edges:
  """Positions of an epoch before which the units are known.

  Attributes:
    positions: int64[n + 1], from 0 to the rows of the epoch.
    before: int64[n + 1], the units of the rows before each.
  """

  positions: np.ndarray
  before: np.ndarray


class Sums:
  """What a source knows of its units: nothing, unless overridden."""

  def epochs_repeat(self, unit: str) -> bool:
    """Returns whether every epoch after the ramp consumes the same."""
    del unit
    return False

  def uniform(self, epoch: int, unit: str) -> Uniform | None:
    """Returns what rows of an epoch consume, or None where rows vary."""
    del epoch, unit
    return None

  def edges(self, epoch: int, unit: str) -> Edges | None:
    """Returns where units are known; None: an epoch must be passed over."""
    del epoch, unit
    return None

  def before_blocks(self, epoch: int, unit: str) -> np.ndarray | None:
    """Returns the units before each of `RowSource.blocks`, or None."""
    del epoch, unit
    return None

  def before_every(self, epoch: int, unit: str, rows: int) -> np.ndarray | None:
    """Returns the units before every so many rows, or None.

    Args:
      epoch: The epoch.
      unit: The unit.
      rows: Rows between two of them, at least 1.

    Returns:
      int64[ceil(R / rows) + 1] of the R rows of the epoch, the last one before
      row R.
    """
    del epoch, unit, rows
    return None

  def of_rows(self, epoch: int, unit: str) -> np.ndarray | None:
    """Returns the units of each row of an epoch int32[R], or None.

    Where that is much quicker than planning the rows. All of them are in
    memory.
    """
    del epoch, unit
    return None

  def at(
    self, epoch: int, unit: str, positions: np.ndarray
  ) -> np.ndarray | None:
    """Returns the units of rows at positions of an epoch, int64[N], or None.

    Where that is much quicker than planning them.

    Args:
      epoch: The epoch.
      unit: The unit.
      positions: int64[N], in any order.
    """
    del epoch, unit, positions
    return None

  def epoch_total(self, epoch: int, unit: str) -> int | None:
    """Returns what all rows of an epoch consume, or None.

    For sources of which `known` is False: it may take a pass over lengths.
    """
    del epoch, unit
    return None

  @final
  def known(self, unit: str) -> bool:
    """Returns whether sums need no planning of whole epochs."""
    return self.uniform(0, unit) is not None or self.edges(0, unit) is not None
