# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Spans copied out of arrays that are read by chunks.

Positions, starts and lengths are in elements.
"""

import abc
from collections.abc import Iterator

import numpy as np

from chomp_data.stores import span_reads


class ChunkedReads(abc.ABC):
  """An array whose chunks are read and checked as a whole.

  Attributes:
    counters: What was read in this process.
  """

  def __init__(
    self, size: int, chunk: int, dtype: np.dtype, counters: span_reads.Counters
  ):
    """Reads nothing yet.

    Args:
      size: Elements.
      chunk: Elements of a chunk; the last one may have fewer.
      dtype: Of the elements, as they are stored.
      counters: Counted into.
    """
    self.counters: span_reads.Counters = counters
    self._size = size
    self._chunk = chunk
    self._dtype = dtype

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
      See `Store.prefetch`.

    Raises:
      IndexError: If a span is not within the array.
    """
    span_reads.check_spans(starts, lengths, self._size)
    range_starts, _ = span_reads.coalesced_ranges(starts, lengths)
    self.counters.coalesced_ranges += len(range_starts)
    return self._prefetch(self._chunks_of(starts, lengths))

  def _split(
    self, starts: np.ndarray, lengths: np.ndarray, positions: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Cuts spans at chunks; see `span_reads.split_spans`."""
    return span_reads.split_spans(starts, lengths, positions, self._chunk)

  def _chunks_of(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns the chunks of each span, one after the other, repeated."""
    return span_reads.chunks_of_spans(starts, lengths, self._chunk)

  @abc.abstractmethod
  def _prefetch(self, chunks: np.ndarray) -> bool:
    """Requests chunks: int64[P], those needed first first, repeated."""

  @abc.abstractmethod
  def set_cache_bytes(self, cache_bytes: int) -> None:
    """Bounds the decoded chunks that are kept, where any are."""

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
