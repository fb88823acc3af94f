# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Tokens of a flat file of integers, read through a memory map.

Every id that is handed out is below the vocabulary size. A file that was
adopted (`stores.adopted`) is checked besides, page by page, at first touch.
"""

import pathlib

import numpy as np

from chomp_data import errors
from chomp_data.stores import adopted
from chomp_data.stores import file_maps
from chomp_data.stores import span_reads

RESTORE = "Restore the file from a copy, or write it again."


class MappedTokens:
  """The tokens of all documents, one after the other; see `base.Tokens`.

  Attributes:
    counters: What was read in this process; there are no chunks.
  """

  is_mapped = True

  def __init__(
    self,
    path: pathlib.Path,
    dtype: np.dtype,
    size: int,
    vocab_size: int,
    pages: "adopted.Pages | None" = None,
  ):
    """Maps a file.

    Args:
      path: The file.
      dtype: Of its tokens.
      size: How many there are.
      vocab_size: Ids are below it.
      pages: What its pages were when it was adopted, if it was.

    Raises:
      StoreError: If the file is not of that many tokens.
    """
    found = path.stat().st_size if path.exists() else -1
    if found != size * dtype.itemsize:
      raise errors.StoreError(
        f"{path} must be of {size} {dtype.name} ids in"
        f" {size * dtype.itemsize} bytes, got {max(found, 0)} bytes. {RESTORE}"
      )
    self.counters: span_reads.Counters = span_reads.Counters()
    self._path = path
    self._vocab_size = vocab_size
    self._pages = pages
    self._item = dtype.itemsize
    # A negative id is a large one, so that one comparison finds both.
    self._dtype = np.dtype(f"<u{dtype.itemsize}")
    self._check = vocab_size < 2 ** (8 * dtype.itemsize)
    if size:
      self._values = file_maps.mapped(path, self._dtype)
    else:
      self._values = np.empty(0, self._dtype)

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
    size = len(self._values)
    span_reads.check_spans(starts, lengths, size, positions, len(out))
    self.counters.spans += len(starts)
    self.counters.logical_reads += len(starts)
    if self._pages is not None:
      self._pages.check(
        self._path, starts * self._item, (starts + lengths) * self._item
      )
    values = self._values
    spans = np.stack([starts, lengths, positions]).T.tolist()
    for start, length, to in spans:
      source = values[start : start + length]
      if self._check and length and source.max() >= self._vocab_size:
        raise self._beyond(start, source)
      out[to : to + length] = source

  def prefetch(self, starts: np.ndarray, lengths: np.ndarray) -> None:
    """Asks the system to read ahead; see `base.Store.prefetch`."""
    span_reads.check_spans(starts, lengths, len(self._values))
    ranges, sizes = span_reads.coalesced_ranges(starts, lengths)
    self.counters.coalesced_ranges += len(ranges)
    if not len(ranges):
      return
    for start, size in zip(ranges.tolist(), sizes.tolist(), strict=True):
      file_maps.read_soon(self._values[start : start + size])

  def set_cache_bytes(self, cache_bytes: int) -> None:
    """Nothing is decoded, and nothing kept."""
    del cache_bytes

  def _beyond(self, start: int, source: np.ndarray) -> errors.StoreError:
    at = int(source.argmax())
    token = source[at : at + 1].view(self._dtype.str.replace("u", "i"))[0]
    shown = int(source[at]) if int(token) >= 0 else int(token)
    return errors.StoreError(
      f"{self._path}: ids must be in 0 .. {self._vocab_size - 1}, got {shown}"
      f" at token {start + at}. Correct `vocab_size`, or restore the file."
    )
