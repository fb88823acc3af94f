# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A fixed grid of splices: every document x start x offset, for evaluation.

Every evaluation of a run reads the same rows, whatever the schedule of the
training rows.
"""

from collections.abc import Sequence
import os
from typing import Any

import numpy as np

from chomp_data import schema
from chomp_data import stores
from chomp_data.rows import row_layout
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import row_source
from chomp_data.sources import shared_options as options_lib
from chomp_data.sources import special_tokens
from chomp_data.splice import selecting


class GridSource(row_source.RowSource):
  """Rows listed by document, start and offset; combinations that fit.

  documents [7], starts [0, 5], offsets [0, 3]

  row       0  1  2  3
  document  7  7  7  7
  start     0  0  5  5
  column    0  3  0  3
  """

  document_slots = 1

  @schema.arguments(
    store=options_lib.STORE,
    documents=schema.whole_numbers(1),
    starts=schema.whole_numbers(1, 2),
    offsets=schema.whole_numbers(1),
    seq_len=options_lib.SEQ_LEN,
    content_length=schema.optional(schema.integer(1)),
    min_copy_len=schema.integer(1),
    layout=schema.optional(
      schema.instance("a `RowLayout`", row_layout.RowLayout)
    ),
    name=schema.text(),
  )
  def __init__(
    self,
    store: stores.Store | str | os.PathLike[str],
    documents: np.ndarray | Sequence[int],
    starts: np.ndarray | Sequence[int],
    offsets: np.ndarray | Sequence[int],
    *,
    seq_len: int,
    content_length: int | None = None,
    min_copy_len: int = 2,
    layout: row_layout.RowLayout | None = None,
    name: str = "grid",
  ):
    """Lists the grid.

    Args:
      store: Where the documents are; a path is opened with `open_store`.
      documents: int64[D], document indices.
      starts: int64[T], starts tried in every document, or int64[D, T]; at
        least 0.
      offsets: int64[O], columns tried for every start, at least 0.
      seq_len: Positions of a row.
      content_length: K, or None for as many tokens as fit.
      min_copy_len: Combinations that copy fewer tokens are left out.
      layout: The rows' layout, or None for the store's pad id.
      name: The source's name.

    Raises:
      TypeError: If an argument is of a wrong type.
      IndexError: If there is no such document.
      ConfigError: If no combination fits.
    """
    assert isinstance(store, stores.Store)
    self.name = name
    self.store = store
    self.layout: row_layout.RowLayout = layout or special_tokens.row_layout(
      store, options_lib.FillerOptions(), seq_len, name
    )
    documents, starts, offsets = map(np.asarray, (documents, starts, offsets))
    if starts.ndim == 2 and len(starts) != len(documents):
      raise schema.ConfigError(
        [
          "`starts` must be int64[T] or int64[D, T] of D documents, got shape"
          f" {starts.shape} with {len(documents)} documents. Give each document"
          " its starts."
        ]
      )
    # Every combination: indices of its document, start and offset.
    shape = (len(documents), starts.shape[-1], len(offsets))
    number, start_index, offset_index = np.indices(shape).reshape(3, -1)
    lengths = store.bounds(documents)[1][number]
    start = np.broadcast_to(starts, shape[:2])[number, start_index]
    column = offsets[offset_index]
    copied = np.minimum(lengths - start, seq_len - column)
    if content_length is not None:
      copied = np.minimum(copied, content_length)
    # Duplicate starts of short documents would count twice.
    key = np.stack([number, start, column])
    first_seen = np.zeros(len(start), np.bool_)
    first_seen[np.unique(key, axis=1, return_index=True)[1]] = True
    keep = np.flatnonzero(first_seen & (copied >= min_copy_len))
    if not keep.size:
      raise schema.ConfigError(
        [
          f"`{name}` must hold a combination that copies {min_copy_len}"
          f" tokens, got none of {np.prod(shape)}. Use smaller starts or"
          " offsets, or longer documents."
        ]
      )
    self._document = documents[number[keep]]
    self._first_token = store.bounds(self._document)[0]
    self._start, self._column = start[keep], column[keep]
    self._length = copied[keep]
    self._remaining = lengths[keep] - self._start - self._length

  def __len__(self) -> int:
    return len(self._document)

  def plan(self, rows: np.ndarray) -> spans_lib.Spans:
    """Returns the spans of rows int64[N], numbered over all epochs."""
    pick = row_source.checked_rows(rows) % len(self)
    count = len(pick)
    return spans_lib.Spans(
      num_rows=count,
      row=np.arange(count),
      source=np.zeros(count, np.int32),
      document=self._document[pick],
      start=self._start[pick],
      offset=self._first_token[pick] + self._start[pick],
      length=self._length[pick],
      column=self._column[pick],
      segment=np.ones(count, np.int32),
      remaining=self._remaining[pick],
    )

  @property
  def fingerprint(self) -> dict[str, Any]:
    """What determines this source's rows, as JSON values."""
    return {
      "store": self.store.hash,
      "seq_len": self.seq_len,
      "grid": [
        values.tolist()
        for values in (self._document, self._start, self._column, self._length)
      ],
    }


def of_documents(
  source: row_source.RowSource, num_starts: int = 4, num_docs: int = 10
) -> GridSource:
  """Returns the first documents of a packed source, from column 0.

  Args:
    source: Its store and layout are used.
    num_starts: Starts of each document, evenly spaced.
    num_docs: Documents of at least two tokens.
  """
  documents, lengths = selecting.best_documents(
    source.store.iter_lengths(),
    "first",
    selecting.Limits(min_length=2),
    num_docs,
    key=0,
  )
  last_start = np.maximum(lengths - source.seq_len, 0)
  return GridSource(
    source.store,
    documents,
    evenly_spaced(last_start, num_starts),
    np.zeros(1, np.int64),
    seq_len=source.seq_len,
    layout=source.layout,
    name=f"{source.name}/validation",
  )


def evenly_spaced(stop: np.ndarray, count: int) -> np.ndarray:
  """Returns int64[D, count]: 0 .. stop in equal steps, ends included.

  Args:
    stop: int64[D], at least 0.
    count: Points of each, at least 1; one point is 0.
  """
  steps = np.arange(count) / max(count - 1, 1)
  return np.floor(np.asarray(stop)[:, None] * steps).astype(np.int64)
