# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Strings of documents in a store: UTF-8 bytes, and where each begins."""

import dataclasses

import numpy as np

from chomp_data.stores import texts
from chomp_data.stores.zarr import stored_array


@dataclasses.dataclass(frozen=True)
class TextArray(texts.Texts):
  """One string a document, read from two arrays.

  Attributes:
    num_documents: N.
    data: The bytes.
    offsets: int64[N + 1], the first byte of each, and the end.
  """

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
    out = np.empty(int(lengths.sum()), np.uint8)
    stops = np.cumsum(lengths)
    self.data.copy_spans(starts, lengths, out, stops - lengths)
    data, begin, strings = out.tobytes(), 0, []
    for stop in stops.tolist():
      strings.append(data[begin:stop].decode())
      begin = stop
    return strings
