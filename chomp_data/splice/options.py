# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Options of splices and windows.

`SpliceOptions` read one document (`rows.kind='splice'`), `MultiSpliceOptions`
several with a balance between them (`'multi_splice'`), `WindowOptions` plain
windows of every document (`'windows'`). `as_splices` returns the first and the
last as `MultiSpliceOptions` of the same rows. Lengths are in tokens.
"""

import dataclasses

from chomp_data import schema
from chomp_data import stores
from chomp_data.sources import shared_options as options_lib
from chomp_data.splice import pair_space
from chomp_data.splice import selecting
from chomp_data.splice import share_options

BALANCE_MODES = ("by_temperature", "by_coverage", "by_document", "enumerate")
JITTER_MODES = ("uniform", "low_discrepancy")

_ORDER = schema.either(schema.boolean(), schema.integer(1))
_SEED = schema.optional(options_lib.SEED)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleOptions(selecting.SelectionOptions, options_lib.FillerOptions):
  """Where in a document copies start, and where in the row they are placed.

  Attributes:
    mode: Whether a row holds a copy of part of a document, at some column
      ('splice'), or a window of seq_len tokens that fills it ('slide').
    content_start_mode: Where in a document copies start, and where in the row
      they are placed: 'coverage_balanced' anywhere, at the row's end;
      'slide_within' anywhere, at every column; 'anchor_start' at the document's
      start; 'cyclic_roll' anywhere, with the document's start after its end.
    content_length: Most tokens of a copy, K; None is as many as fit.
    content_stride: Tokens between one start and the next.
    offset_stride: Columns between one place of a copy and the next; not for
      'coverage_balanced', which has one place.
    offset_domain: Which columns a copy may begin at: 'tight' so that what is
      left of the document fits, 'grid' so that K tokens fit, 'frame' any,
      where the row may cut it. None is 'tight', or 'frame' where K is None or
      at least seq_len.
    min_copy_len: Shorter copies are not made, in tokens.
    alpha: How strongly starts near a document's edges are preferred; 0 is not
      at all.
    adaptive_k: Whether documents shorter than K are copied whole.
    offset_jitter: How many columns left of the row's end a copy may end, at
      most.
    jitter_mode: How the columns of `offset_jitter` are chosen: 'uniform' at
      random, or 'low_discrepancy' each in turn.
    epoch_length: Rows of an epoch; None is one row for each start and place.
    shuffle_content: Whether starts come in random order, another one each
      epoch; a number shuffles only within groups of that many.
    shuffle_offsets: Whether the places of each start come in random order; a
      number shuffles only within groups of that many.
    content_seed: Seed of `shuffle_content`; None derives one from the run's
      seed.
    offset_seed: Seed of `shuffle_offsets`; None derives one from the run's
      seed.
    eos_before_document: Whether an end-of-document token precedes a copy that
      does not begin at the row's start.
  """

  mode: str = schema.option("splice", schema.choice(("splice", "slide")))
  content_start_mode: str = schema.option(
    "coverage_balanced", schema.choice(pair_space.CONTENT_START_MODES)
  )
  content_length: int | None = schema.option(
    None, schema.optional(schema.integer(2))
  )
  content_stride: int = schema.option(1, schema.integer(1))
  offset_stride: int = schema.option(1, schema.integer(1))
  offset_domain: str | None = schema.option(
    None, schema.optional(schema.choice(pair_space.OFFSET_DOMAINS))
  )
  min_copy_len: int = schema.option(2, schema.integer(2))
  alpha: float = schema.option(0.0, schema.number(0, 8))
  adaptive_k: bool = schema.option(True, schema.boolean())
  offset_jitter: int = schema.option(0, schema.integer(0))
  jitter_mode: str = schema.option("uniform", schema.choice(JITTER_MODES))
  epoch_length: int | None = schema.option(
    None, schema.optional(schema.integer(1))
  )
  shuffle_content: bool | int = schema.option(False, _ORDER)
  shuffle_offsets: bool | int = schema.option(False, _ORDER)
  content_seed: int | None = schema.option(None, _SEED)
  offset_seed: int | None = schema.option(None, _SEED)
  eos_before_document: bool = schema.option(False, schema.boolean())

  def problems(self, path: str, seq_len: int) -> list[str]:
    """Returns what is wrong between these fields and with `seq_len`."""
    problems = self.selection_problems(path)
    if self.min_copy_len > seq_len:
      problems.append(
        f"`{path}.min_copy_len` must be at most seq_len, got"
        f" {self.min_copy_len} > {seq_len}. Lower it or use longer rows."
      )
    length = self.content_length
    if length is not None and length < self.min_copy_len:
      problems.append(
        f"`{path}.content_length` must be at least `min_copy_len`, got"
        f" {length} < {self.min_copy_len}. Raise it or lower min_copy_len."
      )
    if self.offset_jitter and seq_len - self.offset_jitter < self.min_copy_len:
      problems.append(
        f"`{path}.offset_jitter` must leave `min_copy_len` columns of"
        f" seq_len, got {self.offset_jitter} of {seq_len} with min_copy_len"
        f" {self.min_copy_len}. Lower it."
      )
    balanced = self.content_start_mode == "coverage_balanced"
    for name in ("alpha", "offset_jitter"):
      if getattr(self, name) and (self.mode == "slide" or not balanced):
        problems.append(
          f"`{path}.{name}` must be 0 unless mode is 'splice' and"
          " content_start_mode is 'coverage_balanced', got"
          f" {getattr(self, name)} with {self.mode!r},"
          f" {self.content_start_mode!r}. Unset one of them."
        )
    if self.mode == "slide" and length is not None and length < seq_len:
      problems.append(
        f"`{path}.content_length` must be None or at least seq_len where"
        f" mode is 'slide', got {length}. Unset it: a window holds seq_len"
        " tokens."
      )
    return problems

  def pair_space(
    self, seq_len: int, length: int | None
  ) -> pair_space.PairSpace:
    """Returns the (t, s) pairs that these options describe.

    Args:
      seq_len: Positions of a row.
      length: A content length.
    """
    domain = self.offset_domain
    if domain is None:
      fills_row = length is None or length >= seq_len
      domain = "frame" if fills_row else "tight"
    return pair_space.PairSpace(
      seq_len=seq_len,
      content_length=length,
      content_start_mode=(
        "slide" if self.mode == "slide" else self.content_start_mode
      ),
      content_stride=self.content_stride,
      offset_stride=self.offset_stride,
      offset_domain=domain,
      min_copy_len=self.min_copy_len,
      adaptive_k=self.adaptive_k,
      offset_jitter=self.offset_jitter,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpliceOptions(ScheduleOptions):
  """One document.

  Attributes:
    doc_select_mode: Which document is read where neither `doc_index` nor
      `doc_key` names one.
    doc_index: Number of the document in the store; where its length is outside
      the limits `doc_select_mode` decides instead, with a warning.
  """

  doc_select_mode: str = schema.option(
    "first", schema.choice(("first", "longest", "shortest", "random"))
  )
  doc_index: int | None = schema.option(
    None, schema.optional(schema.integer(0))
  )

  def problems(self, path: str, seq_len: int) -> list[str]:
    """Returns what is wrong between these fields and with `seq_len`."""
    problems = super().problems(path, seq_len)
    if self.doc_index is not None and self.doc_key is not None:
      problems.append(
        f"`{path}.doc_index` and `{path}.doc_key` must not both be set, got"
        f" {self.doc_index} and {self.doc_key!r}. Unset one."
      )
    return problems

  def select(
    self, store: stores.Store, seq_len: int, path: str
  ) -> selecting.Selected:
    """Returns (documents, lengths) of one."""
    return selecting.select_single(store, self, self.doc_index, seq_len, path)

  def as_splices(self, seq_len: int) -> "MultiSpliceOptions":
    """Returns options of the same rows, with what several documents need."""
    del seq_len
    fields = [field.name for field in dataclasses.fields(ScheduleOptions)]
    return MultiSpliceOptions(
      num_docs=1, **{name: getattr(self, name) for name in fields}
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultiSpliceOptions(ScheduleOptions, share_options.ShareOptions):
  """Several documents and the balance between them.

  Attributes:
    num_docs: How many documents are read; None is all within the limits.
    strict_num_docs: Whether it is an error where fewer documents are within
      the limits; else the longest of the others fill up.
    balance_mode: How often each document is read: 'by_temperature' by its
      length to the power of `balance_tau`, 'by_coverage' by its length,
      'by_document' all equally often, 'enumerate' once for each start and
      place.
    balance_tau: Power of the length for 'by_temperature': 1 is by length, 0
      equally often.
    doc_weights: How much more often single documents are read, by their ids;
      others weigh 1.
  """

  num_docs: int | None = schema.option(10, schema.optional(schema.integer(1)))
  strict_num_docs: bool = schema.option(True, schema.boolean())
  balance_mode: str = schema.option(
    "by_temperature", schema.choice(BALANCE_MODES)
  )
  balance_tau: float = schema.option(1.0, schema.number(0, 1))
  doc_weights: tuple[tuple[str, float], ...] | None = schema.option(
    None, schema.optional(schema.weights())
  )

  def problems(self, path: str, seq_len: int) -> list[str]:
    """Returns what is wrong between these fields and with `seq_len`."""
    problems = super().problems(path, seq_len)
    problems += share_options.problems(self, path)
    mode = self.balance_mode
    if self.doc_weights and mode in ("by_document", "enumerate"):
      problems.append(
        f"`{path}.doc_weights` must be unset where balance_mode is {mode!r},"
        f" got {dict(self.doc_weights)!r}. Use 'by_temperature' with"
        " balance_tau 0 for weighted equal shares."
      )
    if mode == "enumerate" and self.epoch_length is not None:
      problems.append(
        f"`{path}.epoch_length` must be None where balance_mode is"
        f" 'enumerate', got {self.epoch_length}. Unset it: every pair comes"
        " once."
      )
    if mode == "enumerate" and self.alpha:
      problems.append(
        f"`{path}.alpha` must be 0 where balance_mode is 'enumerate', got"
        f" {self.alpha}. Unset it: every start comes once."
      )
    return problems

  def select(
    self, store: stores.Store, seq_len: int, path: str
  ) -> selecting.Selected:
    """Returns (documents, lengths)."""
    return selecting.select_several(
      store, self, self.num_docs, self.strict_num_docs, seq_len, path
    )

  def content_lengths(self) -> list[tuple[int, int | None]]:
    """Returns (first row, content_length), ascending from row 0."""
    schedule = list(self.content_length_schedule or ())
    if schedule and schedule[0][0] == 0:
      return schedule
    return [(0, self.content_length), *schedule]

  def as_splices(self, seq_len: int) -> "MultiSpliceOptions":
    """Returns these options."""
    del seq_len
    return self


@dataclasses.dataclass(frozen=True, kw_only=True)
class WindowOptions(selecting.SelectionOptions, options_lib.FillerOptions):
  """Windows of seq_len tokens at column 0 over each document.

  Attributes:
    doc_select_mode: In which order documents are read, and which of them where
      `num_docs` is set.
    num_docs: How many documents are read; None is all within the limits.
    strict_num_docs: Whether it is an error where fewer documents are within
      the limits; else the longest of the others fill up.
    stride: Tokens from one window to the next; None is seq_len. The last
      window ends with the document.
    min_copy_len: Shorter documents are left out, in tokens.
  """

  doc_select_mode: str = schema.option(
    "first", schema.choice(("first", "longest", "shortest", "random"))
  )
  num_docs: int | None = schema.option(None, schema.optional(schema.integer(1)))
  strict_num_docs: bool = schema.option(True, schema.boolean())
  stride: int | None = schema.option(None, schema.optional(schema.integer(1)))
  min_copy_len: int = schema.option(2, schema.integer(2))

  def as_splices(self, seq_len: int) -> MultiSpliceOptions:
    """Returns options of the same rows as a sliding splice schedule."""
    shared = {
      field.name: getattr(self, field.name)
      for field in dataclasses.fields(self)
      if field.name != "stride"
    }
    return MultiSpliceOptions(
      mode="slide",
      content_stride=self.stride or seq_len,
      balance_mode="enumerate",
      **shared,
    )

  def problems(self, path: str, seq_len: int) -> list[str]:
    """Returns what is wrong between these fields and with `seq_len`."""
    return self.as_splices(seq_len).problems(path, seq_len)
