"""Reading compressed arrays through TensorStore, with a cache of chunks.

Chunks are fetched whole, in one batch for each request, and kept decoded
within a budget of bytes. This is also the way to stores that are not on a
local disk: `kvstore_spec` is the only place that says where files are.
"""

import collections
from collections.abc import Iterator
import pathlib
import threading
from typing import Any

import numpy as np
import tensorstore as ts

from chomp_data.stores import arrays
from chomp_data.stores import manifest as manifest_lib


def kvstore_spec(directory: pathlib.Path) -> dict[str, Any]:
  """Returns the TensorStore key-value store of a directory."""
  return {"driver": "file", "path": f"{directory}/"}


class CachedArray(arrays.StoredArray):
  """An array of any compression, with at most `cache_bytes` of it kept."""

  def __init__(
    self,
    directory: pathlib.Path,
    entry: manifest_lib.ArrayEntry,
    counters: arrays.Counters,
    check: arrays.ChunkCheck | None = None,
    cache_bytes: int = 0,
  ):
    """As `StoredArray`; the cache holds one chunk at least."""
    super().__init__(directory, entry, counters, check)
    self._cache: collections.OrderedDict[int, np.ndarray] = (
      collections.OrderedDict()
    )
    self._room = max(1, cache_bytes // self._layout.chunk_bytes)
    self._array: ts.TensorStore | None = None
    self._lock = threading.RLock()

  def chunks(self, chunks: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    wanted = chunks.tolist()
    for low in range(0, len(wanted), self._room):
      yield from self._some(wanted[low : low + self._room])

  def _some(self, chunks: list[int]) -> list[tuple[int, np.ndarray]]:
    """Returns chunks that fit in the cache together."""
    with self._lock:
      held = {i: self._cache[i] for i in chunks if i in self._cache}
      missing = [i for i in chunks if i not in held]
      if missing:
        held.update(zip(missing, self._fetch(missing), strict=True))
      for index in chunks:
        self._cache[index] = held[index]
        self._cache.move_to_end(index)
      while len(self._cache) > self._room:
        self._cache.popitem(last=False)
      return list(held.items())

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
