# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Reading uncompressed arrays on local disks through memory maps.

An uncompressed chunk is plain little-endian values, so a span is one slice of
a map. The maps of a bounded number of shards are kept open, because each holds
a file descriptor; which chunks were checked is remembered for the process.
"""

from collections.abc import Iterator
import os
import threading

import numpy as np

from chomp_data import errors
from chomp_data.index import ragged
from chomp_data.kernels import compiled
from chomp_data.storage import file_maps
from chomp_data.stores import span_reads
from chomp_data.stores.zarr import array_layout
from chomp_data.stores.zarr import chunk_tables
from chomp_data.stores.zarr import manifest as manifest_lib
from chomp_data.stores.zarr import stored_array

# A shard of 64 Mi tokens of two bytes is 128 MiB: 32 GiB of maps.
MAX_OPEN_SHARDS = 256

# Slices cost about 0.45 us a span, a gather 35 us and 5 ns a token (measured
# on x86-64): below this mean length, and from this many spans on, it wins.
GATHER_MEAN_LENGTH = 64
GATHER_MIN_SPANS = 128

# Seconds of a span.
_SLICE_S = 0.5e-6

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
    counters: span_reads.Counters,
    check: stored_array.ChunkCheck | None = None,
    max_open_shards: int = MAX_OPEN_SHARDS,
  ):
    """As `StoredArray`; `max_open_shards` bounds maps."""
    super().__init__(directory, entry, table, counters, check)
    self._max_open = max_open_shards
    self._verified = np.zeros(self._layout.num_chunks, bool)
    self._advised = np.zeros(self._layout.num_chunks, bool)
    # Values of 8 bytes are only 4-byte aligned, so they are gathered in words.
    self._words_per_value = self._layout.numpy_dtype.itemsize // 4 or 1
    self._word = np.dtype(
      "<u4" if self._words_per_value == 2 else self._layout.numpy_dtype
    )
    # Where a chunk begins in its shard, in words; set as shards are opened.
    self._base = np.zeros(self._layout.num_chunks, np.int64)
    self._shards: dict[int, np.ndarray] = {}
    # Checked chunks of open shards; the hot path looks only here. Compiled, at
    # where they lie in memory.
    self._views: dict[int, np.ndarray] = {}
    self._address = np.zeros(self._layout.num_chunks, np.int64)
    self._lock = threading.RLock()

  def chunks(self, chunks: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    for chunk in chunks.tolist():
      view = self._views.get(chunk)
      yield chunk, self._view(chunk) if view is None else view

  def copy_spans(
    self,
    starts: np.ndarray,
    lengths: np.ndarray,
    out: np.ndarray,
    positions: np.ndarray,
  ) -> None:
    count = len(starts)
    loop = compiled.find("copy_spans", _SLICE_S * count)
    if loop is not None and self._copy_compiled(
      loop, starts, lengths, out, positions
    ):
      return
    if (
      count >= GATHER_MIN_SPANS
      and self._words_per_value == 1
      and int(lengths.sum()) < GATHER_MEAN_LENGTH * count
    ):
      span_reads.check_spans(
        starts, lengths, self._layout.size, positions, len(out)
      )
      self._gather_spans(starts, lengths, out, positions)
      return
    size, views = self._layout.chunk, self._views
    span_reads.check_spans(
      starts, lengths, self._layout.size, positions, len(out)
    )
    chunk = starts // size
    first = starts - chunk * size
    requests = int(np.count_nonzero(lengths))
    for index, begin, length, position in zip(
      chunk.tolist(),
      first.tolist(),
      lengths.tolist(),
      positions.tolist(),
      strict=True,
    ):
      end = begin + length
      view = views.get(index)
      if end <= size and view is not None:
        out[position : position + length] = view[begin:end]
        continue
      # Unchecked chunks, and spans of several chunks.
      while begin < end:
        view = views.get(index)
        if view is None:
          view = self._view(index)
        part = min(end, size) - begin
        out[position : position + part] = view[begin : begin + part]
        position += part
        index, begin, end = index + 1, 0, end - size
        requests += end > 0
    self._count(count, requests)

  def _copy_compiled(self, loop, starts, lengths, out, positions) -> bool:
    """Copies what lies in chunks that were checked; returns whether all did."""
    if self._words_per_value > 1 or out.dtype != np.int32:
      return False
    # So that no map is closed meanwhile.
    with self._lock:
      parts = loop(
        self._address,
        self._word.itemsize,
        self._layout.chunk,
        self._layout.size,
        compiled.flat(starts, np.int64),
        compiled.flat(lengths, np.int64),
        out,
        compiled.flat(positions, np.int64),
      )
    if parts == -2:
      span_reads.check_spans(
        starts, lengths, self._layout.size, positions, len(out)
      )
    if parts < 0:
      return False
    self._count(len(starts), parts)
    return True

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
    if low // size == high // size:
      view = self._views.get(low // size)
      if view is None:
        view = self._view(low // size)
      return view[positions - low // size * size]
    chunk = positions // size
    first = positions - chunk * size
    out = np.empty(len(positions), self._layout.numpy_dtype)
    for words, here in self._by_shard(chunk):
      at = self._base[chunk[here]] + self._words_per_value * first[here]
      if self._words_per_value == 1:
        out[here] = words[at]
      else:
        high_word = words[at + 1].astype(np.uint64) << np.uint64(32)
        out[here] = (high_word | words[at]).view(np.int64)
    return out

  def _gather_spans(self, starts, lengths, out, positions) -> None:
    chunk, first, length, position = span_reads.split_spans(
      starts, lengths, positions, self._layout.chunk
    )
    self._count(len(starts), len(chunk))
    for words, here in self._by_shard(chunk):
      counts = length[here]
      at = ragged.ranges(self._base[chunk[here]] + first[here], counts)
      out[ragged.ranges(position[here], counts)] = words[at]

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

  def _by_shard(
    self, chunk: np.ndarray
  ) -> Iterator[tuple[np.ndarray, np.ndarray | slice]]:
    """Yields (words of a shard, which of int64[N] chunks are in it), checked.

    Whatever is selected by the second value has its chunks verified.
    """
    if not len(chunk):
      return
    if not self._verified[chunk].all():
      for one in np.unique(chunk).tolist():
        if not self._verified[one]:
          self._view(one)
    shard = chunk // self._layout.chunks_per_shard
    first = int(shard[0])
    if (shard == first).all():
      yield self._open_shard(first), slice(None)
      return
    for one in np.unique(shard).tolist():
      yield self._open_shard(one), np.flatnonzero(shard == one)

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
      self._views[chunk] = values
      self._address[chunk] = data.__array_interface__["data"][0]
      return values

  def _open_shard(self, shard: int) -> np.ndarray:
    """Returns a shard's words; maps it and checks its index at first."""
    words = self._shards.get(shard)
    if words is not None:
      return words
    with self._lock:
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
      while len(self._shards) >= self._max_open:
        self._close_shard(next(iter(self._shards)))
      self._shards[shard] = words
      return words

  def _close_shard(self, shard: int) -> None:
    # Views that another thread still holds keep the map alive.
    chunks = self._layout.chunks_of_shard(shard)
    self._address[chunks.start : chunks.stop] = 0
    for chunk in chunks:
      self._views.pop(chunk, None)
    del self._shards[shard]
