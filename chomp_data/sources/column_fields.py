# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Fields of batches that hold columns of stores; they follow from spans.

    tokens    [BOS 11 12 13 EOS 0]    one document of 11 12 13
    quality   [ 0   3  2  5  0  0]    per token
    logprob   [ 0  -1 -2 -9  0  0]    aligned to targets: of 12, 13 and EOS
    margin    [0.5 0 0 ...]           per document, as `document_id`

A value is the fill where no token of the store is, where that is masked, and,
of targets, where the next token is missing or masked (the last column has one
where its document continues in another row).
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

import numpy as np

from chomp_data import errors
from chomp_data import schema
from chomp_data.rows import aligned
from chomp_data.rows import row_layout
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import row_source as row_source_lib
from chomp_data.stores import columns as columns_lib

# (name, fill value, or None where all sources must have the column).
Request = tuple[str, int | float | None]
# (source, first value, number of values, place in the field), int64[N] each.
_Copies = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _requests(value: Any) -> tuple[Request, ...]:
  if not isinstance(value, list | tuple):
    raise TypeError
  requests = []
  for entry in value:
    name, fill = (entry, None) if isinstance(entry, str) else entry
    if not isinstance(name, str) or not isinstance(fill, int | float | None):
      raise TypeError
    if fill is not None and not np.isfinite(fill):
      raise ValueError
    requests.append((name, fill))
  if len({name for name, _ in requests}) < len(requests):
    raise ValueError
  return tuple(requests)


REQUESTS = schema.Rule(
  "a list of distinct names of columns, or pairs (name, finite fill value)",
  _requests,
)


class ColumnFields:
  """The columns that the batches of a run hold.

  Attributes:
    per_token: Names of the fields [R, S, ...].
    per_document: Names of the fields [R, document slots].
    names: All of them.
  """

  def __init__(
    self,
    requests: Sequence[Request],
    sources: Mapping[str, row_source_lib.RowSource],
    path: str,
  ):
    """Looks the columns up; reads no value.

    Args:
      requests: The columns.
      sources: The sources of the run by name, in the order of their numbers.
      path: The dotted path of the option, for messages.

    Raises:
      ConfigError: If a source lacks a column, or has another of its name.
    """
    # Not their columns: stores open themselves in each process.
    self._sources: list[row_source_lib.RowSource] = list(sources.values())
    # What values are, and the fill value in their dtype.
    self._fields: dict[str, tuple[columns_lib.Column, np.ndarray]] = {}
    wrong: list[str] = []
    for name, fill in requests:
      column, problem = _column(name, fill, sources, path)
      if column is None:
        wrong.append(problem)
        continue
      value = columns_lib.cast(np.asarray(fill or 0), column)
      if value is None:
        wrong.append(
          f"`{path}` must fill {name!r} with a number that {column.dtype}"
          f" holds, got {fill}. Choose another."
        )
        continue
      self._fields[name] = column, value
    if wrong:
      raise errors.ConfigError(wrong)
    self.per_token: tuple[str, ...] = self._of(columns_lib.TOKEN)
    self.per_document: tuple[str, ...] = self._of(columns_lib.DOCUMENT)
    self.names: tuple[str, ...] = tuple(self._fields)

  def _of(self, per: str) -> tuple[str, ...]:
    fields = self._fields.items()
    return tuple(name for name, (column, _) in fields if column.per == per)

  def read(
    self,
    spans: spans_lib.Spans,
    seq_len: int,
    document_slots: int,
    columns: spans_lib.ColumnRanges | None = None,
  ) -> dict[str, np.ndarray]:
    """Returns the fields of planned rows.

    Args:
      spans: The plan.
      seq_len: Positions of a row.
      document_slots: Documents of a row that have values.
      columns: (first, last + 1) of the columns of rows that are read, or None
        for all; others hold the fill.

    Returns:
      [R, seq_len, ...] and [R, document_slots], fresh arrays.
    """
    # By what the values are of: those of one kind are in the same places.
    copies: dict[tuple[str, str], _Copies] = {}
    batch = {}
    for name, (column, fill) in self._fields.items():
      kind = column.per, column.align
      if kind not in copies and column.per == columns_lib.TOKEN:
        copies[kind] = _of_tokens(spans, column.align, seq_len, columns)
      elif kind not in copies:
        copies[kind] = _of_documents(spans, document_slots)
      source, starts, lengths, positions = copies[kind]
      size = seq_len if column.per == columns_lib.TOKEN else document_slots
      shape = (spans.num_rows, size, *column.shape)
      out = aligned.empty(shape, column.numpy_dtype)
      out[...] = fill
      flat = out.reshape(-1, *column.shape)
      for number, stored in self._stored(name, source):
        pick = source == number if len(self._sources) > 1 else slice(None)
        stored.copy(starts[pick], lengths[pick], flat, positions[pick])
      batch[name] = out
    return batch

  def prefetch(self, spans: spans_lib.Spans) -> None:
    """Requests the values of planned spans; does not wait."""
    spans = spans.live()
    stored_tokens = spans.stored()[0]
    for name, (column, _) in self._fields.items():
      of_tokens = column.per == columns_lib.TOKEN
      starts = spans.offset if of_tokens else spans.document
      lengths = stored_tokens if of_tokens else np.ones_like(starts)
      for number, stored in self._stored(name, spans.source):
        pick = spans.source == number
        if len(self._sources) == 1:
          pick = slice(None)
        stored.prefetch(starts[pick], lengths[pick])

  def _stored(
    self, name: str, of: np.ndarray
  ) -> list[tuple[int, columns_lib.StoredColumn]]:
    """Returns (number, values) of the sources `of` that have a column."""
    numbers = np.flatnonzero(np.bincount(of[of >= 0])).tolist()
    stores = [self._sources[number].store.opened for number in numbers]
    return [
      (number, opened.columns[name])
      for number, opened in zip(numbers, stores, strict=True)
      if name in opened.columns
    ]


def _column(
  name: str,
  fill: float | None,
  sources: Mapping[str, row_source_lib.RowSource],
  path: str,
) -> tuple[columns_lib.Column | None, str]:
  """Returns a column of a run, or None and what is wrong."""
  column, first, lacking = None, "", []
  for source_name, source in sources.items():
    columns = source.store.opened.columns
    if name not in columns:
      lacking.append(source_name)
      continue
    lacking += [source_name] * bool(columns[name].lacking)
    other = columns[name].column
    if column is None:
      column, first = other, source_name
    elif other != column:
      return None, (
        f"`{path}` must name columns that are alike in all sources, got"
        f" {name!r} of {column} in {first!r} and {other} in {source_name!r}."
        " Prepare both alike."
      )
    sentinels = getattr(source.layout, "sentinel_ids", ())
    if sentinels and other.align == columns_lib.TARGET:
      return None, (
        f"`{path}` must not hold columns that are aligned to targets with"
        f" rows.fim, got {name!r} of {source_name!r}: rearranged tokens have"
        " other targets. Leave it out, or unset rows.fim."
      )
  if column is None:
    names = sorted(
      {n for source in sources.values() for n in source.store.opened.columns}
    )
    return None, (
      f"`{path}` must name columns of the sources, which have"
      f" {', '.join(names) or 'none'}, got {name!r}. Correct it."
      + schema.did_you_mean(name, names)
    )
  if lacking and fill is None:
    return None, (
      f"`{path}` must name columns that all sources have, got {name!r}, which"
      f" {', '.join(map(repr, lacking))} lacks. Prepare it with the column, or"
      f" say what fills it: ({name!r}, 0)."
    )
  return column, ""


def _of_tokens(
  spans: spans_lib.Spans,
  align: str,
  seq_len: int,
  columns: spans_lib.ColumnRanges | None,
) -> _Copies:
  """Returns the values per token of planned rows."""
  spans = spans.live()
  if align == columns_lib.TARGET:
    spans = _before_targets(spans, seq_len)
  if columns is not None:
    spans = spans.in_columns(*columns)
  return spans.source, *row_layout.copies(spans, seq_len)


def _of_documents(spans: spans_lib.Spans, document_slots: int) -> _Copies:
  """Returns the values per document of planned rows."""
  # Slots of masked documents stay empty, as in `document_id`.
  documents = spans.row_documents(document_slots).reshape(-1)
  positions = np.flatnonzero(documents >= 0)
  source = spans.row_source()[positions // max(document_slots, 1)]
  return source, documents[positions], np.ones_like(positions), positions


def _before_targets(spans: spans_lib.Spans, seq_len: int) -> spans_lib.Spans:
  """Returns spans without a last token that no token follows.

  A next token is in the span, or after the last column of the row.
  """
  has_next = np.zeros(len(spans), np.bool_)
  for following in (spans.following, spans.remaining):
    if following is not None:
      has_next |= following != 0
  has_next &= spans.ends() == seq_len
  if spans.added_after is not None:
    has_next |= spans.added_after > 0
  length = spans.length - ~has_next
  pick = np.flatnonzero(length)
  shorter = dataclasses.replace(spans, length=length)
  return shorter.take(pick, spans.row[pick], spans.num_rows)
