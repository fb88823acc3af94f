# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Documents by name: source and id, or source and number."""

import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data import schema
from chomp_data.audit import naming
from chomp_data.stores import samples_array_record
from chomp_data.testing import stores as testing_stores

IDS = {
  "web": ["a/b.txt:1", "#7", "twice", "twice", "caf\u00e9"],
  "code": ["a/b.txt:1", "web/x"],
}


@pytest.fixture(scope="module")
def pipe(tmp_path_factory):
  root = tmp_path_factory.mktemp("named")
  for name, ids in IDS.items():
    documents = [np.arange(2, 20)] * len(ids)
    testing_stores.make_store(root / name, documents, ids=ids)
  return pipeline.build(
    {
      "seq_len": 8,
      "global_batch_size": 2,
      "sources": {
        name: {"store": str(root / name), "rows": {"kind": "sequential"}}
        for name in IDS
      },
    }
  )


@pytest.mark.parametrize(
  ("text", "found"),
  [
    ("web/a/b.txt:1", ("web", 0)),
    ("code/a/b.txt:1", ("code", 0)),
    ("code/web/x", ("code", 1)),
    ("web/caf\u00e9", ("web", 4)),
    ("web/#0", ("web", 0)),
    ("web/#4", ("web", 4)),
  ],
)
def test_a_name_is_a_source_and_an_id_or_a_number(pipe, text, found):
  assert naming.find_document(pipe, text) == found


@pytest.mark.parametrize(
  ("text", "message"),
  [
    ("web", r"got 'web'. Put .*: code/..., web/...\."),
    ("web/", "must be a source and an id"),
    ("book/x", r"got 'book' in 'book/x'. Known: code, web"),
    ("web/none", r"got 'web/none', which none of its 5 documents.*web/#7, web"),
    ("web/#5", r"a number in 0 .. 4 of source 'web', got 5"),
    ("web/#-1", "must be the id of a document"),
    ("web/twice", r"which 2 documents have. .*: web/#2, web/#3\."),
  ],
)
def test_what_names_no_document_is_told(pipe, text, message):
  with pytest.raises(schema.ConfigError, match=message):
    naming.find_document(pipe, text)


def test_samples_are_named_by_number(tmp_path):
  samples = [
    ({"pixels": np.zeros((4, 4), np.uint8)}, {"height": 4, "width": 4})
  ] * 3
  samples_array_record.write_samples(tmp_path / "photos", samples)
  pipe = pipeline.build(
    {
      "global_batch_size": 1,
      "buckets": {"kind": "resolution", "fields": ("pixels",)},
      "sources": {"photos": {"store": str(tmp_path / "photos")}},
    }
  )
  assert naming.find_document(pipe, "photos/#2") == ("photos", 2)
  with pytest.raises(schema.ConfigError, match=r"0 \.\. 2 .*got 3"):
    naming.find_document(pipe, "photos/#3")
  with pytest.raises(schema.ConfigError, match=r"Write photos/#0 .. photos/#2"):
    naming.find_document(pipe, "photos/cat.png")
