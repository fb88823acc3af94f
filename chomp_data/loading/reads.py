# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What reading costs, by source: examples, ranges, chunks and bytes.

Counted where batches are read; workers hand their counts to their parent.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

import numpy as np

from chomp_data import stores
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import row_source


@dataclasses.dataclass
class SourceReads:
  """What was read of one source.

  Attributes:
    examples: Rows read.
    planned_examples: Rows of the groups of batches that were planned, whose
      chunks were fetched; a run that stops early has not read all of them.
    unique_examples: Distinct rows of these groups.
    spans: Spans of documents in them.
    logical_reads: Copies from the store: of spans, and of tokens after a row.
    coalesced_ranges: Ranges of the store that those make when the spans of a
      group of batches are sorted and merged.
    chunks_fetched: Chunks read from disk, or touched for the first time.
    bytes_fetched: Bytes of these chunks, decoded.
    cache_hits: Requests for chunks that were in memory already.
    requests: What was asked of an object store, all tries.
    retries: Of these, tries after one that failed, or whose answer was corrupt.
    corrupt: Answers that were too short, too long, or not what was written.
    bytes_transferred: What came from there, as it is stored.
  """

  examples: int = 0
  planned_examples: int = 0
  unique_examples: int = 0
  spans: int = 0
  logical_reads: int = 0
  coalesced_ranges: int = 0
  chunks_fetched: int = 0
  bytes_fetched: int = 0
  cache_hits: int = 0
  requests: int = 0
  retries: int = 0
  corrupt: int = 0
  bytes_transferred: int = 0

  @property
  def reads_per_example(self) -> float:
    """Ranges for each row that was planned."""
    return self.coalesced_ranges / max(self.planned_examples, 1)

  def line(self) -> str:
    """Returns the counts in one line, for logs."""
    counts = [f"{k}={v}" for k, v in dataclasses.asdict(self).items()]
    return " ".join(
      [*counts, f"reads_per_example={self.reads_per_example:.5g}"]
    )


_FIELDS = [field.name for field in dataclasses.fields(SourceReads)]


class Reads:
  """Counts what one reader reads, by source."""

  def __init__(self, sources: Mapping[str, row_source.RowSource]):
    """Counts from here on.

    Args:
      sources: By name, in the order of `source_id`.
    """
    self._stores = {name: source.store for name, source in sources.items()}
    self._rows = {name: [0, 0, 0, 0] for name in sources}
    self._before: dict[str, stores.Counters] = {}

  def add_batch(self, spans: spans_lib.Spans | None) -> None:
    """Counts the rows of a batch that is read; None are arrays."""
    if spans is None:
      return
    self._begin()
    if len(self._rows) == 1:
      # A row of this source has a span; filler rows have none.
      (counts,) = self._rows.values()
      counts[0] += int(np.count_nonzero(np.diff(spans.row))) + bool(len(spans))
      counts[2] += len(spans)
      return
    source = spans.row_source()
    size = len(self._rows)
    rows = np.bincount(source[source >= 0], minlength=size).tolist()
    by_number = np.bincount(spans.source, minlength=size).tolist()
    for counts, num_rows, num_spans in zip(
      self._rows.values(), rows, by_number, strict=True
    ):
      counts[0] += num_rows
      counts[2] += num_spans

  def add_group(self, spans: spans_lib.Spans | None) -> None:
    """Counts the distinct rows of a group that is planned; see `add_batch`."""
    if spans is None:
      return
    self._begin()
    first = np.flatnonzero(np.diff(spans.row, prepend=-1))
    source = spans.source[first]
    # Rows that begin with the same token at the same column are the same.
    key = spans.offset[first] * (1 << 24) + spans.column[first]
    rows = list(self._rows.values())
    for number in np.flatnonzero(np.bincount(source)).tolist():
      counts = rows[number]
      # Sorted in a tenth of the time that `np.unique` hashes them in.
      keys = np.sort(key if len(rows) == 1 else key[source == number])
      counts[1] += 1 + int(np.count_nonzero(np.diff(keys)))
      counts[3] += len(keys)

  def by_source(self) -> dict[str, SourceReads]:
    """Returns the counts so far."""
    out = {}
    for name, (examples, unique, spans, planned) in self._rows.items():
      if name not in self._before:
        out[name] = SourceReads()
        continue
      counters = self._stores[name].counters - self._before[name]
      out[name] = SourceReads(
        examples=examples,
        planned_examples=planned,
        unique_examples=unique,
        spans=spans,
        **{name: getattr(counters, name) for name in _FIELDS[4:]},
      )
    return out

  def _begin(self) -> None:
    # Not before the first read: opening a store in a worker costs time.
    if not self._before:
      self._before = {
        name: store.counters.snapshot() for name, store in self._stores.items()
      }


def counts(reads: Mapping[str, SourceReads]) -> list[int]:
  """Returns the counts of all sources in one list, to be summed."""
  return [
    getattr(source, name) for source in reads.values() for name in _FIELDS
  ]


def from_counts(
  names: Iterable[str], numbers: Sequence[int]
) -> dict[str, SourceReads]:
  """Returns the counts of sources from `counts` of the same sources."""
  size = len(_FIELDS)
  return {
    name: SourceReads(*numbers[i * size : (i + 1) * size])
    for i, name in enumerate(names)
  }


def lines(reads: Mapping[str, SourceReads]) -> list[str]:
  """Returns one line a source, for logs."""
  return [f"reads of {name}: {source.line()}" for name, source in reads.items()]
