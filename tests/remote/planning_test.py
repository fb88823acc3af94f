# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Planning of many files in a bucket: few requests, little memory, and once."""

from concurrent import futures
import dataclasses
import io
import json
import math
import subprocess
import sys
import time

import pytest

from chomp_data import errors
from chomp_data.prepare import run
from chomp_data.storage import opening
from chomp_data.storage import requests

# Plans, prints its peak memory in KiB, and ends before anything is encoded.
PLAN = r"""
import json, os, re, sys
from chomp_data.prepare import run
from chomp_data.storage import requests

# Reads are counted: no second one where this machine is busy.
requests.LEAST_HEDGE_S = requests.FIRST_HEDGE_S = 30.0

def report(progress):
  if progress.stage != "plan":
    # Not `ru_maxrss`, which is at least that of the parent process.
    with open("/proc/self/status") as file:
      (peak,) = re.findall(r"VmHWM:\s*(\d+) kB", file.read())
    print(json.dumps({"peak": int(peak)}), flush=True)
    os._exit(0)

if __name__ == "__main__":
  pattern, output = sys.argv[1:]
  run.prepare(run.Options((pattern,), output, workers=2), report)
"""
LATENCY_S = 0.05


def footers(count):
  """Bytes of a Parquet file of few rows and a footer of some size."""
  arrow = pytest.importorskip("pyarrow")
  import pyarrow.parquet as parquet

  table = arrow.table({"text": ["a text"] * count, "id": list(range(count))})
  file = io.BytesIO()
  parquet.write_table(table, file, row_group_size=1)
  return file.getvalue()


def upload(root, count, data):
  storage = opening.open_storage(root)
  with futures.ThreadPoolExecutor(16) as pool:
    list(pool.map(lambda i: storage.put(f"{i:05}.parquet", data), range(count)))


def plan(bucket, output):
  """Plans in a new process; returns its seconds, peak KiB and requests."""
  bucket.clear()
  bucket.delay_s = lambda request: LATENCY_S
  began = time.monotonic()
  done = subprocess.run(
    [sys.executable, "-c", PLAN, bucket.root, str(output)],
    capture_output=True,
    text=True,
    check=False,
  )
  seconds = time.monotonic() - began
  assert done.returncode == 0, done.stderr[-2_000:]
  reads = bucket.reads(".parquet")
  listings = len(bucket.requests) - len(reads)
  return seconds, json.loads(done.stdout)["peak"], len(reads), listings


class Planned(Exception):
  """Ends a run before anything is encoded."""


def reads_of_plan(bucket, output):
  """Plans in this process; returns the reads of objects that it took."""

  def report(progress):
    if progress.stage != "plan":
      raise Planned

  bucket.clear()
  with pytest.raises(Planned):
    run.prepare(run.Options((bucket.root,), str(output), workers=1), report)
  return len(bucket.reads(".parquet"))


@pytest.mark.parametrize(
  ("scheme", "rows", "most"),
  [
    ("s3", 2, 1),
    ("gs", 4_000, 2),
    *(
      pytest.param(scheme, rows, most, marks=pytest.mark.slow)
      for scheme in ("gs", "s3", "az")
      for rows, most in ((2, 1), (600, 2), (4_000, 2))
      if (scheme, rows) not in (("s3", 2), ("gs", 4_000))
    ),
  ],
)
def test_each_file_takes_one_or_two_requests_and_none_again(
  request, tmp_path, scheme, rows, most
):
  bucket = request.getfixturevalue(f"{scheme}_bucket")
  data = footers(rows)
  assert (len(data) > 2**16) == (most == 2)
  upload(bucket.root, 20, data)
  assert reads_of_plan(bucket, tmp_path / "out") == 20 * most
  assert reads_of_plan(bucket, tmp_path / "out") == 0
  # An object that is replaced is looked at again, with those of its task.
  opening.open_storage(bucket.root).put("00003.parquet", footers(rows + 1))
  assert reads_of_plan(bucket, tmp_path / "out") == 20 * most


def test_a_store_that_is_there_is_found_without_permission_to_write(gs_bucket):
  upload(f"{gs_bucket.root}/in", 3, footers(2))
  options = run.Options((f"{gs_bucket.root}/in",), f"{gs_bucket.root}/out")
  store, written = run.prepare(options)
  assert written
  gs_bucket.clear()
  gs_bucket.fault = lambda request: 403 if request.method == "PUT" else None
  again, written = run.prepare(options)
  assert not written
  assert again.hash == store.hash
  with pytest.raises(errors.StoreError, match="writable"):
    run.prepare(dataclasses.replace(options, output=f"{options.output}2"))


def test_objects_that_were_uploaded_again_are_the_same_inputs(gs_bucket):
  storage = opening.open_storage(f"{gs_bucket.root}/in")
  data = b"".join(b'{"text": "line %d"}\n' % i for i in range(50))
  options = run.Options(
    (storage.path,), f"{gs_bucket.root}/out", shard_bytes=200, chunk=8
  )
  storage.put("a.jsonl", data)
  store, _ = run.prepare(options)
  storage.put("a.jsonl", data)
  again, written = run.prepare(options)
  assert not written
  assert again.hash == store.hash
  storage.put("a.jsonl", data.replace(b"line 7", b"Line 7"))
  with pytest.raises(errors.StoreError, match="differs in inputs"):
    run.prepare(options)
  names = opening.open_storage(gs_bucket.root).names()
  assert {name.partition("/")[0] for name in names} == {"in", "out"}


@pytest.mark.slow
def test_2500_files_are_planned_in_seconds_with_little_memory(
  gs_bucket, tmp_path
):
  """A tenth of 25,000 files, which must take less than five minutes.

  Measured on two cores: see the printed lines of `pytest -s`.
  """
  data = footers(8)
  upload(gs_bucket.root, 2_500, data)
  root = gs_bucket.root
  seconds, peak, reads, listings = plan(gs_bucket, tmp_path / "out")
  print(f"\n2,500 files: {seconds:.1f} s, {reads} reads, {listings} listings")
  assert reads <= 2 * 2_500
  assert listings == math.ceil(2_500 / 1_000)
  assert seconds < 30.0
  again, _, reads, listings = plan(gs_bucket, tmp_path / "out")
  print(f"again: {again:.1f} s, {reads} reads, {listings} listings")
  assert (reads, listings) == (0, math.ceil(2_500 / 1_000))
  gs_bucket.root = f"{root}/few"
  upload(gs_bucket.root, 600, data)
  _, small_peak, _, _ = plan(gs_bucket, tmp_path / "few")
  print(f"peak of the coordinator: {peak} KiB; 600 files: {small_peak} KiB")
  assert peak - small_peak < 4 * 2**10


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["gs", "s3", "az"])
def test_a_listing_continues_behind_a_page_that_failed(
  request, scheme, monkeypatch
):
  monkeypatch.setattr(requests, "RETRY_DELAYS_S", (0.01, 0.02))
  bucket = request.getfixturevalue(f"{scheme}_bucket")
  upload(bucket.root, 2_500, b"x")
  bucket.clear()
  storage = opening.open_storage(bucket.root)
  failed = []

  def fault(request):
    # Each page but the first fails once.
    if request.target not in failed and len(bucket.requests) > 1:
      failed.append(request.target)
      return 503
    return None

  bucket.fault = fault
  infos = list(storage.list())
  assert [info.name for info in infos] == [
    f"{i:05}.parquet" for i in range(2_500)
  ]
  assert all(info.size == 1 and info.etag for info in infos)
  # Azure cannot begin behind a name: pages before are read again.
  most = 3 + 2 * len(failed) + (4 if scheme == "az" else 0)
  assert len(bucket.requests) <= most
