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

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import os
from typing import Any

from absl import logging
import numpy as np

from chomp_data import stores
from chomp_data.index import columns
from chomp_data.index import intervals
from chomp_data.rows import row_layout
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import document_columns
from chomp_data.sources import epochs as epochs_lib
from chomp_data.sources import row_source
from chomp_data.sources import row_units
from chomp_data.sources import shared_options as options_lib
from chomp_data.sources import special_tokens
from chomp_data.splice import document_shares
from chomp_data.splice import grid
from chomp_data.splice import pair_space
from chomp_data.splice import schedule as schedule_lib
from chomp_data.splice import units
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


class SpliceSource(row_source.RowSource):
  """Rows that each hold one splice, or one window, of a selected document.

  Attributes:
    kind: The `rows.kind` of its options.
  """

  document_slots = 1

  @options_lib.source_arguments(*_KINDS)
  def __init__(
    self,
    store: stores.Store | str | os.PathLike[str],
    options: SpliceOptions | MultiSpliceOptions | WindowOptions,
    *,
    seq_len: int,
    seed: int = 0,
    name: str = "splice",
    path: str = "rows",
  ):
    """Selects documents and computes their quotas; reads no token.

    Args:
      store: Where the documents are; a path is opened with `open_store`.
      options: Which documents are read, and where copies or windows begin.
      seq_len: Positions of a row, at least 2.
      seed: The run's seed.
      name: The source's name; its seeds depend on it.
      path: Dotted path of the options, for messages.

    Raises:
      TypeError: If an argument is of a wrong type.
      ConfigError: If options contradict each other or leave no row.
    """
    assert isinstance(store, stores.Store)
    options_lib.raise_problems(options, seq_len, path)
    self.kind: str = _KINDS[type(options)]
    if isinstance(options, WindowOptions):
      options = options.as_splices(seq_len)
    self.name = name
    self.store = store
    self.options = options
    self._seed = seed
    self.layout: row_layout.RowLayout = special_tokens.row_layout(
      store, options, seq_len, options.eos_before_document, path
    )
    self._documents, self._lengths = options.select(store, seq_len, path)
    # Cached if the documents are in memory: a third of the time of a plan.
    self._first_token: np.ndarray | None = None
    if isinstance(self._documents, columns.ArrayColumn):
      self._first_token = store.bounds(self._documents.read())[0]
    schedule_options = options.as_splices(seq_len)
    self._schedule_options = schedule_options
    self._schedule = schedule_lib.SpliceSchedule(
      schedule_options,
      self._lengths,
      document_shares.resolve(store, self._documents, schedule_options, path),
      seq_len=seq_len,
      seed=seed,
      name=name,
      path=path,
      load_or_build=self._load_or_build,
    )
    ramp = self._schedule.epochs.ramp
    self.space: pair_space.PairSpace = self._schedule.pairs_at(ramp).space
    self._warn_of_usage(path)
    # A rolled copy that passes the end of its document is two spans.
    self.one_span: bool = self.space.content_start_mode != "cyclic_roll"
    self.spans_repeat: bool = self.one_span or self._all_pairs

  def _load_or_build(
    self, build: Callable[[], Mapping[str, np.ndarray]]
  ) -> Mapping[str, columns.Column]:
    """Returns arrays about the selected documents, from disk if many."""
    # The options on which selection and quotas depend.
    key = {"seq_len": self.seq_len, "rows": self._options_in_use()}
    return document_columns.load_or_build(
      self.store, "quotas", key, build, len(self._documents)
    )

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
    """Returns the spans of rows.

    Args:
      rows: int64[N], row numbers over all epochs.
    """
    rows = row_source.checked_rows(rows)
    splices = self._schedule.splices(*self.epochs.locate(rows))
    count = len(rows)
    row = np.arange(count)
    start, column, length = splices.start, splices.column, splices.length
    document = self._documents.take(splices.slot)
    if self._first_token is None:
      token = self.store.bounds(document)[0]
    else:
      token = self._first_token[splices.slot]
    wrapped = 0
    if self.space.content_start_mode == "cyclic_roll":
      wrapped = start + length - self._lengths.take(splices.slot)
    if np.any(wrapped > 0):
      # A copy that passes its document's end continues from its start.
      over = np.maximum(wrapped, 0)
      pieces = np.repeat(row, 1 + (over > 0))
      second = np.zeros(len(pieces), np.bool_)
      second[1:] = pieces[1:] == pieces[:-1]
      head = (length - over)[pieces]
      row = pieces
      start = np.where(second, 0, start[pieces])
      column = column[pieces] + np.where(second, head, 0)
      length = np.where(second, over[pieces], head)
      document, token = document[pieces], token[pieces]
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
    )

  @property
  def repeating_units(self) -> Collection[str]:
    """Units of which every epoch after the ramp consumes the same number."""
    # Jitter moves copies and never shortens them. Axes in another order each
    # epoch may leave other pairs out, so that all copies of a document must be
    # alike, or every epoch must hold all pairs.
    return ("tokens", "loss_tokens") if self._all_pairs else self._copied_units

  @property
  def _copied_units(self) -> tuple[str, ...]:
    """Units of which all copies of a document in an epoch hold the same."""
    if not self.space.has_one_place:
      return ()
    # Of documents with labels, a copy has those of its own tokens.
    trains_on_all = self.store.trains_on_all
    return ("tokens", "loss_tokens") if trains_on_all else ("tokens",)

  @row_units.uniform_arguments
  def uniform(self, epoch: int, unit: str) -> row_units.Uniform | None:
    """Returns the units of a copy if all are equal; None where they differ.

    Args:
      epoch: The epoch, from 0.
      unit: What is counted, such as "tokens".
    """
    each = self._document_units(epoch, unit)
    if each is None:
      return None
    served = each[self._schedule.quotas(epoch) > 0]
    if served.min() != served.max():
      return None
    return row_units.Uniform(int(served[0]))

  @row_units.block_arguments
  def block_units(
    self, epoch: int, unit: str, rows: int | None
  ) -> row_units.BlockUnits | None:
    """Returns the units of blocks of copies of one document each.

    Args:
      epoch: The epoch, from 0.
      unit: What is counted, such as "tokens".
      rows: Most rows of a block; None if only the sum of all is needed.

    Returns:
      The units of each block, or None if rows must be planned.
    """
    each = self._document_units(epoch, unit)
    if each is None:
      return None
    return units.document_blocks(self._schedule.quotas(epoch), each, rows)

  def _document_units(self, epoch: int, unit: str) -> np.ndarray | None:
    """Returns what each copy of a document consumes.

    Args:
      epoch: The epoch.
      unit: One of `mix_units.UNITS` for rows.

    Returns:
      int64[D], or None where copies of one document differ.
    """
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

  @row_source.checks_document
  def rows_of(self, document: int, epoch: int) -> intervals.Intervals:
    """Returns the rows of an epoch that copy a document.

    Args:
      document: Its number in the store.
      epoch: The epoch, from 0.
    """
    first_row = end_row = 0
    for slot in np.flatnonzero(self.documents == document).tolist():
      # Rows of a document follow each other.
      first_row, end_row = self._schedule.rows_of(slot, epoch)
    return intervals.merged(np.asarray([first_row]), np.asarray([end_row]))

  def quotas(self, row: int | None = None) -> np.ndarray:
    """Returns rows of an epoch by selected document.

    Args:
      row: A row of that epoch; None: an epoch after the ramp.

    Returns:
      int64[D].
    """
    if row is None:
      return self._schedule.quotas()
    epoch, _ = self.epochs.locate(np.asarray([row]))
    return self._schedule.quotas(int(epoch[0]))

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
    options, schedule = self._schedule_options, self._schedule
    count = len(self._documents)
    shown = min(count, _MAX_SHOWN)
    more = f" ... {count - shown} more" if count > shown else ""

    def listed(values: Iterable[object]) -> str:
      return "[" + ", ".join(str(v) for v in values) + more + "]"

    documents = self._documents.take(np.arange(shown))
    lengths = self._lengths.take(np.arange(shown)).tolist()
    epoch_rows = int(schedule.epochs.epoch_rows[-1])
    rows = schedule.first_quotas(shown)
    share = rows / epoch_rows
    lines = [
      (
        f"[{self.name}] {self.kind}: num_docs={count}"
        f" doc_lengths={listed(lengths)}"
      ),
      (
        f"  seq_len={self.seq_len} K={self.space.max_copy_len}"
        f"{self._whole_rows_text()} adaptive_k={options.adaptive_k}"
        f" content_stride={options.content_stride}"
        f" offset_stride={options.offset_stride}"
        f" mode={self.space.content_start_mode}"
        f" offsets={self._offsets_text()}"
        f" alpha={options.alpha:g}"
        f" offset_jitter={options.offset_jitter}"
        f" total_pairs={epoch_rows}"
      ),
      (
        f"  balance=balance_mode={options.balance_mode},"
        f" balance_tau={options.balance_tau}"
      ),
      f"  expected_doc_fraction={listed(f'{s:.4f}' for s in share)}",
      f"  pairs_per_doc={listed(rows.tolist())}",
      *schedule.describe(),
    ]
    ids = self.store.document_ids(documents)
    lines += [
      f"  document {document} ({identity!r}): length={length}"
      for document, identity, length in zip(
        documents.tolist(), ids, lengths, strict=True
      )
    ]
    return "\n".join(lines)

  def _whole_rows_text(self) -> str:
    """Returns why K is what it is, where no `content_length` says so."""
    if self.space.content_length is not None:
      return ""
    less = " - offset_jitter" * bool(self.space.offset_jitter)
    return f" (content_length None: seq_len{less})"

  def _offsets_text(self) -> str:
    match self.space.content_start_mode:
      case "coverage_balanced":
        return "right-aligned"
      case "slide":
        return "column 0"
      case _:
        return self.space.offset_domain

  def _warn_of_usage(self, path: str) -> None:
    """Logs which documents get no row, and what a shuffle costs."""
    count, usable = len(self._documents), self._schedule.usable
    if (
      self._schedule_options.shuffle_content
      and self.space.is_ragged
      and count > _MANY_RAGGED
    ):
      logging.warning(
        "%s: shuffle_content with offset_domain='tight' looks up to K starts"
        " of each document anew in every epoch (about 0.4 ms a document and"
        " epoch) for %d documents. shuffle.kind='full' costs nothing.",
        path,
        count,
      )
    if usable.count < count:
      logging.warning(
        "%s: %d of %d selected documents are too short to be copied and get"
        " no row (the longest of them has %d tokens).",
        path,
        count - usable.count,
        count,
        usable.longest_unused,
      )
