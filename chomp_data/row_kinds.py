# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The kinds of rows, `sources.<name>.rows.kind`: one entry each.

A kind is a dataclass of options, the source that is made from them, and what
other parts of a run need to know of it. To add one, write both and an entry in
`ROW_KINDS`; nothing else names a kind.
"""

from collections.abc import Callable
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
    each_token_once: Whether an epoch is one pass over the tokens of a store, as
      `start_after` and `simulated_epochs` require.
    ends_row: Whether the last column of a row is never trained on, so that
      `lookahead` has no effect.
  """

  options: type
  source: Callable[..., row_source.RowSource]
  has_blocks: bool = False
  each_token_once: bool = False
  ends_row: bool = False

  @property
  def adds_eos(self) -> bool:
    """Whether it can put an EOS between the documents of a row."""
    return "add_eos" in schema.options_of(self.options)


ROW_KINDS: dict[str, RowKind] = {
  "splice": RowKind(
    splice_options.SpliceOptions, splice_source.SpliceSource, ends_row=True
  ),
  "multi_splice": RowKind(
    splice_options.MultiSpliceOptions, splice_source.SpliceSource, ends_row=True
  ),
  "windows": RowKind(
    splice_options.WindowOptions, splice_source.SpliceSource, ends_row=True
  ),
  "sequential": RowKind(
    packing_options.SequentialOptions,
    sequential.SequentialSource,
    each_token_once=True,
  ),
  "bin": RowKind(
    packing_options.BinOptions,
    bins.BinSource,
    has_blocks=True,
    each_token_once=True,
  ),
}


# The kind of a section `rows` without `kind`.
DEFAULT_KIND = "sequential"


def section(values: Any, seq_len: int | None) -> schema.Section:
  """Returns the declaration of a section `rows`.

  Args:
    values: Of the section; they may be wrong.
    seq_len: Positions of a row, or None if that option is wrong too: rules
      between fields are then not checked.
  """

  def check(options: Any, path: str) -> list[str]:
    if seq_len is None:
      return []
    nested = {
      name: section.read((values or {}).get(name), path)[0]
      for name, section in declared.sections.items()
    }
    return dataclasses.replace(options, **nested).problems(path, seq_len)

  declared = schema.section_by_kind(
    {name: kind.options for name, kind in ROW_KINDS.items()},
    values,
    "How rows are made of the store's documents.",
    DEFAULT_KIND,
  )
  return dataclasses.replace(declared, check=check, fix="Give it `kind`.")


def of(cls: type | None) -> RowKind | None:
  """Returns the kind of an options dataclass, or None if it is of none."""
  kinds = [kind for kind in ROW_KINDS.values() if kind.options is cls]
  return kinds[0] if kinds else None


def passes_over_tokens() -> list[str]:
  """Returns the kinds whose epochs have every token once."""
  return [name for name, kind in ROW_KINDS.items() if kind.each_token_once]


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
  kind = of(type(options))
  if kind is None:
    raise TypeError(f"`options` must be of a kind of rows, got {options!r}.")
  return kind.source(store, options, **named)
