"""The contract of every row source, and reading and placing written once.

A feature writes `plan`, a pure function from row numbers to spans; everything
that touches tokens is here. A row source is also a plain Grain
`RandomAccessDataSource` of rows. Row r is row r % len of epoch r // len, so
`plan` also takes rows beyond the first epoch.
"""

import abc
import hashlib
import json
from typing import Any

import numpy as np

from chomp_data import stores
from chomp_data.ops import placing
from chomp_data.ops import spans as spans_lib


class RowSource(abc.ABC):
  """Rows of `seq_len` tokens, any of them by random access.

  Attributes:
    name: The source's name in a pipeline; seeds and logs go by it.
    store: Where its tokens are.
    layout: How its rows look around their spans.
    document_slots: Most documents a row can hold.
  """

  name: str
  store: stores.Store
  layout: placing.RowLayout
  document_slots: int

  @property
  def seq_len(self) -> int:
    """Positions of a row."""
    return self.layout.seq_len

  @abc.abstractmethod
  def __len__(self) -> int:
    """Returns the rows of one epoch."""

  @abc.abstractmethod
  def plan(self, rows: np.ndarray) -> spans_lib.Spans:
    """Plans rows, in the order given, without reading a token.

    Args:
      rows: int64[N], at least 0, of any epoch, in any order.

    Returns:
      Spans of N rows; `source` is 0.
    """

  @abc.abstractmethod
  def fingerprint(self) -> dict[str, Any]:
    """Returns what decides this source's rows, as JSON values."""

  def describe(self) -> str:
    """Returns a summary for the log, several lines."""
    return f"[{self.name}] {len(self)} rows an epoch"

  def read(self, spans: spans_lib.Spans) -> dict[str, np.ndarray]:
    """Reads and places planned rows.

    Args:
      spans: A plan of this source.

    Returns:
      `tokens`, `segment_ids`, `positions` int32[N, seq_len] and `loss_mask`
      bool[N, seq_len], all fresh.
    """
    tokens = placing.token_grid(spans, self.layout)
    self.store.copy_tokens(
      spans.offset,
      spans.length,
      tokens.reshape(-1),
      spans.row * self.seq_len + spans.column,
    )
    return {"tokens": tokens, **placing.span_fields(spans, self.layout)}

  def batch(self, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the canonical fields of rows, and their documents.

    Args:
      rows: int64[N], at least 0, of any epoch.

    Returns:
      The fields of `read`, `source_id` int32[N] and `document_id`
      int64[N, document_slots].
    """
    spans = self.plan(np.asarray(rows, np.int64))
    return {
      **self.read(spans),
      "source_id": spans.row_source(),
      "document_id": spans.row_documents(self.document_slots),
    }

  def __getitem__(self, index: int) -> dict[str, np.ndarray]:
    """Returns one row of the first epoch: the fields of `batch`, less N."""
    size = len(self)
    if not -size <= index < size:
      raise IndexError(f"row must be in {-size} .. {size - 1}, got {index}.")
    batch = self.batch(np.asarray([int(index) % size]))
    return {name: value[0] for name, value in batch.items()}

  def __repr__(self) -> str:
    text = json.dumps(self.fingerprint(), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{type(self).__name__}({self.name!r}, {digest[:16]})"
