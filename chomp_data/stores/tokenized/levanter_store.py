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
import dataclasses
import json
import os
import pathlib
from typing import Any
from typing import ClassVar
from typing import Protocol
from typing import TYPE_CHECKING

import numpy as np

from chomp_data import errors
from chomp_data import schema
from chomp_data.stores import base
from chomp_data.stores import disk_cache
from chomp_data.stores import json_values
from chomp_data.stores import object_corpus
from chomp_data.stores import places
from chomp_data.stores import publish
from chomp_data.stores import relative_names
from chomp_data.stores import told
from chomp_data.stores.array_record import files_index
from chomp_data.stores.array_record import record_files
from chomp_data.stores.tokenized import chunked_tokens
from chomp_data.stores.tokenized import offsets_index

if TYPE_CHECKING:
  from chomp_data.stores.tokenized import remote_chunks

LEDGER = "shard_ledger.json"

_PART = 1 << 20

# Of offsets that are kept while they are passed over.
_OFFSETS_BYTES = 64 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class LevanterOptions(told.TokenOptions):
  """What a Levanter cache does not say of itself.

  Attributes:
    field: Which field of its documents holds the token ids.
  """

  section: ClassVar[str] = "levanter"

  field: str = schema.option("input_ids", schema.text())


class LevanterStore(
  told.ToldStore[offsets_index.OpenedCorpus, LevanterOptions]
):
  """A Levanter cache, read only. Made by `open_levanter`."""

  def _open(self) -> offsets_index.OpenedCorpus:
    if places.is_url(self._path):
      return self._open_objects()
    options = self.options
    publish.check_local(self._path)
    arrays, shards = _shards(pathlib.Path(self._path), options.field)
    corpus = files_of(self._path, options.field)
    kept = files_index.adopted_of(corpus)
    if kept is not None and self._expected_hash is None:
      # TensorStore reads the files: they are checked before it does.
      kept.check_content(corpus.root)
    sizes = [own.num_tokens for own in shards]
    dtype = arrays[0].array.dtype.numpy_dtype if arrays else np.dtype(np.int32)
    self._chunk = arrays[0].chunk if arrays else 1
    return offsets_index.OpenedCorpus(
      corpus,
      options,
      lambda _: chunked_tokens.ChunkedTokens(
        arrays, sizes, options.vocab_size, self._cache_bytes
      ),
      dtype=dtype,
      ends=lambda: _ends(shards),
      key={"field": options.field},
      build=self._expected_hash is None,
    )

  def _open_objects(self) -> offsets_index.OpenedCorpus:
    """Opens objects: of the arrays only the format is read, once indexed."""
    # Most caches are on a disk, and do without.
    from chomp_data.stores.tokenized import remote_chunks

    options, cache_bytes = self.options, self._cache_bytes
    rows, total = _ledger(self._path)
    corpus, parts = _objects(self._path, list(rows), options.field)
    how = _format(corpus, parts[0].data)
    self._chunk = how.chunk
    disk = None
    if self._cache_dir is not None:
      disk = disk_cache.DiskCache(*self._cache_dir)
    files = [own.data[1:] for own in parts]
    return offsets_index.OpenedCorpus(
      corpus,
      options,
      lambda before: remote_chunks.RemoteChunks(
        corpus,
        files,
        np.diff(before, prepend=0).tolist(),
        how,
        options.vocab_size,
        cache_bytes,
        disk,
      ),
      dtype=how.dtype,
      ends=lambda: _ends(_object_shards(corpus, parts, rows, total)),
      key={"field": options.field},
      build=self._expected_hash is None,
      marks=np.cumsum(list(rows.values()))[:-1].tolist(),
    )

  @property
  def chunk_tokens(self) -> int:
    """Tokens of a chunk, what is read as one."""
    _ = self._opened
    return self._chunk


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

  - At every open: a cache that is not finished, files that are missing, of
    another size, or with other first 64 or last 128 KiB; offsets or counts
    that do not fit each other.
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


class _Array(Protocol):
  """What is asked of an array of offsets, on a disk or in a bucket."""

  @property
  def path(self) -> object: ...
  def read(self, first: int, last: int, /) -> np.ndarray: ...


@dataclasses.dataclass(frozen=True)
class _Shard:
  """Where documents end in the jagged array of a field."""

  offsets: _Array
  num_documents: int
  num_tokens: int


@dataclasses.dataclass(frozen=True)
class _Objects:
  """The objects of a jagged array, by their numbers in the corpus.

  Attributes:
    data: `zarr.json`, and then the shards in their order.
    offsets: As `data`.
  """

  data: list[int]
  offsets: list[int]


def is_at(path: pathlib.Path) -> bool:
  """Whether a path is a cache."""
  return (path / LEDGER).is_file()


def files_of(path: str | os.PathLike[str], field: str) -> record_files.Corpus:
  """Returns the files of a field of a cache, the ledger first."""
  root = pathlib.Path(path)
  own, _ = _ledger(root)
  names = [LEDGER]
  for name in own:
    for part in ("data", "offsets"):
      below = root / name / field / part
      found = sorted(
        str(file.relative_to(root))
        for file in below.rglob("*")
        if file.is_file()
      )
      names += found
  return record_files.Corpus(root, tuple(names), root)


def _ledger(root: str | os.PathLike[str]) -> tuple[dict[str, int], int]:
  """Returns documents by directory, and of all.

  Raises:
    StoreError: If there is no ledger of a finished cache.
  """
  place = places.at(root)
  path = place.file(LEDGER)
  try:
    data = place.read(LEDGER, check=json.loads)
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
      if places.is_url(root):
        relative_names.check(name, path)
      else:
        relative_names.path_below(root, name, path)
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
      f"{root} must be a finished cache, got one that is being written. Wait"
      " for it, or build it again."
    )
  if not sharded:
    return {"": total}, total
  return rows, total


def _count(value: Any, name: str) -> int:
  number = json_values.decode(int, value, name)
  if not 0 <= number < 2**53:
    raise ValueError(f"`{name}` must be a number of documents, got {number}")
  return number


def _objects(
  url: str, names: list[str], field: str
) -> tuple[object_corpus.ObjectCorpus, list[_Objects]]:
  """Returns the objects of a field of a cache in a bucket, the ledger first."""
  place = places.at(url)
  own, parts = [LEDGER], []
  # All of the shards together: a listing of each costs more.
  there = place.names(f"{field}/" if names == [""] else "")
  numbers = collections.defaultdict(set)
  for name in there:
    array, _, number = name.rpartition("/c/")
    if number.isdecimal():
      numbers[array].add(int(number))
  for name in names:
    lists = []
    for part in ("data", "offsets"):
      array = f"{name}/{field}/{part}".lstrip("/")
      found = [f"{array}/zarr.json"]
      if found[0] not in there:
        raise errors.StoreError(
          f"{place.file(array)} must be an array of a field of the cache, got"
          " no zarr.json. Set `field` to one that is there."
        )
      # What is missing between them is asked for, and then named.
      count = max(numbers[array], default=-1) + 1
      found += [f"{array}/c/{number}" for number in range(count)]
      lists.append(list(range(len(own), len(own) + len(found))))
      own += found
    parts.append(_Objects(*lists))
  if not parts:
    raise errors.StoreError(
      f"{place.file(LEDGER)} must name shards that are finished, got none."
      " Build the cache again."
    )
  return object_corpus.find(url, own, url, "an object of the cache"), parts


def _format(
  corpus: object_corpus.ObjectCorpus, files: list[int]
) -> "remote_chunks.Format":
  from chomp_data.stores.tokenized import remote_chunks

  path = corpus.path(files[0])
  data = corpus.read(
    files[0], 0, None, lambda data: remote_chunks.format_of(path, data)
  )
  return remote_chunks.format_of(path, data)


def _object_shards(
  corpus: object_corpus.ObjectCorpus,
  parts: list[_Objects],
  rows: dict[str, int],
  total: int,
) -> list[_Shard]:
  """As `_shards`, of a cache in a bucket."""
  from chomp_data.stores.tokenized import remote_chunks

  out = []
  first = _format(corpus, parts[0].data)
  for own, expected in zip(parts, rows.values(), strict=True):
    how, data = _format(corpus, own.offsets), _format(corpus, own.data)
    if data != first:
      raise errors.StoreError(
        f"{corpus.path(own.data[0])} must be as that of other shards, got"
        " another. Name them as two stores."
      )
    size = how.file * (len(own.offsets) - 1)
    offsets = remote_chunks.RemoteChunks(
      corpus, [own.offsets[1:]], [size], how, None, _OFFSETS_BYTES
    )
    path = corpus.path(own.offsets[0])
    count, num_tokens = _counts(offsets, path, expected, size)
    if num_tokens > data.file * (len(own.data) - 1):
      raise errors.StoreError(
        f"{corpus.path(own.data[0])} must have objects of {num_tokens} tokens"
        f" beside it, got {len(own.data) - 1}. {chunked_tokens.RESTORE}"
      )
    out.append(_Shard(offsets, count, num_tokens))
  _check_total(corpus.root, out, total)
  return out


def _counts(
  offsets: _Array, path: object, expected: int, size: int | None = None
) -> tuple[int, int]:
  """Returns documents and tokens of a jagged array."""
  if size is not None and expected >= size:
    raise errors.StoreError(
      f"{path} must have objects of {expected + 1} offsets, got objects of"
      f" {size}. {chunked_tokens.RESTORE}"
    )
  # The first element is no offset but the number of documents.
  count = int(offsets.read(0, 1)[0])
  if count != expected:
    raise errors.StoreError(
      f"{path} must hold the {expected} documents of {LEDGER}, got"
      f" {count}. {chunked_tokens.RESTORE}"
    )
  return count, int(offsets.read(count, count + 1)[0]) if count else 0


def _check_total(root: object, shards: list[_Shard], total: int) -> None:
  found = sum(own.num_documents for own in shards)
  if found != total:
    raise errors.StoreError(
      f"{root} must hold the {total} documents of {LEDGER}, got {found}."
      f" {chunked_tokens.RESTORE}"
    )


def _shards(
  root: pathlib.Path, field: str
) -> tuple[list[chunked_tokens.ZarrArray], list[_Shard]]:
  """Returns the tokens and offsets of a cache, checked against its ledger."""
  rows, total = _ledger(root)
  arrays, out = [], []
  for name, expected in rows.items():
    directory = root / name / field
    if not directory.is_dir():
      raise errors.StoreError(
        f"{directory} must be a field of the cache, got no such directory. Set"
        " `field` to one that is there."
      )
    data, offsets = (
      chunked_tokens.open_array(directory / part)
      for part in ("data", "offsets")
    )
    count, num_tokens = _counts(offsets, directory, expected)
    offsets.check_files(count + 1)
    data.check_files(num_tokens)
    arrays.append(data)
    out.append(_Shard(offsets, count, num_tokens))
  _check_total(root, out, total)
  return arrays, out


def _ends(shards: list[_Shard]) -> Iterator[np.ndarray]:
  """Yields where documents end, in parts; see `OpenedCorpus`."""
  begun = 0
  for own in shards:
    last = 0
    for first in range(1, own.num_documents + 1, _PART):
      stop = min(first + _PART, own.num_documents + 1)
      ends = own.offsets.read(first, stop).astype(np.int64)
      if ends[0] < last or (np.diff(ends) < 0).any():
        raise errors.StoreError(
          f"{own.offsets.path} must not decrease, got offsets that do in"
          f" documents {first - 1} .. {stop - 2}. {chunked_tokens.RESTORE}"
        )
      last = int(ends[-1])
      yield begun + ends
    begun += own.num_tokens
