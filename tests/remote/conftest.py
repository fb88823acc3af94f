# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Object stores on loopback, one of each kind for a run of the tests."""

import os

import pytest

from chomp_data.storage import opening
from chomp_data.storage import requests
from tests.remote import servers
from tests.remote import store_kinds


@pytest.fixture(autouse=True)
def staging(tmp_path, monkeypatch):
  """Where what is written to buckets is put together."""
  monkeypatch.setenv("CHOMP_DATA_STAGING", str(tmp_path / "staging"))
  return tmp_path / "staging"


@pytest.fixture(scope="session")
def s3_server():
  if servers.moto_server() is None:
    pytest.skip("moto is not installed: see `make .venv-moto/bin/moto_server`")
  with servers.s3() as proxy:
    yield proxy


@pytest.fixture(scope="session")
def gcs_server():
  with servers.gcs() as proxy:
    yield proxy


@pytest.fixture(scope="session")
def _azure():
  with servers.azure() as proxy:
    yield proxy


@pytest.fixture
def s3_bucket(s3_server, monkeypatch):
  """A proxy before S3; `s3_bucket.root` is a URL where nothing is yet."""
  yield _reachable(s3_server, monkeypatch, "s3")
  s3_server.clear()


@pytest.fixture
def gs_bucket(gcs_server, monkeypatch):
  """As `s3_bucket`, of GCS."""
  yield _reachable(gcs_server, monkeypatch, "gs")
  gcs_server.clear()


@pytest.fixture
def az_bucket(_azure, monkeypatch):
  """As `s3_bucket`, of Azure."""
  yield _reachable(_azure, monkeypatch, "az")
  _azure.clear()


@pytest.fixture(params=[pytest.param("s3", marks=pytest.mark.slow), "gs"])
def bucket(request):
  """As `s3_bucket`, of each kind: what they share is tried on both when slow.

  Where they differ, in requests and answers, storage_test tries both.
  """
  return request.getfixturevalue(f"{request.param}_bucket")


@pytest.fixture(scope="module")
def local_stores(tmp_path_factory):
  """A directory with a store of each of `store_kinds.KINDS`, by its name."""
  parent = tmp_path_factory.mktemp("stores")
  for kind in store_kinds.KINDS.values():
    kind.write(parent / kind.name, store_kinds.DOCUMENTS)
  return parent


def _reachable(proxy, monkeypatch, scheme):
  for name, value in servers.environment(**{scheme: proxy.url}).items():
    monkeypatch.setenv(name, value)
  # On a busy machine an answer may take long: requests are counted.
  monkeypatch.setattr(requests, "LEAST_HEDGE_S", 2.0)
  monkeypatch.setattr(requests, "FIRST_HEDGE_S", 2.0)
  # As many tries, soon after each other.
  delays = (0.01,) * len(requests.RETRY_DELAYS_S)
  monkeypatch.setattr(requests, "RETRY_DELAYS_S", delays)
  proxy.clear()
  opening.open_root.cache_clear()  # Another test's may be elsewhere.
  proxy.root = f"{scheme}://{servers.BUCKET}/{os.urandom(6).hex()}"
  return proxy
