"""What one reader will fetch of each store: chunks, requests and bytes.

Chunks follow from plans, so nothing is read. A reader begins cold, plans some
thousand rows at once, and keeps as many chunks as its cache holds, those used
last; neighbours that are missing are one request, as of a store in a bucket.
Stores without chunks count as if they had those of a new one.

Runs of more rows than are looked at in seconds are sampled: some stretches of
the source's order, each with what was read just before it.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterator
import dataclasses

import numpy as np

from chomp_data import pipeline
from chomp_data import stores
from chomp_data.ops import spans as spans_lib
from chomp_data.plans import batches_plan
from chomp_data.plans import rows_plan
from chomp_data.sources import row_source
from chomp_data.stores import span_reads

# Rows and steps planned together; as many are fetched at once.
_GROUP_ROWS = 4_096
_READ_ROWS = 64

# Up to so many rows, or steps in buckets, all are looked at.
_MOST_ROWS = 2**19
_MOST_STEPS = 4_096

# Otherwise so many stretches, of whole windows and of so many rows at least.
_STRETCHES = 16
_STRETCH_ROWS = 4 * _GROUP_ROWS
_STRETCH_STEPS = _MOST_STEPS // _STRETCHES // 2
_MOST_WINDOW = 2**17

# Neighbouring chunks are one request up to this size, as of a bucket.
_JOINED_BYTES = 8 * 2**20

# Returns the spans of units first .. last - 1, rows or steps, of one source.
_Plan = Callable[[int, int], spans_lib.Spans]


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
  plan = pipe._plan
  if isinstance(plan, rows_plan.RowsPlan):
    first, last = (plan.places(own) for own in (0, steps))
    return {
      name: _of_rows(source, first[name].samples, last[name].samples)
      for name, source in plan.ordered.items()
    }
  if isinstance(plan, batches_plan.BatchesPlan) and pipe.holds_text:
    return _of_steps(pipe, steps)
  return {}


class _Reader:
  """The cache of one reader of a store, and what it missed."""

  def __init__(self, store: stores.Store):
    self.store = store
    each = store.chunk_tokens * store.token_dtype.itemsize
    self.room: int = max(1, store.cache_bytes // each)
    self.num_chunks: int = -(-store.num_tokens // store.chunk_tokens)
    self._joined = max(1, _JOINED_BYTES // each)
    self._held: collections.OrderedDict[int, None] = collections.OrderedDict()
    self.chunks = self.requests = 0

  def read(self, spans: spans_lib.Spans) -> None:
    """Takes spans that are planned, and fetched, together."""
    wanted = span_reads.chunks_of_spans(
      spans.offset, spans.stored()[0], self.store.chunk_tokens
    )
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
    self.chunks += len(missing)
    if len(missing):
      ends = np.append(np.flatnonzero(np.diff(missing) != 1) + 1, len(missing))
      runs = np.diff(ends, prepend=0)
      self.requests += int((-(-runs // self._joined)).sum())

  def told(self, how: str, looked_at: float, times: float = 1) -> Fetched:
    """Returns what was missed, `times` as much."""
    chunks = round(self.chunks * times)
    return Fetched(
      store=str(self.store.path),
      how=how,
      looked_at=looked_at,
      chunks=chunks,
      requests=round(self.requests * times),
      bytes=round(chunks * self.store.stored_bytes / max(self.num_chunks, 1)),
    )


def _of_rows(source: row_source.RowSource, first: int, last: int) -> Fetched:
  """Returns what rows first .. last - 1 of a source's order fetch."""
  reader = _Reader(source.store)
  if last - first <= _MOST_ROWS:
    for low, high in _groups(first, last):
      reader.read(source.plan(np.arange(low, high)))
    return reader.told("counted", 1.0)
  counted = chunks = requests = 0
  looked_at = 0
  stride = (last - first) // _STRETCHES
  for begin in range(first, last - stride + 1, stride):
    begin, warm, end = _stretch(source, begin, last, reader.room)
    own = _Reader(source.store)
    for low, high in _groups(warm, begin):
      own.read(source.plan(np.arange(low, high)))
    own.chunks = own.requests = 0
    for low, high in _groups(begin, end):
      own.read(source.plan(np.arange(low, high)))
    chunks, requests = chunks + own.chunks, requests + own.requests
    counted += end - begin
    looked_at += end - warm
  reader.chunks, reader.requests = chunks, requests
  share = looked_at / (last - first)
  found = reader.told("sampled", share, (last - first) / counted)
  if reader.room >= reader.num_chunks and found.chunks > reader.num_chunks:
    # The cache holds all of it: nothing is fetched twice.
    reader.requests = round(
      reader.requests * reader.num_chunks / max(reader.chunks, 1)
    )
    reader.chunks = reader.num_chunks
    found = reader.told("sampled", share)
  return found


def _stretch(
  source: row_source.RowSource, row: int, last: int, room: int
) -> tuple[int, int, int]:
  """Returns the first row of a stretch, what is read before it, and its end."""
  begin, end = source.read_group(row)
  if end - begin > _MOST_WINDOW:
    begin, end = row, row + _STRETCH_ROWS
  while end - begin < _STRETCH_ROWS and end < last:
    end = max(source.read_group(end)[1], end + 1)
  before = min(max(end - begin, room, _GROUP_ROWS), _MOST_WINDOW)
  return begin, max(0, begin - before), min(end, last)


def _groups(first: int, last: int) -> Iterator[tuple[int, int]]:
  for low in range(first, last, _GROUP_ROWS):
    yield low, min(low + _GROUP_ROWS, last)


def _of_steps(pipe: pipeline.Pipeline, steps: int) -> dict[str, Fetched]:
  """Returns what steps in buckets fetch."""
  names = pipe.source_names
  found = {name: [0, 0, 0] for name in names}

  def read(first: int, warm: int, end: int) -> None:
    readers = {name: _Reader(pipe.sources[name].store) for name in names}
    for step in range(warm, end):
      if step == first:
        for own in readers.values():
          own.chunks = own.requests = 0
      spans = pipe.plan(step)
      name = pipe.bucket_of(step)[0]
      assert name is not None
      readers[name].read(spans)
      found[name][2] += spans.num_rows * (step >= first)
    for name, own in readers.items():
      found[name][0] += own.chunks
      found[name][1] += own.requests

  how = "counted"
  if steps <= _MOST_STEPS:
    read(0, 0, steps)
  else:
    how = "sampled"
    stride = steps // _STRETCHES
    for first in range(0, steps - stride + 1, stride):
      read(first, max(0, first - _STRETCH_STEPS), first + _STRETCH_STEPS)
  out = {}
  taken = pipe.accounts.rows(steps)
  for name, (chunks, requests, rows) in found.items():
    reader = _Reader(pipe.sources[name].store)
    reader.chunks, reader.requests = chunks, requests
    times = 1.0 if how == "counted" else taken[name] / max(rows, 1)
    out[name] = reader.told(how, min(rows / max(taken[name], 1), 1.0), times)
  return out
