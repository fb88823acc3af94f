# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The index of an ArrayRecord corpus: where documents begin, and checksums.

ArrayRecord has records but no tokens, so one pass over all records notes what
random access needs: the first token of every document and the crc32c of every
record. `side_index` stores it, about 12 bytes per document on disk, and maps
it: nothing in memory grows with the number of documents.
"""

import collections
from collections.abc import Iterator
from collections.abc import Mapping
from concurrent import futures
import dataclasses
import hashlib
import os
import pathlib
import time

from absl import logging
import numpy as np

from chomp_data import errors
from chomp_data.storage import checksums
from chomp_data.stores import side_index
from chomp_data.stores.array_record import files_index
from chomp_data.stores.array_record import record_files

_NAME = "array_record"
_SCHEMA = 1

# Ids of two bytes are taken for halves of wider ones if so many look like it:
# with upper halves of 0, and with upper halves of at most `_MOST_HALVES`.
_FEW_IDS = 8
_MANY_IDS = 64
_MOST_HALVES = 4

# Decoded bytes of a part of the pass (8 MiB, which are not in the processor's
# cache, took 1.5 times as long), and records of a file's first part, whose size
# is unknown.
_PART_BYTES = 1 << 20
_FIRST_RECORDS = 16
_MAX_RECORDS = 1 << 16
_THREADS = min(4, os.cpu_count() or 1)

# Columns of the table of files.
_RECORDS, _GROUP_SIZE, _MAX_TOKEN, _MAX_TOKEN_RECORD = range(4)


class CorpusIndex:
  """The documents of a corpus.

  Attributes:
    offsets: int64[num_documents + 1], the first token of every document.
    crc32c: uint32[num_documents], of every record's bytes.
    first_document: int64[num_files + 1], the first document of every file.
    group_size: int64[num_files], records that are stored together.
    num_documents: Records of all files.
    num_tokens: Tokens of all records.
    content: Hex, SHA-256 of all tokens and of where documents begin.
  """

  def __init__(
    self,
    corpus: record_files.Corpus,
    arrays: Mapping[str, side_index.SideArray],
  ):
    """Checks that the arrays fit each other; reads no other.

    Raises:
      StoreError: If they do not.
    """
    self._corpus = corpus
    self.offsets: side_index.SideArray = arrays["offsets"]
    self.crc32c: side_index.SideArray = arrays["crc32c"]
    self._files = arrays["files"].read().reshape(-1, 4)
    self.content: str = arrays["content"].read().tobytes().hex()
    records = self._files[:, _RECORDS]
    self.first_document: np.ndarray = np.concatenate([[0], np.cumsum(records)])
    self.group_size: np.ndarray = self._files[:, _GROUP_SIZE]
    self.num_documents: int = int(self.first_document[-1])
    fits = (
      len(self._files) == len(corpus.names)
      and len(self.offsets) == self.num_documents + 1
      and len(self.crc32c) == self.num_documents
    )
    ends = self.offsets.gather(np.asarray([0, len(self.offsets) - 1]))
    if not fits or ends[0] != 0:
      raise self._damaged(f"must fit its {len(self._files)} files")
    self.num_tokens: int = int(ends[1])

  def documents_at(self, positions: np.ndarray) -> np.ndarray:
    """Returns the documents that hold tokens.

    Args:
      positions: int64[N], absolute, of tokens that exist.

    Raises:
      StoreError: If the offsets were altered.
    """
    return self.offsets.search(positions) - 1

  def check_vocabulary(self, vocab_size: int) -> None:
    """Raises StoreError naming a record with an id beyond the vocabulary."""
    wrong = np.flatnonzero(self._files[:, _MAX_TOKEN] >= vocab_size)
    if len(wrong):
      _, _, token, record = self._files[wrong[0]].tolist()
      raise _bad_token(
        self._corpus.path(int(wrong[0])), record, token, vocab_size
      )

  def _damaged(self, what: str) -> errors.StoreError:
    return errors.StoreError(
      f"{self.offsets.path} {what}, but does not. Remove"
      f" {self.offsets.path.parent}: it is built again."
    )


def load_or_build(
  corpus: record_files.Corpus,
  dtype: np.dtype,
  vocab_size: int,
  index_dir: str | os.PathLike[str] | None = None,
  build: bool = True,
) -> CorpusIndex:
  """Returns the index of a corpus; builds it if there is none that fits.

  Args:
    corpus: The files.
    dtype: Of the tokens on disk.
    vocab_size: Token ids must be below it.
    index_dir: Where to keep the index; by default beside the corpus.
    build: Whether it may be built.

  Returns:
    The index.

  Raises:
    StoreError: If a file or an id is wrong, or there is no index that fits and
      files were damaged or exchanged, or `build` is False.
  """
  arrays = files_index.load_or_build(
    corpus,
    _NAME,
    {"schema": _SCHEMA, "dtype": dtype.str},
    index_dir,
    build,
    lambda: _built(corpus, dtype, vocab_size),
    verifies_reads=True,
  )
  index = CorpusIndex(corpus, arrays)
  index.check_vocabulary(vocab_size)
  return index


@dataclasses.dataclass
class _Part:
  """Some records of one file, as the pass read them."""

  first: int
  last: int
  lengths: np.ndarray
  crc32c: np.ndarray
  data: bytes
  max_token: int
  max_token_record: int


def _built(
  corpus: record_files.Corpus, dtype: np.dtype, vocab_size: int
) -> side_index.Parts:
  """Reads all records; yields the arrays of the index, in parts."""
  began = time.monotonic()
  sizes = [corpus.path(i).stat().st_size for i in range(len(corpus.names))]
  logging.info("%s: indexing %d file(s)", corpus.home, len(sizes))
  bar = files_index.progress(corpus.home, sum(sizes))
  tokens, begins = hashlib.sha256(), hashlib.sha256()
  files, num_tokens = [], 0
  offsets = np.zeros(1, np.int64)
  with bar, futures.ThreadPoolExecutor(_THREADS) as pool:
    yield {"offsets": offsets, "crc32c": np.zeros(0, np.uint32)}
    begins.update(offsets.tobytes())
    for file, size in enumerate(sizes):
      reader = record_files.Reader(corpus.path(file))
      best = (-1, 0)
      for part in _parts_of(reader, dtype, vocab_size, pool):
        tokens.update(part.data)
        offsets = num_tokens + np.cumsum(part.lengths)
        begins.update(offsets.tobytes())
        num_tokens = int(offsets[-1])
        best = max(best, (part.max_token, -part.max_token_record))
        yield {"offsets": offsets, "crc32c": part.crc32c}
        total = reader.num_records
        bar.update(size * part.last // total - size * part.first // total)
      files.append([reader.num_records, reader.group_size, best[0], -best[1]])
  content = hashlib.sha256(tokens.digest() + begins.digest()).digest()
  yield {
    "files": np.asarray(files, np.int64).reshape(-1),
    "content": np.frombuffer(content, np.uint8),
  }
  logging.info(
    "%s: indexed %d documents of %d tokens in %.1f s",
    corpus.home,
    sum(file[_RECORDS] for file in files),
    num_tokens,
    time.monotonic() - began,
  )


def _parts_of(
  reader: record_files.Reader,
  dtype: np.dtype,
  vocab_size: int,
  pool: futures.Executor,
) -> Iterator[_Part]:
  """Yields the parts of a file in order, a few of them read at once."""
  waiting: collections.deque[futures.Future[_Part]] = collections.deque()
  # Records of a part follow from the bytes of those before it.
  step, start = _FIRST_RECORDS, 0
  try:
    while start < reader.num_records or waiting:
      while start < reader.num_records and len(waiting) <= _THREADS:
        end = min(start + step, reader.num_records)
        task = pool.submit(_part, reader, start, end, dtype, vocab_size)
        waiting.append(task)
        start = end
      part = waiting.popleft().result()
      mean = max(1, len(part.data) // (part.last - part.first))
      step = min(_MAX_RECORDS, 2 * step, _PART_BYTES // mean + 1)
      yield part
  finally:
    for task in waiting:
      task.cancel()


def _part(
  reader: record_files.Reader,
  first: int,
  last: int,
  dtype: np.dtype,
  vocab_size: int,
) -> _Part:
  records = reader.read(first, last)
  lengths = np.fromiter(map(len, records), np.int64, len(records))
  wrong = np.flatnonzero(lengths % dtype.itemsize)
  if len(wrong):
    raise errors.StoreError(
      f"{reader.path}: record {first + wrong[0]} must hold {dtype.name} ids of"
      f" {dtype.itemsize} bytes, got {lengths[wrong[0]]} bytes. Correct"
      " `token_dtype`, or the file."
    )
  lengths //= dtype.itemsize
  crcs = np.fromiter(map(checksums.crc32c, records), np.uint32, len(records))
  data = b"".join(records)
  tokens = np.frombuffer(data, dtype)
  if dtype.itemsize == 2 and _are_wider(tokens, lengths):
    raise errors.StoreError(
      f"{reader.path}: records {first} .. {last - 1} must hold {dtype.name}"
      " ids, got what are halves of ids of 4 bytes: every other one is 0, or"
      " hardly more. Set `token_dtype` to 'int32' or 'uint32'."
    )
  at, token = 0, -1
  if len(tokens):
    at = int(tokens.argmax())
    token = int(tokens[at])
    lowest = int(tokens.argmin()) if dtype.kind == "i" else at
    if tokens[lowest] < 0:
      at, token = lowest, int(tokens[lowest])
  record = first + int(np.searchsorted(np.cumsum(lengths), at, "right"))
  if len(tokens) and not 0 <= token < vocab_size:
    raise _bad_token(reader.path, record, token, vocab_size)
  return _Part(first, last, lengths, crcs, data, token, record)


def _are_wider(tokens: np.ndarray, lengths: np.ndarray) -> bool:
  """Whether ids of two bytes are the halves of wider ones.

      5, 0, 7, 0, 9, 0  of 5, 7, 9

  False for a few ids, and for records of one id each: these may end with an
  id 0.

  Args:
    tokens: uint16[n], of records one after the other.
    lengths: int64[N], of the records.
  """
  if (lengths % 2).any() or lengths.max(initial=0) < 4:
    return False
  low, high = tokens[::2], tokens[1::2]
  if not high.any():
    # Of records of several ids.
    several = np.repeat(lengths >= 4, lengths)[::2]
    return int(np.count_nonzero(low[several])) >= _FEW_IDS
  return (
    len(low) >= _MANY_IDS
    and int(high.max()) <= _MOST_HALVES
    and int(low.max()) >= 1 << 8
  )


def _bad_token(
  path: pathlib.Path, record: int, token: int, vocab_size: int
) -> errors.StoreError:
  return errors.StoreError(
    f"{path}: ids of record {record} must be in 0 .. {vocab_size - 1}, got"
    f" {token}. Correct `vocab_size` or `token_dtype`, or the file."
  )
