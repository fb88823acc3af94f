# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Opening a store: its manifest, the files that it lists, and its readers.

Nothing is allocated by what a manifest claims before it is checked, and no
token is read.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import MutableMapping
import contextlib
import contextvars
import dataclasses
import functools
import hashlib
import itertools
import os
import pathlib
from typing import Any
import weakref

import numpy as np

from chomp_data import errors
from chomp_data import schema
from chomp_data.storage import chunk_cache
from chomp_data.storage import disk_cache
from chomp_data.storage import opening
from chomp_data.storage import storage
from chomp_data.stores import columns as columns_lib
from chomp_data.stores import labels as labels_lib
from chomp_data.stores import modification_guard
from chomp_data.stores.zarr import array_layout
from chomp_data.stores.zarr import chunk_tables
from chomp_data.stores.zarr import chunked_array
from chomp_data.stores.zarr import document_texts
from chomp_data.stores.zarr import manifest as manifest_lib
from chomp_data.stores.zarr import mapped_array
from chomp_data.stores.zarr import stored_array

# Stores of at most so many shard files are listed when they are first opened.
# Of larger ones, and in worker processes, each file is checked when it is first
# read: else every process asks a shared file system for thousands of files.
LISTED_FILES = 1_024


@dataclasses.dataclass(frozen=True)
class _Checked:
  """A store whose manifest, and files if it is local, were checked.

  Attributes:
    manifest: What it says.
    tables: What is known of the chunks of arrays, by name; read when asked.
    signature: Of the manifest's file.
    offsets: Arrays of offsets that are open, by name: all readers of the store
      in this process share their maps and what was checked of them.
  """

  manifest: manifest_lib.Manifest
  tables: Mapping[str, chunk_tables.ChunkTable]
  signature: tuple[int, ...]
  offsets: weakref.WeakValueDictionary[Any, stored_array.StoredArray] = (
    dataclasses.field(default_factory=weakref.WeakValueDictionary)
  )


# The stores that are open in this process, by path.
_open: weakref.WeakValueDictionary[str, _Checked] = (
  weakref.WeakValueDictionary()
)
# Those that are not checked again: none, those opened within `once`, or all.
_trusted: contextvars.ContextVar[MutableMapping[str, _Checked] | None] = (
  contextvars.ContextVar("_trusted", default=None)
)


@contextlib.contextmanager
def once(copies: bool = False) -> Iterator[None]:
  """Checks a store once that is opened several times within.

  Args:
    copies: Whether stores are copies, made at the moment, of those that this
      process has open: they are not checked at all.
  """
  trusted = _open if copies else _trusted.get()
  token = _trusted.set({} if trusted is None else trusted)
  try:
    yield
  finally:
    _trusted.reset(token)


def _checked(files: storage.Storage, copies: bool) -> _Checked:
  """Returns what a store holds; checks its files.

  Args:
    files: The store's. Of a bucket one small object is read, and nothing
      listed: each object is checked as it is read.
    copies: Whether it was checked before, and is opened again.
  """
  path, is_remote = files.path, files.directory is None
  trusted = _trusted.get()
  # The manifest of a local copy has a signature, which is compared.
  memo = _open if copies and not is_remote else trusted
  known = None if memo is None else memo.get(path)
  signature = () if is_remote else _signature(path)
  if known is not None and known.signature == signature:
    return known
  manifest = _read_manifest(files)
  if not is_remote:
    _check_metadata(files, manifest)
    num_shards = sum(
      entry.layout.num_shards for entry in manifest.arrays.values()
    )
    if not copies and num_shards <= LISTED_FILES:
      check_files(files, manifest)
  tables = {
    name: _chunk_table(files, manifest, name) for name in manifest.arrays
  }
  checked = _Checked(manifest, tables, signature)
  _open[path] = checked
  if trusted is not None:
    trusted[path] = checked
  return checked


def _signature(path: str) -> tuple[int, ...]:
  """Returns what changes where a manifest is written again."""
  # If it is missing, reading it raises the error.
  return modification_guard.stamp(os.path.join(path, manifest_lib.FILE)) or ()


def _is_of(identity: str, manifest: pathlib.Path) -> bool:
  """Whether a manifest is of the store of a hash."""
  return _read_manifest(opening.open_storage(manifest.parent)).hash == identity


class OpenedZarr:
  """The manifest and the readers of the arrays of a store.

  Attributes:
    files: Its files.
    path: Its directory or URL.
    is_remote: Whether it is in a bucket.
    guard: Of a directory, the manifest that must stay as it is.
    manifest: Its manifest.
  """

  def __init__(
    self,
    path: str | os.PathLike[str],
    cache_bytes: int,
    disk: disk_cache.DiskCache | None = None,
    copies: bool = False,
  ):
    """Reads the manifest and looks at the files, where they are few.

    Args:
      path: The store's, or its URL.
      cache_bytes: Most decoded bytes kept of each compressed array.
      disk: Where chunks of buckets are kept, too.
      copies: Whether this process opened it before.
    """
    self.files: storage.Storage = opening.open_storage(path)
    self.path: str = self.files.path
    self.is_remote: bool = self.files.directory is None
    self._disk = disk
    self._cache_bytes = cache_bytes
    # Held, so that the next one finds it.
    self._checked = _checked(self.files, copies)
    self.guard: modification_guard.ModificationGuard | None = None
    if not self.is_remote:
      self.guard = modification_guard.ModificationGuard(
        {self.files.url(manifest_lib.FILE): self._checked.signature},
        functools.partial(_is_of, self._checked.manifest.hash),
      )
    self.manifest: manifest_lib.Manifest = self._checked.manifest

  def labels(self) -> labels_lib.LabelRuns:
    """Returns which tokens are trained on, where the store says it."""
    levels = np.asarray(self.manifest.levels, np.float32)
    levels.flags.writeable = False
    return labels_lib.LabelRuns(
      levels,
      starts=self.array("label_starts"),
      levels=self.array("label_levels"),
      sums=self.array("label_sums"),
      num_runs=self.manifest.arrays["label_starts"].layout.size,
      num_tokens=self.manifest.num_tokens,
    )

  def columns(self) -> dict[str, columns_lib.StoredColumn]:
    """Returns readers of the columns, by name."""
    return {
      name: columns_lib.StoredColumn(
        column, self.array(columns_lib.array_name(name))
      )
      for name, column in self.manifest.columns.items()
    }

  def texts(self, name: str) -> document_texts.TextArray:
    """Returns a reader of one string a document: 'id' or 'meta'."""
    return document_texts.TextArray(
      self.manifest.num_documents,
      self.array(f"{name}_bytes"),
      self.array(f"{name}_offsets"),
    )

  def array(self, name: str) -> stored_array.StoredArray:
    """Returns a reader of an array."""
    entry, table = self.manifest.arrays[name], self._checked.tables[name]
    # Readers in this process share offsets, which are read without a plan.
    key = name, self._disk and self._disk.directory
    array = self._checked.offsets.get(key)
    if array is not None:
      return array
    counters = chunk_cache.Counters()
    if not self.is_remote and entry.layout.compression == "none":
      path = self.files.url(name)
      array = mapped_array.MappedArray(path, entry, table, counters)
    else:
      array = chunked_array.ChunkedArray(
        self.files,
        name,
        entry,
        table,
        counters,
        self._cache_bytes,
        None if self._disk is None else (self._disk, self.manifest.hash),
      )
    if name in manifest_lib.OFFSETS:
      self._checked.offsets[key] = array
    return array


def _read_manifest(files: storage.Storage) -> manifest_lib.Manifest:
  """Reads and parses a manifest.

  Raises:
    StoreError: If it is not there, or damaged.
  """
  parsed: list[manifest_lib.Manifest] = []

  def parse(data: bytes) -> None:
    parsed[:] = [manifest_lib.parse(data, files.url(manifest_lib.FILE))]

  try:
    files.get(manifest_lib.FILE, check=parse)
  except FileNotFoundError:
    raise _no_manifest(files) from None
  return parsed[0]


def _no_manifest(files: storage.Storage) -> errors.StoreError:
  """Returns the error where there is no manifest."""
  path = files.directory
  if path is None:
    return errors.StoreError(
      f"{files.path} must hold {manifest_lib.FILE}, which is written last, got"
      " no such object. It is not a store, or an unfinished one: correct the"
      " URL, run chomp-prepare again, or say what else it is in a section"
      " `megatron` or `levanter`."
    )
  if not path.is_dir():
    return errors.StoreError(
      f"{path} must be a directory, got"
      f" {'a file' if path.exists() else 'nothing'} there. Make a store with"
      " chomp-prepare (in a checkout, `make prepare prepare-mix` makes those of"
      " `packed` and other shipped configs), or correct the path."
      + _closest_name(path)
    )
  file = path / manifest_lib.FILE
  if file.is_symlink():
    return errors.StoreError(
      f"{file} must be readable, got a link to {os.readlink(file)}, which is"
      f" not there. {manifest_lib.RESTORE}"
    )
  return errors.StoreError(
    f"{path} must hold {manifest_lib.FILE}, which is written last, got"
    f" {sorted(os.listdir(path))[:5]}. It is not a store, or an unfinished"
    " one: run chomp-prepare again."
  )


def _closest_name(path: pathlib.Path) -> str:
  """Returns ' Did you mean `x`?' of what is beside a path, or ''."""
  try:
    siblings = itertools.islice(path.parent.iterdir(), 1000)
    names = {sibling.name for sibling in siblings}
  except OSError:
    return ""
  return schema.did_you_mean(path.name, names - {path.name})


def _chunk_table(
  files: storage.Storage, manifest: manifest_lib.Manifest, name: str
) -> chunk_tables.ChunkTable:
  entry = manifest.arrays[name]
  return chunk_tables.ChunkTable(
    name,
    entry.layout,
    lambda file: read_listed(files, file, manifest.files[file]),
    entry.crc32c,
  )


def check_files(
  files: storage.Storage, manifest: manifest_lib.Manifest
) -> None:
  """Checks that the files of a store, and no others, are there in full."""
  expected = file_sizes(manifest)
  sizes = {info.name: info.size for info in files.list()}
  sizes.pop(manifest_lib.FILE, None)
  for name, size in sorted(sizes.items()):
    if name not in expected:
      raise errors.StoreError(
        f"{files.url(name)} must not exist: the manifest does not list it."
        " Remove it, or prepare it again with --overwrite."
      )
    _check_size(files.url(name), size, expected[name])
  if missing := sorted(expected.keys() - sizes.keys()):
    raise errors.StoreError(
      f"{files.url(missing[0])} must exist, got {len(missing)} missing"
      f" file(s). {manifest_lib.RESTORE}"
    )
  for name, entry in manifest.arrays.items():
    layout = entry.layout
    shards = [
      f"{name}/{array_layout.shard_file(i)}" for i in range(layout.num_shards)
    ]
    if sum(sizes[file] for file in shards) == entry.num_bytes:
      continue
    # Its tables know which, and are not read where all is right.
    table = _chunk_table(files, manifest, name)
    for i, file in enumerate(shards):
      stored = table.stored_bytes(layout.chunks_of_shard(i))
      if stored is not None:
        crcs = len(stored) * array_layout.CRC_BYTES
        whole = sum(stored) + crcs + layout.index_bytes
        _check_size(files.url(file), sizes[file], whole)


def _check_size(path: str, size: int, expected: int | None) -> None:
  """Raises StoreError where a file is not of its size, if that is known."""
  if expected not in (None, size):
    raise errors.StoreError(
      f"{path} must be of {expected} bytes, got {size}. {manifest_lib.RESTORE}"
    )


def _check_metadata(
  files: storage.Storage, manifest: manifest_lib.Manifest
) -> None:
  """Checks zarr's description of each array."""
  for name, entry in manifest.arrays.items():
    file = f"{name}/zarr.json"
    try:
      data = files.get(file)
    except FileNotFoundError:
      data = b""
    if data != entry.layout.zarr_json():
      raise errors.StoreError(
        f"{files.url(file)} must be what the manifest implies, got other"
        f" bytes. {manifest_lib.RESTORE}"
      )


def file_sizes(manifest: manifest_lib.Manifest) -> dict[str, int | None]:
  """Returns all files but the manifest, and their sizes where it knows them."""
  sizes: dict[str, int | None] = {}
  if manifest.schema > 1:
    for name, entry in manifest.arrays.items():
      layout = entry.layout
      sizes |= dict.fromkeys(f"{name}/{file}" for file in layout.files())
      sizes[f"{name}/zarr.json"] = len(layout.zarr_json())
      if layout.compression == "none":
        for shard in range(layout.num_shards):
          file = f"{name}/{array_layout.shard_file(shard)}"
          sizes[file] = layout.shard_bytes(shard)
  return sizes | {name: entry.size for name, entry in manifest.files.items()}


def read_listed(
  files: storage.Storage, name: str, entry: manifest_lib.FileEntry
) -> bytes:
  """Returns the bytes of a file, its SHA-256 checked.

  Raises:
    StoreError: If it cannot be read, or is not as it was written.
  """

  def check(data: bytes) -> None:
    sha256 = hashlib.sha256(data).hexdigest()
    if sha256 != entry.sha256:
      raise errors.StoreError(
        f"{files.url(name)} must have SHA-256 {entry.sha256}, got {sha256}."
        f" {manifest_lib.RESTORE}"
      )

  try:
    return files.get(name, check=check)
  except FileNotFoundError:
    raise errors.StoreError(
      f"{files.url(name)} must exist, got nothing there. {manifest_lib.RESTORE}"
    ) from None
