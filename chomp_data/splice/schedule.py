# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of splices over documents: row number -> (document, t, s, c).

Rows fall into phases and passes (`phases.py`). In a pass each document has a
quota of rows (`epoch_shares.py`); the quotas are laid end to end, so a row
finds its document by binary search in prefix sums and its pair in closed form
(`document_pairs.py`). No row is enumerated, so an epoch of 10**12 rows costs as
much as one of 10. docs/splice.md defines the options. NumPy only.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses

import numpy as np

from chomp_data.index import columns
from chomp_data.index import hashing
from chomp_data.index import memo
from chomp_data.splice import document_pairs
from chomp_data.splice import epoch_shares as shares_lib
from chomp_data.splice import phases as phases_lib

BALANCE_MODES = ("by_temperature", "by_coverage", "by_document", "enumerate")
JITTER_MODES = ("uniform", "low_discrepancy")

# Row numbers of several epochs must fit in int64.
_MAX_ROWS = 2**56


@dataclasses.dataclass(frozen=True)
class Splices:
  """The spliced document part of each row.

  Attributes:
    slot: int64[N], index into the schedule's documents.
    start: int64[N], t, first token copied.
    column: int64[N], s, where it goes.
    length: int64[N], c, tokens copied.
  """

  slot: np.ndarray
  start: np.ndarray
  column: np.ndarray
  length: np.ndarray


@dataclasses.dataclass(frozen=True)
class PhaseTable:
  """The documents and content length of each phase, as `phases.cut` returns.

  Attributes:
    first_row: int64[P], the first row of each.
    num_documents: int64[P], how many of the first documents it reads.
    length: int64[P], the index of its content length.
  """

  first_row: np.ndarray
  num_documents: np.ndarray
  length: np.ndarray


@dataclasses.dataclass(frozen=True)
class Counts:
  """Row counts that need all documents, computed by `count`.

  Attributes:
    pass_rows: int64[P], the rows of a whole pass of each phase.
    last_ends: Prefix sums of the quotas of a pass of the last phase.
  """

  pass_rows: np.ndarray
  last_ends: columns.Column


def count(
  pairs: Sequence[document_pairs.DocumentPairs],
  shares: shares_lib.Shares,
  table: PhaseTable,
  balance_mode: str,
  epoch_length: int | None,
) -> Counts:
  """Counts the rows of every phase's passes, and the last phase's quotas.

  Args:
    pairs: The documents' pairs at each content length.
    shares: How documents share the rows of a pass.
    table: The phases.
    balance_mode: One of BALANCE_MODES.
    epoch_length: Rows of a pass, or None for as many as the mode needs.

  Raises:
    ValueError: If a pass has no row, or too many to number.
  """
  pass_rows = np.empty(len(table.first_row), np.int64)
  last = len(table.first_row) - 1
  last_pairs = np.empty(0, np.int64)
  for number, documents in enumerate(pairs):
    num_pairs = documents.num_pairs()
    if number == table.length[last]:
      last_pairs = num_pairs
    pick = table.length == number
    pass_rows[pick] = _pass_rows(
      num_pairs, table.num_documents[pick], balance_mode, epoch_length
    )
    # Later phases of this content length only read more documents.
    phase = int(np.argmax(pick))
    if balance_mode != "enumerate" or not pass_rows[phase]:
      usable = num_pairs[: int(table.num_documents[phase])] > 0
      if not pass_rows[phase] or not shares.served(usable).any():
        raise ValueError(
          f"must read a document that can be copied and weighs more than 0"
          f" from row {int(table.first_row[phase])} on, got none among"
          f" the first {len(usable)} at content_length"
          f" {documents.space.content_length}. Raise curriculum_start, lower"
          " content_length, or raise a weight."
        )
  num_pairs = last_pairs[: int(table.num_documents[last])]
  rows = int(pass_rows[last])
  ends = _quota_ends(num_pairs, shares, rows, balance_mode)
  return Counts(pass_rows, columns.ArrayColumn(ends))


class SpliceSchedule:
  """Maps rows to the splices they hold.

  Attributes:
    phases: The passes.
  """

  def __init__(
    self,
    pairs: Sequence[document_pairs.DocumentPairs],
    shares: Callable[[], shares_lib.Shares],
    table: PhaseTable,
    counts: Counts,
    *,
    balance_mode: str,
    jitter_mode: str,
    jitter_key: int,
  ):
    """Binds the documents and the row counts.

    Args:
      pairs: The documents' pairs at each content length.
      shares: Returns how documents share the rows of a pass; only called for
        phases before the last one.
      table: The phases.
      counts: The row counts of the same arguments.
      balance_mode: One of BALANCE_MODES.
      jitter_mode: One of JITTER_MODES.
      jitter_key: Key of the uniform jitter.
    """
    self._pairs = list(pairs)
    self._shares = shares
    self._table = table
    self._balance_mode = balance_mode
    self._jitter_mode = jitter_mode
    self._jitter_key = jitter_key
    self.phases: phases_lib.Phases = phases_lib.Phases(
      table.first_row, counts.pass_rows
    )
    self._last_ends = counts.last_ends

  def pairs_at(self, number: int) -> document_pairs.DocumentPairs:
    """Returns the documents' pairs at the content length of a pass."""
    phase = int(self.phases.phase_of(np.asarray([number]))[0])
    return self._pairs[int(self._table.length[phase])]

  def quotas(self, number: int | None = None) -> np.ndarray:
    """Returns int64[D], rows by document; None: of a pass of the last phase."""
    ends = self._last_ends if number is None else self._ends(number)
    out = np.zeros(len(self._pairs[0]), np.int64)
    out[: len(ends)] = np.diff(ends.read(), prepend=0)
    return out

  def first_quotas(self, count: int) -> np.ndarray:
    """Returns int64[count], rows by document in a pass of the last phase."""
    ends = self._last_ends.take(np.arange(min(count, len(self._last_ends))))
    return np.diff(ends, prepend=0)

  def rows_of(self, slot: int, number: int) -> tuple[int, int]:
    """Returns (first, last): a document has rows first .. last - 1 of a pass.

    Args:
      slot: Index into the schedule's documents.
      number: The pass.
    """
    ends = self._ends(number)
    if slot >= len(ends):
      return 0, 0
    first, last = ends.take(np.asarray([max(slot - 1, 0), slot])).tolist()
    return first if slot else 0, last

  def splices(self, number: np.ndarray, index: np.ndarray) -> Splices:
    """Returns the splices of rows.

    Args:
      number: int64[N], the pass of each.
      index: int64[N], the row of the pass.

    Returns:
      One splice per row.
    """
    jitter = self._jitter(index, number)
    if not len(number) or number.min() >= self.phases.ramp:
      samples = _samples(self._last_ends, number, index)
      pairs = self._pairs[int(self._table.length[-1])]
      return Splices(samples.slot, *pairs.place(samples, jitter, False))
    values = np.empty((3, len(index)), np.int64)
    passes, member = np.unique(number, return_inverse=True)
    phase = self.phases.phase_of(passes)
    last = len(self._table.first_row) - 1
    # Passes of the last phase share their quotas.
    group = np.where(phase == last, self.phases.ramp, passes)[member]
    for one in np.unique(group).tolist():
      pick = np.flatnonzero(group == one)
      group_samples = _samples(self._ends(one), number[pick], index[pick])
      values[:, pick] = group_samples.slot, group_samples.k, group_samples.quota
    samples = document_pairs.Samples(values[0], values[1], values[2], number)
    placed = np.empty((3, len(index)), np.int64)
    ramp = (phase < last)[member]
    length = self._table.length[phase][member]
    for one in np.unique(length).tolist():
      pick = np.flatnonzero(length == one)
      placed[:, pick] = self._pairs[one].place(
        samples.take(pick), jitter[pick], ramp[pick]
      )
    return Splices(samples.slot, placed[0], placed[1], placed[2])

  def _ends(self, number: int) -> columns.Column:
    """Returns the prefix sums of a pass's quotas."""
    if number >= self.phases.ramp:
      return self._last_ends
    one = np.asarray([number])
    return self._ramp_ends(
      int(self.phases.phase_of(one)[0]), int(self.phases.sizes(one)[0])
    )

  @memo.remembered(64)
  def _ramp_ends(self, phase: int, rows: int) -> columns.Column:
    count = int(self._table.num_documents[phase])
    pairs = self._pairs[int(self._table.length[phase])]
    num_pairs = pairs.num_pairs()[:count]
    return columns.ArrayColumn(
      _quota_ends(num_pairs, self._shares(), rows, self._balance_mode)
    )

  def _jitter(self, index: np.ndarray, number: np.ndarray) -> np.ndarray:
    choices = self._pairs[0].space.offset_jitter + 1
    if choices == 1:
      return np.zeros(len(index), np.int64)
    if self._jitter_mode == "low_discrepancy":
      return (index + number) % choices
    drawn = hashing.fold(hashing.fold(self._jitter_key, number), index)
    return (drawn % np.uint64(choices)).astype(np.int64)


def _quota_ends(
  num_pairs: np.ndarray,
  shares: shares_lib.Shares,
  rows: int,
  balance_mode: str,
) -> np.ndarray:
  """Returns int64[M], prefix sums of the quotas of the first documents."""
  if balance_mode == "enumerate":
    return np.cumsum(num_pairs)
  return np.cumsum(shares.quotas(num_pairs > 0, rows))


def _samples(
  ends: columns.Column, number: np.ndarray, index: np.ndarray
) -> document_pairs.Samples:
  """Returns the documents and samples of rows of passes with equal quotas."""
  slot = ends.search(index)
  first = np.where(slot > 0, ends.take(np.maximum(slot - 1, 0)), 0)
  quota = ends.take(slot) - first
  return document_pairs.Samples(slot, index - first, quota, number)


def _pass_rows(
  num_pairs: np.ndarray,
  num_documents: np.ndarray,
  balance_mode: str,
  epoch_length: int | None,
) -> np.ndarray:
  """Returns int64[P], the rows of a whole pass over the first documents."""
  if epoch_length is not None:
    return np.full(len(num_documents), epoch_length, np.int64)
  usable = num_pairs > 0
  # In floats, which cannot wrap; 2**53 is far below the limit of int64.
  row_estimate = float(np.sum(num_pairs, dtype=np.float64))
  if balance_mode == "by_document":
    row_estimate = float(np.sum(usable)) * float(num_pairs.max(initial=0))
  if row_estimate >= _MAX_ROWS:
    raise ValueError(
      f"must have fewer than {_MAX_ROWS} rows an epoch, got about"
      f" {row_estimate:.3g}. Use larger strides, or set epoch_length."
    )
  if balance_mode == "by_document":
    rows = np.cumsum(usable) * np.maximum.accumulate(num_pairs)
  else:
    rows = np.cumsum(num_pairs)
  return rows[num_documents - 1]
