# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Maps labels of stored tokens to labels of a batch's positions.

A position's label says whether its token is trained on as a target. An added
EOS has the label of its document's last token, an added BOS of the first one.
NumPy only.
"""

import numpy as np

from chomp_data.index import ragged
from chomp_data.rows.spans import Spans


def needed(spans: Spans) -> tuple[np.ndarray, np.ndarray]:
  """Returns the ranges of stored tokens whose labels a plan needs.

  A span needs the labels of its tokens; a span of only an added token needs the
  label of the adjacent stored token.

  Args:
    spans: The plan.

  Returns:
    (position in the store int64[N], length int64[N], at least 1).
  """
  length = spans.stored()[0]
  offset = spans.offset
  if spans.eos is not None:
    # A span of only an EOS begins where its document's tokens end.
    offset = offset - (spans.eos & (length == 0))
  return offset, np.maximum(length, 1)


def placed(
  spans: Spans,
  seq_len: int,
  span: np.ndarray,
  begin: np.ndarray,
  stop: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the positions of runs of labels in the flattened rows.

      a span of 4 at column 2 with an added EOS, its tokens in runs of 2 and 1:
      -> runs at columns 2 .. 3 and 4 .. 5

  Args:
    spans: The plan.
    seq_len: Positions of a row.
    span: int64[M], the span of each run; runs cover the ranges of `needed`.
    begin: int64[M], the first token of the run, counted from the start of
      that range.
    stop: int64[M], the token after its last.

  Returns:
    (first position int64[M], the one after the last int64[M]).
  """
  span_begin = (spans.row * seq_len + spans.column)[span]
  length = spans.length[span]
  bos = 0 if spans.bos is None else spans.bos[span]
  _, is_last = ragged.run_edges(span)
  return (
    span_begin + np.where(begin == 0, 0, begin + bos),
    span_begin + np.where(is_last, length, stop + bos),
  )
