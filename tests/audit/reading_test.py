# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What is said to be fetched is what a reader fetches."""

import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data.audit import reading
from chomp_data.storage import chunk_cache
from chomp_data.testing import stores as testing_stores
from tests.audit import small_runs

CHUNK = 64  # tokens


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
  """Two compressed stores: a chunk is read where it is not in the cache."""
  directory = tmp_path_factory.mktemp("reading")
  rng = np.random.default_rng(0)
  out = {}
  for name in ("web", "books"):
    documents = [rng.integers(3, 250, n) for n in rng.integers(0, 90, 400)]
    testing_stores.make_store(
      directory / name, documents, chunk=CHUNK, compression="zstd"
    )
    out[name] = str(directory / name)
  return out


def run(paths, rows, shuffle, **fields):
  own = dict(small_runs.SHUFFLES[shuffle])
  if shuffle == "block" and rows not in ("ffd", "exact"):
    own["io_block_size"] = 4
  return {
    "seq_len": 16,
    "global_batch_size": 4,
    "epochs": 3,
    "sources": {
      name: {"store": path, "rows": small_runs.ROWS[rows], "shuffle": own}
      for name, path in paths.items()
    },
    **fields,
  }


def read(pipe, steps, group_steps):
  """Chunks that a reader fetched for some steps, by source."""
  source = pipeline.batch_source(pipe, group_steps=group_steps)
  for step in range(steps):
    source[step]
  return {n: own.chunks_fetched for n, own in source.reads.by_source().items()}


def build(data, room):
  pipe = pipeline.build(data)
  for own in pipe.sources.values():
    size = own.store.opened.token_dtype.itemsize
    own.store.set_cache(room * CHUNK * size)
  return pipe


@pytest.mark.parametrize(
  ("rows", "shuffle"),
  [
    *(
      pytest.param("sequential", own, marks=[pytest.mark.slow] * (own == "era"))
      for own in small_runs.SHUFFLES
    ),
    ("ffd", "block"),
    ("multi_splice", "full"),
  ],
)
@pytest.mark.parametrize(
  "room", [60, pytest.param(1_000, marks=pytest.mark.slow)]
)
def test_a_count_is_about_what_a_reader_fetches(
  paths, rows, shuffle, room, monkeypatch
):
  monkeypatch.setattr(reading, "GROUP_ROWS", 16)
  pipe = build(run({"web": paths["web"]}, rows, shuffle), room)
  steps = pipe.num_steps
  (found,) = reading.fetched(pipe, steps).values()
  (fetched,) = read(pipe, steps, 4).values()
  assert found.how == "counted"
  # What goes first of a cache that is too small is decided otherwise.
  few = found.chunks if room > 500 else pytest.approx(fetched, rel=0.05)
  assert few == fetched
  assert 0 < found.requests <= found.chunks


def test_the_chunks_of_a_mix_are_told_by_source(paths):
  data = run(paths, "ffd", "block", mix={"weights": {"web": 1, "books": 2}})
  pipe = build(data, 1_000)
  found = reading.fetched(pipe, 52)
  assert {n: own.chunks for n, own in found.items()} == read(pipe, 52, 4)


def test_sources_share_the_budget_of_a_process(paths, monkeypatch):
  own = pipeline.build(run(paths, "sequential", "full"))
  chunk_bytes = CHUNK * own.sources["web"].store.opened.token_dtype.itemsize
  budget = chunk_cache.PROCESS_BUDGET
  counts = {}
  for room in (20, 40):
    monkeypatch.setattr(budget, "capacity", room * chunk_bytes)
    found = reading.fetched(own, own.num_steps)
    counts[room] = {name: each.chunks for name, each in found.items()}
  # Half of 40 chunks for each of two sources, as a cache of 20 chunks.
  pipe = build(run(paths, "sequential", "full"), 20)
  alone = reading.fetched(pipe, pipe.num_steps)
  assert {name: each.chunks for name, each in alone.items()} == counts[40]
  assert counts[20]["web"] > counts[40]["web"]


@pytest.mark.parametrize("shuffle", ["block", "full"])
def test_a_sample_is_close_to_a_count(paths, shuffle, monkeypatch):
  data = run({"web": paths["web"]}, "sequential", shuffle, epochs=40)
  pipe = build(data, 40)
  monkeypatch.setattr(reading, "GROUP_ROWS", 64)
  counted = reading.fetched(pipe, pipe.num_steps)["web"]
  assert counted.how == "counted"
  monkeypatch.setattr(reading, "MAX_ROWS", 100)
  monkeypatch.setattr(reading, "STRETCH_ROWS", 256)
  monkeypatch.setattr(reading, "MAX_WINDOW", 512)
  sampled = reading.fetched(pipe, pipe.num_steps)["web"]
  assert sampled.how == "sampled"
  for name in ("chunks", "requests", "bytes"):
    own, whole = getattr(sampled, name), getattr(counted, name)
    assert own == pytest.approx(whole, rel=0.1), name


@pytest.mark.parametrize("buckets", [False, True])
def test_what_is_skipped_is_not_fetched(paths, buckets):
  data = run({"web": paths["web"]}, "sequential", "none", skip=((2, 60),))
  if buckets:
    data["sources"] = {"web": {"store": paths["web"]}}
    data["buckets"] = {
      "kind": "length",
      "lengths": (16, 96),
      "tokens_per_batch": 192,
    }
    del data["seq_len"], data["global_batch_size"]
  pipe = build(data, 1_000)
  for steps in (2, 3, 9):
    (found,) = reading.fetched(pipe, steps).values()
    assert found.chunks == read(pipe, steps, 1)["web"]


def test_the_chunks_of_two_stores_are_their_own(paths, tmp_path):
  rng = np.random.default_rng(1)
  documents = [rng.integers(3, 250, n) for n in rng.integers(0, 90, 100)]
  testing_stores.make_store(tmp_path / "more", documents, chunk=16)
  data = run({"web": paths["web"]}, "sequential", "full")
  data["sources"]["web"]["store"] = (paths["web"], str(tmp_path / "more"))
  pipe = build(data, 10_000)
  (found,) = reading.fetched(pipe, pipe.num_steps).values()
  assert found.chunks == read(pipe, pipe.num_steps, 4)["web"]
  stored = pipe.sources["web"].store.opened.stored_bytes
  assert found.bytes == pytest.approx(stored, rel=0.01)
