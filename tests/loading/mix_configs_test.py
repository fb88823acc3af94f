# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The configs of mixes: Orbax and stock Grain restore their batches."""

import importlib
import json

import numpy as np
import pytest

from chomp_data import iterators
from chomp_data import pipeline
from chomp_data.loading import state as state_lib
from chomp_data.testing import batch_hashes
from chomp_data.testing import stores as testing_stores

# Token ids of each source; 0 is padding and 1 the end of a document.
RANGES = {"stdlib": (2, 80), "packages": (80, 160), "notes": (160, 256)}
CONFIGS = ("pretrain_mix", "splice_in_mix")
STEPS = 12


@pytest.fixture(scope="session")
def mix_paths(tmp_path_factory):
  rng = np.random.default_rng(0)
  root = tmp_path_factory.mktemp("mix_configs")
  for name, ids in RANGES.items():
    lengths = [*rng.integers(5, 200, size=40), 700, 900, 600, 800]
    testing_stores.make_store(
      root / name, [rng.integers(*ids, size=n) for n in lengths]
    )
  return {name: str(root / name) for name in RANGES}


def shipped(name, paths):
  """Returns `config.data` of a config over stores that differ."""
  module = importlib.import_module(f"configs.{name}")
  data = module.get_config("runlocal").data
  for source, own in data.sources.items():
    own.store = paths[source]
  return data


def swapped(paths):
  return {**paths, "stdlib": paths["packages"], "packages": paths["stdlib"]}


@pytest.fixture(params=CONFIGS)
def data(request, mix_paths):
  return shipped(request.param, mix_paths)


def hashes(iterator, count):
  return [
    batch_hashes.batch_sha256(batch)
    for batch, _ in zip(iterator, range(count), strict=False)
  ]


def every_batch(data):
  pipe = pipeline.build(data)
  return [batch_hashes.batch_sha256(pipe.batch(step)) for step in range(STEPS)]


def test_every_row_is_of_the_store_that_its_source_names(data):
  pipe = pipeline.build(data)
  seen = set()
  for step in range(STEPS):
    batch = pipe.batch(step)
    for tokens, number in zip(batch["tokens"], batch["source_id"], strict=True):
      name = pipe.source_names[number]
      low, high = RANGES[name]
      assert ((tokens < 2) | ((low <= tokens) & (tokens < high))).all(), name
      seen.add(name)
  assert seen == set(data.sources)


def test_other_stores_give_other_batches(mix_paths, data):
  name = "pretrain_mix" if "notes" in data.sources else "splice_in_mix"
  other = every_batch(shipped(name, swapped(mix_paths)))
  own = every_batch(data)
  assert all(a != b for a, b in zip(own, other, strict=True))


@pytest.mark.parametrize("name", CONFIGS)
def test_a_state_over_swapped_stores_is_refused(name, mix_paths):
  data, other = (
    shipped(name, paths) for paths in (mix_paths, swapped(mix_paths))
  )
  with iterators.make_iterator(data) as it:
    for _ in range(4):
      next(it)
    saved = it.get_state()
  record = json.loads(saved)["accounts"]
  assert all(own["rows"] > 0 for own in record.values())
  with iterators.make_iterator(other) as it:
    with pytest.raises(state_lib.StateError) as caught:
      it.set_state(saved)
    for source in ("stdlib", "packages"):
      assert f"sources.{source}.store" in str(caught.value)
  loader = iter(pipeline.build(data).data_loader())
  next(loader)
  again = iter(pipeline.build(other).data_loader())
  with pytest.raises(ValueError, match="DataSource in checkpoint"):
    again.set_state(loader.get_state())
