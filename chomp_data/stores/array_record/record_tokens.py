# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Reading tokens of an ArrayRecord corpus: blocks of records, verified, cached.

A block is what is read together: the records that the file stores together
and, where those are short, as many as make 512 tokens. Blocks that follow each
other are read in one range. Every record's length and crc32c are compared with
the index whenever it is read, and nothing of it is returned before.
"""

import bisect
from collections.abc import Iterator
from collections.abc import Sequence
import pathlib

import numpy as np

from chomp_data import errors
from chomp_data.index import ragged
from chomp_data.storage import checksums
from chomp_data.storage import chunk_cache
from chomp_data.stores import chunked_reads
from chomp_data.stores.array_record import record_files
from chomp_data.stores.array_record import record_index

# Rows of 2,048 then touch few blocks, and one short document costs little more
# than it would alone (a record costs 1 us in a range, 4 us alone).
_BLOCK_TOKENS = 512
_MAX_BLOCK_RECORDS = 1 << 12


class RecordTokens(chunked_reads.ChunkedReads):
  """The tokens of all documents, one after the other; a chunk is a block."""

  def __init__(
    self,
    corpus: record_files.Corpus,
    index: record_index.CorpusIndex,
    dtype: np.dtype,
    cache_bytes: int,
  ):
    """Opens no file yet."""
    super().__init__(
      index.num_tokens, _BLOCK_TOKENS, dtype, chunk_cache.Counters()
    )
    self._offsets = index.offsets
    self._blocks = _Blocks(corpus, index, dtype)
    # The library reads with one thread.
    self.cache: chunk_cache.ChunkCache = chunk_cache.ChunkCache(
      self._blocks, cache_bytes, self.counters, in_threads=False
    )

  def _split(
    self, starts: np.ndarray, lengths: np.ndarray, positions: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    if not lengths.all():
      full = lengths > 0
      starts, lengths, positions = starts[full], lengths[full], positions[full]
    first, last = self._blocks.at(starts), self._blocks.at(starts + lengths - 1)
    count = last - first + 1
    span, block = np.repeat(np.arange(len(starts)), count), first
    if len(span) > len(first):
      block = ragged.ranges(first, count)
    documents = map(self._blocks.documents, block.tolist())
    bounds = np.asarray([bound for _, *bound in documents], np.int64)
    low, high = self._offsets.gather(bounds.reshape(-1, 2)).T
    begin = np.maximum(starts[span], low)
    end = np.minimum((starts + lengths)[span], high)
    position = positions[span] + begin - starts[span]
    return block, begin - low, end - begin, position


class _Blocks:
  """Which documents are in which block, and reading blocks."""

  def __init__(
    self,
    corpus: record_files.Corpus,
    index: record_index.CorpusIndex,
    dtype: np.dtype,
  ):
    self._corpus = corpus
    self._index = index
    self._dtype = dtype
    self._readers = record_files.Readers(corpus)
    records = np.diff(index.first_document)
    tokens = np.diff(index.offsets.gather(index.first_document))
    group = index.group_size
    short = _BLOCK_TOKENS * records // np.maximum(tokens, 1)
    wanted = np.minimum(short, _MAX_BLOCK_RECORDS)
    # Whole groups: a part of one costs as much to read.
    self._block_records = np.maximum(1, -(-wanted // group)) * group
    self._first_block = np.concatenate(
      [[0], np.cumsum(-(-records // self._block_records))]
    )
    self._first_blocks: list[int] = self._first_block.tolist()
    self._begins = frozenset(self._first_blocks)
    self._first_documents: list[int] = index.first_document.tolist()

  def nbytes(self, chunk: int) -> int:
    """Returns the bytes of a block's tokens."""
    _, first, last = self.documents(chunk)
    ends = self._index.offsets.read(first, last + 1)
    return int(ends[-1] - ends[0]) * self._dtype.itemsize

  def runs(self, chunks: Sequence[int]) -> list[list[int]]:
    """Divides ascending blocks into those that follow each other in a file."""
    return ragged.neighbours(chunks, self._begins.__contains__)

  def read_run(self, run: list[int]) -> Iterator[tuple[int, np.ndarray]]:
    """Yields the blocks of a run, read in one range, with their tokens.

    Raises:
      StoreError: If a record or its file was altered.
    """
    file, begin, _ = self.documents(run[0])
    _, _, end = self.documents(run[-1])
    records = self._read(file, begin, end)
    self._verify(records, file, begin)
    for block in run:
      _, first, last = self.documents(block)
      data = b"".join(records[first - begin : last - begin])
      yield block, np.frombuffer(data, self._dtype)

  def at(self, tokens: np.ndarray) -> np.ndarray:
    """Returns the blocks that hold tokens which exist."""
    if not len(tokens):
      return np.zeros(0, np.int64)
    document = self._index.documents_at(tokens)
    file = np.searchsorted(self._index.first_document, document, "right") - 1
    record = document - self._index.first_document[file]
    return self._first_block[file] + record // self._block_records[file]

  def documents(self, block: int) -> tuple[int, int, int]:
    """Returns (file, first document, last document + 1) of a block."""
    file = bisect.bisect_right(self._first_blocks, block) - 1
    before, after = self._first_documents[file : file + 2]
    count = self._block_records.item(file)
    first = before + count * (block - self._first_blocks[file])
    return file, first, min(first + count, after)

  def _read(self, file: int, first: int, last: int) -> list[bytes]:
    """Returns the records of documents first .. last - 1, of one file."""
    before, after = self._first_documents[file : file + 2]
    reader = self._readers.get(file)
    if reader.num_records != after - before:
      raise self._changed(
        reader.path,
        f"must have {after - before} records, got {reader.num_records}",
      )
    return reader.read(first - before, last - before)

  def _verify(self, records: list[bytes], file: int, first: int) -> None:
    """Compares the records of documents from `first` on with the index."""
    last = first + len(records)
    ends = self._index.offsets.read(first, last + 1).tolist()
    stored = self._index.crc32c.read(first, last).tolist()
    for i, record in enumerate(records):
      size = (ends[i + 1] - ends[i]) * self._dtype.itemsize
      crc32c = checksums.crc32c(record)
      if (len(record), crc32c) != (size, stored[i]):
        number = first + i - self._first_documents[file]
        raise self._changed(
          self._corpus.path(file),
          f"record {number} must be of {size} bytes with crc32c"
          f" {stored[i]:08x}, got {len(record)} bytes with {crc32c:08x}",
        )

  def _changed(self, path: pathlib.Path, rule: str) -> errors.StoreError:
    return errors.StoreError(
      f"{path}: {rule}, as when it was indexed. Put that file back. If it is"
      f" right as it is, remove {self._index.offsets.path.parent}."
    )
