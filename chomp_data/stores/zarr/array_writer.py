"""Writing one array of a store, a chunk at a time."""

import array
import dataclasses
import hashlib
import os
import pathlib
from typing import Any

import numpy as np
import zstandard

from chomp_data.stores import checksums
from chomp_data.stores.zarr import array_layout
from chomp_data.stores.zarr import chunk_tables
from chomp_data.stores.zarr import manifest as manifest_lib
from chomp_data.stores.zarr import tree_hash


class ArrayWriter:
  """Writes one array; holds one chunk of it.

  Attributes:
    last_value: The last value appended, 0 before.
    size: Values appended.
    tables: The files of its chunks by their path in the store, once finished.
  """

  def __init__(
    self, staging: pathlib.Path, name: str, empty: array_layout.ArrayLayout
  ):
    """Creates the array's directory.

    Args:
      staging: The store's directory.
      name: Of the array; it must not be there.
      empty: The layout, of size 0.
    """
    self.last_value: int = 0
    self.tables: dict[str, bytes] = {}
    self._name = name
    self._directory = staging / name
    self._empty = empty
    self._buffer = np.zeros(empty.chunk, empty.numpy_dtype)
    self._filled = 0
    self.size: int = 0
    self._crcs = array.array("I")
    self._stored = array.array("Q")
    self._num_bytes = 0
    self._content = tree_hash.TreeHash()
    self._num_shards = 0
    self._shard: ShardWriter | None = None
    self._directory.mkdir()

  def append(self, values: np.ndarray) -> None:
    """Appends values that fit the array's dtype."""
    done = 0
    while done < len(values):
      count = min(len(self._buffer) - self._filled, len(values) - done)
      end = self._filled + count
      self._buffer[self._filled : end] = values[done : done + count]
      self._filled = end
      done += count
      if end == len(self._buffer):
        self._flush_chunk()
    if len(values):
      self.last_value = values[-1].item()
      self.size += len(values)

  def finish(self) -> manifest_lib.ArrayEntry:
    """Ends the last shard; returns the manifest's entry."""
    if self._filled:
      self._flush_chunk()
    self._finish_shard()
    shape = dataclasses.replace(self._empty, size=self.size)
    write_file(self._directory / "zarr.json", shape.zarr_json())
    self.tables = chunk_tables.encode(
      self._name,
      shape,
      np.asarray(self._crcs, np.uint32),
      np.asarray(self._stored, np.uint64),
    )
    return manifest_lib.ArrayEntry(
      shape, self._content.hexdigest(), self._num_bytes
    )

  def close(self) -> None:
    """Closes the file that is being written, as it is."""
    if self._shard is not None:
      self._shard.close()

  def _flush_chunk(self) -> None:
    if self._shard is None:
      path = self._directory / array_layout.shard_file(self._num_shards)
      self._shard = ShardWriter(path, self._empty)
    values = self._buffer[: self._filled]
    self._content.update(values.data)
    self._shard.put_chunk(values)
    self._filled = 0
    if len(self._shard.crc32c) == self._empty.chunks_per_shard:
      self._finish_shard()

  def _finish_shard(self) -> None:
    if self._shard is None:
      return
    self._num_bytes += self._shard.finish()
    self._crcs.extend(self._shard.crc32c)
    self._stored.extend(self._shard.stored_bytes)
    self._num_shards += 1
    self._shard = None


class ShardWriter:
  """Writes one shard file.

  Attributes:
    crc32c: Of each chunk so far, decoded and with its padding.
    stored_bytes: Bytes of each as it is stored, without its own crc32c.
  """

  def __init__(self, path: pathlib.Path, layout: array_layout.ArrayLayout):
    """Creates the file.

    Args:
      path: Must not exist.
      layout: Of the array; its size does not matter.
    """
    self.crc32c: list[int] = []
    self.stored_bytes: list[int] = []
    self._layout = layout
    self._compressor: zstandard.ZstdCompressor | None = None
    if layout.compression == "zstd":
      self._compressor = zstandard.ZstdCompressor(level=array_layout.ZSTD_LEVEL)
    path.parent.mkdir(exist_ok=True)
    self._file = open(path, "xb")  # noqa: SIM115

  def put_chunk(self, values: np.ndarray) -> None:
    """Writes a chunk; one that is not full is padded with zeros.

    Args:
      values: [chunk elements] or fewer, contiguous, as they are stored.
    """
    if len(values) < self._layout.chunk:
      padded = np.zeros(self._layout.chunk, self._layout.numpy_dtype)
      padded[: len(values)] = values
      values = padded
    data: Any = values.view()
    data.flags.writeable = False
    crc = checksums.crc32c(data)
    self.crc32c.append(crc)
    if self._compressor is not None:
      data = self._compressor.compress(data)
      crc = checksums.crc32c(data)
    self.stored_bytes.append(memoryview(data).nbytes)
    self._file.write(data)
    self._file.write(array_layout.crc_bytes(crc))

  def finish(self) -> int:
    """Writes the index; the file is then on disk. Returns its bytes."""
    slots = self._layout.chunks_per_shard
    self._file.write(array_layout.index_of(self.stored_bytes, slots))
    self._file.flush()
    os.fsync(self._file.fileno())
    size = self._file.tell()
    self._file.close()
    return size

  def close(self) -> None:
    """Closes the file as it is."""
    self._file.close()


def write_file(path: pathlib.Path, data: bytes) -> manifest_lib.FileEntry:
  """Writes a new file, which is then on disk."""
  path.parent.mkdir(exist_ok=True)
  with open(path, "xb") as file:
    file.write(data)
    file.flush()
    os.fsync(file.fileno())
  return manifest_lib.FileEntry(len(data), hashlib.sha256(data).hexdigest())
