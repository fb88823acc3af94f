# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Writing the shard files of a store's arrays, a chunk at a time."""

import array
from collections.abc import Iterator
import contextlib
import dataclasses
import io
import os
import pathlib
import secrets
from typing import Any
from typing import BinaryIO

import numpy as np
import zstandard

from chomp_data import errors
from chomp_data.storage import checksums
from chomp_data.storage import opening
from chomp_data.storage import publish
from chomp_data.storage import storage
from chomp_data.stores.zarr import array_layout
from chomp_data.stores.zarr import manifest as manifest_lib
from chomp_data.stores.zarr import tree_hash


class ArrayWriter:
  """Writes one array; holds one chunk of it."""

  def __init__(self, directory: pathlib.Path, empty: array_layout.ArrayLayout):
    """Creates the array's directory.

    Args:
      directory: Must not exist.
      empty: The layout, of size 0.
    """
    self._directory = directory
    self._empty = empty
    self._size = 0
    self._crcs = array.array("I")
    self._stored = array.array("Q")
    self._num_bytes = 0
    self._content = tree_hash.TreeHash()
    self._file: BinaryIO | None = None
    self._shard: ShardWriter | None = None
    (directory / array_layout.shard_file(0)).parent.mkdir(parents=True)

  def append(self, values: np.ndarray) -> None:
    """Appends values of the array's dtype, contiguous."""
    self._content.update(values.data)
    while len(values):
      capacity = self._empty.shard - self._size % self._empty.shard
      if self._shard is None:
        number = self._size // self._empty.shard
        path = self._directory / array_layout.shard_file(number)
        self._file = publish.new_file(path)
        self._shard = ShardWriter(self._file, self._empty)
      in_shard, values = values[:capacity], values[capacity:]
      self._shard.append(in_shard)
      self._size += len(in_shard)
      if len(in_shard) == capacity:
        self._finish_shard()

  def finish(self) -> manifest_lib.ArrayEntry:
    """Ends the last shard."""
    self._finish_shard()
    return manifest_lib.ArrayEntry(
      dataclasses.replace(self._empty, size=self._size),
      self._content.hexdigest(),
      self._num_bytes,
      np.asarray(self._crcs, np.uint32),
      np.asarray(self._stored, np.uint64),
    )

  def close(self) -> None:
    """Closes the file that is being written, as it is."""
    if self._file is not None:
      self._file.close()

  def _finish_shard(self) -> None:
    if self._shard is not None:
      self._num_bytes += self._shard.finish()
      self._crcs.extend(self._shard.crc32c)
      self._stored.extend(self._shard.stored_bytes)
      self._shard = None
      self.close()


class ShardWriter:
  """Writes one shard file; holds one chunk of it.

  Attributes:
    crc32c: Of each chunk so far, decoded and with its padding.
    stored_bytes: Bytes of each as it is stored, without its own crc32c.
  """

  def __init__(self, file: BinaryIO, layout: array_layout.ArrayLayout):
    """Writes nothing yet.

    Args:
      file: An empty file, which is left open.
      layout: The layout of the array; its size does not matter.
    """
    self.crc32c: list[int] = []
    self.stored_bytes: list[int] = []
    self._layout = layout
    self._buffer = np.zeros(layout.chunk, layout.numpy_dtype)
    self._filled = 0
    self._compressor: zstandard.ZstdCompressor | None = None
    if layout.compression == "zstd":
      self._compressor = zstandard.ZstdCompressor(level=array_layout.ZSTD_LEVEL)
    self._file = file

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
    """Writes what is left; returns the bytes of the file."""
    if self._filled:
      self._buffer[self._filled :] = 0
      self._put_chunk(self._buffer, self._filled)
      self._filled = 0
    slots = self._layout.chunks_per_shard
    self._file.write(array_layout.index_of(self.stored_bytes, slots))
    return self._file.tell()

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


@contextlib.contextmanager
def new_shard(shards: str, name: str, work: str) -> Iterator[BinaryIO]:
  """Yields a file that is a file of a store once it is complete.

  Args:
    shards: The directory or URL of the store; one in a bucket is claimed, by
      whatever process.
    name: The file, relative to the store.
    work: A directory or URL: of a directory the file is here until it is
      complete, not in the store, where one that a killed worker leaves would
      stay. In a bucket it is held in memory.

  Raises:
    StoreError: If an object with other bytes is there.
  """
  objects = opening.open_storage(shards)
  if objects.directory is not None:
    staged = pathlib.Path(work, f"{secrets.token_hex(8)}.shard")
    with publish.staged_file(pathlib.Path(shards, name), staged) as file:
      yield file
    return
  with io.BytesIO() as file:
    yield file
    if not put_same(objects, name, file.getvalue()):
      raise other_object(objects, name)


def put_same(objects: storage.Storage, name: str, data: bytes) -> bool:
  """Writes an object; returns False if one with other bytes is there."""
  # What a run that was killed has sent is as it should be.
  return objects.put(name, data, create=True) or objects.holds(name, data)


def other_object(objects: storage.Storage, name: str) -> errors.StoreError:
  """Returns the error for an object with other bytes."""
  return errors.StoreError(
    f"{objects.url(name)} must not exist, got an object of another store."
    " Choose another output, or replace what is there with --overwrite."
  )
