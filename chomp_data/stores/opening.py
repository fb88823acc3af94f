"""Opening a store: its manifest, the files that it lists, and its readers.

Nothing is allocated by what a manifest claims before it is checked, and no
token is read.
"""

import functools
import hashlib
import os
import pathlib

import numpy as np

from chomp_data import errors
from chomp_data.stores import array_record_files
from chomp_data.stores import arrays
from chomp_data.stores import manifest as manifest_lib
from chomp_data.stores import mapped
from chomp_data.stores import publish
from chomp_data.stores import samples_arrow
from chomp_data.stores import texts

_HASH_BLOCK = 1 << 22


class Opened:
  """What a process holds of an opened store."""

  def __init__(self, path: pathlib.Path, cache_bytes: int):
    self.path = path
    self._cache_bytes = cache_bytes
    self.manifest = _read_manifest(path)
    _check_files(path, self.manifest)
    self.counters = arrays.Counters()
    self._texts: dict[str, texts.TextArray] = {}

  @functools.cached_property
  def tokens(self) -> arrays.StoredArray:
    return self.array("tokens")

  @functools.cached_property
  def offsets(self) -> arrays.StoredArray:
    return self.array("offsets")

  def texts(self, name: str) -> texts.TextArray:
    """Returns a reader of one string a document: 'id' or 'meta'."""
    if name not in self._texts:
      self._texts[name] = texts.TextArray(
        str(self.path),
        name,
        self.array(f"{name}_bytes"),
        self.array(f"{name}_offsets"),
      )
    return self._texts[name]

  def array(self, name: str) -> arrays.StoredArray:
    """Returns a reader of an array."""
    entry = self.manifest.arrays[name]
    check = None
    if name.endswith("offsets"):
      of = manifest_lib.OFFSETS[name]
      check = self._offsets_check(name, self.manifest.arrays[of].layout.size)
    counters = self.counters if name == "tokens" else arrays.Counters()
    if entry.layout.compression == "none":
      return mapped.MappedArray(self.path / name, entry, counters, check)
    # TensorStore takes 0.2 s to import, and most stores do without it.
    from chomp_data.stores import cached

    return cached.CachedArray(
      self.path / name, entry, counters, check, self._cache_bytes
    )

  def _offsets_check(self, name: str, end: int) -> arrays.ChunkCheck:
    # Not `self`: a cycle would keep the maps until the collector runs.
    path, num_chunks = (
      self.path / name,
      self.manifest.arrays[name].layout.num_chunks,
    )

    def check(chunk: int, values: np.ndarray) -> None:
      first = 0 if chunk == 0 else values[0]
      last = end if chunk == num_chunks - 1 else values[-1]
      if (
        values[0] != first
        or values[-1] != last
        or not 0 <= values[0] <= values[-1] <= end
        or np.any(values[1:] < values[:-1])
      ):
        raise errors.StoreError(
          f"{path} must rise from 0 to {end}, got"
          f" {values[0]} .. {values[-1]} in chunk {chunk}. {arrays.RESTORE}"
        )

    return check


def _check_kind(path: pathlib.Path) -> None:
  """Raises StoreError where a path is of what is opened in another way."""
  try:
    is_saved = samples_arrow.is_saved(path)
  except errors.StoreError:
    is_saved = True  # Several splits.
  if is_saved:
    raise errors.StoreError(
      f"{path} must be a store, got what `save_to_disk` wrote. Of this, arrays"
      " are read in buckets of kind 'resolution'; of texts, make a store with"
      " tools/prepare.py from the JSON lines that the dataset's `to_json`"
      " writes."
    )
  if array_record_files.are_at(path):
    raise errors.StoreError(
      f"{path} must be a store, got ArrayRecord files. Of these, records of"
      " token ids are read with `array_record` beside the path, for instance"
      " {'token_dtype': 'uint16', 'vocab_size': 50_000}; samples are read in"
      " buckets of kind 'resolution'."
    )


def _read_manifest(path: pathlib.Path) -> manifest_lib.Manifest:
  file = path / manifest_lib.FILE
  if not file.exists():
    _check_kind(path)
  if not path.is_dir():
    raise errors.StoreError(
      f"{path} must be a directory, got"
      f" {'a file' if path.exists() else 'nothing'} there. Make a store with"
      " tools/prepare.py, or correct the path."
    )
  try:
    data = publish.read_file(file)
  except FileNotFoundError:
    raise errors.StoreError(
      f"{path} must hold {manifest_lib.FILE}, which is written last, got"
      f" {sorted(os.listdir(path))[:5]}. It is not a store, or an unfinished"
      " one: run tools/prepare.py again."
    ) from None
  except OSError as error:
    raise errors.StoreError(
      f"{file} must be readable, got {error}. {arrays.RESTORE}"
    ) from error
  return manifest_lib.parse(data, str(file))


def _check_files(path: pathlib.Path, manifest: manifest_lib.Manifest) -> None:
  """Checks that the listed files, and no others, are there in full."""
  missing = dict(manifest.files)
  for folder, folders, names in os.walk(path):
    folders.sort()
    for name in names:
      file = pathlib.Path(folder, name)
      relative = file.relative_to(path).as_posix()
      if relative == manifest_lib.FILE:
        continue
      entry = missing.pop(relative, None)
      if entry is None:
        raise errors.StoreError(
          f"{file} must not exist: the manifest does not list it. Remove it,"
          " or prepare it again with --overwrite."
        )
      try:
        size = file.stat().st_size
      except OSError as error:
        raise errors.StoreError(
          f"{file} must be readable, got {error}. {arrays.RESTORE}"
        ) from error
      if size != entry.size:
        raise errors.StoreError(
          f"{file} must be of {entry.size} bytes, got {size}. {arrays.RESTORE}"
        )
  if missing:
    raise errors.StoreError(
      f"{path / sorted(missing)[0]} must exist, got {len(missing)} missing"
      f" file(s). {arrays.RESTORE}"
    )
  for name, entry in manifest.arrays.items():
    file = path / name / "zarr.json"
    if file.read_bytes() != entry.layout.zarr_json():
      raise errors.StoreError(
        f"{file} must be what the manifest implies, got other bytes."
        f" {arrays.RESTORE}"
      )


def read_listed(
  path: pathlib.Path, entry: manifest_lib.FileEntry, keep: bool = True
) -> bytes:
  """Returns a file's bytes where `keep`, its SHA-256 checked."""
  content = hashlib.sha256()
  blocks = []
  try:
    with open(path, "rb") as file:
      while block := file.read(_HASH_BLOCK):
        content.update(block)
        if keep:
          blocks.append(block)
  except OSError as error:
    raise errors.StoreError(
      f"{path} must be readable, got {error}. {arrays.RESTORE}"
    ) from error
  if content.hexdigest() != entry.sha256:
    raise errors.StoreError(
      f"{path} must have SHA-256 {entry.sha256}, got {content.hexdigest()}."
      f" {arrays.RESTORE}"
    )
  return b"".join(blocks)
