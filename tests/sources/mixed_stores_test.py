# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Batches of mapped sources and of others: which rows compiled loops copy."""

import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data.kernels import compiled
from chomp_data.testing import batch_hashes
from chomp_data.testing import stores as testing_stores

STEPS = range(12)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
  path = tmp_path_factory.mktemp("mixed")
  rng = np.random.default_rng(0)

  def documents():
    return [rng.integers(3, 250, n) for n in rng.integers(20, 400, size=20)]

  for name in ("a", "b", "c"):
    testing_stores.make_store(path / name, documents())
  for name in ("d", "e"):
    testing_stores.make_store(path / name, documents(), compression="zstd")
  return path


def built(root, names):
  """A mix of sources; 'ad' is that of the stores 'a' and 'd' as one."""
  sources = {
    name: {
      "store": [str(root / one) for one in name],
      "rows": {"kind": "sequential", "add_eos": False},
      "shuffle": {"kind": "full"},
    }
    for name in names
  }
  return pipeline.build(
    {
      "seq_len": 64,
      "global_batch_size": 16,
      "seed": 1,
      "epochs": 3,
      "sources": sources,
      "mix": {"weights": dict.fromkeys(names, 1.0)},
    }
  )


def hashes(batches):
  return [batch_hashes.batch_sha256(batches[step]) for step in STEPS]


def spans_of(store):
  """Spans copied so far from mapped stores among a store's members."""
  members = getattr(store, "members", [store])
  return sum(own.counters.spans for own in members if own.opened.is_mapped)


@pytest.mark.parametrize(
  "names", [["a", "b", "c"], ["a", "b", "c", "e"], ["a", "bd", "c", "e"]]
)
def test_loops_copy_all_spans_of_mapped_stores_whatever_the_others(
  root, names, monkeypatch
):
  find, copied = compiled.find, []

  def counting(name, seconds):
    loop = find(name, seconds)

    def counted(*arguments):
      parts = loop(*arguments)
      if name == "copy_spans":
        copied.append(len(arguments[4]) if parts >= 0 else 0)
      return parts

    return counted

  with compiled.allowed(False):
    expected = hashes(pipeline.batch_source(built(root, names)))
  with compiled.allowed(True) as is_compiled:
    if not is_compiled:
      pytest.skip("numba is not installed")
    pipe = built(root, names)
    batches = pipeline.batch_source(pipe)
    # Chunks are verified at first access, where NumPy copies.
    assert hashes(batches) == expected
    opened = [source.store for source in batches.sources.values()]
    before = sum(map(spans_of, opened))
    monkeypatch.setattr(compiled, "find", counting)
    assert hashes(batches) == expected
  assert sum(copied) == sum(map(spans_of, opened)) - before > 100
