# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""prepare --meta_key: a string or a number of each document in the store."""

import json

import numpy as np
import pytest

import chomp_data
from chomp_data import errors
from chomp_data import stores
from tests import in_process

LINES = [
  {"text": "one", "topic": "law"},
  {"text": "", "topic": "left out"},
  {"text": "three", "topic": "日本", "id": "c"},
  {"text": "four", "topic": 4},
  {"text": "five", "topic": 0.5},
]


@pytest.fixture
def lines(tmp_path):
  """Writes objects as JSONL and returns the path."""

  def write(*records, name="x.jsonl"):
    path = tmp_path / name
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path

  return write


def kept(store):
  return stores.document_meta(store, np.arange(store.num_documents))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shard_bytes", [1, 2**20])
def test_each_document_keeps_its_value(lines, prepare, workers, shard_bytes):
  lines(*LINES)
  second = lines({"text": "six", "topic": "law"}, name="y.jsonl")
  store, _ = prepare(
    second.parent,
    meta_key="topic",
    workers=workers,
    shard_bytes=shard_bytes,
  )
  assert kept(store) == ["law", "日本", "4", "0.5", "law"]
  assert store.document_ids([1])[0] == "c"
  assert store.manifest.prepared["meta_key"] == "topic"
  stores.verify_store(store.path)


def test_a_missing_value_is_an_error_or_what_stands_for_it(lines, prepare):
  path = lines({"text": "a", "t": "x"}, {"text": "b"}, {"text": "c", "t": None})
  with pytest.raises(
    errors.PrepareError, match=r"x\.jsonl:2 must have a value under 't'.*text"
  ):
    prepare(path, meta_key="t")
  assert kept(prepare(path, meta_key="t", meta_default="")[0]) == ["x", "", ""]
  store, _ = prepare(path, meta_key="t", meta_default="none", output="other")
  assert kept(store) == ["x", "none", "none"]


def test_text_files_have_no_value(tmp_path, prepare):
  (tmp_path / "a.txt").write_text("text")
  with pytest.raises(
    errors.PrepareError, match=r"a\.txt must have a value under 't'"
  ):
    prepare(tmp_path / "a.txt", meta_key="t")
  store, _ = prepare(tmp_path / "a.txt", meta_key="t", meta_default="")
  assert kept(store) == [""]


@pytest.mark.parametrize(
  ("value", "match"),
  [
    ("true", "got a bool"),
    ("[1]", "got a list"),
    ('{"a": 1}', "got a dict"),
    ("NaN", "got nan"),
    ("-Infinity", "got -inf"),
    ('"\\ud800"', "valid Unicode"),
  ],
)
def test_a_value_of_another_kind_is_named(tmp_path, prepare, value, match):
  path = tmp_path / "x.jsonl"
  path.write_text(f'{{"text": "a", "t": {value}}}\n')
  with pytest.raises(errors.PrepareError, match=f"jsonl:1.*{match}"):
    prepare(path, meta_key="t", meta_default="")


def test_several_fields_are_kept_and_select_and_group(lines, prepare):
  """One string in the store, so that whatever copies it copies them all."""
  path = lines(
    {"id": "law/a", "text": "a" * 40, "lang": "en", "year": 1999},
    {"id": "law/b", "text": "b" * 60, "lang": "de", "year": 2001},
    {"id": "web/c", "text": "c" * 50, "lang": "en", "year": 2001},
  )
  store, _ = prepare(path, meta_keys=("lang", "year"))
  assert kept(store)[0] == '{"lang":"en","year":"1999"}'
  assert store.manifest.prepared["meta_keys"] == ["lang", "year"]
  stores.verify_store(store.path)

  def documents(**rows):
    source = chomp_data.SpliceSource(
      store, chomp_data.MultiSpliceOptions(num_docs=None, **rows), seq_len=16
    )
    return sorted(source.documents.tolist())

  assert documents(doc_meta={"lang": "en"}) == [0, 2]
  assert documents(doc_meta={"lang": ("en", "de"), "year": "2001"}) == [1, 2]
  grouped = chomp_data.SpliceSource(
    store,
    chomp_data.MultiSpliceOptions(num_docs=None, group_by_meta="year"),
    seq_len=16,
  )
  assert "groups=1999 0.5" in grouped.describe()


def test_a_missing_field_is_an_error_or_what_stands_for_it(lines, prepare):
  path = lines({"text": "a", "t": "x", "u": "y"}, {"text": "b", "t": "z"})
  with pytest.raises(
    errors.PrepareError, match=r"jsonl:2 must have.*'u'.*Correct --meta_keys"
  ):
    prepare(path, meta_keys=("t", "u"))
  store, _ = prepare(path, meta_keys=("t", "u"), meta_default="-")
  assert kept(store) == ['{"t":"x","u":"y"}', '{"t":"z","u":"-"}']


def test_fields_survive_a_merge_and_a_split(lines, prepare, tmp_path):
  records = [{"id": f"d{i}", "text": "x" * 30, "n": i} for i in range(20)]
  store, _ = prepare(lines(*records), meta_keys=("n",))
  parts = [tmp_path / "train", tmp_path / "held"]
  in_process.run_tool(
    "stores", "split", str(store.path), f"--output={parts[0]}",
    f"--held_out={parts[1]}", "--fraction=0.5", check=True,
  )  # fmt: skip
  in_process.run_tool(
    "stores", "merge", *map(str, parts), f"--output={tmp_path / 'merged'}",
    check=True,
  )  # fmt: skip
  merged = stores.open_store(tmp_path / "merged")
  assert sorted(kept(merged)) == sorted(kept(store))
  assert sorted(kept(store)) == sorted(f'{{"n":"{i}"}}' for i in range(20))
