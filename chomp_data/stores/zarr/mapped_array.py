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
    # Values of 8 bytes are only 4-byte aligned: NumPy copies their words five
    # times as fast as such values (0.3 ms of 65,536 instead of 1.6).
    self._words_per_value = self._layout.numpy_dtype.itemsize // 4 or 1
    self._word = np.dtype(
      "<u4" if self._words_per_value == 2 else self._layout.numpy_dtype
    )
    # Where a chunk begins in its shard, in words; set as shards are opened.
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
    if self._words_per_value == 1:
      with self._lock:  # So that no map is closed meanwhile.
        num_pieces = span_reads.copy_compiled(
          self._address, self._word.itemsize, layout.chunk, layout.size,
          starts, lengths, out, positions,
        )  # fmt: skip
      if num_pieces is not None:
        self._count(len(starts), num_pieces)
        return
    elif out.itemsize != self._dtype.itemsize or not out.flags.c_contiguous:
      values = np.empty(int(lengths.sum()), self._dtype)
      at = np.cumsum(lengths) - lengths
      self.copy_spans(starts, lengths, values, at)
      out[ragged.ranges(positions, lengths)] = values
      return
    else:
      out = out.view(self._word)
    words = self._words_per_value
    span_reads.check_spans(
      starts, lengths, layout.size, positions, len(out) // words
    )
    chunk, first, length, position = self._split(starts, lengths, positions)
    self._count(len(starts), len(chunk))
    self._verify(chunk)
    pieces = (
      chunk // layout.chunks_per_shard,
      self._base[chunk] + words * first,
      words * length,
      words * position,
    )
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
    at = self._base[chunk] + self._words_per_value * first
    out = np.empty(len(positions), self._dtype)
    for number, here in ragged.by_value(shard):
      values = self._open_shard(number)
      if self._words_per_value == 2:
        # One begins at each word; they overlap.
        values = np.ndarray(len(values) - 1, self._dtype, values, 0, (4,))
      out[here] = values[at[here]]
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
    shard = chunk // self._layout.chunks_per_shard
    self._open_shard(shard)
    first = int(self._base[chunk])
    words = self._layout.chunk_bytes // self._word.itemsize
    file_maps.read_soon(self._shards[shard][first : first + words])
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
      words = self._open_shard(shard)
      first = int(self._base[chunk])
      end = first + self._layout.chunk * self._words_per_value
      data = words[first:end].view(self._layout.numpy_dtype)
      if self._verified[chunk]:
        values = data[: self._layout.elements_of_chunk(chunk)]
      else:
        stored = words[
          end : end + array_layout.CRC_BYTES // self._word.itemsize
        ]
        values = self.verify(chunk, data)
        self.counters.chunks_fetched += 1
        self.counters.bytes_fetched += data.nbytes
        expected = array_layout.crc_bytes(self.table.crc32c(chunk))
        if stored.tobytes() != expected:
          raise self.damaged(
            shard,
            f"chunk {chunk} must be followed by crc32c {expected.hex()}, got"
            f" {stored.tobytes().hex()}",
          )
        self._verified[chunk] = True
      self._address[chunk] = data.__array_interface__["data"][0]
      return values

  def _open_shard(self, shard: int) -> np.ndarray:
    """Returns a shard's words; maps it and checks its index at first."""
    words = self._shards.get(shard)
    if words is not None:
      return words
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
      self._base[chunks.start : chunks.stop] = (
        index[:, 0] // self._word.itemsize
      )
      whole = len(data) // self._word.itemsize * self._word.itemsize
      words = data[:whole].view(self._word)
      while len(self._shards) >= self.max_open_shards:
        self._close_shard(next(iter(self._shards)))
      self._shards[shard] = words
      return words

  def _close_shard(self, shard: int) -> None:
    # Views that another thread still holds keep the map alive.
    chunks = self._layout.chunks_of_shard(shard)
    self._address[chunks.start : chunks.stop] = 0
    del self._shards[shard]
