# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Indexes beside stores in buckets: read by ranges, kept page by page."""

import json
import os
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pytest

from chomp_data import stores
from chomp_data.storage import checked_file
from chomp_data.storage import opening
from chomp_data.storage import requests
from chomp_data.stores import side_index

KEY = {"store": "abc", "seq_len": 8}
PAGE = checked_file.PAGE_BYTES // 8
# Ten pages, the last one not full.
VALUES = np.cumsum(np.random.default_rng(0).integers(0, 9, 9 * PAGE + 1_000))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
  monkeypatch.setattr(requests, "RETRY_DELAYS_S", (0.001,) * 4)


@pytest.fixture(params=["s3_bucket", "gs_bucket", "az_bucket"])
def bucket(request, tmp_path, monkeypatch):
  """A bucket with an index of a large and a small array, of another machine."""
  found = request.getfixturevalue(request.param)
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other_machine"))
  load(found, lambda: [{"values": VALUES, "totals": np.arange(3)}])
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  found.clear()
  return found


def never():
  raise AssertionError("an index that is there was built")
  yield


def load(bucket, build=never, name="sums"):
  return side_index.load_or_build(f"{bucket.root}/store", name, KEY, build)


def objects(bucket):
  files = opening.open_storage(f"{bucket.root}/store.index")
  return {name.rpartition("/")[2]: name for name in files.names()}


def replace(bucket, name, data):
  files = opening.open_storage(f"{bucket.root}/store.index")
  files.put(objects(bucket)[name], data)


def reads(bucket, name="values.bin"):
  return [
    request
    for request in bucket.requests
    if request.method == "GET" and request.name.endswith(name)
  ]


def test_pages_are_requested_when_their_values_are_read(bucket):
  arrays = load(bucket)
  assert not reads(bucket)
  values = arrays["values"]
  assert len(values) == len(VALUES)
  at = np.asarray([PAGE + 3, 7 * PAGE, PAGE + 4])
  assert np.array_equal(values.take(at), VALUES[at])
  assert len(reads(bucket)) == 2
  assert bucket.bytes_out < 2.1 * checked_file.PAGE_BYTES
  assert np.array_equal(values.read(PAGE, 2 * PAGE), VALUES[PAGE : 2 * PAGE])
  assert len(reads(bucket)) == 2
  # Neighbours together: pages 0, 2 to 6, and 8 to 9.
  assert np.array_equal(values.read(), VALUES)
  assert len(reads(bucket)) == 5
  assert arrays["totals"].read().tolist() == [0, 1, 2]


def test_pages_stay_on_this_machine_for_other_processes(bucket):
  at = np.asarray([5, 4 * PAGE])
  sent = pickle.dumps(load(bucket)["values"])
  load(bucket)["values"].take(at)
  bucket.clear()
  assert np.array_equal(load(bucket)["values"].take(at), VALUES[at])
  program = "\n".join(
    (
      "import pickle, sys",
      "values = pickle.load(sys.stdin.buffer)",
      f"print(values.take(__import__('numpy').asarray({at.tolist()})).tolist())",
    )
  )
  done = subprocess.run(
    [sys.executable, "-c", program],
    input=sent,
    capture_output=True,
    check=True,
  )
  assert json.loads(done.stdout) == VALUES[at].tolist()
  assert not bucket.requests


def test_a_search_reads_few_pages(bucket):
  values = load(bucket)["values"]
  at = np.asarray([0, int(VALUES[3 * PAGE + 9]), int(VALUES[-1]) + 1])
  expected = np.searchsorted(VALUES, at, side="right")
  assert np.array_equal(values.search(at[1:2]), expected[1:2])
  assert len(reads(bucket)) <= 4
  assert np.array_equal(values.search(at), expected)


def test_an_empty_array_needs_no_object(bucket):
  load(bucket, lambda: [{"none": np.zeros(0, np.int64)}], "empty")
  next(cache().glob("empty-*")).rename(cache() / "elsewhere")
  assert load(bucket, name="empty")["none"].read().tolist() == []


def test_an_array_larger_than_an_object_is_in_several(bucket, monkeypatch):
  monkeypatch.setattr(side_index, "OBJECT_BYTES", 4 * checked_file.PAGE_BYTES)
  load(bucket, lambda: [{"values": VALUES}], "large")
  assert {"values.bin", "values.bin.1", "values.bin.2"} <= set(objects(bucket))
  directory = next(cache().glob("large-*"))
  directory.rename(directory.with_name("elsewhere"))
  bucket.clear()
  values = load(bucket, name="large")["values"]
  assert np.array_equal(values.read(3 * PAGE), VALUES[3 * PAGE :])
  assert len(bucket.requests) == 4


def cache():
  """Where this machine has its indexes."""
  return pathlib.Path(os.environ["XDG_CACHE_HOME"], "chomp_data", "index")


def test_a_page_that_was_altered_in_the_bucket_is_an_error(bucket):
  data = bytearray(VALUES.tobytes())
  data[checked_file.PAGE_BYTES + 7] ^= 1
  replace(bucket, "values.bin", bytes(data))
  values = load(bucket)["values"]
  assert values.take(np.asarray([5])) == VALUES[5]
  for _ in range(2):
    with pytest.raises(
      stores.StoreError, match=r"values\.bin: page 1 must have crc32c.*Remove"
    ):
      values.take(np.asarray([PAGE]))


def test_a_page_that_was_altered_on_this_machine_is_requested_again(bucket):
  load(bucket)["values"].take(np.asarray([5]))
  file = next(cache().rglob("values.bin"))
  data = bytearray(file.read_bytes())
  data[3] ^= 1
  file.write_bytes(data)
  bucket.clear()
  assert load(bucket)["values"].take(np.asarray([5])) == VALUES[5]
  assert len(reads(bucket)) == 1


def test_a_damaged_answer_is_requested_again(bucket):
  damaged = []

  def damage(request, body):
    if request.name.endswith("values.bin") and not damaged:
      damaged.append(request)
      return body[:-1] + bytes([body[-1] ^ 1])
    return body

  bucket.damage = damage
  values = load(bucket)["values"]
  assert values.take(np.asarray([2 * PAGE])) == VALUES[2 * PAGE]
  assert damaged
  assert len(reads(bucket)) == 2


def test_an_array_that_is_gone_from_the_bucket_is_an_error(bucket):
  values = load(bucket)["values"]
  files = opening.open_storage(f"{bucket.root}/store.index")
  files.delete([objects(bucket)["values.bin"]])
  with pytest.raises(stores.StoreError, match=r"must be written from .*values"):
    values.read(0, 10)


def test_a_small_index_that_is_damaged_in_the_bucket_is_built_again(bucket):
  load(bucket, lambda: [{"rows": np.arange(9)}], "small")
  directory = next(cache().glob("small-*"))
  directory.rename(directory.with_name("elsewhere"))
  replace(bucket, "rows.bin", b"\0" * 72)
  built = load(bucket, lambda: [{"rows": np.arange(9)}], "small")
  assert built["rows"].read().tolist() == list(range(9))
  opened = load(bucket, name="small")
  assert opened["rows"].read().tolist() == list(range(9))
