# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Splices: documents placed at many columns of a row (seed 000).

One source over any schedule of (document, t, s). Positions are columns, never
reset: the same text at two offsets reaches the model at two positions.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import os
from typing import Any

from absl import logging
import numpy as np

from chomp_data import schema
from chomp_data import stores
from chomp_data.index import columns
from chomp_data.index import intervals
from chomp_data.rows import row_layout
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import document_columns
from chomp_data.sources import epochs as epochs_lib
from chomp_data.sources import row_source
from chomp_data.sources import row_sums
from chomp_data.sources import shared_options as options_lib
from chomp_data.sources import special_tokens
from chomp_data.splice import document_shares
from chomp_data.splice import grid
from chomp_data.splice import pair_space
from chomp_data.splice import share_options
from chomp_data.splice import splice_schedule
from chomp_data.splice.options import MultiSpliceOptions
from chomp_data.splice.options import SpliceOptions
from chomp_data.splice.options import WindowOptions

_KINDS = {
  SpliceOptions: "splice",
  MultiSpliceOptions: "multi_splice",
  WindowOptions: "windows",
}

# Documents whose ragged order of starts is kept; see AxisOrder.
_MANY_RAGGED = 64


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
    # Of many documents it is asked for with each plan.
    self._first_token: np.ndarray | None = None
    if isinstance(self._documents, columns.ArrayColumn):
      self._first_token = store.bounds(self._documents.read())[0]
    self.space: pair_space.PairSpace = options.pair_space(
      seq_len, options.content_lengths()[-1][1]
    )
    self._shares = document_shares.resolve(
      store, self._documents, options, path
    )
    self._schedule, usable = splice_schedule.make_schedule(
      options,
      self._lengths,
      self._shares,
      seq_len=seq_len,
      seed=seed,
      name=name,
      path=path,
      keep=self._keep,
      check=lambda found: self._check_usable(found, path),
    )
    self._report_unused(usable, path)
    # A rolled copy that passes the end of its document is two spans.
    self.one_span: bool = self.space.content_start_mode != "cyclic_roll"
    self.spans_repeat: bool = self.one_span or self._all_pairs

  def _keep(
    self, build: Callable[[], Mapping[str, np.ndarray]]
  ) -> Mapping[str, columns.Column]:
    # All that selection and quotas can depend on.
    key = {"seq_len": self.seq_len, "rows": self._options_in_use()}
    return document_columns.load_or_build(
      self.store, "quotas", key, build, len(self._documents)
    )

  @property
  def documents(self) -> np.ndarray:
    """The selected documents, int64[D]; of many ones it is made anew."""
    return self._documents.read().astype(np.int64, copy=False)

  @property
  def lengths(self) -> np.ndarray:
    """Tokens of the selected documents, int64[D]; see `documents`."""
    return self._lengths.read().astype(np.int64, copy=False)

  def __len__(self) -> int:
    return int(self._schedule.phases.sizes(np.zeros(1, np.int64))[0])

  @property
  def epochs(self) -> epochs_lib.Epochs:
    """The passes of the schedule; those before its last phase are the ramp."""
    return self._schedule.phases

  def plan(self, rows: np.ndarray) -> spans_lib.Spans:
    """Plans rows; see `RowSource.plan`."""
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
      # A copy that passes its document's end goes on from its start.
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
  def sums(self) -> row_sums.Sums:
    """What copies consume; see `RowSource`."""
    return splice_schedule.SpliceSums(
      self._schedule,
      self.epochs.ramp,
      all_pairs=self._all_pairs,
      labelled=not self.store.trains_on_all,
    )

  @property
  def _all_pairs(self) -> bool:
    """Whether epochs after the ramp hold the same pairs."""
    options = self.options
    shuffled = bool(options.shuffle_content or options.shuffle_offsets)
    return not shuffled or options.balance()["balance_mode"] == "enumerate"

  def rows_of(self, document: int, epoch: int) -> intervals.Intervals:
    """Returns the rows that copy a document; see `RowSource`."""
    first = last = 0
    for slot in np.flatnonzero(self.documents == document).tolist():
      # Rows of a document follow each other.
      first, last = self._schedule.rows_of(slot, epoch)
    return intervals.merged(np.asarray([first]), np.asarray([last]))

  def quotas(self, row: int | None = None) -> np.ndarray:
    """Returns rows of an epoch by selected document.

    Args:
      row: A row of that epoch; None: an epoch after the ramp.

    Returns:
      int64[D].
    """
    if row is None:
      return self._schedule.quotas()
    return self._schedule.quotas(
      int(self.epochs.locate(np.asarray([row]))[0][0])
    )

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
    first = np.arange(min(num_docs, len(self._documents)))
    lengths = self._lengths.take(first)
    last = np.maximum(lengths - self.space.copy_len(lengths), 0)
    room = self.seq_len - self.options.min_copy_len
    return grid.GridSource(
      self.store,
      self._documents.take(first),
      grid.evenly_spaced(last, num_starts),
      np.arange(num_offsets) * (room + 1) // num_offsets,
      seq_len=self.seq_len,
      content_length=self.space.content_length,
      min_copy_len=self.options.min_copy_len,
      layout=self.layout,
      name=f"{self.name}/validation",
    )

  def _options_in_use(self) -> dict[str, Any]:
    """Returns the options as JSON values.

    Those that are newer than fingerprints and side indexes of running jobs are
    there only where they are set.
    """
    rows = dataclasses.asdict(self.options)
    newer = ("doc_meta",) if self.kind == "splice" else ("doc_key", "doc_meta")
    for name in newer:
      if rows[name] is None:
        del rows[name]
    return rows

  @property
  def fingerprint(self) -> dict[str, Any]:
    """What decides this source's rows, as JSON values."""
    rows = self._options_in_use()
    if isinstance(self.options, share_options.ShareOptions):
      # Runs that began before these options were there go on.
      for name in self.options.unset():
        del rows[name]
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
    """Returns the seed's debug summary: documents, lengths, shares, pairs."""
    shown = 10
    count = len(self._documents)
    more = "" if count <= shown else f" ... {count - shown} more"

    def listed(values):
      return "[" + ", ".join(str(v) for v in values) + more + "]"

    first = np.arange(min(shown, count))
    documents = self._documents.take(first)
    lengths = self._lengths.take(first).tolist()
    epoch_rows = self._schedule.phases.last_pass_rows
    rows = self._schedule.first_quotas(shown)
    share = rows / epoch_rows
    whole = None
    if self._shares.groups is not None:
      whole = self.quotas() / epoch_rows
    ids = self.store.document_ids(documents)
    lines = [
      (
        f"[{self.name}] {self.kind}: num_docs={count}"
        f" doc_lengths={listed(lengths)}"
      ),
      (
        f"  seq_len={self.seq_len} K={self.space.max_copy_len}"
        f"{self._whole_rows_text()} adaptive_k={self.options.adaptive_k}"
        f" content_stride={self.options.content_stride}"
        f" offset_stride={self.options.offset_stride}"
        f" mode={self.space.content_start_mode}"
        f" offsets={self._offsets_text()}"
        f" alpha={self.options.alpha:g}"
        f" offset_jitter={self.options.offset_jitter}"
        f" total_pairs={epoch_rows}"
      ),
      (
        "  balance="
        + ", ".join(f"{k}={v}" for k, v in self.options.balance().items())
      ),
      f"  expected_doc_fraction={listed([f'{p:.4f}' for p in share])}",
      f"  pairs_per_doc={listed(rows.tolist())}",
      *splice_schedule.describe(
        self.options, self._schedule, self._shares, whole
      ),
    ]
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
    less = " - offset_jitter" * bool(self.options.offset_jitter)
    return f" (content_length None: seq_len{less})"

  def _offsets_text(self) -> str:
    match self.space.content_start_mode:
      case "coverage_balanced":
        return "right-aligned"
      case "slide":
        return "column 0"
      case _:
        return self.space.offset_domain

  def _check_usable(self, usable: splice_schedule.Usable, path: str) -> None:
    """Refuses an empty epoch."""
    if not usable.count:
      raise schema.ConfigError(
        [
          f"`{path}.min_copy_len` and `content_length` must admit a document,"
          f" got {self.options.min_copy_len} and"
          f" {self.options.content_length} (adaptive_k="
          f"{self.options.adaptive_k}) where the longest of"
          f" {len(self._documents)} selected documents has"
          f" {usable.longest} tokens. Lower them, or select longer documents."
        ]
      )

  def _report_unused(self, usable: splice_schedule.Usable, path: str) -> None:
    """Warns of what the schedule leaves out, and of what it costs."""
    count = len(self._documents)
    if (
      self.options.shuffle_content
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
