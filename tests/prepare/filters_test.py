# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A user's filter: what it leaves out is counted, and its errors are told."""

import json
import sys

import pytest

from chomp_data import errors
from chomp_data.prepare import filters
from tests import in_process
from tests.prepare import corpora

MODULE = """
def keep(text, record):
  if len(text) < 4:
    return "short"
  return "bad" not in text

def by_score(text, record):
  assert isinstance(text, str)
  assert isinstance(record.get("lang", ""), str)
  return record["score"] >= 0.5
by_score.keys = ("score", "meta.lang")

def fails(text, record):
  return record["none"]

def answers(text, record):
  return None

NUMBER = 3
"""


@pytest.fixture
def own_filters(tmp_path, monkeypatch):
  """A module of filters where Python looks, also in workers."""
  (tmp_path / "code").mkdir()
  (tmp_path / "code" / "own_filters.py").write_text(MODULE)
  monkeypatch.syspath_prepend(str(tmp_path / "code"))
  filters.load.cache_clear()
  yield tmp_path / "code" / "own_filters.py"
  sys.modules.pop("own_filters", None)
  filters.load.cache_clear()


@pytest.fixture
def lines(tmp_path):
  path = tmp_path / "x.jsonl"
  texts = ["a good text", "ab", "a bad text", "cd", "another text", ""]
  path.write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
  return path


@pytest.mark.parametrize("workers", [0, 2])
def test_what_is_left_out_is_counted_by_reason(
  own_filters, lines, prepare, workers
):
  store, _ = prepare(lines, filter="own_filters:keep", workers=workers)
  assert store.num_documents == 2
  assert store.manifest.prepared["skipped"]["reasons"] == {
    "filtered": 1, "short": 3,
  }  # fmt: skip
  assert not prepare(lines, filter="own_filters:keep")[1]
  with pytest.raises(Exception, match="differs in filter"):
    prepare(lines)


def test_the_summary_shows_the_reasons(own_filters, lines, tmp_path):
  shown = in_process.run_tool(
    "prepare",
    f"--input={lines}",
    f"--output={tmp_path / 'out'}",
    "--filter=own_filters:keep",
    check=True,
  ).stdout
  assert "left out: short          3" in shown
  assert "left out: filtered       1" in shown


def test_columns_that_a_filter_asks_for_are_read(
  own_filters, tmp_path, prepare
):
  arrow = pytest.importorskip("pyarrow")
  parquet = pytest.importorskip("pyarrow.parquet")
  table = corpora.table([("a", "one"), ("b", "two"), ("c", "three")])
  table = table.append_column("score", arrow.array([0.1, 0.5, 0.9]))
  table = table.append_column("lang", arrow.array(["en", "de", "en"]))
  parquet.write_table(table, str(tmp_path / "x.parquet"))
  store, _ = prepare(tmp_path / "x.parquet", filter="own_filters:by_score")
  assert store.document_ids([0, 1]) == ["b", "c"]


def test_a_filter_that_changed_is_another(own_filters, lines, prepare):
  first, _ = prepare(lines, filter="own_filters:keep")
  own_filters.write_text(MODULE.replace("< 4", "< 12"))
  sys.modules.pop("own_filters")
  filters.load.cache_clear()
  with pytest.raises(Exception, match="differs in filter_sha256"):
    prepare(lines, filter="own_filters:keep")
  second, _ = prepare(lines, filter="own_filters:keep", overwrite=True)
  assert (first.num_documents, second.num_documents) == (2, 1)


@pytest.mark.parametrize(
  ("name", "match"),
  [
    ("own_filters:none", "`--filter` must be .* that can be imported"),
    ("no_such_module:keep", "No module named 'no_such_module'"),
    ("own_filters", "that can be imported"),
    (":keep", "that can be imported"),
    ("own_filters:NUMBER", "must name a function, got .*, a int"),
    ("own_filters:fails", r"must not fail, got KeyError: 'none'.*x\.jsonl:1"),
    ("own_filters:answers", r"must return True.*got None.*x\.jsonl:1"),
  ],
)
def test_a_filter_that_is_none_is_an_error(
  own_filters, lines, prepare, name, match
):
  with pytest.raises(errors.PrepareError, match=match):
    prepare(lines, filter=name)


def test_a_filter_that_leaves_nothing_out_of_nothing_says_why(
  own_filters, tmp_path, prepare
):
  (tmp_path / "x.txt").write_text("ab")
  with pytest.raises(errors.PrepareError, match=r"\(left out: 1 short\)"):
    prepare(tmp_path / "x.txt", filter="own_filters:keep")
