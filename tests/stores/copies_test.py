# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A copy whose modification times differ is the same corpus; other content of
the same size is another one."""

import os
import pathlib
import pickle
import shutil

import pytest

from chomp_data import stores
from chomp_data.stores.array_record import record_files
from chomp_data.stores.tokenized import levanter_store
from chomp_data.stores.tokenized import megatron_store
from chomp_data.testing import stores as testing_stores

FIXTURES = pathlib.Path(__file__).parent / "fixtures"
DOCUMENTS = [[5, 6, 7], [8] * 2_000, [9, 10]] * 20


def open_megatron(path):
  options = megatron_store.MegatronOptions(vocab_size=100_000)
  return stores.open_store(path / "int32_document", megatron=options)


def open_levanter(path):
  options = levanter_store.LevanterOptions(vocab_size=100_000)
  return stores.open_store(path, levanter=options)


def open_records(path):
  return testing_stores.open_array_records(path, "uint16")


def write(kind, path):
  """Writes a corpus; returns how it is opened, and a file of its tokens."""
  if kind == "zarr":
    testing_stores.make_store(path, DOCUMENTS, chunk=1_024)
    return stores.open_store, path / "tokens" / "c" / "0"
  if kind == "array_record":
    testing_stores.make_array_records(path, DOCUMENTS, dtype="uint16")
    file, *_ = sorted(path.glob("*.array_record*"))
    return open_records, file
  shutil.copytree(
    FIXTURES / kind / ("cache" if kind == "levanter" else ""), path
  )
  if kind == "levanter":
    return open_levanter, path / "input_ids" / "data" / "c" / "0"
  return open_megatron, path / "int32_document.bin"


KINDS = ["zarr", "array_record", "megatron", "levanter"]


@pytest.fixture(params=KINDS)
def corpus(request, tmp_path, monkeypatch):
  # A change in the middle of a small file is then in none of its ends.
  monkeypatch.setattr(record_files, "HEAD_BYTES", 16)
  monkeypatch.setattr(record_files, "TAIL_BYTES", 16)
  path = tmp_path / "corpus"
  return path, *write(request.param, path)


def touch(path):
  """Gives all files of a corpus other times, as a copy may."""
  for file in path.rglob("*"):
    if file.is_file():
      os.utime(file, ns=(10**18, 10**18))


def alter(file):
  """Changes a byte in the middle; size stays, and time differs."""
  data = bytearray(file.read_bytes())
  data[len(data) // 2] ^= 1
  file.write_bytes(data)
  os.utime(file, ns=(10**18, 10**18))


def held(store):
  return [
    stores.read_document(store, i).tolist() for i in range(store.num_documents)
  ]


def test_a_copy_with_other_times_is_the_same_store(corpus):
  path, open_it, _ = corpus
  store = open_it(path)
  wanted, pickled = held(store), pickle.dumps(store)
  touch(path)
  # One that is open, one of another process, and one that is opened anew.
  for same in (store, pickle.loads(pickled), open_it(path)):
    assert same.hash == store.hash
    assert held(same) == wanted


def test_a_copy_elsewhere_has_the_same_identity(corpus, tmp_path):
  path, open_it, _ = corpus
  store = open_it(path)
  shutil.copytree(path, tmp_path / "copy", copy_function=shutil.copyfile)
  copy = open_it(tmp_path / "copy")
  assert copy.hash == store.hash
  assert held(copy) == held(store)


def test_other_content_of_the_same_size_is_no_copy(corpus):
  path, open_it, file = corpus
  store = open_it(path)
  is_megatron = file.suffix == ".bin"
  pickled, wanted = pickle.dumps(store), held(store)
  size = file.stat().st_size
  alter(file)
  assert file.stat().st_size == size
  with pytest.raises(
    stores.StoreError, match="began with" if is_megatron else str(path)
  ):
    held(pickle.loads(pickled))
  # Opened anew it is another corpus, or damaged: never the same tokens as
  # those of the hash.
  try:
    other = open_it(path)
    assert held(other) != wanted
  except stores.StoreError:
    assert not is_megatron  # Any token is within its vocabulary.
    return
  assert other.hash != store.hash


@pytest.mark.parametrize("corpus", ["megatron", "levanter"], indirect=True)
def test_a_file_that_is_rewritten_while_it_is_read_is_refused(corpus):
  path, open_it, _ = corpus
  store = open_it(path)
  held(store)
  watched = next(path.glob("int32_document.bin"), path / "shard_ledger.json")
  data = watched.read_bytes()
  watched.write_bytes(data[::-1])
  with pytest.raises(stores.StoreError, match="written anew"):
    held(store)
  watched.write_bytes(data)
  assert held(store)
