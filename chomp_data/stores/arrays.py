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

from chomp_data.stores import errors
from chomp_data.stores import layout
from chomp_data.stores import manifest as manifest_lib

# Called with (chunk, values less padding) at a chunk's first touch.
ChunkCheck = Callable[[int, np.ndarray], None]

RESTORE = "Restore the store from a copy, or prepare it again with --overwrite."


@dataclasses.dataclass
class Counters:
  """What a reader did in this process.

  Attributes:
    logical_reads: Spans copied.
    chunks_verified: Chunks fetched and checked.
    bytes_verified: Decoded bytes of these chunks.
  """

  logical_reads: int = 0
  chunks_verified: int = 0
  bytes_verified: int = 0


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
    check_spans(starts, lengths, positions, self._layout.size, len(out))
    self.counters.logical_reads += len(starts)
    chunk, first, length, position = split_spans(
      starts, lengths, positions, self._layout.chunk
    )
    order = np.argsort(chunk, kind="stable")
    wanted, begin = np.unique(chunk[order], return_index=True)
    edges = [*begin.tolist(), len(order)]
    pieces = {
      index: order[edges[i] : edges[i + 1]].tolist()
      for i, index in enumerate(wanted.tolist())
    }
    for index, values in self.chunks(wanted):
      for i in pieces[index]:
        source = values[first[i] : first[i] + length[i]]
        out[position[i] : position[i] + length[i]] = source

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
    self.counters.chunks_verified += 1
    self.counters.bytes_verified += data.nbytes
    return values

  def shard_path(self, shard: int) -> pathlib.Path:
    """Returns a shard's file."""
    return self.directory / layout.shard_file(shard)

  def damaged(self, shard: int, what: str) -> errors.StoreError:
    """Returns the error of a damaged shard file."""
    return errors.StoreError(f"{self.shard_path(shard)}: {what}. {RESTORE}")


def check_spans(
  starts: np.ndarray,
  lengths: np.ndarray,
  positions: np.ndarray,
  size: int,
  out_size: int,
) -> None:
  """Raises IndexError naming the first span that is not within bounds."""
  ok = (starts >= 0) & (lengths >= 0) & (positions >= 0)
  # Compared by subtraction: a sum of two int64 could wrap.
  ok &= (starts <= size - lengths) & (positions <= out_size - lengths)
  if not ok.all():
    i = int(np.argmin(ok))
    raise IndexError(
      f"span {i} must be within an array of {size} tokens and an output of"
      f" {out_size}, got start {starts[i]}, length {lengths[i]} and position"
      f" {positions[i]}."
    )


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


def concatenated(lengths: np.ndarray) -> np.ndarray:
  """Returns 0 .. length - 1 of each length, one after the other."""
  ends = np.cumsum(lengths)
  total = int(ends[-1]) if len(ends) else 0
  return np.arange(total) - np.repeat(ends - lengths, lengths)
