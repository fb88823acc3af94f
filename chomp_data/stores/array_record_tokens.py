"""Reading tokens of an ArrayRecord corpus: blocks of records, checked, cached.

A block is what is read together: the records that the file stores together
and, where those are short, as many as make 512 tokens. Blocks that follow each
other are read in one range. Every record's length and crc32c are compared with
the index whenever it is read, and nothing of it is handed out before.
"""

import collections
from collections.abc import Iterator
import itertools
import threading

import numpy as np

from chomp_data.stores import array_record_files
from chomp_data.stores import array_record_index
from chomp_data.stores import arrays
from chomp_data.stores import errors
from chomp_data.stores import layout

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
    corpus: array_record_files.Corpus,
    index: array_record_index.CorpusIndex,
    dtype: np.dtype,
    cache_bytes: int,
  ):
    """Opens no file yet."""
    self.counters = arrays.Counters()
    self._corpus = corpus
    self._index = index
    self._dtype = dtype
    self._readers = array_record_files.Readers(corpus)
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
    arrays.check_spans(starts, lengths, size, positions, len(out))
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
    arrays.check_spans(starts, lengths, self._index.num_tokens)
    ranges, _ = arrays.coalesced_ranges(starts, lengths)
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
    return np.repeat(first, num) + arrays.concatenated(num), np.repeat(
      span, num
    )

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
    sizes = ((high - low) * self._dtype.itemsize + _OVERHEAD_BYTES)[missing]
    # Parts that the cache can hold bound what is held at once.
    part = np.cumsum(sizes) // max(1, self._cache.room)
    cuts = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), len(missing)]
    for a, b in itertools.pairwise(cuts):
      some = missing[a:b]
      with self._lock:
        self._cache.evict(int(sizes[a:b].sum()))
        found = self._fetch(block[some])
        for i, values in zip(some, found, strict=True):
          self._cache.put(int(block[i]), values, ahead)
      yield from zip(some, found, strict=True)

  def _fetch(self, block: np.ndarray) -> list[np.ndarray]:
    """Reads blocks, those that follow each other in a file in one range."""
    file, first, last = self._documents(block)
    apart = (file[1:] != file[:-1]) | (first[1:] != last[:-1])
    cuts = [0, *(np.flatnonzero(apart) + 1).tolist(), len(block)]
    out = []
    for a, b in itertools.pairwise(cuts):
      low, high = int(first[a]), int(last[b - 1])
      records = self._read(int(file[a]), low, high)
      for begin, end in zip(
        (first[a:b] - low).tolist(), (last[a:b] - low).tolist(), strict=True
      ):
        some = records[begin:end]
        data = some[0] if len(some) == 1 else b"".join(some)
        out.append(np.frombuffer(data, self._dtype))
        self.counters.chunks_fetched += 1
        self.counters.bytes_fetched += len(data)
    return out

  def _read(self, file: int, low: int, high: int) -> list[bytes]:
    """Reads documents of one file, and compares them with the index."""
    before = int(self._index.first_document[file])
    reader = self._readers.get(file)
    count = int(self._index.first_document[file + 1]) - before
    if reader.num_records != count:
      raise self._changed(
        reader, f"must have {count} records, got {reader.num_records}"
      )
    records = reader.read(low - before, high - before)
    expected = np.diff(self._index.offsets.read(low, high + 1))
    expected *= self._dtype.itemsize
    lengths = np.fromiter(map(len, records), np.int64, len(records))
    crcs = np.fromiter(map(layout.crc32c, records), np.uint32, len(records))
    stored = self._index.crc32c.read(low, high)
    wrong = (lengths != expected) | (crcs != stored)
    if wrong.any():
      i = int(wrong.argmax())
      raise self._changed(
        reader,
        f"record {low - before + i} must be of {expected[i]} bytes with crc32c"
        f" {stored[i]:08x}, got {lengths[i]} bytes with {crcs[i]:08x}",
      )
    return records

  def _changed(
    self, reader: array_record_files.Reader, what: str
  ) -> errors.StoreError:
    return errors.StoreError(
      f"{reader.path}: {what}, as when {self._index.offsets.path.parent} was"
      " built. Put that file back, or remove that index and start again."
    )


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
    """Adds a block that is not there; one too large for the room alone."""
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
