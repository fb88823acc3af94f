# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Options that a config leaves out and whose defaults a user may not expect.

A source without `shuffle` is read in stored order, and one without `add_eos`
has no token between its documents. Defaults stay as they are, because batches
of running jobs follow from them; a run logs them once at its start.
"""

from collections.abc import Iterator
from collections.abc import Mapping

from chomp_data import errors
from chomp_data import row_kinds
from chomp_data.config import options as options_lib
from chomp_data.sources import row_source

# Sources that a line names.
_SHOWN = 3


def lines(
  options: Mapping[str, options_lib.SourceOptions],
  sources: Mapping[str, row_source.RowSource],
) -> Iterator[str]:
  """Yields a line for each such option that sources leave out.

  Args:
    options: Of the sources, by name.
    sources: Those of text, by name.
  """
  ordered = [name for name in sources if _in_stored_order(options[name])]
  if ordered:
    yield (
      f"`shuffle` is not set for {errors.listed(ordered, _SHOWN)}: rows come in"
      " stored order."
      f" Set {options_lib.PATH}.sources.{ordered[0]}.shuffle.kind to 'block' or"
      " 'full' to shuffle them, or to 'none' to keep this order."
    )
  joined = [
    name
    for name, source in sources.items()
    if _without_separator(options[name], source)
  ]
  if joined:
    yield (
      f"`add_eos` is not set for {errors.listed(joined, _SHOWN)}: nothing is"
      " put between the documents of a row. Set"
      f" {options_lib.PATH}.sources.{joined[0]}.rows.add_eos to True to put an"
      " end-of-document token (EOS) after each, or to False to leave them so."
    )


def lookahead_lines(
  lookahead: bool, options: Mapping[str, options_lib.SourceOptions]
) -> Iterator[str]:
  """Yields a line where `lookahead` has no effect on some sources.

  Args:
    lookahead: `config.data.lookahead`.
    options: Of the sources, by name.
  """
  names = [
    name
    for name, source in options.items()
    if lookahead
    and (kind := row_kinds.of(type(source.rows))) is not None
    and kind.ends_row
  ]
  if names:
    yield (
      f"`{options_lib.PATH}.lookahead` has no effect on splices and windows"
      f" ({errors.listed(names, _SHOWN)}): the last column of their rows is not"
      " trained on."
    )


def _in_stored_order(source: options_lib.SourceOptions) -> bool:
  return (
    "shuffle" in source.unset
    and getattr(source.rows, "shuffle_documents", "none") == "none"
  )


def _without_separator(
  options: options_lib.SourceOptions, source: row_source.RowSource
) -> bool:
  rows, info = options.rows, source.store.opened.tokenizer
  kind = row_kinds.of(type(rows))
  return (
    "add_eos" in options.unset
    and kind is not None
    and kind.adds_eos
    and not (getattr(rows, "add_bos", False) or info.adds_bos or info.adds_eos)
  )
