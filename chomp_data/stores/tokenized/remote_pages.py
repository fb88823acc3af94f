# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Tokens in objects that others wrote, read by pages or chunks.

They are asked for ahead, kept and counted as the chunks of our own stores in
buckets are. There is nobody to know their checksums: what is read is of the
version of the object that was opened, and its ids are below the vocabulary
size.
"""

from collections.abc import Sequence
import hashlib
import json

import numpy as np

from chomp_data.stores import checksums
from chomp_data.stores import disk_cache
from chomp_data.stores import object_corpus
from chomp_data.stores import span_reads
from chomp_data.stores import vocabulary
from chomp_data.stores.zarr import array_layout
from chomp_data.stores.zarr import chunk_tables
from chomp_data.stores.zarr import manifest
from chomp_data.stores.zarr import remote_array

# Pages that are numbered together: their places are computed at once.
_GROUP = 256


class ForeignArray(remote_array.RemoteArray):
  """An array in one or several objects that others wrote."""

  def __init__(
    self,
    corpus: object_corpus.ObjectCorpus,
    files: Sequence[int],
    layout: array_layout.ArrayLayout,
    vocab_size: int | None,
    cache_bytes: int,
    disk: disk_cache.DiskCache | None = None,
  ):
    """Reads nothing yet.

    Args:
      corpus: What the objects are of.
      files: Their numbers there, by shard; the last holds all that follow.
      layout: Of the values, as they are when they are decoded.
      vocab_size: Ids are below it; None is of values that are no ids.
      cache_bytes: Most bytes that are kept or on their way.
      disk: Where they are kept on a local disk, too, as stored, or None.
    """
    key = [corpus.key()[file] for file in files]
    identity = json.dumps([key, layout.chunk]).encode()
    super().__init__(
      corpus.place,
      corpus.names[files[0]].replace("/", ".") if files else "",
      manifest.ArrayEntry(layout, "", 0),
      chunk_tables.NoTable(),
      span_reads.Counters(),
      None,
      cache_bytes,
      None if disk is None else (disk, hashlib.sha256(identity).hexdigest()),
    )
    self._corpus = corpus
    self._files = files
    self._vocab_size = vocab_size

  def verify(
    self, chunk: int, data: np.ndarray, counted: bool = True
  ) -> np.ndarray:
    values = super().verify(chunk, data, counted)
    if self._vocab_size is not None:
      shard = chunk // self._layout.chunks_per_shard
      begun = shard * self._layout.shard * (len(self._files) > 1)
      vocabulary.check_ids(
        self.shard_path(shard),
        values,
        chunk * self._layout.chunk - begun,
        self._vocab_size,
      )
    return values

  def shard_path(self, shard: int) -> str:
    return self._corpus.path(self._file(shard))

  def _file(self, shard: int) -> int:
    return self._files[min(shard, len(self._files) - 1)]

  def _object(self, shard: int) -> tuple[str, int | str | None]:
    file = self._file(shard)
    return self._corpus.names[file], self._corpus.versions[file]

  def _with_crc(self, stored: bytes) -> bytes:
    # As in a store of ours: a disk may damage what is kept there.
    return stored + array_layout.crc_bytes(checksums.crc32c(stored))


class RemotePages(ForeignArray):
  """The tokens of a flat object of integers; see `base.Tokens`."""

  def __init__(
    self,
    corpus: object_corpus.ObjectCorpus,
    file: int,
    dtype: np.dtype,
    size: int,
    vocab_size: int,
    page: int,
    cache_bytes: int,
    disk: disk_cache.DiskCache | None = None,
  ):
    """Reads nothing yet.

    Args:
      corpus: As in `ForeignArray`.
      file: The number of the object.
      dtype: Of its tokens.
      size: How many there are.
      vocab_size: As in `ForeignArray`.
      page: Tokens that are read as one.
      cache_bytes: As in `ForeignArray`.
      disk: As in `ForeignArray`.
    """
    layout = array_layout.ArrayLayout(
      dtype.str, size, page, page * _GROUP, "none"
    )
    super().__init__(corpus, [file], layout, vocab_size, cache_bytes, disk)

  def _entries(self, shard: int) -> np.ndarray:
    each = self._layout.chunk_bytes
    total = self._layout.size * self._layout.numpy_dtype.itemsize
    begins = np.asarray(self._layout.chunks_of_shard(shard), np.int64) * each
    return np.stack([begins, np.minimum(each, total - begins)], axis=1)

  def _decoded(self, chunk: int, stored: bytes) -> np.ndarray:
    data = self._checked(chunk, stored)
    return np.frombuffer(data, self._layout.numpy_dtype)
