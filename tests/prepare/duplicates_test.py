# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Exact duplicates: all but the first are left out, and counted."""

import collections
import json
import pickle

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data import errors
from chomp_data.prepare import duplicates
from chomp_data.prepare import records
from chomp_data.prepare import rejections
from chomp_data.prepare import run
from chomp_data.prepare import scratch
from tests import laws
from tests.prepare import run_test


def write(path, texts):
  path.write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))


def ids(store):
  return store.document_ids(np.arange(store.num_documents))


@laws.examples(30)
@hypothesis.given(
  files=st.lists(
    st.lists(st.sampled_from(["a", "b", "cc", "", "dé"]), max_size=12),
    min_size=1,
    max_size=4,
  ),
  shard_bytes=st.integers(8, 200),
  bucket_hashes=st.sampled_from([1, 3, 2**22]),
)
def test_the_first_of_each_text_is_kept(
  tmp_path_factory, files, shard_bytes, bucket_hashes
):
  tmp_path = tmp_path_factory.mktemp("d")
  (tmp_path / "in").mkdir()
  expected, seen, count = [], set(), 0
  for i, texts in enumerate([["kept"], *files]):
    write(tmp_path / "in" / f"{i}.jsonl", texts)
    for line, text in enumerate(texts, 1):
      if text and text not in seen:
        expected.append(f"{i}.jsonl:{line}")
      count += bool(text) and text in seen
      seen.add(text)
  before = duplicates.BUCKET_HASHES
  duplicates.BUCKET_HASHES = bucket_hashes
  try:
    store, _ = run.prepare(
      run.Options(
        (str(tmp_path / "in"),),
        str(tmp_path / "out"),
        duplicates="drop",
        shard_bytes=shard_bytes,
      )
    )
  finally:
    duplicates.BUCKET_HASHES = before
  assert ids(store) == expected
  reasons = store.manifest.prepared["skipped"]["reasons"]
  assert reasons == ({"duplicate": count} if count else {})
  assert not (tmp_path / "out.partial").exists()


@pytest.fixture
def corpus(tmp_path):
  """Texts in several kinds of files, which have many in common."""
  (tmp_path / "in").mkdir()
  texts = [f"text {i * i % 37} of many" for i in range(200)]
  write(tmp_path / "in" / "a.jsonl", texts[:90])
  write(tmp_path / "in" / "b.jsonl", [*texts[90:], "more"])
  for i in range(5):
    (tmp_path / "in" / f"{i}.txt").write_text(texts[i])
  (tmp_path / "in" / "broken.jsonl").write_text("{\n" * 3)
  return tmp_path / "in"


def test_the_same_bytes_for_any_number_of_workers(corpus, prepare, tmp_path):
  found = set()
  for workers in (0, 2):
    store, _ = prepare(
      corpus,
      output=f"out{workers}",
      duplicates="drop",
      on_error="skip",
      workers=workers,
      shard_bytes=500,
    )
    found.add(run_test.digest(tmp_path / f"out{workers}"))
  assert len(found) == 1
  skipped = store.manifest.prepared["skipped"]
  kept = store.num_documents
  assert skipped["reasons"] == {"duplicate": 206 - kept, "not JSON": 3}
  assert skipped["lines"] == 3
  texts = collections.Counter(own.rpartition(":")[0] for own in ids(store))
  assert texts["b.jsonl"] == 1


def test_what_a_filter_leaves_out_is_no_first(corpus, prepare, monkeypatch):
  (corpus / "c_filter.py").write_text(
    "def keep(text, record):\n  return record.get('id') != 'first'\n"
  )
  monkeypatch.syspath_prepend(str(corpus))
  path = corpus / "x.jsonl"
  path.write_text(
    '{"text": "a", "id": "first"}\n{"text": "a", "id": "second"}\n'
    '{"text": "a", "id": "third"}\n'
  )
  store, _ = prepare(path, duplicates="drop", filter="c_filter:keep")
  assert ids(store) == ["second"]
  assert store.manifest.prepared["skipped"]["reasons"] == {
    "duplicate": 1, "filtered": 1,
  }  # fmt: skip


def test_of_the_same_text_another_part_may_be_trained_on(tmp_path, prepare):
  pairs = [("ab", "c"), ("a", "bc"), ("ab", "c")]
  path = tmp_path / "x.jsonl"
  path.write_text(
    "".join(json.dumps({"p": p, "c": c}) + "\n" for p, c in pairs)
  )
  keys = {"prompt_key": "p", "completion_key": "c"}
  store, _ = prepare(path, duplicates="drop", **keys)
  assert ids(store) == ["x.jsonl:1", "x.jsonl:2"]


def test_of_the_same_chat_another_answer_may_be_trained_on(tmp_path, prepare):
  def chat(*weights):
    roles = ("user", "assistant") * len(weights)
    messages = [{"role": role, "content": "same"} for role in roles]
    for message, weight in zip(messages[1::2], weights, strict=True):
      message["weight"] = weight
    return {"messages": messages}

  path = tmp_path / "x.jsonl"
  chats = [chat(1, 0), chat(0, 1), chat(1, 0), chat(1, 2)]
  path.write_text("".join(json.dumps(record) + "\n" for record in chats))
  store, _ = prepare(path, duplicates="drop", messages_key="messages")
  assert ids(store) == ["x.jsonl:1", "x.jsonl:2", "x.jsonl:4"]


def test_a_run_goes_on_with_the_hashes_that_it_has(
  corpus, prepare, tmp_path, monkeypatch
):
  def stop(*unused):
    raise RuntimeError("stopped")

  options = {"duplicates": "drop", "on_error": "skip", "shard_bytes": 500}
  prepare(corpus, output="clean", **options)
  with monkeypatch.context() as patch:
    patch.setattr(duplicates, "compare", stop)
    with pytest.raises(RuntimeError, match="stopped"):
      prepare(corpus, **options)
  hashes = sorted(tmp_path.glob("out.partial/duplicates-*/*.hashes"))
  assert len(hashes) > 3
  data = hashes[1].read_bytes()
  hashes[1].write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
  before = {file: file.stat().st_mtime_ns for file in hashes}
  with monkeypatch.context() as patch:
    patch.setattr(duplicates, "compare", stop)
    with pytest.raises(RuntimeError, match="stopped"):
      prepare(corpus, **options)
  written = [file for file in hashes if file.stat().st_mtime_ns != before[file]]
  assert written == [hashes[1]]
  prepare(corpus, **options)
  assert run_test.digest(tmp_path / "out") == run_test.digest(
    tmp_path / "clean"
  )


@pytest.mark.parametrize("workers", [0, 2])
def test_progress_is_told_by_bytes_of_every_stage(tmp_path, workers):
  write(tmp_path / "x.jsonl", [f"text {i}" for i in range(4_000)])
  told = []
  options = run.Options(
    (str(tmp_path / "x.jsonl"),),
    str(tmp_path / "out"),
    duplicates="drop",
    shard_bytes=30_000,
    workers=workers,
  )
  run.prepare(options, told.append)
  stages = list(dict.fromkeys(own.stage for own in told))
  assert stages == ["plan", "count", "hash", "encode", "write"]
  for stage in stages[:3]:
    done = [own.done_bytes for own in told if own.stage == stage]
    assert done == sorted(done)
    assert (
      0 < done[-1] == max(own.total_bytes for own in told if own.stage == stage)
    )


@pytest.mark.parametrize(
  "data", [None, b"", pickle.dumps({"keys": 1}), b"00000000\nabcd"]
)
def test_notes_of_duplicates_that_are_damaged_are_an_error(tmp_path, data):
  name = f"{scratch.digest([])}.drops"
  read = records.ReadOptions(raw=False, duplicates=str(tmp_path))
  if data is not None:
    (tmp_path / name).write_bytes(data)
  with pytest.raises(errors.PrepareError, match=rf"{name} must hold"):
    list(duplicates.documents_of([], read, rejections.Rejections()))
