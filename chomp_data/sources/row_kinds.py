"""The kinds of rows, `sources.<name>.rows.kind`: one entry each.

A kind is a dataclass of options and the source that is made from them; both
stand in one file. To add one, write that file and its entry here.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
from typing import Any

from chomp_data import schema
from chomp_data import stores
from chomp_data.sources import bins
from chomp_data.sources import packing_options
from chomp_data.sources import row_source
from chomp_data.sources import sequential
from chomp_data.sources import splice
from chomp_data.sources import splice_options


@dataclasses.dataclass(frozen=True)
class RowKind:
  """One kind of rows.

  Attributes:
    options: Its dataclass of options, made with `schema`, with a method
      `problems(path, seq_len)` that returns what is wrong between fields.
    source: Makes the source: (store, options, *, seq_len, seed, name, path).
    own_blocks: Whether its rows form blocks of their own to be shuffled.
  """

  options: type
  source: Callable[..., row_source.RowSource]
  own_blocks: bool = False


def _windows(
  store: stores.Store,
  options: splice_options.WindowOptions,
  *,
  seq_len: int,
  **named: Any,
) -> splice.SpliceSource:
  own = options.as_splices(seq_len)
  return splice.SpliceSource(store, own, seq_len=seq_len, **named)


ROW_KINDS: dict[str, RowKind] = {
  "splice": RowKind(splice_options.SpliceOptions, splice.SpliceSource),
  "multi_splice": RowKind(
    splice_options.MultiSpliceOptions, splice.SpliceSource
  ),
  "windows": RowKind(splice_options.WindowOptions, _windows),
  "sequential": RowKind(
    packing_options.SequentialOptions, sequential.SequentialSource
  ),
  "bin": RowKind(packing_options.BinOptions, bins.BinSource, own_blocks=True),
}


def read(path: str, section: Any, seq_len: int | None) -> tuple[Any, list[str]]:
  """Returns the options of a section `rows`, and what is wrong with it.

  Args:
    path: Dotted path of the section.
    section: A mapping with `kind`.
    seq_len: Positions of a row, None where they are wrong too.
  """
  kind = section.get("kind") if isinstance(section, Mapping) else None
  if not isinstance(kind, str) or kind not in ROW_KINDS:
    kinds = ", ".join(repr(k) for k in ROW_KINDS)
    return None, [
      schema.bad_value(f"{path}.kind", f"one of {kinds}", kind, "Choose one.")
    ]
  own = {k: v for k, v in section.items() if k != "kind"}
  rows, problems = schema.read(ROW_KINDS[kind].options, own, path)
  if rows is not None and seq_len is not None:
    problems = rows.problems(path, seq_len)
  return rows, problems


def has_own_blocks(options: Any) -> bool:
  """Returns whether the rows of these options form blocks of their own."""
  return any(
    kind.own_blocks
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
