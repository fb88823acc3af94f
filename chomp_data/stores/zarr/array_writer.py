"""Writing one array of a store, a chunk at a time."""

import array
import dataclasses
import hashlib
import os
import pathlib

import numpy as np
import zstandard

from chomp_data.stores import checksums
from chomp_data.stores.zarr import array_layout
from chomp_data.stores.zarr import manifest as manifest_lib


class ArrayWriter:
  """Writes one array; holds one chunk of it.

  Attributes:
    files: The files that are complete, relative to the array's directory.
    last_value: The last value appended, 0 before.
  """

  def __init__(self, directory: pathlib.Path, empty: array_layout.ArrayLayout):
    """Creates the array's directory.

    Args:
      directory: Must not exist.
      empty: The layout, of size 0.
    """
    self.files: dict[str, manifest_lib.FileEntry] = {}
    self.last_value: int = 0
    self._directory = directory
    self._empty = empty
    self._buffer = np.zeros(empty.chunk, empty.numpy_dtype)
    self._filled = 0
    self._size = 0
    self._crcs = array.array("I")
    self._content = hashlib.sha256()
    self._compressor = zstandard.ZstdCompressor(level=array_layout.ZSTD_LEVEL)
    self._num_shards = 0
    self._shard: _ShardWriter | None = None
    directory.mkdir()

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
      self.last_value = int(values[-1])
      self._size += len(values)

  def finish(self) -> manifest_lib.ArrayEntry:
    """Ends the last shard; returns the manifest's entry."""
    if self._filled:
      self._buffer[self._filled :] = 0
      self._flush_chunk()
    self._finish_shard()
    shape = dataclasses.replace(self._empty, size=self._size)
    metadata = self._directory / "zarr.json"
    self.files["zarr.json"] = write_file(metadata, shape.zarr_json())
    return manifest_lib.ArrayEntry(
      shape, self._content.hexdigest(), np.asarray(self._crcs, np.uint32)
    )

  def close(self) -> None:
    """Closes the file that is being written, as it is."""
    if self._shard is not None:
      self._shard.file.close()

  def _flush_chunk(self) -> None:
    if self._shard is None:
      path = self._directory / array_layout.shard_file(self._num_shards)
      self._shard = _ShardWriter(path)
    self._content.update(self._buffer[: self._filled].data)
    self._filled = 0
    data = self._buffer.tobytes()
    self._crcs.append(checksums.crc32c(data))
    if self._empty.compression == "zstd":
      data = self._compressor.compress(data)
    self._shard.put_chunk(data)
    if len(self._shard.index) == self._empty.chunks_per_shard:
      self._finish_shard()

  def _finish_shard(self) -> None:
    if self._shard is None:
      return
    name = array_layout.shard_file(self._num_shards)
    self.files[name] = self._shard.finish(self._empty.chunks_per_shard)
    self._num_shards += 1
    self._shard = None


class _ShardWriter:
  """Writes one shard file."""

  def __init__(self, path: pathlib.Path):
    path.parent.mkdir(exist_ok=True)
    self.file = open(path, "xb")  # noqa: SIM115
    self.index: list[tuple[int, int]] = []
    self._size = 0
    self._hash = hashlib.sha256()

  def put_chunk(self, data: bytes) -> None:
    """Writes an encoded chunk and its crc32c."""
    self.index.append((self._size, len(data) + array_layout.CRC_BYTES))
    self._put(data)
    self._put(array_layout.crc_bytes(checksums.crc32c(data)))

  def finish(self, num_slots: int) -> manifest_lib.FileEntry:
    """Writes the index; the file is then on disk."""
    self._put(array_layout.encode_index(self.index, num_slots))
    self.file.flush()
    os.fsync(self.file.fileno())
    self.file.close()
    return manifest_lib.FileEntry(self._size, self._hash.hexdigest())

  def _put(self, data: bytes) -> None:
    self.file.write(data)
    self._hash.update(data)
    self._size += len(data)


def write_file(path: pathlib.Path, data: bytes) -> manifest_lib.FileEntry:
  """Writes a new file, which is then on disk."""
  with open(path, "xb") as file:
    file.write(data)
    file.flush()
    os.fsync(file.fileno())
  return manifest_lib.FileEntry(len(data), hashlib.sha256(data).hexdigest())
