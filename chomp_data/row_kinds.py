# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The kinds of rows, `sources.<name>.rows.kind`: one entry each.

A kind is a dataclass of options and the source that is made from them. To add
one, write both and an entry in `ROW_KINDS`.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
from typing import Any

from chomp_data import schema
from chomp_data import stores
from chomp_data.pack import bins
from chomp_data.pack import packing_options
from chomp_data.pack import sequential
from chomp_data.sources import row_source
from chomp_data.splice import options as splice_options
from chomp_data.splice import source as splice_source


@dataclasses.dataclass(frozen=True)
class RowKind:
  """One kind of rows.

  Attributes:
    options: Its dataclass of options, made with `schema`, with a method
      `problems(path, seq_len)` that returns what is wrong between fields.
    source: Makes the source: (store, options, *, seq_len, seed, name, path).
    has_blocks: Whether its rows form blocks (packing windows) that a block
      shuffle permutes.
  """

  options: type
  source: Callable[..., row_source.RowSource]
  has_blocks: bool = False


ROW_KINDS: dict[str, RowKind] = {
  "splice": RowKind(splice_options.SpliceOptions, splice_source.SpliceSource),
  "multi_splice": RowKind(
    splice_options.MultiSpliceOptions, splice_source.SpliceSource
  ),
  "windows": RowKind(splice_options.WindowOptions, splice_source.SpliceSource),
  "sequential": RowKind(
    packing_options.SequentialOptions, sequential.SequentialSource
  ),
  "bin": RowKind(packing_options.BinOptions, bins.BinSource, has_blocks=True),
}


# The kind of a section `rows` without `kind`.
DEFAULT_KIND = "sequential"


def read(path: str, section: Any, seq_len: int | None) -> tuple[Any, list[str]]:
  """Returns the options of a section `rows`, and what is wrong with it.

  Args:
    path: Dotted path of the section.
    section: A mapping, or None for the defaults.
    seq_len: Positions of a row, or None if that option is wrong too.
  """
  if section is None:
    section = {}
  if not isinstance(section, Mapping):
    return None, [
      schema.bad_value(
        path, "a section with fields", section, "Give it `kind`."
      )
    ]
  kind = section.get("kind", DEFAULT_KIND)
  if not isinstance(kind, str) or kind not in ROW_KINDS:
    rule = schema.choice(ROW_KINDS)
    return None, [schema.bad_value(f"{path}.kind", rule, kind, "Choose one.")]
  others = [name for name in other_fields(kind) if name in section]
  fields = {
    name: value
    for name, value in section.items()
    if name != "kind" and name not in others
  }
  rows, problems = schema.read(ROW_KINDS[kind].options, fields, path)
  if rows is not None and seq_len is not None:
    problems = rows.problems(path, seq_len)
  for name in others:
    kinds = [
      repr(other)
      for other, row_kind in ROW_KINDS.items()
      if name in schema.options_of(row_kind.options)
    ]
    problems.append(
      f"`{path}.{name}` must be left out where `{path}.kind` is {kind!r}, got"
      f" {section[name]!r}. Set kind to {' or '.join(kinds)}, or remove it."
    )
  return rows, problems


def other_fields(kind: str) -> list[str]:
  """Returns the options that only kinds other than this one have."""
  names = {
    name
    for row_kind in ROW_KINDS.values()
    for name in schema.options_of(row_kind.options)
  }
  return sorted(names - set(schema.options_of(ROW_KINDS[kind].options)))


def has_blocks(options: Any) -> bool:
  """Returns whether the rows of these options form blocks."""
  return any(
    kind.has_blocks
    for kind in ROW_KINDS.values()
    if type(options) is kind.options
  )


def make(
  options: Any, store: stores.Store, **named: Any
) -> row_source.RowSource:
  """Returns the source of options.

  Args:
    options: Of one of the kinds.
    store: Where its tokens are.
    **named: `seq_len`, `seed`, `name` and `path` of the source.

  Raises:
    ConfigError: If options do not fit the store.
  """
  for kind in ROW_KINDS.values():
    if type(options) is kind.options:
      return kind.source(store, options, **named)
  raise TypeError(f"`options` must be of a kind of rows, got {options!r}.")
