# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Shuffled sources: epochs are permutations, the same as the samplers'."""

import grain
import numpy as np
import pytest

import chomp_data
from chomp_data import schema
from chomp_data.loading import samplers
from chomp_data.order import shuffle_options
from chomp_data.testing import stores as testing_stores

SHUFFLES = {
  "none": {"kind": "none"},
  "full": {"kind": "full"},
  "linear": {"kind": "full", "perm_type": "linear"},
  "era": {"kind": "era", "era_length": 7},
  "block": {"kind": "block", "io_block_size": 4, "window_blocks": 3},
  "seeded": {"kind": "block", "io_block_size": 5, "seed": 9},
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
  rng = np.random.default_rng(0)
  documents = [
    rng.integers(3, 250, size=n) for n in rng.integers(0, 90, size=40)
  ]
  path = tmp_path_factory.mktemp("corpus") / "store"
  return testing_stores.make_store(path, documents)


def sequential(store, **options):
  return chomp_data.SequentialSource(
    store, chomp_data.SequentialOptions(**options), seq_len=16, name="text"
  )


def bins(store, **options):
  return chomp_data.BinSource(
    store,
    chomp_data.BinOptions(packing_buffer_docs=6, **options),
    seq_len=16,
    name="text",
  )


def shuffled(rows, run_seed=3, **options):
  return chomp_data.ShuffledSource(
    rows, chomp_data.ShuffleOptions(**options), run_seed
  )


def epoch_of(source, epoch):
  first, last = source.epochs.first_row(np.asarray([epoch, epoch + 1]))
  return first, source.order(np.arange(first, last))


@pytest.mark.parametrize("name", SHUFFLES)
def test_every_epoch_is_a_permutation_of_its_own_rows(store, name):
  source = shuffled(sequential(store), **SHUFFLES[name])
  seen = []
  for epoch in range(3):
    first, order = epoch_of(source, epoch)
    assert sorted(order) == list(range(first, first + len(order)))
    seen.append(tuple(order - first))
  assert len(set(seen)) == (1 if name == "none" else 3)


@pytest.mark.parametrize(
  ("kind", "rows"),
  [
    ("full", {}),
    ("block", {"packing_algorithm": "exact", "shuffle_documents": "block"}),
    ("era", {"packing_algorithm": "ffd", "shuffle_documents": "full"}),
    ("block", {"packing_algorithm": "ffd", "shuffle_documents": "full"}),
  ],
)
def test_bins_are_permuted_where_epochs_differ_in_rows(store, rows, kind):
  source = bins(store, **rows)
  options = {"era_length": 5} if kind == "era" else {}
  order = shuffled(source, kind=kind, **options)
  for epoch in range(3):
    first, rows_of = epoch_of(order, epoch)
    assert sorted(rows_of) == list(range(first, first + len(rows_of)))
  # Any rows at once, across epochs, as one by one.
  pick = np.random.default_rng(0).integers(0, 3 * len(source), 200)
  np.testing.assert_array_equal(
    order.order(pick), [order.order(np.asarray([r]))[0] for r in pick]
  )


def test_blocks_of_bins_are_whole_packing_windows(store):
  source = bins(store)
  starts = source.blocks(0)
  order = shuffled(source, kind="block", window_blocks=2)
  first, last = order.read_group(0)
  window = order.order(np.arange(first, last))
  block = np.unique(np.searchsorted(starts, window, side="right") - 1)
  assert len(block) == 2
  whole = [np.arange(starts[b], starts[b + 1]) for b in block]
  assert sorted(window) == sorted(np.concatenate(whole))


def test_another_name_or_seed_gives_another_order(store):
  rows = sequential(store)
  base = shuffled(rows, kind="full")
  other = shuffled(rows, run_seed=4, kind="full")
  own = shuffled(rows, kind="full", seed=4)
  again = chomp_data.ShuffledSource(
    rows, chomp_data.ShuffleOptions(kind="full", seed=4), 77
  )
  everything = np.arange(len(rows))
  orders = [tuple(s.order(everything)) for s in (base, other, own)]
  assert len(set(orders)) == 3
  # An order with a seed of its own does not depend on the run's.
  assert tuple(again.order(everything)) == orders[2]


def test_negative_rows_are_refused(store):
  for rows in (sequential(store), bins(store, shuffle_documents="block")):
    for kind in ("none", "full", "block"):
      with pytest.raises(IndexError, match="at least 0, got -1"):
        shuffled(rows, kind=kind).plan(np.asarray([3, -1]))


@pytest.mark.parametrize(
  ("name", "own_seed"), [("full", None), ("era", 9), ("block", None)]
)
def test_samplers_of_stock_grain_give_the_same_order(store, name, own_seed):
  rows = sequential(store)
  source = shuffled(rows, seed=own_seed, **SHUFFLES[name])
  sampler = {
    "full": lambda: samplers.FullShuffleSampler(
      len(rows), num_epochs=2, seed=3, name="text", own_seed=own_seed
    ),
    "era": lambda: samplers.EraShuffleSampler(
      len(rows),
      era_length=7,
      num_epochs=2,
      seed=3,
      name="text",
      own_seed=own_seed,
    ),
    "block": lambda: samplers.BlockShuffleSampler(
      len(rows),
      io_block_size=4,
      window_blocks=3,
      num_epochs=2,
      seed=3,
      name="text",
      own_seed=own_seed,
    ),
  }[name]()
  loader = grain.DataLoader(
    data_source=rows,
    sampler=sampler,
    shard_options=grain.sharding.NoSharding(),
    read_options=grain.ReadOptions(num_threads=0, prefetch_buffer_size=0),
  )
  for i, row in enumerate(loader):
    wanted = source.order(np.asarray([i]))[0] % len(rows)
    np.testing.assert_array_equal(row["tokens"], rows[int(wanted)]["tokens"])
  assert i == 2 * len(rows) - 1


def test_windows_that_do_not_fit_are_kept_fewer_and_then_narrowed():
  options = chomp_data.ShuffleOptions(kind="block")
  fits = shuffle_options.windows_within(options, 100, 8 * 8 * 100)
  assert (fits.window_blocks, fits.cache_windows, fits.narrowed) == (8, 8, None)
  fewer = shuffle_options.windows_within(options, 100, 3 * 8 * 100 + 50)
  assert (fewer.window_blocks, fewer.cache_windows) == (8, 3)
  assert fewer.narrowed is None
  narrow = shuffle_options.windows_within(options, 100, 350)
  assert (narrow.window_blocks, narrow.cache_windows) == (3, 1)
  assert "narrowed to 3 blocks" in narrow.narrowed
  least = shuffle_options.windows_within(options, 100, 1)
  assert least.window_blocks == 1


def test_a_narrowed_window_is_described_and_is_part_of_the_fingerprint(store):
  rows = sequential(store)
  options = chomp_data.ShuffleOptions(kind="block", io_block_size=16)
  wide = chomp_data.ShuffledSource(rows, options, 3)
  narrow = chomp_data.ShuffledSource(rows, options, 3, cache_bytes=900)
  assert "narrowed to 1 block" in narrow.windows.narrowed
  assert wide.fingerprint != narrow.fingerprint
  fewer = chomp_data.ShuffledSource(
    rows,
    chomp_data.ShuffleOptions(kind="block", io_block_size=16, cache_windows=1),
    3,
  )
  assert wide.fingerprint == fewer.fingerprint


def test_blocks_default_to_a_chunk_of_the_store(store):
  source = shuffled(sequential(store), kind="block")
  assert source.fingerprint["shuffle"]["io_block_size"] == 256 // 16
  # Aligned blocks touch one chunk, others two.
  assert source.windows.block_bytes == 256 * 2
  with_eos = shuffled(sequential(store, add_eos=True), kind="block")
  assert with_eos.windows.block_bytes == 2 * 256 * 2


def test_the_seeds_defaults_are_blocks_of_128_rows_in_windows_of_1024(
  tmp_path,
):
  documents = [np.full(400_000, 7)] * 2
  store = testing_stores.make_store(
    tmp_path / "store", documents, chunk=256 * 1024
  )
  rows = chomp_data.SequentialSource(
    store, chomp_data.SequentialOptions(), seq_len=2_048
  )
  source = shuffled(rows, kind="block")
  shuffle = source.fingerprint["shuffle"]
  assert shuffle["io_block_size"] == 128
  assert shuffle["window_blocks"] == 8
  assert shuffle["io_block_size"] * shuffle["window_blocks"] == 1_024
  assert source.windows.cache_windows == 8
  assert shuffle["perm_type"] == "feistel"


@pytest.mark.parametrize(
  ("options", "message"),
  [
    ({"kind": "full", "era_length": 4}, "era_length` must be None.*'full'.*4"),
    ({"kind": "none", "window_blocks": 8}, "window_blocks` must be None"),
    ({"kind": "era"}, "era_length` must be set"),
    ({"kind": "era", "era_length": 4, "io_block_size": 2}, "io_block_size`"),
  ],
)
def test_contradictory_settings_are_refused(store, options, message):
  with pytest.raises(schema.ConfigError, match=message):
    shuffled(sequential(store), **options)


def test_bins_take_no_block_size(store):
  with pytest.raises(schema.ConfigError, match="packing windows, got 4"):
    shuffled(bins(store), kind="block", io_block_size=4)


def test_a_source_without_an_end_is_refused(store):
  class Endless(chomp_data.SequentialSource):
    def __len__(self):
      return 2**62

  rows = Endless(store, chomp_data.SequentialOptions(), seq_len=16, name="text")
  with pytest.raises(schema.ConfigError, match="without an end, got 'block'"):
    shuffled(rows, kind="block")
