# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Spans copied out of arrays that are read by chunks.

Positions, starts and lengths are in elements.
"""

from collections.abc import Iterator

import numpy as np

from chomp_data.storage import chunk_cache
from chomp_data.stores import span_reads


class ChunkedReads:
  """An array whose chunks are read, checked and cached as a whole.

  Attributes:
    counters: What was read in this process.
    cache: Its chunks in memory; not of arrays that are mapped.
  """

  cache: chunk_cache.ChunkCache

  def __init__(
    self, size: int, chunk: int, dtype: np.dtype, counters: chunk_cache.Counters
  ):
    """Reads nothing yet.

    Args:
      size: Elements.
      chunk: Elements of a chunk; the last one may have fewer.
      dtype: Of the elements, as they are stored.
      counters: Counted into.
    """
    self.counters: chunk_cache.Counters = counters
    self._size = size
    self._chunk = chunk
    self._dtype = dtype
    # Whether a larger plan saves time: requests take long.
    self._plans_ahead = False

  def chunks(self, chunks: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yields (chunk, its checked values, read-only, less padding).

    Args:
      chunks: int64[N], distinct chunks.
    """
    return self.cache.get(chunks.tolist())

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
    span_reads.check_spans(starts, lengths, self._size, positions, len(out))
    pieces = self._split(starts, lengths, positions)
    self._count(len(starts), len(pieces[0]))
    span_reads.copy_pieces(self.chunks, pieces, out)

  def prefetch(self, starts: np.ndarray, lengths: np.ndarray) -> bool:
    """Requests what spans to be copied need, as far as there is room.

    Args:
      starts: int64[N], in the order of the copies to come.
      lengths: int64[N], 0 or more.

    Returns:
      As `Store.prefetch`.

    Raises:
      IndexError: If a span is not within the array.
    """
    span_reads.check_spans(starts, lengths, self._size)
    range_starts, _ = span_reads.coalesced_ranges(starts, lengths)
    self.counters.coalesced_ranges += len(range_starts)
    return self._prefetch(self._split(starts, lengths, starts)[0])

  def _split(
    self, starts: np.ndarray, lengths: np.ndarray, positions: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Cuts spans at chunks, as `span_reads.split_spans`."""
    return span_reads.split_spans(starts, lengths, positions, self._chunk)

  def _prefetch(self, chunks: np.ndarray) -> bool:
    """Requests chunks: int64[P], in the order of use, repeated."""
    has_room = self.cache.prefetch(chunks.tolist())
    return has_room and self._plans_ahead

  def set_cache_bytes(self, cache_bytes: int) -> None:
    """Bounds the decoded chunks in memory, where there are any."""
    self.cache.set_cache_bytes(cache_bytes)

  def gather(self, positions: np.ndarray) -> np.ndarray:
    """Returns array[positions], a fresh array, for int64[N] in range."""
    out = np.empty(len(positions), self._dtype)
    ones = np.ones(len(positions), np.int64)
    self.copy_spans(positions, ones, out, np.arange(len(positions)))
    return out

  def read(self, start: int, stop: int) -> np.ndarray:
    """Returns array[start:stop], a fresh array."""
    out = np.empty(stop - start, self._dtype)
    self.copy_spans(
      np.asarray([start]), np.asarray([stop - start]), out, np.zeros(1, int)
    )
    return out

  def _count(self, num_spans: int, num_requests: int) -> None:
    self.counters.spans += num_spans
    self.counters.logical_reads += num_spans
    self.counters.chunk_requests += num_requests
