# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Which rows of a source hold a document: `RowSource.plan` the other way.

A source that says nothing needs nothing from here: its rows are then planned
and looked through, an epoch at a time.
"""

from typing import final
from typing import Protocol

import numpy as np

from chomp_data.rows import spans as spans_lib
from chomp_data.sources import epochs as epochs_lib

# Rows planned at once.
_BLOCK = 65_536


class Rows(Protocol):
  """What is asked of a source; see `RowSource`."""

  @property
  def epochs(self) -> epochs_lib.Epochs:
    """Which rows belong to which epoch."""
    ...

  def plan(self, rows: np.ndarray) -> spans_lib.Spans:
    """Plans rows."""
    ...


class RowTracing:
  """Documents to rows: nothing is known, unless overridden.

  Attributes:
    exact: Whether each row of `rows_of` holds one span of the document, so
      that spans are counted without planning any.
    repeats: Whether every epoch after the ramp holds as many spans of a
      document as another.
  """

  exact: bool = False
  repeats: bool = False

  def __init__(self, source: Rows):
    """Binds a source."""
    self._source = source

  def rows_of(self, document: int, epoch: int) -> np.ndarray:
    """Returns rows of an epoch; all others hold nothing of the document.

    Args:
      document: Its number in the source's store.
      epoch: The epoch.

    Returns:
      int64[N, 2], first and last + 1 of ranges, ascending and apart.
    """
    del document
    return ranges([(0, self._source.epochs.size(epoch))])

  def documents(self) -> np.ndarray | None:
    """Returns int64[N], the documents that are ever read; None is all."""
    return None

  def never(self, document: int) -> bool:
    """Returns whether no epoch after the ramp can hold any of a document."""
    del document
    return False

  def cost(self, epochs: int) -> float:
    """Returns about how many seconds counting spans in epochs takes."""
    del epochs
    return 0.0

  def count(self, document: int, epoch: int) -> int:
    """Returns the spans of a document in an epoch."""
    found = self.rows_of(document, epoch)
    if self.exact:
      return num_rows(found)
    total, start = 0, self._source.epochs.start(epoch)
    for first, last in found.tolist():
      for low in range(first, last, _BLOCK):
        rows = np.arange(low, min(low + _BLOCK, last))
        total += self.spans_in(document, start + rows)
    return total

  def counts(self, epoch: int) -> np.ndarray | None:
    """Returns int64[num_documents], the spans of each in an epoch.

    None where that takes planning all rows.
    """
    del epoch
    return None

  def before(self, document: int, epoch: int) -> int:
    """Returns the spans of a document in the epochs before one."""
    ramp = self._source.epochs.ramp
    if self.repeats and epoch > ramp:
      whole = epoch - ramp
      return self.before(document, ramp) + whole * self.count(document, ramp)
    return sum(self.count(document, number) for number in range(epoch))

  @final
  def spans_in(self, document: int, rows: np.ndarray) -> int:
    """Returns the spans of a document in rows int64[N] of any epochs."""
    return int(np.sum(self._source.plan(rows).document == document))


def ranges(found: list[tuple[int, int]]) -> np.ndarray:
  """Returns ranges as int64[N, 2], empty ones left out."""
  kept = [own for own in found if own[0] < own[1]]
  return np.asarray(kept, np.int64).reshape(-1, 2)


def of_rows(rows: np.ndarray) -> np.ndarray:
  """Returns rows int64[N] as ranges of one row, ascending."""
  rows = np.unique(rows)
  return np.stack([rows, rows + 1], axis=1)


def num_rows(found: np.ndarray) -> int:
  """Returns the rows of ranges int64[N, 2]."""
  return int((found[:, 1] - found[:, 0]).sum())
