"""The contract of every row source, and reading and placing written once.

A feature writes `plan`, a pure function from row numbers to spans; everything
that touches tokens is here. A row source is also a plain Grain
`RandomAccessDataSource` of rows. Rows are numbered through all epochs, so
`plan` also takes rows beyond the first one.
"""

import abc
from collections.abc import Collection
import hashlib
import json
import math
from typing import Any

import numpy as np

from chomp_data import stores
from chomp_data.ops import row_layout
from chomp_data.ops import spans as spans_lib

# Rows read together where nothing says which.
_GROUP_ROWS = 1_024

# Fields that are made on request only.
OPTIONAL_FIELDS = ("attention_mask", "next_token")


class RowSource(abc.ABC):
  """Rows of `seq_len` tokens, any of them by random access.

  Attributes:
    name: The source's name in a pipeline; seeds and logs go by it.
    options: What it was made from, with the fields of `FillerOptions`.
    store: Where its tokens are.
    layout: How its rows look around their spans.
    document_slots: Most documents a row can hold.
    documents_follow: Whether spans of a row mostly lie one after the other in
      the store too, so that one copy takes several.
    ramp_epochs: Epochs before the first one that counts: those of a ramp, in
      which a source does not yet read all it has.
  """

  name: str
  options: Any
  store: stores.Store
  layout: row_layout.RowLayout
  document_slots: int
  documents_follow: bool = False
  ramp_epochs: int = 0

  @property
  def seq_len(self) -> int:
    """Positions of a row."""
    return self.layout.seq_len

  @abc.abstractmethod
  def __len__(self) -> int:
    """Returns the rows of the first epoch."""

  def first_row(self, epoch: np.ndarray) -> np.ndarray:
    """Returns the number of each epoch's first row, int64[N].

    Args:
      epoch: int64[N], from 0.
    """
    return epoch * len(self)

  def first_row_of(self, epoch: int) -> int:
    """Returns the number of an epoch's first row."""
    return int(self.first_row(np.asarray([epoch]))[0])

  def total_rows(self, epochs: int | None) -> int | None:
    """Returns the rows of a run over so many epochs, after its ramp.

    Args:
      epochs: Passes over all that the source has; None has no end.
    """
    if epochs is None:
      return None
    return self.first_row_of(self.ramp_epochs + epochs)

  def passes(self, row: int) -> float:
    """Returns how often a source was passed before a row, the ramp apart."""
    epoch, index = self.locate(np.asarray([row], np.int64))
    number = int(epoch[0])
    size = self.first_row_of(number + 1) - self.first_row_of(number)
    if number < self.ramp_epochs:
      return 0.0
    return number - self.ramp_epochs + int(index[0]) / max(size, 1)

  def locate(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (epoch, row of that epoch) of rows, int64[N] each.

    Args:
      rows: int64[N], at least 0.
    """
    epoch, index = np.divmod(rows, len(self))
    return epoch, index

  def block_starts(self, epoch: int) -> np.ndarray | None:
    """Returns the first row of each block that is read together.

    Args:
      epoch: The epoch.

    Returns:
      int64[num_blocks + 1], from 0 to the rows of the epoch, or None where
      rows form no blocks of their own.
    """
    del epoch
    return None

  def chunk_rows(self) -> int:
    """Returns how many rows one chunk of the store holds, at least 1."""
    return max(1, self.store.chunk_tokens // self.seq_len)

  def block_chunks(self, block_rows: float) -> int:
    """Returns how many chunks of the store a block of rows touches, at most.

    Args:
      block_rows: Rows of a block; a mean where blocks differ.
    """
    tokens = block_rows * self.seq_len
    return math.ceil(tokens / self.store.chunk_tokens) + 1

  def epochs_alike(self, unit: str) -> bool:
    """Returns whether every epoch after the ramp consumes the same.

    Args:
      unit: 'tokens', 'rows' or 'loss_tokens'.
    """
    del unit
    return False

  def alike(
    self, epoch: int, unit: str
  ) -> tuple[int, list[int], list[int]] | None:
    """Returns what rows consume where they all consume the same, but for few.

    Args:
      epoch: The epoch.
      unit: As in `epochs_alike`.

    Returns:
      (units of a row, positions in the epoch of rows that consume less, what
      those consume), or None where rows vary.
    """
    del epoch, unit
    return None

  def unit_edges(
    self, epoch: int, unit: str
  ) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns where units before a position are known without planning.

    Args:
      epoch: The epoch.
      unit: As in `epochs_alike`.

    Returns:
      (positions, units before them), int64[n + 1] each, from 0 to the rows of
      the epoch; None where an epoch must be passed over.
    """
    starts, units = self.block_starts(epoch), self.block_units(epoch, unit)
    return None if starts is None or units is None else (starts, units)

  def knows_units(self, unit: str) -> bool:
    """Returns whether sums of units need no planning of whole epochs."""
    return (
      self.alike(0, unit) is not None or self.unit_edges(0, unit) is not None
    )

  def block_units(self, epoch: int, unit: str) -> np.ndarray | None:
    """Returns the units before each of `block_starts`, where they are known.

    Args:
      epoch: The epoch.
      unit: As in `epochs_alike`.
    """
    del epoch, unit
    return None

  def units_every(self, epoch: int, unit: str, rows: int) -> np.ndarray | None:
    """Returns the units before every so many rows, where they are known.

    Args:
      epoch: The epoch.
      unit: As in `epochs_alike`.
      rows: Rows between two of them, at least 1.

    Returns:
      int64[ceil(R / rows) + 1] of the R rows of the epoch, the last one before
      row R; or None.
    """
    del epoch, unit, rows
    return None

  def read_group(self, row: int) -> tuple[int, int]:
    """Returns rows first .. last - 1 around a row that are best read together.

    Args:
      row: A row number through all epochs.
    """
    first = row // _GROUP_ROWS * _GROUP_ROWS
    return first, first + _GROUP_ROWS

  def parts(self) -> "dict[str, RowSource]":
    """Returns the sources that rows come from, in the order of `source`."""
    return {self.name: self}

  def ordered(self) -> "dict[str, RowSource]":
    """Returns the sources of a run in their orders, by name."""
    return {self.name: self}

  def taken(self, row: int) -> dict[str, int]:
    """Returns how many rows each source has given before a row.

    Args:
      row: A row number through all epochs.
    """
    return {self.name: row}

  def foreign_specs(self) -> list[dict[str, Any]]:
    """Returns entries of a `resume_state` that name no source of the run."""
    return []

  def prefetch(self, spans: spans_lib.Spans) -> None:
    """Fetches what reading the rows of a plan will need, at once."""
    self.store.prefetch(spans.offset, spans.stored()[0])

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

  def validation(self) -> "RowSource":
    """Returns a fixed small grid of documents, for evaluation."""
    raise NotImplementedError(f"{type(self).__name__} has no validation rows.")

  def describe(self) -> str:
    """Returns a summary for the log, several lines."""
    return f"[{self.name}] {len(self)} rows an epoch"

  def read(
    self, spans: spans_lib.Spans, extra: Collection[str] = ()
  ) -> dict[str, np.ndarray]:
    """Reads and places planned rows.

    Args:
      spans: A plan of this source.
      extra: Which of `OPTIONAL_FIELDS` to make too. With `next_token`, a row's
        last column is trained on where its document continues.

    Returns:
      `tokens`, `segment_ids`, `positions` int32[N, seq_len] and `loss_mask`
      bool[N, seq_len], all fresh; `attention_mask` bool[N, seq_len], which
      positions are not padding; `next_token` int32[N], the token after the
      last column, or filler.
    """
    tokens = row_layout.token_grid(spans, self.layout)
    length, column = spans.stored()
    self.copy_into(
      tokens, spans.offset, length, spans.row * self.seq_len + column
    )
    batch = {"tokens": tokens, **row_layout.span_fields(spans, self.layout)}
    if "attention_mask" in extra:
      batch["attention_mask"] = row_layout.real_tokens(spans, self.seq_len)
    if "next_token" in extra:
      known, batch["next_token"] = self.next_tokens(spans)
      batch["loss_mask"][:, -1] |= known
    return batch

  def copy_into(
    self,
    tokens: np.ndarray,
    offset: np.ndarray,
    length: np.ndarray,
    position: np.ndarray,
  ) -> None:
    """Copies tokens of planned rows to where they go.

    Args:
      tokens: int32[num_rows, seq_len], contiguous.
      offset: int64[N], as in `Spans`.
      length: int64[N], tokens that the store has.
      position: int64[N], in the flattened `tokens`.
    """
    if self.documents_follow:
      offset, length, position = row_layout.joined_copies(
        offset, length, position
      )
    self.store.copy_tokens(offset, length, tokens.reshape(-1), position)

  def next_tokens(
    self, spans: spans_lib.Spans
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns what follows the last column of planned rows.

    Args:
      spans: A plan of this source.

    Returns:
      Whether the document continues there, bool[num_rows], and its token,
      int32[num_rows]; filler elsewhere.
    """
    known = np.zeros(spans.num_rows, np.bool_)
    token = np.full(spans.num_rows, self.layout.filler_id, np.int32)
    if spans.following is not None:
      last = np.flatnonzero(
        (spans.ends() == self.seq_len) & (spans.following > 0)
      )
      known[spans.row[last]] = True
      stored = last[spans.following[last] == 1]
      after = (spans.offset + spans.stored()[0])[stored]
      token[spans.row[stored]] = self.store.read_tokens(
        after, np.ones(len(stored), np.int64)
      )
      added = last[spans.following[last] == 2]
      if self.layout.eos_id is not None:
        token[spans.row[added]] = self.layout.eos_id
    return known, token

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
