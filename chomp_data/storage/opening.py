# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Objects by name: in a directory, or below a prefix of a bucket.

    storage = open_storage("gs://bucket/corpus")     # or "/data/corpus"
    storage.put("a/b", b"0123456789")
    storage.get("a/b", 2, 5)                         # b"234"
    storage.head("a/b").size                         # 10
    storage.names("a/")                              # ["a/b"]

    /data/corpus, data/corpus   files
    s3://BUCKET/PREFIX          Amazon S3 and servers that speak its protocol
    gs://BUCKET/PREFIX          Google Cloud Storage
    az://CONTAINER/PREFIX       Azure Blob Storage

Names are relative, with slashes. What is written is there whole or not at all.
"""

import os

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
