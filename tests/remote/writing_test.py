# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Writing stores to buckets: whole or not at all, by one writer."""

import contextlib
import itertools
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import pytest

from chomp_data import errors
from chomp_data import stores
from chomp_data.prepare import run
from chomp_data.storage import claims
from chomp_data.storage import opening
from chomp_data.stores import verify
from chomp_data.stores.zarr import destination
from chomp_data.testing import stores as testing_stores
from tests import in_process
from tests.stores import full_disk_test

# What processes that are killed or stopped leave is alike in both kinds.
one_kind = pytest.mark.parametrize(
  "bucket", ["s3", pytest.param("gs", marks=pytest.mark.slow)], indirect=True
)

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def text(tmp_path):
  path = tmp_path / "text.jsonl"
  lines = [{"text": f"document {i} " * 50, "id": f"{i}"} for i in range(200)]
  path.write_text("\n".join(map(json.dumps, lines)))
  return path


def prepare(text, output, *flags, **env):
  return in_process.run_tool(
    "prepare",
    f"--input={text}",
    f"--output={output}",
    "--tokenizer=byte",
    "--workers=0",
    *flags,
    env=env,
  )


def names(bucket):
  return opening.open_storage(bucket.root).names()


def test_prepare_writes_the_store_that_it_writes_locally(
  bucket, text, tmp_path, staging
):
  url = f"{bucket.root}/store"
  assert prepare(text, url, "--compression=zstd").returncode == 0
  writes = [own for own in bucket.requests if own.method in ("PUT", "POST")]
  assert writes[0].name.endswith("/store.claim/writer.json")
  writes = [own for own in writes if "/store/" in own.name]
  assert writes[-1].name.endswith("/store/manifest.json")
  assert prepare(text, tmp_path / "local", "--compression=zstd").returncode == 0
  local = tmp_path / "local"
  for file in local.rglob("*"):
    if file.is_file():
      name = file.relative_to(local).as_posix()
      assert opening.open_storage(url).get(name) == file.read_bytes()
  assert verify.verify_store(url).hash == stores.open_store(local).hash
  # Nothing is left behind.
  assert not list(staging.rglob("*"))


def bytes_below(directory):
  total = 0
  for folder, _, files in os.walk(directory):
    for name in files:
      with contextlib.suppress(FileNotFoundError):
        total += os.stat(os.path.join(folder, name)).st_size
  return total


@pytest.mark.parametrize(
  ("bucket", "compression"),
  [
    ("s3", "zstd"),
    ("gs", "none"),
    pytest.param("s3", "none", marks=pytest.mark.slow),
    pytest.param("gs", "zstd", marks=pytest.mark.slow),
  ],
  indirect=["bucket"],
)
def test_neither_parts_nor_shards_of_a_bucket_are_staged_on_the_disk(
  bucket, tmp_path, staging, monkeypatch, compression
):
  text, url = tmp_path / "large.jsonl", f"{bucket.root}/store"
  rng = random.Random(0)
  with open(text, "w") as file:
    for i in range(120):
      line = {"text": rng.randbytes(2_000).hex(), "id": f"{i}"}
      file.write(json.dumps(line) + "\n")
  temporary = tmp_path / "temporary"
  temporary.mkdir()
  monkeypatch.setattr(tempfile, "tempdir", str(temporary))
  largest, ended = [0], threading.Event()

  def watch():
    while not ended.wait(0.001):
      total = bytes_below(staging) + bytes_below(temporary)
      largest[0] = max(largest[0], total)

  watching = threading.Thread(target=watch)
  watching.start()
  try:
    # A temporary file without a name is not seen, but cannot be larger.
    with full_disk_test.files_of_at_most(20_000):
      store, _ = run.prepare(
        run.Options(
          (str(text),),
          url,
          compression=compression,
          chunk=2**12,
          shard_bytes=2**16,
          duplicates="drop",
        )
      )
  finally:
    ended.set()
    watching.join()
  tokens = store.manifest.arrays["tokens"].num_bytes
  assert tokens > 200_000
  # The lock, the manifest and tables of chunks.
  assert 0 < largest[0] < 20_000
  stores.verify_store(url)


def test_duplicates_take_five_requests_per_group(bucket, text):
  options = run.Options(
    (str(text),), f"{bucket.root}/store", duplicates="drop", shard_bytes=2**14
  )
  store, _ = run.prepare(options)
  assert store.num_documents == 200
  requests = [own for own in bucket.requests if "/duplicates-" in own.name]
  files = {own.name.rpartition("/")[2] for own in requests if "." in own.name}
  groups = {name for name in files if name.endswith(".hashes")}
  assert len(groups) > 5
  # Of hashes a look, a write and a read; of what is left out a write, a read.
  reads_and_writes = [
    own for own in requests if own.name.endswith((".hashes", ".drops"))
    and own.method in ("GET", "PUT", "POST")
  ]  # fmt: skip
  assert len(reads_and_writes) == 5 * len(groups)


def test_prepared_again_it_has_nothing_to_do(bucket, text):
  url = f"{bucket.root}/store"
  assert prepare(text, url).returncode == 0
  bucket.clear()
  assert prepare(text, url).returncode == 0
  assert {own.method for own in bucket.requests} <= {"GET", "HEAD"}


def test_another_store_there_is_refused_and_replaced_on_request(
  bucket, text, tmp_path
):
  url = f"{bucket.root}/store"
  assert prepare(text, url).returncode == 0
  before = stores.open_store(url).hash
  other = tmp_path / "other.jsonl"
  other.write_text('{"text": "another", "id": "1"}')
  refused = prepare(other, url)
  assert refused.returncode != 0
  assert "differs in inputs" in refused.stderr
  assert stores.open_store(url).hash == before
  assert prepare(other, url, "--overwrite").returncode == 0
  assert stores.open_store(url).num_documents == 1
  verify.verify_store(url)


def staged(path, seed, size=400):
  tokens = np.random.default_rng(seed).integers(0, 250, size)
  testing_stores.make_store(path, [tokens], chunk=16, chunks_per_shard=4)
  return path


def test_of_writers_of_different_stores_one_succeeds(bucket, tmp_path):
  url = f"{bucket.root}/store"
  paths = [staged(tmp_path / f"{i}", i) for i in range(3)]
  hashes = [stores.open_store(path).hash for path in paths]
  results = {}

  def publish(number):
    try:
      destination.open_destination(url).publish(paths[number], overwrite=False)
      results[number] = None
    except errors.StoreError as error:
      results[number] = str(error)

  threads = [threading.Thread(target=publish, args=(i,)) for i in range(3)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  (winner,) = [number for number, error in results.items() if error is None]
  for error in results.values():
    assert error is None or url in error
  assert verify.verify_store(url).hash == hashes[winner]
  assert len(names(bucket)) == len(list(_files(paths[winner])))


# One process that writes a store: a line once it begins, and one at its end.
WRITER = """
import pathlib, sys
from chomp_data import errors
from chomp_data.storage import claims
from chomp_data.stores.zarr import destination
claims.RENEW_S, claims.SILENT_S, claims.LOOK_INTERVAL_S = 0.2, 3.0, 0.05
path, url, overwrite = sys.argv[1:]
target = destination.open_destination(url)
print("begin", flush=True)
sys.stdin.readline()
try:
  target.publish(pathlib.Path(path), overwrite == "overwrite")
  print("whole", flush=True)
except errors.StoreError as error:
  print(error, flush=True)
"""


def writer(path, url, overwrite=""):
  process = subprocess.Popen(
    [sys.executable, "-c", WRITER, str(path), url, overwrite],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
    env={**os.environ, "PYTHONPATH": str(ROOT)},
  )
  assert process.stdout.readline() == "begin\n"
  return process


def begin(*processes):
  for process in processes:
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.mark.parametrize(
  ("bucket", "overwrite", "repeats"),
  [
    ("s3", "", 1),
    *(
      pytest.param(*own, 3, marks=pytest.mark.slow)
      for own in itertools.product(("s3", "gs"), ("", "overwrite"))
    ),
  ],
  indirect=["bucket"],
)
def test_exactly_one_of_concurrent_processes_writes_its_store(
  bucket, tmp_path, overwrite, repeats
):
  paths = [staged(tmp_path / f"{i}", i) for i in range(4)]
  hashes = [stores.open_store(path).hash for path in paths]
  for repeat in range(repeats):
    url = f"{bucket.root}/{repeat}"
    if overwrite:
      destination.open_destination(url).publish(
        staged(tmp_path / "old", 9), False
      )
    bucket.delay_s = lambda request: 0.005
    processes = [writer(path, url, overwrite) for path in paths]
    begin(*processes)
    said = [process.communicate()[0].strip() for process in processes]
    bucket.clear()
    winners = [i for i, text in enumerate(said) if text == "whole"]
    if overwrite:
      # One after the other: who comes when another is done replaces its store.
      assert winners, said
      assert verify.verify_store(url).hash in {hashes[i] for i in winners}
    else:
      assert len(winners) == 1, said
      assert verify.verify_store(url).hash == hashes[winners[0]]
    for i, text in enumerate(said):
      assert i in winners or url in text
    assert not opening.open_storage(f"{url}.claim").names()
    for path in (tmp_path / "old",):
      shutil.rmtree(path, ignore_errors=True)


def sending_writer(bucket, path, url):
  """Returns a writer that sends the tokens of a store, slowly."""
  process = writer(path, url)
  bucket.delay_s = lambda request: 0.05
  begin(process)
  until = time.monotonic() + 30.0
  while not any("/tokens/c/" in request.name for request in bucket.requests):
    assert time.monotonic() < until
    time.sleep(0.01)
  return process


def killed_writer(bucket, path, url):
  """Leaves a store unfinished, by a writer that is killed as it sends it."""
  process = sending_writer(bucket, path, url)
  process.kill()
  process.communicate()
  bucket.clear()
  assert not destination.open_destination(url).holds_store()


@one_kind
def test_a_writer_of_another_store_takes_over_from_a_killed_one(
  bucket, tmp_path
):
  url = f"{bucket.root}/store"
  first, other = staged(tmp_path / "a", 0, 4_000), staged(tmp_path / "b", 1)
  killed_writer(bucket, first, url)
  assert len(opening.open_storage(url).names()) > 0
  began = time.monotonic()
  destination.open_destination(url).publish(other, overwrite=False)
  # It ran on this machine: nobody waits for it.
  assert time.monotonic() - began < claims.SILENT_S / 4
  assert verify.verify_store(url).hash == stores.open_store(other).hash
  assert len(names(bucket)) == len(list(_files(other)))


@one_kind
@pytest.mark.parametrize("_", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_one_of_two_takes_over_from_a_killed_writer(bucket, tmp_path, _):
  url = f"{bucket.root}/store"
  paths = [staged(tmp_path / str(i), i, 2_000) for i in range(3)]
  killed_writer(bucket, paths[0], url)
  processes = [writer(path, url) for path in paths[1:]]
  begin(*processes)
  said = [process.communicate()[0].strip() for process in processes]
  assert said.count("whole") == 1, said
  winner = paths[1 + said.index("whole")]
  assert verify.verify_store(url).hash == stores.open_store(winner).hash


def test_a_claim_of_another_machine_is_taken_over_once_it_is_silent(
  bucket, tmp_path, monkeypatch
):
  monkeypatch.setattr(claims, "SILENT_S", 1.0)
  monkeypatch.setattr(claims, "LOOK_INTERVAL_S", 0.05)
  url = f"{bucket.root}/store"
  record = {"writer": "a", "store": "b", "host": "far", "pid": 1,
            "process": ["boot", "space", "1"]}  # fmt: skip
  claim = opening.open_storage(claims.claim_url(url))
  claim.put(claims.NAME, json.dumps(record).encode())
  opening.open_storage(url).put("tokens/c/1", b"of an unfinished store")
  path = staged(tmp_path / "a", 0)
  began = time.monotonic()
  destination.open_destination(url).publish(path, overwrite=False)
  assert time.monotonic() - began > 1.0
  assert verify.verify_store(url).hash == stores.open_store(path).hash
  assert not claim.names()


def test_a_claim_that_is_renewed_is_another_writers(
  bucket, tmp_path, monkeypatch
):
  monkeypatch.setattr(claims, "SILENT_S", 5.0)
  monkeypatch.setattr(claims, "LOOK_INTERVAL_S", 0.05)
  url = f"{bucket.root}/store"
  claim = opening.open_storage(claims.claim_url(url))
  record = {"writer": "a", "store": "b", "host": "far", "pid": 7}
  claim.put(claims.NAME, json.dumps(record).encode())
  ended = threading.Event()

  def renew():
    while not ended.wait(0.3):
      record["renewals"] = record.get("renewals", 0) + 1
      claim.put(claims.NAME, json.dumps(record).encode())

  thread = threading.Thread(target=renew)
  thread.start()
  try:
    for overwrite in (False, True):
      with pytest.raises(errors.StoreError, match="process 7 of 'far'"):
        destination.open_destination(url).publish(
          staged(tmp_path / f"{overwrite}", 0), overwrite
        )
  finally:
    ended.set()
    thread.join()
  assert not opening.open_storage(url).names()


@one_kind
@pytest.mark.slow
def test_a_writer_that_was_stopped_too_long_finds_its_claim_gone(
  bucket, tmp_path
):
  url = f"{bucket.root}/store"
  first, other = staged(tmp_path / "a", 0, 4_000), staged(tmp_path / "b", 1)
  process = sending_writer(bucket, first, url)
  process.send_signal(signal.SIGSTOP)
  try:
    bucket.clear()
    later = writer(other, url)
    begin(later)
    assert later.communicate()[0].strip() == "whole"
  finally:
    process.send_signal(signal.SIGCONT)
  said = process.communicate()[0].strip()
  assert said != "whole"
  assert url in said
  assert verify.verify_store(url).hash == stores.open_store(other).hash


def test_what_fails_is_free_at_once(bucket, tmp_path):
  url = f"{bucket.root}/store"
  bucket.fault = lambda request: (
    403 if request.method in ("PUT", "POST") and "c/1" in request.name else None
  )
  with pytest.raises(errors.StoreError, match="credentials that may write"):
    destination.open_destination(url).publish(staged(tmp_path / "a", 0), False)
  bucket.clear()
  assert opening.open_storage(url).names()
  destination.open_destination(url).publish(staged(tmp_path / "b", 1), False)
  verify.verify_store(url)
  assert not opening.open_storage(f"{url}.claim").names()


def test_a_late_writer_touches_nothing_and_says_so(bucket, tmp_path):
  url = f"{bucket.root}/store"
  destination.open_destination(url).publish(staged(tmp_path / "a", 0), False)
  kept = {
    name: opening.open_storage(url).get(name)
    for name in opening.open_storage(url).names()
  }
  with pytest.raises(errors.StoreError, match="another writer was first"):
    destination.open_destination(url).publish(staged(tmp_path / "b", 1), False)
  assert kept == {
    n: opening.open_storage(url).get(n)
    for n in opening.open_storage(url).names()
  }


@one_kind
def test_a_writer_that_comes_upon_other_objects_loses(bucket, tmp_path):
  url = f"{bucket.root}/store"
  opening.open_storage(url).put("tokens/c/1", b"of somebody else")
  with pytest.raises(errors.StoreError, match=f"{url}/tokens/c/1 must not"):
    destination.open_destination(url).publish(staged(tmp_path / "a", 0), False)
  assert not destination.open_destination(url).holds_store()
  assert opening.open_storage(url).get("tokens/c/1") == b"of somebody else"
  destination.open_destination(url).publish(tmp_path / "a", overwrite=True)
  verify.verify_store(url)


def test_objects_that_are_no_store_are_not_removed(bucket, tmp_path):
  url = f"{bucket.root}/store"
  opening.open_storage(url).put("precious/data", b"1")
  with pytest.raises(errors.StoreError, match="'precious/data'"):
    destination.open_destination(url).publish(staged(tmp_path / "a", 0), True)
  assert names(bucket) == ["store/precious/data"]


def test_a_bucket_that_may_not_be_written_is_said_within_seconds(bucket, text):
  bucket.fault = lambda request: (
    403 if request.method in ("PUT", "POST") else None
  )
  began = time.monotonic()
  done = prepare(text, f"{bucket.root}/store")
  assert done.returncode != 0
  assert "credentials that may write" in done.stderr
  assert time.monotonic() - began < 20.0


def killed_uploads(bucket, tmp_path, count, seed=0):
  """Kills uploads at random moments; after each the store is whole or not."""
  rng = random.Random(seed)
  path = staged(tmp_path / "staged", 0, size=4_000)
  expected = stores.open_store(path).hash
  code = (
    "import pathlib, sys\n"
    "from chomp_data.stores.zarr import destination\n"
    "target = destination.open_destination(sys.argv[2])\n"
    "print('begin', flush=True)\n"
    "if not target.holds_store():\n"
    "  target.publish(pathlib.Path(sys.argv[1]), False)\n"
    "print('end', flush=True)\n"
  )
  whole = 0
  for i in range(count):
    url = f"{bucket.root}/{i}"
    bucket.clear()
    bucket.delay_s = lambda request: 0.01
    while True:
      process = subprocess.Popen(
        [sys.executable, "-c", code, str(path), url],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
      )
      assert process.stdout.readline() == b"begin\n"
      killed = rng.random() < 0.7
      if killed:
        time.sleep(rng.uniform(0.0, 0.5))
        process.send_signal(signal.SIGKILL)
      process.communicate()
      bucket.clear()
      # One question: the server may still work on what the process sent last.
      try:
        stores.open_store(url)
      except errors.StoreError as error:
        if "unfinished" not in str(error):
          raise
        continue
      break
    assert verify.verify_store(url).hash == expected
    # One that is killed once its store is whole leaves its claim.
    left = [name for name in names(bucket) if ".claim/" not in name]
    assert len(left) == (i + 1) * len(list(_files(path)))
    whole += 1
  return whole


def _files(path):
  return (own for own in path.rglob("*") if own.is_file())


@pytest.mark.slow
@pytest.mark.parametrize("count", [4, 15])
def test_uploads_that_are_killed_leave_a_whole_store_or_none(
  bucket, tmp_path, count
):
  assert killed_uploads(bucket, tmp_path, count) == count
