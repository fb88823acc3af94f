# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Which files `adopt` and `verify` take of a corpus that others wrote."""

from collections.abc import Iterable
import os
import pathlib

from chomp_data import errors
from chomp_data.storage import opening
from chomp_data.stores import checksum_sidecar
from chomp_data.stores.array_record import record_files
from chomp_data.stores.samples import arrow_samples
from chomp_data.stores.tokenized import levanter_store
from chomp_data.stores.tokenized import megatron_store
from chomp_data.stores.zarr import manifest


def files_at(path: str | os.PathLike[str]) -> record_files.Corpus:
  """Returns the files of ArrayRecord, Arrow, Megatron or Levanter data.

  Args:
    path: As a store of the kind takes it, or a directory of `save_to_disk`.

  Raises:
    StoreError: If there are no such files, or it is a store of ours, which
      has checksums.
  """
  opening.open_local(path)
  place = pathlib.Path(path)
  if (place / manifest.FILE).exists():
    raise errors.StoreError(
      f"{path} must be data that others wrote to be adopted, got a store, which"
      " has checksums of all its chunks. Verify it."
    )
  if megatron_store.is_at(place):
    return megatron_store.files_of(place)
  if levanter_store.is_at(place):
    return record_files.Corpus(place, _below(place), place)
  if arrow_samples.is_saved(place):
    return record_files.Corpus(place, arrow_samples.file_names(place), place)
  return record_files.find(path)


def trusted(paths: Iterable[str]) -> list[str]:
  """Returns the paths whose files have no checksums, so are read as found.

  A change of them shows where their ends, sizes or records tell it, and not
  everywhere; what they were before they were opened first, nothing tells.

  Args:
    paths: Of data that can be opened.
  """
  return [path for path in paths if not _has_checksums(path)]


def _has_checksums(path: str) -> bool:
  """Whether every byte of what is read at a path is checked."""
  if opening.open_storage(path).is_remote:
    home = path.rstrip("/")
    if opening.open_storage(home).head(manifest.FILE) is not None:
      return True
    for suffix in megatron_store.SUFFIXES:
      home = home.removesuffix(suffix)
    return (
      opening.open_storage(f"{home}.adopted").head(checksum_sidecar.FILE)
      is not None
    )
  if (pathlib.Path(path) / manifest.FILE).exists():
    return True
  return checksum_sidecar.directory_of(files_at(path).home).is_dir()


def _below(directory: pathlib.Path) -> tuple[str, ...]:
  found = (own for own in directory.rglob("*") if own.is_file())
  return tuple(sorted(str(own.relative_to(directory)) for own in found))
