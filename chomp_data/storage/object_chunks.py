# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Chunks that are ranges of the objects of a storage.

Neighbours are one request, and a request to a bucket that takes far longer than
others is sent twice. Every chunk is checked as it is decoded; what is not as it
was written is requested again. With a `DiskCache` chunks are kept on a local
disk, as they are stored.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from concurrent import futures
import dataclasses
import threading

import numpy as np

from chomp_data import errors
from chomp_data.index import memo
from chomp_data.storage import checksums
from chomp_data.storage import chunk_cache
from chomp_data.storage import disk_cache
from chomp_data.storage import requests
from chomp_data.storage import storage

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


@dataclasses.dataclass(frozen=True)
class Ranges:
  """Where chunks of one object are stored.

  Attributes:
    name: The object.
    version: Of the object that is read; None is any.
    entries: int64[N, 2], offset and size of each chunk, in bytes.
  """

  name: str
  version: int | str | None
  entries: np.ndarray


class ChunkIndexes:
  """Where the chunks of objects are, looked up once by threads at once."""

  def __init__(self, look_up: Callable[[int], np.ndarray]):
    """Looks up nothing yet.

    Args:
      look_up: Returns offset and size of each chunk of an object, int64[N, 2].
    """
    self._look_up = look_up
    self._indexes = memo.Memo(_REMEMBERED)
    self._lock = threading.Lock()

  def get(self, number: int) -> np.ndarray:
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


class ObjectChunks:
  """A `ChunkSource` of chunks of one size in objects."""

  def __init__(
    self,
    files: storage.Storage,
    counters: chunk_cache.Counters,
    advice: str,
    locate: Callable[[list[int]], Ranges],
    decode: Callable[[int, bytes], np.ndarray],
    *,
    chunk_bytes: int,
    chunks_per_object: int,
    disk: OnDisk | None = None,
    has_crc: bool = False,
  ):
    """Reads nothing yet.

    Args:
      files: The objects.
      counters: Requests are counted into.
      advice: What to do where an object is missing.
      locate: Returns where chunks that follow each other in an object are.
      decode: Returns the read-only values of a stored chunk; raises StoreError
        where it is not what was written.
      chunk_bytes: Of a decoded chunk.
      chunks_per_object: Chunks of an object that are read together at most.
      disk: Where chunks are kept on a local disk, too, as they are stored.
      has_crc: Whether stored chunks end with their crc32c, which `decode`
        compares with that of the chunk's number; chunks of others get one on
        the disk, of their name too.
    """
    self._files = files
    self._counters = counters
    self._advice = advice
    self._locate = locate
    self._decode = decode
    self._chunk_bytes = chunk_bytes
    self._chunks_per_object = chunks_per_object
    self._disk = disk
    self._has_crc = has_crc
    self._lock = threading.Lock()

  def get(
    self,
    name: str,
    start: int,
    stop: int | None,
    check: storage.Check,
    version: int | str | None = None,
  ) -> bytes:
    """Returns checked bytes of an object, as `Storage.get`, and counts them.

    Raises:
      StoreError: If it is missing, or cannot be read.
    """
    sent = requests.Requests()
    try:
      return self._files.get(
        name, start, stop, check=check, version=version, sent=sent
      )
    except FileNotFoundError:
      raise errors.StoreError(
        f"{self._files.url(name)}: must exist, got no such object."
        f" {self._advice}"
      ) from None
    finally:
      with self._lock:
        self._counters.requests += sent.requests
        self._counters.retries += sent.retries
        self._counters.corrupt += sent.corrupt
        self._counters.bytes_transferred += sent.bytes_read

  def nbytes(self, chunk: int) -> int:
    """Returns the bytes of a decoded chunk."""
    del chunk
    return self._chunk_bytes

  def runs(self, chunks: Sequence[int]) -> list[list[int]]:
    """Divides ascending chunks into those of one request.

    On a local disk each is read alone: then several are decoded at once.
    """
    most = max(1, JOINED_BYTES // self._chunk_bytes)
    most = most if self._files.is_remote else 1
    return _neighbours(chunks, most, self._chunks_per_object)

  def read(self, run: list[int]) -> Iterator[tuple[int, np.ndarray]]:
    """Yields the chunks of a run, from the disk those that are there."""
    missing: list[int] = []
    for chunk in run:
      values = self._from_disk(chunk)
      if values is None:
        missing.append(chunk)
      else:
        yield chunk, values
    for chunks in _neighbours(missing, len(run), self._chunks_per_object):
      for chunk, stored, values in self._fetched(chunks):
        self._to_disk(chunk, stored)
        yield chunk, values

  def _fetched(
    self, chunks: list[int]
  ) -> Iterator[tuple[int, bytes, np.ndarray]]:
    """Yields chunks that follow each other, as stored and decoded."""
    ranges = self._locate(chunks)
    entries = ranges.entries.tolist()
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
        self.get(ranges.name, begin, end, check, ranges.version)
      yield from decoded
      first = last

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


def _neighbours(
  chunks: Sequence[int], most: int, per_object: int
) -> list[list[int]]:
  """Returns ascending chunks in lists of neighbours within an object."""
  runs: list[list[int]] = []
  for chunk in chunks:
    if (
      runs
      and chunk == runs[-1][-1] + 1
      and chunk % per_object
      and len(runs[-1]) < most
    ):
      runs[-1].append(chunk)
    else:
      runs.append([chunk])
  return runs


def _crc(identity: str, name: str, data: bytes) -> bytes:
  """Returns the crc32c of a chunk's identity, name and stored bytes.

  A file that another chunk's was copied over does not match it.
  """
  crc = checksums.crc32c(f"{identity}/{name}\0".encode())
  return checksums.extend(crc, data).to_bytes(CRC_BYTES, "little")
