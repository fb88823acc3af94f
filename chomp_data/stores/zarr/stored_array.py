# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Reading a store's arrays: checked chunks, and spans copied out of them.

Positions, starts and lengths are in elements. Every chunk's crc32c is checked
against its table at its first touch in a process, and nothing of a chunk is
handed out before.
"""

import abc
from collections.abc import Callable
from collections.abc import Iterator
import os

import numpy as np

from chomp_data import errors
from chomp_data.stores import checksums
from chomp_data.stores import span_reads
from chomp_data.stores.zarr import array_layout
from chomp_data.stores.zarr import chunk_tables
from chomp_data.stores.zarr import manifest as manifest_lib

# Called with (chunk, values less padding) at a chunk's first touch.
ChunkCheck = Callable[[int, np.ndarray], None]


class StoredArray(abc.ABC):
  """One array of a store.

  Attributes:
    directory: Where its files are.
    entry: Its layout and checksum.
    table: What is known of its chunks.
    counters: Shared by the arrays of a store.
  """

  def __init__(
    self,
    directory: str | os.PathLike[str],
    entry: manifest_lib.ArrayEntry,
    table: chunk_tables.ChunkTable,
    counters: span_reads.Counters,
    check: ChunkCheck | None = None,
  ):
    """Reads nothing yet.

    Args:
      directory: Where the array's files are, or a URL.
      entry: Its layout and checksum.
      table: What is known of its chunks.
      counters: Counted into.
      check: A further check of a chunk's values; raises StoreError.
    """
    self.directory: str = os.fspath(directory)
    self.entry = entry
    self.table = table
    self.counters = counters
    self._layout = entry.layout
    self._check = check

  @abc.abstractmethod
  def chunks(self, chunks: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yields (chunk, its checked values, read-only, less padding).

    Args:
      chunks: int64[N], distinct chunks.
    """

  def copy_spans(
    self,
    starts: np.ndarray,
    lengths: np.ndarray,
    out: np.ndarray,
    positions: np.ndarray,
  ) -> None:
    """Copies spans: out[p : p + l] = array[s : s + l] for each of them.

    Args:
      starts: int64[N].
      lengths: int64[N], 0 or more.
      out: [M], of any dtype that holds the values.
      positions: int64[N], in `out`.

    Raises:
      IndexError: If a span is not within the array, or not within `out`.
      StoreError: If a chunk or its file was altered.
    """
    span_reads.check_spans(
      starts, lengths, self._layout.size, positions, len(out)
    )
    chunk, first, length, position = span_reads.split_spans(
      starts, lengths, positions, self._layout.chunk
    )
    self._count(len(starts), len(chunk))
    order = np.argsort(chunk, kind="stable")
    wanted, begin = np.unique(chunk[order], return_index=True)
    edges = [*begin.tolist(), len(order)]
    pieces = {
      index: order[edges[i] : edges[i + 1]].tolist()
      for i, index in enumerate(wanted.tolist())
    }
    # In the order of first use, for a cache to tell what was used longest ago:
    # in a batch that crosses two windows, the chunks of the first one.
    for index, values in self.chunks(wanted[np.argsort(order[begin])]):
      for i in pieces[index]:
        source = values[first[i] : first[i] + length[i]]
        out[position[i] : position[i] + length[i]] = source

  def prefetch(self, starts: np.ndarray, lengths: np.ndarray) -> bool:
    """Reads together what spans to be copied need, as far as there is room.

    Args:
      starts: int64[N], in the order of the copies to come.
      lengths: int64[N], 0 or more.

    Returns:
      See `Store.prefetch`.

    Raises:
      IndexError: If a span is not within the array.
      StoreError: If a chunk or its file was altered.
    """
    span_reads.check_spans(starts, lengths, self._layout.size)
    range_starts, _ = span_reads.coalesced_ranges(starts, lengths)
    self.counters.coalesced_ranges += len(range_starts)
    return self._prefetch(
      span_reads.chunks_of_spans(starts, lengths, self._layout.chunk)
    )

  @abc.abstractmethod
  def _prefetch(self, chunks: np.ndarray) -> bool:
    """Reads chunks ahead: int64[P], those needed first first, repeated."""

  @abc.abstractmethod
  def set_cache_bytes(self, cache_bytes: int) -> None:
    """Bounds the decoded chunks that are kept, where any are."""

  def gather(self, positions: np.ndarray) -> np.ndarray:
    """Returns array[positions], a fresh array, for int64[N] in range."""
    out = np.empty(len(positions), self._layout.numpy_dtype)
    ones = np.ones(len(positions), np.int64)
    self.copy_spans(positions, ones, out, np.arange(len(positions)))
    return out

  def read(self, start: int, stop: int) -> np.ndarray:
    """Returns array[start:stop], a fresh array."""
    out = np.empty(stop - start, self._layout.numpy_dtype)
    self.copy_spans(
      np.asarray([start]), np.asarray([stop - start]), out, np.zeros(1, int)
    )
    return out

  def verify(
    self, chunk: int, data: np.ndarray, counted: bool = True
  ) -> np.ndarray:
    """Checks a chunk's decoded values, padding included.

    Args:
      chunk: Which.
      data: [chunk elements], contiguous and read-only.
      counted: Whether the chunk is counted as fetched.

    Returns:
      The values less padding.

    Raises:
      StoreError: If they are not those that were written.
    """
    expected = self.table.crc32c(chunk)
    found = expected if expected is None else checksums.crc32c(data)
    if found != expected:
      raise self.damaged(
        chunk // self._layout.chunks_per_shard,
        f"chunk {chunk} must have crc32c {expected:08x}, got {found:08x}",
      )
    values = data[: self._layout.elements_of_chunk(chunk)]
    if self._check is not None:
      self._check(chunk, values)
    if counted:
      self.counters.chunks_fetched += 1
      self.counters.bytes_fetched += data.nbytes
    return values

  def _count(self, num_spans: int, num_requests: int) -> None:
    self.counters.spans += num_spans
    self.counters.logical_reads += num_spans
    self.counters.chunk_requests += num_requests

  def shard_path(self, shard: int) -> str:
    """Returns a shard's file, or its URL."""
    return f"{self.directory}/{array_layout.shard_file(shard)}"

  def damaged(self, shard: int, what: str) -> errors.StoreError:
    """Returns the error of a damaged shard file."""
    return errors.StoreError(
      f"{self.shard_path(shard)}: {what}. {manifest_lib.RESTORE}"
    )
