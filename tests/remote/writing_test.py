"""Writing stores to buckets: whole or not at all, by one writer."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from chomp_data import errors
from chomp_data import stores
from chomp_data.stores import places
from chomp_data.stores import verify
from chomp_data.stores.zarr import destination
from chomp_data.testing import stores as testing_stores
from tests import in_process

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def staging(tmp_path, monkeypatch):
  monkeypatch.setenv("CHOMP_DATA_STAGING", str(tmp_path / "staging"))
  return tmp_path / "staging"


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
  return places.at(bucket.root).names()


def test_prepare_writes_the_store_that_it_writes_locally(
  bucket, text, tmp_path, staging
):
  url = f"{bucket.root}/store"
  assert prepare(text, url, "--compression=zstd").returncode == 0
  writes = [own for own in bucket.requests if own.method in ("PUT", "POST")]
  assert writes[-1].name.endswith("/store/manifest.json")
  assert prepare(text, tmp_path / "local", "--compression=zstd").returncode == 0
  local = tmp_path / "local"
  for file in local.rglob("*"):
    if file.is_file():
      name = file.relative_to(local).as_posix()
      assert places.at(url).read(name) == file.read_bytes()
  assert verify.verify_store(url).hash == stores.open_store(local).hash
  # Nothing is left behind.
  assert not list(staging.rglob("*"))


def test_prepared_again_it_has_nothing_to_do(bucket, text):
  url = f"{bucket.root}/store"
  assert prepare(text, url).returncode == 0
  bucket.clear()
  assert prepare(text, url).returncode == 0
  assert {own.method for own in bucket.requests} == {"GET"}


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
      destination.Destination(url).publish(paths[number], overwrite=False)
      results[number] = None
    except errors.StoreError as error:
      results[number] = str(error)

  threads = [threading.Thread(target=publish, args=(i,)) for i in range(3)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  winners = [number for number, error in results.items() if error is None]
  # None may win where each was first at some object; then both are told.
  assert len(winners) <= 1
  for error in results.values():
    assert error is None or url in error
  if winners:
    assert verify.verify_store(url).hash == hashes[winners[0]]
  else:
    assert not destination.Destination(url).holds_store()


def test_a_late_writer_touches_nothing_and_says_so(bucket, tmp_path):
  url = f"{bucket.root}/store"
  destination.Destination(url).publish(staged(tmp_path / "a", 0), False)
  kept = {name: places.at(url).read(name) for name in places.at(url).names()}
  with pytest.raises(errors.StoreError, match="another writer was first"):
    destination.Destination(url).publish(staged(tmp_path / "b", 1), False)
  assert kept == {n: places.at(url).read(n) for n in places.at(url).names()}


def test_a_writer_that_comes_upon_other_objects_loses(bucket, tmp_path):
  url = f"{bucket.root}/store"
  places.at(url).write("tokens/c/1", b"of somebody else")
  with pytest.raises(errors.StoreError, match=f"{url}/tokens/c/1 must not"):
    destination.Destination(url).publish(staged(tmp_path / "a", 0), False)
  assert not destination.Destination(url).holds_store()
  assert places.at(url).read("tokens/c/1") == b"of somebody else"
  destination.Destination(url).publish(tmp_path / "a", overwrite=True)
  verify.verify_store(url)


def test_objects_that_are_no_store_are_not_removed(bucket, tmp_path):
  url = f"{bucket.root}/store"
  places.at(url).write("precious/data", b"1")
  with pytest.raises(errors.StoreError, match="'precious/data'"):
    destination.Destination(url).publish(staged(tmp_path / "a", 0), True)
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
    "target = destination.Destination(sys.argv[2])\n"
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
      if destination.Destination(url).holds_store():
        break
      with pytest.raises(errors.StoreError, match="unfinished"):
        stores.open_store(url)
    assert verify.verify_store(url).hash == expected
    assert len(names(bucket)) == (i + 1) * len(list(_files(path)))
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
