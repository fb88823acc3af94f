# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Opening a store of many files asks for few of them; reading checks each."""

import importlib
import json
import os
import pathlib
import pickle
import shutil

import numpy as np
import pytest

from chomp_data import stores
from chomp_data.storage import file_maps
from chomp_data.stores import adopting
from chomp_data.stores import checksum_sidecar
from chomp_data.stores import modification_guard
from chomp_data.stores import samples as samples_lib
from chomp_data.stores.tokenized import levanter_store
from chomp_data.stores.zarr import zarr_opening
from chomp_data.testing import stores as testing_stores
from examples import save_to_disk

FIXTURES = pathlib.Path(__file__).parent / "fixtures"
NUM_SHARDS = 40
CHUNK = 64


@pytest.fixture(params=["none", "zstd"])
def path(request, tmp_path, monkeypatch):
  """A store of more shard files than are listed when it is opened."""
  rng = np.random.default_rng(0)
  store = testing_stores.make_store(
    tmp_path / "store",
    [rng.integers(3, 250, CHUNK) for _ in range(NUM_SHARDS)],
    chunk=CHUNK,
    chunks_per_shard=1,
    compression=request.param,
  )
  monkeypatch.setattr(zarr_opening, "LISTED_FILES", NUM_SHARDS)
  return pathlib.Path(store.path)


@pytest.fixture
def caches(tmp_path):
  """Two sharded caches of Levanter's, one of many shards."""
  one = FIXTURES / "levanter" / "sharded"
  path = tmp_path / "levanter"
  shutil.copytree(one, path)
  ledger = json.loads((path / "shard_ledger.json").read_text())
  for number in range(2, NUM_SHARDS):
    shutil.copytree(path / "part-0", path / f"part-{number}")
    ledger["finished_shards"].append(f"part-{number}")
    ledger["shard_rows"][f"part-{number}"] = 2
  ledger["total_num_rows"] = sum(ledger["shard_rows"].values())
  (path / "shard_ledger.json").write_text(json.dumps(ledger))
  return path


def open_levanter(path):
  options = levanter_store.LevanterOptions(vocab_size=100_000)
  return stores.open_store(path, levanter=options)


def chunks_opened(monkeypatch):
  """Returns a list of the chunk files that are opened or whose status is asked.

  It is filled as that happens.
  """
  names: list[str] = []
  for module, function in (("os", "stat"), ("builtins", "open")):
    original = getattr(importlib.import_module(module), function)

    def counted(name, *args, original=original, **options):
      if not isinstance(name, int) and "/c/" in os.fspath(name):
        names.append(os.fspath(name))
      return original(name, *args, **options)

    monkeypatch.setattr(f"{module}.{function}", counted)
  return names


def test_few_files_of_a_cache_of_many_are_looked_at(caches, monkeypatch):
  monkeypatch.setattr(modification_guard, "MAX_STAMPS", 4)
  store = open_levanter(caches)
  wanted = [read(store, i) for i in range(store.num_documents)]
  sent = pickle.dumps(store)
  names = chunks_opened(monkeypatch)
  assert open_levanter(caches).hash == store.hash
  worker_store = pickle.loads(sent)
  assert worker_store.num_documents == store.num_documents
  assert len(names) <= 2 * 4
  names.clear()
  assert read(worker_store, store.num_documents - 1) == wanted[-1]
  assert 0 < len(set(names)) <= 2
  assert [read(worker_store, i) for i in range(store.num_documents)] == wanted


@pytest.mark.parametrize("change", ["size", "time", "bytes"])
def test_a_changed_file_of_a_cache_of_many_is_found_when_it_is_read(
  caches, monkeypatch, change
):
  monkeypatch.setattr(modification_guard, "MAX_STAMPS", 4)
  store = open_levanter(caches)
  last = store.num_documents - 1
  file = caches / f"part-{NUM_SHARDS - 1}" / "input_ids" / "data" / "c" / "0"
  before, data = file.stat(), bytearray(file.read_bytes())
  if change == "size":
    data += b"\0"
  else:
    data[3] ^= 1
  file.write_bytes(data)
  if change == "bytes":
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
  again = open_levanter(caches)
  assert read(again, 0) == read(store, 0)
  with pytest.raises(
    stores.StoreError, match=f"part-{NUM_SHARDS - 1}.*indexed"
  ):
    read(again, last)


@pytest.fixture
def looked_at(monkeypatch):
  """Records the shard files whose status is asked for, or that are listed."""
  names: list[str] = []
  status, scan = os.stat, os.scandir

  def record(name):
    text = os.fspath(name)
    if "/c/" in f"{text}/" or "-of-00040" in text:
      names.append(text)

  def counted_stat(name, *args, **options):
    if not isinstance(name, int):
      record(name)
    return status(name, *args, **options)

  def counted_scan(name="."):
    record(name)
    return scan(name)

  monkeypatch.setattr(os, "stat", counted_stat)
  monkeypatch.setattr(os, "scandir", counted_scan)
  return names


def read(store, document):
  return stores.read_document(store, document).tolist()


def test_no_shard_file_is_looked_at_to_open_a_store_of_many(path, looked_at):
  store = stores.open_store(path)
  assert store.num_documents == NUM_SHARDS
  assert pickle.loads(pickle.dumps(store)).hash == store.hash
  assert not looked_at


def test_those_of_a_store_of_few_files_are(path, looked_at, monkeypatch):
  monkeypatch.setattr(zarr_opening, "LISTED_FILES", 10 * NUM_SHARDS)
  stores.open_store(path)
  assert len(looked_at) >= NUM_SHARDS


def test_no_shard_file_is_looked_at_to_open_a_store_in_a_worker(
  path, monkeypatch, looked_at
):
  monkeypatch.setattr(zarr_opening, "LISTED_FILES", 10 * NUM_SHARDS)
  store = stores.open_store(path)
  sent = pickle.dumps(store)
  del store  # As in a process that has not opened it.
  looked_at.clear()
  worker_store = pickle.loads(sent)
  assert worker_store.num_documents == NUM_SHARDS
  assert not looked_at
  (path / "tokens" / "c" / "7").write_bytes(b"")
  with pytest.raises(stores.StoreError, match=r"tokens/c/7.* must .*Restore"):
    read(worker_store, 7)


@pytest.mark.parametrize("change", ["cut", "emptied", "grown", "gone", "other"])
def test_a_changed_file_is_found_when_it_is_read(path, change):
  file = path / "tokens" / "c" / "7"
  whole = read(stores.open_store(path), 6)
  data = file.read_bytes()
  changed = {
    "cut": data[:-1],
    "emptied": b"",
    "grown": data + b"\0",
    "other": bytes([data[0] ^ 1]) + data[1:],
    "gone": data,
  }
  file.write_bytes(changed[change])
  if change == "gone":
    file.unlink()
  store = stores.open_store(path)
  assert read(store, 6) == whole
  with pytest.raises(stores.StoreError, match=f"{file}.* must .*Restore"):
    read(store, 7)
  with pytest.raises(stores.StoreError, match=str(file)):
    stores.verify_store(path)


def test_verifying_finds_files_that_nothing_reads(path):
  (path / "tokens" / "c" / "extra").write_bytes(b"")
  assert stores.open_store(path).num_documents == NUM_SHARDS
  with pytest.raises(stores.StoreError, match="extra must not exist"):
    stores.verify_store(path)


def test_the_description_of_an_array_is_checked_at_once(path):
  file = path / "ids" if (path / "ids").exists() else path / "tokens"
  file = file / "zarr.json"
  file.write_bytes(file.read_bytes()[:-2] + b" }")
  with pytest.raises(stores.StoreError, match=f"{file} must be what"):
    stores.open_store(path)


# --- ArrayRecord -------------------------------------------------------------


@pytest.fixture
def records(tmp_path, monkeypatch):
  """Files of an index, of more than are looked at when it is opened."""
  path = tmp_path / "records"
  rng = np.random.default_rng(0)
  testing_stores.make_array_records(
    path, [rng.integers(0, 250, 20) for _ in range(400)], files=40
  )
  testing_stores.open_array_records(path)
  monkeypatch.setattr(modification_guard, "MAX_STAMPS", 10)
  return path


def test_some_of_many_record_files_are_looked_at(records, looked_at):
  store = testing_stores.open_array_records(records)
  assert store.num_documents == 400
  assert len(looked_at) == len(set(looked_at)) == 10


@pytest.mark.parametrize("change", ["cut", "gone"])
def test_some_of_many_adopted_files_are_looked_at(records, looked_at, change):
  wanted = testing_stores.open_array_records(records).hash
  corpus = adopting.files_at(records)
  checksum_sidecar.adopt(corpus.home, corpus.root, corpus.names)
  looked_at.clear()
  store = testing_stores.open_array_records(records)
  assert store.hash == wanted
  # For their sizes when they were adopted, and when they were indexed.
  assert len(looked_at) == 2 * len(set(looked_at)) == 2 * 10
  file = sorted(records.glob("*-of-*"))[7]
  if change == "gone":
    file.unlink()
    # What is listed says so.
    with pytest.raises(stores.StoreError, match=r"00007-of.* must "):
      testing_stores.open_array_records(records)
    return
  file.write_bytes(file.read_bytes()[:-1])
  store = testing_stores.open_array_records(records)
  assert len(stores.read_document(store, 0)) == 20
  with pytest.raises(stores.StoreError, match=f"{file}"):
    stores.read_document(store, 75)


def test_a_worker_looks_at_some_files_of_an_adopted_cache_of_many(
  caches, monkeypatch
):
  monkeypatch.setattr(modification_guard, "MAX_STAMPS", 4)
  corpus = adopting.files_at(caches)
  checksum_sidecar.adopt(corpus.home, corpus.root, corpus.names)
  store = open_levanter(caches)
  wanted = read(store, store.num_documents - 1)
  sent = pickle.dumps(store)
  names = chunks_opened(monkeypatch)
  worker_store = pickle.loads(sent)
  assert worker_store.num_documents == store.num_documents
  assert len(names) <= 3 * 4
  assert read(worker_store, store.num_documents - 1) == wanted


def test_a_record_file_that_nobody_looked_at_is_checked_when_read(records):
  wanted = stores.read_document(
    testing_stores.open_array_records(records), 0
  ).tolist()
  file = sorted(records.glob("*-of-*"))[7]
  other = records.parent / "other"
  testing_stores.make_array_records(other, [[1] * 20] * 10, files=1)
  file.write_bytes(next(other.iterdir()).read_bytes())
  store = testing_stores.open_array_records(records)
  assert stores.read_document(store, 0).tolist() == wanted
  with pytest.raises(stores.StoreError, match=f"{file}.* Put that file back"):
    stores.read_document(store, 75)


def test_a_record_file_that_is_looked_at_is_indexed_again(records):
  before = testing_stores.open_array_records(records).hash
  file = sorted(records.glob("*-of-*"))[8]
  other = records.parent / "other"
  testing_stores.make_array_records(other, [[1] * 20] * 10, files=1)
  file.write_bytes(next(other.iterdir()).read_bytes())
  store = testing_stores.open_array_records(records)
  assert store.hash != before
  assert stores.read_document(store, 80).tolist() == [1] * 20


# --- save_to_disk ------------------------------------------------------------


def test_an_indexed_dataset_of_many_arrow_files_opens_one(
  tmp_path, monkeypatch, looked_at
):
  path = tmp_path / "samples"
  samples = [
    (
      {"pixels": np.full((2, 2), number, np.uint8)},
      {"height": 2, "width": 2, "label": number},
    )
    for number in range(NUM_SHARDS)
  ]
  save_to_disk.save_to_disk(path, samples, samples_per_file=1)

  def opened():
    return samples_lib.open_samples(path, fields=["pixels"])

  opened()
  mapped = []
  map_file = file_maps.mapped

  def counted(file, dtype):
    mapped.append(os.fspath(file))
    return map_file(file, dtype)

  monkeypatch.setattr(file_maps, "mapped", counted)
  looked_at.clear()
  store = opened()
  heights, widths = store.sizes()
  assert heights.tolist() == widths.tolist() == [2] * NUM_SHARDS
  assert len([name for name in mapped if name.endswith(".arrow")]) == 1
  # One status for each file: whether it is the one that was indexed.
  assert len(looked_at) <= NUM_SHARDS + 1
  assert (store.read([17])["pixels"] == 17).all()
  assert len([name for name in mapped if name.endswith(".arrow")]) == 2
