# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""ArrayRecord corpora as stores: a record is the token ids of a document.

Records are raw little-endian uint16, uint32 or int32; a record of no byte is a
document of no token. An index of the corpus is built at the first open, in one
pass over all records, and kept; see `open_array_records` for what is detected
when.
"""

import dataclasses
import os
from typing import ClassVar

import numpy as np

from chomp_data import schema
from chomp_data.stores import base
from chomp_data.stores import documents
from chomp_data.stores import external
from chomp_data.stores import texts
from chomp_data.stores.array_record import record_files
from chomp_data.stores.array_record import record_index
from chomp_data.stores.array_record import record_tokens

TOKEN_DTYPES = ("uint16", "uint32", "int32")

_SCHEMA = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArrayRecordOptions(external.TokenOptions):
  """What an ArrayRecord corpus does not say of itself.

  Attributes:
    token_dtype: Type of a record's tokens, little-endian.
    adds_bos: Whether records begin with `bos_id`.
    adds_eos: Whether records end with `eos_id`.
  """

  section: ClassVar[str] = "array_record"

  token_dtype: str = schema.required(schema.choice(TOKEN_DTYPES))

  def problems(self, path: str) -> list[str]:
    """Returns what is wrong between these fields."""
    problems = []
    if self.token_dtype == "uint16" and self.vocab_size > 2**16:
      problems.append(
        f"`{path}.vocab_size` must be at most 65536 with `token_dtype` uint16,"
        f" got {self.vocab_size}. Correct it, or write wider records."
      )
    return problems + super().problems(path)


class ArrayRecordStore(external.ExternalStore[ArrayRecordOptions]):
  """An ArrayRecord corpus, read only. Made by `open_array_records`.

  Another process opens a pickled one with the index that is there.

  Attributes:
    options: What its files do not say.
  """

  def __init__(
    self,
    path: str | os.PathLike[str],
    options: ArrayRecordOptions,
    cache_bytes: int = base.DEFAULT_CACHE_BYTES,
    index_dir: str | os.PathLike[str] | None = None,
  ):
    """Opens nothing yet; see `open_array_records`."""
    super().__init__(path, options, cache_bytes)
    self._index_dir = None if index_dir is None else os.fspath(index_dir)

  def _open(self) -> "_Opened":
    options, corpus = self.options, record_files.find(self._path)
    dtype = np.dtype(options.token_dtype).newbyteorder("<")
    index = record_index.load_or_build(
      corpus,
      dtype,
      options.vocab_size,
      self._index_dir,
      self._expected_hash is None,
    )
    return _Opened(
      hash=external.identity_hash(
        options, _SCHEMA, index.num_documents, index.num_tokens, index.content
      ),
      tokenizer=options.tokenizer_info,
      tokenizer_identity=options.tokenizer_identity,
      num_tokens=index.num_tokens,
      token_dtype=dtype,
      documents=documents.StoredOffsets(
        index.offsets, index.num_documents, self._path
      ),
      tokens=record_tokens.RecordTokens(
        corpus, index, dtype, self._cache_bytes
      ),
      ids=texts.NumberedTexts(corpus.names, index.first_document),
      corpus=corpus,
    )

  @property
  def files(self) -> tuple[str, ...]:
    """The files in the order of their documents, as their ids name them."""
    assert isinstance(self.opened, _Opened)
    return self.opened.corpus.names


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Opened(base.Opened):
  """The parts of a store of ArrayRecord files, and which files they are."""

  corpus: record_files.Corpus


@schema.arguments(
  path=schema.path(),
  options=schema.options_rule(ArrayRecordOptions),
  cache_bytes=base.CACHE_BYTES,
  index_dir=schema.optional(schema.path()),
)
def open_array_records(
  path: str | os.PathLike[str],
  options: ArrayRecordOptions,
  *,
  cache_bytes: int = base.DEFAULT_CACHE_BYTES,
  index_dir: str | os.PathLike[str] | None = None,
) -> ArrayRecordStore:
  """Opens a corpus of ArrayRecord files; indexes it at the first time.

  What is detected when:

  - At every open: another set of files, and a file of another size or
    modification time. It is indexed again, and the store has another hash if
    any token is another; a pickled store is refused then. Files that were
    not changed since they were indexed are not read. Of more than 1,024 files
    so many are looked at; another one that changed is an error when it is read.
  - Before indexing again, as errors: other first 64 or last 128 KiB of a file
    whose size and time are the same; files that were swapped or copied over
    each other. At every open: of files numbered `-00000-of-00008` in a
    directory, one that is missing.
  - While indexing: files that are cut, grown, altered (ArrayRecord's own
    hashes) or no ArrayRecord, records that are no whole ids, and ids that are
    not below `vocab_size`.
  - At every read of a record: any other byte than when it was indexed, also
    where size and time of the file are the same.
  - An index that was altered is built again: at open up to 64 MiB, else it is
    an error at the first touch of a page.

  What files held before they were first indexed is not verified.

  Args:
    path: A directory, whose `*.array_record*` and `*.arrayrecord*` files are
      taken in the order of their names; one file; or a glob.
    options: What the files do not say of themselves.
    cache_bytes: Most decoded bytes that are kept.
    index_dir: Where to keep the index; by default `<path>.index` beside the
      corpus, or the user's cache directory where that cannot be written.

  Returns:
    The store. Its document ids are '<file>:<record>', its hash is of tokens
    and tokenizer and not of how they lie in files.

  Raises:
    StoreError: If options or files are wrong; the message names the file.
  """
  options.check()
  store = ArrayRecordStore(path, options, cache_bytes, index_dir)
  _ = store.hash
  return store
