# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A part: what a store holds of some documents, relative to them.

`KEY.part` has a section for each of the store's arrays, raw and little-endian,
positions counted from the part's own first token, byte or run; of offsets the
ends. `KEY.json`, written last, says where sections are, and the crc32c of
every block of the file: a range can be read and checked without the rest.

Where parts are at a URL, `KEY.part/00000`, ... are 16 blocks each, so that one
that grows is never held whole.

Nothing is synced to disk: what a power cut leaves of a part is found by its
checksums, and the part is made again.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import os
import pathlib
import secrets
from typing import Any

import google_crc32c
import numpy as np

from chomp_data import errors
from chomp_data.prepare import work_files
from chomp_data.stores import json_values
from chomp_data.stores import places
from chomp_data.stores import publish
from chomp_data.stores.zarr import manifest as manifest_lib

BLOCK = 2**22
_OBJECT_BLOCKS = 16
_ALIGNMENT = 8
_MOST_LEVELS = manifest_lib.MAX_LEVELS


@dataclasses.dataclass(frozen=True)
class PartRow:
  """What is in a part.

  Attributes:
    num_documents: Documents that have a token.
    num_tokens: Their tokens.
    token_dtype: That they are in here, perhaps narrower than the store's.
    num_empty: Documents left out because they have none.
    num_trained: Tokens of levels above 0, where there are labels.
    levels: Weights of the levels, where there are labels.
    ends: Levels of the first and of the last token, where there are labels.
    sections: By array, the first byte in the file and the number of values.
    crc32c: Of each block of the file.
    skipped: What was left out, the fields of `skips.Skips`.
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
  """Writes a part; holds all but its tokens until the end."""

  def __init__(
    self,
    directory: str,
    key: str,
    token_dtype: np.dtype,
    *,
    has_meta: bool,
    has_labels: bool,
    has_weights: bool,
  ):
    """Creates its file, in the place of one that is there."""
    self._directory = directory
    self._key = key
    # Of this try: another may be made elsewhere at the same time.
    self._token = secrets.token_hex(8)
    self._dtypes = {"tokens": token_dtype} | {
      name: np.dtype(dtype).newbyteorder("<")
      for name, dtype in manifest_lib.DTYPES.items()
    }
    names = ["tokens", "offsets", "id_bytes", "id_offsets"]
    names += manifest_lib.META_ARRAYS if has_meta else ()
    names += manifest_lib.LABEL_ARRAYS if has_labels else ()
    names += manifest_lib.WEIGHT_ARRAYS if has_weights else ()
    self._values: dict[str, list[np.ndarray]] = {name: [] for name in names}
    self._totals = dict.fromkeys(names, 0)
    self._num_documents = self._num_trained = 0
    # By weight, 0 and 1 first, then as they came.
    self._levels: dict[float, int] = {0.0: 0, 1.0: 1} if has_labels else {}
    self._last_level = -1
    self._temporary: pathlib.Path | None = None
    if places.is_url(directory):
      self._file = _CheckedFile(_Objects(directory, key))
    else:
      self._temporary = pathlib.Path(directory, f"{key}.part.{self._token}")
      self._file = _CheckedFile(publish.new_file(self._temporary, "wb"))

  def __enter__(self) -> "PartWriter":
    return self

  def __exit__(self, *unused: object) -> None:
    self._file.close()
    if self._temporary is not None:
      self._temporary.unlink(missing_ok=True)

  def add(
    self,
    tokens: np.ndarray,
    lengths: np.ndarray,
    names: Sequence[str],
    meta: Sequence[str] | None = None,
    labels: tuple[np.ndarray, np.ndarray] | None = None,
    weights: np.ndarray | None = None,
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
    """
    if labels is not None:
      self._add_labels(*labels, len(tokens))
    self._add_ends("offsets", lengths)
    self._file.write(tokens.astype(self._dtypes["tokens"], copy=False))
    self._totals["tokens"] += len(tokens)
    self._add_texts("id", names)
    if meta is not None:
      self._add_texts("meta", meta)
    if weights is not None:
      # Not -0.0, which is the same and other bytes.
      self._put("document_weights", np.asarray(weights, np.float32) + 0)
    self._num_documents += len(lengths)

  def finish(self, num_empty: int, skipped: dict[str, Any]) -> PartRow:
    """Writes what is left, then the row; returns it."""
    sections = {"tokens": [0, self._totals["tokens"]]}
    for name, parts in self._values.items():
      if name != "tokens":
        self._file.align()
        sections[name] = [self._file.size, sum(map(len, parts))]
        for values in parts:
          self._file.write(values)
    self._file.end()
    if self._temporary is not None:
      os.replace(self._temporary, self._temporary.with_suffix(""))
    weights = list(self._levels)
    levels = self._values.get("label_levels")
    row = PartRow(
      self._num_documents,
      self._totals["tokens"],
      self._dtypes["tokens"].str,
      num_empty,
      self._num_trained,
      weights,
      [weights[levels[0][0]], weights[self._last_level]] if levels else [],
      sections,
      self._file.crc32c,
      skipped,
    )
    data = json_values.encode(row)
    work_files.write_summed(self._directory, f"{self._key}.json", data)
    return row

  def _add_labels(
    self, starts: np.ndarray, weights: np.ndarray, num_tokens: int
  ) -> None:
    if not len(starts):
      return
    # Levels are few, and so are other weights than the last ones.
    found, nth = np.unique(np.asarray(weights, float), return_inverse=True)
    for weight in found.tolist():
      self._levels.setdefault(weight + 0.0, len(self._levels))
    if len(self._levels) > _MOST_LEVELS:
      raise errors.PrepareError(
        f"weights of tokens must be at most {_MOST_LEVELS} different ones, got"
        f" {len(self._levels)}. Round them."
      )
    own = np.asarray([self._levels[w + 0.0] for w in found.tolist()])[nth]
    trained = np.diff(np.append(starts, num_tokens)) * (weights > 0)
    before = np.append(0, np.cumsum(trained))
    new = np.flatnonzero(own != np.append(self._last_level, own[:-1]))
    self._put("label_starts", self._totals["tokens"] + starts[new])
    self._put("label_levels", own[new])
    self._put("label_sums", self._num_trained + before[new])
    self._num_trained += int(before[-1])
    self._last_level = int(own[-1])

  def _add_texts(self, name: str, texts: Sequence[str]) -> None:
    joined = "".join(texts).encode()
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    if int(lengths.sum()) != len(joined):
      # Not ASCII: bytes are more than characters.
      encoded = (text.encode() for text in texts)
      lengths = np.fromiter(map(len, encoded), np.int64, len(texts))
    self._add_ends(f"{name}_offsets", lengths)
    self._put(f"{name}_bytes", np.frombuffer(joined, np.uint8))

  def _add_ends(self, name: str, lengths: np.ndarray) -> None:
    ends = self._totals[name] + np.cumsum(lengths)
    if len(ends):
      self._totals[name] = int(ends[-1])
    self._put(name, ends)

  def _put(self, name: str, values: np.ndarray) -> None:
    if len(values):
      self._values[name].append(values.astype(self._dtypes[name], copy=False))


class Part:
  """A part that is complete; what is read of it is checked."""

  def __init__(self, directory: str, key: str):
    """Reads its row.

    Raises:
      OSError: If it is not there.
      ValueError: If its row is damaged.
    """
    self._directory, self._name = directory, f"{key}.part"
    self._path = places.join(directory, self._name)
    self.row: PartRow = _read_row(directory, f"{key}.json")

  def read(
    self, name: str, dtype: np.dtype, begin: int, end: int
  ) -> Iterator[np.ndarray]:
    """Yields values begin .. end - 1 of an array, some at a time.

    Args:
      name: Of the array.
      dtype: The store's.
      begin: The first value.
      end: After the last.

    Raises:
      OSError: If they cannot be read.
      ValueError: If they are not those that were written.
    """
    first, count = self.row.sections[name]
    if not 0 <= begin <= end <= count:
      raise ValueError(f"{self._path} has {count} {name}, not {end}")
    stored = np.dtype(self.row.token_dtype) if name == "tokens" else dtype
    low, high = first + begin * stored.itemsize, first + end * stored.itemsize
    if low == high:
      return
    with self._blocks() as read:
      for number in range(low // BLOCK, -(-high // BLOCK)):
        at = number * BLOCK
        block = self._checked(read(number), number)
        # No value lies in two blocks: sections are aligned.
        here = block[max(low - at, 0) : high - at]
        yield np.frombuffer(here, stored).astype(dtype, copy=False)

  def verify(self) -> None:
    """Raises OSError or ValueError where a byte is not as it was written."""
    with self._blocks() as read:
      for number in range(len(self.row.crc32c)):
        self._checked(read(number), number)
      if read(len(self.row.crc32c)):
        raise ValueError(f"{self._path} is too long")

  @contextlib.contextmanager
  def _blocks(self) -> Iterator[Callable[[int], bytes]]:
    """Yields what reads a block."""
    if places.is_url(self._directory):
      yield self._object_block
      return
    with open(self._path, "rb") as file:

      def read(number: int) -> bytes:
        file.seek(number * BLOCK)
        return file.read(BLOCK)

      yield read

  def _object_block(self, number: int) -> bytes:
    name, begin = _object(self._name, number)
    # The last one is shorter, and so is its object.
    end = None if number + 1 == len(self.row.crc32c) else begin + BLOCK
    return work_files.read(
      self._directory,
      name,
      begin,
      end,
      lambda block: self._checked(block, number),
    )

  def _checked(self, block: bytes, number: int) -> bytes:
    if google_crc32c.value(block) != self.row.crc32c[number]:
      raise ValueError(f"{self._path} has other bytes in block {number}")
    return block


def find(directory: str, key: str) -> PartRow | None:
  """Returns the row of a part that is complete and undamaged, else None."""
  try:
    part = Part(directory, key)
    if not places.is_url(directory):
      part.verify()  # Objects are whole, and checked as they are read.
    return part.row
  except (OSError, ValueError):
    return None


def _read_row(directory: str, name: str) -> PartRow:
  data = work_files.read_summed(directory, name)
  return json_values.parse(PartRow, data, name)


def _object(name: str, number: int) -> tuple[str, int]:
  """Returns the object that a block of a part is in, and where it begins."""
  nth, block = divmod(number, _OBJECT_BLOCKS)
  return f"{name}/{nth:05}", block * BLOCK


class _Objects:
  """A part that becomes objects as it is written."""

  def __init__(self, directory: str, key: str):
    self._directory = directory
    self._name = f"{key}.part"
    self._written = 0
    self._buffer = bytearray()

  def write(self, data: memoryview) -> None:
    """Takes bytes; sends those of objects that are full."""
    full = _OBJECT_BLOCKS * BLOCK
    while len(data):
      room = full - len(self._buffer)
      self._buffer += data[:room]
      data = data[room:]
      if len(self._buffer) == full:
        self.flush()

  def flush(self) -> None:
    """Sends what is left."""
    if self._buffer:
      name, _ = _object(self._name, self._written * _OBJECT_BLOCKS)
      work_files.write(self._directory, name, bytes(self._buffer))
      self._buffer.clear()
      self._written += 1

  def close(self) -> None:
    """Sends nothing."""


class _CheckedFile:
  """A new file, and the crc32c of each block of it."""

  def __init__(self, file: Any):
    self.crc32c: list[int] = []
    self.size = 0
    self._crc = 0
    self._file = file

  def write(self, values: np.ndarray) -> None:
    """Writes an array's bytes."""
    if not len(values):
      return
    data = np.ascontiguousarray(values).view(np.uint8).view()
    data.flags.writeable = False
    self._file.write(data.data)
    begin = 0
    while begin < len(data):
      end = min(len(data), begin + BLOCK - self.size % BLOCK)
      self._crc = google_crc32c.extend(self._crc, data[begin:end])
      self.size += end - begin
      begin = end
      if self.size % BLOCK == 0:
        self._end_block()

  def align(self) -> None:
    """Writes zeros up to where any value may begin."""
    self.write(np.zeros(-self.size % _ALIGNMENT, np.uint8))

  def end(self) -> None:
    """Closes the complete file."""
    if self.size % BLOCK:
      self._end_block()
    self._file.flush()
    self._file.close()

  def close(self) -> None:
    """Closes it as it is."""
    self._file.close()

  def _end_block(self) -> None:
    self.crc32c.append(self._crc)
    self._crc = 0
