# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The contract of every row source; three of its methods are required.

A new way to choose rows writes `__len__`, `plan`, a pure function from row
numbers to spans, and `fingerprint`; everything that touches tokens is written
once (`row_reading`). A row source is also a plain Grain
`RandomAccessDataSource` of rows. Rows are numbered through all epochs, so
`plan` also takes rows beyond the first one.
"""

import abc
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
import hashlib
import json
from typing import Any
from typing import final
from typing import ParamSpec
from typing import TypeVar

import numpy as np

from chomp_data import schema
from chomp_data import stores
from chomp_data.index import integers
from chomp_data.index import intervals
from chomp_data.rows import row_layout
from chomp_data.rows import spans as spans_lib
from chomp_data.rows import targets
from chomp_data.sources import epochs as epochs_lib
from chomp_data.sources import mix_units
from chomp_data.sources import row_reading
from chomp_data.threads import background

# Raise it when the same fingerprint begins to mean other rows or units.
FINGERPRINT_SCHEMA = 1

# Rows planned at a time where there are many.
PLANNED_ROWS = 65_536

# Rows read together where the order does not determine which.
_GROUP_ROWS = 1_024

_NUMBER = schema.integer(0, 2**62 - 1)
# Rules of the arguments of `prepare`.
PREPARE_RULES = {
  "max_epochs": schema.optional(schema.integer(1)),
  "full_order": schema.boolean(),
}
_DOCUMENTS_ARGUMENTS = schema.arguments(
  documents=schema.Rule(
    schema.whole_numbers(0, 1).text,
    lambda value: np.atleast_1d(schema.whole_numbers(0, 1).convert(value)),
  ),
  epoch=_NUMBER,
)
_Parameters = ParamSpec("_Parameters")
_T = TypeVar("_T")
_FIELDS = schema.sequence(
  schema.choice(
    (
      *row_reading.OPTIONAL_FIELDS,
      *row_reading.LABEL_FIELDS,
      *targets.FIELDS,
    )
  )
)


def _columns(value: Any) -> spans_lib.ColumnRanges:
  edge = schema.either(schema.integer(0), schema.whole_numbers(1))
  first_column, end_column = map(edge.convert, value)
  return first_column, end_column


_COLUMNS = schema.Rule("(first, last + 1) of columns", _columns)


OPTIONAL_FIELDS = row_reading.OPTIONAL_FIELDS
LABEL_FIELDS = row_reading.LABEL_FIELDS


def checks_documents(
  method: Callable[_Parameters, _T],
) -> Callable[_Parameters, _T]:
  """Checks arguments of `rows_of`, also of sources that override it."""
  return _DOCUMENTS_ARGUMENTS(method)


class RowSource(abc.ABC):
  """Rows of `seq_len` tokens, any of them by random access.

  Attributes:
    name: The source's name in a pipeline, from which seeds are derived; also in
      logs.
    store: Where its tokens are.
    layout: Padding, special tokens and positions of its rows.
    document_slots: Most documents a row can hold.
    options: What it was made from; an `eos_token_id` in it overrides the
      tokenizer's.
    documents_follow: Whether rows are the store's tokens one after the other,
      so that one copy takes several documents, and whole chunks of rows touch
      no other chunk.
    one_span_per_document: Whether no row holds two spans of one document, so
      that rows need not be planned to count its spans.
  """

  name: str
  store: stores.Store
  layout: row_layout.RowLayout
  document_slots: int
  options: Any = None
  documents_follow: bool = False
  one_span_per_document: bool = False

  @abc.abstractmethod
  def __len__(self) -> int:
    """Returns the rows of the first epoch."""

  @abc.abstractmethod
  def plan(self, rows: np.ndarray) -> spans_lib.Spans:
    """Plans rows in their order in `rows`, without reading a token.

    Args:
      rows: int64[N], at least 0, of any epoch, in any order.

    Returns:
      Spans of N rows; `source` is 0.
    """

  @property
  @abc.abstractmethod
  def fingerprint(self) -> dict[str, Any]:
    """What determines this source's rows, as JSON values."""

  def describe(self) -> str:
    """Returns a summary for the log, several lines."""
    return f"[{self.name}] {len(self)} rows per epoch"

  @schema.arguments(**PREPARE_RULES)
  def prepare(self, max_epochs: int | None, full_order: bool = False) -> None:
    """Announces a reader, so that later epochs may be prepared in advance.

    Args:
      max_epochs: Most epochs that are read after the ramp; None has no end.
      full_order: Whether rows are read in random order over the whole epoch.
    """
    del max_epochs, full_order

  @property
  def epochs(self) -> epochs_lib.Epochs:
    """Which rows belong to which epoch; by default all epochs have as many."""
    return epochs_lib.EqualEpochs(len(self))

  def blocks(self, epoch: int) -> np.ndarray | None:
    """Returns the first row of each block that is read together.

    Args:
      epoch: The epoch.

    Returns:
      int64[num_blocks + 1], from 0 to the rows of the epoch, or None where
      rows form no blocks.
    """
    integers.whole("epoch", epoch)
    return None

  @property
  def repeating_units(self) -> Mapping[str, int]:
    """The first epoch from which on all consume the same, by unit.

    Of "spans", from which on all have as many spans of each document; of
    "cuts", from which on these are of the same tokens.
    """
    return {}

  @schema.arguments(**mix_units.BLOCK_RULES)
  def block_units(
    self, epoch: int, unit: str, rows: int | None
  ) -> mix_units.BlockUnits | None:
    """Returns what blocks of rows consume; None where rows must be planned.

    Args:
      epoch: The epoch.
      unit: One of `mix_units.UNITS` for rows.
      rows: Rows of a block, where the source may choose; 0 asks for blocks of
        equal rows only; None where only the sum of all blocks is needed, so
        that they may be of any size and order.
    """
    del epoch, unit, rows
    return None

  @schema.arguments(**mix_units.UNITS_RULES)
  def units(self, epoch: int, positions: np.ndarray, unit: str) -> np.ndarray:
    """Returns what rows of an epoch consume, int64[N].

    Args:
      epoch: The epoch.
      positions: int64[N], counted from the epoch's first row, in any order.
      unit: One of `mix_units.UNITS` for rows.
    """
    spans = self.plan(self.epochs.start(epoch) + positions)
    return mix_units.planned_units(spans, unit, self.store)

  def documents_used(self) -> np.ndarray | None:
    """Returns the documents that rows are made of; None is all of the store.

    Returns:
      Their numbers in the source's store, int64[D], ascending.
    """
    return None

  @checks_documents
  def rows_of(
    self, documents: np.ndarray | int, epoch: int
  ) -> intervals.Intervals:
    """Returns the rows of an epoch that hold a span of one of some documents.

    All rows of the epoch are planned, unless a source overrides this.

    Args:
      documents: int64[D], their numbers in the source's store, or one number.
      epoch: The epoch.

    Returns:
      The first row of each range and the row after its last, int64[N] each,
      ascending and disjoint, counted from the first row of the epoch.
    """
    first_row, end_row = self.epochs.start(epoch), self.epochs.start(epoch + 1)
    rows, begin = [np.empty(0, np.int64)], 0
    for spans in planned_blocks(self, first_row, end_row):
      rows.append(begin + spans.row[np.isin(spans.document, documents)])
      begin += spans.num_rows
    row = np.concatenate(rows)
    return intervals.merged(row, row + 1)

  @property
  @final
  def seq_len(self) -> int:
    """Positions of a row."""
    return self.layout.seq_len

  @final
  def prefetch(self, spans: spans_lib.Spans) -> bool:
    """Fetches in parallel the chunks that reading a plan needs.

    Returns whether it helps to plan further ahead: whether the store fetches
    chunks, and has room for more of them.
    """
    spans = _checked_spans(spans).live()
    stored = spans.stored()[0]
    self.store.labels.prefetch(spans.offset, stored, spans.document)
    return self.store.prefetch(spans.offset, stored)

  @final
  def read(
    self,
    spans: spans_lib.Spans,
    extra: Collection[str] = (),
    columns: spans_lib.ColumnRanges | None = None,
  ) -> dict[str, np.ndarray]:
    """Reads and places planned rows.

    Args:
      spans: A plan of this source.
      extra: Which of `OPTIONAL_FIELDS` and `LABEL_FIELDS` to make too, and
        'targets', 'targets_2', ... of the depths up to that one. With
        `next_token`, a row's last column is trained on where its document
        continues.
      columns: (first, last + 1) of those whose tokens and labels are read, or
        None for all; tokens of others are padding.

    Returns:
      `tokens`, `segment_ids`, `positions` int32[N, seq_len] and `loss_mask`
      bool[N, seq_len], all fresh; `attention_mask` bool[N, seq_len], which
      positions are not padding; `next_token` int32[N], the token after the
      last column, or padding. `loss_weight` float32[N, seq_len], what each
      position's target weighs, 0 where it is not trained on: always of a store
      with weights; `label_weight` float32[N, seq_len], what each position's
      token itself weighs as a target; `pair_mask` bool[N, pair_slots], which
      preference pairs exist: always of a store of pairs.
    """
    _checked_spans(spans)
    if extra != ():
      extra = schema.argument("extra", _FIELDS, extra)
    if columns is not None:
      columns = schema.argument("columns", _COLUMNS, columns)
    return row_reading.read({0: self}, spans, extra, columns)

  @final
  def batch(self, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Returns rows with all that formats and masks in stock Grain need.

    Args:
      rows: int64[N], at least 0, of any epoch.

    Returns:
      The fields of `read` with `attention_mask`, and with `label_weight` where
      the store has labels or weights; `source_id` int32[N] and `document_id`
      int64[N, document_slots].
    """
    spans = self.plan(checked_rows(rows))
    return row_reading.batch_of(self, spans, [self.store], self.document_slots)

  @final
  def __getitem__(self, index: int) -> dict[str, np.ndarray]:
    """Returns one row of the first epoch: the fields of `batch`, less N."""
    return row_reading.row_of(index, len(self), self.batch)

  def __repr__(self) -> str:
    return described(self, self.fingerprint)


def described(source: Any, fingerprint: Any) -> str:
  """Returns the `repr` of a source: class, name, digest of its fingerprint.

  Grain compares it where it restores the state of a stock pipeline.

  Args:
    source: With a `name`.
    fingerprint: JSON values.
  """
  text = json.dumps(fingerprint, sort_keys=True)
  digest = hashlib.sha256(text.encode()).hexdigest()
  return f"{type(source).__name__}({source.name!r}, {digest[:16]})"


def _checked_spans(spans: spans_lib.Spans) -> spans_lib.Spans:
  if not isinstance(spans, spans_lib.Spans):
    raise TypeError(
      f"`spans` must be `Spans`, as `plan` returns them, got {spans!r}. Pass a"
      " plan."
    )
  return spans


SOURCE = schema.instance("a `RowSource`", RowSource)


def checked_rows(rows: np.ndarray) -> np.ndarray:
  """Returns row numbers as int64[N].

  Raises:
    TypeError: If they are no whole numbers.
    IndexError: If one is negative.
  """
  rows = integers.array("rows", rows)
  if len(rows) and int(rows.min()) < 0:
    raise IndexError(f"rows must be at least 0, got {int(rows.min())}.")
  return rows


def planned_blocks(
  source: RowSource, first: int, last: int
) -> Iterator[spans_lib.Spans]:
  """Yields the spans of rows first to last - 1, planned many rows at once.

  Args:
    source: The rows.
    first: The first row, numbered through epochs.
    last: The row after the last one.
  """
  for low in range(first, last, PLANNED_ROWS):
    background.check()
    yield source.plan(np.arange(low, min(low + PLANNED_ROWS, last)))


def group_of(row: int) -> tuple[int, int]:
  """Returns the aligned group of 1,024 rows that a row is read with.

  Returns:
    (first row, the row after the last).
  """
  first_row = row // _GROUP_ROWS * _GROUP_ROWS
  return first_row, first_row + _GROUP_ROWS
