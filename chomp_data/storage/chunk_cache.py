# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Decoded chunks of any source, requested ahead, within one budget of bytes.

A chunk is what is read, checked and decoded as one, and has a number. A plan is
what one call of `prefetch` names: the chunks of some batches, in the order of
their copies. Copies come to the plans one after the other, so that a copy of
chunks of a later plan ends those before it.

    cache = ChunkCache(source, cache_bytes, counters)
    cache.prefetch([3, 4, 9])          # requests what fits, and returns
    for chunk, values in cache.get([4, 3]):
      ...                              # waits for what is on its way

Chunks that are cached and those on their way stay within the bound of their
cache together. Where there is no room for a chunk, another one goes: first one
that no plan names, the one used longest ago; then one of a plan that was copied
from, as before; then the one that is needed last.

All caches of a process stay within one `Budget` besides, those apart that have
a share of their own (`set_cache_bytes`).
"""

import collections
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from concurrent import futures
import dataclasses
import functools
import os
import threading
from typing import Protocol
import weakref

import numpy as np

from chomp_data.storage import requests

# Chunks are read by so many threads of a process at once.
CONCURRENCY = 32

_pools: dict[int, futures.ThreadPoolExecutor] = {}


class ChunkSource(Protocol):
  """Where chunks are read from. Threads call it at once."""

  def nbytes(self, chunk: int) -> int:
    """Returns the bytes of a decoded chunk."""
    ...

  def runs(self, chunks: Sequence[int]) -> list[list[int]]:
    """Divides ascending chunks into lists that are read together."""
    ...

  def read_run(self, run: list[int]) -> Iterable[tuple[int, np.ndarray]]:
    """Yields the chunks of a run, each with its checked, read-only values.

    Raises:
      StoreError: If one cannot be read; those yielded before are right.
    """
    ...


@dataclasses.dataclass
class Counters:
  """What a reader did in this process.

  The cost of a step is a difference: take a `snapshot()` before it, and
  subtract. Counts are exact if one thread at a time reads a store.

  Attributes:
    spans: Spans copied.
    logical_reads: Reads that copying took one at a time: one for each span.
    coalesced_ranges: Reads that are left of the spans of each `prefetch`, once
      those that touch or overlap are one.
    chunk_requests: One for each chunk that each span touches, and one for each
      chunk that `prefetch` asked for.
    chunks_fetched: Requests that read a chunk and checked it.
    bytes_fetched: Decoded bytes of these chunks.
    requests: Requests to an object store, retries included.
    retries: Of these, tries after one that failed, or whose answer was corrupt.
    corrupt: Answers that were too short, too long, or not what was written.
    bytes_transferred: Bytes received from there, as they are stored.
  """

  spans: int = 0
  logical_reads: int = 0
  coalesced_ranges: int = 0
  chunk_requests: int = 0
  chunks_fetched: int = 0
  bytes_fetched: int = 0
  requests: int = 0
  retries: int = 0
  corrupt: int = 0
  bytes_transferred: int = 0

  @property
  def cache_hits(self) -> int:
    """Chunk requests that fetched nothing."""
    return self.chunk_requests - self.chunks_fetched

  def snapshot(self) -> "Counters":
    """Returns a copy that counts no further."""
    return dataclasses.replace(self)

  def as_dict(self) -> dict[str, int]:
    """Returns every count by name, `cache_hits` included."""
    return {**dataclasses.asdict(self), "cache_hits": self.cache_hits}

  def __add__(self, other: "Counters") -> "Counters":
    names = [field.name for field in dataclasses.fields(self)]
    return Counters(*(getattr(self, n) + getattr(other, n) for n in names))

  def __sub__(self, other: "Counters") -> "Counters":
    names = [field.name for field in dataclasses.fields(self)]
    return Counters(*(getattr(self, n) - getattr(other, n) for n in names))


class Budget:
  """Bytes that several caches hold together at most.

  Each may hold a chunk whatever the others hold. Where there is no room, the
  cache that holds the most bytes gives way.
  """

  def __init__(self, capacity: int):
    """No cache holds anything yet.

    Args:
      capacity: Most bytes; a cache with a larger bound raises it.
    """
    self.capacity: int = capacity
    self.held_bytes: int = 0
    self._caches: weakref.WeakSet[ChunkCache] = weakref.WeakSet()
    # A cache may be collected, and leave, at any allocation.
    self._lock = threading.RLock()

  def join(self, cache: "ChunkCache", cache_bytes: int) -> None:
    """Adds a cache that holds nothing yet."""
    with self._lock:
      self._caches.add(cache)
      self.capacity = max(self.capacity, cache_bytes)

  def leave(self, cache: "ChunkCache") -> None:
    """Removes a cache, with what it holds."""
    with self._lock:
      self._caches.discard(cache)
    self.add(-cache.held_bytes)

  def add(self, num_bytes: int) -> None:
    """Adds to the bytes that caches hold; negative for evicted ones."""
    with self._lock:
      self.held_bytes += num_bytes

  def largest(self) -> "ChunkCache | None":
    """Returns the cache that holds the most bytes, if any does."""
    with self._lock:
      caches = list(self._caches)
    return max(caches, key=lambda cache: cache.held_bytes, default=None)


# Of all decoded chunks of a process without a share: tokens of sources that no
# block shuffle reads, offsets, ids, metadata, labels and weights.
PROCESS_BUDGET = Budget(2**30)


class ChunkCache:
  """The chunks of a source that are cached or on their way."""

  def __init__(
    self,
    source: ChunkSource,
    cache_bytes: int,
    counters: Counters,
    *,
    in_threads: bool = True,
    budget: Budget = PROCESS_BUDGET,
  ):
    """Reads nothing yet.

    Args:
      source: What chunks are read from.
      cache_bytes: Most decoded bytes that are cached or on their way, at least
        one chunk's.
      counters: Counts chunks where they are requested.
      in_threads: Whether chunks are read by the threads of the process, else by
        the thread that asks: for sources that take less time than a thread.
      budget: What this cache and others hold together.
    """
    self._source = source
    self._capacity = cache_bytes
    self._counters = counters
    self._in_threads = in_threads
    self._lock = threading.Lock()
    # Cached and on their way; what was used longest ago comes first.
    self._chunks: collections.OrderedDict[int, futures.Future[np.ndarray]] = (
      collections.OrderedDict()
    )
    self._held_bytes: int = 0
    # The plan that copies are for, and those that follow it.
    self._plans: collections.deque[frozenset[int]] = collections.deque()
    self._planned: set[int] = set()
    # Planned and not copied from since, in the order of the copies to come.
    self._expected: dict[int, None] = {}
    # None once this cache has a share of its own.
    self._budget: Budget | None = budget
    budget.join(self, cache_bytes)

  def __del__(self) -> None:
    """Returns what was held to the budget."""
    budget = getattr(self, "_budget", None)
    if budget is not None:
      budget.add(-self._held_bytes)

  @property
  def held_bytes(self) -> int:
    """Decoded bytes of the chunks that are cached or on their way."""
    return self._held_bytes

  @property
  def held(self) -> list[int]:
    """The chunks that are cached or on their way, ascending."""
    with self._lock:
      return sorted(self._chunks)

  def prefetch(self, chunks: Sequence[int]) -> bool:
    """Plans chunks, and requests what is planned as far as there is room.

    Args:
      chunks: In the order of the copies to come, repeated or not.

    Returns:
      Whether there is room for more than was planned so far.
    """
    plan = dict.fromkeys(chunks)
    with self._lock:
      self._counters.chunk_requests += len(plan)
      if plan:
        self._plans.append(frozenset(plan))
      self._planned.update(plan)
      for chunk in plan:
        self._expected.setdefault(chunk)
      requested = self._request(self._expected, self._planned)
      has_room = all(chunk in self._chunks for chunk in self._expected)
    self._start(requested)
    return has_room

  def get(self, chunks: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
    """Yields chunks, first those that are cached; waits for the others.

    Args:
      chunks: Distinct chunks.

    Yields:
      (chunk, its values).

    Raises:
      StoreError: If one cannot be read.
    """
    remaining = dict.fromkeys(chunks)
    awaited: list[futures.Future[np.ndarray]] = []
    with self._lock:
      requested = self._enter_plan(remaining)
    self._start(requested)
    while remaining:
      with self._lock:
        ready = {
          chunk: self._chunks[chunk]
          for chunk in remaining
          if chunk in self._chunks and self._chunks[chunk].done()
        }
        for chunk in ready:
          self._chunks.move_to_end(chunk)
          self._expected.pop(chunk, None)
        if not ready:
          requested = self._request(remaining, remaining, is_needed=True)
          awaited = self._awaited(remaining)
      if not ready:
        self._start(requested)
        futures.wait(awaited)
      for chunk, future in ready.items():
        del remaining[chunk]
        yield chunk, self._result(chunk, future)

  def set_cache_bytes(self, cache_bytes: int) -> None:
    """Gives this cache a share of its own; evicts what is beyond it."""
    with self._lock:
      self._capacity = cache_bytes
      if self._budget is not None:
        self._budget.leave(self)
        self._budget = None
      for chunk in self._victims(()):
        if self._held_bytes <= cache_bytes or len(self._chunks) == 1:
          break
        if self._chunks[chunk].done():
          self._evict(chunk)
      requested = self._request(self._expected, self._planned)
    self._start(requested)

  def _enter_plan(
    self, chunks: Collection[int]
  ) -> dict[int, futures.Future[np.ndarray]]:
    """Ends the plans before the first one that has all planned chunks."""
    planned = [chunk for chunk in chunks if chunk in self._planned]
    number = next(
      (i for i, plan in enumerate(self._plans) if plan.issuperset(planned)), 0
    )
    if not number or not planned:
      return {}
    for _ in range(number):
      self._plans.popleft()
    self._planned = set().union(*self._plans)
    self._expected = {i: None for i in self._expected if i in self._planned}
    return self._request(self._expected, self._planned)

  def give_way(self, also_expected: bool) -> bool:
    """Evicts one chunk for another cache, unless a thread is using this one.

    Args:
      also_expected: Whether it may be one that is planned and not copied yet.

    Returns:
      Whether it did.
    """
    if not self._lock.acquire(blocking=False):
      return False
    try:
      victim = next(self._victims(()), None)
      if (
        victim is None
        or not self._chunks[victim].done()
        or (victim in self._expected and not also_expected)
      ):
        return False
      self._evict(victim)
      return True
    finally:
      self._lock.release()

  def _request(
    self,
    chunks: Iterable[int],
    keep: Collection[int],
    *,
    is_needed: bool = False,
  ) -> dict[int, futures.Future[np.ndarray]]:
    """Adds chunks that are missing, until there is no room for the next one.

    Args:
      chunks: In the order in which they are needed.
      keep: Chunks that are not evicted for them.
      is_needed: Whether a copy waits for them; other caches then evict what
        they expect, too.

    Returns:
      The chunks that were added, for `_start`, which needs no lock.
    """
    requested: dict[int, futures.Future[np.ndarray]] = {}
    victims = self._victims(keep)
    for chunk in chunks:
      if chunk in self._chunks:
        continue
      size = self._source.nbytes(chunk)
      while self._chunks:
        is_full = self._held_bytes + size > self._capacity
        if not is_full and not self._is_over_budget(size):
          break
        if not is_full and self._others_evict(is_needed):
          continue
        victim = next(victims, None)
        # What is on its way cannot be sent back.
        if victim is None or not self._chunks[victim].done():
          return requested
        self._evict(victim)
      self._chunks[chunk] = requested[chunk] = futures.Future()
      self._hold(size)
      self._counters.chunks_fetched += 1
      self._counters.bytes_fetched += size
    return requested

  def _victims(self, keep: Collection[int]) -> Iterator[int]:
    """Yields the chunks that may go, in the order in which they go."""
    held = [chunk for chunk in self._chunks if chunk not in keep]
    yield from [i for i in held if i not in self._planned]
    planned = [i for i in held if i in self._planned]
    yield from [i for i in planned if i not in self._expected]
    order = {chunk: i for i, chunk in enumerate(self._expected)}
    expected = [i for i in planned if i in order]
    yield from sorted(expected, key=order.__getitem__, reverse=True)

  def _evict(self, chunk: int) -> None:
    del self._chunks[chunk]
    self._hold(-self._source.nbytes(chunk))

  def _hold(self, num_bytes: int) -> None:
    self._held_bytes += num_bytes
    if self._budget is not None:
      self._budget.add(num_bytes)

  def _is_over_budget(self, size: int) -> bool:
    """Returns whether the caches have no room for a chunk together."""
    budget = self._budget
    return budget is not None and budget.held_bytes + size > budget.capacity

  def _others_evict(self, also_expected: bool) -> bool:
    """Has the cache that holds the most evict a chunk, if it is another one."""
    largest = None if self._budget is None else self._budget.largest()
    if largest is None or largest.held_bytes <= self._held_bytes:
      return False
    return largest.give_way(also_expected)

  def _awaited(self, chunks: Iterable[int]) -> list[futures.Future[np.ndarray]]:
    """Returns the first of some chunks; if all lack room, what takes it."""
    for chunk in chunks:
      if chunk in self._chunks:
        return [self._chunks[chunk]]
    return [future for future in self._chunks.values() if not future.done()][:1]

  def _start(self, requested: dict[int, futures.Future[np.ndarray]]) -> None:
    """Reads what was added to the cache; those needed first begin first."""
    order = {chunk: i for i, chunk in enumerate(requested)}
    runs = self._source.runs(sorted(requested))
    for run in sorted(runs, key=lambda run: min(order[i] for i in run)):
      waiting = {chunk: requested[chunk] for chunk in run}
      if self._in_threads:
        job = _pool().submit(self._read, waiting)
        job.add_done_callback(functools.partial(_cancel, waiting))
      else:
        self._read(waiting)

  def _read(self, waiting: dict[int, futures.Future[np.ndarray]]) -> None:
    """Reads the chunks of a run."""
    try:
      for chunk, values in self._source.read_run(list(waiting)):
        waiting.pop(chunk).set_result(values)
    except BaseException as error:
      for future in waiting.values():
        future.set_exception(error)
      if not isinstance(error, Exception):
        raise  # Of a thread that is stopped.

  def _result(
    self, chunk: int, future: futures.Future[np.ndarray]
  ) -> np.ndarray:
    """Returns a chunk that was read; one that failed is requested again."""
    try:
      return future.result()
    except BaseException:
      with self._lock:
        if self._chunks.get(chunk) is future:
          self._evict(chunk)
      raise


def _cancel(
  waiting: dict[int, futures.Future[np.ndarray]], job: futures.Future[None]
) -> None:
  """Ends the wait for chunks that are not read, as the process ends."""
  if job.cancelled():
    for future in waiting.values():
      future.cancel()


def _pool() -> futures.ThreadPoolExecutor:
  """Returns the threads of this process that read chunks."""
  pool = _pools.get(os.getpid())
  if pool is None:
    pool = futures.ThreadPoolExecutor(CONCURRENCY, "chomp_data-read")
    _pools[os.getpid()] = pool
    requests.at_exit(lambda: pool.shutdown(wait=False, cancel_futures=True))
  return pool
