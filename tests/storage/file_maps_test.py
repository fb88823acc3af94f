# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Maps of files: values as in the file, and no descriptor is held."""

import contextlib
import os
import resource

import numpy as np
import pytest

from chomp_data import stores
from chomp_data.storage import file_maps
from chomp_data.stores import side_index
from chomp_data.testing import stores as testing_stores


def num_descriptors():
  return len(os.listdir("/proc/self/fd"))


def test_a_map_holds_what_the_file_holds_and_no_descriptor(tmp_path):
  values = np.arange(10_000, dtype=np.int64)
  values.tofile(tmp_path / "a.bin")
  before = num_descriptors()
  found = [file_maps.mapped(tmp_path / "a.bin", np.int64) for _ in range(20)]
  assert num_descriptors() == before
  for own in found:
    np.testing.assert_array_equal(own, values)
    file_maps.read_soon(own[513:700])
  with pytest.raises(ValueError, match="read-only"):
    found[0][0] = 1


def test_a_view_outlives_the_map_it_is_of(tmp_path):
  np.arange(5_000, dtype=np.int64).tofile(tmp_path / "a.bin")
  view = file_maps.mapped(tmp_path / "a.bin", np.int64)[4_000:]
  os.remove(tmp_path / "a.bin")
  assert view[0] == 4_000


def test_a_file_of_no_byte_has_no_values(tmp_path):
  (tmp_path / "a.bin").touch()
  assert not len(file_maps.mapped(tmp_path / "a.bin", np.uint16))


def test_a_map_that_is_gone_takes_no_address(tmp_path):
  np.arange(5_000, dtype=np.int64).tofile(tmp_path / "gone.bin")
  found = file_maps.mapped(tmp_path / "gone.bin", np.int64)
  name = str(tmp_path / "gone.bin")
  with open("/proc/self/maps") as file:
    assert name in file.read()
  del found
  with open("/proc/self/maps") as file:
    assert name not in file.read()


def test_an_open_store_and_its_index_hold_no_descriptor(tmp_path):
  testing_stores.make_store(tmp_path / "a", [[5, 6, 7]] * 400)
  before = num_descriptors()
  store = stores.open_store(tmp_path / "a")
  index = side_index.load_or_build(
    tmp_path / "a", "own", {}, lambda: [{"own": np.arange(9)}]
  )
  out = np.empty(3, np.int32)
  store.copy_tokens(np.asarray([3]), np.asarray([3]), out, np.asarray([0]))
  assert out.tolist() == [5, 6, 7]
  assert index["own"].read().tolist() == list(range(9))
  assert num_descriptors() == before


def test_too_many_open_files_are_not_blamed_on_the_disk(tmp_path):
  np.arange(9).tofile(tmp_path / "a.bin")
  build = lambda: [{"own": np.arange(9)}]  # noqa: E731
  side_index.load_or_build(tmp_path / "a", "own", {}, build)
  soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
  most = max(map(int, os.listdir("/proc/self/fd")))
  # All below the limit are taken.
  taken = []
  resource.setrlimit(resource.RLIMIT_NOFILE, (most + 2, hard))
  try:
    with contextlib.suppress(OSError):
      while True:
        taken.append(os.open(tmp_path / "a.bin", os.O_RDONLY))
    with pytest.raises(stores.StoreError, match=r"`ulimit -n` must leave"):
      side_index.load_or_build(tmp_path / "a", "own", {}, build)
  finally:
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for descriptor in taken:
      os.close(descriptor)
