# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Reading arrays of object stores: chunks that are on their way, and a cache.

A request costs tens of milliseconds, whatever its size, and a few of them a
hundred times that. So what is planned is asked for long before it is copied
(`prefetch` asks and returns), many requests are under way at once, neighbours
are one request, and one that takes far longer than others is sent twice.

Cached and coming chunks together stay within a budget. What a plan still needs
is kept; of the rest what was used longest ago goes first.
"""

import collections
from collections.abc import Collection
from collections.abc import Iterator
from concurrent import futures
import os
import threading
import time

import numpy as np
import zstandard

from chomp_data import errors
from chomp_data.stores import checksums
from chomp_data.stores import disk_cache
from chomp_data.stores import places
from chomp_data.stores import span_reads
from chomp_data.stores.zarr import array_layout
from chomp_data.stores.zarr import chunk_tables
from chomp_data.stores.zarr import manifest as manifest_lib
from chomp_data.stores.zarr import stored_array

# Requests under way at once in a process.
CONCURRENCY = 32

# Neighbouring chunks are one request up to this size: by then the time that a
# request costs is small beside the time that its bytes take.
JOINED_BYTES = 8 * 2**20

# A request is sent again after so many times what half of them take, and no
# sooner than this: a stray second request is cheap, many are not.
PATIENCE = 4.0
LEAST_PATIENCE_S = 0.1
_FIRST_PATIENCE_S = 1.0
_MOST_DOUBLED = 0.05

# Shards of which is kept where their chunks lie: 4 KiB each of 256 chunks.
_SHARDS_KEPT = 4_096

_pools: dict[int, futures.ThreadPoolExecutor] = {}


def _pool() -> futures.ThreadPoolExecutor:
  """Returns the threads that wait for requests, those of this process."""
  pool = _pools.get(os.getpid())
  if pool is None:
    pool = futures.ThreadPoolExecutor(CONCURRENCY, "chomp_data-read")
    _pools[os.getpid()] = pool
    places.at_exit(lambda: pool.shutdown(wait=False, cancel_futures=True))
  return pool


def _runs(chunks: list[int]) -> list[list[int]]:
  """Returns ascending chunks in lists of neighbours."""
  runs: list[list[int]] = []
  for chunk in chunks:
    if runs and chunk == runs[-1][-1] + 1:
      runs[-1].append(chunk)
    else:
      runs.append([chunk])
  return runs


class RemoteArray(stored_array.StoredArray):
  """An array in an object store, with at most `cache_bytes` of it kept."""

  def __init__(
    self,
    place: places.ObjectPlace,
    name: str,
    entry: manifest_lib.ArrayEntry,
    table: chunk_tables.ChunkTable,
    counters: span_reads.Counters,
    check: stored_array.ChunkCheck | None = None,
    cache_bytes: int = 0,
    disk: tuple[disk_cache.DiskCache, str] | None = None,
  ):
    """As `StoredArray`; the cache holds one chunk at least.

    Args:
      place: The store's.
      name: The array's.
      entry: Its layout and checksum.
      table: What is known of its chunks.
      counters: Counted into.
      check: As in `StoredArray`.
      cache_bytes: Most decoded bytes that are kept or on their way.
      disk: Where chunks are kept on a local disk and the store's hash, or None.
    """
    super().__init__(
      places.join(place.path, name), entry, table, counters, check
    )
    self._place = place
    self._name = name
    self._disk = disk
    self._room = max(1, cache_bytes // self._layout.chunk_bytes)
    self._lock = threading.Condition(threading.RLock())
    self._cache: collections.OrderedDict[int, np.ndarray] = (
      collections.OrderedDict()
    )
    # Chunks under way, and what went wrong with those that did not come.
    self._coming: set[int] = set()
    self._failed: dict[int, Exception] = {}
    # Planned and not yet asked for, in the order of the copies to come.
    self._queue: collections.OrderedDict[int, None] = collections.OrderedDict()
    # Which prefetches a chunk is kept for. Reading comes to them one after
    # the other, so that a copy for one ends those before it.
    self._plans: dict[int, set[int]] = {}
    self._planned = 0
    self._reading = 0
    # Where the chunks of shards lie; a lock of each, so that threads that need
    # the same look it up once.
    self._shards: collections.OrderedDict[int, np.ndarray] = (
      collections.OrderedDict()
    )
    self._turns: dict[int, threading.Lock] = {}
    self._tables = threading.Lock()
    self._sent = places.Requests()
    self._seconds: collections.deque[float] = collections.deque(maxlen=64)

  def chunks(self, chunks: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    wanted = chunks.tolist()
    with self._lock:
      self._read_by_plan(wanted)
      room = self._room
      found = {i: self._cache[i] for i in wanted if i in self._cache}
      for chunk in found:
        self._cache.move_to_end(chunk)
      missing = [i for i in wanted if i not in found]
    # What is held goes first: fetching the others may evict it.
    yield from found.items()
    del found
    for low in range(0, len(missing), room):
      yield from self._fetched(missing[low : low + room])

  def set_cache_bytes(self, cache_bytes: int) -> None:
    with self._lock:
      self._room = max(1, cache_bytes // self._layout.chunk_bytes)
      self._make_room(0, ())
      self._ask_for_planned()

  def _prefetch(self, chunks: np.ndarray) -> bool:
    wanted = list(dict.fromkeys(chunks.tolist()))
    with self._lock:
      self.counters.chunk_requests += len(wanted)
      self._planned += 1
      for chunk in wanted:
        self._plans.setdefault(chunk, set()).add(self._planned)
        if chunk not in self._cache and chunk not in self._coming:
          self._queue[chunk] = None
      self._ask_for_planned()
      return not self._queue

  def _read_by_plan(self, chunks: list[int]) -> None:
    """Notes that chunks are copied; lets go of plans that reading has left."""
    plans = [self._plans[i] for i in chunks if i in self._plans]
    common = set.intersection(*plans) if plans else set()
    if not common or min(common) <= self._reading:
      return
    self._reading = min(common)
    for chunk, own in list(self._plans.items()):
      own.difference_update([i for i in own if i < self._reading])
      if not own:
        del self._plans[chunk]
        self._queue.pop(chunk, None)
    self._ask_for_planned()

  def _ask_for_planned(self) -> None:
    """Asks for what is planned next, as far as there is room."""
    free = self._room - len(self._cache) - len(self._coming)
    over = [i for i in self._cache if i not in self._plans]
    count = min(len(self._queue), free + len(over))
    for chunk in over[: max(count - free, 0)]:
      del self._cache[chunk]
    self._ask([i for i, _ in zip(self._queue, range(count), strict=False)])

  def _fetched(self, chunks: list[int]) -> list[tuple[int, np.ndarray]]:
    """Returns chunks that fit in the cache together, waiting for them."""
    found: dict[int, np.ndarray] = {}
    with self._lock:
      while True:
        for chunk in chunks:
          if chunk in self._cache:
            found[chunk] = self._cache[chunk]
            self._cache.move_to_end(chunk)
          elif chunk in self._failed:
            raise self._failed.pop(chunk)
        if len(found) == len(chunks):
          return list(found.items())
        new = [i for i in chunks if i not in found and i not in self._coming]
        fits = self._make_room(len(new), chunks)
        if not fits and not self._coming:
          fits = 1  # The room became smaller than this request meanwhile.
        self._ask(new[:fits])
        self._lock.wait(1.0)

  def _make_room(self, count: int, keep: Collection[int]) -> int:
    """Evicts chunks for others; returns how many fit now, `count` at most.

    What no plan needs goes first, then what is planned for later, the latest
    first. Chunks on their way cannot be sent back.
    """
    free = self._room - len(self._cache) - len(self._coming)
    if free < count:
      over = [i for i in self._cache if i not in keep]
      over.sort(key=lambda i: -max(self._plans.get(i, ()), default=2**62))
      for chunk in over[: count - free]:
        del self._cache[chunk]
        free += 1
        if chunk in self._plans:
          self._queue[chunk] = None
    return max(min(free, count), 0)

  def _ask(self, chunks: list[int]) -> None:
    """Sends for chunks; neighbours in a shard are one request."""
    most = max(1, JOINED_BYTES // self._layout.chunk_bytes)
    runs: list[list[int]] = []
    for chunk in sorted(chunks):
      self._queue.pop(chunk, None)
      self._coming.add(chunk)
      if (
        runs
        and chunk == runs[-1][-1] + 1
        and chunk % self._layout.chunks_per_shard
        and len(runs[-1]) < most
      ):
        runs[-1].append(chunk)
      else:
        runs.append([chunk])
    # Those needed first first.
    order = {chunk: i for i, chunk in enumerate(chunks)}
    for run in sorted(runs, key=lambda own: min(order[i] for i in own)):
      _pool().submit(self._receive, run)

  def _receive(self, run: list[int]) -> None:
    """Reads chunks that follow each other; runs in a thread of the pool."""
    decoded: dict[int, np.ndarray] = {}
    failed: dict[int, Exception] = {}
    try:
      entries = self._entries(run[0] // self._layout.chunks_per_shard)
      for chunk in run:
        data = self._from_disk(chunk)
        if data is not None:
          decoded[chunk] = data
      for missing in _runs([i for i in run if i not in decoded]):
        for chunk, stored, data in self._stored(missing, entries):
          decoded[chunk] = data
          if self._disk is not None:
            self._disk[0].put(self._disk[1], f"{self._name}.{chunk}", stored)
    except Exception as error:
      failed = dict.fromkeys([i for i in run if i not in decoded], error)
    with self._lock:
      sent, counters = self._sent, self.counters
      counters.requests = sent.requests
      counters.retries = sent.retries
      counters.corrupt = sent.corrupt
      counters.bytes_transferred = sent.bytes_read
      for chunk, data in decoded.items():
        self._cache[chunk] = data[: self._layout.elements_of_chunk(chunk)]
        counters.chunks_fetched += 1
        counters.bytes_fetched += data.nbytes
      self._coming.difference_update(run)
      self._failed.update(failed)
      self._lock.notify_all()

  def _from_disk(self, chunk: int) -> np.ndarray | None:
    """Returns a chunk that is kept on disk as it was written, or None."""
    if self._disk is None:
      return None
    disk, store = self._disk
    name = f"{self._name}.{chunk}"
    stored = disk.get(store, name)
    if stored is None:
      return None
    try:
      data = self._decoded(chunk, stored)
      self.verify(chunk, data, counted=False)
    except errors.StoreError:
      disk.remove(store, name)
      return None
    return data

  def _stored(
    self, run: list[int], entries: np.ndarray
  ) -> Iterator[tuple[int, bytes, np.ndarray]]:
    """Yields chunks that follow each other in a shard: as stored, and decoded.

    What is not as it was written is asked for again; see `Place.read`.
    """
    shard = run[0] // self._layout.chunks_per_shard
    first = self._layout.chunks_of_shard(shard).start
    own = entries[run[0] - first : run[-1] - first + 1].tolist()
    chunks: list[tuple[int, bytes, np.ndarray]] = []
    # Our writer puts neighbours side by side; others may not.
    low = 0
    for high in range(1, len(run) + 1):
      begin, end = own[low][0], sum(own[high - 1])
      if high < len(run) and own[high][0] == end:
        continue
      places_of = list(zip(run[low:high], own[low:high], strict=True))

      def decode(
        data: bytes,
        begin: int = begin,
        places_of: list[tuple[int, list[int]]] = places_of,
      ) -> None:
        chunks.clear()
        for chunk, (start, size) in places_of:
          stored = data[start - begin : start - begin + size]
          stored = self._with_crc(stored)
          values = self._decoded(chunk, stored)
          self.verify(chunk, values, counted=False)
          chunks.append((chunk, stored, values))

      if begin == end:
        decode(b"")
      else:
        self._read(shard, begin, end, decode)
      yield from chunks
      low = high

  def _with_crc(self, stored: bytes) -> bytes:
    """Returns the stored bytes of a chunk with their crc32c at the end."""
    return stored

  def _entries(self, shard: int) -> np.ndarray:
    """Returns where a shard's chunks lie, int64[N, 2], looked up once."""
    with self._lock:
      turn = self._turns.setdefault(shard, threading.Lock())
    with turn:
      with self._lock:
        if shard in self._shards:
          self._shards.move_to_end(shard)
          return self._shards[shard]
      entries = self._looked_up(shard)
      with self._lock:
        self._shards[shard] = entries
        if len(self._shards) > _SHARDS_KEPT:
          gone, _ = self._shards.popitem(last=False)
          self._turns.pop(gone, None)
      return entries

  def _looked_up(self, shard: int) -> np.ndarray:
    """Returns offset and size of a shard's chunks, crc32c included.

    From the array's table; where that has no sizes, from the shard's index.
    """
    chunks = self._layout.chunks_of_shard(shard)
    # A table is read at its first use: here, where nobody waits for the lock.
    with self._tables:
      self.table.crc32c(chunks.start)
      sizes = [self.table.stored_bytes(i) for i in chunks]
    known = [own + array_layout.CRC_BYTES for own in sizes if own is not None]
    if len(known) == len(sizes):
      ends = np.cumsum(known)
      return np.stack([ends - known, known], axis=1)
    index: list[np.ndarray] = []

    def decode(data: bytes) -> None:
      try:
        index[:] = [array_layout.decode_index(data, len(chunks))]
      except ValueError as error:
        raise self.damaged(
          shard, f"must have a valid index, got {error}"
        ) from error

    self._read(shard, -self._layout.index_bytes, None, decode)
    return index[0]

  def _object(self, shard: int) -> tuple[str, int | str | None]:
    """Returns the object of a shard, and which version of it is read."""
    return f"{self._name}/{array_layout.shard_file(shard)}", None

  def _read(
    self, shard: int, begin: int, end: int | None, check: places.Check
  ) -> bytes:
    name, version = self._object(shard)
    began = time.perf_counter()
    try:
      data = self._place.read_within(
        name, begin, end, self._patience(), self._sent, version, check
      )
    except FileNotFoundError:
      raise self.damaged(shard, "must exist, got no such object") from None
    self._seconds.append(time.perf_counter() - began)
    return data

  def _patience(self) -> float | None:
    """Returns how long a request may take before it is sent again."""
    if self._sent.doubled > _MOST_DOUBLED * self._sent.requests + 2:
      return None
    seconds = sorted(self._seconds)
    if len(seconds) < 8:
      return _FIRST_PATIENCE_S
    return max(LEAST_PATIENCE_S, PATIENCE * seconds[len(seconds) // 2])

  def _decoded(self, chunk: int, stored: bytes) -> np.ndarray:
    """Returns a chunk's values as they are stored, read-only."""
    shard = chunk // self._layout.chunks_per_shard
    data = self._checked(chunk, stored)
    size = self._layout.chunk_bytes
    if self._layout.compression == "zstd":
      try:
        # Of its own: one may not be used by two threads.
        data = zstandard.ZstdDecompressor().decompress(data, size)
      except zstandard.ZstdError as error:
        raise self.damaged(
          shard, f"chunk {chunk} must be readable, got {error}"
        ) from error
    if len(data) != size:
      raise self.damaged(
        shard, f"chunk {chunk} must be of {size} bytes, got {len(data)}"
      )
    return np.frombuffer(data, self._layout.numpy_dtype)

  def _checked(self, chunk: int, stored: bytes) -> bytes:
    """Returns a chunk's bytes less the crc32c behind them, which is right."""
    data = stored[: -array_layout.CRC_BYTES]
    expected = stored[-array_layout.CRC_BYTES :]
    found = array_layout.crc_bytes(checksums.crc32c(data))
    if found != expected:
      raise self.damaged(
        chunk // self._layout.chunks_per_shard,
        f"chunk {chunk} must be followed by crc32c {found.hex()}, got"
        f" {expected.hex()}",
      )
    return data
