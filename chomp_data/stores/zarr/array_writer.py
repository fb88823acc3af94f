# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Writing one array of a store, a chunk at a time."""

import array
import dataclasses
import hashlib
import os
import pathlib
from typing import Any
from typing import BinaryIO

import numpy as np
import zstandard

from chomp_data.stores import checksums
from chomp_data.stores import publish
from chomp_data.stores.zarr import array_layout
from chomp_data.stores.zarr import manifest as manifest_lib
from chomp_data.stores.zarr import tree_hash


@dataclasses.dataclass(frozen=True)
class Finished:
  """An array that is on disk, but for its metadata.

  Attributes:
    layout: Its layout.
    sha256: See `manifest.ArrayEntry`.
    num_bytes: The same.
    crc32c: uint32[num_chunks], of its decoded chunks.
    stored_bytes: uint64[num_chunks], of each as it is stored.
  """

  layout: array_layout.ArrayLayout
  sha256: str
  num_bytes: int
  crc32c: np.ndarray
  stored_bytes: np.ndarray


class ArrayWriter:
  """Writes one array; holds one chunk of it.

  Attributes:
    last_value: The last value appended, 0 before.
    size: Values appended.
  """

  def __init__(self, directory: pathlib.Path, empty: array_layout.ArrayLayout):
    """Creates the array's directory.

    Args:
      directory: Must not exist.
      empty: The layout, of size 0.
    """
    self.last_value: int = 0
    self.size: int = 0
    self._directory = directory
    self._empty = empty
    self._crcs = array.array("I")
    self._stored = array.array("Q")
    self._num_bytes = 0
    self._content = tree_hash.TreeHash()
    self._shard: ShardWriter | None = None
    directory.mkdir()

  def append(self, values: np.ndarray) -> None:
    """Appends values that fit the array's dtype."""
    if not len(values):
      return
    self.last_value = values[-1].item()
    values = np.ascontiguousarray(values, self._empty.numpy_dtype)
    self._content.update(values.data)
    while len(values):
      room = self._empty.shard - self.size % self._empty.shard
      if self._shard is None:
        number = self.size // self._empty.shard
        path = self._directory / array_layout.shard_file(number)
        self._shard = ShardWriter(path, self._empty)
      here, values = values[:room], values[room:]
      self._shard.append(here)
      self.size += len(here)
      if len(here) == room:
        self._finish_shard()

  def finish(self) -> Finished:
    """Ends the last shard."""
    self._finish_shard()
    return Finished(
      dataclasses.replace(self._empty, size=self.size),
      self._content.hexdigest(),
      self._num_bytes,
      np.asarray(self._crcs, np.uint32),
      np.asarray(self._stored, np.uint64),
    )

  def close(self) -> None:
    """Closes the file that is being written, as it is."""
    if self._shard is not None:
      self._shard.close()

  def _finish_shard(self) -> None:
    if self._shard is None:
      return
    self._num_bytes += self._shard.finish()
    self._crcs.extend(self._shard.crc32c)
    self._stored.extend(self._shard.stored_bytes)
    self._shard = None


class ShardWriter:
  """Writes one shard file; holds one chunk of it.

  Attributes:
    crc32c: Of each chunk so far, decoded and with its padding.
    stored_bytes: Bytes of each as it is stored, without its own crc32c.
  """

  def __init__(
    self, file: pathlib.Path | BinaryIO, layout: array_layout.ArrayLayout
  ):
    """Creates the file.

    Args:
      file: Must not exist; or an empty one that is open, which is left so.
      layout: Of the array; its size does not matter.
    """
    self.crc32c: list[int] = []
    self.stored_bytes: list[int] = []
    self._layout = layout
    self._buffer = np.zeros(layout.chunk, layout.numpy_dtype)
    self._filled = 0
    self._compressor: zstandard.ZstdCompressor | None = None
    if layout.compression == "zstd":
      self._compressor = zstandard.ZstdCompressor(level=array_layout.ZSTD_LEVEL)
    self._owned = isinstance(file, pathlib.Path)
    if isinstance(file, pathlib.Path):
      file.parent.mkdir(exist_ok=True)
      file = publish.new_file(file)
    self._file: BinaryIO = file

  def append(self, values: np.ndarray) -> None:
    """Appends values of the array's dtype, as many as there is room for."""
    chunk = self._layout.chunk
    while len(values):
      if not self._filled and len(values) >= chunk:
        self._put_chunk(values[:chunk])
        values = values[chunk:]
        continue
      count = min(chunk - self._filled, len(values))
      self._buffer[self._filled : self._filled + count] = values[:count]
      self._filled += count
      values = values[count:]
      if self._filled == chunk:
        self._filled = 0
        self._put_chunk(self._buffer)

  def finish(self) -> int:
    """Writes what is left; a new file is then on disk. Returns its bytes."""
    if self._filled:
      self._buffer[self._filled :] = 0
      self._put_chunk(self._buffer, self._filled)
      self._filled = 0
    slots = self._layout.chunks_per_shard
    self._file.write(array_layout.index_of(self.stored_bytes, slots))
    self._file.flush()
    size = self._file.tell()
    if self._owned:
      os.fsync(self._file.fileno())
      self._file.close()
    return size

  def close(self) -> None:
    """Closes a new file as it is."""
    if self._owned:
      self._file.close()

  def _put_chunk(self, values: np.ndarray, used: int | None = None) -> None:
    """Writes a chunk, of which all but the first `used` values are padding."""
    data: Any = values.view()
    data.flags.writeable = False
    crc = checksums.crc32c(data)
    self.crc32c.append(crc)
    if self._compressor is not None:
      data = self._compressor.compress(data)
      crc = checksums.crc32c(data)
    self.stored_bytes.append(memoryview(data).nbytes)
    if self._compressor is None and used is not None:
      # A hole: zeros that take no room on disk, megabytes of a small store.
      self._file.write(data[:used])
      self._file.seek(data[used:].nbytes, os.SEEK_CUR)
    else:
      self._file.write(data)
    self._file.write(array_layout.crc_bytes(crc))


def write_file(path: pathlib.Path, data: bytes) -> manifest_lib.FileEntry:
  """Writes a new file, which is then on disk."""
  path.parent.mkdir(exist_ok=True)
  with publish.new_file(path) as file:
    file.write(data)
    file.flush()
    os.fsync(file.fileno())
  return manifest_lib.FileEntry(len(data), hashlib.sha256(data).hexdigest())
