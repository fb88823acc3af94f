# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What pages say of mixes, records and buckets comes of their blocks."""

import re

import numpy as np

from chomp_data import pipeline
from chomp_data.testing import stores as stores_lib
from tests.docs import pages


def block(page, needle):
  """Returns the first block of Python of a page that holds a text."""
  blocks = [own.text for own in pages.blocks(page, "python")]
  return next(text for text in blocks if needle in text)


def test_the_buckets_of_a_page_make_batches(
  stdlib_store, tmp_path, monkeypatch
):
  (tmp_path / "data").mkdir()
  for name in ("web", "code"):
    (tmp_path / "data" / name).symlink_to(stdlib_store)
  monkeypatch.chdir(tmp_path)
  names: dict = {}
  exec(block("buckets.md", '"powers_of_two"'), names)
  # Less than the corpus is for, so that each bucket fills a batch.
  names["data"]["buckets"]["tokens_per_batch"] = 4_096
  names["data"]["remainder"] = "pad"
  pipe = pipeline.build(names["data"])
  shapes = [pipe.batch(i)["tokens"].shape for i in [*range(20), 2_001]]
  assert set(shapes) == {(8, 512), (4, 1_024), (2, 2_048)}
  assert abs(sum(shape == (8, 512) for shape in shapes[:20]) - 10) <= 2


def test_the_row_in_concepts_is_what_packing_makes(tmp_path):
  # The documents A and B of the page, and one that fills a row.
  documents = [range(3, 7), range(10, 13), range(20, 29)]
  stores_lib.make_store(tmp_path / "store", documents, eos_id=1)
  rows = {"kind": "bin", "add_eos": True, "shuffle_rows": False}
  pipe = pipeline.build(
    {
      "seq_len": 10,
      "global_batch_size": 1,
      "sources": {"web": {"store": str(tmp_path / "store"), "rows": rows}},
    }
  )
  batch = pipe.batch(1)
  page = pages.text("concepts.md")
  for name in ("segment_ids", "positions", "loss_mask"):
    (shown,) = re.findall(rf"^ +{name}((?: +\d+){{10}})", page, re.M)
    assert batch[name][0].tolist() == [int(value) for value in shown.split()]
  spans = pipe.plan(1)
  shown = re.findall(r"^ +0     web +[AB] +(\d+) +(\d+) +(\d+)", page, re.M)
  columns = np.stack([spans.start, spans.length, spans.column], axis=1)
  assert columns.tolist() == [[int(value) for value in row] for row in shown]
