# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Reading uncompressed arrays on local disks through memory maps.

An uncompressed chunk is plain little-endian values, so a span is one slice of
a map. The maps of a bounded number of shards are kept open, because a process
may have some 65,000; which chunks were checked is remembered for the process.
"""

from collections.abc import Iterator
import os
import threading

import numpy as np

from chomp_data import errors
from chomp_data.index import ragged
from chomp_data.storage import chunk_cache
from chomp_data.storage import file_maps
from chomp_data.stores import span_reads
from chomp_data.stores.zarr import array_layout
from chomp_data.stores.zarr import chunk_tables
from chomp_data.stores.zarr import manifest as manifest_lib
from chomp_data.stores.zarr import stored_array

# A shard of 64 Mi tokens of two bytes is 128 MiB: 32 GiB of maps.
MAX_OPEN_SHARDS = 256

# A chunk's first touch reads all of it. Where the system was asked for 128
# chunks of 512 KiB at once that were not in memory, they took 0.1 s instead of
# 0.3 s to read (measured on a virtual disk; by itself it reads 128 KiB ahead).
READ_AHEAD_BYTES = 256 * 2**20


class MappedArray(stored_array.StoredArray):
  """An uncompressed array of local files."""

  def __init__(
    self,
    directory: str | os.PathLike[str],
    entry: manifest_lib.ArrayEntry,
    table: chunk_tables.ChunkTable,
    counters: chunk_cache.Counters,
    max_open_shards: int = MAX_OPEN_SHARDS,
  ):
    """As `StoredArray`; `max_open_shards` bounds maps."""
    super().__init__(directory, entry, table, counters)
    self.max_open_shards = max_open_shards
    self._verified = np.zeros(self._layout.num_chunks, bool)
    self._advised = np.zeros(self._layout.num_chunks, bool)
    # Bytes from one place of a shard to the next: values of 8 bytes begin at
    # multiples of 4, for chunks are followed by a checksum of 4 bytes.
    self._place_bytes = min(self._dtype.itemsize, array_layout.CRC_BYTES)
    # Places from one value of a chunk to the next.
    self._step = self._dtype.itemsize // self._place_bytes
    # Where a chunk begins in its shard, in places; set as shards are opened.
    self._base = np.zeros(self._layout.num_chunks, np.int64)
    self._shards: dict[int, np.ndarray] = {}
    # Checked chunks of open shards in memory; 0 of others.
    self._address = np.zeros(self._layout.num_chunks, np.int64)
    self._lock = threading.RLock()

  def chunks(self, chunks: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    for chunk in chunks.tolist():
      yield chunk, self._view(chunk)

  def copy_spans(
    self,
    starts: np.ndarray,
    lengths: np.ndarray,
    out: np.ndarray,
    positions: np.ndarray,
  ) -> None:
    layout = self._layout
    if self._step > 1:  # No tokens: they are copied chunk by chunk.
      super().copy_spans(starts, lengths, out, positions)
      return
    with self._lock:  # So that no map is closed meanwhile.
      num_pieces = span_reads.copy_compiled(
        self._address, self._dtype.itemsize, layout.chunk, layout.size,
        starts, lengths, out, positions,
      )  # fmt: skip
    if num_pieces is not None:
      self._count(len(starts), num_pieces)
      return
    span_reads.check_spans(starts, lengths, layout.size, positions, len(out))
    chunk, first, length, position = self._split(starts, lengths, positions)
    self._count(len(starts), len(chunk))
    self._verify(chunk)
    shard = chunk // layout.chunks_per_shard
    pieces = shard, self._base[chunk] + first, length, position
    span_reads.copy_pieces(self._open_shards, pieces, out)

  def gather(self, positions: np.ndarray) -> np.ndarray:
    if not len(positions):
      return np.empty(0, self._layout.numpy_dtype)
    low, high = int(positions.min()), int(positions.max())
    if low < 0 or high >= self._layout.size:
      span_reads.check_spans(
        positions, np.ones_like(positions), self._layout.size
      )
    self._count(len(positions), len(positions))
    size = self._layout.chunk
    chunk = positions // size
    first = positions - chunk * size
    self._verify(chunk)
    shard = chunk // self._layout.chunks_per_shard
    at = self._base[chunk] + self._step * first
    out = np.empty(len(positions), self._dtype)
    for number, here in ragged.by_value(shard):
      out[here] = self._open_shard(number)[at[here]]
    return out

  def set_cache_bytes(self, cache_bytes: int) -> None:
    # Maps are the system's cache.
    del cache_bytes

  def _prefetch(self, chunks: np.ndarray) -> bool:
    new = chunks[~(self._verified[chunks] | self._advised[chunks])]
    if not len(new):
      return False
    most = max(1, READ_AHEAD_BYTES // self._layout.chunk_bytes)
    for chunk in list(dict.fromkeys(new.tolist()))[:most]:
      with self._lock:
        self._advise(chunk)
    return False

  def _advise(self, chunk: int) -> None:
    """Asks the system to read a chunk soon."""
    shard = self._open_shard(chunk // self._layout.chunks_per_shard)
    file_maps.read_soon(shard[self._places(chunk)])
    self._advised[chunk] = True

  def _verify(self, chunks: np.ndarray) -> None:
    """Maps int64[N] chunks, and checks those that were not yet."""
    is_new = self._address[chunks] == 0
    if is_new.any():
      for chunk in np.unique(chunks[is_new]).tolist():
        self._view(chunk)

  def _open_shards(
    self, shards: np.ndarray
  ) -> Iterator[tuple[int, np.ndarray]]:
    for shard in shards.tolist():
      yield shard, self._open_shard(shard)

  def _view(self, chunk: int) -> np.ndarray:
    """Returns a chunk's values, checked the first time."""
    with self._lock:
      shard = chunk // self._layout.chunks_per_shard
      shard_values = self._open_shard(shard)
      places = self._places(chunk)
      data = shard_values[places]
      if self._verified[chunk]:
        values = data[: self._layout.elements_of_chunk(chunk)]
      else:
        after = array_layout.CRC_BYTES // self._place_bytes
        stored = shard_values[places.stop : places.stop + after].tobytes()
        stored = stored[: array_layout.CRC_BYTES]
        values = self.verify(chunk, data)
        self.counters.chunks_fetched += 1
        self.counters.bytes_fetched += data.nbytes
        expected = array_layout.crc_bytes(self.table.crc32c(chunk))
        if stored != expected:
          raise self.damaged(
            shard,
            f"chunk {chunk} must be followed by crc32c {expected.hex()}, got"
            f" {stored.hex()}",
          )
        self._verified[chunk] = True
      self._address[chunk] = data.__array_interface__["data"][0]
      return values

  def _places(self, chunk: int) -> slice:
    """Returns where the values of a chunk are in its shard, which is open."""
    first = int(self._base[chunk])
    return slice(first, first + self._layout.chunk * self._step, self._step)

  def _open_shard(self, shard: int) -> np.ndarray:
    """Returns the values that begin at each place of a shard.

    It is mapped, and its index checked, at first.
    """
    values = self._shards.get(shard)
    if values is not None:
      return values
    with self._lock:
      if shard in self._shards:
        # Mapped again it would end the map that addresses are of.
        return self._shards[shard]
      chunks = self._layout.chunks_of_shard(shard)
      stride = self._layout.chunk_bytes + array_layout.CRC_BYTES
      expected = len(chunks) * stride + self._layout.index_bytes
      path = self.shard_path(shard)
      try:
        data = file_maps.mapped(path, np.uint8)
      except OSError as error:
        errors.check_open_files(error)
        raise self.damaged(shard, f"must be readable, got {error}") from error
      if len(data) != expected:
        raise self.damaged(
          shard, f"must be of {expected} bytes, got {len(data)}"
        )
      try:
        index = array_layout.decode_index(
          data[len(chunks) * stride :].tobytes(),
          len(chunks),
          len(chunks) * stride,
        )
      except ValueError as error:
        raise self.damaged(
          shard, f"must have a valid index, got {error}"
        ) from error
      if np.any(index[:, 1] != stride):
        raise self.damaged(shard, f"chunks must be of {stride} bytes")
      self._base[chunks.start : chunks.stop] = index[:, 0] // self._place_bytes
      # Values of 8 bytes overlap, as one may begin at each place.
      num_places = (len(data) - self._dtype.itemsize) // self._place_bytes + 1
      values = np.ndarray(
        num_places, self._dtype, data, 0, (self._place_bytes,)
      )
      while len(self._shards) >= self.max_open_shards:
        self._close_shard(next(iter(self._shards)))
      self._shards[shard] = values
      return values

  def _close_shard(self, shard: int) -> None:
    # Views that another thread still holds keep the map alive.
    chunks = self._layout.chunks_of_shard(shard)
    self._address[chunks.start : chunks.stop] = 0
    del self._shards[shard]
