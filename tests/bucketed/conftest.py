"""Small real corpora in buckets of lengths, for every test of this room."""

import numpy as np
import pytest

from chomp_data.testing import stores as testing_stores


def documents(seed, count=300):
  """Returns documents of 0 to some hundred tokens, most of them short."""
  rng = np.random.default_rng(seed)
  lengths = np.exp(rng.normal(2.9, 1.0, count)).astype(int)
  lengths[::17] = 0
  return [rng.integers(3, 250, size=n) for n in lengths]


@pytest.fixture(scope="session")
def text_stores(tmp_path_factory):
  """Two stores by name: (path, documents)."""
  out = {}
  for seed, name in enumerate(("notes", "code")):
    path = tmp_path_factory.mktemp("text") / name
    own = documents(seed)
    testing_stores.make_store(path, own, chunk=64)
    out[name] = (str(path), own)
  return out


@pytest.fixture
def text(text_stores):
  """config.data of two corpora in buckets of 8, 16, 32 and 64 tokens."""
  return {
    "seed": 3,
    "epochs": 2,
    "document_id": True,
    "buckets": {
      "kind": "length",
      "lengths": (8, 16, 32, 64),
      "tokens_per_batch": 256,
    },
    "sources": {
      "notes": {
        "store": text_stores["notes"][0],
        "rows": {"add_eos": True},
      },
      "code": {
        "store": text_stores["code"][0],
        "rows": {"add_eos": True},
        "shuffle": {"seed": 11},
      },
    },
    "mix": {"weights": {"notes": 0.25, "code": 0.75}},
  }
