# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Reading arrays in buckets, and compressed ones: a cache of decoded chunks."""

import threading

import numpy as np

from chomp_data.storage import checksums
from chomp_data.storage import chunk_cache
from chomp_data.storage import disk_cache
from chomp_data.storage import storage
from chomp_data.stores import object_reads
from chomp_data.stores.zarr import array_layout
from chomp_data.stores.zarr import chunk_tables
from chomp_data.stores.zarr import manifest as manifest_lib
from chomp_data.stores.zarr import stored_array


class ChunkedArray(stored_array.StoredArray, object_reads.ObjectReads):
  """An array of a store, with at most `cache_bytes` of it in memory."""

  def __init__(
    self,
    files: storage.Storage,
    name: str,
    entry: manifest_lib.ArrayEntry,
    table: chunk_tables.ChunkTable,
    counters: chunk_cache.Counters,
    cache_bytes: int = 0,
    disk: tuple[disk_cache.DiskCache, str] | None = None,
  ):
    """Reads nothing yet.

    Args:
      files: The store's.
      name: The array's.
      entry: As in `StoredArray`, like the following two.
      table: Likewise.
      counters: Likewise.
      cache_bytes: Of its chunks in memory.
      disk: Where chunks are kept on a local disk and the store's hash, or None.
    """
    super().__init__(files.url(name), entry, table, counters)
    self._name = name
    self.read_objects(
      files,
      manifest_lib.RESTORE,
      chunks_per_object=self._layout.chunks_per_shard,
      cache_bytes=cache_bytes,
      disk=None if disk is None else (*disk, name),
      has_crc=True,
    )
    self._table_lock = threading.Lock()

  def _object(self, number: int) -> object_reads.VersionedObject:
    return f"{self._name}/{array_layout.shard_file(number)}", None

  def _look_up(self, number: int) -> np.ndarray:
    """Returns offset and size of a shard's chunks, crc32c included.

    In a bucket from the array's table, without a request; where that has no
    sizes, and on a local disk, from the shard's index.
    """
    chunks = self._layout.chunks_of_shard(number)
    # Tables are read at first use, by one thread.
    with self._table_lock:
      self.table.crc32c(chunks.start)
      sizes = self.table.stored_bytes(chunks)
    if self._files.is_remote and sizes is not None:
      stored = np.asarray(sizes, np.int64) + array_layout.CRC_BYTES
      return np.stack([np.cumsum(stored) - stored, stored], axis=1)
    return self._read_index(
      number,
      (-self._layout.index_bytes, None),
      lambda data: array_layout.decode_index(data, len(chunks)),
      "must have a valid index",
    )

  def _decode(self, chunk: int, stored: bytes) -> np.ndarray:
    """Returns a chunk's values less padding, read-only."""
    import zstandard  # Stores that are mapped do without.

    size = self._layout.chunk_bytes
    shard = chunk // self._layout.chunks_per_shard
    data = stored[: -array_layout.CRC_BYTES]
    expected = stored[-array_layout.CRC_BYTES :]
    crc = array_layout.crc_bytes(checksums.crc32c(data))
    if crc != expected:
      raise self.damaged(
        shard,
        f"chunk {chunk} must be followed by crc32c {crc.hex()}, got"
        f" {expected.hex()}",
      )
    if self._layout.compression == "zstd":
      try:
        # Of its own: one may not be used by two threads.
        data = zstandard.ZstdDecompressor().decompress(data, size)
      except zstandard.ZstdError as error:
        raise self.damaged(
          shard, f"chunk {chunk} must be readable, got {error}"
        ) from error
    if len(data) != size:
      raise self.damaged(
        shard, f"chunk {chunk} must be of {size} bytes, got {len(data)}"
      )
    return self.verify(chunk, np.frombuffer(data, self._layout.numpy_dtype))
