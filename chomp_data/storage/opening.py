# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Objects by name: in a directory, or below a prefix of a bucket.

    storage = open_storage("gs://bucket/corpus")     # or "/data/corpus"
    storage.put("a/b", b"0123456789")
    storage.get("a/b", 2, 5)                         # b"234"
    storage.head("a/b").size                         # 10

    /data/corpus, data/corpus   files
    s3://BUCKET/PREFIX          Amazon S3 and servers that speak its protocol
    gs://BUCKET/PREFIX          Google Cloud Storage
    az://CONTAINER/PREFIX       Azure Blob Storage

Names are relative, with slashes. What is written is there whole or not at all.
"""

import functools
import os
import pathlib

from chomp_data import errors
from chomp_data.storage import disk
from chomp_data.storage import paths
from chomp_data.storage import storage


def open_storage(
  path: str | os.PathLike[str], *, durable: bool = True
) -> storage.Storage:
  """Returns the storage of a directory or a URL; sends no request.

  Args:
    path: A directory, which need not exist, or an `s3://`, `gs://` or `az://`
      URL.
    durable: Whether a file that was put in a directory is on disk; objects of
      buckets always are.

  Raises:
    StoreError: If it is a URL of another scheme, or names no bucket.
  """
  if paths.is_url(path):
    # Not at import: processes that read and write disks do without asyncio.
    from chomp_data.storage import bucket

    return bucket.BucketStorage(os.fspath(path))
  return disk.DiskStorage(path, durable)


def open_object(path: str | os.PathLike[str]) -> tuple[storage.Storage, str]:
  """Returns the storage that has a file or an object, and its name there.

  All objects of a bucket have one storage.

  Raises:
    StoreError: If it is a URL of another scheme, or names no bucket.
  """
  if not paths.is_url(path):
    directory, name = os.path.split(path)
    return disk.DiskStorage(directory), os.fspath(name)
  scheme, _, rest = os.fspath(path).partition("://")
  bucket, _, name = rest.partition("/")
  return open_root(f"{scheme}://{bucket}"), name


@functools.lru_cache(maxsize=16)
def open_root(url: str) -> storage.Storage:
  """Returns the storage of a whole bucket, one per process."""
  return open_storage(url)


def open_local(path: str | os.PathLike[str]) -> pathlib.Path:
  """Returns a path on a local disk, which need not exist.

  Raises:
    StoreError: If it is a URL, or one that no file can have.
  """
  if paths.is_url(path):
    raise errors.StoreError(
      f"`path` must be a local directory, got {os.fspath(path)!r}. Copy it to"
      " a local disk; in object stores (s3://, gs:// and az://) stores of"
      " chomp-prepare are read and written, Megatron corpora and Levanter"
      " caches are read where they are, and `chomp-stores convert` makes a"
      " store of ArrayRecord data."
    )
  try:
    os.stat(path)
  except (FileNotFoundError, NotADirectoryError):
    pass  # Opening it says what must be there; globs are not there.
  # A ValueError is of characters that no path has.
  except (OSError, ValueError) as error:
    reason = getattr(error, "strerror", None) or error
    raise errors.StoreError(
      f"`path` must be one that can be opened, got {os.fspath(path)!r:.300}"
      f" ({reason}). Correct it."
    ) from error
  return pathlib.Path(path)
