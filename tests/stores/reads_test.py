# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads: right in any order, coalesced, counted; each chunk fetched once."""

import pickle
import threading

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data import stores
from chomp_data.kernels import compiled
from chomp_data.stores import span_reads
from chomp_data.stores.zarr import mapped_array
from chomp_data.testing import stores as testing_stores

CHUNK = 16
CHUNK_BYTES = 2 * CHUNK
NUM_CHUNKS = 60
# The last chunk is not full, and the last shard has fewer chunks.
SIZE = NUM_CHUNKS * CHUNK - 5
AMPLE = 2**20

TOKENS = np.random.default_rng(0).integers(0, 256, SIZE)


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
  """The same tokens as a mapped and as a compressed store."""
  parent = tmp_path_factory.mktemp("reads")
  out = {}
  for compression in ("none", "zstd"):
    out[compression] = parent / compression
    testing_stores.make_store(
      out[compression],
      np.split(TOKENS, [100, 100, 500]),
      compression=compression,
      chunk=CHUNK,
      chunks_per_shard=7,
    )
  return out


@pytest.fixture(params=["none", "zstd"])
def path(request, paths):
  return paths[request.param]


def compressed(paths, room):
  """Opens the compressed store with room for a number of chunks."""
  return stores.open_store(paths["zstd"], cache_bytes=room * CHUNK_BYTES)


def spans_of(*pairs):
  spans = np.asarray(pairs, np.int64).reshape(-1, 2)
  return spans[:, 0], spans[:, 1]


def chunks_of(*chunks):
  """Returns the spans of whole chunks, the last one excepted."""
  return spans_of(*((chunk * CHUNK, CHUNK) for chunk in chunks))


def naive_read(starts, lengths):
  """Reads one span after the other, as slices of an array in memory."""
  parts = []
  for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
    if start < 0 or length < 0 or start + length > SIZE:
      raise IndexError(start)
    parts.append(TOKENS[start : start + length])
  return np.concatenate([*parts, np.zeros(0, int)])


def copy(store, starts, lengths):
  """Copies spans side by side, without the checks of `read_tokens`."""
  out = np.full(int(lengths[lengths > 0].sum()), -1, np.int32)
  store.copy_tokens(starts, lengths, out, np.cumsum(lengths) - lengths)
  return out


def fetched_by(store, read, *spans):
  before = store.counters.snapshot()
  read(*spans)
  return (store.counters - before).chunks_fetched


# Spans that cross up to four chunks, and now and then one that is not there.
SPANS = st.lists(
  st.tuples(
    st.integers(0, SIZE) | st.sampled_from([-1, -SIZE, SIZE - 1, SIZE, 2**62]),
    st.integers(0, 3 * CHUNK) | st.sampled_from([0, 1, CHUNK]),
  ).filter(lambda s: s[0] < SIZE - 3 * CHUNK or s[0] + s[1] in (SIZE, SIZE + 1))
  | st.sampled_from([(0, 0), (SIZE, 0), (0, SIZE), (-1, 1), (0, -1)]),
  max_size=12,
).flatmap(
  # Repeated and in any order.
  lambda spans: (
    st.lists(st.sampled_from(spans), max_size=24) if spans else st.just([])
  )
)


@hypothesis.given(
  spans=SPANS,
  compression=st.sampled_from(["none", "zstd"]),
  room=st.sampled_from([0, 1, 2, 5, 100]),
  prefetched=st.booleans(),
  gathered=st.booleans(),
  max_open=st.sampled_from([1, 2, 256]),
)
def test_spans_read_as_naive_slices_or_are_refused_as_they_are(
  paths, spans, compression, room, prefetched, gathered, max_open
):
  starts, lengths = spans_of(*spans)
  store = stores.open_store(paths[compression], cache_bytes=room * CHUNK_BYTES)
  tokens = store.opened.tokens
  tokens.max_open_shards = max_open
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(span_reads, "GATHER_MIN_SPANS", 0 if gathered else 2**62)
    patch.setattr(span_reads, "GATHER_MEAN_LENGTH", 2**40)
    try:
      expected = naive_read(starts, lengths)
    except IndexError:
      with pytest.raises(IndexError, match="must be within"):
        store.prefetch(starts, lengths)
      with pytest.raises(IndexError, match="must be within"):
        copy(store, starts, lengths)
      return
    if prefetched:
      store.prefetch(starts, lengths)
    # The second time from chunks that were checked.
    for _ in range(2):
      assert copy(store, starts, lengths).tolist() == expected.tolist()
    at = starts[starts < SIZE]
    assert tokens.gather(at).tolist() == TOKENS[at].tolist()


@pytest.mark.parametrize("gathered", [False, True])
@hypothesis.settings(
  suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
@hypothesis.given(spans=SPANS)
def test_what_is_counted_does_not_depend_on_the_reader(
  paths, monkeypatch, gathered, spans
):
  monkeypatch.setattr(span_reads, "GATHER_MIN_SPANS", 0 if gathered else 2**62)
  monkeypatch.setattr(span_reads, "GATHER_MEAN_LENGTH", 2**40)
  starts, lengths = spans_of(*[s for s in spans if naive_is_valid(s)])
  touched = [
    range(start // CHUNK, (start + length - 1) // CHUNK + 1)
    for start, length in zip(starts, lengths, strict=True)
    if length
  ]
  distinct = set().union(*touched)
  for path in paths.values():
    store = stores.open_store(path)
    for _ in range(2):
      copy(store, starts, lengths)
    assert store.counters.as_dict() == {
      "spans": 2 * len(starts),
      "logical_reads": 2 * len(starts),
      "coalesced_ranges": 0,
      "chunk_requests": 2 * sum(map(len, touched)),
      "chunks_fetched": len(distinct),
      "bytes_fetched": len(distinct) * CHUNK_BYTES,
      "cache_hits": 2 * sum(map(len, touched)) - len(distinct),
      "requests": 0,
      "retries": 0,
      "corrupt": 0,
      "bytes_transferred": 0,
    }


def naive_is_valid(span):
  start, length = span
  return start >= 0 and length >= 0 and start + length <= SIZE


@hypothesis.given(
  st.lists(st.tuples(st.integers(0, 40), st.integers(0, 8)), max_size=12),
  st.sampled_from([0, 2**40]),
)
def test_ranges_cover_the_positions_of_the_spans_and_lie_apart(spans, base):
  starts, lengths = spans_of(*spans)
  range_starts, range_lengths = span_reads.coalesced_ranges(
    starts + base, lengths
  )
  assert range_starts.dtype == range_lengths.dtype == np.int64
  covered = [
    base + position
    for start, length in zip(starts, lengths, strict=True)
    for position in range(start, start + length)
  ]
  found = [
    position
    for start, length in zip(range_starts, range_lengths, strict=True)
    for position in range(start, start + length)
  ]
  assert found == sorted(set(covered))
  assert (range_lengths > 0).all()
  # Ranges that touch would be one.
  assert (range_starts[1:] > (range_starts + range_lengths)[:-1]).all()


def test_prefetch_counts_ranges_and_copies_count_spans(path):
  store = stores.open_store(path)
  starts, lengths = spans_of((40, 8), (0, 4), (4, 4), (42, 2), (4, 4))
  store.prefetch(starts, lengths)
  copy(store, starts, lengths)
  assert store.counters.coalesced_ranges == 2
  assert store.counters.spans == store.counters.logical_reads == 5


def test_lookups_of_documents_do_not_disturb_the_counters(path):
  store = stores.open_store(path)
  copy(store, *chunks_of(0, 1))
  before = store.counters.snapshot()
  store.bounds(np.asarray([3, 0, 1]))
  store.document_ids([2, 0])
  store.opened.ids.find(["1"])
  list(store.iter_lengths(2))
  assert store.counters == before


def block_shuffled(window_blocks, rows_per_block=4, seed=0):
  """Returns the starts of a pass in shuffled blocks of one chunk each."""
  rng = np.random.default_rng(seed)
  blocks = rng.permutation(NUM_CHUNKS - 1)
  rows = []
  for low in range(0, len(blocks), window_blocks):
    window = blocks[low : low + window_blocks, None] * rows_per_block
    rows.append(rng.permutation((window + np.arange(rows_per_block)).ravel()))
  return np.concatenate(rows) * (CHUNK // rows_per_block)


def pass_over(store, starts, batch, group):
  """Copies batches of a pass, after a prefetch of each group of batches."""
  lengths = np.full(len(starts), 4)
  for low in range(0, len(starts), batch):
    if group and low % (batch * group) == 0:
      ahead = slice(low, low + batch * group)
      store.prefetch(starts[ahead], lengths[ahead])
    here = slice(low, low + batch)
    found = copy(store, starts[here], lengths[here])
    assert found.tolist() == naive_read(starts[here], lengths[here]).tolist()
  return store.counters.chunks_fetched


# Groups that end with windows, that cross them, and that span several.
@pytest.mark.parametrize("group", [0, 1, 3, 100])
@pytest.mark.parametrize("batch", [3, 8, 20])
def test_a_cache_of_one_window_fetches_each_chunk_once(paths, batch, group):
  starts = block_shuffled(window_blocks=8)
  assert pass_over(compressed(paths, 8), starts, batch, group) == NUM_CHUNKS - 1
  assert pass_over(compressed(paths, 4), starts, batch, group) > NUM_CHUNKS - 1


def test_a_map_fetches_each_chunk_once_whatever_the_order(paths):
  store = stores.open_store(paths["none"], cache_bytes=0)
  store.opened.tokens.max_open_shards = 2
  starts = np.random.default_rng(0).permutation(block_shuffled(8))
  assert pass_over(store, starts, 8, 4) == NUM_CHUNKS - 1
  assert pass_over(store, starts, 8, 4) == NUM_CHUNKS - 1


def copier(store):
  return lambda starts, lengths: copy(store, starts, lengths)


def test_a_pickled_store_keeps_the_size_of_its_cache(paths):
  store = compressed(paths, 1)
  store.set_cache(8 * CHUNK_BYTES)
  again = pickle.loads(pickle.dumps(store))
  for reader in (store, again):
    copy(reader, *chunks_of(*range(10)))
    assert len(reader.opened.tokens.cache.held) == 8
    # The size is that of tokens; offsets keep what the store was opened with.
    _ = list(reader.iter_lengths())
    assert len(reader.opened.documents.offsets.cache.held) == 1
  assert again.counters == store.counters


def test_a_negative_size_of_the_cache_is_refused(path):
  with pytest.raises(ValueError, match=r"`cache_bytes` must .*got -1"):
    stores.open_store(path).set_cache(-1)


@pytest.mark.parametrize(
  ("start", "length"),
  [(-1, 2), (SIZE, 1), (SIZE - 1, 2), (0, -1), (2**63 - 1, 2), (0, 2**63 - 1)],
)
def test_a_prefetch_out_of_bounds_is_refused_and_fetches_nothing(
  path, start, length
):
  store = stores.open_store(path)
  message = f"span 1 .* {SIZE} tokens, got start {start}, length {length}"
  with pytest.raises(IndexError, match=message):
    store.prefetch(*spans_of((0, 4), (start, length)))
  assert store.counters == stores.Counters()


def test_a_prefetch_of_nothing_is_nothing(path):
  store = stores.open_store(path)
  store.prefetch(*spans_of())
  store.prefetch(*spans_of((0, 0), (SIZE, 0)))
  assert store.counters == stores.Counters()


def test_the_system_is_asked_once_for_each_chunk_and_for_a_bounded_part(
  paths, monkeypatch
):
  monkeypatch.setattr(mapped_array, "READ_AHEAD_BYTES", 3 * CHUNK_BYTES)
  store = stores.open_store(paths["none"])
  parts = []

  def asked():
    """Returns the chunks that were asked for, by their tokens."""
    whole = TOKENS[: (NUM_CHUNKS - 1) * CHUNK].reshape(-1, CHUNK)
    found = [np.frombuffer(part.tobytes(), np.uint16) for part in parts]
    return sorted(
      int(np.flatnonzero((whole == own).all(axis=1))[0]) for own in found
    )

  monkeypatch.setattr(mapped_array.file_maps, "read_soon", parts.append)
  copy(store, *chunks_of(4))
  wanted = chunks_of(4, 9, 2, 9, 7, 1, 8)
  store.prefetch(*wanted)
  # Not chunk 4, which was read; at most three at once.
  assert asked() == [2, 7, 9]
  store.prefetch(*wanted)
  assert asked() == [1, 2, 7, 8, 9]
  store.prefetch(*wanted)
  assert len(asked()) == 5
  # Advice is no touch: what is copied is fetched and checked as ever.
  assert store.counters.chunks_fetched == 1
  copy(store, *wanted)
  assert store.counters.chunks_fetched == 6


@pytest.mark.parametrize("room", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_threads_that_read_at_once_read_right(path, room):
  store = stores.open_store(path, cache_bytes=room * CHUNK_BYTES)
  if path.name == "none":
    store.opened.tokens.max_open_shards = 2
    compiled.wait()  # Its loops read maps that other threads close.
  failures = []
  together = threading.Barrier(3)

  def read(seed):
    rng = np.random.default_rng(seed)
    together.wait()
    try:
      for i in range(40):
        starts = rng.integers(0, SIZE - 3 * CHUNK, 20)
        lengths = rng.integers(0, 3 * CHUNK, 20)
        if i % 3 == seed % 3:
          store.prefetch(starts, lengths)
        if i % 20 == 19 and room == 3:
          store.set_cache(int(rng.integers(1, 5)) * CHUNK_BYTES)
        found = copy(store, starts, lengths)
        if found.tolist() != naive_read(starts, lengths).tolist():
          failures.append((seed, i))
    except BaseException as error:
      failures.append(error)
      raise

  threads = [threading.Thread(target=read, args=(i,)) for i in range(3)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert not failures
  if path.name == "none" or room == 100:
    assert store.counters.chunks_fetched == NUM_CHUNKS
