# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Levanter's caches as stores, read in place.

A cache is a directory with `shard_ledger.json` and, for each field of its
documents, a jagged array: `<field>/data`, the values of all documents, and
`<field>/offsets`, the number of documents followed by where each of them ends.
Both are zarr v3 arrays of 2**54 elements, of which the first ones are in use.
With the layout 'sharded' the arrays are in directories below, one for each
name in `finished_shards`. Read in marin-levanter 0.2.227,
`levanter/store/cache.py` and `jagged_array.py`; levanter 1.2 has the layout
without shards only.
"""

import collections
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import itertools
import json
import os
import pathlib
from typing import Any
from typing import ClassVar

import numpy as np

from chomp_data import errors
from chomp_data import schema
from chomp_data.storage import opening
from chomp_data.storage import relative_names
from chomp_data.storage import storage
from chomp_data.stores import base
from chomp_data.stores import external
from chomp_data.stores import json_values
from chomp_data.stores import object_corpus
from chomp_data.stores import object_reads
from chomp_data.stores.array_record import files_index
from chomp_data.stores.array_record import record_files
from chomp_data.stores.tokenized import foreign_arrays
from chomp_data.stores.tokenized import offsets_index
from chomp_data.stores.tokenized import zarr_chunks

LEDGER = "shard_ledger.json"

_PART = 1 << 20

# Decoded offsets that are cached while all are read.
_OFFSETS_BYTES = 64 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class LevanterOptions(external.TokenOptions):
  """What a Levanter cache does not say of itself.

  Attributes:
    field: Which field of its documents holds the token ids.
  """

  section: ClassVar[str] = "levanter"

  field: str = schema.option("input_ids", schema.text())


class LevanterStore(external.ExternalStore[LevanterOptions]):
  """A Levanter cache, read only. Made by `open_levanter`."""

  def _open(self) -> base.Opened:
    options = self.options
    cache = opening.open_storage(self._path)
    if not cache.is_remote:
      opening.open_local(self._path)
    ledger, rows, total = _ledger(cache)
    corpus, parts = _find(cache, ledger, list(rows), options.field)
    if not cache.is_remote and self._expected_hash is None:
      # Chunks have no checksum that is known: files are checked before.
      sidecar = files_index.sidecar_of(corpus)
      if sidecar is not None:
        sidecar.check_content(corpus.root)
    disk, cache_bytes = self._disk_cache, self._cache_bytes
    object_bytes: Mapping[str, int] = {}
    if isinstance(corpus, object_corpus.ObjectCorpus):
      object_bytes = corpus.sizes
    array_format = _EMPTY if not parts else _format(cache, parts[0].data[0])
    # Of the arrays only the format is read, once documents are indexed.
    return offsets_index.open_corpus(
      corpus,
      options,
      lambda before, check: foreign_arrays.ZarrArrays(
        cache,
        [part.data[1:] for part in parts],
        np.diff(before, prepend=0).tolist() if parts else [],
        array_format,
        options.vocab_size,
        cache_bytes,
        disk,
        check,
        object_bytes,
      ),
      dtype=array_format.dtype,
      ends=lambda: _ends(
        _shards(cache, parts, array_format, rows, total, object_bytes)
      ),
      key={"field": options.field},
      build=self._expected_hash is None,
      is_same=self._is_same,
      marks=np.cumsum(list(rows.values()))[:-1].tolist(),
      chunk_tokens=array_format.chunk,
      checks_files=True,
    )


@schema.arguments(
  path=schema.path(),
  options=schema.options_rule(LevanterOptions),
  cache_bytes=base.CACHE_BYTES,
)
def open_levanter(
  path: str | os.PathLike[str],
  options: LevanterOptions,
  *,
  cache_bytes: int = base.DEFAULT_CACHE_BYTES,
) -> LevanterStore:
  """Opens a Levanter cache; indexes its documents at the first time.

  Tokens stay where they are. What is detected when:

  - At every open: a cache that is not finished; files that are missing; of
    1,024 files evenly apart, those of another size or time.
  - When a file is read at first: another size or time, or other first 64 or
    last 128 KiB.
  - When it is indexed: offsets or counts that do not fit each other.
  - Where a file's time is another: other tokens at 4,096 places, or at all of
    a cache of up to 2**24: the store then has another hash.
  - At every read: chunks that cannot be decoded, and ids that are not below
    `vocab_size`.
  - Once it was adopted (`stores adopt`): any other byte, at every open, which
    then reads all files.

  Args:
    path: The directory of one split, which holds `shard_ledger.json`, or its
      URL.
    options: What the cache does not say of itself.
    cache_bytes: Most decoded bytes of tokens that are kept.

  Returns:
    The store. Its document ids are '<name>:<number>'.

  Raises:
    StoreError: If options or files are wrong; the message names the file.
  """
  options.check()
  store = LevanterStore(path, options, cache_bytes)
  _ = store.hash
  return store


@dataclasses.dataclass(frozen=True)
class _Part:
  """The objects of a jagged array: `zarr.json`, and then shards in their order.

  Attributes:
    data: Of the values of all documents.
    offsets: Of where documents end.
  """

  data: list[object_reads.VersionedObject]
  offsets: list[object_reads.VersionedObject]


@dataclasses.dataclass(frozen=True)
class _Shard:
  """Where documents end in the jagged array of a field."""

  offsets: foreign_arrays.ZarrArrays
  num_documents: int
  num_tokens: int


# Of a cache without shards.
_EMPTY = zarr_chunks.Format(np.dtype("<i4"), 1, 1, 0, "none", {})


def is_at(path: pathlib.Path) -> bool:
  """Whether a path is a cache."""
  return (path / LEDGER).is_file()


def _files(
  root: pathlib.Path, shards: list[str], field: str
) -> record_files.Corpus:
  """Returns the files of a field of shards of a cache, the ledger first."""
  names = [LEDGER]
  for shard in shards:
    for part in ("data", "offsets"):
      # Without their status: there may be thousands.
      names += sorted(
        os.path.relpath(os.path.join(folder, file), root)
        for folder, _, files in os.walk(root / shard / field / part)
        for file in files
      )
  return record_files.Corpus(root, tuple(names), root)


def _ledger(
  cache: storage.Storage,
) -> tuple[storage.ObjectInfo, dict[str, int], int]:
  """Returns the ledger's metadata, documents by directory, and of all.

  Raises:
    StoreError: If there is no ledger of a finished cache.
  """
  path = cache.url(LEDGER)
  try:
    data, info = cache.read(LEDGER, check=json.loads)
    ledger = json_values.parse(dict[str, Any], data, "the ledger")
    total = _count(ledger["total_num_rows"], "total_num_rows")
    finished = json_values.decode(bool, ledger["is_finished"], "is_finished")
    layout = ledger.get("layout", "consolidated")
    if layout not in ("consolidated", "sharded"):
      raise ValueError(f"`layout` {relative_names.brief(layout)}")
    sharded = layout == "sharded"
    rows = {}
    for name in ledger["finished_shards"] if sharded else ():
      # Only of shards are names those of directories.
      relative_names.check(name, path)
      if not cache.is_remote:
        relative_names.path_below(cache.path, name, path)
      rows[name] = _count(ledger["shard_rows"][name], f"shard_rows.{name}")
  except errors.StoreError:
    raise
  except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
    raise errors.StoreError(
      f"{path} must be the ledger of a Levanter cache, got {error!r}. Give the"
      " directory of one split, which holds it."
    ) from error
  if not finished:
    raise errors.StoreError(
      f"{cache.path} must be a finished cache, got one that is being written."
      " Wait for it, or build it again."
    )
  return info, rows if sharded else {"": total}, total


def _count(value: Any, name: str) -> int:
  number = json_values.decode(int, value, name)
  if not 0 <= number < 2**53:
    raise ValueError(f"`{name}` must be a number of documents, got {number}")
  return number


def _find(
  cache: storage.Storage,
  ledger: storage.ObjectInfo,
  shards: list[str],
  field: str,
) -> tuple[files_index.Files, list[_Part]]:
  """Returns the objects of a field of a cache, and those of each shard."""
  objects: dict[str, storage.ObjectInfo] = {}
  files = None
  if cache.is_remote:
    # All of the shards together: a listing of each costs more. It has sizes and
    # versions of all objects, which would be a request each.
    listing = cache.list(f"{field}/" if shards == [""] else "")
    objects = {info.name: info for info in listing} | {LEDGER: ledger}
    there = set(objects)
  else:
    files = _files(pathlib.Path(cache.path), shards, field)
    there = set(files.names)
  num_chunks: dict[str, int] = collections.defaultdict(int)
  for name in there:
    array, _, number = name.rpartition("/c/")
    if number.isdecimal():
      num_chunks[array] = max(num_chunks[array], int(number) + 1)
  arrays: list[list[str]] = []
  for shard, part in itertools.product(shards, ("data", "offsets")):
    array = f"{shard}/{field}/{part}".lstrip("/")
    if f"{array}/zarr.json" not in there:
      raise errors.StoreError(
        f"{cache.url(array)} must be an array of a field of the cache, got no"
        " zarr.json. Set `field` to one that is there."
      )
    chunks = (f"{array}/c/{number}" for number in range(num_chunks[array]))
    arrays.append([f"{array}/zarr.json", *chunks])
  names = [LEDGER, *itertools.chain.from_iterable(arrays)]
  for name in sorted(set(names) - there):
    raise errors.StoreError(
      f"{cache.url(name)} must exist, got none. {foreign_arrays.RESTORE}"
    )
  corpus, versions = files, dict.fromkeys(names)
  if corpus is None:
    corpus = object_corpus.of_listing(
      cache, [objects[name] for name in names], cache.path
    )
    versions = dict(zip(names, corpus.versions, strict=True))
  parts = [[(name, versions[name]) for name in array] for array in arrays]
  return corpus, [
    _Part(data, offsets)
    for data, offsets in zip(parts[::2], parts[1::2], strict=True)
  ]


def _format(
  cache: storage.Storage, metadata: object_reads.VersionedObject
) -> zarr_chunks.Format:
  """Returns how an array is stored."""
  name, version = metadata
  formats: list[zarr_chunks.Format] = []

  def check(data: bytes) -> None:
    formats[:] = [zarr_chunks.format_of(cache.url(name), data)]

  try:
    cache.get(name, check=check, version=version)
  except FileNotFoundError:
    raise errors.StoreError(
      f"{cache.url(name)} must exist, got no such object any more. Put it back,"
      " or start again."
    ) from None
  return formats[0]


def _shards(
  cache: storage.Storage,
  parts: list[_Part],
  array_format: zarr_chunks.Format,
  rows: dict[str, int],
  total: int,
  object_bytes: Mapping[str, int],
) -> list[_Shard]:
  """Returns the offsets of all shards, checked against the ledger."""
  shards: list[_Shard] = []
  for part, expected in zip(parts, rows.values(), strict=True):
    metadata, path = (
      cache.url(part.data[0][0]),
      cache.url(part.offsets[0][0]),
    )
    if part is not parts[0] and _format(cache, part.data[0]) != array_format:
      raise errors.StoreError(
        f"{metadata} must be as that of other shards, got another. Name them"
        " as two stores."
      )
    offsets_format = _format(cache, part.offsets[0])
    size = offsets_format.file * (len(part.offsets) - 1)
    if expected >= size:
      raise errors.StoreError(
        f"{path} must have objects of {expected + 1} offsets, got objects of"
        f" {size}. {foreign_arrays.RESTORE}"
      )
    offsets = foreign_arrays.ZarrArrays(
      cache,
      [part.offsets[1:]],
      [size],
      offsets_format,
      None,
      _OFFSETS_BYTES,
      object_bytes=object_bytes,
    )
    # The first element is no offset but the number of documents.
    count = int(offsets.read(0, 1)[0])
    if count != expected:
      raise errors.StoreError(
        f"{path} must hold the {expected} documents of {LEDGER}, got {count}."
        f" {foreign_arrays.RESTORE}"
      )
    num_tokens = int(offsets.read(count, count + 1)[0]) if count else 0
    if num_tokens > array_format.file * (len(part.data) - 1):
      raise errors.StoreError(
        f"{metadata} must have objects of {num_tokens} tokens beside it, got"
        f" {len(part.data) - 1}. {foreign_arrays.RESTORE}"
      )
    shards.append(_Shard(offsets, count, num_tokens))
  num_documents = sum(shard.num_documents for shard in shards)
  if num_documents != total:
    raise errors.StoreError(
      f"{cache.path} must hold the {total} documents of {LEDGER}, got"
      f" {num_documents}. {foreign_arrays.RESTORE}"
    )
  return shards


def _ends(shards: list[_Shard]) -> Iterator[np.ndarray]:
  """Yields where documents end, int64[n], in parts."""
  tokens_before = 0
  for shard in shards:
    last = 0
    for first in range(1, shard.num_documents + 1, _PART):
      stop = min(first + _PART, shard.num_documents + 1)
      ends = shard.offsets.read(first, stop).astype(np.int64)
      if ends[0] < last or (np.diff(ends) < 0).any():
        raise errors.StoreError(
          f"{shard.offsets.path} must not decrease, got offsets that do in"
          f" documents {first - 1} .. {stop - 2}. {foreign_arrays.RESTORE}"
        )
      last = int(ends[-1])
      yield tokens_before + ends
    tokens_before += shard.num_tokens
