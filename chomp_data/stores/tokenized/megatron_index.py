# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The `.idx` of a Megatron corpus, in both formats that are in use.

magic      written by                               header
MMIDIDX    megatron-core, datatrove, NeMo ('mmap')  version 1, dtype code
TNTIDX     Megatron-LM up to 2023 ('lazy', 'cached')  version 1, code, bytes

Both list sequences (lengths and places) and, after them, at which sequence
each document begins. Sequences of a document are its sentences where text was
split into such, and else one. MMIDIDX of several media holds a mode of each
sequence besides, which is not read. Read in megatron-core 0.19.2,
`megatron/core/datasets/indexed_dataset.py`, and in Megatron-LM a0e190ca,
`megatron/data/indexed_dataset.py`.
"""

from collections.abc import Iterator
import pathlib
import struct

import numpy as np

from chomp_data import errors
from chomp_data.storage import file_maps
from chomp_data.storage import publish

MMIDIDX = b"MMIDIDX\x00\x00"
TNTIDX = b"TNTIDX\x00\x00"

# Codes of dtypes in both formats; 6 and 7 are floats, which are no ids.
DTYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}

# Bytes of a header up to the dtype; no file has fewer.
DTYPE_BYTES = 24
_PART = 1 << 20
_RESTORE = "Restore the file from a copy, or write it again."


class Index:
  """The bytes of an `.idx` file.

  Attributes:
    dtype: Of the tokens in the `.bin`.
    num_sequences: Sequences.
    num_tokens: Tokens of all of them.
  """

  # The first dimension of each sequence; TNTIDX only.
  _dimensions: np.ndarray | None = None

  def __init__(self, path: object, data: np.ndarray):
    """Reads the header.

    Args:
      path: Of the file, for messages.
      data: uint8[N], its bytes, mapped.

    Raises:
      StoreError: If it is no such file, or not complete.
    """
    self._path = path
    self._data = data
    head = data[:64].tobytes()
    try:
      self.dtype: np.dtype = dtype_of(path, head)
      if head.startswith(MMIDIDX):
        self._read_mmididx(head)
      else:
        self._read_tntidx(head)
    except struct.error as error:
      raise _damaged(path, "hold a header", f"{len(head)} bytes") from error
    self.num_tokens: int = 0
    if self.num_sequences:
      last = int(self._places[-1]) // self._unit
      self.num_tokens = last + int(self._lengths[-1])

  def _read_mmididx(self, head: bytes) -> None:
    count, documents = struct.unpack_from("<QQ", head, 18)
    self.num_sequences: int = count
    sizes = 34, 34 + 4 * count, 34 + 12 * count
    end = sizes[2] + 8 * documents
    # One mode of a byte for each sequence may follow.
    self._check_size(end, {end, end + count})
    self._lengths = self._array(sizes[0], count, "<i4")
    self._places = self._array(sizes[1], count, "<i8")
    self._documents = self._array(sizes[2], documents, "<i8")
    self._unit = self.dtype.itemsize

  def _read_tntidx(self, head: bytes) -> None:
    width, count, sizes, documents = struct.unpack_from("<4Q", head, 24)
    if width != self.dtype.itemsize or sizes != count:
      raise self._damaged(
        f"hold {count} sequences of one dimension in {self.dtype.itemsize}"
        " bytes a token",
        f"{sizes} dimensions in {width} bytes",
      )
    self.num_sequences = count
    places = 56 + 8 * (count + 1)
    lengths = places + 8 * (count + 1)
    end = lengths + 8 * (count + documents)
    self._check_size(end, {end})
    self._dimensions = self._array(56, count, "<i8")
    self._places = self._array(places, count, "<i8")
    self._lengths = self._array(lengths, count, "<i8")
    self._documents = self._array(lengths + 8 * count, documents, "<i8")
    self._unit = 1

  def ends(self, boundaries: str) -> Iterator[np.ndarray]:
    """Yields where documents end, in tokens, in parts.

    Args:
      boundaries: 'documents', or 'sequences' to take each as a document.

    Raises:
      StoreError: If sequences do not follow each other, or documents do not
        hold all of them.
    """
    for first in range(0, self.num_sequences, _PART):
      last = min(first + _PART, self.num_sequences)
      ends = self._checked_ends(first, last)
      if boundaries == "sequences":
        yield ends
    if boundaries == "sequences":
      return
    count = len(self._documents)
    bounds = self._documents[[0, -1]].tolist() if count else []
    if bounds != [0, self.num_sequences]:
      raise self._damaged(
        f"list documents from sequence 0 to {self.num_sequences}",
        f"{count} marks {bounds}; if each sequence is a document, set"
        " `boundaries` to 'sequences'",
      )
    for first in range(0, count - 1, _PART):
      marks = np.asarray(self._documents[first : first + _PART + 1])
      if (np.diff(marks) < 0).any():
        raise self._damaged("list documents in order", "marks that fall")
      yield self._starts(marks[1:])

  def _checked_ends(self, first: int, last: int) -> np.ndarray:
    """Returns where sequences end, in tokens; raises where one is amiss."""
    starts = self._starts(np.arange(first, last + 1))
    lengths = np.asarray(self._lengths[first:last], np.int64)
    places = np.asarray(self._places[first:last], np.int64)
    wrong = (lengths < 0) | (starts[:-1] + lengths != starts[1:])
    wrong |= places % self._unit != 0
    if self._dimensions is not None:
      wrong |= self._dimensions[first:last] != np.arange(first, last)
    wrong[0] |= first == 0 and starts[0] != 0
    if wrong.any():
      at = int(wrong.argmax())
      raise self._damaged(
        "list sequences that follow each other",
        f"sequence {first + at} of {lengths[at]} tokens at {places[at]}",
      )
    return starts[1:]

  def _starts(self, sequences: np.ndarray) -> np.ndarray:
    """Returns the first token of sequences; that of the one after the last."""
    out = np.full(len(sequences), self.num_tokens, np.int64)
    within = sequences < self.num_sequences
    out[within] = self._places[sequences[within]] // self._unit
    return out

  def _check_size(self, size: int, allowed: set[int]) -> None:
    if len(self._data) not in allowed:
      raise self._damaged(
        f"be of {size} bytes for what its header counts",
        f"{len(self._data)} bytes",
      )

  def _array(self, start: int, count: int, dtype: str) -> np.ndarray:
    return np.frombuffer(self._data, dtype, count, start)

  def _damaged(self, rule: str, got: str) -> errors.StoreError:
    return _damaged(self._path, rule, got)


def opened(path: pathlib.Path) -> Index:
  """Maps a file; raises StoreError as `Index`, and where it cannot be read."""
  try:
    with publish.open_file(path):
      pass
    data = file_maps.mapped(path, np.uint8)
  except (OSError, ValueError) as error:
    raise errors.StoreError(
      f"{path} must be a readable Megatron index, got {error}. {_RESTORE}"
    ) from error
  return Index(path, data)


def dtype_of(path: object, head: bytes) -> np.dtype:
  """Returns the dtype of the tokens in the `.bin`.

  Args:
    path: Of the `.idx`, for messages.
    head: Its first `DTYPE_BYTES` and more, or all.

  Raises:
    StoreError: If it is no such file, of another version, or not of integers.
  """
  try:
    if head.startswith(MMIDIDX):
      version, code = struct.unpack_from("<QB", head, 9)
    elif head.startswith(TNTIDX):
      version, code = struct.unpack_from("<QQ", head, 8)
    else:
      raise _damaged(path, "begin with MMIDIDX or TNTIDX", repr(head[:9]))
  except struct.error as error:
    raise _damaged(path, "hold a header", f"{len(head)} bytes") from error
  if version != 1:
    raise _damaged(path, "be of version 1", f"version {version}")
  if code not in DTYPES:
    raise _damaged(
      path,
      f"have a dtype code of integers ({', '.join(map(str, DTYPES))})",
      f"code {code}",
    )
  return np.dtype(DTYPES[code])


def _damaged(path: object, rule: str, got: str) -> errors.StoreError:
  return errors.StoreError(f"{path} must {rule}, got {got}. {_RESTORE}")
