# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Stores for the tests of packers, which write them by the thousand."""

import itertools
import os

import pytest

from chomp_data.testing import stores as testing_stores


@pytest.fixture(scope="module")
def make_store(tmp_path_factory):
  """Writes documents of given tokens as a real store; BOS is 2."""
  root, number = tmp_path_factory.mktemp("stores"), itertools.count()

  def build(documents, **changes):
    return testing_stores.make_store(
      root / str(next(number)), documents, **{"bos_id": 2, **changes}
    )

  with pytest.MonkeyPatch.context() as patch:
    # None of them must outlive a power cut: a tenth of the time.
    patch.setattr(os, "fsync", lambda descriptor: None)
    patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    yield build
