# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Small real corpora and datasets in buckets, for every test of this room."""

import copy
import importlib.util

import numpy as np
import pytest

from chomp_data.stores import samples_array_record
from chomp_data.testing import stores as testing_stores
from examples import save_to_disk


def changed(data, **fields):
  """Returns a config with other fields, given by their path with '__'."""
  data = copy.deepcopy(data)
  for path, value in fields.items():
    section = data
    *parents, name = path.split("__")
    for parent in parents:
      section = section.setdefault(parent, {})
    section[name] = value
  return data


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


SIZES = ((4, 6), (6, 4), (8, 8))


def arrays(seed, count, sizes=SIZES):
  """Yields samples whose values say which they are."""
  rng = np.random.default_rng(seed)
  for number in range(count):
    height, width = sizes[int(rng.integers(len(sizes)))]
    pixels = np.full((height, width, 3), number % 251, np.uint8)
    pixels[0, 0, 0] = seed
    latent = np.full((height // 2, width // 2), number + seed / 8, np.float32)
    values = {
      "height": height,
      "width": width,
      "label": number,
      "score": number / 4,
      "name": f"{seed}/{number}",
    }
    yield {"pixels": pixels, "latent": latent}, values


@pytest.fixture(scope="session")
def sample_stores(tmp_path_factory):
  """Two datasets by name: (path, samples); one of them of save_to_disk."""
  out = {}
  for seed, name in enumerate(("photos", "scans")):
    path = tmp_path_factory.mktemp("arrays") / name
    own = list(arrays(seed, 90 if name == "photos" else 70))
    if name == "scans" and importlib.util.find_spec("pyarrow"):
      save_to_disk.save_to_disk(path, own, samples_per_file=30)
    else:
      samples_array_record.write_samples(path, own, samples_per_file=30)
    out[name] = (str(path), own)
  return out


@pytest.fixture
def pictures(sample_stores):
  """config.data of two datasets in buckets of three sizes."""
  return {
    "seed": 5,
    "epochs": 2,
    "global_batch_size": 8,
    "buckets": {
      "kind": "resolution",
      "sizes": SIZES,
      "fields": ("pixels", "latent"),
      "metadata": ("label", "score"),
      "batch_sizes": {"8x8": 4},
    },
    "sources": {
      name: {"store": path} for name, (path, _) in sample_stores.items()
    },
    "mix": {"unit": "pixels", "weights": {"photos": 0.75, "scans": 0.25}},
  }
