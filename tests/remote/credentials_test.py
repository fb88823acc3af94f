# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Credentials: which are found, in which order, and what requests carry."""

import base64
import http.server
import json
import re
import threading
from typing import ClassVar
import urllib.parse

import pytest

from chomp_data.storage import credentials
from chomp_data.storage import opening

KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
OTHERS = (
  "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "CLOUDSDK_CONFIG",
  "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_SHARED_CREDENTIALS_FILE",
  "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONFIG_FILE",
  "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_BEARER_TOKEN",
  "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_KEY",
  "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_TOKEN",
  "AZURE_STORAGE_CLIENT_SECRET", "AZURE_STORAGE_ACCESS_KEY",
  "AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_CLIENT_SECRET",
  "AZURE_FEDERATED_TOKEN_FILE", "AZURE_USE_AZURE_CLI",
)  # fmt: skip


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
  """A home directory where nothing is, on a machine that has no role."""
  for name in (*KEYS, *OTHERS):
    monkeypatch.delenv(name, raising=False)
  monkeypatch.setenv("HOME", str(tmp_path))
  monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
  monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:9")
  return tmp_path


@pytest.fixture
def alone(monkeypatch):
  """No library of a cloud provider is installed."""
  monkeypatch.setattr(credentials, "is_installed", lambda module: False)


def write_profile(home, text):
  (home / ".aws").mkdir()
  (home / ".aws" / "config").write_text(text)


def authorization(proxy, path):
  """Returns the header `Authorization` of a request."""
  headers = []
  answer = proxy.forward

  def forward(handler, body):
    headers.append(handler.headers.get("Authorization", ""))
    return answer(handler, body)

  proxy.forward = forward
  try:
    opening.open_storage(path).head("nothing")
  finally:
    proxy.forward = answer
  return headers[-1]


def test_variables_come_first(monkeypatch):
  monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
  monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
  monkeypatch.setenv("AWS_SESSION_TOKEN", "c")
  found = credentials.find("s3")
  assert found.config == {
    "access_key_id": "a", "secret_access_key": "b", "session_token": "c"
  }  # fmt: skip
  assert not found.is_anonymous


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_without_any_requests_are_anonymous_and_places_are_listed(
  scheme, alone
):
  found = credentials.find(scheme)
  assert found.is_anonymous
  assert found.config == {"skip_signature": True}
  advice = found.advice("read")
  assert "No credentials were found" in advice
  variable = {
    "s3": "AWS_ACCESS_KEY_ID",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_KEY",
  }[scheme]
  assert f"{variable}" in advice


def test_keys_of_a_profile_are_read_without_boto3(home, alone, monkeypatch):
  write_profile(
    home, "[profile x]\naws_access_key_id=a\naws_secret_access_key=b\n"
  )
  monkeypatch.setenv("AWS_PROFILE", "x")
  found = credentials.find("s3")
  assert found.config == {"access_key_id": "a", "secret_access_key": "b"}


@pytest.mark.parametrize(
  "line", ["sso_session = x", "role_arn = x", "credential_process = x"]
)
def test_a_profile_that_needs_boto3_says_so(home, alone, line):
  write_profile(home, f"[default]\n{line}\n")
  found = credentials.find("s3")
  assert found.is_anonymous
  assert "chomp_data[aws]" in found.advice("read")


def test_boto3_runs_the_process_of_a_profile(home, s3_bucket, monkeypatch):
  pytest.importorskip("boto3")
  for name in KEYS:
    monkeypatch.delenv(name, raising=False)
  answer = home / "answer.json"
  answer.write_text(
    json.dumps(
      {"Version": 1, "AccessKeyId": "FROMPROCESS", "SecretAccessKey": "b"}
    )
  )
  write_profile(home, f"[default]\ncredential_process = cat {answer}\n")
  assert "FROMPROCESS" in authorization(s3_bucket, s3_bucket.root)


class Tokens(http.server.BaseHTTPRequestHandler):
  """Gives a token to whoever asks, as Google's server of tokens does."""

  asked: ClassVar[list[dict[str, str]]] = []

  def do_POST(self):
    form = self.rfile.read(int(self.headers["Content-Length"])).decode()
    claims = dict(urllib.parse.parse_qsl(form))["assertion"].split(".")[1]
    self.asked.append(json.loads(base64.urlsafe_b64decode(claims + "==")))
    body = {"access_token": "MADEHERE", "expires_in": 3600}
    data = json.dumps({**body, "token_type": "Bearer"}).encode()
    self.send_response(200)
    self.send_header("Content-Type", "application/json")
    self.send_header("Content-Length", str(len(data)))
    self.end_headers()
    self.wfile.write(data)

  def log_message(self, format, *args):
    pass


def test_google_auth_asks_for_a_token_of_a_service_account(
  home, gs_bucket, monkeypatch
):
  pytest.importorskip("google.auth")
  primitives = pytest.importorskip(
    "cryptography.hazmat.primitives.asymmetric.rsa"
  )
  from cryptography.hazmat.primitives import serialization

  monkeypatch.delenv("GOOGLE_BEARER_TOKEN")
  key = primitives.generate_private_key(65537, 2048).private_bytes(
    serialization.Encoding.PEM,
    serialization.PrivateFormat.PKCS8,
    serialization.NoEncryption(),
  )
  with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Tokens) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    account = {
      "type": "service_account",
      "project_id": "p",
      "private_key_id": "k",
      "private_key": key.decode(),
      "client_email": "a@p.iam.gserviceaccount.com",
      "client_id": "1",
      "token_uri": f"http://127.0.0.1:{server.server_address[1]}/token",
    }
    (home / "account.json").write_text(json.dumps(account))
    monkeypatch.setenv(
      "GOOGLE_APPLICATION_CREDENTIALS", str(home / "account.json")
    )
    found = authorization(gs_bucket, gs_bucket.root)
    server.shutdown()
  assert found == "Bearer MADEHERE"
  assert "devstorage" in Tokens.asked[-1]["scope"]


@pytest.mark.parametrize("text", [None, "{", '{"type": "service_account"}'])
def test_a_bad_file_of_google_credentials_is_listed_with_its_reason(
  text, home, gs_bucket, monkeypatch
):
  pytest.importorskip("google.auth")
  monkeypatch.delenv("GOOGLE_BEARER_TOKEN")
  path = home / "account.json"
  if text is not None:
    path.write_text(text)
  monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
  credentials_of = credentials.find("gs")
  assert credentials_of.is_anonymous
  reason = "was not found" if text is None else "account.json"
  place = rf"GOOGLE_APPLICATION_CREDENTIALS \([^)]*{re.escape(reason)}"
  assert re.search(place, credentials_of.advice("read"))


@pytest.mark.parametrize(
  "variables",
  [
    ["AZURE_STORAGE_ACCESS_KEY"],
    ["AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_CLIENT_SECRET"],
    ["AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE"],
    ["AZURE_USE_AZURE_CLI"],
  ],
  ids=lambda names: names[-1],
)
def test_azure_credentials_of_variables_need_no_library(
  variables, alone, monkeypatch
):
  for name in variables:
    assert credentials.find("az").is_anonymous
    monkeypatch.setenv(name, "true")
  credentials_of = credentials.find("az")
  assert not credentials_of.is_anonymous
  assert f"{' and '.join(variables)} (used)" in credentials_of.tried


def test_a_key_of_azure_signs_requests(az_bucket):
  header = authorization(az_bucket, az_bucket.root)
  assert header.startswith("SharedKey account:")
