# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The loops themselves, as numba compiles them; see `building`.

Arrays are contiguous; what each does is told where its form in NumPy stands.
None allocates or raises: their machine code is run where numba is not loaded.
Whole numbers are int64, True and False likewise.
"""

from typing import Any

from llvmlite import ir
import numba
import numba.extending
import numpy as np

from chomp_data.kernels import mixing

_ROUNDS = mixing.ROUNDS
_MULTIPLIER = mixing.ROUND_MULTIPLIER
_SHIFT = mixing.ROUND_SHIFT
_GOLDEN = mixing.GOLDEN
_FIRST, _SECOND = mixing.MULTIPLIERS
_SHIFTS = mixing.SHIFTS
_ONE = np.uint64(1)

# Memory that is asked for before its turn, at most, and what comes at once.
_ASKED_BYTES, _LINE_BYTES = 8_192, 64

# NumPy's rules for division: no loop raises.
_loop = numba.njit(nogil=True, error_model="numpy")
_inlined = numba.njit(nogil=True, error_model="numpy", inline="always")


@_loop
def first_fit(order, length, capacity, max_items, max_bins, room, items, out):
  """`packing.first_fit_decreasing`: a tree of the room of bins.

  Args:
    order: Items, longest first.
    length: Of each item.
    capacity: Of a bin.
    max_items: Of a bin.
    max_bins: At most so many.
    room: To be written: twice the next power of two.
    items: To be written, of `max_bins`.
    out: The bin of each item; -1 where none has room.

  Returns:
    The bins that were opened.
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


@_inlined
def _hashed(value):
  value = (value ^ (value >> _SHIFTS[0])) * _FIRST
  value = (value ^ (value >> _SHIFTS[1])) * _SECOND
  return value ^ (value >> _SHIFTS[2])


@_inlined
def _round(value, key):
  value = (value + key) * _MULTIPLIER
  value = (value ^ (value >> _SHIFT)) * _MULTIPLIER
  return value ^ (value >> _SHIFT)


# A half of few bits has few values: what a round makes of each is then looked
# up, where so many times as many values are asked for.
_TABLES_PAY = 4


@_loop
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


@_loop
def _looked_up(
  value, domain, keys, tables, low_bits, low_mask, high_mask, backward, out
):
  # One table after the other, of so many values.
  size = low_mask + _ONE
  for step in range(_ROUNDS):
    r = _ROUNDS - 1 - step if backward else step
    mask = low_mask if r % 2 else high_mask
    for half in range(size):
      tables[np.uint64(step) * size + half] = _round(half, keys[r]) & mask
  for i in range(len(value)):
    found = value[i]
    while True:
      low, high = found & low_mask, found >> low_bits
      for step in range(0, _ROUNDS, 2):
        first = np.uint64(step) * size
        if backward:
          low ^= np.uint64(tables[first + high])
          high ^= np.uint64(tables[first + size + low])
        else:
          high ^= np.uint64(tables[first + low])
          low ^= np.uint64(tables[first + size + high])
      found = (high << low_bits) | low
      if found < domain:
        break
    out[i] = found


@_loop
def feistel(value, size, key, backward, keys, tables, out):
  """`permutation.permute`, or its inverse, of domains above 32.

  Args:
    value: What is sent on.
    size: Of the domains, one of all values or one for each.
    key: Likewise.
    backward: Whether it is the inverse.
    keys: To be written, one for each round.
    tables: To be written: for each round a quarter of the values.
    out: Where each goes.
  """
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
        tables,
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
  return 0


def _aspointer(typing: Any, address: Any) -> Any:
  """Takes a number for an address; the caller knows that memory is there."""

  def convert(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    kind = context.get_value_type(signature.return_type)
    return builder.inttoptr(args[0], kind)

  return numba.types.voidptr(address), convert


def _as_loaded(typing: Any, address: Any) -> Any:
  """Returns the int64 at an address."""

  def load(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    kind = context.get_value_type(signature.return_type).as_pointer()
    return builder.load(builder.inttoptr(args[0], kind))

  return numba.types.int64(address), load


def _as_prefetched(typing: Any, address: Any) -> Any:
  """Asks memory for what is at an address, and does not wait."""

  def prefetch(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
    ask = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
    # To be read, kept in all caches, and data.
    how = [word(0), word(3), word(1)]
    builder.call(ask, [builder.inttoptr(args[0], byte), *how])
    return context.get_dummy_value()

  return numba.types.none(address), prefetch


loaded: Any = numba.extending.intrinsic(_as_loaded)
prefetched: Any = numba.extending.intrinsic(_as_prefetched)
pointer: Any = numba.extending.intrinsic(_aspointer)
array: Any = numba.carray  # pyright: ignore[reportPrivateImportUsage]


@_inlined
def _widened(own, into):
  # By unsigned numbers: signed ones might count from the end.
  for j in range(np.uint64(len(own))):
    into[j] = own[j]


@_inlined
def _asked_for(where, first, size):
  """Asks memory for bytes of a chunk, which is not to be read if it is at 0.

  Spans lie anywhere, and each is waited for: asked for while the one before it
  is copied, they take a third less.
  """
  if where:
    first += where
    for line in range(first, first + min(size, _ASKED_BYTES), _LINE_BYTES):
      prefetched(line)


@_inlined
def _copied(where, within, itemsize, into):
  """Copies a part of the chunk at an address."""
  source, part = pointer(where + within * itemsize), len(into)
  if itemsize == 2:
    _widened(array(source, part, np.uint16), into)
  elif itemsize == 4:
    _widened(array(source, part, np.uint32), into)
  else:
    _widened(array(source, part, np.uint8), into)


@_loop
def copy_spans(
  address, itemsize, chunk_size, size, starts, lengths, out, positions
):
  """`MappedArray.copy_spans`.

  Args:
    address: Where each chunk lies in memory; 0 is not to be read.
    itemsize: Bytes of an element: 1, 2 or 4.
    chunk_size: Elements of a chunk.
    size: Elements of the array.
    starts: Spans, as `copy_tokens` has them.
    lengths: Their tokens.
    out: Tokens go here.
    positions: Where each span goes.

  Returns:
    The parts of chunks that were copied; -1 if one is not to be read, -2 if
    a span is out of bounds.
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
    if i + 1 < len(starts) and lengths[i + 1]:
      chunk = starts[i + 1] // chunk_size
      within = starts[i + 1] - chunk * chunk_size
      part = min(lengths[i + 1], chunk_size - within)
      _asked_for(address[chunk], within * itemsize, part * itemsize)
    left, to = lengths[i], positions[i]
    chunk = starts[i] // chunk_size
    within = starts[i] - chunk * chunk_size
    while left > 0:
      part = min(left, chunk_size - within)
      if address[chunk] == 0:
        return -1
      _copied(address[chunk], within, itemsize, out[to : to + part])
      parts += 1
      to += part
      left -= part
      within = 0
      chunk += 1
  return parts


@_loop
def copy_rows(
  row, column, offset, length, bos, eos, source, seq_len, stores, counts, out
):
  """`row_layout.copy_rows`: what `copies` tells, of all sources at once.

  Args:
    row: Of each span, ascending.
    column: Likewise.
    offset: Likewise.
    length: Likewise.
    bos: Likewise; empty where none has one.
    eos: Likewise.
    source: Likewise.
    seq_len: Positions of a row.
    stores: Of each source, or of all: where the addresses of its chunks lie,
      bytes of an element, elements of a chunk and of the array, and whether
      copies that follow each other are one.
    counts: To be written, likewise: the copies, and their parts of chunks.
    out: Tokens of all rows, to be written.

  Returns:
    0; -1 if a chunk is not to be read, or a span is out of bounds.
  """
  counts[:] = 0
  one = len(stores) == 1
  i = 0
  while i < len(row):
    number = 0 if one else source[i]
    own = stores[number]
    itemsize, chunk_size = own[1], own[2]
    start, left = offset[i], length[i]
    to = row[i] * seq_len + column[i]
    if len(bos) and bos[i]:
      to += 1
      left -= 1
    if len(eos) and eos[i]:
      left -= 1
    i += 1
    while i < len(row) and own[4] and (one or source[i] == number):
      after = row[i] * seq_len + column[i]
      more = length[i]
      if len(bos) and bos[i]:
        after += 1
        more -= 1
      if len(eos) and eos[i]:
        more -= 1
      if offset[i] != start + left or after != to + left:
        break
      left += more
      i += 1
    if start < 0 or left < 0 or start > own[3] - left:
      return -1
    if to < 0 or to > len(out) - left:
      return -1
    if i < len(row):
      then = stores[0 if one else source[i]]
      if 0 <= offset[i] < then[3]:
        chunk = offset[i] // then[2]
        within = offset[i] - chunk * then[2]
        part = min(length[i], then[2] - within)
        where = loaded(then[0] + 8 * chunk)
        _asked_for(where, within * then[1], part * then[1])
    counts[number, 0] += 1
    chunk = start // chunk_size
    within = start - chunk * chunk_size
    while left > 0:
      part = min(left, chunk_size - within)
      where = loaded(own[0] + 8 * chunk)
      if where == 0:
        return -1
      _copied(where, within, itemsize, out[to : to + part])
      counts[number, 1] += 1
      to += part
      left -= part
      within = 0
      chunk += 1
  return 0


@_inlined
def _filled(out, first, last, value):
  # By unsigned numbers, which LLVM makes vectors of: 3 times the speed.
  for j in range(np.uint64(first), np.uint64(last)):
    out[j] = value


@_inlined
def _counted(out, first, last, origin):
  for j in range(np.uint64(first), np.uint64(last)):
    out[j] = np.int32(j - np.uint64(origin))


@_loop
def placed(
  row, column, length, segment, gone, bos, eos, trailing, by_segment, ids,
  tokens, segment_ids, positions, loss_mask,
):  # fmt: skip
  """`row_layout.placed`: a row after the other, in one pass.

  Tokens of the store are not written, nor is what they are copied over.

  Args:
    row: Of each span, ascending.
    column: Likewise.
    length: Likewise.
    segment: Likewise.
    gone: Likewise; empty where nothing is.
    bos: Likewise; empty where none is added.
    eos: Likewise.
    trailing: Whether filler right of the last span is of its segment.
    by_segment: Whether positions begin with segments.
    ids: Of filler, of what stands before a document, of BOS and of EOS.
    tokens: To be written.
    segment_ids: To be written.
    positions: To be written.
    loss_mask: To be written.
  """
  num_rows, seq_len = segment_ids.shape
  filler, before, bos_id, eos_id = ids[0], ids[1], ids[2], ids[3]
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
      _filled(grid, at, begin, filler)
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
      live = len(gone) == 0 or not gone[i]
      if not live:
        _filled(grid, begin, end, filler)
      else:
        if len(bos) and bos[i]:
          grid[begin] = bos_id
        if len(eos) and eos[i]:
          grid[end - 1] = eos_id
      _filled(grid, end, at, filler)
      _filled(segments, begin, at, segment[i] if live else 0)
      if by_segment:
        _counted(places, begin, at, origin)
      _filled(mask, begin, end - 1, live)
      _filled(mask, end - 1, at, False)
      i += 1
    _filled(grid, at, seq_len, filler)
    _filled(segments, at, seq_len, 0)
    _filled(mask, at, seq_len, False)
    if by_segment:
      _counted(places, at, seq_len, 0)
  return 0


@_inlined
def _set_bits(row, first, begin, end):
  """Sets bits begin .. end - 1 of words from `first` on, 16 a word."""
  word, last = first + (begin >> 4), first + (end >> 4)
  low = (1 << (begin & 15)) - 1
  high = (1 << (end & 15)) - 1
  if word == last:
    row[word] |= np.uint16(high & ~low)
    return
  row[word] |= np.uint16(0xFFFF & ~low)
  for i in range(word + 1, last):
    row[i] = np.uint16(0xFFFF)
  if high:
    row[last] |= np.uint16(high)


@_loop
def wire_patterns(
  row,
  column,
  length,
  segment,
  gone,
  trailing,
  seq_len,
  words,
  inside,
  real,
  out,
):
  """`wire_rows.Writer.patterns`: bits of spans, written into rows.

  Args:
    row: Of each span.
    column: Likewise.
    length: Likewise.
    segment: Likewise.
    gone: Likewise, or of no length where none is gone.
    trailing: Whether filler after a row's last span is of its segment.
    seq_len: Positions of a row.
    words: Of a kind of bits; the kinds follow each other.
    inside: Which kind marks segments that are gone too, or -1.
    real: Which kind marks tokens, or -1.
    out: Rows, whose first words are written.

  Returns:
    The first span whose segment is not the next one of its row, or -1.
  """
  kinds = 3 + (inside >= 0) + (real >= 0)
  out[:, : kinds * words] = 0
  number = 0
  for i in range(len(row)):
    own, begin = out[row[i]], column[i]
    end = begin + length[i]
    first = i == 0 or row[i - 1] != row[i]
    if first:
      number = 0
    if first or segment[i] != segment[i - 1]:
      number += 1
      own[begin >> 4] |= np.uint16(1 << (begin & 15))
    if number != segment[i]:
      return i
    segment_end = end
    if trailing and (i + 1 == len(row) or row[i + 1] != row[i]):
      segment_end = seq_len
    if inside >= 0:
      _set_bits(own, inside * words, begin, segment_end)
    if len(gone) and gone[i]:
      continue
    _set_bits(own, words, begin, segment_end)
    _set_bits(own, 2 * words, begin, end - 1)
    if real >= 0:
      _set_bits(own, real * words, begin, end)
  return -1


@_loop
def span_sums(
  row, document, start, length, column, segment, source, bos, eos, gone,
  steps, rows, counts, names, keys, out,
):  # fmt: skip
  """`order_sums.of_spans`.

  Args:
    row: Of each span.
    document: Likewise.
    start: Likewise.
    length: Likewise.
    column: Likewise.
    segment: Likewise.
    source: Likewise.
    bos: Likewise; empty where none has one.
    eos: Likewise.
    gone: Likewise.
    steps: The steps.
    rows: The number in its step of each row.
    counts: Which rows of a step count; empty is all.
    names: Of each source, the high hash before the low one.
    keys: Of each field, likewise.
    out: High and low half of the sum of each step, to be written.

  Returns:
    0.
  """
  size = len(rows) // len(steps)
  out[:] = 0
  for i in range(len(row)):
    r = row[i]
    step = r // size
    if len(counts) and not counts[r - step * size]:
      continue
    flags = np.int64(segment[i]) << 3
    if len(bos) and bos[i]:
      flags |= 1
    if len(eos) and eos[i]:
      flags |= 2
    if len(gone) and gone[i]:
      flags |= 4
    name = source[i] if names.shape[1] > 1 else 0
    total = out[step]
    for lane in range(2):
      key = keys[lane]
      value = (
        np.uint64(steps[step]) * key[0]
        + np.uint64(rows[r]) * key[1]
        + np.uint64(document[i]) * key[2]
        + np.uint64(start[i]) * key[3]
        + np.uint64(length[i]) * key[4]
        + np.uint64(column[i]) * key[5]
        + np.uint64(flags) * key[6]
        + names[lane, name]
      )
      value = _hashed(value)
      total[lane] += value
      if lane and total[1] < value:
        total[0] += _ONE  # What did not fit the low half.
  return 0


@_loop
def _source_of(begins, i):
  """Returns the last source that begins at a row or before it."""
  low, high = 0, len(begins)
  while high - low > 1:
    middle = (low + high) // 2
    if begins[middle] <= i:
      low = middle
    else:
      high = middle
  return low


@_loop
def _by_ties(
  begun, begins, tie_keys, rows, run_rows, flat, other, ties, first, last
):
  """Sorts rows first .. last - 1 of `flat` by their ties, and then by place."""
  for k in range(first, last):
    i = flat[k]
    of = _source_of(begins, i)
    run = begun[i]
    row = run_rows[of] if run == begins[of] else rows[of] + run - begins[of]
    step = (np.uint64(row) + _ONE) * _GOLDEN
    ties[i] = _hashed(tie_keys[of] + _hashed(step))
  # Merged from ones on: many rows may be alike.
  width = 1
  while width < last - first:
    for low in range(first, last, 2 * width):
      a, middle = low, min(low + width, last)
      b, high = middle, min(middle + width, last)
      to = low
      while a < middle or b < high:
        right = a == middle
        if not right and b < high:
          x, y = flat[a], flat[b]
          right = ties[y] < ties[x] or (ties[y] == ties[x] and y < x)
        if right:
          other[to] = flat[b]
          b += 1
        else:
          other[to] = flat[a]
          a += 1
        to += 1
    for k in range(first, last):
      flat[k] = other[k]
    width *= 2


@_loop
def merge_levels(
  used, begins, scales, places, error, bounds, tie_keys, rows, run_rows,
  sources, wanted, work, ties, edges, out_sources, out_rows,
):  # fmt: skip
  """`level_order.first_rows`, where ties tell nearly equal keys apart.

  Args:
    used: Units before each row, source after source.
    begins: Where each source begins.
    scales: How keys are made of units; see `_key_scales`.
    places: Likewise.
    error: Keys that are closer may be of equal levels.
    bounds: Of each source, whether its last row bounds the others.
    tie_keys: Of each source.
    rows: The first row of each.
    run_rows: The first row with as many units before it.
    sources: The number of each.
    wanted: Rows at most.
    work: To be written: five times the rows.
    ties: To be written: one for each row.
    edges: To be written: one more than sources.
    out_sources: The source of each row in order.
    out_rows: Its row.

  Returns:
    How many rows come first.
  """
  size, runs = len(used), len(begins)
  # Keys in order, the rows that have them, and the same once more.
  keys, flat, other_keys, other_flat = work[0], work[1], work[2], work[3]
  # The first row with as many units before it.
  begun = work[4]
  for s in range(runs):
    edges[s] = begins[s]
    last = begins[s + 1] if s + 1 < runs else size
    for i in range(begins[s], last):
      key = scales[0, s] + used[i] * scales[1, s]
      keys[i] = key + ((used[i] * scales[2, s]) >> places)
      flat[i] = i
      alike = i > begins[s] and used[i] == used[i - 1]
      begun[i] = begun[i - 1] if alike else i
  edges[runs] = size
  # Sources side by side are merged, two and two.
  while runs > 1:
    for pair in range(0, runs, 2):
      a, middle = edges[pair], edges[pair + 1]
      last = edges[pair + 2] if pair + 1 < runs else middle
      b, to = middle, a
      while a < middle and b < last:
        if keys[b] < keys[a]:
          other_keys[to], other_flat[to] = keys[b], flat[b]
          b += 1
        else:
          other_keys[to], other_flat[to] = keys[a], flat[a]
          a += 1
        to += 1
      while a < middle:
        other_keys[to], other_flat[to] = keys[a], flat[a]
        a += 1
        to += 1
      while b < last:
        other_keys[to], other_flat[to] = keys[b], flat[b]
        b += 1
        to += 1
      edges[pair // 2] = edges[pair]
    runs = (runs + 1) // 2
    edges[runs] = size
    keys, other_keys = other_keys, keys
    flat, other_flat = other_flat, flat
  count = first = 0
  while first < size and count < wanted:
    last = first + 1
    while last < size and keys[last] - keys[last - 1] < error:
      last += 1
    if last > first + 1:
      _by_ties(
        begun, begins, tie_keys, rows, run_rows, flat, other_flat, ties,
        first, last,
      )  # fmt: skip
    for k in range(first, last):
      i = flat[k]
      of = _source_of(begins, i)
      end = begins[of + 1] if of + 1 < len(begins) else size
      if count == wanted or (bounds[of] and i + 1 == end):
        return count
      out_sources[count] = sources[of]
      out_rows[count] = rows[of] + i - begins[of]
      count += 1
    first = last
  return count
