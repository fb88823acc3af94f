# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads planned rows of any source and makes the fields of batches."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from typing import Protocol

import numpy as np

from chomp_data import stores
from chomp_data.index import integers
from chomp_data.rows import row_layout
from chomp_data.rows import row_masks
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import row_labels

# Fields that are made on request only.
OPTIONAL_FIELDS = ("attention_mask", "next_token")
# Also on request; `loss_weight` is always made where a source has weights.
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
    # Padding where nothing is copied.
    batch["tokens"] = row_layout.token_grid(spans, layout)
  # Masked spans are padding in all that follows.
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
  stores_by_number = {n: source.store for n, source in sources.items()}
  opened = stores_by_number.values()
  wanted = [name for name in LABEL_FIELDS if name in extra]
  if "loss_weight" not in wanted and any(own.has_weights for own in opened):
    wanted.append("loss_weight")
  if wanted or any(store.has_labels for store in opened):
    _label(batch, stores_by_number, fetched, wanted, last)
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
  """Applies labels of stores to the mask; adds fields of `LABEL_FIELDS`."""
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
    batch["loss_weight"] = row_masks.before_end(weight[:, 1:], last) * mask


def by_layout(
  sources: Mapping[int, Readable], spans: spans_lib.Spans, one_layout: bool
) -> Iterator[
  tuple[np.ndarray | slice, Mapping[int, Readable], spans_lib.Spans]
]:
  """Yields planned rows apart where their layouts differ.

  Args:
    sources: By number, all whose rows there may be.
    spans: The plan.
    one_layout: Whether all sources share a layout.

  Yields:
    (rows of the plan, their sources, their spans, renumbered from row 0).
    Rows of padding are laid out as the first source's, so that they do not
    depend on the rows that a process holds.
  """
  if one_layout:
    present = np.flatnonzero(np.bincount(spans.source)).tolist()
    numbers = present or [min(sources)]
    yield slice(None), {n: sources[n] for n in numbers}, spans
    return
  source = spans.row_source()
  source[source < 0] = min(sources)
  present = np.flatnonzero(np.bincount(source)).tolist()
  for number in present:
    if len(present) == 1:
      yield slice(None), {number: sources[number]}, spans
    else:
      rows = np.flatnonzero(source == number)
      yield rows, {number: sources[number]}, spans.of_rows(rows)


def read_apart(
  sources: Mapping[int, Readable],
  spans: spans_lib.Spans,
  one_layout: bool,
  extra: Collection[str] = (),
  columns: tuple[int, int] | None = None,
) -> dict[str, np.ndarray]:
  """Returns `read` of sources that need not share a layout.

  Args:
    sources: As in `by_layout`.
    spans: The plan.
    one_layout: As in `by_layout`.
    extra: As in `RowSource.read`.
    columns: As in `RowSource.read`.
  """
  out: dict[str, np.ndarray] = {}
  for rows, some, part in by_layout(sources, spans, one_layout):
    fields = read(some, part, extra, columns)
    if isinstance(rows, slice):
      return fields
    for name, value in fields.items():
      if name not in out:
        out[name] = np.empty((spans.num_rows, *value.shape[1:]), value.dtype)
      out[name][rows] = value
  return out


def copy_tokens(
  sources: Mapping[int, Readable], spans: spans_lib.Spans, tokens: np.ndarray
) -> None:
  """Copies the stored tokens of spans to where they go.

  Args:
    sources: As in `read`.
    spans: The plan, without masked spans.
    tokens: int32[num_rows, seq_len], contiguous, to be written to.
  """
  copies, out = row_layout.copies(spans, tokens.shape[1]), tokens.reshape(-1)
  for number, pick in spans_lib.picks(spans, sources):
    source = sources[number]
    start, length, position = (values[pick] for values in copies)
    if source.documents_follow:
      start, length, position = row_layout.joined_copies(
        start, length, position
      )
    source.store.copy_tokens(start, length, out, position)


def read_following(
  sources: Mapping[int, Readable], spans: spans_lib.Spans, padding_id: int
) -> tuple[np.ndarray, np.ndarray]:
  """Returns what follows the last column of rows.

  Args:
    sources: As in `read`.
    spans: The plan, without masked spans.
    padding_id: The token of rows that nothing follows.

  Returns:
    `next_token` int32[num_rows], and its weight as a target float32[num_rows];
    0 is not trained on, or no token.
  """
  token = np.full(spans.num_rows, padding_id, np.int32)
  weight = np.zeros(spans.num_rows, np.float32)
  if spans.following is None:
    return token, weight
  seq_len = next(iter(sources.values())).layout.seq_len
  last = np.flatnonzero((spans.ends() == seq_len) & (spans.following > 0))
  spans = spans.take(last, spans.row[last], spans.num_rows)
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
    if source.store.has_labels or source.store.has_weights:
      pick = np.arange(len(spans))[pick]
      weight[rows] = row_labels.following(source.store, spans, pick)
  return token, weight
