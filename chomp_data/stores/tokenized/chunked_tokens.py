# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Tokens in one or several zarr arrays of others, read through TensorStore.

A chunk is what an array stores as one; it is fetched whole and kept decoded
within a budget of bytes. Those used longest ago go first.
"""

import collections
from collections.abc import Sequence
import dataclasses
import pathlib
import threading
from typing import TYPE_CHECKING

import numpy as np

from chomp_data import errors
from chomp_data.stores import span_reads
from chomp_data.stores import vocabulary

if TYPE_CHECKING:
  import tensorstore as ts

RESTORE = "Restore the file from a copy, or write it again."


@dataclasses.dataclass(frozen=True)
class ZarrArray:
  """One array, opened.

  Attributes:
    path: Its directory.
    array: It.
    chunk: Elements that are stored as one.
    file: Elements of a file.
  """

  path: pathlib.Path
  array: "ts.TensorStore"
  chunk: int
  file: int

  def read(self, first: int, last: int) -> np.ndarray:
    """Returns elements first .. last - 1; raises StoreError."""
    try:
      return np.asarray(self.array[first:last].read().result())
    except (ValueError, OSError) as error:
      raise unreadable(self.path, error) from error

  def check_files(self, size: int) -> None:
    """Raises StoreError where a file of the first `size` elements is missing.

    TensorStore takes what is missing for zeros.
    """
    for number in range(-(-size // self.file)):
      path = self.path / "c" / str(number)
      if not path.is_file():
        raise errors.StoreError(f"{path} must exist, got none. {RESTORE}")


def open_array(path: pathlib.Path) -> ZarrArray:
  """Opens a zarr v3 array of one dimension.

  Raises:
    StoreError: If there is none.
  """
  import tensorstore as ts  # Processes that read no such data do without.

  for own in path.rglob("*"):
    # TensorStore waits for ever for who writes to a fifo.
    if not own.is_dir() and not own.is_file():
      raise errors.StoreError(
        f"{own} must be a file, got what is none and no directory. {RESTORE}"
      )
  spec = {
    "driver": "zarr3",
    "kvstore": {"driver": "file", "path": f"{path}/"},
    "recheck_cached_data": "open",
    "recheck_cached_metadata": "open",
  }
  try:
    array = ts.open(spec, open=True, read=True).result()
  except (ValueError, OSError) as error:
    raise unreadable(path, error) from error
  if array.rank != 1 or array.dtype.numpy_dtype.kind not in "iu":
    raise errors.StoreError(
      f"{path} must be an array of integers of one dimension, got"
      f" {array.dtype.name} of {array.rank}. Name another field."
    )
  layout = array.chunk_layout
  chunk, file = (
    int((own.shape or [1])[0] or 1)
    for own in (layout.read_chunk, layout.write_chunk)
  )
  return ZarrArray(path, array, chunk, file)


class ChunkedTokens:
  """The tokens of arrays, one after the other; see `base.Tokens`.

  Attributes:
    counters: What was read in this process.
  """

  def __init__(
    self,
    arrays: Sequence[ZarrArray],
    sizes: Sequence[int],
    vocab_size: int,
    cache_bytes: int,
  ):
    """Reads nothing yet.

    Args:
      arrays: In the order of their tokens, of chunks of one size.
      sizes: Tokens of each; what follows in an array is no token.
      vocab_size: Ids are below it.
      cache_bytes: Most decoded bytes that are kept; one chunk at least is.
    """
    self.counters: span_reads.Counters = span_reads.Counters()
    self._arrays = arrays
    self._vocab_size = vocab_size
    self.chunk: int = arrays[0].chunk if arrays else 1
    for own in arrays:
      if own.chunk != self.chunk:
        raise errors.StoreError(
          f"{own.path} must have chunks of {self.chunk} as {arrays[0].path},"
          f" got {own.chunk}. Name them as two stores."
        )
    self._sizes = np.asarray(sizes, np.int64)
    self._starts = np.concatenate([[0], np.cumsum(self._sizes)])
    chunks = -(-self._sizes // self.chunk)
    # Chunks are numbered through all arrays.
    self._chunks = np.concatenate([[0], np.cumsum(chunks)])
    self._cache: collections.OrderedDict[int, np.ndarray]
    self._cache = collections.OrderedDict()
    self._lock = threading.RLock()
    self.set_cache_bytes(cache_bytes)

  def copy_spans(
    self,
    starts: np.ndarray,
    lengths: np.ndarray,
    out: np.ndarray,
    positions: np.ndarray,
  ) -> None:
    """Copies spans; see `base.Store.copy_tokens`."""
    starts, lengths = np.asarray(starts), np.asarray(lengths)
    positions = np.asarray(positions)
    size = int(self._starts[-1])
    span_reads.check_spans(starts, lengths, size, positions, len(out))
    self.counters.spans += len(starts)
    self.counters.logical_reads += len(starts)
    chunk, first, length, position = self._pieces(starts, lengths, positions)
    self.counters.chunk_requests += len(chunk)
    order = np.argsort(chunk, kind="stable")
    wanted, begin = np.unique(chunk[order], return_index=True)
    edges = [*begin.tolist(), len(order)]
    for low in range(0, len(wanted), self._room):
      some = wanted[low : low + self._room].tolist()
      for i, values in enumerate(self._hold(some), low):
        for piece in order[edges[i] : edges[i + 1]].tolist():
          source = values[first[piece] : first[piece] + length[piece]]
          out[position[piece] : position[piece] + length[piece]] = source

  def prefetch(self, starts: np.ndarray, lengths: np.ndarray) -> None:
    """Fetches chunks ahead, as far as there is room; see `base.Store`."""
    span_reads.check_spans(starts, lengths, int(self._starts[-1]))
    ranges, _ = span_reads.coalesced_ranges(starts, lengths)
    self.counters.coalesced_ranges += len(ranges)
    chunk, *_ = self._pieces(starts, lengths, np.zeros_like(starts))
    wanted = list(dict.fromkeys(chunk.tolist()))[: self._room]
    self.counters.chunk_requests += len(wanted)
    self._hold(wanted)

  def set_cache_bytes(self, cache_bytes: int) -> None:
    """Bounds the chunks that are kept."""
    with self._lock:
      width = np.dtype(np.int32).itemsize
      self._room = max(1, cache_bytes // (self.chunk * width))
      self._evict(self._room)

  def _pieces(
    self, starts: np.ndarray, lengths: np.ndarray, positions: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Cuts spans at arrays and chunks; see `span_reads.split_spans`."""
    array, first, length, position = span_reads.split_at(
      self._starts, starts, lengths, positions
    )
    # An array begins with a chunk of its own.
    first = first + self._chunks[array] * self.chunk
    return span_reads.split_spans(first, length, position, self.chunk)

  def _hold(self, chunks: list[int]) -> list[np.ndarray]:
    """Returns chunks that fit in the cache together, fetched if need be."""
    with self._lock:
      found = {i: self._cache[i] for i in chunks if i in self._cache}
      missing = [i for i in chunks if i not in found]
      if missing:
        self._evict(self._room - len(missing))
        found.update(zip(missing, self._fetch(missing), strict=True))
      for chunk in chunks:
        self._cache[chunk] = found[chunk]
        self._cache.move_to_end(chunk)
      self._evict(self._room)
      return [found[i] for i in chunks]

  def _evict(self, room: int) -> None:
    while len(self._cache) > max(room, 0):
      self._cache.popitem(last=False)

  def _fetch(self, chunks: list[int]) -> list[np.ndarray]:
    import tensorstore as ts

    found = []
    with ts.Batch() as batch:
      for chunk in chunks:
        number = int(np.searchsorted(self._chunks, chunk, "right")) - 1
        own = self._arrays[number]
        first = (chunk - int(self._chunks[number])) * self.chunk
        last = min(first + self.chunk, int(self._sizes[number]))
        future = own.array[first:last].read(batch=batch)
        found.append((own, first, future))
    out = []
    for own, first, future in found:
      try:
        values = np.asarray(future.result())
      except (ValueError, OSError) as error:
        raise unreadable(own.path, error) from error
      vocabulary.check_ids(own.path, values, first, self._vocab_size)
      self.counters.chunks_fetched += 1
      self.counters.bytes_fetched += values.nbytes
      out.append(values.astype(np.int32, copy=False))
    return out


def unreadable(path: pathlib.Path, error: Exception) -> errors.StoreError:
  """Returns the error of an array that cannot be read."""
  text = str(error).split("\n", 1)[0][:200].rstrip(".")
  return errors.StoreError(
    f"{path} must be a readable zarr array, got {text}. {RESTORE}"
  )
