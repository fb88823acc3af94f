"""Reading and placing planned rows, whatever source planned them."""

from collections.abc import Collection
from collections.abc import Mapping
from typing import Any
from typing import Protocol

import numpy as np

from chomp_data import stores
from chomp_data.ops import row_layout
from chomp_data.ops import spans as spans_lib

# Fields that are made on request only.
OPTIONAL_FIELDS = ("attention_mask", "next_token")


class Readable(Protocol):
  """What reading needs of a row source; see `RowSource`."""

  @property
  def store(self) -> stores.Store: ...

  @property
  def layout(self) -> row_layout.RowLayout: ...

  @property
  def documents_follow(self) -> bool: ...


def read(
  sources: Mapping[int, Readable],
  spans: spans_lib.Spans,
  extra: Collection[str] = (),
) -> dict[str, np.ndarray]:
  """Reads and places planned rows of sources that share a layout.

  Args:
    sources: By number, those that spans are of; one takes all of them.
    spans: The plan.
    extra: As in `RowSource.read`.

  Returns:
    The fields of `RowSource.read`.
  """
  layout = next(iter(sources.values())).layout
  tokens = row_layout.token_grid(spans, layout)
  length, column = spans.stored()
  position = spans.row * layout.seq_len + column
  for number, source in sources.items():
    pick = _of(number, spans, sources)
    _copy(source, tokens, spans.offset[pick], length[pick], position[pick])
  batch = {"tokens": tokens, **row_layout.span_fields(spans, layout)}
  if "attention_mask" in extra:
    batch["attention_mask"] = row_layout.real_tokens(spans, layout.seq_len)
  if "next_token" in extra:
    batch["next_token"] = np.full(spans.num_rows, layout.filler_id, np.int32)
    for number, source in sources.items():
      pick = _of(number, spans, sources)
      known, token = _next_tokens(source, spans, pick)
      batch["next_token"][known] = token[known]
      batch["loss_mask"][:, -1] |= known
  return batch


def _of(
  number: int, spans: spans_lib.Spans, sources: Mapping[int, Any]
) -> np.ndarray | slice:
  """Returns which spans are of a source."""
  if len(sources) == 1:
    return slice(None)
  return np.flatnonzero(spans.source == number)


def _copy(
  source: Readable,
  tokens: np.ndarray,
  offset: np.ndarray,
  length: np.ndarray,
  position: np.ndarray,
) -> None:
  """Copies tokens to where they go, positions in the flattened `tokens`."""
  if source.documents_follow:
    offset, length, position = row_layout.joined_copies(
      offset, length, position
    )
  source.store.copy_tokens(offset, length, tokens.reshape(-1), position)


def _next_tokens(
  source: Readable, spans: spans_lib.Spans, pick: np.ndarray | slice
) -> tuple[np.ndarray, np.ndarray]:
  """Returns what follows the last column of rows.

  Args:
    source: Whose spans are meant.
    spans: The plan.
    pick: Which spans are of the source.

  Returns:
    Whether the document continues there, bool[num_rows], and its token,
    int32[num_rows]; filler elsewhere.
  """
  layout = source.layout
  known = np.zeros(spans.num_rows, np.bool_)
  token = np.full(spans.num_rows, layout.filler_id, np.int32)
  if spans.following is None:
    return known, token
  own = np.arange(len(spans))[pick]
  last = own[(spans.ends()[own] == layout.seq_len) & (spans.following[own] > 0)]
  known[spans.row[last]] = True
  stored = last[spans.following[last] == 1]
  after = (spans.offset + spans.stored()[0])[stored]
  token[spans.row[stored]] = source.store.read_tokens(
    after, np.ones(len(stored), np.int64)
  )
  added = last[spans.following[last] == 2]
  if layout.eos_id is not None:
    token[spans.row[added]] = layout.eos_id
  return known, token
