# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Writing: all of a store or nothing of it, by one writer at a time."""

import os
import subprocess
import sys

import numpy as np
import pytest

from chomp_data import schema
from chomp_data import stores
from chomp_data.storage import publish

INFO = stores.TokenizerInfo("custom", "0" * 64, 10)


def write(path, documents, **changes):
  changes = {"tokenizer_info": INFO, "chunk": 4, **changes}
  return stores.write_store(path, documents, **changes)


def broken_documents():
  yield np.arange(5)
  raise RuntimeError("the input broke")


def test_nothing_is_left_when_writing_fails(tmp_path):
  with pytest.raises(RuntimeError, match="the input broke"):
    write(tmp_path / "store", broken_documents())
  assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
  ("documents", "changes", "match"),
  [
    ([[0, 10]], {}, "0 .. 9.*got 10"),
    ([[0, -1]], {}, "got -1"),
    ([[0.5]], {}, "integers.*float64"),
    ([[[1, 2]]], {}, "one dimension"),
    ([[1], [2]], {"ids": ["a"]}, "got 1. Give one"),
    ([[1]], {"ids": ["a", "b"]}, "more than 1"),
    ([[1]], {"ids": ["\ud800"]}, "valid Unicode"),
    ([[1]], {"ids": [3]}, "must be a string"),
    ([[1]], {"compression": "gzip"}, "'none', 'zstd', got 'gzip'"),
    (
      [[1]],
      {"chunk": 0},
      "`chunk` must be .* of at least 1, got 0",
    ),
    ([[1]], {"tokenizer_file": b"x"}, "tokenizer_file"),
  ],
)
def test_what_does_not_fit_is_refused(tmp_path, documents, changes, match):
  with pytest.raises(
    (stores.StoreError, schema.ConfigError, TypeError), match=match
  ):
    write(tmp_path / "store", documents, **changes)
  assert os.listdir(tmp_path) == []


def test_a_wrong_description_of_a_tokenizer_lists_all_that_is_wrong(tmp_path):
  info = stores.TokenizerInfo("other", "0" * 64, 0, pad_id=3)
  with pytest.raises(stores.StoreError, match=r"kind.*vocab_size.*pad_id"):
    write(tmp_path / "store", [], tokenizer_info=info)


def test_a_destination_in_use_is_kept(tmp_path):
  first = write(tmp_path / "store", [[1, 2]])
  with pytest.raises(stores.StoreError, match="got a store there"):
    write(tmp_path / "store", [[3]])
  assert stores.open_store(tmp_path / "store").hash == first.hash
  second = write(tmp_path / "store", [[3]], overwrite=True)
  assert stores.read_document(second, 0).tolist() == [3]
  assert os.listdir(tmp_path) == ["store"]


def test_what_is_not_a_store_is_never_replaced(tmp_path):
  (tmp_path / "folder").mkdir()
  (tmp_path / "folder" / "thesis.txt").write_text("years of work")
  with pytest.raises(stores.StoreError, match=r"thesis\.txt"):
    write(tmp_path / "folder", [[1]], overwrite=True)
  (tmp_path / "file").write_text("")
  with pytest.raises(stores.StoreError, match="got a file"):
    write(tmp_path / "file", [[1]], overwrite=True)
  (tmp_path / "empty").mkdir()
  assert write(tmp_path / "empty", [[1]]).num_documents == 1


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_and_leads_to_the_store(tmp_path, exists):
  path, disk = tmp_path / "store", tmp_path / "disk" / "target"
  disk.parent.mkdir()
  path.symlink_to(disk)
  if exists:
    disk.mkdir()
  write(path, [[1]])
  store = write(path, [[1, 2]], overwrite=True)
  assert path.is_symlink()
  assert os.listdir(disk.parent) == ["target"]
  assert stores.open_store(disk).hash == store.hash
  assert sorted(os.listdir(tmp_path)) == ["disk", "store"]


def test_one_writer_at_a_time(tmp_path):
  with (
    publish.lock(tmp_path / "store"),
    pytest.raises(stores.StoreError, match=r"store\.lock"),
  ):
    write(tmp_path / "store", [[1]])
  assert write(tmp_path / "store", [[1]]).num_documents == 1


_COUNT_IN_LOCK = """
import pathlib, sys
from chomp_data import stores
from chomp_data.storage import publish
path = pathlib.Path(sys.argv[1])
file = path / "count"
left = 300
while left:
  try:
    with publish.lock(path):
      file.write_text(str(int(file.read_text()) + 1))
    left -= 1
  except stores.StoreError:
    pass
"""


def test_the_lock_excludes_although_its_file_comes_and_goes(tmp_path):
  (tmp_path / "count").write_text("0")
  command = [sys.executable, "-c", _COUNT_IN_LOCK, str(tmp_path)]
  writers = [subprocess.Popen(command) for _ in range(4)]
  assert [writer.wait() for writer in writers] == [0] * 4
  assert (tmp_path / "count").read_text() == "1200"


def test_a_stale_staging_directory_is_no_obstacle(tmp_path):
  stale = tmp_path / "store.writing" / "tokens"
  stale.mkdir(parents=True)
  (stale / "zarr.json").write_text("cut off")
  assert write(tmp_path / "store", [[1]]).num_documents == 1
  assert os.listdir(tmp_path) == ["store"]


def test_padding_of_a_small_store_takes_no_room_on_disk(tmp_path):
  whole = tmp_path / "whole"
  whole.write_bytes(bytes(2**22))
  if os.stat(whole).st_blocks * 512 < 2**22:
    pytest.skip("zeros take no room here anyway")
  stores.write_store(tmp_path / "a", [[1, 2]], tokenizer_info=INFO)
  files = [own for own in (tmp_path / "a").rglob("*") if own.is_file()]
  assert sum(own.stat().st_size for own in files) > 4 * 2**20
  assert sum(own.stat().st_blocks * 512 for own in files) < 2**18
  stores.verify_store(tmp_path / "a")
