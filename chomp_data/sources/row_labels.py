# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Labels of the positions of planned rows, from their stores.

A label is the weight of a token as a target; 0 is not trained on. Labels come
from runs of levels; no token is read for them.
"""

from collections.abc import Mapping
import dataclasses

import numpy as np

from chomp_data import stores
from chomp_data.index import ragged
from chomp_data.rows import row_layout
from chomp_data.rows import spans as spans_lib


@dataclasses.dataclass(frozen=True)
class Runs:
  """Runs of tokens of one label, over the flattened rows.

  Attributes:
    begin: int64[M], the first position, ascending.
    end: int64[M], the position after the last.
    weight: float32[M], the loss weight of the tokens as targets; 0 is not
      trained on.
  """

  begin: np.ndarray
  end: np.ndarray
  weight: np.ndarray

  def trained_grid(self, num_rows: int, seq_len: int) -> np.ndarray:
    """Returns bool[num_rows, seq_len]: which tokens are trained on."""
    return self._grid(self.weight > 0, num_rows, seq_len)

  def weight_grid(self, num_rows: int, seq_len: int) -> np.ndarray:
    """Returns float32[num_rows, seq_len], loss weights of tokens as targets."""
    return self._grid(self.weight, num_rows, seq_len)

  def _grid(
    self, values: np.ndarray, num_rows: int, seq_len: int
  ) -> np.ndarray:
    size = num_rows * seq_len
    grid = row_layout.filled(self.begin, self.end, values, size)
    return grid.reshape(num_rows, seq_len)


def runs_of(
  by_source: Mapping[int, stores.Store], spans: spans_lib.Spans, seq_len: int
) -> Runs:
  """Returns the labels of planned rows.

  Args:
    by_source: The store of each source that spans are of.
    spans: The plan.
    seq_len: Positions of a row.
  """
  parts = []
  for number, pick in spans_lib.picks(spans, by_source):
    store, part = by_source[number], spans
    if not isinstance(pick, slice):
      part = spans.take(pick, spans.row[pick], spans.num_rows)
    span, begin, stop, level = store.labels.runs(*_labelled_ranges(part))
    weight = store.labels.levels[level]
    if store.labels.has_document_weights:
      weight = weight * store.labels.document_weights(part.document)[span]
    begin, stop = _positions(part, seq_len, span, begin, stop)
    parts.append((begin, stop, weight))
  if len(parts) == 1:
    return Runs(*parts[0])
  columns = [np.concatenate(values) for values in zip(*parts, strict=True)]
  order = np.argsort(columns[0], kind="stable")
  return Runs(*(values[order] for values in columns))


def _labelled_ranges(
  spans: spans_lib.Spans,
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the ranges of stored tokens whose labels a plan needs.

  A span needs the labels of its tokens; a span of only an added token needs the
  label of the adjacent stored token.

  Returns:
    (position in the store int64[N], length int64[N], at least 1).
  """
  length = spans.stored()[0]
  offset = spans.offset
  if spans.added_after is not None:
    # A span of only an EOS begins where its document's tokens end.
    offset = offset - ((spans.added_after > 0) & (length == 0))
  return offset, np.maximum(length, 1)


def _positions(
  spans: spans_lib.Spans,
  seq_len: int,
  span: np.ndarray,
  begin: np.ndarray,
  stop: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
  """Returns where runs of labels begin and end in the flattened rows.

      a span of 4 at column 2 with an added EOS, its tokens in runs of 2 and 1:
      -> runs at columns 2 .. 3 and 4 .. 5

  Run i is of tokens begin[i] .. stop[i] - 1 of the labelled range of span[i].
  An added EOS has the label of its document's last token, an added BOS that of
  the first one.
  """
  span_begin = (spans.row * seq_len + spans.column)[span]
  length = spans.length[span]
  bos = 0 if spans.added_before is None else spans.added_before[span] > 0
  _, is_last = ragged.run_edges(span)
  return (
    span_begin + np.where(begin == 0, 0, begin + bos),
    span_begin + np.where(is_last, length, stop + bos),
  )


def following(
  store: stores.Store, spans: spans_lib.Spans, pick: np.ndarray
) -> np.ndarray:
  """Returns the weights, as targets, of the tokens that follow spans.

  Args:
    store: The store of the spans.
    spans: The plan.
    pick: int64[M], spans that a token follows in their document.

  Returns:
    float32[M]; 0 is not trained on.
  """
  assert spans.following is not None
  after = (spans.offset + spans.stored()[0])[pick]
  # An added EOS has the label of the last token.
  after -= spans.following[pick] == 2
  level = store.labels.runs(after, np.ones_like(after))[3]
  weight = store.labels.levels[level]
  if store.labels.has_document_weights:
    weight = weight * store.labels.document_weights(spans.document[pick])
  return weight


def trained_targets(spans: spans_lib.Spans, store: stores.Store) -> np.ndarray:
  """Returns how many tokens of each span are trained on as targets.

  That is each but its first, which follows no token of its document.

  Args:
    spans: A plan of one source.
    store: Its store.

  Returns:
    int64[N].
  """
  if store.labels.trains_on_all:
    return spans.targets()
  stored, column = spans.stored()
  end = spans.offset + stored
  # The first stored token is a target after an added BOS only.
  first_target = spans.offset + (column == spans.column)
  before = store.labels.trained_before(
    np.concatenate([np.minimum(first_target, end), end, np.maximum(end - 1, 0)])
  )
  first_target, end, last_token = np.split(before, 3)
  trained = end - first_target
  if spans.added_after is not None:
    is_target = (spans.added_after > 0) & (spans.length > 1)
    trained += is_target * (end - last_token)
  if store.labels.has_document_weights:
    trained *= store.labels.document_weights(spans.document) > 0
  return trained


def trains_on_any(store: stores.Store) -> bool:
  """Returns whether a store trains on some token, by levels and by weights."""
  if not store.labels.trained_before(np.asarray([store.num_tokens]))[0]:
    return False
  return store.labels.any_document_trained
