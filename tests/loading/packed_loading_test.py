# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Packed, shuffled rows through every layer: workers, processes, states.

The configs are those of configs/packed.py and block_shuffle.py in small, and
the hardest one: documents reshuffled in every epoch, so that epochs differ in
their rows.
"""

import concurrent.futures
import sys
import threading

import numpy as np
import pytest

from chomp_data import iterators
from chomp_data import pipeline
from chomp_data.testing import batch_hashes
from chomp_data.testing import stores as testing_stores

BLOCK = {"kind": "block", "window_blocks": 2}
KINDS = {
  "packed": ({"kind": "bin", "packing_buffer_docs": 3, "add_eos": True}, BLOCK),
  "reshuffled": (
    {
      "kind": "bin",
      "packing_buffer_docs": 2,
      "packing_algorithm": "exact",
      "shuffle_documents": "full",
    },
    BLOCK,
  ),
  "sequential": (
    {"kind": "sequential", "add_bos": True, "bos_token_id": 2},
    {**BLOCK, "io_block_size": 4},
  ),
}


@pytest.fixture(params=KINDS)
def packed(request, data):
  rows, shuffle = KINDS[request.param]
  source = {**data["sources"]["text"], "rows": rows, "shuffle": shuffle}
  return {**data, "lookahead": True, "sources": {"text": source}}


def test_groups_begin_where_windows_do(packed):
  pipe = pipeline.build(packed)
  rows = pipe.run_plan.rows
  size = pipe.global_batch_size
  for step in range(pipe.num_steps):
    first, last = pipe.run_plan.group(step, 8)
    assert first <= step < last <= pipe.num_steps
    assert last - first <= 8 or rows.read_group(first * size)[1] >= last * size
    low, high = rows.read_group(step * size)
    if high - low <= 8 * size:
      # A window that fits in a group is never split: its steps share one.
      own = range(-(-low // size), min(-(-high // size), pipe.num_steps))
      assert first <= own[0]
      assert own[-1] < last


def test_reads_are_counted_by_source(packed):
  pipe = pipeline.build(packed)
  source = pipeline.batch_source(pipe)
  for step in range(pipe.num_steps):
    source[step]
  reads = source.reads.by_source()["text"]
  assert reads.examples == pipe.num_steps * pipe.global_batch_size
  assert reads.unique_examples <= reads.examples
  assert reads.spans == len(pipe.plan(0, pipe.num_steps))
  # Tokens after a row are read too.
  assert reads.spans < reads.logical_reads <= reads.spans + reads.examples
  assert 0 < reads.coalesced_ranges < reads.spans
  assert reads.chunks_fetched > 0
  assert reads.bytes_fetched > 0
  assert "reads_per_example=" in reads.line()


def sources_of(data, count, store, **shuffle):
  own = {
    "store": store,
    "rows": {"kind": "sequential"},
    "shuffle": {"kind": "block", "io_block_size": 8, **shuffle},
  }
  return {**data, "sources": {f"s{i}": own for i in range(count)}}


def test_kept_windows_reach_the_store_and_spare_reading(data, tmp_path):
  rng = np.random.default_rng(0)
  store = testing_stores.make_store(
    tmp_path / "zstd", [rng.integers(3, 250, 4_096)], compression="zstd"
  )
  again = {}
  for kept in (1, 8):  # Of the 8 windows of 2 blocks of one chunk each.
    own = sources_of(data, 1, store.path, cache_windows=kept, window_blocks=2)
    own |= {"epochs": 1, "global_batch_size": 4}
    source = pipeline.batch_source(pipeline.build(own), group_steps=1)

    def fetched(source=source):
      return source.reads.by_source()["s0"].chunks_fetched

    for step in range(len(source)):
      source[step]
    assert fetched() == 16
    source[0]
    again[kept] = fetched() - 16
  assert again[1] > 0
  assert again[8] == 0


def test_a_source_that_joins_later_narrows_no_other_window(data, store_path):
  block = 256 * 2  # bytes of an aligned block of 8 rows of 32 tokens
  own = sources_of(data, 2, store_path, window_blocks=4)
  own |= {"epochs": None, "shuffle_cache_bytes": 5 * block}
  one = {**own, "sources": {"s1": own["sources"]["s1"]}}
  one["mix"] = {"stages": [(0, {"s1": 1})]}
  two = {**own, "mix": {"stages": [(0, {"s1": 1}), (20, {"s0": 1, "s1": 1})]}}
  with iterators.make_iterator(one) as it:
    for _ in range(7):
      next(it)
    saved = it.get_state()
  with iterators.make_iterator(two) as it:
    it.set_state(saved)
    assert it.step == 7
  widths = {
    name: own["shuffle"]["window_blocks"]
    for name, own in pipeline.build(two).fingerprint["sources"].items()
  }
  assert widths == {"s1": 4, "s0": 1}


def test_distinct_rows_are_counted_over_an_epochs_end(data, store_path):
  own = sources_of(data, 1, store_path)
  own["sources"]["s0"]["shuffle"] = {"kind": "none"}
  pipe = pipeline.build({**own, "epochs": 2, "global_batch_size": 1})
  source = pipeline.batch_source(pipe, group_steps=pipe.num_steps)
  for step in range(pipe.num_steps):
    source[step]
  reads = source.reads.by_source()["s0"]
  assert reads.planned_examples == reads.examples == pipe.num_steps
  assert reads.unique_examples == pipe.num_steps // 2


def planned_rows(source, steps):
  """Returns the rows of each group that was planned for steps."""
  found, before = [], 0
  for step in steps:
    source[step]
    (reads,) = source.reads.by_source().values()
    if reads.planned_examples > before:
      found.append(reads.planned_examples - before)
      before = reads.planned_examples
  return found


def test_a_reader_of_mapped_tokens_begins_with_few_rows(tmp_path):
  store = testing_stores.make_store(
    tmp_path / "store", [np.arange(9) % 7 + 2] * 900, chunk=1024
  )
  data = {
    "seq_len": 4,
    "global_batch_size": 8,
    "epochs": None,
    "sources": {
      "a": {"store": str(store.path), "rows": {"kind": "sequential"}}
    },
  }
  pipe = pipeline.build(data)
  # Groups of a window are cut from its begin on, wherever reading begins.
  got = planned_rows(pipeline.batch_source(pipe), range(1_200))
  assert got[:5] == [8, 8, 16, 32, 64]
  assert len(got) < 13
  # Another place is a first batch again, also for one of two readers.
  moved = [*range(30), *range(10**6, 10**6 + 8)]
  assert planned_rows(pipeline.batch_source(pipe), moved)[6:] == [8, 8, 16, 32]
  source = pipeline.batch_source(pipe).for_workers(2)
  assert planned_rows(source, range(1, 30, 2))[:2] == [8, 8]


@pytest.mark.parametrize("packed", ["reshuffled", "sequential"], indirect=True)
def test_threads_that_share_a_source_get_the_steps_they_ask_for(packed):
  pipe = pipeline.build(packed)
  steps = range(pipe.num_steps)
  wanted = [batch_hashes.batch_sha256(pipe.canonical(step)) for step in steps]
  source = pipeline.batch_source(pipe, group_steps=4)
  count = 4
  together = threading.Barrier(count)

  def read(thread):
    # By turns as Grain's threads, then in no order.
    order = [*steps[thread::count], *steps[thread::count]]
    order += np.random.default_rng(thread).permutation(len(steps)).tolist()
    together.wait()
    return [
      step
      for step in order
      if batch_hashes.batch_sha256(source[step]) != wanted[step]
    ]

  interval = sys.getswitchinterval()
  sys.setswitchinterval(1e-6)
  try:
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
      assert list(pool.map(read, range(count))) == [[]] * count
  finally:
    sys.setswitchinterval(interval)
