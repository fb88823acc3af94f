# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A disk that takes no more is an error that names the file.

The kernel's limit of a file's size stands for it: the same call fails, and the
error of neither names a file.
"""

import contextlib
import errno
import resource
import sys

from etils import epath
import numpy as np
import pytest

from chomp_data import errors
from chomp_data import stores
from chomp_data.prepare import scratch
from chomp_data.reference import checkpoint_sums
from chomp_data.storage import opening
from chomp_data.storage import publish
from chomp_data.stores import checksum_sidecar
from chomp_data.stores import side_index
from chomp_data.stores.array_record import record_writer
from chomp_data.testing import stores as testing_stores
from tests import in_process


@contextlib.contextmanager
def files_of_at_most(num_bytes):
  # Modules imported meanwhile would leave half of their bytecode.
  writes_none = sys.dont_write_bytecode
  sys.dont_write_bytecode = True
  before = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
  try:
    yield
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    sys.dont_write_bytecode = writes_none


def documents():
  rng = np.random.default_rng(0)
  return [rng.integers(3, 250, 3_000) for _ in range(40)]


def sums(path):
  (path / "30" / "model").mkdir(parents=True)
  (path / "30" / "model" / "file").touch()
  (path / "30" / "sums").mkdir()
  checkpoint_sums.SumsHandler().finalize(epath.Path(path / "30" / "sums"))


def write_unnamed(path):
  with publish.unnamed_file(path) as file:
    file.write(bytes(10**5))


WRITES = {
  "tokens/c/": lambda path: testing_stores.make_store(
    path / "store", documents(), chunk=1_024
  ),
  "chunk of zstd": lambda path: testing_stores.make_store(
    path / "store", documents(), chunk=1_024, compression="zstd"
  ),
  "work": lambda path: scratch.storage_at(str(path)).put("work", bytes(10**5)),
  "place": lambda path: opening.open_storage(str(path)).put(
    "place", bytes(10**5)
  ),
  "there/tmp": write_unnamed,
  "pages.bin": lambda path: checksum_sidecar.adopt(path, path, ("large",)),
  "sums.json": sums,
}


@pytest.mark.parametrize("left", [0, 40])
@pytest.mark.parametrize("name", WRITES)
def test_the_file_is_named(tmp_path, name, left):
  path = tmp_path / "there"
  path.mkdir()
  (path / "large").write_bytes(bytes(11 * 2**20))
  with files_of_at_most(left), pytest.raises(OSError, match="large") as caught:
    WRITES[name](path)
  assert caught.value.errno == errno.EFBIG
  assert str(tmp_path) in caught.value.filename
  named = "tokens/c/" if name == "chunk of zstd" else name
  assert named in caught.value.filename


def test_an_index_that_finds_no_room_names_every_place(tmp_path, monkeypatch):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

  def build():
    yield {"ends": np.arange(10**4)}

  with (
    files_of_at_most(100),
    pytest.raises(errors.StoreError) as caught,
  ):
    side_index.load_or_build(tmp_path / "data", "lengths", {}, build=build)
  for place in ("data.index/.lengths-", "cache/chomp_data/index"):
    assert place in str(caught.value)
  assert str(caught.value).count("ends.bin") == 2
  found = side_index.load_or_build(
    tmp_path / "data", "lengths", {}, build=build
  )
  assert found["ends"].read()[-1] == 10**4 - 1


def test_array_record_names_it_too(tmp_path):
  store = testing_stores.make_store(tmp_path / "store", documents())
  with (
    files_of_at_most(5_000),
    pytest.raises(
      errors.StoreError, match=r"got: .*documents-00000-of-00001.*Make room"
    ),
  ):
    record_writer.write(store, tmp_path / "records")
  assert not (tmp_path / "records").exists()


def test_prepare_says_so_and_goes_on(tmp_path):
  text = tmp_path / "a.txt"
  text.write_text("what is written, is written. " * 3_000)
  flags = (f"--input={text}", f"--output={tmp_path / 'store'}", "--workers=1")
  with files_of_at_most(20_000):
    done = in_process.run_tool("prepare", *flags)
  assert done.returncode == 1
  assert f"error: {tmp_path}/store" in done.stderr
  assert "could not be written: File too large. Make room there" in done.stderr
  assert not (tmp_path / "store").exists()
  assert in_process.run_tool("prepare", *flags).returncode == 0
  assert stores.open_store(tmp_path / "store").num_documents == 1
