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

from collections.abc import Iterator
import dataclasses
import json
import os
import pathlib
from typing import ClassVar

import numpy as np

from chomp_data import errors
from chomp_data import schema
from chomp_data.stores import base
from chomp_data.stores import publish
from chomp_data.stores import told
from chomp_data.stores.array_record import files_index
from chomp_data.stores.array_record import record_files
from chomp_data.stores.tokenized import chunked_tokens
from chomp_data.stores.tokenized import offsets_index

LEDGER = "shard_ledger.json"

_PART = 1 << 20


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
    options = self.options
    publish.check_local(self._path)
    shards = _shards(pathlib.Path(self._path), options.field)
    corpus = files_of(self._path, options.field)
    kept = files_index.adopted_of(corpus)
    if kept is not None and self._expected_hash is None:
      # TensorStore reads the files: they are checked before it does.
      kept.check_content(corpus.root)
    arrays = [own.data for own in shards]
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

  @property
  def chunk_tokens(self) -> int:
    """Tokens of a chunk, what is read as one."""
    _ = self._opened
    return self._chunk


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
    path: The directory of one split, which holds `shard_ledger.json`.
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
class _Shard:
  """The jagged array of a field."""

  data: chunked_tokens.ZarrArray
  offsets: chunked_tokens.ZarrArray
  num_documents: int
  num_tokens: int


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


def _ledger(root: pathlib.Path) -> tuple[dict[str, int | None], int]:
  """Returns documents by directory (None where not told), and of all.

  Raises:
    StoreError: If there is no ledger of a finished cache.
  """
  path = root / LEDGER
  try:
    ledger = json.loads(publish.read_file(path))
    total = int(ledger["total_num_rows"])
    finished = bool(ledger["is_finished"])
    sharded = ledger.get("layout", "consolidated") == "sharded"
    rows = {n: int(ledger["shard_rows"][n]) for n in ledger["finished_shards"]}
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
  return dict(rows), total


def _shards(root: pathlib.Path, field: str) -> list[_Shard]:
  """Returns the arrays of a cache, checked against its ledger."""
  rows, total = _ledger(root)
  out = []
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
    # The first element is no offset but the number of documents.
    count = int(offsets.read(0, 1)[0])
    if count != expected:
      raise errors.StoreError(
        f"{directory} must hold the {expected} documents of {LEDGER}, got"
        f" {count}. {chunked_tokens.RESTORE}"
      )
    num_tokens = int(offsets.read(count, count + 1)[0]) if count else 0
    offsets.check_files(count + 1)
    data.check_files(num_tokens)
    out.append(_Shard(data, offsets, count, num_tokens))
  if sum(own.num_documents for own in out) != total:
    raise errors.StoreError(
      f"{root} must hold the {total} documents of {LEDGER}, got"
      f" {sum(own.num_documents for own in out)}. {chunked_tokens.RESTORE}"
    )
  return out


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
