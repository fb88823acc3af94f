# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Where the documents of a store are among its tokens.

Token positions are absolute: document d holds tokens offsets[d] ..
offsets[d + 1] - 1 of the store.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from chomp_data import errors
from chomp_data.index import integers


class Offsets(Protocol):
  """The first token of every document, and the end: N + 1 of them."""

  def gather(self, positions: np.ndarray, /) -> np.ndarray:
    """Returns int64[N] fresh, offsets[positions] of int64[N] in range."""
    ...

  def read(self, start: int, stop: int, /) -> np.ndarray:
    """Returns offsets[start:stop], int64."""
    ...


class Documents(Protocol):
  """Where documents are; all numbers are of documents that exist."""

  def __len__(self) -> int:
    """Returns the number of documents, those of no token included."""
    ...

  def bounds(self, documents: np.ndarray, /) -> tuple[np.ndarray, np.ndarray]:
    """Returns (first token int64[N], length int64[N]) of int64[N]."""
    ...

  def lengths(self, first: int, stop: int, /) -> np.ndarray:
    """Returns int64[n], the lengths of documents first .. stop - 1."""
    ...


class StoredOffsets:
  """Documents that follow each other, as stored offsets say."""

  def __init__(self, offsets: Offsets, num_documents: int, path: str):
    """Reads nothing.

    Args:
      offsets: Of the documents.
      num_documents: How many there are.
      path: The store, for messages.
    """
    self.offsets = offsets
    self._num_documents = num_documents
    self._path = path

  def __len__(self) -> int:
    return self._num_documents

  def bounds(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (first token, length) of documents; see `Documents`.

    Raises:
      StoreError: If the offsets were altered.
    """
    num = len(documents)
    ends = np.empty(2 * num, np.int64)
    ends[:num] = documents
    np.add(documents, 1, out=ends[num:])
    ends = self.offsets.gather(ends)
    starts = ends[:num]
    lengths = ends[num:] - starts
    return starts, self._checked(lengths)

  def lengths(self, first: int, stop: int) -> np.ndarray:
    """Returns lengths of consecutive documents; see `Documents`.

    Raises:
      StoreError: If the offsets were altered.
    """
    return self._checked(np.diff(self.offsets.read(first, stop + 1)))

  def _checked(self, lengths: np.ndarray) -> np.ndarray:
    if len(lengths) and lengths.min() < 0:
      raise errors.StoreError(
        f"{self._path}/offsets must not decrease, got a step of"
        f" {lengths.min()}. Restore it from a copy, or make it again."
      )
    return lengths


def existing(
  documents: Sequence[int] | np.ndarray, num_documents: int, path: str
) -> np.ndarray:
  """Returns the numbers of documents as int64[N].

  Args:
    documents: Whole numbers.
    num_documents: They must be below it.
    path: The store, for messages.

  Raises:
    IndexError: If there is no such document.
  """
  documents = integers.array("documents", documents)
  if len(documents) and not (
    documents.min() >= 0 and documents.max() < num_documents
  ):
    wrong = (documents < 0) | (documents >= num_documents)
    raise IndexError(
      f"document must be in 0 .. {num_documents - 1} of {path},"
      f" got {documents[wrong][0]}."
    )
  return documents
