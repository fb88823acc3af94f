"""Reading a store's arrays: checked chunks, and spans copied out of them.

Positions, starts and lengths are in elements. Every chunk's crc32c is checked
against the manifest at its first touch in a process, and nothing of a chunk is
handed out before.
"""

import abc
from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import pathlib

import numpy as np

from chomp_data import errors
from chomp_data.stores import layout
from chomp_data.stores import manifest as manifest_lib

# Called with (chunk, values less padding) at a chunk's first touch.
ChunkCheck = Callable[[int, np.ndarray], None]

RESTORE = "Restore the store from a copy, or prepare it again with --overwrite."


@dataclasses.dataclass
class Counters:
  """What a reader did in this process.

  What a step cost is a difference: take `snapshot()` before it, and subtract.
  Threads that read one store at a time count exactly.

  Attributes:
    spans: Spans copied.
    logical_reads: Reads that copying took one at a time: one for each span.
    coalesced_ranges: Reads that are left of the spans of each `prefetch`, once
      those that touch or overlap are one.
    chunk_requests: One for each chunk that each span touches, and one for each
      chunk that `prefetch` asked for.
    chunks_fetched: Requests that read a chunk and checked it.
    bytes_fetched: Decoded bytes of these chunks.
  """

  spans: int = 0
  logical_reads: int = 0
  coalesced_ranges: int = 0
  chunk_requests: int = 0
  chunks_fetched: int = 0
  bytes_fetched: int = 0

  @property
  def cache_hits(self) -> int:
    """Chunk requests that fetched nothing."""
    return self.chunk_requests - self.chunks_fetched

  def snapshot(self) -> "Counters":
    """Returns a copy that counts no further."""
    return dataclasses.replace(self)

  def as_dict(self) -> dict[str, int]:
    """Returns every count by name, `cache_hits` included."""
    return {**dataclasses.asdict(self), "cache_hits": self.cache_hits}

  def __add__(self, other: "Counters") -> "Counters":
    names = [field.name for field in dataclasses.fields(self)]
    return Counters(*(getattr(self, n) + getattr(other, n) for n in names))

  def __sub__(self, other: "Counters") -> "Counters":
    names = [field.name for field in dataclasses.fields(self)]
    return Counters(*(getattr(self, n) - getattr(other, n) for n in names))


class StoredArray(abc.ABC):
  """One array of a store.

  Attributes:
    directory: Where its files are.
    entry: Its layout and checksums.
    counters: Shared by the arrays of a store.
  """

  def __init__(
    self,
    directory: pathlib.Path,
    entry: manifest_lib.ArrayEntry,
    counters: Counters,
    check: ChunkCheck | None = None,
  ):
    """Reads nothing yet.

    Args:
      directory: Where the array's files are.
      entry: Its layout and checksums.
      counters: Counted into.
      check: A further check of a chunk's values; raises StoreError.
    """
    self.directory = directory
    self.entry = entry
    self.counters = counters
    self._layout = entry.layout
    self._check = check

  @abc.abstractmethod
  def chunks(self, chunks: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yields (chunk, its checked values, read-only, less padding).

    Args:
      chunks: int64[N], distinct chunks.
    """

  def copy_spans(
    self,
    starts: np.ndarray,
    lengths: np.ndarray,
    out: np.ndarray,
    positions: np.ndarray,
  ) -> None:
    """Copies spans: out[p : p + l] = array[s : s + l] for each of them.

    Args:
      starts: int64[N].
      lengths: int64[N], 0 or more.
      out: [M], of any dtype that holds the values.
      positions: int64[N], in `out`.

    Raises:
      IndexError: If a span is not within the array, or not within `out`.
      StoreError: If a chunk or its file was altered.
    """
    check_spans(starts, lengths, self._layout.size, positions, len(out))
    chunk, first, length, position = split_spans(
      starts, lengths, positions, self._layout.chunk
    )
    self._count(len(starts), len(chunk))
    order = np.argsort(chunk, kind="stable")
    wanted, begin = np.unique(chunk[order], return_index=True)
    edges = [*begin.tolist(), len(order)]
    pieces = {
      index: order[edges[i] : edges[i + 1]].tolist()
      for i, index in enumerate(wanted.tolist())
    }
    # In the order of first use, for a cache to tell what was used longest ago:
    # in a batch that crosses two windows, the chunks of the first one.
    for index, values in self.chunks(wanted[np.argsort(order[begin])]):
      for i in pieces[index]:
        source = values[first[i] : first[i] + length[i]]
        out[position[i] : position[i] + length[i]] = source

  def prefetch(self, starts: np.ndarray, lengths: np.ndarray) -> None:
    """Reads together what spans to be copied need, as far as there is room.

    Args:
      starts: int64[N], in the order of the copies to come.
      lengths: int64[N], 0 or more.

    Raises:
      IndexError: If a span is not within the array.
      StoreError: If a chunk or its file was altered.
    """
    check_spans(starts, lengths, self._layout.size)
    range_starts, _ = coalesced_ranges(starts, lengths)
    self.counters.coalesced_ranges += len(range_starts)
    self._prefetch(chunks_of_spans(starts, lengths, self._layout.chunk))

  @abc.abstractmethod
  def _prefetch(self, chunks: np.ndarray) -> None:
    """Reads chunks ahead: int64[P], those needed first first, repeated."""

  @abc.abstractmethod
  def set_cache_bytes(self, cache_bytes: int) -> None:
    """Bounds the decoded chunks that are kept, where any are."""

  def gather(self, positions: np.ndarray) -> np.ndarray:
    """Returns array[positions], a fresh array, for int64[N] in range."""
    out = np.empty(len(positions), self._layout.numpy_dtype)
    ones = np.ones(len(positions), np.int64)
    self.copy_spans(positions, ones, out, np.arange(len(positions)))
    return out

  def read(self, start: int, stop: int) -> np.ndarray:
    """Returns array[start:stop], a fresh array."""
    out = np.empty(stop - start, self._layout.numpy_dtype)
    self.copy_spans(
      np.asarray([start]), np.asarray([stop - start]), out, np.zeros(1, int)
    )
    return out

  def verify(self, chunk: int, data: np.ndarray) -> np.ndarray:
    """Checks a chunk's decoded values, padding included.

    Args:
      chunk: Which.
      data: [chunk elements], contiguous and read-only.

    Returns:
      The values less padding.

    Raises:
      StoreError: If they are not those that were written.
    """
    expected = int(self.entry.crc32c[chunk])
    found = layout.crc32c(data)
    if found != expected:
      raise self.damaged(
        chunk // self._layout.chunks_per_shard,
        f"chunk {chunk} must have crc32c {expected:08x}, got {found:08x}",
      )
    values = data[: self._layout.elements_of_chunk(chunk)]
    if self._check is not None:
      self._check(chunk, values)
    self.counters.chunks_fetched += 1
    self.counters.bytes_fetched += data.nbytes
    return values

  def _count(self, num_spans: int, num_requests: int) -> None:
    self.counters.spans += num_spans
    self.counters.logical_reads += num_spans
    self.counters.chunk_requests += num_requests

  def shard_path(self, shard: int) -> pathlib.Path:
    """Returns a shard's file."""
    return self.directory / layout.shard_file(shard)

  def damaged(self, shard: int, what: str) -> errors.StoreError:
    """Returns the error of a damaged shard file."""
    return errors.StoreError(f"{self.shard_path(shard)}: {what}. {RESTORE}")


def check_spans(
  starts: np.ndarray,
  lengths: np.ndarray,
  size: int,
  positions: np.ndarray | None = None,
  out_size: int = 0,
) -> None:
  """Raises IndexError naming the first span that is not within bounds."""
  # Compared by subtraction: a sum of two int64 could wrap.
  ok = (starts >= 0) & (lengths >= 0) & (starts <= size - lengths)
  if positions is not None:
    ok &= (positions >= 0) & (positions <= out_size - lengths)
  if ok.all():
    return
  i = int(np.argmin(ok))
  within = f"span {i} must be within an array of {size} tokens"
  found = f"start {starts[i]}, length {lengths[i]}"
  if positions is not None:
    within += f" and an output of {out_size}"
    found += f" and position {positions[i]}"
  raise IndexError(f"{within}, got {found}.")


def split_spans(
  starts: np.ndarray, lengths: np.ndarray, positions: np.ndarray, chunk: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
  """Cuts spans at chunk boundaries; empty spans vanish.

      starts [6], lengths [5], positions [0], chunk 4
      -> chunk [1, 2], first [2, 0], length [2, 3], position [0, 2]

  Args:
    starts: int64[N].
    lengths: int64[N], 0 or more.
    positions: int64[N].
    chunk: Elements of a chunk.

  Returns:
    (chunk, first element in the chunk, length, position), int64[P] each.
  """
  first_chunk = starts // chunk
  num = np.where(lengths > 0, (starts + lengths - 1) // chunk - first_chunk, -1)
  num += 1
  span = np.repeat(np.arange(len(starts)), num)
  nth = np.arange(len(span)) - np.repeat(np.cumsum(num) - num, num)
  index = first_chunk[span] + nth
  begin = np.maximum(starts[span], index * chunk)
  end = np.minimum((starts + lengths)[span], (index + 1) * chunk)
  return (
    index,
    begin - index * chunk,
    end - begin,
    positions[span] + begin - starts[span],
  )


def coalesced_ranges(
  starts: np.ndarray, lengths: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the ranges that spans cover; those that touch are one.

      starts [6, 0, 2, 6, 9], lengths [2, 3, 1, 1, 0]
      -> starts [0, 6], lengths [3, 2]

  Args:
    starts: int64[N], in any order, repeated or not.
    lengths: int64[N], 0 or more; empty spans vanish.

  Returns:
    (starts, lengths), int64[R] each, ascending and apart.
  """
  full = lengths > 0
  low = np.sort(starts[full])
  high = np.sort((starts + lengths)[full])
  # Before a gap as many spans have begun as ended, so starts and ends may be
  # sorted apart; sorting them as pairs takes three times as long.
  gap = np.flatnonzero(low[1:] > high[:-1])
  first = np.concatenate([[0], gap + 1]) if len(low) else gap
  last = np.concatenate([gap, [len(low) - 1]]) if len(low) else gap
  return low[first], high[last] - low[first]


def chunks_of_spans(
  starts: np.ndarray, lengths: np.ndarray, chunk: int
) -> np.ndarray:
  """Returns the chunks of each span, one after the other, repeated.

      starts [6, 1], lengths [5, 1], chunk 4 -> [1, 2, 0]

  Args:
    starts: int64[N].
    lengths: int64[N], 0 or more.
    chunk: Elements of a chunk.

  Returns:
    int64[P], in the order of the spans.
  """
  first = starts // chunk
  num = (starts + lengths - 1) // chunk - first + 1
  num[lengths == 0] = 0
  if (num == 1).all():
    return first
  return np.repeat(first, num) + concatenated(num)


def concatenated(lengths: np.ndarray) -> np.ndarray:
  """Returns 0 .. length - 1 of each length, one after the other."""
  ends = np.cumsum(lengths)
  total = int(ends[-1]) if len(ends) else 0
  return np.arange(total) - np.repeat(ends - lengths, lengths)
