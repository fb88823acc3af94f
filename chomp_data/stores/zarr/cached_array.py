# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Reading compressed arrays through TensorStore, with a cache of chunks.

Chunks are fetched whole, in one batch for each request, and kept decoded
within a budget of bytes; those used longest ago go first.
"""

import collections
from collections.abc import Iterator
import os
import threading
from typing import Any

import numpy as np
import tensorstore as ts

from chomp_data.stores import span_reads
from chomp_data.stores.zarr import chunk_tables
from chomp_data.stores.zarr import manifest as manifest_lib
from chomp_data.stores.zarr import stored_array


def kvstore_spec(directory: str) -> dict[str, Any]:
  """Returns the TensorStore key-value store of a directory."""
  return {"driver": "file", "path": f"{directory}/"}


class CachedArray(stored_array.StoredArray):
  """An array of any compression, with at most `cache_bytes` of it kept."""

  def __init__(
    self,
    directory: str | os.PathLike[str],
    entry: manifest_lib.ArrayEntry,
    table: chunk_tables.ChunkTable,
    counters: span_reads.Counters,
    check: stored_array.ChunkCheck | None = None,
    cache_bytes: int = 0,
  ):
    """As `StoredArray`; the cache holds one chunk at least."""
    super().__init__(directory, entry, table, counters, check)
    self._cache: collections.OrderedDict[int, np.ndarray] = (
      collections.OrderedDict()
    )
    # Fetched by `prefetch` and not copied from since.
    self._ahead: set[int] = set()
    self._room = max(1, cache_bytes // self._layout.chunk_bytes)
    self._array: ts.TensorStore | None = None
    self._lock = threading.RLock()

  def chunks(self, chunks: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    with self._lock:
      room = self._room
      held = [i for i in chunks.tolist() if i in self._cache]
      missing = [i for i in chunks.tolist() if i not in self._cache]
      found = self._some(held)
    # What is held goes first: fetching the others may evict it.
    yield from found
    del found
    for low in range(0, len(missing), room):
      yield from self._some(missing[low : low + room])

  def set_cache_bytes(self, cache_bytes: int) -> None:
    with self._lock:
      self._room = max(1, cache_bytes // self._layout.chunk_bytes)
      self._evict(self._room)

  def _prefetch(self, chunks: np.ndarray) -> bool:
    with self._lock:
      wanted = list(dict.fromkeys(chunks.tolist()))[: self._room]
      self.counters.chunk_requests += len(wanted)
      self._ahead = set(wanted)
      self._hold(wanted)
    return False

  def _some(self, chunks: list[int]) -> list[tuple[int, np.ndarray]]:
    """Returns chunks that fit in the cache together."""
    with self._lock:
      found = self._hold(chunks)
      self._ahead.difference_update(chunks)
      return list(found.items())

  def _hold(self, chunks: list[int]) -> dict[int, np.ndarray]:
    """Brings chunks into the cache, those that are missing in one batch."""
    found = {i: self._cache[i] for i in chunks if i in self._cache}
    missing = [i for i in chunks if i not in found]
    if missing:
      # Before and not after: both together stay within the room.
      self._evict(self._room - len(missing))
      found.update(zip(missing, self._fetch(missing), strict=True))
    for chunk in chunks:
      self._cache[chunk] = found[chunk]
      self._cache.move_to_end(chunk)
    self._evict(self._room)
    return found

  def _evict(self, room: int) -> None:
    """Leaves `room` chunks at most: first go those used longest ago.

    Chunks that `prefetch` brought go after those already copied from, however
    long ago: their turn is still to come.
    """
    excess = len(self._cache) - room
    if excess > 0:
      in_order = sorted(self._cache, key=self._ahead.__contains__)
      for chunk in in_order[:excess]:
        del self._cache[chunk]

  def _fetch(self, chunks: list[int]) -> list[np.ndarray]:
    size = self._layout.chunk
    array = self._open(chunks[0])
    futures = []
    with ts.Batch() as batch:
      for chunk in chunks:
        first = chunk * size
        last = first + self._layout.elements_of_chunk(chunk)
        futures.append(array[first:last].read(batch=batch))
    out = []
    for chunk, future in zip(chunks, futures, strict=True):
      shard = chunk // self._layout.chunks_per_shard
      try:
        values = future.result()
      except (ValueError, OSError) as error:
        raise self.damaged(
          shard, f"chunk {chunk} must be readable, got {_first_line(error)}"
        ) from error
      data = values
      if len(values) < size:
        data = np.zeros(size, self._layout.numpy_dtype)
        data[: len(values)] = values
      data.flags.writeable = False
      out.append(self.verify(chunk, data))
    return out

  def _open(self, chunk: int) -> ts.TensorStore:
    if self._array is None:
      spec = {
        "driver": "zarr3",
        "kvstore": kvstore_spec(self.directory),
        "recheck_cached_data": "open",
        "recheck_cached_metadata": "open",
        # A chunk that is not there must be an error, never zeros.
        "fill_missing_data_reads": False,
      }
      try:
        array = ts.open(spec, open=True, read=True).result()
      except (ValueError, OSError) as error:
        raise self.damaged(
          chunk // self._layout.chunks_per_shard,
          f"the array must open, got {_first_line(error)}",
        ) from error
      self._array = array
    return self._array


def _first_line(error: Exception) -> str:
  return str(error).split("\n", 1)[0][:200].rstrip(".")
