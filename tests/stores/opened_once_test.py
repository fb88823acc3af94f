# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A store that a process holds is not checked again for each who reads it."""

import pickle

import numpy as np
import pytest

from chomp_data import stores
from chomp_data.stores.zarr import zarr_opening
from chomp_data.testing import stores as testing_stores


@pytest.fixture
def checks(monkeypatch):
  """Counts how often files of a store are looked at."""
  found, check = [], zarr_opening.check_files

  def counted(path, manifest):
    found.append(path)
    check(path, manifest)

  monkeypatch.setattr(zarr_opening, "check_files", counted)
  return found


def make(path, seed=0, **options):
  rng = np.random.default_rng(seed)
  documents = [rng.integers(3, 250, size=n) for n in range(1, 40)]
  return testing_stores.make_store(path, documents, **options)


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_copy_counts_and_reads_for_itself(tmp_path, compression):
  store = make(tmp_path / "store", compression=compression)
  whole = store.read_tokens(np.asarray([0]), np.asarray([store.num_tokens]))
  copy = pickle.loads(pickle.dumps(store))
  assert copy.counters.chunks_fetched == 0
  again = copy.read_tokens(np.asarray([0]), np.asarray([copy.num_tokens]))
  np.testing.assert_array_equal(whole, again)
  assert copy.counters.chunks_fetched == store.counters.chunks_fetched > 0


def test_a_copy_of_a_store_that_was_replaced_is_refused(tmp_path):
  store = make(tmp_path / "store")
  pickled = pickle.dumps(store)
  (tmp_path / "store").rename(tmp_path / "old")
  make(tmp_path / "store", seed=1)
  with pytest.raises(stores.StoreError, match="that this run began with, got"):
    _ = pickle.loads(pickled).num_tokens


def test_the_manifest_of_what_nobody_holds_is_checked_again(tmp_path, checks):
  pickled = pickle.dumps(make(tmp_path / "store"))
  checks.clear()
  assert pickle.loads(pickled).num_tokens > 0
  # Files are checked as they are read: a worker does not look at all of them.
  assert not checks
  file = tmp_path / "store" / "tokens" / "zarr.json"
  file.write_bytes(file.read_bytes()[:-2] + b" }")
  with pytest.raises(stores.StoreError, match=f"{file} must be what"):
    _ = pickle.loads(pickled).num_tokens
