# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Reading and placing planned rows, whatever source planned them."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from typing import Any
from typing import Protocol

import numpy as np

from chomp_data import stores
from chomp_data.index import integers
from chomp_data.rows import row_layout
from chomp_data.rows import span_labels
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import row_labels

# Fields that are made on request only.
OPTIONAL_FIELDS = ("attention_mask", "next_token")
# On request too; `loss_weight` also where a source has weights.
LABEL_FIELDS = ("loss_weight", "label_weight")


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
  columns: tuple[int, int] | None = None,
) -> dict[str, np.ndarray]:
  """Reads and places planned rows of sources that share a layout.

  Args:
    sources: By number, those that spans are of; one takes all of them.
    spans: The plan.
    extra: As in `RowSource.read`.
    columns: As in `RowSource.read`.

  Returns:
    The fields of `RowSource.read`.
  """
  layout = next(iter(sources.values())).layout
  batch = row_layout.placed(spans, layout)
  if columns is not None:
    # Filler where nothing is copied.
    batch["tokens"] = row_layout.token_grid(spans, layout)
  # From here on nothing is known of what is gone.
  spans = spans.live()
  fetched = spans if columns is None else spans.in_columns(*columns)
  copy_tokens(sources, fetched, batch["tokens"])
  if "attention_mask" in extra:
    batch["attention_mask"] = row_layout.real_tokens(spans, layout.seq_len)
  last = None
  if "next_token" in extra:
    token, last = read_following(sources, spans, layout.filler_id)
    batch["next_token"] = token
    batch["loss_mask"][:, -1] |= last > 0
  by_source = {number: source.store for number, source in sources.items()}
  kept = by_source.values()
  wanted = [name for name in LABEL_FIELDS if name in extra]
  if "loss_weight" not in wanted and any(store.has_weights for store in kept):
    wanted.append("loss_weight")
  if wanted or any(store.has_labels for store in kept):
    _label(batch, by_source, fetched, wanted, last)
  return batch


class _Reader(Protocol):
  """What reads planned rows: a row source or a mix."""

  def read(
    self, spans: spans_lib.Spans, extra: Collection[str] = ()
  ) -> dict[str, np.ndarray]: ...


def batch_of(
  reader: _Reader,
  spans: spans_lib.Spans,
  opened: Collection[stores.Store],
  document_slots: int,
) -> dict[str, np.ndarray]:
  """Reads planned rows with every field that a format or mask may need.

  Which fields there are depends on the stores, not on the rows, so rows of
  different sources of a mix can be batched.

  Args:
    reader: The source of the rows, or a mix.
    spans: The plan.
    opened: The stores of all its sources.
    document_slots: Documents of a row that `document_id` names.

  Returns:
    The fields of `RowSource.batch`.
  """
  extra = ["attention_mask"]
  if any(store.has_weights for store in opened):
    extra.append("loss_weight")
  if any(store.has_labels or store.has_weights for store in opened):
    extra.append("label_weight")
  return {
    **reader.read(spans, extra),
    "source_id": spans.row_source(),
    "document_id": spans.row_documents(document_slots),
  }


def row_of(
  index: Any,
  size: int,
  batch: Callable[[np.ndarray], dict[str, np.ndarray]],
) -> dict[str, np.ndarray]:
  """Returns one row of a source: `source[index]`.

  Args:
    index: Which; negative ones count from the end.
    size: The number of rows.
    batch: Returns the fields of several rows.

  Raises:
    IndexError: If there is no such row.
    TypeError: If `index` is a slice or several indices.
  """
  number = integers.whole(
    "index",
    index,
    "For several rows, call `batch(numpy.arange(first, last + 1))`.",
  )
  if not -size <= number < size:
    raise IndexError(
      f"`index` must be in {-size} .. {size - 1}, got {number}. Index a row"
      " that exists."
    )
  fields = batch(np.asarray([number % size]))
  return {name: value[0] for name, value in fields.items()}


def _label(
  batch: dict[str, np.ndarray],
  by_source: Mapping[int, stores.Store],
  spans: spans_lib.Spans,
  wanted: Collection[str],
  last: np.ndarray | None,
) -> None:
  """Trains on what stores say, and adds the fields of `LABEL_FIELDS`."""
  mask = batch["loss_mask"]
  runs = row_labels.runs_of(by_source, spans, mask.shape[1])
  # The last columns are those of `follows`: each position's target is next.
  mask[:, :-1] &= runs.trained_grid(*mask.shape)[:, 1:]
  if not wanted:
    return
  weight = runs.weight_grid(*mask.shape)
  if "label_weight" in wanted:
    batch["label_weight"] = weight
  if "loss_weight" in wanted:
    if last is None:
      last = np.zeros(len(mask), np.float32)
    batch["loss_weight"] = span_labels.of_next(weight, last) * mask


def _of(
  number: int, spans: spans_lib.Spans, sources: Mapping[int, Any]
) -> np.ndarray | slice:
  """Returns which spans are of a source."""
  if len(sources) == 1:
    return slice(None)
  return np.flatnonzero(spans.source == number)


def copy_tokens(
  sources: Mapping[int, Readable], spans: spans_lib.Spans, tokens: np.ndarray
) -> None:
  """Copies the stored tokens of spans to where they go.

  Args:
    sources: As in `read`.
    spans: The plan, nothing of it gone.
    tokens: int32[num_rows, seq_len], contiguous, to be written to.
  """
  copies, out = row_layout.copies(spans, tokens.shape[1]), tokens.reshape(-1)
  for number, source in sources.items():
    pick = _of(number, spans, sources)
    start, length, position = (values[pick] for values in copies)
    if source.documents_follow:
      start, length, position = row_layout.joined_copies(
        start, length, position
      )
    source.store.copy_tokens(start, length, out, position)


def read_following(
  sources: Mapping[int, Readable], spans: spans_lib.Spans, filler_id: int
) -> tuple[np.ndarray, np.ndarray]:
  """Returns what follows the last column of rows.

  Args:
    sources: As in `read`.
    spans: The plan, nothing of it gone.
    filler_id: What stands for nothing.

  Returns:
    (`next_token` int32[num_rows], what it weighs as a target
    float32[num_rows]; 0 is not trained on, or nothing).
  """
  seq_len = next(iter(sources.values())).layout.seq_len
  token = np.full(spans.num_rows, filler_id, np.int32)
  follows = _Following(spans, seq_len)
  for number, source in sources.items():
    follows.read(source, _of(number, spans, sources), token)
  return token, follows.weight


class _Following:
  """What follows the last column of rows.

  Attributes:
    weight: float32[num_rows], what it weighs as a target; 0 is not trained on,
      or nothing.
  """

  def __init__(self, spans: spans_lib.Spans, seq_len: int):
    self._spans = spans
    self._last = np.empty(0, np.int64)
    if spans.following is not None:
      self._last = np.flatnonzero(
        (spans.ends() == seq_len) & (spans.following > 0)
      )
    self.weight = np.zeros(spans.num_rows, np.float32)

  def read(
    self, source: Readable, pick: np.ndarray | slice, next_token: np.ndarray
  ) -> None:
    """Reads what follows in rows of a source.

    Args:
      source: Whose spans are meant.
      pick: Which spans are of the source.
      next_token: int32[num_rows], to be written to.
    """
    spans, last = self._spans, self._last
    if spans.following is None:
      return
    if not isinstance(pick, slice):
      last = np.intersect1d(pick, last, assume_unique=True)
    stored = last[spans.following[last] == 1]
    after = (spans.offset + spans.stored()[0])[stored]
    next_token[spans.row[stored]] = source.store.read_tokens(
      after, np.ones(len(stored), np.int64)
    )
    added = last[spans.following[last] == 2]
    if source.layout.eos_id is not None:
      next_token[spans.row[added]] = source.layout.eos_id
    row, store = spans.row[last], source.store
    self.weight[row] = 1
    if store.has_labels or store.has_weights:
      self.weight[row] = row_labels.following(store, spans, last)
