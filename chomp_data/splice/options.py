# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Options of splices and windows.

`SpliceOptions` read one document (`rows.kind='splice'`), `MultiSpliceOptions`
several with a balance between them (`'multi_splice'`), `WindowOptions` plain
windows of every document (`'windows'`). `as_splices` returns the first and the
last as `MultiSpliceOptions` of the same rows. Lengths are in tokens.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

from chomp_data import schema
from chomp_data import stores
from chomp_data.sources import shared_options as options_lib
from chomp_data.splice import pair_space
from chomp_data.splice import selecting

BALANCE_MODES = ("by_temperature", "by_coverage", "by_document", "enumerate")
JITTER_MODES = ("uniform", "low_discrepancy")

# The group of documents that are in no other.
REST = "rest"

# What single documents may override.
_OVERRIDABLE = {
  "alpha": schema.number(0, 8),
  "content_stride": schema.integer(1),
}

# Options that balance_mode 'enumerate' excludes: it takes every pair once.
_NOT_ENUMERATED = (
  "curriculum_every",
  "content_length_schedule",
  "groups",
  "group_by_meta",
  "group_by_length",
  "epoch_length",
  "alpha",
)

_Fields = tuple[tuple[str, float], ...]
_LENGTH = schema.optional(schema.integer(2))


def _groups(value: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
  groups = []
  for name, ids in selecting.named_pairs(value):
    members = sorted(schema.sequence(schema.text()).convert(ids))
    if not members or len(set(members)) < len(members):
      raise ValueError
    groups.append((name, tuple(members)))
  if not groups:
    raise ValueError
  return tuple(sorted(groups))


def _overrides(value: Any) -> tuple[tuple[str, _Fields], ...]:
  overrides = []
  for name, fields in selecting.named_pairs(value):
    values = dict(selecting.named_pairs(fields))
    if not values or not set(values) <= set(_OVERRIDABLE):
      raise ValueError
    converted = [(f, _OVERRIDABLE[f].convert(v)) for f, v in values.items()]
    overrides.append((name, tuple(sorted(converted))))
  return tuple(sorted(overrides))


def _ascending(values: Sequence[int]) -> None:
  """Raises ValueError unless there are values, and they ascend."""
  if not values or list(values) != sorted(set(values)):
    raise ValueError


def _lengths(value: Any) -> tuple[tuple[int, int | None], ...]:
  if isinstance(value, Mapping | str):
    raise TypeError
  lengths = tuple(
    (schema.integer().convert(row), _LENGTH.convert(length))
    for row, length in value
  )
  _ascending([row for row, _ in lengths])
  return lengths


def _bounds(value: Any) -> tuple[int, ...]:
  bounds = schema.sequence(schema.integer(1)).convert(value)
  _ascending(bounds)
  return bounds


_BOUNDS = schema.Rule(
  "a list of ascending whole numbers of at least 1", _bounds
)
_GROUPS = schema.Rule(
  "a mapping (or a list of pairs) of distinct names to lists of distinct"
  " document ids",
  _groups,
)
_OVERRIDES = schema.Rule(
  "a mapping (or a list of pairs) of distinct document ids to mappings of"
  " `content_stride` (a whole number of at least 1) or `alpha` (a number in"
  " [0, 8])",
  _overrides,
)
_LENGTHS = schema.Rule(
  "a list of (from_row, content_length) with ascending rows of at least 0 and"
  " lengths of at least 2 or None",
  _lengths,
)

_ORDER = schema.either(schema.boolean(), schema.integer(1))
_SEED = schema.optional(options_lib.SEED)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleOptions(selecting.SelectionOptions, options_lib.FillerOptions):
  """Where in a document copies start, and where in the row they are placed.

  Attributes:
    mode: Whether a row holds a copy of part of a document, at some column
      ('splice'), or a window of seq_len tokens that fills it ('slide').
    content_start_mode: Where copies start in a document, and where they are
      placed in the row: 'coverage_balanced' starts anywhere and places at the
      row's end; 'slide_within' starts anywhere and places at every column;
      'anchor_start' starts at the document's start; 'cyclic_roll' starts
      anywhere and wraps around to the document's start.
    content_length: Most tokens of a copy, K; None is as many as fit.
    content_stride: Tokens between successive starts.
    offset_stride: Columns between successive places of a copy; not for
      'coverage_balanced', which has one place.
    offset_domain: Columns at which a copy may begin: 'tight' so that the rest
      of the document fits, 'grid' so that K tokens fit, 'frame' any column,
      where the row may cut the copy. None is 'tight', or 'frame' if K is None
      or at least seq_len.
    min_copy_len: Length of the shortest copy, in tokens.
    alpha: How strongly starts near a document's edges are preferred; 0 for no
      preference.
    adaptive_k: Whether documents shorter than K are copied whole.
    offset_jitter: Most columns between the end of a copy and the end of the
      row.
    jitter_mode: How the columns of `offset_jitter` are chosen: 'uniform' at
      random, or 'low_discrepancy' in an evenly spread sequence.
    epoch_length: Rows per epoch; None is one row for each start and column.
    shuffle_content: Whether starts are in random order, new in each epoch; a
      number shuffles only within groups of that many.
    shuffle_offsets: Whether the places of each start are in random order; a
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
    start_mode = "slide" if self.mode == "slide" else self.content_start_mode
    return pair_space.PairSpace(
      seq_len=seq_len,
      content_length=length,
      content_start_mode=start_mode,
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
    doc_select_mode: Which document is read if neither `doc_index` nor `doc_key`
      names one.
    doc_index: Number of the document in the store. If its length is outside the
      limits, `doc_select_mode` chooses another, with a warning.
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
    selection = selecting.Selection(store, self, seq_len, path)
    return selection.single(self.doc_index)

  def as_splices(self, seq_len: int) -> "MultiSpliceOptions":
    """Returns options of the same rows, with what several documents need."""
    del seq_len
    return MultiSpliceOptions(num_docs=1, **_fields_without(self, "doc_index"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShareOptions(schema.Options):
  """Options of which documents are read when, and how often.

  Attributes:
    curriculum_start: With how many documents the run starts if
      `curriculum_every` is set; None is 1.
    curriculum_every: After how many rows of the source one more document is
      added; None uses all documents from the first row on.
    content_length_schedule: Values of `content_length` by row of the source, as
      pairs (from_row, content_length).
    groups: Ids of documents by name of group; rows are divided among groups
      first, then among the documents of each. Documents in no group form the
      group 'rest'.
    group_by_meta: True to group documents by the value stored with
      `chomp-prepare --meta_key`, or the name of a field of --meta_keys to group
      by; documents without a value form the group 'rest'.
    group_by_length: Lengths in tokens at which the next group of documents
      begins: (1_000, 10_000) makes the groups '0..999', '1000..9999' and
      '10000..'.
    group_weights: Shares of groups, by name; others have weight 1.
    doc_overrides: Values of `content_stride` and `alpha` for single documents,
      by id.
  """

  curriculum_start: int | None = schema.option(
    None, schema.optional(schema.integer(1))
  )
  curriculum_every: int | None = schema.option(
    None, schema.optional(schema.integer(1))
  )
  content_length_schedule: tuple[tuple[int, int | None], ...] | None = (
    schema.option(None, schema.optional(_LENGTHS))
  )
  groups: tuple[tuple[str, tuple[str, ...]], ...] | None = schema.option(
    None, schema.optional(_GROUPS)
  )
  group_by_meta: bool | str = schema.option(
    False, schema.either(schema.boolean(), schema.text())
  )
  group_by_length: tuple[int, ...] | None = schema.option(
    None, schema.optional(_BOUNDS)
  )
  group_weights: tuple[tuple[str, float], ...] | None = schema.option(
    None, schema.optional(schema.weights())
  )
  doc_overrides: tuple[tuple[str, _Fields], ...] | None = schema.option(
    None, schema.optional(_OVERRIDES)
  )

  def unset(self) -> list[str]:
    """Returns the fields of this class that are not in use."""
    return [
      field.name
      for field in dataclasses.fields(ShareOptions)
      if not getattr(self, field.name)
    ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultiSpliceOptions(ScheduleOptions, ShareOptions):
  """Several documents and the balance between them.

  Attributes:
    num_docs: How many documents are read; None is all within the limits.
    strict_num_docs: Whether it is an error if fewer documents are within the
      limits; otherwise the longest of the others are added.
    balance_mode: How often each document is read: 'by_temperature' in
      proportion to its length to the power of `balance_tau`, 'by_coverage' in
      proportion to its length, 'by_document' all equally often, 'enumerate'
      once for each start and column.
    balance_tau: Exponent of the length for 'by_temperature': 1 is in proportion
      to length, 0 is equally often.
    doc_weights: Weights of single documents, by id, that multiply how often
      they are read; others have weight 1.
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
    if self.balance_mode == "enumerate":
      problems += [
        f"`{path}.{name}` must be unset where balance_mode is 'enumerate', got"
        f" {getattr(self, name)!r}. Unset it: every pair comes once."
        for name in _NOT_ENUMERATED
        if getattr(self, name)
      ]
    start = self.curriculum_start
    if start is not None and self.curriculum_every is None:
      problems.append(
        f"`{path}.curriculum_start` must be None where curriculum_every is, got"
        f" {start}. Set curriculum_every to the rows between documents."
      )
    if start is not None and start > (self.num_docs or start):
      problems.append(
        f"`{path}.curriculum_start` must be at most `num_docs`, got {start} >"
        f" {self.num_docs}. Lower it."
      )
    problems += self._group_problems(path)
    problems += self._override_problems(path)
    problems += self._schedule_problems(path)
    mode = self.balance_mode
    if self.doc_weights and mode in ("by_document", "enumerate"):
      problems.append(
        f"`{path}.doc_weights` must be unset where balance_mode is {mode!r},"
        f" got {dict(self.doc_weights)!r}. Use 'by_temperature' with"
        " balance_tau 0 for weighted equal shares."
      )
    return problems

  def _group_problems(self, path: str) -> list[str]:
    """Returns what is wrong with groups and their weights."""
    messages = []
    groups = self.groups or ()
    if groups and self.group_by_meta:
      messages.append(
        f"`{path}.group_by_meta` must be False where groups are listed, got"
        f" {self.group_by_meta!r} with {[name for name, _ in groups]}. Unset"
        " one of them."
      )
    bounds = self.group_by_length
    if bounds and (groups or self.group_by_meta):
      messages.append(
        f"`{path}.group_by_length` must be None where groups are listed or in"
        f" the store, got {bounds}. Unset one of them."
      )
    group_of: dict[str, str] = {}
    for name, ids in groups:
      if name == REST:
        messages.append(
          f"`{path}.groups` must not name a group {REST!r}, which holds the"
          " documents of no other, got one. Rename it, or leave it out."
        )
      for document in ids:
        if document in group_of:
          messages.append(
            f"`{path}.groups` must hold a document once, got {document!r} in"
            f" {group_of[document]!r} and {name!r}. Take it out of one."
          )
        group_of[document] = name
    weights = self.group_weights
    if weights and not (groups or self.group_by_meta or bounds):
      messages.append(
        f"`{path}.group_weights` must be unset without groups, got"
        f" {dict(weights)!r}. Set groups, group_by_meta or group_by_length."
      )
    names = {*(name for name, _ in groups), REST}
    for name, _ in weights or () if groups else ():
      if name not in names:
        messages.append(
          f"`{path}.group_weights` must name groups, got {name!r}. Known"
          f" groups: {', '.join(sorted(names))}."
          f"{schema.did_you_mean(name, names)}"
        )
    return messages

  def _override_problems(self, path: str) -> list[str]:
    """Returns what is wrong with options of single documents."""
    balanced = (
      self.mode == "splice"
      and self.content_start_mode == "coverage_balanced"
      and self.balance_mode not in ("by_document", "enumerate")
    )
    return [
      f"`{path}.doc_overrides` must set no alpha above 0 unless mode is"
      " 'splice', content_start_mode 'coverage_balanced' and balance_mode"
      f" 'by_temperature' or 'by_coverage', got {dict(fields)['alpha']} for"
      f" {name!r}. Leave it out."
      for name, fields in self.doc_overrides or ()
      if dict(fields).get("alpha") and not balanced
    ]

  def _schedule_problems(self, path: str) -> list[str]:
    """Returns what is wrong with lengths from a row on."""
    schedule = self.content_length_schedule
    if not schedule:
      return []
    messages = []
    path = f"{path}.content_length_schedule"
    if self.mode == "slide":
      messages.append(
        f"`{path}` must be None where mode is 'slide', got {schedule}. Unset"
        " it: a window holds seq_len tokens."
      )
    if schedule[0][0] == 0 and self.content_length is not None:
      messages.append(
        f"`{path}` must begin after row 0 where content_length is set, got"
        f" {schedule[0]} with content_length {self.content_length}. Unset"
        " content_length, or leave that entry out."
      )
    messages += [
      f"`{path}` must have lengths of at least `min_copy_len`, got {length} <"
      f" {self.min_copy_len} from row {row} on. Raise it or lower"
      " min_copy_len."
      for row, length in schedule
      if length is not None and length < self.min_copy_len
    ]
    return messages

  def select(
    self, store: stores.Store, seq_len: int, path: str
  ) -> selecting.Selected:
    """Returns (documents, lengths)."""
    selection = selecting.Selection(store, self, seq_len, path)
    return selection.several(self.num_docs, self.strict_num_docs)

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
    doc_select_mode: The order in which documents are read, and which of them if
      `num_docs` is set.
    num_docs: How many documents are read; None is all within the limits.
    strict_num_docs: Whether it is an error if fewer documents are within the
      limits; otherwise the longest of the others are added.
    stride: Tokens from the start of one window to the next; None is seq_len.
      The last window ends with the document.
    min_copy_len: Length of the shortest document that is read, in tokens.
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
    return MultiSpliceOptions(
      mode="slide",
      content_stride=self.stride or seq_len,
      balance_mode="enumerate",
      **_fields_without(self, "stride"),
    )

  def problems(self, path: str, seq_len: int) -> list[str]:
    """Returns what is wrong between these fields and with `seq_len`."""
    return self.as_splices(seq_len).problems(path, seq_len)


def _fields_without(options: schema.Options, name: str) -> dict[str, Any]:
  """Returns the fields of options but for one, by name."""
  return {
    field.name: getattr(options, field.name)
    for field in dataclasses.fields(options)
    if field.name != name
  }
