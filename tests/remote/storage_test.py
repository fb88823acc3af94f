# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Storage: reading, writing, errors and further tries, on every kind."""

from concurrent import futures
import os
import pathlib
import subprocess
import sys
import threading
import time

import pytest

from chomp_data import errors
from chomp_data.prepare import run
from chomp_data.storage import opening
from chomp_data.storage import requests


@pytest.fixture(params=["s3", "gs"])
def bucket(request):
  """A server of each kind, always."""
  return request.getfixturevalue(f"{request.param}_bucket")


@pytest.fixture
def quick(monkeypatch):
  """Tries follow each other quickly."""
  monkeypatch.setattr(requests, "RETRY_DELAYS_S", (0.01, 0.01, 0.01))


@pytest.fixture(params=["local", "s3", "gs", "az"])
def place(request, tmp_path):
  """A place where nothing is yet."""
  if request.param == "local":
    return opening.open_storage(tmp_path / "new")
  return opening.open_storage(
    request.getfixturevalue(f"{request.param}_bucket").root
  )


def test_what_is_written_is_read_listed_and_deleted(place):
  place.put("a/one", b"0123456789")
  place.put("a/two", b"2")
  place.put("b", b"3")
  assert place.get("a/one") == b"0123456789"
  assert place.get("a/one", 2, 5) == b"234"
  assert place.get("a/one", 7) == b"789"
  assert place.get("a/one", 3, 3) == b""
  assert place.get("b") == b"3"
  assert place.names() == ["a/one", "a/two", "b"]
  assert place.names("a/o") == ["a/one"]
  place.put("a/one", b"again")
  assert place.get("a/one") == b"again"
  place.delete(["a/one", "never"])
  assert place.names() == ["a/two", "b"]


def test_a_listing_says_which_version_is_read(place):
  place.put("a/one", b"0123456789")
  (info,) = place.list("a/")
  version = info.etag if info.version is None else info.version
  assert info.size == 10
  assert place.get("a/one", 2, 5, version=version) == b"234"
  place.put("a/one", b"9876543210")
  with pytest.raises(errors.StoreError, match=r"a/one must be the .* replaced"):
    place.get("a/one", 2, 5, version=version)


def test_what_is_not_there_is_file_not_found(place):
  with pytest.raises(FileNotFoundError):
    place.get("nothing")
  assert place.names() == []


def test_of_many_that_create_one_object_one_does(place):
  wins = []

  def create(number: int) -> None:
    if place.put("manifest.json", f"{number}".encode(), create=True):
      wins.append(number)

  threads = [threading.Thread(target=create, args=(i,)) for i in range(8)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert len(wins) == 1
  assert place.get("manifest.json") == f"{wins[0]}".encode()
  assert not place.put("manifest.json", b"late", create=True)


def test_the_same_bytes_lose_as_well(place):
  assert place.put("manifest.json", b"same", create=True)
  assert not place.put("manifest.json", b"same", create=True)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_fails_for_a_while_is_tried_again_and_counted(
  bucket, quick, status
):
  place = opening.open_storage(bucket.root)
  place.put("a", b"1")
  left = [2]

  def fault(request):
    left[0] -= 1
    return status if left[0] >= 0 else None

  bucket.fault = fault
  before = requests.counts.retries
  assert place.get("a") == b"1"
  assert requests.counts.retries - before == 2


@pytest.mark.parametrize("status", [500, 503])
def test_what_goes_on_failing_is_an_error_with_the_url(bucket, quick, status):
  place = opening.open_storage(bucket.root)
  place.put("a", b"1")
  bucket.clear()
  bucket.fault = lambda request: status
  with pytest.raises(errors.StoreError, match=f"{bucket.root}/a") as caught:
    place.get("a")
  assert str(status) in str(caught.value)
  assert len(bucket.requests) == 4


@pytest.mark.parametrize("status", [401, 403])
def test_a_missing_permission_is_said_within_seconds(bucket, status):
  place = opening.open_storage(bucket.root)
  bucket.fault = lambda request: status
  began = time.monotonic()
  for ask in (lambda: place.get("a"), lambda: place.put("a", b"1")):
    with pytest.raises(errors.StoreError, match="credentials"):
      ask()
  assert time.monotonic() - began < 20.0
  assert len(bucket.requests) == 2


def test_without_credentials_the_answer_is_told_within_seconds(
  s3_bucket, monkeypatch, tmp_path
):
  for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
    monkeypatch.delenv(name)
  monkeypatch.setenv("HOME", str(tmp_path))
  s3_bucket.fault = lambda request: 403
  began = time.monotonic()
  with pytest.raises(errors.StoreError, match="AWS_ACCESS_KEY_ID"):
    opening.open_storage(s3_bucket.root).get("a")
  assert time.monotonic() - began < 10.0


def test_a_server_that_is_not_there_is_an_error_with_the_url(
  s3_bucket, quick, monkeypatch
):
  monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
  with pytest.raises(errors.StoreError, match="s3://nowhere/a/b must be read"):
    opening.open_storage("s3://nowhere/a").get("b")


def test_a_slow_answer_is_asked_for_twice(bucket, monkeypatch):
  place = opening.open_storage(bucket.root)
  place.put("a", b"1")
  bucket.clear()
  bucket.delay_s = lambda request: 20.0 if request.number == 0 else 0.0
  before = requests.counts.hedged
  monkeypatch.setattr(requests, "FIRST_HEDGE_S", 0.3)
  monkeypatch.setattr(requests, "LEAST_HEDGE_S", 0.3)
  began = time.monotonic()
  assert place.get("a") == b"1"
  assert time.monotonic() - began < 15.0
  assert requests.counts.hedged - before == 1
  assert len(bucket.requests) == 2


@pytest.mark.parametrize("path", ["http://host/a", "s3://", "gs:///a"])
def test_other_urls_are_refused_by_name(path):
  with pytest.raises(errors.StoreError, match="must be a directory, s3://"):
    opening.open_storage(path)


@pytest.mark.parametrize(
  "path",
  [
    *(
      f"{scheme}://{name}/store"
      for scheme in ("s3", "gs")
      for name in ("ab", "in valid", "-begins", "ends-", "a..b", "10.0.0.1",
                   "UPPER", "x" * 64)
    ),
    "s3://under_score/store",
    "gs://google-own/store",
  ],
)  # fmt: skip
def test_names_that_no_bucket_can_have_are_refused_at_once(path, monkeypatch):
  monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
  monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
  name = path.split("/")[2]
  with pytest.raises(errors.StoreError, match=r"must name a bucket of 3 to 63"):
    opening.open_storage(path)
  with pytest.raises(errors.StoreError, match=f"got {name!r}"):
    opening.open_storage(path)


def test_names_of_buckets_are_taken(monkeypatch):
  monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
  for path in ("s3://a-b.c1/x", "gs://a_b-c.d/x", f"gs://{'a' * 63}/x"):
    assert opening.open_storage(path).path == path
  # Servers other than Amazon's take more names.
  monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
  assert opening.open_storage("s3://Old_Bucket/x").path == "s3://Old_Bucket/x"
  with pytest.raises(errors.StoreError, match="3 to 255 letters"):
    opening.open_storage("s3://in valid/x")


WRITE = """
import sys
from chomp_data.storage import opening
place = opening.open_storage(sys.argv[1])
assert place.put("a", b"1", create=True)
assert place.get("a") == b"1"
assert place.head("none") is None
"""
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


def printed_by_a_write(bucket, home, **env):
  """Returns what a process prints to stderr that writes to a bucket."""
  found = {**os.environ, "HOME": str(home), **env}
  found["PYTHONPATH"] = str(pathlib.Path(__file__).parents[2])
  return subprocess.run(
    [sys.executable, "-c", WRITE, bucket.root],
    env={name: value for name, value in found.items() if value},
    capture_output=True,
    text=True,
    check=True,
  ).stderr


def test_a_write_prints_nothing(s3_bucket, tmp_path):
  assert not printed_by_a_write(s3_bucket, tmp_path)


@pytest.mark.parametrize("file", ["credentials", "config"])
@pytest.mark.parametrize("profile", ["", "other"])
def test_a_write_with_a_profile_prints_nothing(
  s3_bucket, tmp_path, file, profile
):
  section = profile or "default"
  if file == "config" and profile:
    section = f"profile {profile}"
  (tmp_path / ".aws").mkdir()
  (tmp_path / ".aws" / file).write_text(
    f"[{section}]\naws_access_key_id = a\naws_secret_access_key = b\n"
  )
  none = dict.fromkeys(KEYS, "")
  assert not printed_by_a_write(
    s3_bucket, tmp_path, AWS_PROFILE=profile, **none
  )


def test_a_write_to_gcs_prints_no_error(gs_bucket, tmp_path):
  lines = printed_by_a_write(gs_bucket, tmp_path).splitlines()
  assert not [line for line in lines if not line.startswith("I")], lines


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_write_without_credentials_says_which_were_tried(
  s3_bucket, tmp_path, monkeypatch, overwrite
):
  for name in KEYS:
    monkeypatch.delenv(name)
  monkeypatch.setenv("HOME", str(tmp_path))
  s3_bucket.fault = lambda request: 403
  (tmp_path / "x.txt").write_text("text")
  options = run.Options(
    (str(tmp_path / "x.txt"),), f"{s3_bucket.root}/store", overwrite=overwrite
  )
  with pytest.raises(errors.StoreError) as caught:
    run.prepare(options)
  text = str(caught.value)
  assert "No credentials were found" in text
  assert "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY not set" in text
  assert f"the profile 'default' of {tmp_path}/.aws/credentials" in text
  assert "--overwrite" not in text


_READ_AND_END = """
import sys
from chomp_data.storage import opening
storage = opening.open_storage(sys.argv[1])
assert storage.put("a", b"1")
assert storage.get("a") == b"1"
"""


@pytest.mark.slow
def test_processes_that_have_read_a_bucket_end_well(gs_bucket):
  # Without a wait for obstore's threads one of forty aborts.
  def end(number):
    url = f"{gs_bucket.root}/{number}"
    command = [sys.executable, "-c", _READ_AND_END, url]
    return subprocess.run(command, check=False).returncode

  with futures.ThreadPoolExecutor(10) as pool:
    assert set(pool.map(end, range(200))) == {0}
