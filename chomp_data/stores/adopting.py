"""Which files `adopt` and `verify` take of a corpus that others wrote."""

import os
import pathlib

from chomp_data import errors
from chomp_data.stores import publish
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
  publish.check_local(path)
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


def _below(directory: pathlib.Path) -> tuple[str, ...]:
  found = (own for own in directory.rglob("*") if own.is_file())
  return tuple(sorted(str(own.relative_to(directory)) for own in found))
