# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Credentials for object stores, and where they were looked for.

Explicit environment variables come first. Then the library of the cloud
provider searches, if it is installed (boto3, google-auth, azure-identity; the
extras `aws`, `gcp` and `azure`): profiles, single sign-on, roles. Without it,
obstore reads what the environment and the machine offer.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import configparser
import dataclasses
import importlib.util
import os
import pathlib
from typing import Any
import urllib.error
import urllib.request

_METADATA_TIMEOUT_S = 1.0

_GCS_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"

# What profiles say that boto3 reads only.
_SIGNED_ON = ("sso_", "role_arn", "credential_process")


@dataclasses.dataclass(frozen=True)
class Credentials:
  """The credentials that requests carry.

  Attributes:
    config: Fields of obstore's configuration of a store.
    provider: Called by obstore for credentials that expire, or None.
    tried: Where they were looked for, in order, with the result.
    is_anonymous: Whether none were found.
  """

  config: Mapping[str, Any]
  provider: Callable[[], Any] | None
  tried: tuple[str, ...]
  is_anonymous: bool

  def advice(self, what: str) -> str:
    """Returns what to do if a server refuses a request.

    Args:
      what: What the request does, such as 'read'.
    """
    first = "No credentials were found. " if self.is_anonymous else ""
    return (
      f"{first}Give credentials that may {what} it; tried"
      f" {', '.join(self.tried)}. Without any, only public buckets can be read."
    )


def find(scheme: str) -> Credentials:
  """Returns the first credentials that are found for a scheme.

  Args:
    scheme: 's3', 'gs' or 'az'.
  """
  tried: list[str] = []
  for place, config, provider in _SEARCHES[scheme]():
    if config is None:
      tried.append(place)
    else:
      return Credentials(config, provider, (*tried, f"{place} (used)"), False)
  return Credentials({"skip_signature": True}, None, tuple(tried), True)


# A place that was searched, the configuration (None if nothing is there), and
# what obstore calls for credentials.
_Result = tuple[str, dict[str, Any] | None, Callable[[], Any] | None]


def _of_s3() -> Iterator[_Result]:
  keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
  unset = [key for key in keys if not os.environ.get(key)]
  if not unset:
    config = {
      "access_key_id": os.environ[keys[0]],
      "secret_access_key": os.environ[keys[1]],
    }
    if os.environ.get("AWS_SESSION_TOKEN"):
      config["session_token"] = os.environ["AWS_SESSION_TOKEN"]
    yield " and ".join(keys), config, None
  yield f"{' and '.join(keys)} ({' and '.join(unset)} not set)", None, None

  profile = os.environ.get("AWS_PROFILE") or "default"
  files = {
    "credentials_file": _file("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
    "config_file": _file("AWS_CONFIG_FILE", "config"),
  }
  place = f"the profile {profile!r} of {' and '.join(files.values())}"
  if is_installed("boto3"):
    from obstore.auth import boto3 as provider

    place = f"boto3, which reads {place} and asks the machine's role"
    try:
      yield place, {}, provider.Boto3CredentialProvider()
    except Exception as error:  # pylint: disable=broad-except
      # ValueError if it finds none; errors of botocore for a bad profile.
      yield f"{place} ({str(error)[:200]})", None, None
    return

  options = _profile(profile, **files)
  names = ("access_key_id", "secret_access_key", "session_token")
  config = {
    name: options[f"aws_{name}"] for name in names if f"aws_{name}" in options
  }
  if len(config) > 1:
    yield place, config, None
  elif any(key.startswith(_SIGNED_ON) for key in options):
    yield f"{place} (needs boto3: pip install 'chomp_data[aws]')", None, None
  else:
    yield f"{place} (without keys)", None, None

  # obstore reads these itself.
  for variable in (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
  ):
    if os.environ.get(variable):
      yield variable, {}, None
    yield f"{variable} (not set)", None, None
  role = "the machine's role"
  if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
    yield f"{role} (AWS_EC2_METADATA_DISABLED is set)", None, None
  elif _answers(
    os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT")
    or "http://169.254.169.254",
    "latest/api/token",
    "PUT",
    {"X-aws-ec2-metadata-token-ttl-seconds": "60"},
  ):
    yield role, {}, None
  else:
    yield f"{role} (no answer)", None, None


def _of_gcs() -> Iterator[_Result]:
  variable = "GOOGLE_BEARER_TOKEN"
  if os.environ.get(variable):
    yield variable, {"bearer_token": os.environ[variable]}, None
  yield f"{variable} (not set)", None, None
  variable = "GOOGLE_APPLICATION_CREDENTIALS"
  folder = os.environ.get("CLOUDSDK_CONFIG") or os.path.expanduser(
    "~/.config/gcloud"
  )
  file = os.path.join(folder, "application_default_credentials.json")
  if os.environ.get(variable):
    yield _google(variable)
  else:
    yield f"{variable} (not set)", None, None
  if os.path.exists(file):
    yield _google(file)
  else:
    yield (
      f"{file} (no such file; `gcloud auth application-default login` makes"
      " it)",
      None,
      None,
    )
  host = os.environ.get("GCE_METADATA_HOST") or "metadata.google.internal"
  account = "the machine's service account"
  if _answers(
    f"http://{host}",
    "computeMetadata/v1/",
    "GET",
    {"Metadata-Flavor": "Google"},
  ):
    yield _google(account)
  else:
    yield f"{account} (no answer)", None, None


def _google(place: str) -> _Result:
  """Returns google-auth's provider if it is installed, else obstore's.

  A file that google-auth cannot read has no credentials: the error of the
  request then names it and the reason.
  """
  if not is_installed("google.auth"):
    return place, {}, None
  import google.auth
  from obstore.auth import google as provider

  try:
    # A service account gets no token without a scope.
    default, _ = google.auth.default(scopes=[_GCS_SCOPE])
    return place, {}, provider.GoogleCredentialProvider(default)
  except Exception as error:  # pylint: disable=broad-except
    return f"{place} ({str(error)[:200]})", None, None


# Each of these names credentials that obstore reads itself, besides
# AZURE_STORAGE_ACCOUNT_NAME: all variables of a line must be set.
_AZURE_VARIABLES: tuple[tuple[str, ...], ...] = (
  ("AZURE_STORAGE_ACCOUNT_KEY",),
  ("AZURE_STORAGE_ACCESS_KEY",),
  ("AZURE_STORAGE_SAS_KEY",),
  ("AZURE_STORAGE_SAS_TOKEN",),
  ("AZURE_STORAGE_TOKEN",),
  ("AZURE_STORAGE_CLIENT_SECRET",),
  ("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_CLIENT_SECRET"),
  ("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE"),
)


def _of_azure() -> Iterator[_Result]:
  for variables in _AZURE_VARIABLES:
    unset = [name for name in variables if not os.environ.get(name)]
    place = " and ".join(variables)
    if not unset:
      yield place, {}, None
    missing = f"{' and '.join(unset)} " if len(variables) > 1 else ""
    yield f"{place} ({missing}not set)", None, None
  variable = "AZURE_USE_AZURE_CLI"
  if os.environ.get(variable, "").lower() in ("1", "true", "on", "yes", "y"):
    yield variable, {}, None
  yield f"{variable} (not set)", None, None
  if is_installed("azure.identity"):
    from obstore.auth import azure as provider

    try:
      yield "azure-identity", {}, provider.AzureCredentialProvider()
    except Exception as error:  # pylint: disable=broad-except
      yield f"azure-identity ({str(error)[:200]})", None, None
    return
  yield "azure-identity (needs pip install 'chomp_data[azure]')", None, None


_SEARCHES: Mapping[str, Callable[[], Iterator[_Result]]] = {
  "s3": _of_s3,
  "gs": _of_gcs,
  "az": _of_azure,
}


def is_installed(module: str) -> bool:
  try:
    return importlib.util.find_spec(module) is not None
  except ModuleNotFoundError:  # Of the package that would hold it.
    return False


def _file(variable: str, name: str) -> str:
  """Returns the path of one of the two files of profiles."""
  return os.path.expanduser(os.environ.get(variable) or f"~/.aws/{name}")


def _profile(
  profile: str, credentials_file: str, config_file: str
) -> dict[str, str]:
  """Returns the options of a profile in both files."""
  options: dict[str, str] = {}
  # The file of configurations says `[profile NAME]`.
  for path, section in (
    (config_file, "default" if profile == "default" else f"profile {profile}"),
    (credentials_file, profile),
  ):
    parser = configparser.RawConfigParser(default_section="", strict=False)
    try:
      parser.read_string(pathlib.Path(path).read_text())
      options.update(parser.items(section))
    except (OSError, ValueError, configparser.Error):
      continue
  return options


def _answers(
  root: str, path: str, method: str, headers: Mapping[str, str]
) -> bool:
  """Returns whether the metadata service of this machine answers."""
  request = urllib.request.Request(
    f"{root.rstrip('/')}/{path}", method=method, headers=dict(headers)
  )
  # No proxy: the address is of this machine.
  opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
  try:
    opener.open(request, timeout=_METADATA_TIMEOUT_S).close()
  except (OSError, ValueError):  # Errors of urllib are OSErrors.
    return False
  return True
