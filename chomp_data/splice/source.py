# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Splices: tokens of a document placed at a column of a row.

    document  [a b c d e]     seq_len 8, K = 3, t = 1, s = 4

    column       0  1  2  3  4  5  6  7
    tokens       .  .  .  .  b  c  d  .      . is padding
    segment_ids  0  0  0  0  1  1  1  1
    loss_mask    0  0  0  0  1  1  0  0      b -> c and c -> d

Copies start at many tokens t and are placed at many columns s, by a schedule.
Positions are columns, never reset: the same text at two columns reaches the
model at two positions.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
from typing import Any
from typing import ClassVar

from absl import logging
import numpy as np

from chomp_data import schema
from chomp_data.index import columns
from chomp_data.index import intervals
from chomp_data.index import ragged
from chomp_data.rows import row_layout
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import document_columns
from chomp_data.sources import epochs as epochs_lib
from chomp_data.sources import mix_units
from chomp_data.sources import row_source
from chomp_data.sources import special_tokens
from chomp_data.sources import store_source
from chomp_data.splice import grid
from chomp_data.splice import pair_space
from chomp_data.splice import schedule as schedule_lib
from chomp_data.splice.options import MultiSpliceOptions
from chomp_data.splice.options import SpliceOptions
from chomp_data.splice.options import WindowOptions

_KINDS = {
  SpliceOptions: "splice",
  MultiSpliceOptions: "multi_splice",
  WindowOptions: "windows",
}

# Documents whose order of starts `PairOrder` remembers, where later starts have
# more offsets.
_MANY_RAGGED = 64

# Documents that a summary lists.
_MAX_SHOWN = 10

# Blocks whose units are in memory.
_MAX_BLOCKS = 2**20


class SpliceSource(store_source.StoreSource):
  """Rows that each hold one splice, or one window, of a selected document.

  Attributes:
    kind: The `rows.kind` of its options.
  """

  document_slots = 1

  kind: str = "splice"
  option_classes: ClassVar[tuple[type[schema.Options], ...]] = tuple(_KINDS)

  def _open(self, seq_len: int, path: str) -> None:
    store, options = self.store, self.options
    self.kind = _KINDS[type(options)]
    if isinstance(options, WindowOptions):
      options = options.as_splices(seq_len)
      self.options: Any = options
    self.layout: row_layout.RowLayout = special_tokens.row_layout(
      store, options, seq_len, path
    )
    selected = options.select(store, seq_len, path)
    self._documents, self._lengths = selected
    # Cached if the documents are in memory: a third of the time of a plan.
    self._first_token: np.ndarray | None = None
    if isinstance(self._documents, columns.ArrayColumn):
      self._first_token = store.bounds(self._documents.read())[0]
    self._schedule_options = options.as_splices(seq_len)
    self._schedule = schedule_lib.SpliceSchedule(
      store,
      selected,
      self._schedule_options,
      {"seq_len": seq_len, "rows": self._options_in_use()},
      seq_len=seq_len,
      seed=self._seed,
      name=self.name,
      path=path,
    )
    ramp = self._schedule.epochs.ramp
    self.space: pair_space.PairSpace = self._schedule.pairs_at(ramp).space
    # A rolled copy that passes the end of its document is two spans.
    if self.space.content_start_mode != "cyclic_roll":
      self.one_span_per_document: bool = True
    self._warn_of_usage(path)

  @property
  def documents(self) -> np.ndarray:
    """The selected documents, int64[D]; many are read from disk each time."""
    return document_columns.int64(self._documents)

  @property
  def lengths(self) -> np.ndarray:
    """Tokens of the selected documents, int64[D], in the same order."""
    return document_columns.int64(self._lengths)

  def __len__(self) -> int:
    return self.epochs.size(0)

  @property
  def epochs(self) -> epochs_lib.Epochs:
    """Which rows belong to which epoch; those before the last period ramp."""
    return self._schedule.epochs

  def plan(self, rows: np.ndarray) -> spans_lib.Spans:
    """Returns the spans of rows int64[N], numbered over all epochs."""
    rows = row_source.checked_rows(rows)
    slot, start, column, length = self._schedule.splices(rows)
    count = len(rows)
    row = np.arange(count)
    document = self._documents.take(slot)
    if self._first_token is None:
      token = self.store.bounds(document)[0]
    else:
      token = self._first_token[slot]
    document_length = self._lengths.take(slot)
    if self.space.content_start_mode == "cyclic_roll":
      # A copy that passes its document's end continues from its start.
      over = np.maximum(start + length - document_length, 0)
      row, second = ragged.elements(1 + (over > 0))
      head = (length - over)[row]
      start = np.where(second, 0, start[row])
      column = column[row] + second * head
      length = np.where(second, over[row], head)
      document, token = document[row], token[row]
      document_length = document_length[row]
    return spans_lib.Spans(
      num_rows=count,
      row=row,
      source=np.zeros(len(row), np.int32),
      document=document,
      start=start,
      offset=token + start,
      length=length,
      column=column,
      segment=np.ones(len(row), np.int32),
      remaining=document_length - start - length,
    )

  @property
  def repeating_units(self) -> Mapping[str, int]:
    """The first epoch from which on all consume the same, by unit."""
    # Jitter moves copies and never shortens them. Axes in another order each
    # epoch may leave other pairs out, so that all copies of a document must be
    # alike, or every epoch must hold all pairs.
    units = ("tokens", "loss_tokens") if self._all_pairs else self._copied_units
    if self._all_pairs or self.one_span_per_document:
      units = (*units, "spans")
    return dict.fromkeys(units, self.epochs.ramp)

  @property
  def _copied_units(self) -> tuple[str, ...]:
    """Units of which all copies of a document in an epoch hold the same."""
    if not self.space.has_one_place:
      return ()
    # Of documents with labels, a copy has those of its own tokens.
    trains_on_all = self.store.labels.trains_on_all
    return ("tokens", "loss_tokens") if trains_on_all else ("tokens",)

  @schema.arguments(**mix_units.BLOCK_RULES)
  def block_units(
    self, epoch: int, unit: str, rows: int | None
  ) -> mix_units.BlockUnits | None:
    """Returns the units of blocks of equal copies, of a document each.

    quotas 3, 2; units of a copy 6, 4
    blocks of rows 0 to 2, and 3 to 4, of 18 and 8 units
    """
    per_row = self._document_units(epoch, unit)
    if per_row is None:
      return None
    sizes = self._schedule.quotas(epoch)
    per_row, sizes = per_row[sizes > 0], sizes[sizes > 0]
    if (per_row == per_row[0]).all():
      per_row, sizes = per_row[:1], sizes.sum(keepdims=True)
    if len(sizes) > _MAX_BLOCKS:
      return None
    starts = np.append(0, np.cumsum(sizes))
    return mix_units.BlockUnits(starts, sizes * per_row, equal=True)

  def _document_units(self, epoch: int, unit: str) -> np.ndarray | None:
    """Returns int64[D], units of each copy; None where those of one differ."""
    if unit not in self._copied_units:
      return None
    copied = self._schedule.pairs_at(epoch).copy_len()
    # A copy's last token is no target.
    return copied - (unit == "loss_tokens")

  @property
  def _all_pairs(self) -> bool:
    """Whether epochs after the ramp hold the same pairs."""
    options = self._schedule_options
    shuffled = bool(options.shuffle_content or options.shuffle_offsets)
    return not shuffled or options.balance_mode == "enumerate"

  @row_source.checks_documents
  def rows_of(
    self, documents: np.ndarray | int, epoch: int
  ) -> intervals.Intervals:
    """Returns the rows of an epoch that copy one of some documents."""
    slots = np.flatnonzero(np.isin(self.documents, documents))
    slots = slots[slots < len(self._schedule.ends(epoch))]
    return intervals.merged(*self._schedule.rows_of_slots(slots, epoch))

  def documents_used(self) -> np.ndarray:
    """Returns the selected documents that have rows, int64[D], ascending."""
    return np.sort(self.documents[self.quotas() > 0])

  def quotas(self, row: int | None = None) -> np.ndarray:
    """Returns the rows of an epoch by selected document, int64[D].

    Args:
      row: A row of that epoch; None is an epoch after the ramp.
    """
    epoch = self.epochs.ramp
    if row is not None:
      epoch = int(self.epochs.locate(np.asarray([row]))[0][0])
    return self._schedule.quotas(epoch)

  def validation(
    self, num_starts: int = 4, num_offsets: int = 4, num_docs: int = 10
  ) -> grid.GridSource:
    """Returns a fixed small (t, s) grid of the first selected documents.

    Args:
      num_starts: Starts of each document, evenly spaced from 0 to the last
        that copies K tokens.
      num_offsets: Offsets of each start, evenly spaced over the row.
      num_docs: Documents, in the order of selection.

    Returns:
      At most num_docs * num_starts * num_offsets rows.
    """
    first_documents = np.arange(min(num_docs, len(self._documents)))
    lengths = self._lengths.take(first_documents)
    last_start = np.maximum(lengths - self.space.copy_len(lengths), 0)
    room = self.seq_len - self.options.min_copy_len
    return grid.GridSource(
      self.store,
      self._documents.take(first_documents),
      grid.evenly_spaced(last_start, num_starts),
      np.arange(num_offsets) * (room + 1) // num_offsets,
      seq_len=self.seq_len,
      content_length=self.space.content_length,
      min_copy_len=self.options.min_copy_len,
      layout=self.layout,
      name=f"{self.name}/validation",
    )

  def _options_in_use(self) -> dict[str, Any]:
    """Returns the options as JSON values.

    Fingerprints and side indexes of running jobs are older than some options:
    these are left out where they are unset.
    """
    rows = dataclasses.asdict(self.options)
    newer = ("doc_meta",) if self.kind == "splice" else ("doc_key", "doc_meta")
    return {n: v for n, v in rows.items() if v is not None or n not in newer}

  @property
  def fingerprint(self) -> dict[str, Any]:
    """What determines this source's rows, as JSON values."""
    rows = self._options_in_use()
    # Runs that began before these options existed continue.
    for name in self._schedule_options.unset():
      rows.pop(name, None)
    return {
      "store": self.store.hash,
      "seq_len": self.seq_len,
      "seed": self._seed,
      # Windows are such a schedule, and states hold this name for them.
      "kind": "multi_splice" if self.kind == "windows" else self.kind,
      "rows": rows,
      "filler_id": self.layout.filler_id,
      "token_before_document": self.layout.token_before_document,
    }

  def describe(self) -> str:
    """Returns a summary for the log: documents, lengths, shares, pairs."""
    options, space, epochs = self._schedule_options, self.space, self.epochs
    count = len(self._documents)
    slots = np.arange(min(count, _MAX_SHOWN))
    more = f" ... {count - len(slots)} more" if count > len(slots) else ""

    def listed(values: Iterable[object]) -> str:
      return "[" + ", ".join(str(v) for v in values) + more + "]"

    documents = self._documents.take(slots)
    lengths = self._lengths.take(slots).tolist()
    epoch_rows = int(self._schedule.epochs.epoch_rows[-1])
    first_row, end_row = self._schedule.rows_of_slots(slots, epochs.ramp)
    rows = end_row - first_row
    shares = [f"{share:.4f}" for share in rows / epoch_rows]
    whole_rows = ""
    if space.content_length is None:
      less = " - offset_jitter" * bool(space.offset_jitter)
      whole_rows = f" (content_length None: seq_len{less})"
    offsets = {"coverage_balanced": "right-aligned", "slide": "column 0"}
    lines = [
      (
        f"[{self.name}] {self.kind}: num_docs={count}"
        f" doc_lengths={listed(lengths)}"
      ),
      (
        f"  seq_len={self.seq_len} K={space.max_copy_len}{whole_rows}"
        f" adaptive_k={options.adaptive_k}"
        f" content_stride={options.content_stride}"
        f" offset_stride={options.offset_stride}"
        f" mode={space.content_start_mode}"
        f" offsets={offsets.get(space.content_start_mode, space.offset_domain)}"
        f" alpha={options.alpha:g}"
        f" offset_jitter={options.offset_jitter}"
        f" total_pairs={epoch_rows}"
      ),
      (
        f"  balance=balance_mode={options.balance_mode},"
        f" balance_tau={options.balance_tau}"
      ),
      f"  expected_doc_fraction={listed(shares)}",
      f"  pairs_per_doc={listed(rows.tolist())}",
      *self._schedule.describe(),
    ]
    ids = self.store.document_ids(documents)
    lines += [
      f"  document {document} ({identity!r}): length={length}"
      for document, identity, length in zip(
        documents.tolist(), ids, lengths, strict=True
      )
    ]
    return "\n".join(lines)

  def _warn_of_usage(self, path: str) -> None:
    """Logs which documents get no row, and what a shuffle costs."""
    count, num_usable = len(self._documents), self._schedule.num_usable
    if (
      self._schedule_options.shuffle_content
      and self.space.is_ragged
      and count > _MANY_RAGGED
    ):
      logging.warning(
        "%s: shuffle_content with offset_domain='tight' looks up to K starts"
        " of each document again in every epoch (about 0.4 ms per document"
        " and epoch) for %d documents. shuffle.kind='full' costs nothing.",
        path,
        count,
      )
    if num_usable < count:
      logging.warning(
        "%s: %d of %d selected documents are too short to be copied and get"
        " no row (the longest of them has %d tokens).",
        path,
        count - num_usable,
        count,
        self._schedule.longest_unused,
      )


def validation_of(source: row_source.RowSource) -> row_source.RowSource:
  """Returns a small grid of the selected documents of a source.

  Args:
    source: Rows in no order; of other kinds than splices, the grid is of the
      store's first documents.
  """
  if isinstance(source, SpliceSource):
    return source.validation()
  return grid.of_documents(source)
