# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""From documents to the values of a store's arrays, some documents at a time.

    lengths       2 3            offsets       2 5
    ids           'a' 'bc'       id_bytes      'abc'    id_offsets    1 3
    levels        0 0  1 1 0     label_starts  0 2 4    label_levels  0 1 0
                                 label_sums    0 0 2

Offsets are where documents end, counted from the first document that was
added; the 0 that a store's offsets begin with, and the sum that its label_sums
end with, are added by the caller.
"""

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from chomp_data import errors
from chomp_data.stores import columns as columns_lib
from chomp_data.stores.zarr import manifest as manifest_lib


class DocumentArrays:
  """Encodes documents that follow each other.

  Attributes:
    num_documents: Documents so far.
    num_trained: Their tokens of levels above 0.
    last_level: The level of the last token, -1 before there is one.
    names: The arrays, those that a store may lack included.
    columns: By name, what is stored beside tokens and documents.
  """

  def __init__(
    self,
    names: Collection[str],
    token_dtype: np.dtype,
    columns: Mapping[str, columns_lib.Column],
  ):
    """Nothing yet.

    Args:
      names: The arrays that there are.
      token_dtype: The dtype of tokens.
      columns: The columns that there are.
    """
    self.columns: Mapping[str, columns_lib.Column] = columns
    self.num_documents: int = 0
    self.num_trained: int = 0
    self.last_level: int = -1
    self.names: tuple[str, ...] = tuple(names)
    self._token_dtype = token_dtype
    # Of each array that others point into, how many values it has.
    self._ends = dict.fromkeys(manifest_lib.OFFSETS.values(), 0)

  def add(
    self,
    tokens: np.ndarray,
    lengths: np.ndarray,
    ids: Sequence[str],
    meta: Sequence[str] | None = None,
    runs: tuple[np.ndarray, np.ndarray] | None = None,
    weights: np.ndarray | None = None,
    columns: Mapping[str, Any] | None = None,
  ) -> dict[str, np.ndarray]:
    """Returns what documents add to each array, in its stored dtype.

    Args:
      tokens: Integers [sum of lengths], of the documents one after the other.
      lengths: int64[N], in tokens.
      ids: N ids.
      meta: N strings, where they are stored.
      runs: Where there are labels, of runs of tokens of one level the first
        token int64[R], counted from 0, and the level uint8[R].
      weights: float[N], where documents have them.
      columns: Values by column, [tokens, ...] or [N].

    Raises:
      StoreError: If a text is no string of valid Unicode, or values of a column
        are others.
    """
    id_data, id_lengths = _encoded(ids, "id")
    values = {"id_bytes": id_data}
    values["id_offsets"] = self._offsets("id_bytes", id_lengths)
    if meta is not None:
      values["meta_bytes"], meta_lengths = _encoded(meta, "meta")
      values["meta_offsets"] = self._offsets("meta_bytes", meta_lengths)
    if runs is not None:
      values |= self._labels(*runs, len(tokens))
    if weights is not None:
      # Not -0.0, which is the same and other bytes.
      values["document_weights"] = np.asarray(weights, np.float32) + 0
    stored = self._columns(columns or {}, len(tokens), len(lengths))
    values["offsets"] = self._offsets("tokens", lengths)
    values["tokens"] = tokens
    self.num_documents += len(lengths)
    return stored | {
      name: np.ascontiguousarray(values[name], self._dtype(name))
      for name in self.names
      if name not in stored
    }

  def _columns(
    self, values: Mapping[str, Any], num_tokens: int, num_documents: int
  ) -> dict[str, np.ndarray]:
    """Returns the values of columns as their arrays store them."""
    if values.keys() != self.columns.keys():
      raise errors.StoreError(
        f"`columns` must hold values of {', '.join(self.columns) or 'none'},"
        f" the columns of the store, got {', '.join(values) or 'none'}. Give"
        " values of each."
      )
    arrays = {}
    for name, column in self.columns.items():
      per_token = column.per == columns_lib.TOKEN
      checked = columns_lib.checked(
        name, column, values[name], num_tokens if per_token else num_documents
      )
      stored = np.ascontiguousarray(checked).reshape(-1)
      if column.dtype == "bfloat16":
        stored = stored.view(np.uint16)
      arrays[columns_lib.array_name(name)] = stored
    return arrays

  def _dtype(self, name: str) -> np.dtype:
    if name == "tokens":
      return self._token_dtype
    return np.dtype(manifest_lib.DTYPES[name]).newbyteorder("<")

  def _offsets(self, of: str, lengths: np.ndarray) -> np.ndarray:
    """Returns where documents end in an array, and counts its values."""
    ends = self._ends[of] + np.cumsum(lengths)
    self._ends[of] += int(lengths.sum())
    return ends

  def _labels(
    self, starts: np.ndarray, levels: np.ndarray, num_tokens: int
  ) -> dict[str, np.ndarray]:
    """Returns runs, those that continue the one before left out."""
    trained = np.diff(np.append(starts, num_tokens)) * (levels > 0)
    sums = self.num_trained + np.append(0, np.cumsum(trained))
    new = np.flatnonzero(levels != np.append(self.last_level, levels[:-1]))
    self.num_trained = int(sums[-1])
    if len(levels):
      self.last_level = int(levels[-1])
    return {
      "label_starts": self._ends["tokens"] + starts[new],
      "label_levels": levels[new],
      "label_sums": sums[new],
    }


def _encoded(texts: Sequence[str], what: str) -> tuple[np.ndarray, np.ndarray]:
  """Returns the UTF-8 of texts, joined, and the bytes of each."""
  try:
    joined = "".join(texts).encode()
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    if int(lengths.sum()) != len(joined):
      # Not ASCII: bytes are more than characters.
      encoded = (text.encode() for text in texts)
      lengths = np.fromiter(map(len, encoded), np.int64, len(texts))
  except (TypeError, UnicodeEncodeError):
    text = next(text for text in texts if not _is_text(text))
    raise errors.StoreError(
      f"a document {what} must be a string of valid Unicode, got {text!r}. Give"
      f" another {what}."
    ) from None
  return np.frombuffer(joined, np.uint8), lengths


def _is_text(text: object) -> bool:
  try:
    return isinstance(text, str) and text.encode() is not None
  except UnicodeEncodeError:
    return False
