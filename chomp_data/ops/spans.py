"""Spans: which consecutive tokens of which document go where in a batch.

A batch of rows is planned as a structure of arrays, one entry per span, in
row-major order (by row, then by column). Lengths, starts and columns are in
tokens. NumPy only.
"""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Spans:
  """The spans of `num_rows` rows, sorted by (row, column).

  Attributes:
    num_rows: How many rows are planned; a row may have no span (filler only).
    row: int64[N], 0 .. num_rows - 1, the row within the request.
    source: int32[N], index of the source in the pipeline.
    document: int64[N], document index within its store.
    start: int64[N], first token within the document.
    offset: int64[N], the same token within the store's tokens.
    length: int64[N], number of tokens, at least 1.
    column: int64[N], where the first token goes in the row.
    segment: int32[N], the segment id of the span's positions, from 1.
  """

  num_rows: int
  row: np.ndarray
  source: np.ndarray
  document: np.ndarray
  start: np.ndarray
  offset: np.ndarray
  length: np.ndarray
  column: np.ndarray
  segment: np.ndarray

  def __len__(self) -> int:
    return len(self.row)

  def rows(self, first: int, last: int) -> "Spans":
    """Returns the spans of rows first .. last - 1, renumbered from 0."""
    low, high = np.searchsorted(self.row, (first, last))
    cut = slice(low, high)
    return Spans(
      num_rows=last - first,
      row=self.row[cut] - first,
      source=self.source[cut],
      document=self.document[cut],
      start=self.start[cut],
      offset=self.offset[cut],
      length=self.length[cut],
      column=self.column[cut],
      segment=self.segment[cut],
    )

  def row_source(self) -> np.ndarray:
    """Returns int32[num_rows], each row's source; -1 for filler rows."""
    out = np.full(self.num_rows, -1, np.int32)
    out[self.row] = self.source
    return out

  def row_documents(self, num_slots: int) -> np.ndarray:
    """Returns int64[num_rows, num_slots], documents in order; -1 = none."""
    out = np.full((self.num_rows, num_slots), -1, np.int64)
    if not len(self):
      return out
    first_of_document = np.ones(len(self), bool)
    first_of_document[1:] = (self.row[1:] != self.row[:-1]) | (
      self.document[1:] != self.document[:-1]
    )
    row = self.row[first_of_document]
    starts = np.searchsorted(row, row, side="left")
    slot = np.arange(len(row)) - starts
    fits = slot < num_slots
    out[row[fits], slot[fits]] = self.document[first_of_document][fits]
    return out
