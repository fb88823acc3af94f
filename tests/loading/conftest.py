# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A small real corpus and its config, for every loading test."""

import numpy as np
import pytest

from chomp_data.testing import stores as testing_stores


def write_store(path):
  rng = np.random.default_rng(0)
  documents = [
    rng.integers(3, 250, size=n) for n in rng.integers(20, 400, size=12)
  ]
  testing_stores.make_store(path, documents, vocab_size=256, pad_id=0)
  return str(path)


def config(store):
  """Returns config.data as a plain dictionary."""
  return {
    "seq_len": 32,
    "global_batch_size": 8,
    "seed": 3,
    "epochs": 3,
    "document_id": True,
    "sources": {
      "text": {
        "store": store,
        "rows": {
          "kind": "multi_splice",
          "num_docs": 5,
          "content_length": 16,
          "offset_jitter": 2,
          "epoch_length": 70,
          "balance_tau": 0.7,
          "alpha": 0.8,
        },
        "shuffle": {"kind": "full"},
      }
    },
  }


@pytest.fixture(scope="session")
def store_path(tmp_path_factory):
  return write_store(tmp_path_factory.mktemp("corpus") / "store")


@pytest.fixture(scope="session")
def other_path(tmp_path_factory):
  """A second store, for mixes."""
  path = tmp_path_factory.mktemp("other") / "store"
  rng = np.random.default_rng(1)
  documents = [rng.integers(3, 250, n) for n in rng.integers(9, 90, size=60)]
  return str(testing_stores.make_store(path, documents, vocab_size=256).path)


@pytest.fixture
def data(store_path):
  return config(store_path)
