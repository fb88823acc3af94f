# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The cache of chunks: within its budget, in plan order, each chunk once."""

import gc
import random
import threading

import numpy as np
import pytest

from chomp_data import errors
from chomp_data.storage import chunk_cache


class Source:
  """Chunks that hold their number, of sizes that differ on request."""

  def __init__(self, sizes=lambda chunk: 8, gate=None):
    self.sizes = sizes
    self.gate = gate
    self.broken = set()
    self.reads = []
    self.cache = None
    self.most_held = 0

  def nbytes(self, chunk):
    return self.sizes(chunk)

  def runs(self, chunks):
    return [[chunk] for chunk in chunks]

  def read_run(self, run):
    if self.gate is not None:
      assert self.gate.wait(10.0)
    self.most_held = max(self.most_held, self.cache.held_bytes)
    for chunk in run:
      self.reads.append(chunk)
      if chunk in self.broken:
        raise errors.StoreError(f"chunk {chunk} is damaged")
      yield chunk, np.full(self.sizes(chunk) // 8, chunk)


def opened(cache_bytes, in_threads=False, **options):
  source = Source(**options)
  source.cache = chunk_cache.ChunkCache(
    source, cache_bytes, chunk_cache.Counters(), in_threads=in_threads
  )
  return source, source.cache


def got(cache, *chunks):
  """Returns the chunks in the order in which they came, after a check."""
  out = []
  for chunk, values in cache.get(chunks):
    assert set(values.tolist()) == {chunk}
    out.append(chunk)
  assert sorted(out) == sorted(chunks)
  return out


def test_cached_chunks_come_first_and_nothing_is_read_twice():
  source, cache = opened(8 * 8)
  got(cache, 3, 4)
  assert got(cache, 1, 3, 2, 4) == [3, 4, 1, 2]
  assert source.reads == [3, 4, 1, 2]


def test_a_prefetch_requests_what_fits_in_the_order_of_copies():
  source, cache = opened(3 * 8)
  assert not cache.prefetch([9, 2, 7, 2, 1, 8])
  assert source.reads == [9, 2, 7]
  assert cache.held_bytes == 3 * 8
  # What is copied makes room for what comes, and is not read again.
  got(cache, 9, 2)
  got(cache, 1)
  got(cache, 7, 8)
  assert source.reads == [9, 2, 7, 1, 8]


def test_a_prefetch_says_whether_there_is_room():
  _, cache = opened(4 * 8)
  assert cache.prefetch([1, 2])
  assert cache.prefetch([2, 3, 4])
  assert not cache.prefetch([5])


def test_a_copy_for_a_plan_ends_those_before_it():
  source, cache = opened(4 * 8)
  for plan in ([1, 2], [3, 4], [5, 6], [7, 8]):
    cache.prefetch(plan)
  assert source.reads == [1, 2, 3, 4]
  got(cache, 1)
  assert len(source.reads) == 4
  got(cache, 3)
  assert source.reads == [1, 2, 3, 4, 5, 6]
  assert cache.held == [3, 4, 5, 6]
  # A jump: the plans between are passed.
  got(cache, 8)
  assert 7 in source.reads
  assert cache.held[-2:] == [7, 8]


def test_chunks_of_several_plans_are_kept_to_the_last():
  source, cache = opened(4 * 8)
  for plan in ([1, 2, 3], [2, 3, 4], [3, 4, 5], [6]):
    cache.prefetch(plan)
  for chunks in ((1, 2), (3,), (2, 4), (3,), (4, 5), (3,), (6,)):
    got(cache, *chunks)
  assert sorted(source.reads) == [1, 2, 3, 4, 5, 6]


def test_what_no_plan_names_goes_first_then_what_was_copied():
  source, cache = opened(4 * 8)
  got(cache, 20)
  cache.prefetch([1, 2, 3])
  got(cache, 1)
  got(cache, 21)
  assert cache.held == [1, 2, 3, 21]
  got(cache, 22)
  got(cache, 23)
  assert {2, 3} <= set(cache.held)
  got(cache, 2, 3)
  assert source.reads == [20, 1, 2, 3, 21, 22, 23]


@pytest.mark.parametrize("in_threads", [False, True])
@pytest.mark.parametrize("capacity", [0, 1, 3, 10, 100])
def test_the_budget_holds_for_chunks_of_any_size(in_threads, capacity):
  def size(chunk):
    return 8 * (1 + chunk % 5)

  source, cache = opened(8 * capacity, in_threads, sizes=size)
  drawn = random.Random(capacity)
  for step in range(200):
    chunks = drawn.sample(range(40), drawn.randint(1, 12))
    if step % 3 == 0:
      cache.prefetch(chunks + drawn.sample(range(40), 5))
    got(cache, *chunks)
    # One chunk at least, whatever its size.
    assert cache.held_bytes <= max(8 * capacity, 5 * 8)
    assert cache.held_bytes == sum(map(size, cache.held))
  assert source.most_held <= max(8 * capacity, 5 * 8)


def test_a_smaller_budget_evicts_and_a_larger_one_requests():
  source, cache = opened(4 * 8)
  got(cache, 1, 2, 3, 4)
  cache.set_cache_bytes(2 * 8)
  assert cache.held == [3, 4]
  cache.set_cache_bytes(0)
  assert cache.held == [4]
  cache.prefetch([7, 8, 9])
  assert cache.held == [7]
  cache.set_cache_bytes(3 * 8)
  assert cache.held == [7, 8, 9]
  assert source.reads[4:] == [7, 8, 9]


def of_one_budget(budget, count, **options):
  """Returns sources and their caches, each with the bound of all of them."""
  for _ in range(count):
    source = Source(**options)
    source.cache = chunk_cache.ChunkCache(
      source,
      budget.capacity,
      chunk_cache.Counters(),
      in_threads=False,
      budget=budget,
    )
    yield source, source.cache


def test_caches_of_a_process_stay_within_one_budget():
  budget = chunk_cache.Budget(6 * 8)
  (_, one), (_, two), (_, three) = of_one_budget(budget, 3)
  got(one, *range(6))
  assert one.held_bytes == budget.held_bytes == 6 * 8
  # The largest gives way until they hold the same.
  got(two, *range(6))
  assert one.held == [3, 4, 5]
  assert two.held == [3, 4, 5]
  got(three, 1, 2)
  assert one.held_bytes + two.held_bytes + three.held_bytes == 6 * 8
  assert three.held == [1, 2]
  assert budget.held_bytes == 6 * 8


def test_a_prefetch_takes_nothing_from_others_that_is_expected_there():
  budget = chunk_cache.Budget(4 * 8)
  (source, one), (_, two) = of_one_budget(budget, 2)
  got(one, 9)
  one.prefetch([1, 2, 3])
  assert one.held == [1, 2, 3, 9]
  assert not two.prefetch([5, 6, 7])
  assert two.held == [5]  # One at least, whatever the others hold.
  got(one, 1, 2, 3)
  assert source.reads == [9, 1, 2, 3]
  # A copy that waits takes it.
  one.prefetch([11, 12, 13])
  got(two, 5, 6)
  assert two.held == [5, 6]


def test_a_cache_with_a_share_of_its_own_is_apart():
  budget = chunk_cache.Budget(4 * 8)
  (_, one), (_, two) = of_one_budget(budget, 2)
  got(one, 1, 2, 3, 4)
  one.set_cache_bytes(4 * 8)
  assert budget.held_bytes == 0
  got(two, 1, 2, 3, 4)
  assert one.held == two.held == [1, 2, 3, 4]


def test_a_cache_that_is_gone_leaves_its_bytes():
  budget = chunk_cache.Budget(4 * 8)
  ((source, cache),) = of_one_budget(budget, 1)
  got(cache, 1, 2)
  assert budget.held_bytes == 2 * 8
  del source.cache, source, cache
  gc.collect()
  assert budget.held_bytes == 0


def test_threads_share_a_budget():
  budget = chunk_cache.Budget(7 * 8)
  caches = [cache for _, cache in of_one_budget(budget, 4)]
  failures = []

  def read(seed):
    drawn = random.Random(seed)
    try:
      for step in range(150):
        cache = caches[drawn.randrange(4)]
        chunks = drawn.sample(range(30), drawn.randint(1, 9))
        if step % 3 == seed % 3:
          cache.prefetch(chunks)
        got(cache, *chunks)
        # Each may hold one chunk whatever the others hold.
        assert budget.held_bytes <= (7 + 4) * 8
    except BaseException as error:
      failures.append(error)
      raise

  threads = [threading.Thread(target=read, args=(i,)) for i in range(4)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join(60.0)
  assert not any(thread.is_alive() for thread in threads)
  assert not failures
  assert budget.held_bytes == sum(cache.held_bytes for cache in caches)


@pytest.mark.parametrize("in_threads", [False, True])
def test_a_chunk_that_failed_is_an_error_and_is_read_again(in_threads):
  source, cache = opened(8 * 8, in_threads)
  source.broken = {2}
  cache.prefetch([1, 2, 3])
  with pytest.raises(errors.StoreError, match="chunk 2 is damaged"):
    got(cache, 1, 2, 3)
  with pytest.raises(errors.StoreError, match="chunk 2 is damaged"):
    got(cache, 2)
  source.broken = set()
  got(cache, 1, 2, 3)
  assert sorted(source.reads) == [1, 2, 2, 2, 3]


def test_a_thread_that_is_stopped_keeps_no_other_waiting():
  source, cache = opened(8 * 8)
  source.gate = threading.Event()
  source.gate.wait = lambda timeout: (_ for _ in ()).throw(KeyboardInterrupt)
  with pytest.raises(KeyboardInterrupt):
    cache.prefetch([1])
  with pytest.raises(KeyboardInterrupt):
    got(cache, 1)
  source.gate = None
  got(cache, 1)


def test_a_prefetch_returns_before_anything_is_read():
  gate = threading.Event()
  source, cache = opened(8 * 8, True, gate=gate)
  assert cache.prefetch([1, 2, 3])
  assert cache.held == [1, 2, 3]
  assert not source.reads
  gate.set()
  got(cache, 1, 2, 3)
  assert sorted(source.reads) == [1, 2, 3]


def test_what_is_on_its_way_is_waited_for_where_it_takes_the_room():
  gate = threading.Event()
  source, cache = opened(2 * 8, True, gate=gate)
  cache.prefetch([1, 2])
  threading.Timer(0.05, gate.set).start()
  got(cache, 7, 8, 9)
  assert source.most_held <= 2 * 8


def test_it_counts_what_it_requests():
  source = Source()
  counters = chunk_cache.Counters()
  source.cache = chunk_cache.ChunkCache(source, 64, counters, in_threads=False)
  source.cache.prefetch([1, 2, 1])
  got(source.cache, 1, 2, 3)
  assert counters.chunk_requests == 2
  assert counters.chunks_fetched == 3
  assert counters.bytes_fetched == 3 * 8


def test_threads_that_get_chunks_at_once_get_the_right_ones():
  _, cache = opened(5 * 8, True)
  failures = []

  def read(seed):
    drawn = random.Random(seed)
    try:
      for step in range(150):
        chunks = drawn.sample(range(30), drawn.randint(1, 9))
        if step % 3 == seed % 3:
          cache.prefetch(chunks)
        if step % 20 == 19:
          cache.set_cache_bytes(8 * drawn.randint(1, 8))
        got(cache, *chunks)
    except BaseException as error:
      failures.append(error)
      raise

  threads = [threading.Thread(target=read, args=(i,)) for i in range(4)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join(60.0)
  assert not any(thread.is_alive() for thread in threads)
  assert not failures
