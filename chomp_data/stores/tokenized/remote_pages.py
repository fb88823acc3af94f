"""Tokens of a flat object of integers, read by pages.

Pages are asked for ahead, kept and counted as the chunks of our own stores in
buckets are. There is nobody to know their checksums: what is read is of the
version of the object that was opened, and its ids are below the vocabulary
size.
"""

from collections.abc import Iterator
import hashlib

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


class RemotePages(remote_array.RemoteArray):
  """The tokens of an object; see `base.Tokens`."""

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
      corpus: What the object is of.
      file: Its number there.
      dtype: Of its tokens.
      size: How many there are.
      vocab_size: Ids are below it.
      page: Tokens that are read as one.
      cache_bytes: Most bytes that are kept or on their way.
      disk: Where pages are kept on a local disk, too, or None.
    """
    path, version = corpus.path(file), corpus.versions[file]
    layout = array_layout.ArrayLayout(
      dtype.str, size, page, page * _GROUP, "none"
    )
    identity = hashlib.sha256(f"{path} {version} {page}".encode()).hexdigest()
    super().__init__(
      corpus.place,
      corpus.names[file].rpartition("/")[2],
      manifest.ArrayEntry(layout, "", size * dtype.itemsize),
      chunk_tables.NoTable(),
      span_reads.Counters(),
      lambda page_number, values: vocabulary.check_ids(
        path, values, page_number * page, vocab_size
      ),
      cache_bytes,
      None if disk is None else (disk, identity),
    )
    self._path = path
    self._object_name = corpus.names[file]
    self._version = version

  def shard_path(self, shard: int) -> str:
    del shard
    return self._path

  def _object(self, shard: int) -> tuple[str, int | str | None]:
    del shard
    return self._object_name, self._version

  def _entries(self, shard: int) -> np.ndarray:
    each = self._layout.chunk_bytes
    total = self._layout.size * self._layout.numpy_dtype.itemsize
    begins = np.asarray(self._layout.chunks_of_shard(shard), np.int64) * each
    return np.stack([begins, np.minimum(each, total - begins)], axis=1)

  def _stored(
    self, run: list[int], entries: np.ndarray
  ) -> Iterator[tuple[int, bytes]]:
    for page, data in super()._stored(run, entries):
      # As a chunk of ours: of one size, its crc32c behind it.
      whole = data.ljust(self._layout.chunk_bytes, b"\0")
      yield page, whole + array_layout.crc_bytes(checksums.crc32c(whole))
