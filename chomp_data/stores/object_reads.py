# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Arrays whose chunks are ranges of the objects of a storage.

Neighbours are one request, and a request to a bucket that takes far longer than
others is sent twice. Every chunk is checked as it is decoded; what is not as it
was written is requested again. With a `DiskCache` chunks are kept on a local
disk, as they are stored.
"""

import abc
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from concurrent import futures
import threading

import numpy as np

from chomp_data import errors
from chomp_data.index import memo
from chomp_data.index import ragged
from chomp_data.storage import checksums
from chomp_data.storage import chunk_cache
from chomp_data.storage import disk_cache
from chomp_data.storage import requests
from chomp_data.storage import storage
from chomp_data.stores import chunked_reads

CRC_BYTES = 4

# Neighbouring chunks are one request up to this size: by then the time that a
# request costs is small beside the time that its bytes take.
JOINED_BYTES = 8 * 2**20

# Objects of which it is remembered where their chunks are: 4 KiB each of 256
# chunks.
_REMEMBERED = 4_096


# An object, and the version of it that is read; None is any.
VersionedObject = tuple[str, int | str | None]

# Where chunks are kept on a local disk, too: under which identity, and the part
# of their names before their number.
OnDisk = tuple[disk_cache.DiskCache, str, str]


class ObjectReads(chunked_reads.ChunkedReads, abc.ABC):
  """An array whose chunks are ranges of objects.

  It is the `ChunkSource` of its cache. Chunks are numbered through all objects,
  `chunks_per_object` for each.
  """

  def read_objects(
    self,
    files: storage.Storage,
    restore: str,
    *,
    chunks_per_object: int,
    cache_bytes: int,
    disk: OnDisk | None = None,
    has_crc: bool = False,
  ) -> None:
    """Sets where chunks are; reads nothing yet.

    Args:
      files: The storage.
      restore: What to do where an object is missing or damaged.
      chunks_per_object: Chunks of an object.
      cache_bytes: Most decoded bytes that are cached or on their way, one chunk
        at least.
      disk: Where chunks are kept on a local disk, too, as they are stored.
      has_crc: Whether stored chunks end with their crc32c, which `_decode`
        compares with that of the chunk's number; chunks of others get one on
        the disk, of their name too.
    """
    self._files = files
    self._restore = restore
    self._chunks_per_object = chunks_per_object
    self._disk = disk
    self._has_crc = has_crc
    # By object where its chunks are, looked up once by threads at once.
    self._indexes = memo.Memo(_REMEMBERED)
    self._lock = threading.Lock()
    self.cache: chunk_cache.ChunkCache = chunk_cache.ChunkCache(
      self, cache_bytes, self.counters
    )
    self._plans_ahead = files.is_remote

  @abc.abstractmethod
  def _object(self, number: int) -> VersionedObject:
    """Returns an object by its number."""

  @abc.abstractmethod
  def _look_up(self, number: int) -> np.ndarray:
    """Returns offset and size of the chunks of an object, int64[N, 2]."""

  @abc.abstractmethod
  def _decode(self, chunk: int, stored: bytes) -> np.ndarray:
    """Returns the values of a stored chunk, read-only and checked.

    Raises:
      StoreError: If it is not what was written.
    """

  def nbytes(self, chunk: int) -> int:
    """Returns the bytes of a decoded chunk."""
    del chunk
    return self._chunk * self._dtype.itemsize

  def runs(self, chunks: Sequence[int]) -> list[list[int]]:
    """Divides ascending chunks into those of one request.

    On a local disk each is read alone: then several are decoded at once.
    """
    most = max(1, JOINED_BYTES // self.nbytes(0))
    return self._neighbours(chunks, most if self._files.is_remote else 1)

  def read_run(self, run: list[int]) -> Iterator[tuple[int, np.ndarray]]:
    """Yields the chunks of a run, from the disk those that are there."""
    missing: list[int] = []
    for chunk in run:
      values = self._from_disk(chunk)
      if values is None:
        missing.append(chunk)
      else:
        yield chunk, values
    for chunks in self._neighbours(missing, len(run)):
      for chunk, stored, values in self._fetched(chunks):
        self._to_disk(chunk, stored)
        yield chunk, values

  def damaged(self, number: int, what: str) -> errors.StoreError:
    """Returns the error of a damaged object."""
    url = self._files.url(self._object(number)[0])
    return errors.StoreError(f"{url}: {what}. {self._restore}")

  def _neighbours(self, chunks: Sequence[int], most: int) -> list[list[int]]:
    """Returns ascending chunks in lists of neighbours within an object."""
    per_object = self._chunks_per_object
    return ragged.neighbours(chunks, lambda i: i % per_object == 0, most)

  def _fetched(
    self, chunks: list[int]
  ) -> Iterator[tuple[int, bytes, np.ndarray]]:
    """Yields chunks that follow each other, as stored and decoded."""
    number, first_chunk = divmod(chunks[0], self._chunks_per_object)
    index = self._index(number)
    entries = index[first_chunk : first_chunk + len(chunks)].tolist()
    # Our writer puts neighbours side by side; others may not.
    first = 0
    for last in range(1, len(chunks) + 1):
      begin, end = entries[first][0], sum(entries[last - 1])
      if last < len(chunks) and entries[last][0] == end:
        continue
      decoded: list[tuple[int, bytes, np.ndarray]] = []

      def check(
        data: bytes,
        begin: int = begin,
        part: slice = slice(first, last),
        decoded: list[tuple[int, bytes, np.ndarray]] = decoded,
      ) -> None:
        decoded.clear()
        for chunk, (start, size) in zip(
          chunks[part], entries[part], strict=True
        ):
          stored = data[start - begin : start - begin + size]
          decoded.append((chunk, stored, self._decode(chunk, stored)))

      if begin == end:
        check(b"")
      else:
        self._get(number, begin, end, check)
      yield from decoded
      first = last

  def _index(self, number: int) -> np.ndarray:
    """Returns offset and size of each chunk of an object, int64[N, 2]."""
    with self._lock:
      index: futures.Future[np.ndarray] | None = self._indexes.get(number)
      # One that failed is looked up again.
      is_new = index is None or (index.done() and index.exception() is not None)
      if index is None or is_new:
        index = futures.Future()
        self._indexes.put(number, index)
    if is_new:
      try:
        index.set_result(self._look_up(number))
      except BaseException as error:  # Other threads wait for it.
        index.set_exception(error)
        raise
    return index.result()

  def _read_index(
    self,
    number: int,
    byte_range: tuple[int, int | None],
    decode: Callable[[bytes], np.ndarray],
    rule: str,
  ) -> np.ndarray:
    """Reads the index of an object.

    Args:
      number: The object.
      byte_range: Where its index is, as in `Storage.get`.
      decode: Returns offset and size of each chunk; raises ValueError.
      rule: What the index must be, for the message.
    """
    index: list[np.ndarray] = []

    def check(data: bytes) -> None:
      try:
        index[:] = [decode(data)]
      except ValueError as error:
        raise self.damaged(number, f"{rule}, got {error}") from error

    self._get(number, *byte_range, check)
    return index[0]

  def _get(
    self, number: int, start: int, stop: int | None, check: storage.Check
  ) -> None:
    """Has bytes of an object checked, as `Storage.get`, and counts them.

    Raises:
      StoreError: If it is missing, or cannot be read.
    """
    name, version = self._object(number)
    sent = requests.Requests()
    try:
      self._files.get(
        name, start, stop, check=check, version=version, sent=sent
      )
    except FileNotFoundError:
      raise self.damaged(number, "must exist, got no such object") from None
    finally:
      with self._lock:
        self.counters.requests += sent.requests
        self.counters.retries += sent.retries
        self.counters.corrupt += sent.corrupt
        self.counters.bytes_transferred += sent.bytes_read

  def _from_disk(self, chunk: int) -> np.ndarray | None:
    """Returns a chunk that is kept on disk as it was written, or None."""
    if self._disk is None:
      return None
    disk, identity, prefix = self._disk
    name = f"{prefix}.{chunk}"
    stored = disk.get(identity, name)
    if stored is None:
      return None
    try:
      if not self._has_crc:
        stored, crc = stored[:-CRC_BYTES], stored[-CRC_BYTES:]
        if crc != _crc(identity, name, stored):
          raise errors.StoreError(f"{name} must be followed by its crc32c")
      return self._decode(chunk, stored)
    except errors.StoreError:
      disk.remove(identity, name)
      return None

  def _to_disk(self, chunk: int, stored: bytes) -> None:
    if self._disk is None:
      return
    disk, identity, prefix = self._disk
    name = f"{prefix}.{chunk}"
    if not self._has_crc:
      stored += _crc(identity, name, stored)
    disk.put(identity, name, stored)


def _crc(identity: str, name: str, data: bytes) -> bytes:
  """Returns the crc32c of a chunk's identity, name and stored bytes.

  A file that another chunk's was copied over does not match it.
  """
  crc = checksums.crc32c(f"{identity}/{name}\0".encode())
  return checksums.extend(crc, data).to_bytes(CRC_BYTES, "little")
