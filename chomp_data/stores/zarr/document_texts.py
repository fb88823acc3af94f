# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Strings of documents in a store: UTF-8 bytes, and where each begins."""

from collections.abc import Iterator
import dataclasses

import numpy as np

from chomp_data import errors
from chomp_data.stores import span_reads
from chomp_data.stores import texts
from chomp_data.stores.zarr import manifest as manifest_lib
from chomp_data.stores.zarr import stored_array


@dataclasses.dataclass(frozen=True)
class TextArray(texts.Texts):
  """One string a document, read from two arrays.

  Attributes:
    path: The store's directory, for messages.
    name: The arrays are `<name>_bytes` and `<name>_offsets`.
    num_documents: N.
    data: The bytes.
    offsets: int64[N + 1], the first byte of each, and the end.
  """

  path: str
  name: str
  num_documents: int
  data: stored_array.StoredArray
  offsets: stored_array.StoredArray

  def __len__(self) -> int:
    return self.num_documents

  def take(self, documents: np.ndarray) -> list[str]:
    """Returns the strings of documents int64[N], in the order given.

    Raises:
      StoreError: If they were altered.
    """
    count = len(documents)
    ends = self.offsets.gather(np.concatenate([documents, documents + 1]))
    starts = ends[:count]
    lengths = ends[count:] - starts
    span_reads.check_rising(lengths, self._file("offsets"))
    out = np.empty(int(lengths.sum()), np.uint8)
    stops = np.cumsum(lengths)
    self.data.copy_spans(starts, lengths, out, stops - lengths)
    return self._decoded(out.tobytes(), stops - lengths, stops)

  def batches(self) -> Iterator[tuple[int, list[str]]]:
    """Yields (first document, strings) of all documents, a part at a time.

    Raises:
      StoreError: If they were altered.
    """
    for first in range(0, self.num_documents, texts.BATCH):
      last = min(first + texts.BATCH, self.num_documents)
      ends = self.offsets.read(first, last + 1)
      span_reads.check_rising(np.diff(ends), self._file("offsets"))
      data = self.data.read(int(ends[0]), int(ends[-1])).tobytes()
      ends -= ends[0]
      yield first, self._decoded(data, ends[:-1], ends[1:])

  def _decoded(
    self, data: bytes, starts: np.ndarray, stops: np.ndarray
  ) -> list[str]:
    try:
      return [
        data[low:high].decode()
        for low, high in zip(starts.tolist(), stops.tolist(), strict=True)
      ]
    except UnicodeDecodeError as error:
      raise errors.StoreError(
        f"{self._file('bytes')} must be UTF-8, got {error}."
        f" {manifest_lib.RESTORE}"
      ) from error

  def _file(self, kind: str) -> str:
    return f"{self.path}/{self.name}_{kind}"
