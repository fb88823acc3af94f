# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Inputs of other modification times or versions: their contents decide."""

import os
import pathlib
import shutil

import pytest

from chomp_data import errors
from chomp_data.prepare import run_tokenizer

OPTIONS = [
  {},
  {"workers": 2, "compression": "zstd"},
  {"format": "array_record"},
  {"duplicates": "drop", "on_error": "skip"},
  {"train": run_tokenizer.TrainOptions("bpe", 300)},
]


def touch(root):
  for path in pathlib.Path(root).rglob("*"):
    os.utime(path, ns=(1, path.stat().st_mtime_ns + 10**9))


def contents(path):
  files = sorted(p for p in pathlib.Path(path).rglob("*") if p.is_file())
  return {p.relative_to(path): p.read_bytes() for p in files}


@pytest.mark.parametrize("changes", OPTIONS)
def test_files_that_were_touched_or_copied_are_the_same_inputs(
  corpus, prepare, tmp_path, changes
):
  store, _ = prepare(corpus, **changes)
  before = contents(tmp_path / "out")
  touch(corpus)
  again, written = prepare(corpus, **changes)
  assert not written
  assert again.hash == store.hash
  assert contents(tmp_path / "out") == before
  assert not (tmp_path / "out.partial").exists()
  shutil.copytree(corpus, tmp_path / "copy")
  _, written = prepare(tmp_path / "copy", **changes)
  assert not written


@pytest.mark.parametrize(
  ("changes", "name"),
  zip(OPTIONS, ["a.txt", "lines.jsonl"] * 3, strict=False),
)
def test_other_content_of_the_same_size_is_another_input(
  corpus, prepare, tmp_path, changes, name
):
  prepare(corpus, **changes)
  before = contents(tmp_path / "out")
  data = (corpus / name).read_bytes()
  (corpus / name).write_bytes(data.replace(b"o", b"u").replace(b"l", b"m"))
  assert (corpus / name).stat().st_size == len(data)
  with pytest.raises(errors.StoreError, match="differs in inputs"):
    prepare(corpus, **changes)
  assert contents(tmp_path / "out") == before
  assert not (tmp_path / "out.partial").exists()
  _, written = prepare(corpus, overwrite=True, **changes)
  assert written
  assert contents(tmp_path / "out") != before


def test_an_id_that_changes_is_another_input(corpus, prepare):
  prepare(corpus)
  path = corpus / "lines.jsonl"
  path.write_text(path.read_text().replace("the second", "THE SECOND"))
  with pytest.raises(errors.StoreError, match="differs in inputs"):
    prepare(corpus)
