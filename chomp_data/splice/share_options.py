# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Options of splices: which documents are read when, and how often.

A curriculum of documents, a schedule of content lengths, groups that are
balanced first, and documents that override the stride or the edge weight.
All are pure functions of a source's row. Lengths are in tokens.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

from chomp_data import schema

# The group of documents that are in no other.
REST = "rest"

_STRIDE = schema.integer(1)
_ALPHA = schema.number(0, 8)
_ROW = schema.integer(0)
_LENGTH = schema.optional(schema.integer(2))
# What single documents may override.
_OVERRIDABLE = {"alpha": _ALPHA, "content_stride": _STRIDE}

# Options that balance_mode 'enumerate' excludes: it takes every pair once.
_NOT_ENUMERATED = (
  "curriculum_every",
  "content_length_schedule",
  "groups",
  "group_by_meta",
  "group_by_length",
)

_Fields = tuple[tuple[str, float], ...]


def _items(value: Any) -> list[tuple[Any, Any]]:
  """Returns the pairs of a mapping, or of a list of pairs."""
  if isinstance(value, str):
    raise TypeError
  pairs = value.items() if isinstance(value, Mapping) else value
  items = [(name, inner) for name, inner in pairs]
  if len({name for name, _ in items}) < len(items):
    raise ValueError
  return items


def _name(value: Any) -> str:
  return schema.text().convert(value)


def _groups(value: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
  groups = []
  for name, ids in _items(value):
    if isinstance(ids, str):
      raise TypeError
    members = tuple(sorted(_name(document) for document in ids))
    if not members or len(set(members)) < len(members):
      raise ValueError
    groups.append((_name(name), members))
  if not groups:
    raise ValueError
  return tuple(sorted(groups))


def _overrides(value: Any) -> tuple[tuple[str, _Fields], ...]:
  overrides = []
  for name, fields in _items(value):
    values = dict(_items(fields))
    if not values or not set(values) <= set(_OVERRIDABLE):
      raise ValueError
    converted = [(f, _OVERRIDABLE[f].convert(v)) for f, v in values.items()]
    overrides.append((_name(name), tuple(sorted(converted))))
  return tuple(sorted(overrides))


def _lengths(value: Any) -> tuple[tuple[int, int | None], ...]:
  if isinstance(value, Mapping | str):
    raise TypeError
  lengths = tuple(
    (_ROW.convert(row), _LENGTH.convert(length)) for row, length in value
  )
  rows = [row for row, _ in lengths]
  if not rows or rows != sorted(set(rows)):
    raise ValueError
  return lengths


def _bounds(value: Any) -> tuple[int, ...]:
  if isinstance(value, Mapping | str):
    raise TypeError
  bounds = tuple(schema.integer(1).convert(bound) for bound in value)
  if not bounds or list(bounds) != sorted(set(bounds)):
    raise ValueError
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShareOptions(schema.Options):
  """Options of which documents are read when, and how often.

  Attributes:
    curriculum_start: With how many documents the run begins where
      `curriculum_every` is set; None is 1.
    curriculum_every: After how many rows of the source one more document is
      added; None reads all from the first row on.
    content_length_schedule: Other values of `content_length` from some rows of
      the source on, as pairs (from_row, content_length).
    groups: Ids of documents by the name of their group; rows are shared by
      groups first, then by the documents of each. Documents in no group form
      the group 'rest'.
    group_by_meta: Whether groups are what tools/prepare.py --meta_key stored
      of each document, or the name of a field of --meta_keys whose values are
      the groups; documents without a value form the group 'rest'.
    group_by_length: Lengths in tokens at which the next group of documents
      begins: (1_000, 10_000) makes the groups '0..999', '1000..9999' and
      '10000..'.
    group_weights: Shares of groups, by name; others weigh 1.
    doc_overrides: Other `content_stride` and `alpha` for single documents, by
      their ids.
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


def problems(options: Any, path: str) -> list[str]:
  """Returns what is wrong between `ShareOptions` and the other fields.

  Args:
    options: `MultiSpliceOptions`.
    path: Dotted path of the options.
  """
  messages = []
  if options.balance_mode == "enumerate":
    messages += [
      f"`{path}.{name}` must be unset where balance_mode is 'enumerate', got"
      f" {getattr(options, name)!r}. Unset it: every pair comes once."
      for name in _NOT_ENUMERATED
      if getattr(options, name)
    ]
  start = options.curriculum_start
  if start is not None and options.curriculum_every is None:
    messages.append(
      f"`{path}.curriculum_start` must be None where curriculum_every is, got"
      f" {start}. Set curriculum_every to the rows between documents."
    )
  if start is not None and start > (options.num_docs or start):
    messages.append(
      f"`{path}.curriculum_start` must be at most `num_docs`, got {start} >"
      f" {options.num_docs}. Lower it."
    )
  messages += _group_problems(options, path)
  messages += _override_problems(options, path)
  return messages + _schedule_problems(options, path)


def _group_problems(options: Any, path: str) -> list[str]:
  messages = []
  groups: Sequence[tuple[str, tuple[str, ...]]] = options.groups or ()
  if groups and options.group_by_meta:
    messages.append(
      f"`{path}.group_by_meta` must be False where groups are listed, got"
      f" {options.group_by_meta!r} with {[name for name, _ in groups]}. Unset"
      " one of them."
    )
  bounds = options.group_by_length
  if bounds and (groups or options.group_by_meta):
    messages.append(
      f"`{path}.group_by_length` must be None where groups are listed or kept"
      f" by the store, got {bounds}. Unset one of them."
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
  weights = options.group_weights
  if weights and not (groups or options.group_by_meta or bounds):
    messages.append(
      f"`{path}.group_weights` must be unset without groups, got"
      f" {dict(weights)!r}. Set groups, group_by_meta or group_by_length."
    )
  names = {*(name for name, _ in groups), REST}
  for name, _ in weights or () if groups else ():
    if name not in names:
      messages.append(
        f"`{path}.group_weights` must name groups, got {name!r}. Known groups:"
        f" {', '.join(sorted(names))}.{schema.did_you_mean(name, names)}"
      )
  return messages


def _override_problems(options: Any, path: str) -> list[str]:
  balanced = (
    options.mode == "splice"
    and options.content_start_mode == "coverage_balanced"
    and options.balance_mode not in ("by_document", "enumerate")
  )
  return [
    f"`{path}.doc_overrides` must set no alpha above 0 unless mode is"
    " 'splice', content_start_mode 'coverage_balanced' and balance_mode"
    f" 'by_temperature' or 'by_coverage', got {dict(fields)['alpha']} for"
    f" {name!r}. Leave it out."
    for name, fields in options.doc_overrides or ()
    if dict(fields).get("alpha") and not balanced
  ]


def _schedule_problems(options: Any, path: str) -> list[str]:
  schedule = options.content_length_schedule
  if not schedule:
    return []
  messages = []
  path = f"{path}.content_length_schedule"
  if options.mode == "slide":
    messages.append(
      f"`{path}` must be None where mode is 'slide', got {schedule}. Unset it:"
      " a window holds seq_len tokens."
    )
  if schedule[0][0] == 0 and options.content_length is not None:
    messages.append(
      f"`{path}` must begin after row 0 where content_length is set, got"
      f" {schedule[0]} with content_length {options.content_length}. Unset"
      " content_length, or leave that entry out."
    )
  messages += [
    f"`{path}` must have lengths of at least `min_copy_len`, got {length} <"
    f" {options.min_copy_len} from row {row} on. Raise it or lower"
    " min_copy_len."
    for row, length in schedule
    if length is not None and length < options.min_copy_len
  ]
  return messages
