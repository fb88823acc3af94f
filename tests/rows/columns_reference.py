# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Columns beside tokens and documents: a slow reference, from the definition.

The definition: a store may hold arrays beside its tokens and scalars beside
its documents. A value belongs to token i; with align = "target" it belongs to
the prediction of token i + 1 made at i. A batch holds the named columns as
[B, S, ...] or [B, document_slots], with a fill value (0 unless declared, never
NaN) where there is no value.

A span is (source, document, start, end, column, before, after, removed):

    column                 before added tokens (BOS, sentinels)
    column + before        tokens start .. end - 1 of the stored document
    ... + end - start      after added tokens (EOS)

`column` is where the span begins in the row, its added tokens included.
`start` and `end` count the document's stored tokens only, and `removed` is a
set of such token numbers (not columns). Fill in the middle, or content that
wraps, is several spans.

Open points of the definition, and what is done here:

1. A target-aligned value stands at the column of its token i, as a plain one
   does (`loss_mask[i]` says there whether the prediction is trained on). The
   two kinds differ only where there is no value, points 2 to 4.
2. Target-aligned values where token i + 1 is not in the row because a span ends
   before the document does: kept by default. `cut="fill"` fills them.
3. The target-aligned value of a document's last stored token: it is about a
   token that the store does not hold. Kept by default (the store has the value,
   and it may be about an added EOS). `last="fill"` fills it; `last="eos"` keeps
   it only if an added token follows in this span. Added tokens never have
   values, so an added BOS has none though token 0 is predicted there.
4. A removed token has no plain value, and no target-aligned value is at i where
   token i or i + 1 is removed. The definition says only that there is a fill
   value "where there is no value"; the loss mask already leaves removed tokens
   out.
5. Slots of documents: for each row a list of a slot number for each of its
   spans (-1 = none). `slots_of_row` gives each document one, in the order in
   which they appear. Slots should be those of `document_id`; the definition
   does not say them.
6. Where a row has more documents than slots, the others are left out.
7. Every source has the column.
8. A document some of whose tokens are removed keeps its value.
9. NaN in stored values is not changed; only a fill value may not be NaN.
10. Column layouts for context parallelism come after this and are not applied.
"""

import dataclasses

import numpy as np


@dataclasses.dataclass
class Span:
  """Consecutive tokens of a document in a row (see the file's docstring).

  Attributes:
    source: key of the source in the values.
    document: int.
    start, end: ints, stored tokens start .. end - 1.
    column: int, the first column, added tokens included.
    before, after: ints, numbers of added tokens.
    removed: set of ints, numbers of stored tokens.
  """

  source: object
  document: int
  start: int
  end: int
  column: int
  before: int = 0
  after: int = 0
  removed: frozenset = frozenset()


def checked_fill(fill, dtype):
  """The fill value as an array of dtype; ValueError if NaN or out of range."""
  value = np.asarray(fill).astype(dtype)
  if np.issubdtype(dtype, np.integer) and int(value) != fill:
    raise ValueError(f"{dtype} cannot hold the fill value {fill}")
  if np.isnan(value.astype(np.float64)).any():
    raise ValueError("a fill value must not be NaN")
  return value


def check_layout(rows, seq_len):
  """Raises ValueError if spans overlap, or leave their row or their document.

  Args:
    rows: list of rows, each a list of Span.
    seq_len: int S.
  """
  for row, spans in enumerate(rows):
    used = set()
    for span in spans:
      if not 0 <= span.start <= span.end:
        raise ValueError(f"row {row}: bad start or end")
      width = span.before + span.end - span.start + span.after
      for c in range(span.column, span.column + width):
        if not 0 <= c < seq_len or c in used:
          raise ValueError(f"row {row}: column {c} is outside or used twice")
        used.add(c)


def token_has_value(span, i, length, align, *, cut="keep", last="keep"):
  """Whether the value of stored token i of this span is given (bool).

  Args:
    span: Span, start <= i < end.
    i: int, number of the stored token in its document.
    length: int, stored tokens of the document.
    align: "token" or "target".
    cut, last: see notes 2 and 3.
  """
  if i in span.removed:
    return False
  if align == "token":
    return True
  if i + 1 in span.removed:
    return False
  if i + 1 == length:
    if last == "fill":
      return False
    if last == "eos":
      return span.after > 0
    return True
  return not (i + 1 == span.end and cut == "fill")


def token_column(
  rows,
  seq_len,
  values,
  dtype,
  shape=(),
  *,
  align="token",
  fill=0,
  cut="keep",
  last="keep",
):
  """A column per token as a batch array.

  Args:
    rows: list of B rows, each a list of Span.
    seq_len: int S.
    values: dict source -> list (or dict) by document of arrays
      [stored tokens, *shape] of dtype.
    dtype: dtype of the column and the result.
    shape: shape of one value.
    align: "token" (a plain column) or "target".
    fill: number, where there is no value.
    cut, last: see notes 2 and 3.

  Returns:
    dtype[B, S, *shape].
  """
  if align not in ("token", "target"):
    raise ValueError("align")
  if cut not in ("keep", "fill"):
    raise ValueError("cut")
  if last not in ("keep", "fill", "eos"):
    raise ValueError("last")
  dtype = np.dtype(dtype)
  shape = tuple(shape)
  check_layout(rows, seq_len)
  batch = np.empty((len(rows), seq_len, *shape), dtype)
  batch[...] = checked_fill(fill, dtype)
  for row, spans in enumerate(rows):
    for span in spans:
      array = np.asarray(values[span.source][span.document])
      if array.dtype != dtype or array.shape[1:] != shape:
        raise ValueError(f"source {span.source}: another dtype or shape")
      if span.end > len(array):
        raise ValueError(f"row {row}: a span leaves its document")
      for i in range(span.start, span.end):
        if token_has_value(span, i, len(array), align, cut=cut, last=last):
          batch[row, span.column + span.before + i - span.start] = array[i]
  return batch


def slots_of_row(spans):
  """The slot number of each span of one row, a list of ints.

  Args:
    spans: list of Span.
  """
  seen = []
  for span in spans:
    if (span.source, span.document) not in seen:
      seen.append((span.source, span.document))
  return [seen.index((span.source, span.document)) for span in spans]


def document_column(rows, document_slots, values, dtype, slots, *, fill=0):
  """A column per document as a batch array.

  Args:
    rows: list of B rows, each a list of Span.
    document_slots: int.
    values: dict source -> array [documents] of dtype (or a dict by document).
    dtype: dtype of the column and the result.
    slots: for each row a list of one int a span.
    fill: number, where there is no value.

  Returns:
    dtype[B, document_slots].
  """
  dtype = np.dtype(dtype)
  batch = np.empty((len(rows), document_slots), dtype)
  batch[...] = checked_fill(fill, dtype)
  for row, spans in enumerate(rows):
    for span, slot in zip(spans, slots[row], strict=True):
      if slot == -1 or slot >= document_slots:
        continue
      value = np.asarray(values[span.source][span.document])
      if value.dtype != dtype or value.shape != ():
        raise ValueError(f"source {span.source}: another dtype or shape")
      batch[row, slot] = value
  return batch
