# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Opening a store: its manifest, the files that it lists, and its readers.

Nothing is allocated by what a manifest claims before it is checked, and no
token is read.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import os
import pathlib
import stat
import threading
import weakref

import numpy as np

from chomp_data import errors
from chomp_data import schema
from chomp_data.stores import disk_cache
from chomp_data.stores import labels as labels_lib
from chomp_data.stores import places
from chomp_data.stores import publish
from chomp_data.stores import span_reads
from chomp_data.stores import unchanged
from chomp_data.stores import vocabulary
from chomp_data.stores.zarr import array_layout
from chomp_data.stores.zarr import chunk_tables
from chomp_data.stores.zarr import document_texts
from chomp_data.stores.zarr import manifest as manifest_lib
from chomp_data.stores.zarr import mapped_array
from chomp_data.stores.zarr import stored_array

_HASH_BLOCK = 1 << 22


@dataclasses.dataclass(frozen=True)
class _Checked:
  """A local store whose files were found to be there.

  Attributes:
    manifest: What it says.
    tables: What is known of the chunks of arrays, by name, as it is read.
    signature: Of the manifest's file.
    offsets: Arrays of offsets that are open, by name: whoever reads the store
      in this process maps and checks their chunks once.
  """

  manifest: manifest_lib.Manifest
  tables: dict[str, chunk_tables.ChunkTable]
  signature: tuple[int, ...]
  offsets: weakref.WeakValueDictionary[str, mapped_array.MappedArray] = (
    dataclasses.field(default_factory=weakref.WeakValueDictionary)
  )


# Of the stores that this process holds, by path: a copy of one need not check
# again what was checked. Those that are opened beside each other, by thread.
_held: weakref.WeakValueDictionary[str, _Checked] = (
  weakref.WeakValueDictionary()
)
_beside = threading.local()


@contextlib.contextmanager
def once() -> Iterator[None]:
  """Checks a store once that is opened several times within."""
  outer = getattr(_beside, "found", None)
  _beside.found = {} if outer is None else outer
  try:
    yield
  finally:
    _beside.found = outer


def _checked(path: str, copies: bool) -> _Checked:
  """Returns what a local store holds; checks its files.

  Args:
    path: The store's.
    copies: Whether it was checked before, and is opened again.
  """
  beside = getattr(_beside, "found", None)
  known = _held.get(path) if copies else (beside or {}).get(path)
  if known is not None and known.signature == _signature(path):
    return known
  signature = _signature(path)
  manifest = _read_manifest(pathlib.Path(path))
  _check_files(pathlib.Path(path), manifest)
  found = _Checked(manifest, {}, signature)
  _held[path] = found
  if beside is not None:
    beside[path] = found
  return found


def _signature(path: str) -> tuple[int, ...]:
  """Returns what changes where a manifest is written again."""
  # Where it is not there, whoever reads it says why.
  return unchanged.stamp(os.path.join(path, manifest_lib.FILE)) or ()


def _is_of(identity: str, manifest: pathlib.Path) -> bool:
  """Whether a manifest is of the store of a hash."""
  return _read_manifest(manifest.parent).hash == identity


class OpenedZarr:
  """What a process holds of an opened store; see `base.Opened`."""

  def __init__(
    self,
    path: str | os.PathLike[str],
    cache_bytes: int,
    disk: disk_cache.DiskCache | None = None,
    copies: bool = False,
  ):
    """Reads the manifest and looks at the files.

    Args:
      path: The store's, or its URL.
      cache_bytes: Most decoded bytes kept of each compressed array.
      disk: Where chunks of buckets are kept, too.
      copies: Whether this process opened it before.
    """
    self.path: str = os.fspath(path)
    self._disk = disk
    self._cache_bytes = cache_bytes
    # Of an object store one small object is read, and nothing listed: each
    # object is checked as it is read.
    self._place: places.Place | None = None
    self._tables: dict[str, chunk_tables.ChunkTable] = {}
    if places.is_url(self.path):
      self._place = places.at(self.path)
      self.path = self._place.path
      self.manifest: manifest_lib.Manifest = _manifest_of(self._place)
    else:
      # Held, so that the next one finds it.
      self._checked = _checked(self.path, copies)
      self.manifest, self._tables = self._checked.manifest, self._checked.tables
      own = os.path.join(self.path, manifest_lib.FILE)
      self.unchanged: unchanged.Unchanged = unchanged.Unchanged(
        {own: self._checked.signature},
        functools.partial(_is_of, self.manifest.hash),
      )
    self.hash: str = self.manifest.hash
    self.tokenizer_info: vocabulary.TokenizerInfo = self.manifest.tokenizer
    self.num_documents: int = self.manifest.num_documents
    self.num_tokens: int = self.manifest.num_tokens
    self.token_dtype: np.dtype = self.manifest.token_dtype
    self._arrays: dict[str, stored_array.StoredArray] = {}
    self._texts: dict[str, document_texts.TextArray] = {}

  @property
  def tokens(self) -> stored_array.StoredArray:
    return self._kept("tokens")

  @property
  def offsets(self) -> stored_array.StoredArray:
    return self._kept("offsets")

  @property
  def weights(self) -> stored_array.StoredArray:
    """Of documents, where the store has some."""
    return self._kept("document_weights")

  @functools.cached_property
  def levels(self) -> np.ndarray:
    """Weights of the levels of tokens, read-only."""
    found = np.asarray(self.manifest.levels or labels_lib.LEVELS, np.float32)
    found.flags.writeable = False
    return found

  @functools.cached_property
  def labels(self) -> labels_lib.LabelRuns:
    """Which tokens are trained on, where the store says it."""
    return labels_lib.LabelRuns(
      starts=self._kept("label_starts"),
      levels=self._kept("label_levels"),
      sums=self._kept("label_sums"),
      num_runs=self.manifest.arrays["label_starts"].layout.size,
      num_tokens=self.num_tokens,
      weights=self.levels,
      path=str(self.path),
    )

  def _kept(self, name: str) -> stored_array.StoredArray:
    if name not in self._arrays:
      self._arrays[name] = self.array(name)
    return self._arrays[name]

  def ids(self, documents: np.ndarray) -> list[str]:
    """Returns the ids of documents."""
    return self.texts("id").take(documents)

  def texts(self, name: str) -> document_texts.TextArray:
    """Returns a reader of one string a document: 'id' or 'meta'."""
    if name not in self._texts:
      self._texts[name] = document_texts.TextArray(
        self.path,
        name,
        self.array(f"{name}_bytes"),
        self.array(f"{name}_offsets"),
      )
    return self._texts[name]

  def array(self, name: str) -> stored_array.StoredArray:
    """Returns a reader of an array."""
    entry, table = self.manifest.arrays[name], self.table(name)
    check = None
    if name in manifest_lib.OFFSETS:
      of = manifest_lib.OFFSETS[name]
      check = self._offsets_check(name, self.manifest.arrays[of].layout.size)
    counters = span_reads.Counters()
    if isinstance(self._place, places.ObjectPlace):
      from chomp_data.stores.zarr import remote_array

      return remote_array.RemoteArray(
        self._place,
        name,
        entry,
        table,
        counters,
        check,
        self._cache_bytes,
        None if self._disk is None else (self._disk, self.hash),
      )
    path = f"{self.path}/{name}"
    if entry.layout.compression == "none":
      beside = self._checked.offsets
      known = beside.get(name)
      if known is None:
        known = mapped_array.MappedArray(path, entry, table, counters, check)
        if name in manifest_lib.OFFSETS:
          beside[name] = known
      return known
    # TensorStore takes 0.2 s to import, and most stores do without it.
    from chomp_data.stores.zarr import cached_array

    return cached_array.CachedArray(
      path, entry, table, counters, check, self._cache_bytes
    )

  def table(self, name: str) -> chunk_tables.ChunkTable:
    """Returns what is known of an array's chunks."""
    if name not in self._tables:
      self._tables[name] = _chunk_table(self.path, self.manifest, name)
    return self._tables[name]

  def _offsets_check(self, name: str, end: int) -> stored_array.ChunkCheck:
    # Not `self`: a cycle would keep the maps until the collector runs.
    path, num_chunks = (
      f"{self.path}/{name}",
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
          f" {values[0]} .. {values[-1]} in chunk {chunk}."
          f" {manifest_lib.RESTORE}"
        )

    return check


def _closest_name(path: pathlib.Path) -> str:
  """Returns ' Did you mean `x`?' of what is beside a path, or ''."""
  try:
    beside = [own.name for own in itertools.islice(path.parent.iterdir(), 1000)]
  except OSError:
    return ""
  return schema.did_you_mean(path.name, set(beside) - {path.name})


def _read_manifest(path: pathlib.Path) -> manifest_lib.Manifest:
  file = path / manifest_lib.FILE
  if not path.is_dir():
    raise errors.StoreError(
      f"{path} must be a directory, got"
      f" {'a file' if path.exists() else 'nothing'} there. Make a store with"
      " chomp-prepare (tools/prepare.py), or correct the path."
      + _closest_name(path)
    )
  try:
    data = publish.read_file(file)
  except FileNotFoundError:
    if file.is_symlink():
      raise errors.StoreError(
        f"{file} must be readable, got a link to {os.readlink(file)}, which is"
        f" not there. {manifest_lib.RESTORE}"
      ) from None
    raise errors.StoreError(
      f"{path} must hold {manifest_lib.FILE}, which is written last, got"
      f" {sorted(os.listdir(path))[:5]}. It is not a store, or an unfinished"
      " one: run tools/prepare.py again."
    ) from None
  except OSError as error:
    errors.check_open_files(error)
    raise errors.StoreError(
      f"{file} must be readable, got {error}. {manifest_lib.RESTORE}"
    ) from error
  return manifest_lib.parse(data, str(file))


def _manifest_of(place: places.Place) -> manifest_lib.Manifest:
  file = place.file(manifest_lib.FILE)
  parsed: list[manifest_lib.Manifest] = []

  def parse(data: bytes) -> None:
    parsed[:] = [manifest_lib.parse(data, file)]

  try:
    place.read(manifest_lib.FILE, check=parse)
  except FileNotFoundError:
    raise errors.StoreError(
      f"{place.path} must hold {manifest_lib.FILE}, which is written last, got"
      " no such object. It is not a store, or an unfinished one: correct the"
      " URL, run tools/prepare.py again, or say what else it is in a section"
      " `megatron` or `levanter`."
    ) from None
  return parsed[0]


def _chunk_table(
  path: str | os.PathLike[str], manifest: manifest_lib.Manifest, name: str
) -> chunk_tables.ChunkTable:
  entry = manifest.arrays[name]
  if entry.crc32c is not None:
    return chunk_tables.KnownChunks(entry.crc32c, entry.layout)
  return chunk_tables.ChunkTable(
    name,
    entry.layout,
    lambda file: read_listed(f"{path}/{file}", manifest.files[file]),
  )


def _check_files(path: pathlib.Path, manifest: manifest_lib.Manifest) -> None:
  """Checks that the files of a store, and no others, are there in full."""
  missing = file_sizes(manifest)
  found: dict[str, int] = {}
  # Not `pathlib`: to make its paths takes longer than to look.
  root = os.fspath(path)
  for folder, folders, names in os.walk(root):
    folders.sort()
    below = folder[len(root) :].replace(os.sep, "/").lstrip("/")
    for name in names:
      file = os.path.join(folder, name)
      relative = f"{below}/{name}" if below else name
      if relative == manifest_lib.FILE:
        continue
      if relative not in missing:
        raise errors.StoreError(
          f"{file} must not exist: the manifest does not list it. Remove it,"
          " or prepare it again with --overwrite."
        )
      wanted = missing.pop(relative)
      try:
        status = os.stat(file)
      except OSError as error:
        raise errors.StoreError(
          f"{file} must be readable, got {error}. {manifest_lib.RESTORE}"
        ) from error
      if not stat.S_ISREG(status.st_mode):
        raise errors.StoreError(
          f"{file} must be a file with contents. {manifest_lib.RESTORE}"
        )
      if wanted not in (None, status.st_size):
        raise errors.StoreError(
          f"{file} must be of {wanted} bytes, got {status.st_size}."
          f" {manifest_lib.RESTORE}"
        )
      found[relative] = status.st_size
  if missing:
    raise errors.StoreError(
      f"{path / sorted(missing)[0]} must exist, got {len(missing)} missing"
      f" file(s). {manifest_lib.RESTORE}"
    )
  for name, entry in manifest.arrays.items():
    file = path / name / "zarr.json"
    if publish.read_file(file) != entry.layout.zarr_json():
      raise errors.StoreError(
        f"{file} must be what the manifest implies, got other bytes."
        f" {manifest_lib.RESTORE}"
      )
    shards = range(entry.layout.num_shards)
    files = {i: f"{name}/{array_layout.shard_file(i)}" for i in shards}
    if sum(found[file] for file in files.values()) != entry.num_bytes:
      # Its tables know which, and are not read where all is right.
      table = _chunk_table(path, manifest, name)
      for i, file in files.items():
        check_shard_size(path / file, found[file], entry.layout, table, i)


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
  return sizes | {name: own.size for name, own in manifest.files.items()}


def check_shard_size(
  path: pathlib.Path,
  size: int,
  layout: array_layout.ArrayLayout,
  table: chunk_tables.ChunkTable,
  shard: int,
) -> None:
  """Raises StoreError where a shard file is not as large as its chunks."""
  chunks = [table.stored_bytes(i) for i in layout.chunks_of_shard(shard)]
  known = [own + array_layout.CRC_BYTES for own in chunks if own is not None]
  if len(known) == len(chunks) and size != sum(known) + layout.index_bytes:
    raise errors.StoreError(
      f"{path} must be of {sum(known) + layout.index_bytes} bytes, got {size}."
      f" {manifest_lib.RESTORE}"
    )


def read_listed(
  path: str | os.PathLike[str],
  entry: manifest_lib.FileEntry,
  keep: bool = True,
) -> bytes:
  """Returns the bytes of a file or URL where `keep`, its SHA-256 checked."""

  def read() -> bytes:
    content = hashlib.sha256()
    blocks = []
    for block in _blocks(path, entry.size):
      content.update(block)
      if keep:
        blocks.append(block)
    if content.hexdigest() != entry.sha256:
      raise places.DamagedAnswer(
        errors.StoreError(
          f"{path} must have SHA-256 {entry.sha256}, got"
          f" {content.hexdigest()}. {manifest_lib.RESTORE}"
        ),
        content.digest(),
      )
    return b"".join(blocks)

  try:
    if places.is_url(path):
      parent, _, name = os.fspath(path).rpartition("/")
      return places.ObjectPlace(parent).ask_again(name, read)
    return read()
  except places.DamagedAnswer as error:
    raise error.error from None
  except OSError as error:
    errors.check_open_files(error)
    raise errors.StoreError(
      f"{path} must be readable, got {error}. {manifest_lib.RESTORE}"
    ) from error


def _blocks(path: str | os.PathLike[str], size: int) -> Iterator[bytes]:
  """Yields what a file holds, or an object of so many bytes."""
  if places.is_url(path):
    parent, _, name = os.fspath(path).rpartition("/")
    place = places.at(parent)
    for low in range(0, size, _HASH_BLOCK):
      yield place.read(name, low, min(low + _HASH_BLOCK, size))
    return
  with open(path, "rb") as file:
    while block := file.read(_HASH_BLOCK):
      yield block
