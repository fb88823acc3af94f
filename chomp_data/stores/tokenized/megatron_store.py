# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Megatron corpora (`.bin` and `.idx`) as stores, read in place.

A document is what the index calls one, all of its sequences; ids are
'<name>:<number>', as the files have none.
"""

from collections.abc import Iterator
import dataclasses
import os
import pathlib
from typing import ClassVar

import numpy as np

from chomp_data import errors
from chomp_data import schema
from chomp_data.storage import checked_file
from chomp_data.storage import opening
from chomp_data.stores import base
from chomp_data.stores import external
from chomp_data.stores import object_corpus
from chomp_data.stores import span_reads
from chomp_data.stores.array_record import files_index
from chomp_data.stores.array_record import record_files
from chomp_data.stores.tokenized import foreign_arrays
from chomp_data.stores.tokenized import mapped_tokens
from chomp_data.stores.tokenized import megatron_index
from chomp_data.stores.tokenized import offsets_index

SUFFIXES = (".bin", ".idx")

# To read some spans of a corpus in a bucket, here and there: tokens of a page,
# and bytes of all that are kept.
_SAMPLED_PAGE = 1 << 12
_SAMPLED_BYTES = 64 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class MegatronOptions(external.TokenOptions):
  """What a Megatron corpus does not say of itself.

  Attributes:
    eos_id: Id of the end-of-document token, Megatron's EOD; None if there is
      none.
    adds_eos: Whether documents end with `eos_id`: they were written with
      `--append-eod`.
    boundaries: What counts as a document: 'documents' as marked in the index,
      or 'sequences' if it marks none.
  """

  section: ClassVar[str] = "megatron"

  boundaries: str = schema.option(
    "documents", schema.choice(("documents", "sequences"))
  )


class MegatronStore(external.ExternalStore[MegatronOptions]):
  """A Megatron corpus, read only. Made by `open_megatron`."""

  def _open(self) -> base.Opened:
    if opening.open_storage(self._path).is_remote:
      return self._open_objects()
    options, corpus = self.options, files_of(self._path)
    sidecar = files_index.sidecar_of(corpus)
    index = megatron_index.opened(corpus.path(1))
    width = index.dtype.itemsize

    def tokens(before: np.ndarray, _: object) -> base.Tokens:
      file = checked_file.CheckedFile(
        corpus.path(0),
        np.dtype(f"<u{width}"),
        sidecar.files[corpus.names[0]].crc32c if sidecar else None,
        size=int(before[-1]),
        remedy=sidecar.remedy if sidecar else mapped_tokens.RESTORE,
      )
      is_signed = index.dtype.kind == "i"
      return mapped_tokens.MappedTokens(file, options.vocab_size, is_signed)

    return offsets_index.open_corpus(
      corpus,
      options,
      tokens,
      dtype=index.dtype,
      ends=lambda: index.ends(options.boundaries),
      key={"boundaries": options.boundaries},
      build=self._expected_hash is None,
      is_same=self._is_same,
      chunk_tokens=span_reads.DEFAULT_CHUNK_TOKENS,
      is_mapped=True,
    )

  def _open_objects(self) -> base.Opened:
    """Opens objects: of the `.idx` only the header is read, once indexed."""
    options, corpus = self.options, objects_of(self._path)
    path = corpus.path(1)
    head = corpus.read(
      1,
      0,
      megatron_index.DTYPE_BYTES,
      lambda head: megatron_index.dtype_of(path, head),
    )
    dtype = megatron_index.dtype_of(path, head)
    disk = self._disk_cache

    def pages(before: np.ndarray, page: int, cache_bytes: int) -> base.Tokens:
      return foreign_arrays.Pages(
        corpus.files,
        (corpus.names[0], corpus.versions[0]),
        dtype,
        int(before[-1]),
        page,
        options.vocab_size,
        cache_bytes,
        disk,
      )

    return offsets_index.open_corpus(
      corpus,
      options,
      # Of as many tokens as the blocks of a shuffle are made of.
      lambda before, _: pages(
        before, span_reads.DEFAULT_CHUNK_TOKENS, self._cache_bytes
      ),
      dtype=dtype,
      ends=lambda: _ends_of(corpus, options.boundaries),
      key={"boundaries": options.boundaries},
      build=self._expected_hash is None,
      is_same=self._is_same,
      chunk_tokens=span_reads.DEFAULT_CHUNK_TOKENS,
      sampled=lambda before, _: pages(before, _SAMPLED_PAGE, _SAMPLED_BYTES),
    )


def _ends_of(
  corpus: object_corpus.ObjectCorpus, boundaries: str
) -> Iterator[np.ndarray]:
  """Yields where documents end, by an `.idx` that is read whole."""
  index = megatron_index.Index(corpus.path(1), corpus.download(1))
  expected, size = index.num_tokens * index.dtype.itemsize, corpus.size(0)
  if size != expected:
    raise errors.StoreError(
      f"{corpus.path(0)} must be of {index.num_tokens} {index.dtype.name} ids"
      f" in {expected} bytes, got {size} bytes. {mapped_tokens.RESTORE}"
    )
  yield from index.ends(boundaries)


@schema.arguments(
  path=schema.path(),
  options=schema.options_rule(MegatronOptions),
  cache_bytes=base.CACHE_BYTES,
)
def open_megatron(
  path: str | os.PathLike[str],
  options: MegatronOptions,
  *,
  cache_bytes: int = base.DEFAULT_CACHE_BYTES,
) -> MegatronStore:
  """Opens a Megatron corpus; indexes its documents at the first time.

  Tokens stay where they are and are not passed over, so that a corpus opens in
  the time that its `.idx` takes to read. What is detected when:

  - At every open: files of another size, other first 64 or last 128 KiB; an
    index that does not fit its `.bin`.
  - Where a file's time is another: sequences that do not follow each other,
    documents that do not hold all of them, and other tokens at 4,096 places,
    or at all of a corpus of up to 2**24: the store then has another hash.
  - At every read: ids that are not below `vocab_size`.
  - Once it was adopted (`stores adopt`): any other byte.

  Args:
    path: The common part of both files' names, or one of the two; or a URL
      of that kind.
    options: What the files do not say of themselves.
    cache_bytes: Most bytes of tokens that are kept of an object; files are
      mapped.

  Returns:
    The store. Its document ids are '<name>:<number>'.

  Raises:
    StoreError: If options or files are wrong; the message names the file.
  """
  options.check()
  store = MegatronStore(path, options, cache_bytes)
  _ = store.hash
  return store


def files_of(path: str | os.PathLike[str]) -> record_files.Corpus:
  """Returns the files of a corpus, `.bin` first.

  Raises:
    StoreError: If one of them is missing.
  """
  opening.open_local(path)
  home = _prefix(pathlib.Path(path))
  names = tuple(home.name + suffix for suffix in SUFFIXES)
  for name in names:
    if not (home.parent / name).is_file():
      raise errors.StoreError(
        f"{home.parent / name} must be a file of a Megatron corpus, got none."
        " Give the common part of the names of its .bin and .idx."
      )
  return record_files.Corpus(home.parent, names, home)


def objects_of(url: str | os.PathLike[str]) -> object_corpus.ObjectCorpus:
  """Returns the objects of a corpus in a bucket, `.bin` first.

  Raises:
    StoreError: If one of them is missing.
  """
  home = os.fspath(url).rstrip("/")
  for suffix in SUFFIXES:
    home = home.removesuffix(suffix)
  root, _, name = home.rpartition("/")
  return object_corpus.find(
    root,
    [name + suffix for suffix in SUFFIXES],
    home,
    "an object of a Megatron corpus, which is the common part of the names of"
    " its .bin and .idx",
  )


def is_at(path: pathlib.Path) -> bool:
  """Whether both files are at a path."""
  home = _prefix(path)
  return bool(home.name) and all(
    home.with_name(home.name + suffix).is_file() for suffix in SUFFIXES
  )


def _prefix(path: pathlib.Path) -> pathlib.Path:
  return path.with_suffix("") if path.suffix in SUFFIXES else path
