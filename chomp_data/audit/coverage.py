# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What a run reads of each document, computed from its plan alone.

Distinct tokens are counted by merging intervals as steps go by, so memory
grows with the gaps in what was read and not with steps or document lengths.
"""

from collections.abc import Callable
import dataclasses

import numpy as np

from chomp_data import pipeline
from chomp_data.audit import steps as steps_lib
from chomp_data.index import intervals

# Spans that wait to be counted together, at least.
LEAST_WAITING = 1 << 18


@dataclasses.dataclass(frozen=True)
class Coverage:
  """What was read of one source, one entry a document.

  Tokens are those of the store: added BOS and EOS do not count.

  Attributes:
    source: Name of the source.
    document: int64[D], document indices, ascending.
    length: int64[D], tokens of each document.
    rows: int64[D], rows that hold some of the document.
    tokens: int64[D], tokens read, repeats included.
    distinct: int64[D], tokens read at least once.
    columns: int64[D], distinct columns at which a row's copy began.
  """

  source: str
  document: np.ndarray
  length: np.ndarray
  rows: np.ndarray
  tokens: np.ndarray
  distinct: np.ndarray
  columns: np.ndarray

  @property
  def entropy(self) -> float:
    """Entropy of the documents' shares of the rows read, in nats.

    0 where all rows are of one document, log(D) where D documents have as many
    rows each: one number that shows a schedule reading few documents.
    """
    rows = self.rows[self.rows > 0]
    share = rows / max(int(rows.sum()), 1)
    return abs(float((share * np.log(share)).sum()))


def coverage(
  pipe: pipeline.Pipeline,
  num_steps: int,
  first_step: int = 0,
  progress: Callable[[int], object] | None = None,
) -> list[Coverage]:
  """Returns what steps first_step .. first_step + num_steps - 1 read.

  Args:
    pipe: The run.
    num_steps: How many steps.
    first_step: The first of them.
    progress: Called with the number of steps done since the last call.

  Returns:
    One entry for each source.
  """
  totals = [_Totals() for _ in pipe.sources]
  end = first_step + num_steps
  for steps, planned in steps_lib.walk(pipe, first_step, end):
    spans = planned.live()
    length, column = spans.stored()
    for number, total in enumerate(totals):
      # A span of an added token alone holds nothing of its document.
      pick = (spans.source == number) & (length > 0)
      total.add(
        spans.row[pick],
        spans.document[pick],
        spans.start[pick],
        length[pick],
        column[pick],
      )
    if progress is not None:
      progress(len(steps))
  return [
    total.finish(name, source.store)
    for total, (name, source) in zip(totals, pipe.sources.items(), strict=True)
  ]


def report(
  pipe: pipeline.Pipeline, coverages: list[Coverage], most: int = 20
) -> str:
  """Returns a table, one line a document, documents read most first.

  Args:
    pipe: The run.
    coverages: Its coverage, by source.
    most: Documents listed of each source.
  """
  lines = []
  for coverage in coverages:
    store = pipe.sources[coverage.source].store
    whole = max(int(coverage.rows.sum()), 1)
    lines.append(
      f"coverage of {coverage.source}: {len(coverage.document)} documents,"
      f" {int(coverage.tokens.sum())} tokens read,"
      f" {int(coverage.distinct.sum())} of"
      f" {int(coverage.length.sum())} distinct,"
      f" entropy of shares {coverage.entropy:.3f} of at most"
      f" {np.log(max(len(coverage.document), 1)):.3f} nats"
    )
    order = np.argsort(-coverage.rows, kind="stable")[:most]
    ids = store.document_ids(coverage.document[order])
    for identity, i in zip(ids, order.tolist(), strict=True):
      lines.append(
        f"  {identity}: rows={coverage.rows[i]}"
        f" ({coverage.rows[i] / whole:.1%})"
        f" tokens={coverage.tokens[i]}"
        f" covered={coverage.distinct[i] / coverage.length[i]:.1%}"
        f" of {coverage.length[i]} starting at {coverage.columns[i]} columns"
      )
    if len(coverage.document) > most:
      lines.append(f"  ... {len(coverage.document) - most} more documents")
  return "\n".join(lines)


class _Totals:
  """Running counts of one source.

  What comes is kept as it is until there is as much of it as was counted
  before, so that counting takes time in proportion to what was read.
  """

  def __init__(self):
    self._document = np.empty(0, np.int64)
    self._rows = np.empty(0, np.int64)
    self._tokens = np.empty(0, np.int64)
    # Merged spans, (document, start, length).
    self._spans = np.empty((0, 3), np.int64)
    self._columns = np.empty((2, 0), np.int64)
    # (document, start, length, column, whether it is the first of its row).
    self._waiting: list[tuple[np.ndarray, ...]] = []
    self._num_waiting = 0

  def add(self, row, document, start, length, column) -> None:
    """Adds spans of rows that were not added before."""
    # A row may hold pieces of a document with others between them.
    width = int(document.max(initial=0)) + 1
    first = np.zeros(len(row), np.bool_)
    first[np.unique(row * width + document, return_index=True)[1]] = True
    self._waiting.append((document, start, length, column, first))
    self._num_waiting += len(row)
    counted = len(self._spans) + self._columns.shape[1]
    if self._num_waiting > max(counted, LEAST_WAITING):
      self._count()

  def _count(self) -> None:
    if not self._waiting:
      return
    document, start, length, column, first = (
      np.concatenate(parts) for parts in zip(*self._waiting, strict=True)
    )
    self._waiting, self._num_waiting = [], 0
    seen, where = np.unique(
      np.concatenate([self._document, document]), return_inverse=True
    )
    old, new = where[: len(self._document)], where[len(self._document) :]
    rows = np.bincount(new[first], minlength=len(seen))
    rows[old] += self._rows
    tokens = np.zeros(len(seen), np.int64)
    tokens[old] = self._tokens
    np.add.at(tokens, new, length)
    self._document, self._rows, self._tokens = seen, rows, tokens
    spans = np.stack([document, start, length], axis=1)
    self._spans = intervals.merged_spans(np.concatenate([self._spans, spans]))
    # One number for a document and a column.
    known = np.searchsorted(seen, self._columns[0])
    pairs = np.concatenate([[known, self._columns[1]],
                            [new[first], column[first]]], axis=1)  # fmt: skip
    width = int(pairs[1].max(initial=0)) + 1
    number, column = np.divmod(np.unique(pairs[0] * width + pairs[1]), width)
    self._columns = np.stack([seen[number], column])

  def finish(self, name: str, store) -> Coverage:
    self._count()
    document, _, length = self._spans.T
    distinct = np.zeros(len(self._document), np.int64)
    np.add.at(distinct, np.searchsorted(self._document, document), length)
    columns = np.zeros(len(self._document), np.int64)
    np.add.at(columns, np.searchsorted(self._document, self._columns[0]), 1)
    return Coverage(
      source=name,
      document=self._document,
      length=store.bounds(self._document)[1],
      rows=self._rows,
      tokens=self._tokens,
      distinct=distinct,
      columns=columns,
    )
