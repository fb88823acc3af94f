# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Integers in objects that others wrote, read by chunks: pages or zarr chunks.

They are cached, requested ahead and counted as the chunks of our own stores.
They have no known checksums. What is read of a bucket is of the version of the
object that was opened; ids must be below the vocabulary size.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import hashlib
import json
import types

import numpy as np

from chomp_data.storage import chunk_cache
from chomp_data.storage import disk_cache
from chomp_data.storage import storage
from chomp_data.stores import object_reads
from chomp_data.stores import span_reads
from chomp_data.stores import vocabulary
from chomp_data.stores.tokenized import zarr_chunks
from chomp_data.stores.zarr import array_layout

RESTORE = "Restore the file from a copy, or write it again."

# Pages that are located together.
_PAGES_TOGETHER = 256


class ForeignArray(object_reads.ObjectReads):
  """An array in one or several objects."""

  def __init__(
    self,
    files: storage.Storage,
    objects: Sequence[object_reads.VersionedObject],
    dtype: np.dtype,
    size: int,
    *,
    chunk: int,
    chunks_per_object: int,
    vocab_size: int | None,
    cache_bytes: int,
    disk: disk_cache.DiskCache | None = None,
  ):
    """Reads nothing yet.

    Args:
      files: Where the objects are.
      objects: The objects.
      dtype: Of the values, as they are stored.
      size: How many there are.
      chunk: Values of a chunk.
      chunks_per_object: Chunks that are located together.
      vocab_size: Ids are below it; None is of values that are no ids.
      cache_bytes: Most bytes that are cached or on their way.
      disk: Where chunks are kept on a local disk, too, as stored, or None.
    """
    super().__init__(size, chunk, dtype, chunk_cache.Counters())
    self._objects = objects
    self._vocab_size = vocab_size
    on_disk = None
    if disk is not None:
      key = [[files.url(name), version] for name, version in objects]
      identity = json.dumps([key, chunk]).encode()
      prefix = objects[0][0].replace("/", ".") if objects else ""
      on_disk = disk, hashlib.sha256(identity).hexdigest(), prefix
    self.read_objects(
      files,
      RESTORE,
      chunks_per_object=chunks_per_object,
      cache_bytes=cache_bytes,
      disk=on_disk,
    )

  def _object(self, number: int) -> object_reads.VersionedObject:
    return self._objects[number]

  def _check_ids(self, name: str, values: np.ndarray, first: int) -> None:
    """Raises StoreError where ids are not below the vocabulary size."""
    if self._vocab_size is not None:
      url = self._files.url(name)
      vocabulary.check_ids(url, values, first, self._vocab_size)


class Pages(ForeignArray):
  """The tokens of a flat object of integers, as `base.Tokens`."""

  def __init__(
    self,
    files: storage.Storage,
    page_object: object_reads.VersionedObject,
    dtype: np.dtype,
    size: int,
    page: int,
    vocab_size: int,
    cache_bytes: int,
    disk: disk_cache.DiskCache | None = None,
  ):
    """Reads nothing yet; `page` tokens are read as one."""
    super().__init__(
      files,
      [page_object],
      dtype,
      size,
      chunk=page,
      chunks_per_object=_PAGES_TOGETHER,
      vocab_size=vocab_size,
      cache_bytes=cache_bytes,
      disk=disk,
    )

  def _object(self, number: int) -> object_reads.VersionedObject:
    del number  # Pages that are located together.
    return self._objects[0]

  def _look_up(self, number: int) -> np.ndarray:
    pages = number * _PAGES_TOGETHER + np.arange(_PAGES_TOGETHER + 1)
    edges = np.minimum(pages * self._chunk, self._size) * self._dtype.itemsize
    return np.stack([edges[:-1], np.diff(edges)], axis=1)

  def _decode(self, chunk: int, stored: bytes) -> np.ndarray:
    values = np.frombuffer(stored, self._dtype)
    self._check_ids(self._objects[0][0], values, chunk * self._chunk)
    return values


class ZarrArrays(ForeignArray):
  """Zarr arrays of one format, one after the other, as `base.Tokens`."""

  def __init__(
    self,
    files: storage.Storage,
    arrays: Sequence[Sequence[object_reads.VersionedObject]],
    sizes: Sequence[int],
    array_format: zarr_chunks.Format,
    vocab_size: int | None,
    cache_bytes: int,
    disk: disk_cache.DiskCache | None = None,
    check_object: Callable[[str], object] = lambda name: None,
    object_bytes: Mapping[str, int] = types.MappingProxyType({}),
  ):
    """Reads nothing yet.

    Args:
      files: Where the objects are.
      arrays: The objects of each array.
      sizes: Elements of each array that are in use.
      array_format: How they are stored.
      vocab_size: As in `ForeignArray`, like the following ones.
      cache_bytes: In memory.
      disk: On a local disk.
      check_object: Called with the name of an object before its first chunk is
        read; raises StoreError.
      object_bytes: Sizes of objects by name, as far as they are known.
    """
    super().__init__(
      files,
      [each for objects in arrays for each in objects],
      array_format.dtype,
      sum(sizes),
      chunk=array_format.chunk,
      chunks_per_object=array_format.file // array_format.chunk,
      vocab_size=vocab_size,
      cache_bytes=cache_bytes,
      disk=disk,
    )
    self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    # An array begins with an object of its own: chunks are numbered through
    # all objects.
    counts = [len(objects) for objects in arrays]
    self._first_chunks = (np.cumsum(counts) - counts).astype(np.int64) * (
      self._chunks_per_object
    )
    self._format = array_format
    self._check_object = check_object
    self._object_bytes = object_bytes
    self._decoder = zarr_chunks.Decoder(array_format)

  @property
  def path(self) -> str:
    """The first object."""
    return self._files.url(self._objects[0][0])

  def _split(
    self, starts: np.ndarray, lengths: np.ndarray, positions: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    array, first, length, position = span_reads.split_at(
      self._starts, starts, lengths, positions
    )
    first = first + self._first_chunks[array] * self._chunk
    return span_reads.split_spans(first, length, position, self._chunk)

  def _look_up(self, number: int) -> np.ndarray:
    """Returns offset and size of the chunks of an object."""
    name, _ = self._objects[number]
    self._check_object(name)
    if self._format.index == "none":
      size = self._object_bytes.get(name)
      if size is None:
        info = self._files.head(name)
        size = 0 if info is None else info.size
      if not size:
        raise self.damaged(number, "must be a chunk, got nothing")
      return np.asarray([[0, size]], np.int64)
    return self._read_index(
      number,
      self._format.index_range,
      array_layout.decode_entries,
      "must have an index and its crc32c",
    )

  def _decode(self, chunk: int, stored: bytes) -> np.ndarray:
    number, within = divmod(chunk, self._chunks_per_object)
    name, _ = self._objects[number]
    try:
      values = self._decoder.decode(chunk, stored)
    except ValueError as error:
      raise self.damaged(
        number, f"chunk {within} must be readable, got {error}"
      ) from error
    self._check_ids(name, values, within * self._chunk)
    return values
