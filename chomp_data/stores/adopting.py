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


def files_at(
  path: str | os.PathLike[str], *, opens_records: bool = False
) -> record_files.Corpus:
  """Returns the files of ArrayRecord, Arrow, Megatron or Levanter data.

  Args:
    path: As a store of the kind takes it, or a directory of `save_to_disk`.
    opens_records: Whether ArrayRecord files are opened, which have no other
      mark than their content.

  Raises:
    StoreError: If there are no such files, one is not what it should be, or it
      is a store of ours, which has checksums.
  """
  opening.open_local(path)
  directory = pathlib.Path(path)
  if (directory / manifest.FILE).exists():
    raise errors.StoreError(
      f"{path} must be data that others wrote to be adopted, got a store, which"
      " has checksums of all its chunks. Verify it."
    )
  if megatron_store.is_at(directory):
    return megatron_store.files_of(directory)
  if levanter_store.is_at(directory):
    return record_files.Corpus(directory, _below(directory), directory)
  if arrow_samples.is_saved(directory):
    return record_files.Corpus(
      directory, arrow_samples.file_names(directory), directory
    )
  corpus = record_files.find(path)
  for number in range(len(corpus.names) if opens_records else 0):
    record_files.Reader(corpus.path(number))
  return corpus


def trusted(paths: Iterable[str]) -> list[str]:
  """Returns the paths whose files have no checksums.

  A change of their ends, sizes or records is detected, other changes are not;
  nor is any that was made before they were first opened.

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
  files = (path for path in directory.rglob("*") if path.is_file())
  return tuple(sorted(str(path.relative_to(directory)) for path in files))
