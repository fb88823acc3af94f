# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Which rows of a source belong to which epoch.

Rows are numbered through all epochs:

    epoch       0       1       2
    rows        0 .. 3  4 .. 7  8 .. 11    EqualEpochs(4)

Epochs of some sources differ in rows, for instance where documents are packed
in another order in each epoch.
"""

import abc
from typing import final

import numpy as np

from chomp_data import schema
from chomp_data.index import integers

_NUMBER = schema.integer(0, 2**62 - 1)


class Epochs(abc.ABC):
  """Maps epochs to rows and rows to epochs.

  Attributes:
    ramp: Epochs before the first one that counts. In these a source does not
      yet read all of its documents.
  """

  ramp: int = 0

  @abc.abstractmethod
  def first_row(self, epoch: np.ndarray) -> np.ndarray:
    """Returns the number of each epoch's first row, int64[N].

    Args:
      epoch: int64[N], from 0.
    """

  @abc.abstractmethod
  def locate(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (epoch, row of that epoch) of rows, int64[N] each.

    Args:
      rows: int64[N], at least 0.
    """

  @final
  @schema.arguments(epoch=_NUMBER)
  def start(self, epoch: int) -> int:
    """Returns the number of an epoch's first row."""
    return int(self.first_row(np.asarray([epoch]))[0])

  @final
  @schema.arguments(epoch=_NUMBER)
  def size(self, epoch: int) -> int:
    """Returns the rows of an epoch."""
    first_row, end_row = self.first_row(np.asarray([epoch, epoch + 1])).tolist()
    return end_row - first_row

  @final
  @schema.arguments(epochs=schema.optional(_NUMBER))
  def total(self, epochs: int | None) -> int | None:
    """Returns the rows of the ramp and of a number of epochs after it.

    Args:
      epochs: The number of epochs, or None for no end, which returns None.
    """
    return None if epochs is None else self.start(self.ramp + epochs)

  @final
  @schema.arguments(row=_NUMBER)
  def passes(self, row: int) -> float:
    """Returns how many epochs after the ramp lie before a row.

    Args:
      row: A row number through all epochs.

    Returns:
      Whole epochs, and the share of the last one.
    """
    epochs, rows = self.locate(np.asarray([row], np.int64))
    epoch = int(epochs[0])
    if epoch < self.ramp:
      return 0.0
    return epoch - self.ramp + int(rows[0]) / max(self.size(epoch), 1)


class EqualEpochs(Epochs):
  """Epochs of the same number of rows, without a ramp."""

  def __init__(self, rows: int):
    """Stores the number of rows of an epoch, at least 1."""
    self._rows = rows

  def first_row(self, epoch: np.ndarray) -> np.ndarray:
    """Returns the number of each epoch's first row, int64[N]."""
    return integers.array("epoch", epoch) * self._rows

  def locate(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (epoch, row of that epoch) of rows, int64[N] each."""
    epoch, index = np.divmod(integers.array("rows", rows), self._rows)
    return epoch, index
