# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Reading a whole store to check it."""

from collections.abc import Callable
import hashlib
import os

import numpy as np

from chomp_data import errors
from chomp_data import schema
from chomp_data.storage import opening
from chomp_data.stores import kinds
from chomp_data.stores.zarr import array_layout
from chomp_data.stores.zarr import manifest as manifest_lib
from chomp_data.stores.zarr import stored_array
from chomp_data.stores.zarr import tree_hash
from chomp_data.stores.zarr import zarr_opening
from chomp_data.stores.zarr import zarr_store


@schema.arguments(path=schema.path(), progress=schema.function())
def verify_store(
  path: str | os.PathLike[str],
  progress: Callable[[int], object] = lambda num_bytes: None,
) -> manifest_lib.Manifest:
  """Reads every byte of a store and checks it.

  Args:
    path: Its directory.
    progress: Called with the decoded bytes of each chunk.

  Returns:
    The manifest.

  Raises:
    StoreError: If a file or a chunk is not as it was written.
  """
  store = kinds.open_store(path)
  if not isinstance(store, zarr_store.ZarrStore):
    raise errors.StoreError(
      f"{path} must be a store of chomp-prepare to be verified, got a"
      f" {type(store).__name__}. Prepare a store from it."
    )
  opened = store.arrays
  if not opened.is_remote:
    zarr_opening.check_files(opened.files, store.manifest)
  for name, entry in sorted(store.manifest.files.items()):
    zarr_opening.read_listed(opened.files, name, entry)
  for name in store.manifest.arrays:
    array = opened.array(name)
    _check_indices(array)
    _check_values(array, store.manifest.schema, progress)
  return store.manifest


def _check_indices(array: stored_array.StoredArray) -> None:
  """Checks the ends of shard files against the sizes of their chunks."""
  layout = array.entry.layout
  for shard in range(layout.num_shards):
    sizes = array.table.stored_bytes(layout.chunks_of_shard(shard))
    if sizes is None:
      continue  # Schema 1: the file's SHA-256 was checked.
    expected = array_layout.index_of(sizes, layout.chunks_per_shard)
    files = opening.open_storage(array.directory)

    def check(
      index: bytes, shard: int = shard, expected: bytes = expected
    ) -> None:
      if index != expected:
        raise array.damaged(shard, "must have a valid index, got another")

    files.get(array_layout.shard_file(shard), -len(expected), check=check)


def _check_values(
  array: stored_array.StoredArray,
  version: int,
  progress: Callable[[int], object],
) -> None:
  """Reads and checks all chunks, and all of them together."""
  content = hashlib.sha256() if version == 1 else tree_hash.TreeHash()
  for chunk in range(array.entry.layout.num_chunks):
    for _, values in array.chunks(np.asarray([chunk])):
      content.update(values.data)
      progress(values.nbytes)
  if content.hexdigest() != array.entry.sha256:
    raise errors.StoreError(
      f"{array.directory} must hold values of SHA-256 {array.entry.sha256}, got"
      f" {content.hexdigest()}. {manifest_lib.RESTORE}"
    )
