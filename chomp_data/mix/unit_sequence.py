# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What a merge needs to know about a source: the units before its rows.

    rows      0  1  2  3      before(0 .. 4)  [0, 5, 5, 5, 9]
    consumes  5  0  0  4      rows_below(5) = 1, rows_below(6) = 4

A unit is a token, a trained token, or 1 for a row. The units before a row are
int64 and exact. NumPy only.
"""

from typing import Protocol

import numpy as np

# Sums stay below this, so that their differences fit into int64.
MOST_UNITS = 2**62


class UnitSequence(Protocol):
  """The units of a source's rows, in the source's own order.

  A sequence without an end must never stop consuming units: if all rows from
  some row on consumed nothing, a search for more units would not end.
  """

  @property
  def num_rows(self) -> int | None:
    """The number of rows; None if it has no end."""
    ...

  def before(self, rows: np.ndarray) -> np.ndarray:
    """Returns int64[N], the units of rows 0 .. k - 1 for each k of int64[N].

    Args:
      rows: Each in 0 .. `num_rows`, the end included; often consecutive.
    """
    ...

  def rows_below(self, units: int, near: bool = False) -> int:
    """Returns how many rows k below `num_rows` have before(k) < units.

    Args:
      units: At most 2**62.
      near: Whether an estimate is enough, if it is faster.
    """
    ...
