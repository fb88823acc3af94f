"""The loops themselves. Who imports this module compiles all of them.

Arrays are contiguous; what each does is told where its form in NumPy stands.
"""

from typing import Any

import numba
import numpy as np

_ROUNDS = 8
_MULTIPLIER = np.uint64(0xD6E8FEB86659FD93)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_ONE = np.uint64(1)


def _compiled(signature: Any) -> Any:
  """Compiles now, without the interpreter's lock; keeps it where it can."""

  def compile_(function: Any) -> Any:
    try:
      return numba.njit(signature, nogil=True, cache=True)(function)
    except RuntimeError as error:  # Neither here nor in a home directory.
      if "cache" not in str(error):
        raise
      return numba.njit(signature, nogil=True)(function)

  return compile_


@_compiled("int64(int64[::1], int64[::1], int64, int64, int64, int64[::1])")
def first_fit(order, length, capacity, max_items, max_bins, out):
  """`packing.first_fit_decreasing`: a tree of the room of bins.

  Args:
    order: Items, longest first.
    length: Of each item.
    capacity: Of a bin.
    max_items: Of a bin.
    max_bins: At most so many.
    out: The bin of each item; -1 where none has room.

  Returns:
    The bins that were opened.
  """
  size = 1
  while size < max_bins:
    size *= 2
  # Node k is over 2k and 2k + 1, and bins are the leaves.
  room = np.full(2 * size, capacity, np.int64)
  room[size + max_bins :] = -1
  for node in range(size - 1, 0, -1):
    room[node] = max(room[2 * node], room[2 * node + 1])
  items = np.zeros(max_bins, np.int64)
  opened = 0
  for item in order:
    own = length[item]
    if room[1] < own:
      out[item] = -1
      continue
    node = 1
    while node < size:
      node *= 2
      if room[node] < own:
        node += 1
    into = node - size
    out[item] = into
    opened = max(opened, into + 1)
    items[into] += 1
    room[node] = room[node] - own if items[into] < max_items else 0
    node //= 2
    while node >= 1:
      most = max(room[2 * node], room[2 * node + 1])
      if room[node] == most:
        break
      room[node] = most
      node //= 2
  return opened


@numba.njit(nogil=True, inline="always")
def _hashed(value):
  value = (value ^ (value >> np.uint64(30))) * _FIRST
  value = (value ^ (value >> np.uint64(27))) * _SECOND
  return value ^ (value >> np.uint64(31))


@numba.njit(nogil=True, inline="always")
def _round(value, key):
  value = (value + key) * _MULTIPLIER
  value = (value ^ (value >> np.uint64(32))) * _MULTIPLIER
  return value ^ (value >> np.uint64(32))


# A half of few bits has few values: what a round makes of each is then looked
# up, where so many times as many values are asked for.
_TABLES_PAY = 4


@numba.njit(nogil=True)
def _walked(value, domain, keys, low_bits, low_mask, high_mask, backward, out):
  for i in range(len(value)):
    found = value[i]
    while True:
      low, high = found & low_mask, found >> low_bits
      for step in range(0, _ROUNDS, 2):
        if backward:
          r = _ROUNDS - 2 - step
          low ^= _round(high, keys[r + 1]) & low_mask
          high ^= _round(low, keys[r]) & high_mask
        else:
          high ^= _round(low, keys[step]) & high_mask
          low ^= _round(high, keys[step + 1]) & low_mask
      found = (high << low_bits) | low
      if found < domain:
        break
    out[i] = found


@numba.njit(nogil=True)
def _looked_up(
  value, domain, keys, low_bits, low_mask, high_mask, backward, out
):
  table = np.empty((_ROUNDS, low_mask + _ONE), np.uint32)
  for step in range(_ROUNDS):
    r = _ROUNDS - 1 - step if backward else step
    mask = low_mask if r % 2 else high_mask
    for half in range(len(table[step])):
      table[step, half] = _round(np.uint64(half), keys[r]) & mask
  for i in range(len(value)):
    found = value[i]
    while True:
      low, high = found & low_mask, found >> low_bits
      for step in range(0, _ROUNDS, 2):
        if backward:
          low ^= np.uint64(table[step, high])
          high ^= np.uint64(table[step + 1, low])
        else:
          high ^= np.uint64(table[step, low])
          low ^= np.uint64(table[step + 1, high])
      found = (high << low_bits) | low
      if found < domain:
        break
    out[i] = found


@_compiled("void(uint64[::1], uint64[::1], uint64[::1], boolean, uint64[::1])")
def feistel(value, size, key, backward, out):
  """`permutation.permute`, or its inverse, of domains above 32.

  Args:
    value: What is sent on.
    size: Of the domains, one of all values or one for each.
    key: Likewise.
    backward: Whether it is the inverse.
    out: Where each goes.
  """
  keys = np.empty(_ROUNDS, np.uint64)
  first = 0
  while first < len(value):
    own = key[0] if len(key) == 1 else key[first]
    domain = size[0] if len(size) == 1 else size[first]
    last = first + 1
    while last < len(value):
      if len(key) > 1 and key[last] != own:
        break
      if len(size) > 1 and size[last] != domain:
        break
      last += 1
    for r in range(_ROUNDS):
      keys[r] = _hashed(own + _GOLDEN * np.uint64(r + 1))
    bits = 0
    while (domain - _ONE) >> np.uint64(bits):
      bits += 1
    low_bits = np.uint64((bits + 1) // 2)
    low_mask = (_ONE << low_bits) - _ONE
    high_mask = (_ONE << np.uint64(bits // 2)) - _ONE
    into = out[first:last]
    if (last - first) >> low_bits >= _TABLES_PAY:
      _looked_up(
        value[first:last],
        domain,
        keys,
        low_bits,
        low_mask,
        high_mask,
        backward,
        into,
      )
    else:
      _walked(
        value[first:last],
        domain,
        keys,
        low_bits,
        low_mask,
        high_mask,
        backward,
        into,
      )
    first = last


def _mapped(dtype: Any) -> Any:
  """Returns the type of a memory map that nobody writes to."""
  return numba.types.Array(dtype, 1, "C", readonly=True)


_INTS = numba.int64[::1]


@_compiled(
  [
    numba.int64(
      _mapped(dtype),
      numba.int64,
      numba.int64,
      _INTS,
      numba.boolean[::1],
      numba.int64,
      _INTS,
      _INTS,
      numba.int32[::1],
      _INTS,
    )
    for dtype in (numba.uint8, numba.uint16, numba.uint32)
  ]
)
def copy_spans(
  words, first, last, base, verified, size, starts, lengths, out, positions
):
  """`MappedArray.copy_spans`, of the chunks of one shard.

  Args:
    words: The shard's.
    first: Its first chunk; spans of others are left out.
    last: The chunk after its last.
    base: Where each chunk of the store begins in its shard.
    verified: Whether each chunk was checked.
    size: Elements of a chunk.
    starts: Spans, as `copy_tokens` has them, within bounds.
    lengths: Their tokens.
    out: Tokens go here.
    positions: Where each span goes.

  Returns:
    The parts of chunks that were copied; -1 if one is not checked.
  """
  parts = 0
  for i in range(len(starts)):
    begin, left, to = starts[i], lengths[i], positions[i]
    chunk = begin // size
    within = begin - chunk * size
    while left > 0 and chunk < last:
      part = min(left, size - within)
      if chunk >= first:
        if not verified[chunk]:
          return -1
        source = base[chunk] + within
        own, into = words[source : source + part], out[to : to + part]
        # By unsigned numbers: signed ones might count from the end.
        for j in range(np.uint64(part)):
          into[j] = own[j]
        parts += 1
      to += part
      left -= part
      within = 0
      chunk += 1
  return parts


@_compiled(
  numba.void(
    _INTS,
    _INTS,
    _INTS,
    numba.int32[::1],
    numba.boolean[::1],
    numba.boolean,
    numba.boolean,
    numba.int32[:, ::1],
    numba.int32[:, ::1],
    numba.boolean[:, ::1],
  )
)
def span_fields(
  row,
  column,
  length,
  segment,
  gone,
  trailing,
  by_segment,
  segment_ids,
  positions,
  loss_mask,
):
  """`row_layout.span_fields`: a row after the other.

  Args:
    row: Of each span, ascending.
    column: Likewise.
    length: Likewise.
    segment: Likewise.
    gone: Likewise; empty where nothing is.
    trailing: Whether filler right of the last span is of its segment.
    by_segment: Whether positions begin with segments.
    segment_ids: To be written.
    positions: To be written.
    loss_mask: To be written.
  """
  num_rows, seq_len = segment_ids.shape
  columns = np.arange(seq_len).astype(np.int32)
  i = 0
  for r in range(num_rows):
    ids, places, mask = segment_ids[r], positions[r], loss_mask[r]
    at = 0
    origin = 0
    last_segment = -1
    while i < len(row) and row[i] == r:
      begin, end = column[i], column[i] + length[i]
      if at < begin:
        ids[at:begin] = 0
        places[at:begin] = columns[at:begin]
        mask[at:begin] = False
      if segment[i] != last_segment:
        origin = begin if by_segment else 0
        last_segment = segment[i]
      last_of_row = i + 1 == len(row) or row[i + 1] != r
      at = seq_len if trailing and last_of_row else end
      live = len(gone) == 0 or not gone[i]
      ids[begin:at] = segment[i] if live else 0
      places[begin:at] = columns[begin - origin : at - origin]
      mask[begin : end - 1] = live
      mask[end - 1 : at] = False
      i += 1
    if at < seq_len:
      ids[at:] = 0
      places[at:] = columns[at:]
      mask[at:] = False
