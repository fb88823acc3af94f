# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A part: what a store holds of some documents, relative to them.

`KEY.part/00000`, ... are a section for each of the store's arrays, raw and
little-endian, positions counted from the part's own first token, byte or run;
of offsets the ends. `KEY.json`, written last, says where sections are, and the
crc32c of every block: a range can be read and checked without the rest.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import io
from typing import Any
from typing import BinaryIO

import numpy as np

from chomp_data import errors
from chomp_data.prepare import scratch
from chomp_data.storage import checked_file
from chomp_data.storage import checksums
from chomp_data.storage import publish
from chomp_data.stores import columns as columns_lib
from chomp_data.stores.zarr import document_arrays
from chomp_data.stores.zarr import manifest as manifest_lib

BLOCK = 2**22
# Of a file, which is in memory until it is sent to a bucket.
_FILE_BLOCKS = 16
_ALIGNMENT = 8


@dataclasses.dataclass(frozen=True)
class PartRow:
  """What is in a part.

  Attributes:
    num_documents: Documents that have a token.
    num_tokens: Their tokens.
    token_dtype: The dtype of tokens in the part, perhaps narrower than the
      store's.
    num_empty: Documents left out because they have no token.
    num_trained: Tokens of levels above 0, where there are labels.
    levels: Weights of the levels, where there are labels.
    ends: Levels of the first and of the last token, where there are labels.
    sections: By array, the first byte in the part and the number of values.
    crc32c: Of each block of the part.
    skipped: What was left out, the fields of `rejections.Rejections`.
  """

  num_documents: int
  num_tokens: int
  token_dtype: str
  num_empty: int
  num_trained: int
  levels: list[float]
  ends: list[float]
  sections: dict[str, list[int]]
  crc32c: list[int]
  skipped: dict[str, Any]

  def size(self, name: str) -> int:
    """Returns how many values an array has."""
    return self.sections[name][1]


class PartWriter:
  """Writes a part: tokens at once, all else at the end."""

  def __init__(
    self,
    directory: str,
    key: str,
    token_dtype: np.dtype,
    *,
    has_meta: bool,
    has_labels: bool,
    has_weights: bool,
    columns: Mapping[str, columns_lib.Column] | None = None,
  ):
    """Writes nothing yet.

    Args:
      directory: The directory or URL of parts.
      key: The part's name; one that is there is replaced.
      token_dtype: The dtype that its tokens fit in.
      has_meta: Whether documents have a string in addition to their id.
      has_labels: Whether tokens have weights.
      has_weights: Whether documents have weights.
      columns: What is stored beside tokens and documents.
    """
    self._directory = directory
    self._key = key
    self._token_dtype = token_dtype
    columns = columns or {}
    names = manifest_lib.array_names(has_meta, has_labels, has_weights, columns)
    self._documents = document_arrays.DocumentArrays(
      names, token_dtype, columns
    )
    # A column's values of a token may be thousands of times its bytes: they are
    # in a file, where parts are in a bucket one of this machine.
    large = {
      columns_lib.array_name(name)
      for name, column in columns.items()
      if column.per == columns_lib.TOKEN
    }
    folder = scratch.storage_at(directory).directory
    if folder is not None and large:
      folder.mkdir(parents=True, exist_ok=True)
    self._stack = contextlib.ExitStack()
    self._values: dict[str, BinaryIO] = {
      name: self._stack.enter_context(
        publish.unnamed_file(folder) if name in large else io.BytesIO()
      )
      for name in names
      if name != "tokens"
    }
    self._counts = dict.fromkeys(names, 0)
    self._first_level: int | None = None
    # By weight, 0 and 1 first, then as they came.
    self._levels: dict[float, int] = {0.0: 0, 1.0: 1} if has_labels else {}
    self._blocks = _BlockWriter(directory, key)

  def __enter__(self) -> "PartWriter":
    return self

  def __exit__(self, *error: Any) -> None:
    with self._stack:
      self._blocks.close(*error)

  def add(
    self,
    tokens: np.ndarray,
    lengths: np.ndarray,
    names: Sequence[str],
    meta: Sequence[str] | None = None,
    labels: tuple[np.ndarray, np.ndarray] | None = None,
    weights: np.ndarray | None = None,
    columns: Mapping[str, np.ndarray] | None = None,
  ) -> None:
    """Adds documents that have tokens.

    Args:
      tokens: Of the documents one after the other, below the vocabulary size.
      lengths: int64[N], in tokens.
      names: N ids.
      meta: N strings, where they are kept.
      labels: Of runs of tokens that weigh the same, where there are labels:
        the first token int64[R], from 0 on, and the weight float[R].
      weights: float[N], where documents have them.
      columns: Values by column, [tokens, ...] or [N].
    """
    runs = None if labels is None else (labels[0], self._levels_of(labels[1]))
    added = self._documents.add(
      tokens, lengths, names, meta, runs, weights, columns
    )
    if self._first_level is None and len(added.get("label_levels", ())):
      self._first_level = int(added["label_levels"][0])
    for name, values in added.items():
      self._counts[name] += len(values)
      if name == "tokens":
        self._blocks.write(values)
      else:
        self._values[name].write(values.view(np.uint8).data)

  def finish(self, num_empty: int, skipped: dict[str, Any]) -> PartRow:
    """Writes what is left, then the row; returns it."""
    sections = {"tokens": [0, self._counts["tokens"]]}
    for name, values in self._values.items():
      self._blocks.align()
      sections[name] = [self._blocks.sums.num_bytes, self._counts[name]]
      values.seek(0)
      while data := values.read(BLOCK):
        self._blocks.write(np.frombuffer(data, np.uint8))
    self._blocks.close()
    weights = list(self._levels)
    ends = []
    if self._first_level is not None:
      ends = [weights[self._first_level], weights[self._documents.last_level]]
    row = PartRow(
      self._documents.num_documents,
      self._counts["tokens"],
      self._token_dtype.str,
      num_empty,
      self._documents.num_trained,
      weights,
      ends,
      sections,
      self._blocks.sums.crc32c(),
      skipped,
    )
    scratch.write_row(self._directory, f"{self._key}.json", row)
    return row

  def _levels_of(self, weights: np.ndarray) -> np.ndarray:
    """Returns the levels of weights, new ones added."""
    # Levels are few, and so are other weights than the last ones.
    distinct, index = np.unique(np.asarray(weights, float), return_inverse=True)
    levels = [
      self._levels.setdefault(weight + 0.0, len(self._levels))
      for weight in distinct.tolist()
    ]
    check_level_count(len(self._levels))
    return np.asarray(levels, np.uint8)[index]


def check_level_count(count: int) -> None:
  """Raises PrepareError where tokens have too many different weights."""
  if count > manifest_lib.MAX_LEVELS:
    raise errors.PrepareError(
      f"weights of tokens must be at most {manifest_lib.MAX_LEVELS} different"
      f" ones, got {count}. Round them."
    )


class Part:
  """A part that is complete; what is read of it is checked."""

  def __init__(self, directory: str, key: str):
    """Reads its row.

    Raises:
      OSError: If it is not there.
      ValueError: If its row is damaged.
    """
    self._directory = directory
    self._key = key
    self.row: PartRow = scratch.read_row(PartRow, directory, f"{key}.json")

  def read(
    self, name: str, dtype: np.dtype, begin: int, end: int
  ) -> Iterator[np.ndarray]:
    """Yields values begin .. end - 1 of an array, some at a time.

    Raises:
      OSError: If they cannot be read.
      ValueError: If they are not those that were written.
    """
    first, count = self.row.sections[name]
    if not 0 <= begin <= end <= count:
      raise ValueError(f"{self._key}.part has {count} {name}, not {end}")
    stored = np.dtype(self.row.token_dtype) if name == "tokens" else dtype
    low, high = first + begin * stored.itemsize, first + end * stored.itemsize
    if low == high:
      return
    for number in range(low // BLOCK, -(-high // BLOCK)):
      # No value is in two blocks: sections are aligned.
      block_start = number * BLOCK
      data = self._block(number)[max(low - block_start, 0) : high - block_start]
      yield np.frombuffer(data, stored).astype(dtype, copy=False)

  def verify(self) -> None:
    """Raises OSError or ValueError where a byte is not as it was written."""
    for number in range(len(self.row.crc32c)):
      self._block(number)

  def _block(self, number: int) -> bytes:
    name, start = _place(self._key, number)

    def check(data: bytes) -> None:
      if checksums.crc32c(data) != self.row.crc32c[number]:
        raise ValueError(f"{self._key}.part has other bytes in block {number}")

    # The last one is shorter, and so is its file.
    stop = None if number + 1 == len(self.row.crc32c) else start + BLOCK
    files = scratch.storage_at(self._directory)
    return files.get(name, start, stop, check=check)


def find(directory: str, key: str) -> PartRow | None:
  """Returns the row of a part that is complete and undamaged, else None."""
  try:
    part = Part(directory, key)
    if not scratch.storage_at(directory).durable:
      part.verify()  # Objects of buckets are checked as they are read.
    return part.row
  except (OSError, ValueError):
    return None


def _place(key: str, block: int) -> tuple[str, int]:
  """Returns the file that a block of a part is in, and where it begins."""
  file, nth = divmod(block, _FILE_BLOCKS)
  return f"{key}.part/{file:05}", nth * BLOCK


class _BlockWriter:
  """Writes the files of a part, and sums its blocks.

  Attributes:
    sums: The checksums of blocks.
  """

  def __init__(self, directory: str, key: str):
    self.sums: checked_file.PageSums = checked_file.PageSums(BLOCK)
    self._directory = directory
    self._key = key
    self._file: BinaryIO | None = None
    self._stack = contextlib.ExitStack()

  def write(self, values: np.ndarray) -> None:
    """Writes a contiguous array's bytes."""
    data = values.view(np.uint8).view()
    data.flags.writeable = False
    while len(data):
      if self._file is None:
        name, _ = _place(self._key, self.sums.num_bytes // BLOCK)
        files = scratch.storage_at(self._directory)
        self._file = self._stack.enter_context(files.new(name))
      file_bytes = _FILE_BLOCKS * BLOCK
      piece = data[: file_bytes - self.sums.num_bytes % file_bytes]
      self._file.write(piece.data)
      self.sums.update(piece)
      if self.sums.num_bytes % file_bytes == 0:
        self.close()
      data = data[len(piece) :]

  def align(self) -> None:
    """Writes zeros up to where any value may begin."""
    self.write(np.zeros(-self.sums.num_bytes % _ALIGNMENT, np.uint8))

  def close(self, *error: Any) -> None:
    """Ends the file that is being written, or removes it if there is an error.

    Args:
      *error: As `__exit__` takes it; by default there is none.
    """
    self._file = None
    self._stack.__exit__(*(error or (None, None, None)))
