"""Reading a whole store to check it."""

import hashlib
import os
import pathlib

import numpy as np

from chomp_data import errors
from chomp_data.stores import base
from chomp_data.stores import kinds
from chomp_data.stores.zarr import manifest as manifest_lib
from chomp_data.stores.zarr import zarr_opening
from chomp_data.stores.zarr import zarr_store


def verify_store(path: str | os.PathLike[str]) -> manifest_lib.Manifest:
  """Reads every byte of a store and checks it.

  Args:
    path: Its directory.

  Returns:
    The manifest.

  Raises:
    StoreError: If a file or a chunk is not as it was written.
  """
  store = kinds.open_store(path)
  if not isinstance(store, zarr_store.ZarrStore):
    raise errors.StoreError(
      f"{path} must be a store of tools/prepare.py to be verified, got a"
      f" {type(store).__name__}. Prepare a store from it."
    )
  directory = pathlib.Path(store.path)
  for name, entry in sorted(store.manifest.files.items()):
    zarr_opening.read_listed(directory / name, entry, keep=False)
  opened = zarr_opening.OpenedZarr(directory, base.DEFAULT_CACHE_BYTES)
  readers = {name: opened.array(name) for name in store.manifest.arrays}
  for name, array in readers.items():
    content = hashlib.sha256()
    num_chunks = array.entry.layout.num_chunks
    for chunk in range(num_chunks):
      for _, values in array.chunks(np.asarray([chunk])):
        content.update(values.data)
    if content.hexdigest() != array.entry.sha256:
      raise errors.StoreError(
        f"{directory / name} must hold values of SHA-256"
        f" {array.entry.sha256}, got {content.hexdigest()}."
        f" {manifest_lib.RESTORE}"
      )
  for _ in store.iter_lengths():
    pass
  store.find_documents([])
  if store.has_meta:
    for _ in opened.texts("meta").batches(store.num_documents):
      pass
  return store.manifest
