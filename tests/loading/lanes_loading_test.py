# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Lanes: P processes x W workers fetch about what one reader fetches."""

import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data import schema
from chomp_data.loading import batches
from chomp_data.plans import plan as plan_lib
from chomp_data.testing import stores as testing_stores

SEQ_LEN = 16
CHUNK_ROWS = 8
NUM_CHUNKS = 1_607
BATCH = 32
READERS = 16
SMALL_CHUNK = 64  # tokens


@pytest.fixture(scope="module")
def store(tmp_path_factory):
  rng = np.random.default_rng(0)
  path = tmp_path_factory.mktemp("lanes") / "store"
  tokens = rng.integers(3, 250, NUM_CHUNKS * CHUNK_ROWS * SEQ_LEN)
  testing_stores.make_store(
    path,
    np.array_split(tokens, 40),
    compression="zstd",
    chunk=CHUNK_ROWS * SEQ_LEN,
  )
  return path


def build(store, epochs=1, **shuffle):
  return pipeline.build(
    {
      "seq_len": SEQ_LEN,
      "global_batch_size": BATCH,
      "seed": 1,
      "epochs": epochs,
      "sources": {
        "text": {
          "store": str(store),
          "rows": {"kind": "sequential"},
          "shuffle": {"kind": "block", "window_blocks": 2, **shuffle},
        }
      },
    }
  )


def local_rows(pipe, rows):
  return plan_lib.LocalRows({bucket.name: rows for bucket in pipe.buckets})


def readers(pipe, processes, workers, size=BATCH):
  """Yields the sources of all readers, and the steps that each is asked for."""
  columns = size // processes
  for process in range(processes):
    rows = np.arange(process * columns, (process + 1) * columns)
    for worker in range(workers):
      source = pipeline.batch_source(pipe, local_rows(pipe, rows))
      yield rows, source.for_workers(workers), worker


def chunks_fetched(pipe, processes, workers, first_step=0, size=BATCH):
  chunks = 0
  for _, source, worker in readers(pipe, processes, workers, size):
    for step in range(first_step + worker, pipe.num_steps, workers):
      source[step]
    chunks += source.reads.by_source()["text"].chunks_fetched
  return chunks


@pytest.mark.parametrize(
  ("options", "processes", "workers", "most"),
  [
    ({}, 1, 1, 1.05),
    ({}, 1, 16, 1.3),
    ({}, 4, 4, 1.3),
    pytest.param({}, 16, 1, 1.3, marks=pytest.mark.slow),
    pytest.param({"lane_rows": 2}, 16, 1, 1.05, marks=pytest.mark.slow),
  ],
)
def test_readers_fetch_little_more_than_one(
  store, options, processes, workers, most
):
  pipe = build(store, lanes=READERS, **options)
  assert chunks_fetched(pipe, processes, workers) <= most * NUM_CHUNKS


@pytest.mark.slow
def test_without_lanes_they_fetch_the_chunks_of_each_other(store):
  pipe = build(store, window_blocks=32)
  assert chunks_fetched(pipe, 4, 4) > 4 * NUM_CHUNKS


def test_a_second_epoch_and_a_resume_cost_no_more(store):
  pipe = build(store, epochs=2, lanes=READERS)
  first = pipe.num_steps // 4 + 3
  needed = 2 * NUM_CHUNKS * (1 - first / pipe.num_steps)
  assert chunks_fetched(pipe, 4, 4, first) <= 1.3 * needed


def test_lanes_are_in_the_fingerprint_where_there_are_some(store):
  def shuffle(**options):
    found = build(store, **options).fingerprint["sources"]["text"]["shuffle"]
    return {k: found[k] for k in ("lanes", "lane_rows") if k in found}

  assert not shuffle()
  assert shuffle(lanes=16) == {"lanes": 256, "lane_rows": 2}
  # As many as divide a batch of 32.
  assert shuffle(lanes=24) == {"lanes": 192, "lane_rows": 4}
  assert shuffle(lanes=16, lane_rows=2) == {"lanes": 16, "lane_rows": 2}


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
  rng = np.random.default_rng(0)
  path = tmp_path_factory.mktemp("bins") / "store"
  lengths = rng.integers(2, 40, 12_000)
  tokens = rng.integers(3, 250, int(lengths.sum()))
  testing_stores.make_store(
    path,
    np.split(tokens, np.cumsum(lengths)[:-1]),
    compression="zstd",
    chunk=SMALL_CHUNK,
  )
  return path, -(-len(tokens) // SMALL_CHUNK)


def packed(path, cache_bytes=2**31, epochs=1, **rows):
  return pipeline.build(
    {
      "seq_len": SEQ_LEN,
      "global_batch_size": 8 * BATCH,
      "seed": 1,
      "epochs": epochs,
      "shuffle_cache_bytes": cache_bytes,
      "sources": {
        "text": {
          "store": str(path),
          # Windows of 20 chunks and more.
          "rows": {"kind": "bin", "packing_buffer_docs": 64, **rows},
          "shuffle": {"kind": "block", "lanes": 4, "window_blocks": 1},
        }
      },
    }
  )


EXACT = {"packing_algorithm": "exact"}
PACKED = {
  "ffd": {},
  "exact": EXACT,
  "block": {**EXACT, "shuffle_documents": "block", "reshuffle_documents": True},
}


@pytest.mark.parametrize(
  "name",
  [
    "ffd",
    *(pytest.param(n, marks=pytest.mark.slow) for n in ("exact", "block")),
  ],
)
def test_packing_windows_are_dealt_to_lanes(texts, name):
  path, chunks = texts
  pipe = packed(path, epochs=2, **PACKED[name])
  size = 8 * BATCH
  first = pipe.num_steps // 4 + 3
  left = 2 * chunks * (1 - first / pipe.num_steps)
  assert chunks_fetched(pipe, 4, 4, first, size) <= 1.3 * left
  for step in range(0, pipe.num_steps, 41):
    rows = np.arange(64, 128)
    np.testing.assert_array_equal(
      pipeline.batch_source(pipe, local_rows(pipe, rows))[step]["tokens"],
      pipe.canonical(step)["tokens"][rows],
    )


@pytest.mark.parametrize("name", ["ffd", "exact"])
def test_one_reader_of_packed_lanes_fetches_each_chunk_once(texts, name):
  path, chunks = texts
  # Two windows of each lane: less than a quarter of the store.
  pipe = packed(path, 2 * 16 * 28 * SMALL_CHUNK * 2, **PACKED[name])
  kept = pipe.run_plan.rows.windows
  assert (kept.window_blocks, kept.cache_windows) == (1, 2)
  assert kept.total_bytes < chunks * SMALL_CHUNK * 2 / 4
  # Planned together are parts of a window, as of large ones they are.
  source = batches.BatchSource(pipe.run_plan, group_steps=2)
  for step in range(pipe.num_steps):
    source[step]
  fetched = source.reads.by_source()["text"].chunks_fetched
  assert fetched <= 1.05 * chunks


def mixed(path, store, lanes=4, later=None, weights=(0.7, 0.3), **options):
  sources = {
    "text": {"store": str(store), "rows": {"kind": "sequential"}},
    "bins": {
      "store": str(path),
      "rows": {"kind": "bin", "packing_buffer_docs": 64, "pad_token_id": 0},
    },
  }
  stages = {0: dict(zip(sources, weights, strict=True)), **(later or {})}
  for name, source in sources.items():
    own = lanes.get(name) if isinstance(lanes, dict) else lanes
    source["shuffle"] = {"kind": "block", "window_blocks": 2, "lanes": own}
  return pipeline.build(
    {
      "seq_len": SEQ_LEN,
      "global_batch_size": 8 * BATCH,
      "seed": 1,
      "mix": {
        "stages": list(stages.items()),
        **options,
      },
      "sources": sources,
    }
  )


def read_by_parts(pipe, processes, steps):
  """Returns the chunks that processes fetch of a mix, by source."""
  found, columns = {}, 8 * BATCH // processes
  for process in range(processes):
    rows = np.arange(process * columns, (process + 1) * columns)
    source = pipeline.batch_source(pipe, local_rows(pipe, rows))
    for step in range(steps):
      source[step]
    for name, own in source.reads.by_source().items():
      found[name] = found.get(name, 0) + own.chunks_fetched
  return found


# Groups of 64 steps of a quarter of a batch are fetched whole.
@pytest.mark.slow
def test_processes_share_few_chunks_of_a_mix(texts, store):
  pipe = mixed(texts[0], store)
  alone, all_of_them = (read_by_parts(pipe, count, 64) for count in (1, 4))
  for name, chunks in alone.items():
    assert all_of_them[name] <= 1.3 * chunks, name
  without = mixed(texts[0], store, lanes=None)
  assert read_by_parts(without, 4, 64)["text"] > 2 * alone["text"]


def rows_of(spans):
  """Returns what each row holds."""
  rows = [[] for _ in range(spans.num_rows)]
  for row, *span in zip(
    spans.row, spans.document, spans.start, spans.length, strict=True
  ):
    rows[row].append(span)
  return rows


def test_lanes_move_rows_of_a_mix_within_their_batch_only(texts, store):
  pipe = mixed(texts[0], store, {"text": 4})
  mix = pipe.run_plan.merge
  size = 8 * BATCH
  for step in (0, 7, 31):
    ends = [mix.rows_before(row) for row in (step * size, (step + 1) * size)]
    expected = [
      row
      for name, part in pipe.run_plan.ordered.items()
      for row in rows_of(part.plan(np.arange(ends[0][name], ends[1][name])))
    ]
    assert sorted(rows_of(pipe.plan(step))) == sorted(expected)
    own = np.arange(64, 128)
    np.testing.assert_array_equal(
      pipeline.batch_source(pipe, local_rows(pipe, own))[step]["tokens"],
      pipe.canonical(step)["tokens"][own],
    )
  several = np.random.default_rng(0).integers(0, 40 * size, 60)
  assert rows_of(mix.plan(several)) == [
    rows_of(mix.plan(np.asarray([row])))[0] for row in several
  ]
  taken = mix.rows_before(9 * size)["text"]
  found = mix.rows_of("text", np.arange(taken))
  assert len(found) == taken
  assert (found < 9 * size).all()
  part = pipe.run_plan.ordered["text"]
  assert rows_of(mix.plan(found)) == rows_of(part.plan(np.arange(taken)))


def test_sources_of_a_mix_have_the_same_lanes(texts, store):
  with pytest.raises(schema.ConfigError, match="with the same shuffle"):
    mixed(texts[0], store, {"text": 4, "bins": 8})


def test_rows_of_lanes_without_lanes_are_refused(store):
  with pytest.raises(schema.ConfigError, match="where there are no lanes"):
    build(store, lane_rows=4)
