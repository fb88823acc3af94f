# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The arrays of a store: what is known of their chunks, which are checked.

Every chunk's crc32c is checked against its table at its first touch in a
process, and no value of a chunk is returned before.
"""

import os

import numpy as np

from chomp_data import errors
from chomp_data.storage import checksums
from chomp_data.storage import chunk_cache
from chomp_data.stores import chunked_reads
from chomp_data.stores.zarr import array_layout
from chomp_data.stores.zarr import chunk_tables
from chomp_data.stores.zarr import manifest as manifest_lib


class StoredArray(chunked_reads.ChunkedReads):
  """One array of a store.

  Attributes:
    directory: Where its files are.
    entry: Its layout and checksum.
    table: What is known of its chunks.
  """

  def __init__(
    self,
    directory: str | os.PathLike[str],
    entry: manifest_lib.ArrayEntry,
    table: chunk_tables.ChunkTable,
    counters: chunk_cache.Counters,
  ):
    """Reads nothing yet.

    Args:
      directory: Where the array's files are, or a URL.
      entry: Its layout and checksum.
      table: What is known of its chunks.
      counters: Counted into.
    """
    layout = entry.layout
    super().__init__(layout.size, layout.chunk, layout.numpy_dtype, counters)
    self.directory: str = os.fspath(directory)
    self.entry = entry
    self.table = table
    self._layout = layout

  def verify(self, chunk: int, data: np.ndarray) -> np.ndarray:
    """Checks a chunk's decoded values, padding included.

    Args:
      chunk: Which.
      data: [chunk elements], contiguous and read-only.

    Returns:
      The values less padding.

    Raises:
      StoreError: If they are not those that were written.
    """
    expected, crc = self.table.crc32c(chunk), checksums.crc32c(data)
    if crc != expected:
      raise self.damaged(
        chunk // self._layout.chunks_per_shard,
        f"chunk {chunk} must have crc32c {expected:08x}, got {crc:08x}",
      )
    return data[: self._layout.elements_of_chunk(chunk)]

  def shard_path(self, shard: int) -> str:
    """Returns a shard's file, or its URL."""
    return f"{self.directory}/{array_layout.shard_file(shard)}"

  def damaged(self, number: int, what: str) -> errors.StoreError:
    """Returns the error of a damaged shard file."""
    return errors.StoreError(
      f"{self.shard_path(number)}: {what}. {manifest_lib.RESTORE}"
    )
