# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Object stores on loopback, one of each kind for a run of the tests."""

import os
import urllib.request

import pytest

from chomp_data.stores import object_files
from tests.remote import servers


@pytest.fixture(scope="session")
def _s3():
  if servers.moto_server() is None:
    pytest.skip("moto is not installed: see `make .venv-moto/bin/moto_server`")
  with servers.s3() as proxy:
    yield proxy


@pytest.fixture(scope="session")
def _gcs():
  if not servers.has_gcs():
    pytest.skip("gcp-storage-emulator is not installed")
  with servers.gcs() as proxy:
    yield proxy


@pytest.fixture
def s3_bucket(_s3, monkeypatch):
  """A proxy before S3; `s3_bucket.root` is a URL where nothing is yet."""
  yield _reachable(_s3, monkeypatch, "s3")
  _s3.clear()


@pytest.fixture
def gs_bucket(_gcs, monkeypatch):
  """As `s3_bucket`, of GCS."""
  # At each write the emulator writes what it knows of every object there is.
  urllib.request.urlopen(f"{_gcs.url}/wipe?keep-buckets=true").close()
  yield _reachable(_gcs, monkeypatch, "gs")
  _gcs.clear()


@pytest.fixture(params=["s3", "gs"])
def bucket(request):
  """As `s3_bucket`, of each kind."""
  return request.getfixturevalue(f"{request.param}_bucket")


def _reachable(proxy, monkeypatch, scheme):
  own = {"s3": (proxy.url, None), "gs": (None, proxy.url)}[scheme]
  for name, value in servers.environment(*own).items():
    monkeypatch.setenv(name, value)
  proxy.clear()
  object_files.bucket.cache_clear()  # Another test's may be elsewhere.
  proxy.root = f"{scheme}://{servers.BUCKET}/{os.urandom(6).hex()}"
  return proxy
