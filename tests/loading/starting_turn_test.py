# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A reader whose workers never began does not keep others from starting."""

import multiprocessing
import os

import grain
import pytest

from chomp_data import iterators
from chomp_data.loading import feed
from chomp_data.loading import reader
from chomp_data.testing import stores as testing_stores


class Ends(grain.transforms.Map):
  """Ends the worker that applies it, as a crash would."""

  def map(self, element):
    if multiprocessing.parent_process() is not None:
      os._exit(0)
    return element


@pytest.mark.slow
def test_a_worker_that_ends_before_its_first_batch_leaves_the_turn(tmp_path):
  testing_stores.make_store(tmp_path / "store", [list(range(3, 99))] * 40)
  data = {
    "seq_len": 16,
    "global_batch_size": 2,
    "worker_count": 1,
    "timeout_s": 30.0,
    "sources": {
      "a": {"store": str(tmp_path / "store"), "rows": {"kind": "sequential"}}
    },
  }
  with (
    iterators.make_iterator(data, operations=[Ends()]) as broken,
    pytest.raises(feed.InputError, match="ended by itself with exit code 0"),
  ):
    next(broken)
  assert reader.starting.acquire(timeout=5)
  reader.starting.release()
  with iterators.make_iterator(data) as it:
    assert next(it)["tokens"].shape == (2, 16)
