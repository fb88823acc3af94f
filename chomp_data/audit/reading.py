# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What one reader will fetch of each store: chunks, requests and bytes.

Chunks follow from plans, so nothing is read. A reader begins cold, plans some
thousand rows at once, and keeps as many chunks as its cache holds, those used
last: sources without a cache of a set size share the budget of the process
evenly. Neighbours that are missing are one request, as of a store in a bucket.
Stores without chunks count as if they had those of a new one.

Runs of more rows than are looked at in seconds are sampled: some stretches of
the source's order, each with what was read just before it.
"""

import collections
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

import numpy as np

from chomp_data import pipeline
from chomp_data import stores
from chomp_data.index import intervals
from chomp_data.phased import source_trail
from chomp_data.plans import batches_plan
from chomp_data.plans import consumption
from chomp_data.plans import rows_plan
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import row_source
from chomp_data.stores import base
from chomp_data.stores import concatenated
from chomp_data.stores import span_reads

# Rows and steps planned together; as many are fetched at once.
GROUP_ROWS = 4_096
_READ_ROWS = 64

# Up to so many rows, or steps in buckets, all are looked at.
MAX_ROWS = 2**19
_MOST_STEPS = 4_096

# Otherwise so many stretches, of whole windows and of so many rows at least.
_STRETCHES = 16
STRETCH_ROWS = 4 * GROUP_ROWS
_STRETCH_STEPS = _MOST_STEPS // _STRETCHES // 2
MAX_WINDOW = 2**17

# Neighbouring chunks are one request up to this size, as of a bucket.
_JOINED_BYTES = 8 * 2**20


@dataclasses.dataclass(frozen=True)
class Fetched:
  """What one reader fetches of a source's store.

  Attributes:
    store: Where it is.
    how: 'counted' of all rows, or 'sampled'.
    looked_at: The share of rows that were planned for it.
    chunks: Chunks, those that are fetched again included.
    requests: What a bucket would be asked for.
    bytes: Of these chunks, as they are stored.
  """

  store: str
  how: str
  looked_at: float
  chunks: int
  requests: int
  bytes: int


def fetched(pipe: pipeline.Pipeline, steps: int) -> dict[str, Fetched]:
  """Returns what one reader fetches for the first steps, by source of text.

  Args:
    pipe: The run.
    steps: How many, at most its own.
  """
  plan = pipe.run_plan
  if isinstance(plan, rows_plan.RowsPlan):
    first, last = (consumption.positions(plan, step) for step in (0, steps))
    cache_bytes = _cache_bytes(plan.ordered)
    return {
      name: _of_rows(
        source, cache_bytes[name], first[name].consumed, last[name]
      )
      for name, source in plan.ordered.items()
    }
  if isinstance(plan, batches_plan.BatchesPlan) and pipe.sources:
    return _of_steps(pipe, steps)
  return {}


def _cache_bytes(sources: Mapping[str, row_source.RowSource]) -> dict[str, int]:
  """Returns the bytes of decoded tokens that a reader keeps of each source."""
  stores_of_sources = [source.store for source in sources.values()]
  return dict(zip(sources, base.cache_bytes(stores_of_sources), strict=True))


class _Reader:
  """The cache of one reader of a store, and what it missed."""

  def __init__(self, store: stores.Store, cache_bytes: int):
    self.store = store
    each = store.opened.chunk_tokens * store.opened.token_dtype.itemsize
    self.room: int = max(1, cache_bytes // each)
    members = [store]
    if isinstance(store, concatenated.ConcatenatedStore):
      members = list(store.members)
    counts = [
      -(-member.num_tokens // member.opened.chunk_tokens) for member in members
    ]
    self.num_chunks: int = sum(counts)
    self._sizes = [member.opened.chunk_tokens for member in members]
    self._bounds = np.cumsum([0, *(member.num_tokens for member in members)])
    # Chunks of two stores are no neighbours: a number between is left out.
    self._first = np.cumsum([0, *(count + 1 for count in counts)])[:-1]
    self._chunk_bytes = np.asarray(
      [
        member.opened.stored_bytes / max(count, 1)
        for member, count in zip(members, counts, strict=True)
      ]
    )
    self._joined = max(1, _JOINED_BYTES // each)
    self._held: collections.OrderedDict[int, None] = collections.OrderedDict()
    # Chunks, requests and bytes.
    self.missed: np.ndarray = np.zeros(3)

  def _chunks_of(self, spans: spans_lib.Spans) -> np.ndarray:
    """Returns the chunks of each span, int64[P], repeated."""
    starts, lengths = spans.offset, spans.stored()[0]
    if len(self._sizes) == 1:
      size = self._sizes[0]
      return span_reads.split_spans(starts, lengths, starts, size)[0]
    part, first, length, place = span_reads.split_at(
      self._bounds, starts, lengths, np.arange(len(starts))
    )
    chunks, places = [], []
    for member, size in enumerate(self._sizes):
      pick = part == member
      begin, stop = first[pick], length[pick]
      numbers = span_reads.split_spans(begin, stop, begin, size)[0]
      chunks.append(numbers + self._first[member])
      each = (begin + stop - 1) // size - begin // size + 1
      places.append(np.repeat(place[pick], each))
    order = np.argsort(np.concatenate(places), kind="stable")
    return np.concatenate(chunks)[order]

  def read(self, spans: spans_lib.Spans) -> None:
    """Takes spans that are planned, and fetched, together."""
    wanted = self._chunks_of(spans)
    # In the order of their last use, which decides what goes first.
    chunks, last = np.unique(wanted[::-1], return_index=True)
    if len(chunks) > self.room and spans.num_rows > _READ_ROWS:
      # More than there is room for comes part by part.
      half = spans.num_rows // 2
      self.read(spans.rows(0, half))
      self.read(spans.rows(half, spans.num_rows))
      return
    missing = np.asarray([c for c in chunks.tolist() if c not in self._held])
    for chunk in chunks[np.argsort(-last)].tolist():
      self._held[chunk] = None
      self._held.move_to_end(chunk)
    while len(self._held) > self.room:
      self._held.popitem(last=False)
    if len(missing):
      member = np.searchsorted(self._first, missing, "right") - 1
      size = self._chunk_bytes[member].sum()
      ends = np.append(np.flatnonzero(np.diff(missing) != 1) + 1, len(missing))
      runs = np.diff(ends, prepend=0)
      requests = (-(-runs // self._joined)).sum()
      self.missed += (len(missing), requests, size)

  def fetched(self, how: str, looked_at: float, missed: np.ndarray) -> Fetched:
    """Returns how much was fetched from the store."""
    chunks, requests, size = missed.round().astype(np.int64).tolist()
    return Fetched(
      str(self.store.path), how, looked_at, chunks, requests, bytes=size
    )


def _of_rows(
  source: source_trail.Ordered,
  cache_bytes: int,
  first: int,
  position: consumption.Position,
) -> Fetched:
  """Returns what rows from `first` to a place in a source's order fetch."""
  reader = _Reader(source.store, cache_bytes)
  last, skipped = position.consumed, position.skipped
  handed_out = position.delivered - first

  def read(reader: _Reader, low: int, high: int) -> int:
    """Reads rows, and returns how many."""
    count = 0
    for rows in _groups(low, high, skipped):
      reader.read(source.plan(rows))
      count += len(rows)
    return count

  if handed_out <= MAX_ROWS:
    read(reader, first, last)
    return reader.fetched("counted", 1.0, reader.missed)
  missed, counted, looked_at = np.zeros(3), 0, 0
  stride = handed_out // _STRETCHES
  for number in range(0, handed_out - stride + 1, stride):
    begin = _row_of(first + number, skipped)
    begin, warm, end = _stretch(source, begin, last, reader.room)
    sample = _Reader(source.store, cache_bytes)
    looked_at += read(sample, warm, begin)
    before = sample.missed.copy()
    counted += read(sample, begin, end)
    missed += sample.missed - before
  looked_at += counted
  times = handed_out / counted
  if reader.room >= reader.num_chunks and missed[0] * times > reader.num_chunks:
    # The cache holds all of it: nothing is fetched twice.
    times = reader.num_chunks / max(missed[0], 1)
  return reader.fetched("sampled", looked_at / handed_out, missed * times)


def _row_of(number: int, skipped: Sequence[tuple[int, int]]) -> int:
  """Returns which row of a source is the one of a number handed out."""
  for begin, end in skipped:
    if begin <= number:
      number += end - begin
  return number


def _stretch(
  source: source_trail.Ordered, row: int, last: int, room: int
) -> tuple[int, int, int]:
  """Returns the first row of a stretch, what is read before it, and its end."""
  begin, end = source.read_group(row)
  if end - begin > MAX_WINDOW:
    begin, end = row, row + STRETCH_ROWS
  while end - begin < STRETCH_ROWS and end < last:
    end = max(source.read_group(end)[1], end + 1)
  before = min(max(end - begin, room, GROUP_ROWS), MAX_WINDOW)
  return begin, max(0, begin - before), min(end, last)


def _groups(
  first: int, last: int, skipped: Sequence[tuple[int, int]]
) -> Iterator[np.ndarray]:
  """Yields rows first .. last - 1 without those skipped, some at a time."""
  whole = np.asarray([first]), np.asarray([last])
  left_out = np.asarray(skipped, np.int64).reshape(-1, 2)
  ranges = intervals.difference(whole, (left_out[:, 0], left_out[:, 1]))
  for begin, stop in np.stack(ranges, axis=1).tolist():
    for low in range(begin, stop, GROUP_ROWS):
      yield np.arange(low, min(low + GROUP_ROWS, stop))


def _of_steps(pipe: pipeline.Pipeline, steps: int) -> dict[str, Fetched]:
  """Returns what steps in buckets fetch."""
  names = pipe.source_names
  cache_bytes = _cache_bytes(pipe.sources)

  def cold_readers() -> dict[str, _Reader]:
    return {
      name: _Reader(pipe.sources[name].store, cache_bytes[name])
      for name in names
    }

  missed = {name: np.zeros(3) for name in names}
  rows = dict.fromkeys(names, 0)

  def read(first: int, warm: int, end: int) -> None:
    readers = cold_readers()
    before = dict.fromkeys(names, np.zeros(3))
    for step in range(warm, end):
      if step == first:
        before = {
          name: reader.missed.copy() for name, reader in readers.items()
        }
      spans = pipe.plan(step)
      name = pipe.bucket_of(step)[0]
      assert name is not None
      readers[name].read(spans)
      rows[name] += spans.num_rows * (step >= first)
    for name, reader in readers.items():
      missed[name] += reader.missed - before[name]

  how = "counted" if steps <= _MOST_STEPS else "sampled"
  if how == "counted":
    read(0, 0, steps)
  else:
    stride = steps // _STRETCHES
    for first in range(0, steps - stride + 1, stride):
      read(first, max(0, first - _STRETCH_STEPS), first + _STRETCH_STEPS)
  out = {}
  taken = pipe.accounts.rows(steps)
  for name, reader in cold_readers().items():
    times = 1.0 if how == "counted" else taken[name] / max(rows[name], 1)
    share = min(rows[name] / max(taken[name], 1), 1.0)
    out[name] = reader.fetched(how, share, missed[name] * times)
  return out
