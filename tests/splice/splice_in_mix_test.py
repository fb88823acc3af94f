# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A splice source as one part of a pretraining mix."""

import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data import stores
from chomp_data.audit import coverage as coverage_lib
from chomp_data.audit import steps as steps_lib
from chomp_data.testing import stores as testing_stores

LENGTHS = [40, 25, 61, 33]
EVERY = 10


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
  """Stores of many short documents and of four to splice, as paths."""
  root = tmp_path_factory.mktemp("mix")
  rng = np.random.default_rng(0)
  web = [rng.integers(2, 250, n) for n in rng.integers(1, 60, 300)]
  testing_stores.make_store(root / "web", web)
  testing_stores.make_store(
    root / "books", [np.arange(n) + 100 for n in LENGTHS], ids=list("abcd")
  )
  return {"web": str(root / "web"), "books": str(root / "books")}


@pytest.fixture
def build(paths):
  """Builds a run that mixes packed documents with splices."""

  def call(mix=None, shuffle="full", **rows):
    books = {
      "kind": "multi_splice",
      "num_docs": 4,
      "doc_select_mode": "first",
      "content_length": 12,
      "curriculum_every": EVERY,
      "content_length_schedule": [(15, 16)],
      "groups": [("old", ["a", "b"])],
      "doc_overrides": [("c", {"content_stride": 3})],
      **rows,
    }
    return pipeline.build(
      {
        "seq_len": 16,
        "global_batch_size": 4,
        "seed": 1,
        "sources": {
          "web": {
            "store": paths["web"],
            "rows": {"kind": "bin", "packing_buffer_docs": 32},
            "shuffle": {"kind": "block"},
          },
          "books": {
            "store": paths["books"],
            "rows": books,
            "shuffle": {"kind": shuffle},
          },
        },
        "mix": mix or {"weights": {"web": 0.7, "books": 0.3}},
      }
    )

  return call


def test_coverage_of_a_mix_equals_a_slow_count(build, monkeypatch):
  monkeypatch.setattr(steps_lib, "BLOCK_ROWS", 24)
  pipe, steps = build(), 50
  found = {own.source: own for own in coverage_lib.coverage(pipe, steps)}
  assert list(found) == pipe.source_names
  for number, name in enumerate(pipe.source_names):
    rows, seen, columns = {}, {}, {}
    for step in range(steps):
      spans = pipe.plan(step)
      for row in range(4):
        here = (spans.source == number) & (spans.row == row)
        for document in np.unique(spans.document[here]).tolist():
          rows[document] = rows.get(document, 0) + 1
        for i in np.flatnonzero(here):
          document, low = int(spans.document[i]), int(spans.start[i])
          seen.setdefault(document, []).extend(
            range(low, low + int(spans.length[i]))
          )
          columns.setdefault(document, set()).add(int(spans.column[i]))
    own = found[name]
    assert own.document.tolist() == sorted(rows)
    assert own.rows.tolist() == [rows[d] for d in sorted(rows)]
    assert own.tokens.tolist() == [len(seen[d]) for d in sorted(rows)]
    assert own.distinct.tolist() == [len(set(seen[d])) for d in sorted(rows)]
    assert own.length.tolist() == [
      len(stores.read_document(pipe.sources[name].store, d))
      for d in sorted(rows)
    ]
    if name == "books":
      assert own.columns.tolist() == [len(columns[d]) for d in sorted(rows)]
  text = coverage_lib.report(pipe, list(found.values()))
  assert "coverage of books: 4 documents" in text
  assert "coverage of web: " in text
  assert "a: rows=" in text


def test_coverage_tells_a_source_that_has_not_come_yet(build):
  mix = {"stages": [(0, {"web": 1}), (50, {"web": 1, "books": 1})]}
  pipe = build(mix=mix)
  found = {own.source: own for own in coverage_lib.coverage(pipe, 10)}
  assert not found["books"].document.size
  text = coverage_lib.report(pipe, list(found.values()))
  assert "coverage of books: 0 documents, 0 tokens read" in text
