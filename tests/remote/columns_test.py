# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Columns of a store in a bucket are those of the store on a disk."""

import numpy as np
import pytest

import chomp_data
from chomp_data import stores
from chomp_data.stores import copying
from tests.rows import columns_test
from tests.rows import targets_test


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_batches_from_a_bucket_hold_the_columns(
  gs_bucket, tmp_path, compression
):
  store = columns_test.make_store(tmp_path / "chats", compression=compression)
  url = f"{gs_bucket.root}/chats"
  copying.copy(store, url, compression=compression, chunk=16)
  assert stores.open_store(url).hash == store.hash
  data = columns_test.config(tmp_path, [targets_test.ROWS["ffd"]])
  local = chomp_data.build(data)
  data["sources"]["chats"]["store"] = url
  remote = chomp_data.build(data)
  for step in range(min(local.num_steps, 8)):
    wanted, batch = local.batch(step), remote.batch(step)
    for name, value in wanted.items():
      np.testing.assert_array_equal(batch[name], value, name)
