# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Spans of a store's tokens as arrays: checked, cut, joined and copied.

Positions, starts and lengths are in elements.
"""

from collections.abc import Callable
from collections.abc import Iterable
import itertools

import numpy as np

from chomp_data.index import ragged
from chomp_data.kernels import compiled

# Tokens of a chunk, in stores without another number.
DEFAULT_CHUNK_TOKENS = 256 * 1024

# Slices cost about 0.45 us a span, a gather 35 us and 5 ns an element (measured
# on x86-64): below this mean length, and from this many spans on, it wins.
GATHER_MEAN_LENGTH = 64
GATHER_MIN_SPANS = 128

# Seconds that NumPy takes to copy a span.
_SLICE_S = 0.5e-6


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
  got = f"start {starts[i]}, length {lengths[i]}"
  if positions is not None:
    within += f" and an output of {out_size}"
    got += f" and position {positions[i]}"
  raise IndexError(f"{within}, got {got}.")


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
  span, nth = ragged.elements(num)
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


def copy_pieces(
  chunks: Callable[[np.ndarray], Iterable[tuple[int, np.ndarray]]],
  pieces: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
  out: np.ndarray,
) -> None:
  """Copies pieces of chunks: out[p : p + l] = values[f : f + l] for each.

  Args:
    chunks: Yields the values of distinct chunks int64[N], in any order. They
      are asked for in the order of first use, for a cache to tell what was used
      longest ago: in a batch that crosses two windows, those of the first one.
    pieces: (chunk, first element in the chunk, length, position in `out`),
      int64[P] each, as `split_spans` returns.
    out: [M], of a dtype that holds the values.
  """
  chunk, first, length, position = pieces
  order = np.argsort(chunk, kind="stable")
  wanted, begin = np.unique(chunk[order], return_index=True)
  edges = [*begin.tolist(), len(order)]
  of_chunk = dict(zip(wanted.tolist(), itertools.pairwise(edges), strict=True))
  first, length, position = first[order], length[order], position[order]
  for index, values in chunks(wanted[np.argsort(order[begin])]):
    part = slice(*of_chunk[index])
    froms, counts, to = first[part], length[part], position[part]
    if len(counts) >= GATHER_MIN_SPANS and int(
      counts.sum()
    ) < GATHER_MEAN_LENGTH * len(counts):
      out[ragged.ranges(to, counts)] = values[ragged.ranges(froms, counts)]
      continue
    for start, count, at in zip(
      froms.tolist(), counts.tolist(), to.tolist(), strict=True
    ):
      out[at : at + count] = values[start : start + count]


def copy_compiled(
  addresses: np.ndarray,
  itemsize: int,
  chunk: int,
  size: int,
  starts: np.ndarray,
  lengths: np.ndarray,
  out: np.ndarray,
  positions: np.ndarray,
) -> int | None:
  """Copies spans as `copy_pieces`, by the compiled loop where it may run.

  Args:
    addresses: int64[num_chunks], of each chunk in memory; 0 if it must not be
      read.
    itemsize: Bytes of an unsigned element.
    chunk: Elements of a chunk.
    size: Elements of all chunks.
    starts: int64[N].
    lengths: int64[N].
    out: [M].
    positions: int64[N].

  Returns:
    The number of pieces; None if no loop is loaded, `out` is not int32, or a
    chunk must not be read, and `copy_pieces` must run.

  Raises:
    IndexError: If a span is not within the array, or not within `out`.
  """
  loop = compiled.find("copy_spans", _SLICE_S * len(starts))
  if loop is None or itemsize > 4 or out.dtype != np.int32:
    return None
  flat = [compiled.flat(column, np.int64) for column in (starts, lengths)]
  to = compiled.flat(positions, np.int64)
  num_pieces = loop(addresses, itemsize, chunk, size, *flat, out, to)
  if num_pieces == -2:
    check_spans(starts, lengths, size, positions, len(out))
  return None if num_pieces < 0 else num_pieces


def split_at(
  bounds: np.ndarray,
  starts: np.ndarray,
  lengths: np.ndarray,
  positions: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
  """Cuts spans at bounds that need not be evenly apart; empty spans vanish.

      bounds [0, 3, 3, 9], starts [1], lengths [4], positions [0]
      -> part [0, 2], first [1, 0], length [2, 2], position [0, 2]

  Args:
    bounds: int64[P + 1], where parts begin, not falling, and the end.
    starts: int64[N], within the bounds.
    lengths: int64[N], 0 or more.
    positions: int64[N].

  Returns:
    (part, first element in the part, length, position), int64[M] each.
  """
  full = lengths > 0
  starts, lengths, positions = starts[full], lengths[full], positions[full]
  first = np.searchsorted(bounds, starts, "right") - 1
  last = np.searchsorted(bounds, starts + lengths, "left") - 1
  num = last - first + 1
  span = np.repeat(np.arange(len(starts)), num)
  part = ragged.ranges(first, num)
  begin = np.maximum(starts[span], bounds[part])
  end = np.minimum((starts + lengths)[span], bounds[part + 1])
  whole = end > begin
  part, span, begin, end = part[whole], span[whole], begin[whole], end[whole]
  return (
    part,
    begin - bounds[part],
    end - begin,
    positions[span] + begin - starts[span],
  )
