# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Reading tokens of an ArrayRecord corpus: blocks of records, checked, cached.

A block is what is read together: the records that the file stores together
and, where those are short, as many as make 512 tokens. Blocks that follow each
other are read in one range. Every record's length and crc32c are compared with
the index whenever it is read, and nothing of it is handed out before.
"""

import collections
from collections.abc import Iterator
import itertools
import pathlib
import threading

import numpy as np

from chomp_data import errors
from chomp_data.index import ragged
from chomp_data.stores import checksums
from chomp_data.stores import span_reads
from chomp_data.stores.array_record import record_files
from chomp_data.stores.array_record import record_index

# Rows of 2,048 then touch few blocks, and one short document costs little more
# than it would alone (a record costs 1 us in a range, 4 us alone).
_BLOCK_TOKENS = 512
_MAX_BLOCK_RECORDS = 1 << 12

# What Python holds of a block besides its tokens, about.
_OVERHEAD_BYTES = 256


class RecordTokens:
  """The tokens of all documents, one after the other.

  Attributes:
    counters: What was read in this process; a chunk is a block.
  """

  def __init__(
    self,
    corpus: record_files.Corpus,
    index: record_index.CorpusIndex,
    dtype: np.dtype,
    cache_bytes: int,
  ):
    """Opens no file yet."""
    self.counters: span_reads.Counters = span_reads.Counters()
    self._corpus = corpus
    self._index = index
    self._dtype = dtype
    self._readers = record_files.Readers(corpus)
    self._cache = _Cache(cache_bytes)
    self._lock = threading.RLock()
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

  def copy_spans(
    self,
    starts: np.ndarray,
    lengths: np.ndarray,
    out: np.ndarray,
    positions: np.ndarray,
  ) -> None:
    """Copies spans: out[p : p + l] = tokens[s : s + l] for each of them.

    Args:
      starts: int64[N], in tokens.
      lengths: int64[N], 0 or more.
      out: [M], of any dtype that holds the values.
      positions: int64[N], in `out`.

    Raises:
      IndexError: If a span is not within the corpus, or not within `out`.
      StoreError: If a record or its file was altered.
    """
    starts, lengths = np.asarray(starts), np.asarray(lengths)
    positions = np.asarray(positions)
    size = self._index.num_tokens
    span_reads.check_spans(starts, lengths, size, positions, len(out))
    self.counters.spans += len(starts)
    self.counters.logical_reads += len(starts)
    if not lengths.all():
      full = lengths > 0
      starts, lengths, positions = starts[full], lengths[full], positions[full]
    block, span = self._blocks_of(starts, lengths)
    self.counters.chunk_requests += len(block)
    wanted, nth = np.unique(block, return_inverse=True)
    low, high = self._bounds(wanted)
    begin = np.maximum(starts[span], low[nth])
    end = np.minimum((starts + lengths)[span], high[nth])
    first = begin - low[nth]
    to = positions[span] + begin - starts[span]
    order = np.argsort(nth, kind="stable")
    pieces = np.stack([first, end - begin, to])[:, order].T.tolist()
    edges = np.searchsorted(nth[order], np.arange(len(wanted) + 1)).tolist()
    for i, values in self._blocks(wanted, low, high):
      for first_token, length, position in pieces[edges[i] : edges[i + 1]]:
        source = values[first_token : first_token + length]
        out[position : position + length] = source

  def prefetch(self, starts: np.ndarray, lengths: np.ndarray) -> None:
    """Reads together what spans to be copied need, as far as there is room.

    Args:
      starts: int64[N], in the order of the copies to come.
      lengths: int64[N], 0 or more.

    Raises:
      IndexError: If a span is not within the corpus.
      StoreError: If a record or its file was altered.
    """
    span_reads.check_spans(starts, lengths, self._index.num_tokens)
    ranges, _ = span_reads.coalesced_ranges(starts, lengths)
    self.counters.coalesced_ranges += len(ranges)
    full = lengths > 0
    block, _ = self._blocks_of(starts[full], lengths[full])
    wanted = np.asarray(list(dict.fromkeys(block.tolist())), np.int64)
    low, high = self._bounds(wanted)
    cost = (high - low) * self._dtype.itemsize + _OVERHEAD_BYTES
    wanted = np.sort(wanted[np.cumsum(cost) <= self._cache.room])
    self.counters.chunk_requests += len(wanted)
    with self._lock:
      self._cache.expect(wanted.tolist())
      for _ in self._blocks(wanted, *self._bounds(wanted), ahead=True):
        pass

  def set_cache_bytes(self, cache_bytes: int) -> None:
    """Bounds the blocks that are kept."""
    with self._lock:
      self._cache.room = cache_bytes
      self._cache.evict(0)

  def _blocks_of(
    self, starts: np.ndarray, lengths: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns (block, span) of every block of every span, none empty."""
    count = len(starts)
    if not count:
      return np.zeros(0, np.int64), np.zeros(0, np.int64)
    ends = np.concatenate([starts, starts + lengths - 1])
    document = self._index.documents_at(ends)
    file = np.searchsorted(self._index.first_document, document, "right") - 1
    record = document - self._index.first_document[file]
    block = self._first_block[file] + record // self._block_records[file]
    first, last = block[:count], block[count:]
    span = np.arange(count)
    if (first == last).all():
      return first, span
    num = last - first + 1
    return ragged.ranges(first, num), np.repeat(span, num)

  def _documents(self, block: np.ndarray) -> tuple[np.ndarray, ...]:
    """Returns (file, first document, last document + 1) of blocks."""
    file = np.searchsorted(self._first_block, block, "right") - 1
    first = self._index.first_document[file] + self._block_records[file] * (
      block - self._first_block[file]
    )
    last = np.minimum(
      first + self._block_records[file], self._index.first_document[file + 1]
    )
    return file, first, last

  def _bounds(self, block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (first token, last token + 1) of blocks."""
    _, first, last = self._documents(block)
    ends = self._index.offsets.gather(np.concatenate([first, last]))
    return ends[: len(block)], ends[len(block) :]

  def _blocks(
    self,
    block: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    ahead: bool = False,
  ) -> Iterator[tuple[int, np.ndarray]]:
    """Yields (nth, values) of ascending blocks, those in the cache first."""
    with self._lock:
      cached = [self._cache.get(i, ahead) for i in block.tolist()]
    missing = [i for i, values in enumerate(cached) if values is None]
    for i, values in enumerate(cached):
      if values is not None:
        yield i, values
    del cached
    if not missing:
      return
    sizes = (high - low) * self._dtype.itemsize + _OVERHEAD_BYTES
    for some in _portions(missing, sizes.tolist(), self._cache.room):
      with self._lock:
        self._cache.evict(int(sizes[some].sum()))
        found = self._fetch(block[some])
        for i, values in zip(some, found, strict=True):
          self._cache.put(int(block[i]), values, ahead)
      yield from zip(some, found, strict=True)

  def _fetch(self, block: np.ndarray) -> list[np.ndarray]:
    """Reads blocks, those that follow each other in a file in one range."""
    file, first, last = self._documents(block)
    apart = (file[1:] != file[:-1]) | (first[1:] != last[:-1])
    cuts = [0, *(np.flatnonzero(apart) + 1).tolist(), len(block)]
    records = []
    for a, b in itertools.pairwise(cuts):
      records += self._read(int(file[a]), int(first[a]), int(last[b - 1]))
    self._check(records, np.repeat(first, last - first), last - first)
    ends = np.cumsum(last - first).tolist()
    out = []
    for begin, end in zip([0, *ends], ends, strict=False):
      some = records[begin:end]
      data = some[0] if len(some) == 1 else b"".join(some)
      out.append(np.frombuffer(data, self._dtype))
      self.counters.bytes_fetched += len(data)
    self.counters.chunks_fetched += len(block)
    return out

  def _read(self, file: int, first: int, last: int) -> list[bytes]:
    """Returns the records of documents first .. last - 1, of one file."""
    before, after = self._index.first_document[file : file + 2].tolist()
    reader = self._readers.get(file)
    if reader.num_records != after - before:
      raise self._changed(
        reader.path,
        f"must have {after - before} records, got {reader.num_records}",
      )
    return reader.read(first - before, last - before)

  def _check(
    self, records: list[bytes], first: np.ndarray, counts: np.ndarray
  ) -> None:
    """Compares records with the index.

    Args:
      records: N of them.
      first: int64[N], the first document of each one's block.
      counts: int64[B], how many of them are of each block.
    """
    document = first + ragged.places(counts)
    ends = self._index.offsets.gather(
      np.concatenate([document, document + 1])
    ).reshape(2, -1)
    expected = (ends[1] - ends[0]) * self._dtype.itemsize
    stored = self._index.crc32c.gather(document)
    lengths = np.fromiter(map(len, records), np.int64, len(records))
    crcs = np.fromiter(map(checksums.crc32c, records), np.uint32, len(records))
    wrong = (lengths != expected) | (crcs != stored)
    if not wrong.any():
      return
    i = int(wrong.argmax())
    starts = self._index.first_document
    file = int(np.searchsorted(starts, document[i], "right")) - 1
    raise self._changed(
      self._corpus.path(file),
      f"record {document[i] - starts[file]} must be of {expected[i]} bytes with"
      f" crc32c {stored[i]:08x}, got {lengths[i]} bytes with {crcs[i]:08x}",
    )

  def _changed(self, path: pathlib.Path, what: str) -> errors.StoreError:
    return errors.StoreError(
      f"{path}: {what}, as when {self._index.offsets.path.parent} was built."
      " Put that file back, or remove that index and start again."
    )


def _portions(
  blocks: list[int], sizes: list[int], room: int
) -> Iterator[list[int]]:
  """Yields blocks, as many at once as there is room for, at least one."""
  first, total = 0, 0
  for i, block in enumerate(blocks):
    if total + sizes[block] > room and i > first:
      yield blocks[first:i]
      first, total = i, 0
    total += sizes[block]
  yield blocks[first:]


class _Cache:
  """Blocks within a budget of bytes; the least recently copied goes first.

  Blocks that were fetched ahead of their copies go last, however long ago that
  was: their turn is still to come.
  """

  def __init__(self, room: int):
    self.room = room
    self._bytes = 0
    self._copied: collections.OrderedDict[int, np.ndarray]
    self._copied = collections.OrderedDict()
    self._ahead: collections.OrderedDict[int, np.ndarray]
    self._ahead = collections.OrderedDict()

  def get(self, block: int, ahead: bool) -> np.ndarray | None:
    values = self._copied.pop(block, None)
    if values is None:
      values = self._ahead.pop(block, None)
    if values is not None:
      (self._ahead if ahead else self._copied)[block] = values
    return values

  def put(self, block: int, values: np.ndarray, ahead: bool) -> None:
    """Adds a block, unless another thread did."""
    if self.get(block, ahead) is not None:
      return
    self._bytes += values.nbytes + _OVERHEAD_BYTES
    (self._ahead if ahead else self._copied)[block] = values

  def expect(self, blocks: list[int]) -> None:
    """Lets go what was fetched ahead and is not among these blocks."""
    wanted = set(blocks)
    for block in [block for block in self._ahead if block not in wanted]:
      self._copied[block] = self._ahead.pop(block)

  def evict(self, more: int) -> None:
    """Makes room for `more` bytes, as far as it can."""
    for held in (self._copied, self._ahead):
      while held and self._bytes + more > self.room:
        _, values = held.popitem(last=False)
        self._bytes -= values.nbytes + _OVERHEAD_BYTES
