# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Tokens of a flat file of integers, read through a memory map.

Every id that is returned is below the vocabulary size. Pages of a file that was
adopted (`checksum_sidecar`) are verified besides, when they are first read.
"""

import numpy as np

from chomp_data.storage import checked_file
from chomp_data.storage import chunk_cache
from chomp_data.storage import file_maps
from chomp_data.stores import span_reads
from chomp_data.stores import vocabulary

RESTORE = "Restore the file from a copy, or write it again."


class MappedTokens:
  """The tokens of all documents, one after the other, as `base.Tokens`.

  Attributes:
    counters: What was read in this process; there are no chunks.
  """

  def __init__(
    self,
    file: checked_file.CheckedFile,
    vocab_size: int,
    is_signed: bool = True,
  ):
    """Reads nothing yet.

    Args:
      file: The file, of unsigned integers: a negative id is then a large one,
        and one comparison finds both.
      vocab_size: Ids are below it.
      is_signed: Whether large ids are negative ones, for messages.
    """
    self.counters: chunk_cache.Counters = chunk_cache.Counters()
    self._file = file
    self._vocab_size = vocab_size
    self._is_signed = is_signed
    self._address = np.asarray([file.values.ctypes.data])

  def copy_spans(
    self,
    starts: np.ndarray,
    lengths: np.ndarray,
    out: np.ndarray,
    positions: np.ndarray,
  ) -> None:
    """Copies spans, as `base.Store.copy_tokens`."""
    starts, lengths, positions = map(np.asarray, (starts, lengths, positions))
    size = len(self._file)
    span_reads.check_spans(starts, lengths, size, positions, len(out))
    self.counters.spans += len(starts)
    self.counters.logical_reads += len(starts)
    if not len(starts):
      return
    self._file.check(starts, starts + lengths)
    values = self._file.values
    # Ids of 8 bytes could wrap to smaller ones.
    is_narrow = values.itemsize <= out.itemsize
    layout = self._address, values.itemsize, max(size, 1), size
    spans = starts, lengths, out, positions
    if not is_narrow or span_reads.copy_compiled(*layout, *spans) is None:
      pieces = np.zeros_like(starts), starts, lengths, positions
      span_reads.copy_pieces(lambda _: [(0, values)], pieces, out)
    # A maximum of each range that was copied to: ids of other sources, which
    # may have more, are between them.
    unsigned = out.view(out.dtype.str.replace("i", "u"))
    begins, sizes = span_reads.coalesced_ranges(positions, lengths)
    most = max(
      (unsigned[b : b + n].max() for b, n in zip(begins, sizes, strict=True)),
      default=0,
    )
    if not is_narrow or int(most) >= self._vocab_size:
      self._check_ids(starts, lengths)

  def prefetch(self, starts: np.ndarray, lengths: np.ndarray) -> None:
    """Asks the system to read ahead, as `base.Store.prefetch`."""
    span_reads.check_spans(starts, lengths, len(self._file))
    ranges, sizes = span_reads.coalesced_ranges(starts, lengths)
    self.counters.coalesced_ranges += len(ranges)
    for start, size in zip(ranges.tolist(), sizes.tolist(), strict=True):
      file_maps.read_soon(self._file.values[start : start + size])

  def set_cache_bytes(self, cache_bytes: int) -> None:
    """Nothing is decoded, and nothing cached."""
    del cache_bytes

  def _check_ids(self, starts: np.ndarray, lengths: np.ndarray) -> None:
    """Raises StoreError where a span holds an id beyond the vocabulary."""
    values = self._file.values
    if self._is_signed:
      values = values.view(values.dtype.str.replace("u", "i"))
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
      ids = values[start : start + length]
      vocabulary.check_ids(self._file.path, ids, start, self._vocab_size)
