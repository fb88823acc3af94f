# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Credentials of requests to object stores, and where they were looked for.

TensorStore's own search for credentials of S3 opens files of profiles that do
not exist, which prints errors, and it never reads the profile `default`. So
the search is here, in the order of Amazon's tools, and TensorStore is given
the provider to use. Credentials of GCS are searched for by TensorStore.
"""

from collections.abc import Mapping
import configparser
import dataclasses
import os
import pathlib
import urllib.error
import urllib.request

# Keys that TensorStore's provider `profile` reads. Single sign-on (`sso_*`) is
# read by its provider `default`.
_PROFILE_KEYS = ("aws_access_key_id", "credential_process", "role_arn")

_METADATA_URL = "http://169.254.169.254"
_METADATA_TIMEOUT_S = 1.0


@dataclasses.dataclass(frozen=True)
class Credentials:
  """Which credentials requests carry.

  Attributes:
    provider: TensorStore's `aws_credentials`; empty for GCS.
    tried: Where they were looked for, in order, with the result.
    missing: Whether none were found. TensorStore may still find those of a
      machine in GCS.
  """

  provider: Mapping[str, str]
  tried: tuple[str, ...]
  missing: bool

  def advice(self, what: str) -> str:
    """Returns what to do where a server refuses a request.

    Args:
      what: What the request does, such as 'read'.
    """
    first = "No credentials were found. " if self.missing else ""
    return (
      f"{first}Give credentials that may {what} it; tried"
      f" {', '.join(self.tried)}. Without any, only public buckets can be read."
    )


def of_s3() -> Credentials:
  """Finds the credentials of S3; asks the machine's role last."""
  tried = []

  def result(provider: dict[str, str], last: str) -> Credentials:
    return Credentials(
      provider, (*tried, last), provider["type"] == "anonymous"
    )

  keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
  unset = [key for key in keys if not os.environ.get(key)]
  if not unset:
    return result({"type": "environment"}, f"{' and '.join(keys)} (used)")
  tried.append(f"{' and '.join(keys)} ({' and '.join(unset)} not set)")

  profile = os.environ.get("AWS_PROFILE") or "default"
  files = {
    "credentials_file": _file("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
    "config_file": _file("AWS_CONFIG_FILE", "config"),
  }
  place = f"the profile {profile!r} of {' and '.join(files.values())}"
  options = _profile(profile, **files)
  if any(key in options for key in _PROFILE_KEYS):
    # A file that does not exist is given as an empty one.
    found = {
      name: path if os.path.exists(path) else os.devnull
      for name, path in files.items()
    }
    provider = {"type": "profile", "profile": profile, **found}
    return result(provider, f"{place} (used)")
  if any(key.startswith("sso_") for key in options):
    return result({"type": "default", "profile": profile}, f"{place} (used)")
  tried.append(f"{place} (without keys)")

  name = "AWS_WEB_IDENTITY_TOKEN_FILE"
  if os.environ.get(name):
    return result({"type": "default", "profile": profile}, f"{name} (used)")
  tried.append(f"{name} (not set)")

  names = [
    f"AWS_CONTAINER_CREDENTIALS_{kind}_URI" for kind in ("RELATIVE", "FULL")
  ]
  for name in names:
    if os.environ.get(name):
      return result({"type": "ecs"}, f"{name} (used)")
  tried.append(f"{' and '.join(names)} (not set)")

  role = "the machine's role"
  if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
    return result(
      {"type": "anonymous"}, f"{role} (AWS_EC2_METADATA_DISABLED is set)"
    )
  if _has_metadata():
    return result({"type": "imds"}, f"{role} (used)")
  return result({"type": "anonymous"}, f"{role} (no answer)")


def of_gcs() -> Credentials:
  """Says where TensorStore looks for the credentials of GCS."""
  tried = []
  token = "GOOGLE_AUTH_TOKEN_FOR_TESTING"
  if os.environ.get(token):
    return Credentials({}, (f"{token} (used)",), False)
  name = "GOOGLE_APPLICATION_CREDENTIALS"
  if os.environ.get(name):
    return Credentials({}, (f"{name} (used)",), False)
  tried.append(f"{name} (not set)")
  folder = os.environ.get("CLOUDSDK_CONFIG") or os.path.expanduser(
    "~/.config/gcloud"
  )
  file = os.path.join(folder, "application_default_credentials.json")
  if os.path.exists(file):
    return Credentials({}, (*tried, f"{file} (used)"), False)
  tried.append(
    f"{file} (no such file; `gcloud auth application-default login` makes it)"
  )
  return Credentials({}, (*tried, "the machine's service account"), True)


def _file(variable: str, name: str) -> str:
  """Returns the path of one of the two files of profiles."""
  return os.path.expanduser(os.environ.get(variable) or f"~/.aws/{name}")


def _profile(
  profile: str, credentials_file: str, config_file: str
) -> dict[str, str]:
  """Returns the options of a profile in both files; none where it is not."""
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


def _has_metadata() -> bool:
  """Returns whether this machine has a service that tells its role."""
  root = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or _METADATA_URL
  request = urllib.request.Request(
    f"{root.rstrip('/')}/latest/api/token",
    method="PUT",
    headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"},
  )
  # No proxy: the address is of this machine.
  opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
  try:
    opener.open(request, timeout=_METADATA_TIMEOUT_S).close()
  except (OSError, ValueError):  # Errors of urllib are OSErrors.
    return False
  return True
