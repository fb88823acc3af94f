# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Hot loops, compiled by numba; `cache` loads them.

Each saves at least 10% of the CPU time of some batch. What a loop does is
documented with its NumPy form, which gives the same bytes. Arrays are
contiguous and writable. No loop raises: division follows NumPy's rules.
"""

from collections.abc import Callable
from typing import Any

import numba
import numba.extending
import numpy as np

# By name, each loop and its signature. Nothing is compiled on import.
LOOPS: dict[str, tuple[Any, str]] = {}

_inlined = numba.njit(nogil=True, error_model="numpy", inline="always")


def _loop(signature: str) -> Callable[[Callable[..., int]], Any]:
  """Declares a loop with its only signature."""

  def declare(function: Callable[..., int]) -> Any:
    compiled = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    LOOPS[function.__name__] = compiled, signature
    return compiled

  return declare


@_loop("i8(i8[::1], i8[::1], i8, i8, i8, i8[::1], i8[::1], i8[::1])")
def first_fit(order, length, capacity, max_items, max_bins, room, items, out):
  """Packs items as `packing.first_fit_decreasing`, by a tree of free space.

  `order` are the items [N], longest first. Scratch are `room`, of twice the
  smallest power of two of at least `max_bins`, and `items` [max_bins]. Writes
  `out` [N], the bin of each item, -1 where none has room, and returns the
  number of bins opened.
  """
  size = len(room) // 2
  # Node k is over 2k and 2k + 1, and bins are the leaves.
  room[:] = capacity
  items[:] = 0
  room[size + max_bins :] = -1
  for node in range(size - 1, 0, -1):
    room[node] = max(room[2 * node], room[2 * node + 1])
  opened = 0
  for item in order:
    size_of_item = length[item]
    if room[1] < size_of_item:
      out[item] = -1
      continue
    node = 1
    while node < size:
      node *= 2
      if room[node] < size_of_item:
        node += 1
    into = node - size
    out[item] = into
    opened = max(opened, into + 1)
    items[into] += 1
    room[node] = room[node] - size_of_item if items[into] < max_items else 0
    node //= 2
    while node >= 1:
      most = max(room[2 * node], room[2 * node + 1])
      if room[node] == most:
        break
      room[node] = most
      node //= 2
  return opened


def _as_pointer(typing: Any, address: Any) -> Any:
  """Converts a number to a pointer to memory that the caller has mapped."""

  def convert(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    return builder.inttoptr(
      args[0], context.get_value_type(signature.return_type)
    )

  return numba.types.voidptr(address), convert


_pointer: Any = numba.extending.intrinsic(_as_pointer)
_array: Any = numba.carray  # pyright: ignore[reportPrivateImportUsage]


@_inlined
def _widened(values, into):
  # Unsigned indices: signed ones need a test for counting from the end.
  for j in range(np.uint64(len(values))):
    into[j] = values[j]


@_inlined
def _copied(where, within, itemsize, into):
  """Copies elements of the chunk at address `where`, from `within` on."""
  source, part = _pointer(where + within * itemsize), len(into)
  if itemsize == 2:
    _widened(_array(source, part, np.uint16), into)
  elif itemsize == 4:
    _widened(_array(source, part, np.uint32), into)
  else:
    _widened(_array(source, part, np.uint8), into)


@_loop("i8(i8[::1], i8, i8, i8, i8[::1], i8[::1], i4[::1], i8[::1])")
def copy_spans(
  address, itemsize, chunk_size, size, starts, lengths, out, positions
):
  """Copies ranges of a chunked array, as `MappedArray.copy_spans`.

  `address` [num_chunks] is that of each chunk, 0 if it must not be read;
  `itemsize` is 1, 2 or 4 bytes, `chunk_size` and `size` are in elements.
  `positions` [N] are the indices in `out` of the ranges that begin at `starts`.

  Returns the number of parts of chunks copied; -1 if a chunk must not be read,
  -2 if a range is out of bounds.
  """
  for i in range(len(starts)):
    length = lengths[i]
    # Compared by subtraction: a sum of two int64 could wrap.
    if length < 0 or starts[i] < 0 or starts[i] > size - length:
      return -2
    if positions[i] < 0 or positions[i] > len(out) - length:
      return -2
  parts = 0
  for i in range(len(starts)):
    remaining, target = lengths[i], positions[i]
    chunk = starts[i] // chunk_size
    within = starts[i] - chunk * chunk_size
    while remaining > 0:
      part = min(remaining, chunk_size - within)
      if address[chunk] == 0:
        return -1
      _copied(address[chunk], within, itemsize, out[target : target + part])
      parts += 1
      target += part
      remaining -= part
      within = 0
      chunk += 1
  return parts


@_inlined
def _filled(out, first, last, value):
  # LLVM vectorises unsigned indices: 3 times the speed.
  for j in range(np.uint64(first), np.uint64(last)):
    out[j] = value


@_inlined
def _counted(out, first, last, origin):
  for j in range(np.uint64(first), np.uint64(last)):
    out[j] = np.int32(j - np.uint64(origin))


@_loop(
  "i8(i8[::1], i8[::1], i8[::1], i4[::1], b1[::1], b1[::1], i1[::1], i1[::1],"
  "b1, b1, i4[::1], i4[:, ::1], i4[:, ::1], i4[:, ::1], b1[:, ::1])"
)
def placed(
  row, column, length, segment, masked, joined, added_before, added_after,
  trailing, by_segment, ids, tokens, segment_ids, positions, loss_mask,
):  # fmt: skip
  """Makes the fields of rows as `row_layout.placed`, in one pass.

  Positions of `tokens` where tokens of the store are copied later stay unset.
  The first eight arguments are of spans, `row` ascending; `masked`, `joined`,
  `added_before` and `added_after` are empty where no span has them. `ids` are
  `RowLayout.special_ids`. The last four are fields [num_rows, seq_len], which
  are written.
  """
  num_rows, seq_len = segment_ids.shape
  padding, before = ids[0], ids[1]
  i = 0
  for r in range(num_rows):
    grid, segments = tokens[r], segment_ids[r]
    places, mask = positions[r], loss_mask[r]
    if not by_segment:
      _counted(places, 0, seq_len, 0)
    at = 0
    origin = 0
    last_segment = -1
    while i < len(row) and row[i] == r:
      begin, end = column[i], column[i] + length[i]
      _filled(grid, at, begin, padding)
      _filled(segments, at, begin, 0)
      _filled(mask, at, begin, False)
      if by_segment:
        _counted(places, at, begin, 0)
      if at == 0 and last_segment < 0 and begin > 0:
        grid[begin - 1] = before
      if segment[i] != last_segment:
        origin = begin
        last_segment = segment[i]
      last_of_row = i + 1 == len(row) or row[i + 1] != r
      at = seq_len if trailing and last_of_row else end
      live = len(masked) == 0 or not masked[i]
      if not live:
        _filled(grid, begin, end, padding)
      else:
        if len(added_before) and added_before[i]:
          grid[begin] = ids[added_before[i] + 1]
        if len(added_after) and added_after[i]:
          grid[end - 1] = ids[added_after[i] + 1]
      _filled(grid, end, at, padding)
      _filled(segments, begin, at, segment[i] if live else 0)
      if by_segment:
        _counted(places, begin, at, origin)
      if len(joined) and joined[i]:
        mask[begin - 1] = True
      _filled(mask, begin, end - 1, live)
      _filled(mask, end - 1, at, False)
      i += 1
    _filled(grid, at, seq_len, padding)
    _filled(segments, at, seq_len, 0)
    _filled(mask, at, seq_len, False)
    if by_segment:
      _counted(places, at, seq_len, 0)
  return 0
