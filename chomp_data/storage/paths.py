# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Paths that may be URLs: joining, the last part, and where they are staged."""

import hashlib
import os
import pathlib


def is_url(path: str | os.PathLike[str]) -> bool:
  """Returns whether a path is a URL, whatever its scheme."""
  return "://" in os.fspath(path)


def join(path: str, name: str) -> str:
  """Returns the path of a name below a directory or a URL."""
  return f"{path.rstrip('/')}/{name}"


def name_of(path: str | os.PathLike[str]) -> str:
  """Returns the last part of a path or URL."""
  return os.fspath(path).rstrip("/").rpartition("/")[2]


def staging(url: str) -> pathlib.Path:
  """Returns the local directory in which files of a URL are staged.

  It is in the user's cache directory, or in the one that CHOMP_DATA_STAGING
  names.
  """
  root = os.environ.get("CHOMP_DATA_STAGING")
  if not root:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(
      os.path.expanduser("~"), ".cache"
    )
    root = os.path.join(cache, "chomp_data", "staging")
  digest = hashlib.sha256(url.encode()).hexdigest()[:12]
  return pathlib.Path(root, f"{name_of(url)}-{digest}")


def of_object(name: str) -> str:
  """Returns what stands for a path of data that only a Python object reads."""
  return f"<{name.replace('://', ':')}>"


def is_of_object(path: str | os.PathLike[str]) -> bool:
  """Returns whether a path is one of `of_object`: nothing is beside it."""
  return os.fspath(path).startswith("<")
