# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Inputs: which files, called what, in which order and groups."""

import json
import os
import re

import pytest

from chomp_data import errors
from chomp_data.prepare import inputs
from chomp_data.prepare.reading import base
from chomp_data.storage import bucket
from chomp_data.storage import storage


@pytest.fixture
def root(tmp_path):
  for name in (
    "b.txt", "a/x.txt", "a/y.md", "a/b/z.txt", ".hidden/h.txt", "a/.h.txt",
    "c.jsonl", "d.jsonl.gz", "e.JSONL.zst",
  ):  # fmt: skip
    file = tmp_path / "root" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("0123456789")
  return tmp_path / "root"


def names(found):
  return [file.name for file in found]


def test_byte_code_in_a_directory_is_left_out(root):
  before = names(inputs.discover([str(root)], []))
  (root / "a" / "__pycache__").mkdir()
  (root / "a" / "__pycache__" / "m.cpython-311.pyc").write_bytes(b"\xff")
  assert names(inputs.discover([str(root)], [])) == before
  assert len(inputs.discover([f"{root}/**/*.pyc"], [])) == 1


def test_a_directory_is_read_whole_and_sorted(root):
  found = inputs.discover([str(root)], [])
  assert names(found) == [
    "a/b/z.txt", "a/x.txt", "a/y.md", "b.txt", "c.jsonl", "d.jsonl.gz",
    "e.JSONL.zst",
  ]  # fmt: skip
  assert [(f.kind, f.compression) for f in found[-4:]] == [
    ("text", "none"), ("jsonl", "none"), ("jsonl", "gz"), ("jsonl", "zst"),
  ]  # fmt: skip


@pytest.mark.parametrize(
  ("pattern", "expected"),
  [
    ("**/*.txt", ["a/b/z.txt", "a/x.txt", "b.txt"]),
    ("a/*", ["x.txt", "y.md"]),
    ("a/**", ["b/z.txt", "x.txt", "y.md"]),
    ("?.txt", ["b.txt"]),
    ("a/b/z.txt", ["z.txt"]),
    ("*/b/[z]*", ["a/b/z.txt"]),
  ],
)
def test_globs_name_files_below_their_fixed_part(root, pattern, expected):
  assert names(inputs.discover([f"{root}/{pattern}"], [])) == expected


def test_relative_patterns_do_the_same(root, monkeypatch):
  monkeypatch.chdir(root)
  assert names(inputs.discover(["a/**/*.txt"], [])) == ["b/z.txt", "x.txt"]
  assert names(inputs.discover(["*.txt"], [])) == ["b.txt"]
  assert names(inputs.discover(["b.txt"], [])) == ["b.txt"]
  assert os.path.isabs(inputs.discover(["b.txt"], [])[0].path)


def test_a_file_that_matches_twice_is_read_once(root):
  found = inputs.discover([f"{root}/**/*.txt", str(root / "b.txt")], [])
  assert names(found).count("b.txt") == 1


def test_excluded_files_are_left_out_by_name_or_path(root):
  found = inputs.discover([str(root)], ["a/*", "*.gz", f"{root}/c.*"])
  assert names(found) == ["b.txt", "e.JSONL.zst"]
  with pytest.raises(errors.PrepareError, match="Exclude less"):
    inputs.discover([str(root)], ["*"])


def test_patterns_that_match_nothing_are_all_named(root):
  with pytest.raises(errors.PrepareError) as caught:
    inputs.discover([f"{root}/*.md", f"{root}/*.txt", "nowhere"], [])
  assert "*.md" in str(caught.value)
  assert "'nowhere'" in str(caught.value)
  assert "*.txt" not in str(caught.value)


@pytest.mark.parametrize("packed", ["", ".gz", ".zst"])
@pytest.mark.parametrize("name", ["x.jsonl", "x.ndjson", "x.json", "X.JSON"])
def test_json_lines_go_by_their_name(tmp_path, name, packed):
  (tmp_path / f"{name}{packed}").write_text("")
  (file,) = inputs.discover([str(tmp_path)], [])
  assert file.kind == "jsonl"
  assert file.compression == (packed.removeprefix(".") or "none")


def test_a_name_that_is_no_utf8_is_made_readable(root):
  path = os.fsencode(root / "b.txt").replace(b"b.txt", b"\xe9.txt")
  try:
    with open(path, "w"):
      pass
  except OSError:
    pytest.skip("the file system takes UTF-8 only")
  assert "\\xe9.txt" in names(inputs.discover([str(root)], []))


def test_groups_keep_the_order_and_their_size():
  sizes = [3, 3, 20, 0, 0, 9, 1, 2]
  file = base.InputFile("x", "/x", sum(sizes), 0, "text", "none")
  pieces = [base.InputPiece(file, i, i, 0, n) for i, n in enumerate(sizes)]
  groups = inputs.group(pieces, 10)
  assert [[piece.size for piece in group] for group in groups] == [
    [3, 3, 20], [0, 0, 9, 1], [2],
  ]  # fmt: skip
  assert [piece for group in groups for piece in group] == pieces
  assert list(inputs.group([], 10)) == []


def test_links_to_folders_above_do_not_multiply_documents(tmp_path):
  (tmp_path / "in").mkdir()
  (tmp_path / "in" / "a.txt").write_text("a")
  (tmp_path / "in" / "loop").symlink_to(tmp_path / "in")
  found = inputs.discover([str(tmp_path / "in" / "**" / "*.txt")], [])
  assert [file.name for file in found] == ["a.txt"]


def test_links_to_other_directories_are_logged(tmp_path, caplog):
  for name in ("in/a.txt", "in/b/b.txt", "out/c.txt"):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("text")
  (tmp_path / "in" / "loop").symlink_to(tmp_path / "in" / "b")
  root, link = str(tmp_path / "in"), tmp_path / "in" / "link"
  assert names(inputs.discover([root], [])) == ["a.txt", "b/b.txt"]
  assert not caplog.messages
  link.symlink_to(tmp_path / "out")
  assert names(inputs.discover([root], ["link"])) == ["a.txt", "b/b.txt"]
  assert not caplog.messages
  assert names(inputs.discover([root], [])) == ["a.txt", "b/b.txt"]
  (message,) = caplog.messages
  assert message.startswith(f"{link} (of 1 such links) leads to a directory")
  found = inputs.discover([root, str(link)], [])
  assert names(found) == ["a.txt", "b/b.txt", "c.txt"]


def test_a_broken_link_is_an_error_unless_it_is_excluded(tmp_path):
  (tmp_path / "a.txt").write_text("a")
  (tmp_path / "b.txt").symlink_to(tmp_path / "nowhere")
  with pytest.raises(errors.PrepareError, match=r"broken link .*b\.txt"):
    inputs.discover([str(tmp_path / "*.txt")], [])
  found = inputs.discover([str(tmp_path / "*.txt")], ["b.txt"])
  assert [file.name for file in found] == ["a.txt"]


def test_a_saved_dataset_that_is_a_selection_is_refused(tmp_path):
  """Its files hold other rows than the dataset, in another order."""
  (tmp_path / "a.arrow").write_bytes(b"rows")
  (tmp_path / "dataset_info.json").write_text("{}")
  state = {
    "_data_files": [{"filename": "a.arrow"}],
    "_indices_data_files": [{"filename": "indices.arrow"}],
  }
  (tmp_path / "state.json").write_text(json.dumps(state))
  with pytest.raises(errors.PrepareError, match="flatten_indices"):
    inputs.discover([str(tmp_path)], [])
  del state["_indices_data_files"]
  (tmp_path / "state.json").write_text(json.dumps(state))
  (file,) = inputs.discover([str(tmp_path)], [])
  assert file.name == "a.arrow"


@pytest.mark.parametrize("state", ["{", '{"_data_files": []}', None])
def test_a_damaged_saved_dataset_is_left_out_as_its_error_says(tmp_path, state):
  for name in ("in/a.txt", "in/b [1]/x.arrow", "in/b [1]/.hidden"):
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("text")
  (tmp_path / "in" / "b [1]" / "dataset_info.json").write_text("{}")
  name = "dataset_dict.json" if state is None else "state.json"
  (tmp_path / "in" / "b [1]" / name).write_text(state or "{}")
  root = str(tmp_path / "in")
  with pytest.raises(errors.PrepareError, match="--exclude") as caught:
    inputs.discover([root], [])
  (pattern,) = re.findall(r"--exclude='(.*)'", str(caught.value))
  for exclude in (pattern, "b ?1]/*"):
    assert names(inputs.discover([root], [exclude])) == ["a.txt"]
  # What is left is not read as if it were no dataset.
  with pytest.raises(errors.PrepareError, match="--exclude"):
    inputs.discover([root], ["b*.json"])


def test_an_object_with_nul_in_its_name_is_named(monkeypatch):
  names_there = ["a.txt", "b\0.txt", "c.md"]

  def listed(self):
    for name in names_there:
      yield storage.ObjectInfo(name, 1, None, "etag")

  monkeypatch.setattr(bucket.BucketStorage, "list", listed)
  for url in ("s3://bucket", "s3://bucket/*.txt"):
    with pytest.raises(
      errors.PrepareError, match=r"b\\x00\.txt'\. Rename the object"
    ):
      inputs.discover([url], [])
  assert names(inputs.discover(["s3://bucket/*.md"], [])) == ["c.md"]
  assert names(inputs.discover(["s3://bucket/**"], ["*\0*"])) == [
    "a.txt", "c.md",
  ]  # fmt: skip
