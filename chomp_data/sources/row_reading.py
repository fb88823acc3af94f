# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads planned rows of any source and makes the fields of batches."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from typing import Any
from typing import Protocol

import numpy as np

from chomp_data import stores
from chomp_data.index import integers
from chomp_data.rows import row_layout
from chomp_data.rows import row_masks
from chomp_data.rows import spans as spans_lib
from chomp_data.rows import targets as targets_lib
from chomp_data.sources import row_labels

# Fields that are made on request only, as are `targets.FIELDS`.
OPTIONAL_FIELDS = ("attention_mask", "next_token")
# Also on request; `loss_weight` is always made where a source has weights.
LABEL_FIELDS = ("loss_weight", "label_weight")


class Readable(Protocol):
  """The part of a row source that reading needs."""

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
  columns: spans_lib.ColumnRanges | None = None,
) -> dict[str, np.ndarray]:
  """Reads and places planned rows of sources that share a layout.

  Args:
    sources: The sources of the spans by number; a single one takes all spans.
    spans: The plan.
    extra: Which of `OPTIONAL_FIELDS`, `LABEL_FIELDS` and `targets.FIELDS` to
      make too. Targets come with their masks, and weights where stores have
      them, and with those of lower depths.
    columns: (first, last + 1) of the columns whose tokens and labels are read,
      an int or int64[K] each, or None for all; tokens of others are padding.
      Targets are of columns after those of the row.

  Returns:
    `tokens`, `segment_ids`, `positions` int32[N, seq_len], `loss_mask`
    bool[N, seq_len] and the extra fields; `loss_weight` float32[N, seq_len]
    always where a store has weights, `pair_mask` bool[N, pair_slots] always
    where rows hold pairs.
  """
  layout = next(iter(sources.values())).layout
  batch = row_layout.placed(spans, layout)
  tokens, wide_spans, wide_layout = batch["tokens"], spans, layout
  depth = targets_lib.depth_of(extra)
  if depth:
    wide_spans, wide_layout = targets_lib.extended(spans, layout, depth)
  if depth or columns is not None:
    # Padding where nothing is copied.
    tokens = row_layout.token_grid(wide_spans, wide_layout)
  # Masked spans are padding in all that follows.
  spans, wide_spans = spans.live(), wide_spans.live()
  fetched = wide_spans if columns is None else wide_spans.in_columns(*columns)
  copy_tokens(sources, fetched, tokens)
  if depth:
    batch["tokens"][:] = tokens[:, : layout.seq_len]
  else:
    batch["tokens"] = tokens
  if layout.pair_slots:
    batch["pair_mask"] = row_layout.pair_mask(spans, layout.pair_slots)
  if "attention_mask" in extra:
    batch["attention_mask"] = row_layout.real_tokens(spans, layout.seq_len)
  last_weight = None
  if "next_token" in extra:
    token, last_weight = read_following(sources, spans, layout.filler_id)
    batch["next_token"] = token
    batch["loss_mask"][:, -1] |= last_weight > 0
  stores_by_number = {n: source.store for n, source in sources.items()}
  opened = stores_by_number.values()
  label_fields = [name for name in LABEL_FIELDS if name in extra]
  if "loss_weight" not in label_fields and any(
    store.labels.has_weights for store in opened
  ):
    label_fields.append("loss_weight")
  trained = weight = None
  if label_fields or any(store.labels.has_runs for store in opened):
    runs = row_labels.runs_of(stores_by_number, fetched, tokens.shape[1])
    trained = runs.trained_grid(*tokens.shape)
    weight = runs.weight_grid(*tokens.shape) if label_fields else None
  if not layout.train_sentinels:
    real = row_layout.without_sentinels(wide_spans, tokens.shape[1])
    trained = real if trained is None else trained & real
    weight = None if weight is None else weight * real
  if trained is not None:
    _label(batch, trained, weight, label_fields, last_weight)
  if depth:
    if "loss_weight" not in label_fields:
      weight = None
    batch |= targets_lib.batch_fields(
      wide_spans, tokens, depth, layout.filler_id, trained, weight
    )
  return batch


class _Reader(Protocol):
  """A reader of planned rows: a row source or a mix."""

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
    The fields of `read` with `attention_mask`, `loss_weight` where a store has
    weights, `label_weight` where one has labels or weights, `source_id`
    int32[N] and `document_id` int64[N, document_slots].
  """
  extra = ["attention_mask"]
  if any(store.labels.has_weights for store in opened):
    extra.append("loss_weight")
  if any(store.labels.has_runs or store.labels.has_weights for store in opened):
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
    index: The row's number; negative ones count from the end.
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
  trained: np.ndarray,
  weight: np.ndarray | None,
  label_fields: Collection[str],
  last_weight: np.ndarray | None,
) -> None:
  """Applies which tokens are trained on to `loss_mask`, and adds label fields.

  `trained` and `weight` are of the columns of rows, and perhaps more.
  `last_weight` float32[N] is the weight of the token after each row as a
  target; None is 0.
  """
  mask = batch["loss_mask"]
  seq_len = mask.shape[1]
  # A position's target is the next token. The last column has none in its row.
  mask[:, :-1] &= trained[:, 1:seq_len]
  if weight is None:
    return
  weight = weight[:, :seq_len]
  if "label_weight" in label_fields:
    batch["label_weight"] = np.ascontiguousarray(weight)
  if "loss_weight" in label_fields:
    if last_weight is None:
      last_weight = np.zeros(len(mask), np.float32)
    batch["loss_weight"] = (
      row_masks.before_end(weight[:, 1:], last_weight) * mask
    )


def read_apart(
  sources: Mapping[int, Readable],
  spans: spans_lib.Spans,
  one_layout: bool,
  read_part: Callable[
    [Mapping[int, Readable], spans_lib.Spans], dict[str, np.ndarray]
  ],
) -> dict[str, np.ndarray]:
  """Reads planned rows, separately by source where layouts differ.

  Rows of padding have the layout of the first source, so that they do not
  depend on which rows a process reads.

  Args:
    sources: All sources of the rows by number.
    spans: The plan.
    one_layout: Whether all sources share a layout.
    read_part: Reads planned rows of sources that share a layout.

  Returns:
    What `read_part` returns, of all rows.
  """
  source = spans.source
  if not one_layout:
    source = spans.row_source()
    source[source < 0] = min(sources)
  present = np.flatnonzero(np.bincount(source)).tolist() or [min(sources)]
  if one_layout or len(present) == 1:
    return read_part({number: sources[number] for number in present}, spans)
  fields: dict[str, np.ndarray] = {}
  for number in present:
    rows = np.flatnonzero(source == number)
    part = read_part({number: sources[number]}, spans.of_rows(rows))
    for name, value in part.items():
      if name not in fields:
        shape = spans.num_rows, *value.shape[1:]
        fields[name] = np.empty(shape, value.dtype)
      fields[name][rows] = value
  return fields


def copy_tokens(
  sources: Mapping[int, Readable], spans: spans_lib.Spans, tokens: np.ndarray
) -> None:
  """Copies the stored tokens of spans into rows.

  Args:
    sources: The sources of the spans by number; a single one takes all spans.
    spans: The plan, without masked spans.
    tokens: int32[num_rows, seq_len], contiguous, which is written to.
  """
  copies, flat_tokens = (
    row_layout.copies(spans, tokens.shape[1]),
    tokens.reshape(-1),
  )
  for number, pick in spans_lib.picks(spans, sources):
    source = sources[number]
    start, length, position = (values[pick] for values in copies)
    if source.documents_follow:
      start, length, position = row_layout.joined_copies(
        start, length, position
      )
    source.store.copy_tokens(start, length, flat_tokens, position)


def read_following(
  sources: Mapping[int, Readable], spans: spans_lib.Spans, padding_id: int
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the tokens that follow the last column of rows.

  Args:
    sources: The sources of the spans by number; a single one takes all spans.
    spans: The plan, without masked spans.
    padding_id: The token of rows whose last document does not continue.

  Returns:
    `next_token` int32[num_rows], and its weight as a target float32[num_rows];
    0 where it is not trained on or there is none.
  """
  token = np.full(spans.num_rows, padding_id, np.int32)
  weight = np.zeros(spans.num_rows, np.float32)
  if spans.following is None:
    return token, weight
  seq_len = next(iter(sources.values())).layout.seq_len
  followed = np.flatnonzero((spans.ends() == seq_len) & (spans.following > 0))
  spans = spans.take(followed, spans.row[followed], spans.num_rows)
  assert spans.following is not None
  after = spans.offset + spans.stored()[0]
  for number, pick in spans_lib.picks(spans, sources):
    source, following = sources[number], spans.following[pick]
    rows, after_rows = spans.row[pick], after[pick]
    stored = following == 1
    token[rows[stored]] = source.store.read_tokens(
      after_rows[stored], np.ones(np.count_nonzero(stored), np.int64)
    )
    if source.layout.eos_id is not None:
      token[rows[following == 2]] = source.layout.eos_id
    weight[rows] = 1
    if source.store.labels.has_runs or source.store.labels.has_weights:
      pick = np.arange(len(spans))[pick]
      weight[rows] = row_labels.following(source.store, spans, pick)
  return token, weight
