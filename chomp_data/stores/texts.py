# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""One string per document of a store: ids, metadata."""

import abc
from collections.abc import Iterator
from collections.abc import Sequence

import numpy as np

from chomp_data import schema

BATCH = 1 << 16


class Texts(abc.ABC):
  """The strings of all documents, by number."""

  @abc.abstractmethod
  def __len__(self) -> int:
    """Returns the number of documents."""

  @abc.abstractmethod
  def take(self, documents: np.ndarray) -> list[str]:
    """Returns the strings of documents int64[N] that exist, in that order.

    Raises:
      StoreError: If they were altered.
    """

  def batches(self) -> Iterator[tuple[int, list[str]]]:
    """Yields (first document, strings) of all documents, a part at a time."""
    for first in range(0, len(self), BATCH):
      stop = min(first + BATCH, len(self))
      yield first, self.take(np.arange(first, stop))

  def find(self, names: Sequence[str]) -> dict[str, list[int]]:
    """Returns the documents of each string, ascending, in one pass over all."""
    documents: dict[str, list[int]] = {name: [] for name in names}
    for first, strings in self.batches():
      for document, string in enumerate(strings, first):
        if string in documents:
          documents[string].append(document)
    return documents

  def closest(self, name: str) -> str:
    """Returns ' Did you mean `x`?' with the nearest of the first 65,536.

    Args:
      name: The string of no document.

    Returns:
      '' where none is near.
    """
    _, strings = next(self.batches(), (0, []))
    return schema.did_you_mean(name, strings)


class NumberedTexts(Texts):
  """'<file>:<number>' of documents: their number in their file, as an id."""

  def __init__(self, files: Sequence[str], first_document: np.ndarray):
    """Binds the names.

    Args:
      files: Names of the files, in the order of their documents.
      first_document: int64[files + 1], the first document of each, and the end.
    """
    self._files = files
    self._first_document = first_document

  def __len__(self) -> int:
    return int(self._first_document[-1])

  def take(self, documents: np.ndarray) -> list[str]:
    """Returns the strings of documents; see `Texts`."""
    first = self._first_document
    file = np.searchsorted(first, documents, "right") - 1
    numbers = documents - first[file]
    return [
      f"{self._files[i]}:{number}"
      for i, number in zip(file.tolist(), numbers.tolist(), strict=True)
    ]

  def find(self, names: Sequence[str]) -> dict[str, list[int]]:
    """Returns the document of each string, or none, without a pass."""
    first = self._first_document.tolist()
    file_numbers = {name: i for i, name in enumerate(self._files)}
    documents: dict[str, list[int]] = {}
    for name in names:
      file, _, text = name.rpartition(":")
      documents[name] = []
      number = file_numbers.get(file)
      # '07' and '+7' are integers to Python, but no ids.
      if number is None or not text.isdecimal() or str(int(text)) != text:
        continue
      document = first[number] + int(text)
      if document < first[number + 1]:
        documents[name] = [document]
    return documents
